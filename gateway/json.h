/* json.h: JSON text as Go's encoding/json reads it, since etcd's users know its errors: one value's extent and form, then a walk without checks.
 *
 * json_scan() looks at everything once. What it has passed may be walked by the other functions, which check nothing again and read no byte
 * past the value's end. */
#ifndef HOLDFAST_GATEWAY_JSON_H
#define HOLDFAST_GATEWAY_JSON_H

#include "base/buf.h"
#include "errors.h"

enum json_scan {
	JSON_VALUE, /* *ret is the value, without the space around it */
	JSON_END,   /* nothing but space was left */
	JSON_ERROR, /* em says what, in Go's words */
};

/* One value from text[*pos]; *pos moves behind it. Nesting is bounded by JSON_DEPTH_MAX, without recursion. */
enum { JSON_DEPTH_MAX = 10000 };
enum json_scan json_scan(struct slice text, size_t *pos, struct slice *ret, struct errmsg *em);
/* The whole text must be one value. False with em. */
bool json_whole(struct slice text, struct slice *ret, struct errmsg *em);

/* "number", "string", "bool", "null", "array", "object" */
const char *json_kind(struct slice value);
bool json_is_null(struct slice value);

/* The members of an object or the elements of an array: pos starts at 0. False at the end. key: raw, with its quotes. */
bool json_next_member(struct slice object, size_t *pos, struct slice *ret_key, struct slice *ret_value);
bool json_next_element(struct slice array, size_t *pos, struct slice *ret);

/* Appends a string's text, `value` being the string with its quotes. False: not UTF-8, or half a surrogate pair. */
bool json_unquote(struct slice value, struct buf *out);

bool json_is_utf8(struct slice text);
/* Appends text with its quotes, escaped as Go does (also for HTML); what is not UTF-8 becomes U+FFFD. */
void json_quote(struct buf *out, struct slice text);

#endif
