/* pbw.h: protobuf on the wire by hand: a writer for hot replies, and checks before a message is unpacked.
 * The writer leaves out default values, as proto3 does, except where the name says `_always`. */
#ifndef HOLDFAST_BASE_PBW_H
#define HOLDFAST_BASE_PBW_H

#include <protobuf-c/protobuf-c.h>

#include "base/buf.h"

void pbw_varint(struct buf *b, uint64_t v);                            /* bare, no tag */
void pbw_u64(struct buf *b, uint32_t field, uint64_t v);               /* uint64, int64 (as two's complement), enum, bool */
void pbw_u64_always(struct buf *b, uint32_t field, uint64_t v);        /* for oneof members */
void pbw_i64(struct buf *b, uint32_t field, int64_t v);
void pbw_fixed64(struct buf *b, uint32_t field, uint64_t v);
void pbw_bytes(struct buf *b, uint32_t field, struct slice s);         /* bytes, string; left out when empty */
void pbw_bytes_always(struct buf *b, uint32_t field, struct slice s);  /* for repeated and oneof members */
/* A sub-message: open, write its fields, close. The length prefix is written in place (moves the bytes when long). */
size_t pbw_open(struct buf *b, uint32_t field);                        /* returns a mark for pbw_close */
void pbw_close(struct buf *b, size_t mark);
size_t pbw_varint_size(uint64_t v);

enum pb_check {
	PB_CHECK_OK = 0,
	PB_CHECK_MALFORMED, /* cut short, bad tag or wire type, length past the end */
	PB_CHECK_TOO_DEEP,  /* more than `max_depth` nested messages */
};
enum { PB_CHECK_DEPTH_MAX = 64 };
/* Walks the bytes by the descriptor, without recursion and without allocating. protobuf-c has no depth limit of its
 * own: run this before every unpack of outside bytes. What passes unpacks without fail (proto3; `required` is not
 * looked at). The outermost message does not count: max_depth 0 allows no sub-message. At most PB_CHECK_DEPTH_MAX.
 * Strings are not checked: they may hold NULs and invalid UTF-8. */
enum pb_check pb_check(const ProtobufCMessageDescriptor *desc, struct slice bytes, unsigned max_depth);

#endif
