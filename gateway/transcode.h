/* transcode.h: any protobuf message between its packed form and JSON, by protobuf-c's descriptors.
 *
 * Reading is as lenient as etcd's own gateway (names as in the proto or lowerCamelCase, 64-bit numbers bare or quoted, enums by name or number,
 * null for unset, unknown names ignored, of a name given twice the last), and says the same words about what it refuses. It is stricter in
 * what etcd leaves to chance or changes silently: text that is not UTF-8, two members of one oneof, null in a list of messages. */
#ifndef HOLDFAST_GATEWAY_TRANSCODE_H
#define HOLDFAST_GATEWAY_TRANSCODE_H

#include <protobuf-c/protobuf-c.h>

#include "base/arena.h"
#include "base/buf.h"
#include "errors.h"

enum { TRANSCODE_DEPTH_MAX = 40 }; /* messages within messages; the services allow fewer */

/* value: one that json_scan() has passed. Appends the packed message to out. ERR_MALFORMED_JSON or ERR_TOO_DEEP, with em; out then holds rubbish. */
enum err transcode_read(const ProtobufCMessageDescriptor *desc, struct slice value, struct buf *out, struct errmsg *em);

/* With bytes (keys, values, names) as text instead of base64. */
enum err transcode_read_text(const ProtobufCMessageDescriptor *desc, struct slice value, struct buf *out, struct errmsg *em);

/* Appends the message as JSON. scratch is used and cleared. False: these bytes are no such message. */
bool transcode_write(const ProtobufCMessageDescriptor *desc, struct slice bytes, struct arena *scratch, struct buf *out);
/* With bytes as text; the message is one. False: some of them are not UTF-8; what is appended is still JSON. */
bool transcode_write_text(const ProtobufCMessageDescriptor *desc, struct slice bytes, struct arena *scratch, struct buf *out);
/* The same, as a google.protobuf.Any would be: with "@type" first. */
bool transcode_write_any(const ProtobufCMessageDescriptor *desc, struct slice bytes, struct arena *scratch, struct buf *out);

#endif
