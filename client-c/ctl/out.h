/* out.h: what is printed on standard output.
 *
 *   simple   for people and pipes; each command has its own. Keys and values come out as they are, byte for byte
 *   table    rows and columns with a heading. IDs of leases and members in hexadecimal, as everywhere but in JSON
 *   json     one line a message, as the JSON gateway says it, but bytes are text: "key", or {"hex":"00ff"} when they are no UTF-8. 64-bit numbers are
 *            strings, IDs decimal. All fields are there, but for messages that are not set
 *   fields   one line a field: "kvs.0.key: "a"", values as in JSON
 *
 * With --hex, keys and values are hexadecimal in all four. */
#ifndef HOLDFAST_CTL_OUT_H
#define HOLDFAST_CTL_OUT_H

#include <protobuf-c/protobuf-c.h>

#include "args.h"
#include "base/buf.h"

struct out {
	enum output format;
	bool hex;
};

/* ---- into a buffer ---- */
void out_json(const struct out *o, const ProtobufCMessage *m, struct buf *ret);
void out_json_string(struct slice s, struct buf *ret); /* quoted; what is no UTF-8 becomes U+FFFD */
void out_json_bytes(const struct out *o, struct slice s, struct buf *ret);
void out_fields(const struct out *o, const char *prefix, const ProtobufCMessage *m, struct buf *ret);
void out_bytes(const struct out *o, struct slice s, struct buf *ret); /* as it is, or in hexadecimal */

/* A table grows by cells; the first row is the heading. Zeroed is empty. */
struct table {
	struct buf text;    /* all cells, one after the other */
	size_t *ends;
	size_t len, cap;    /* cells */
	size_t columns;
};
void table_cell(struct table *t, const char *fmt, ...) __attribute__((format(printf, 2, 3)));
void table_cell_bytes(const struct out *o, struct table *t, struct slice s); /* control characters are escaped */
void table_row(struct table *t, const struct out *o, const ProtobufCMessage *m, const char *skip); /* all fields but the one named `skip` */
void table_head(struct table *t, const ProtobufCMessageDescriptor *d, const char *skip);
void table_head_done(struct table *t); /* all cells so far are the heading */
void table_print(const struct table *t, struct buf *ret);
void table_free(struct table *t);
/* The rows of a reply: of its first list of messages, or the reply itself as the one row. */
void table_of_message(const struct out *o, const ProtobufCMessage *m, struct buf *ret);

/* ---- onto standard output ---- */
/* For any format but simple: false when it is simple, and then nothing happened. */
bool out_message(const struct out *o, const ProtobufCMessage *m);
void out_write(const struct buf *b); /* and clears nothing */
void out_printf(const char *fmt, ...) __attribute__((format(printf, 1, 2)));
bool out_flush(void);                /* false: it cannot be written (any more) */
int out_failed(void);                /* what to exit with then: quietly as by SIGPIPE when the reader has gone, otherwise with a message */

#endif
