/* base64.h: bytes as text (RFC 4648): in JSON, in tokens, in the hashes of passwords. All functions append to `out`. */
#ifndef HOLDFAST_BASE_BASE64_H
#define HOLDFAST_BASE_BASE64_H

#include "base/buf.h"

void base64_encode(struct buf *out, struct slice bytes);    /* the standard alphabet, padded */
void base64url_encode(struct buf *out, struct slice bytes); /* the alphabet of URLs, not padded */

/* Both alphabets, padded or not; line ends are passed over. False: *ret_at is where the text goes wrong. */
bool base64_decode(struct buf *out, struct slice text, size_t *ret_at);

/* Only what the encoder of the same name writes, to the letter. False: `out` is as it was. */
bool base64_decode_exact(struct buf *out, struct slice text);
bool base64url_decode_exact(struct buf *out, struct slice text);

#endif
