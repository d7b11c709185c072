/* text.h: what people type, as values: durations, numbers, lease IDs, hex, quoted words. Pure; nothing here fails without saying why in *em. */
#ifndef HOLDFAST_CTL_TEXT_H
#define HOLDFAST_CTL_TEXT_H

#include "base/buf.h"
#include "errors.h"

/* "10s", "500ms", "1m", "1h30m", "1.5s", "0". At most 100 years. Exact to the millisecond: what is finer is refused, and so is a number without a unit. */
bool text_duration(const char *text, uint64_t *ret_ms, struct errmsg *em);
/* A TTL: a duration, or a bare number of seconds, as etcdctl takes it. Rounded up to whole seconds, at least 1. */
bool text_ttl(const char *text, int64_t *ret_s, struct errmsg *em);
bool text_i64(const char *text, int64_t min, int64_t max, int64_t *ret, struct errmsg *em); /* decimal */
/* Hexadecimal, as leases are printed; with a leading "-" or "0x" too. Never 0. */
bool text_lease(const char *text, int64_t *ret, struct errmsg *em);
bool text_hex(const char *text, struct buf *ret, struct errmsg *em); /* "c0ffee"; appends to *ret on success only */
void text_to_hex(struct slice s, struct buf *ret);
bool text_is_utf8(struct slice s);

/* One word of a line: bare up to a blank, or in double quotes with \" \\ \n \t \r \xHH inside; quotes may begin in the middle. Skips blanks before it.
 * *at moves past the word. False with em->text empty: the line is over. False with a text: a quote is not closed, or a bad escape. */
bool text_word(const char **at, struct buf *ret, struct errmsg *em);

void text_print_lease(char ret[24], int64_t lease);  /* hexadecimal */
void text_print_time(char ret[32], int64_t unix_ms); /* 2026-11-29T23:44:00Z; empty when it is not known (0) */

#endif
