/* base64.h: bytes as JSON carries them (RFC 4648). */
#ifndef HOLDFAST_GATEWAY_BASE64_H
#define HOLDFAST_GATEWAY_BASE64_H

#include "base/buf.h"

void base64_encode(struct buf *out, struct slice bytes); /* the standard alphabet, padded */
/* Appends. Both alphabets, padded or not; line ends are passed over. False: *ret_at is where the text goes wrong. */
bool base64_decode(struct buf *out, struct slice text, size_t *ret_at);

#endif
