/* text.c: see text.h. */
#include "text.h"

#include <ctype.h>
#include <errno.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define DURATION_MAX_MS (UINT64_C(100) * 366 * 86400 * 1000)

/* ---- durations ---- */

static const struct unit {
	const char *name;
	uint64_t ms;
} units[] = { { "ms", 1 }, { "h", 3600000 }, { "m", 60000 }, { "s", 1000 } }; /* "ms" before "m" */

static const struct unit *unit_at(const char *text)
{
	for (size_t i = 0; i < sizeof(units) / sizeof(units[0]); i++) {
		if (strncmp(text, units[i].name, strlen(units[i].name)) == 0)
			return &units[i];
	}
	return NULL;
}

/* DIGITS[.DIGITS]UNIT; false when it is not that, is finer than a millisecond, or is too much. */
static bool duration_part(const char **at, uint64_t *total)
{
	uint64_t whole = 0, fraction = 0, scale = 1;
	const char *p = *at;
	const struct unit *u;
	bool digits = false;
	for (; isdigit((unsigned char)*p); p++, digits = true) {
		whole = whole * 10 + (uint64_t)(*p - '0');
		if (whole > DURATION_MAX_MS)
			return false;
	}
	if (*p == '.') {
		for (p++; isdigit((unsigned char)*p); p++, digits = true) {
			if (scale >= 1000000)
				return false;
			fraction = fraction * 10 + (uint64_t)(*p - '0');
			scale *= 10;
		}
	}
	u = unit_at(p);
	if (!digits || !u || whole > DURATION_MAX_MS / u->ms || fraction * u->ms % scale != 0)
		return false;
	*total += whole * u->ms + fraction * u->ms / scale;
	*at = p + strlen(u->name);
	return *total <= DURATION_MAX_MS;
}

bool text_duration(const char *text, uint64_t *ret_ms, struct errmsg *em)
{
	uint64_t total = 0;
	const char *at = text;
	if (strcmp(text, "0") == 0) {
		*ret_ms = 0;
		return true;
	}
	do {
		if (!duration_part(&at, &total)) {
			errmsg_set(em, "'%s' is not a duration such as 500ms, 10s or 1m", text);
			return false;
		}
	} while (*at);
	*ret_ms = total;
	return true;
}

bool text_ttl(const char *text, int64_t *ret_s, struct errmsg *em)
{
	uint64_t ms;
	if (*text && strspn(text, "0123456789") == strlen(text))
		return text_i64(text, 1, INT64_C(9000000000), ret_s, em);
	if (!text_duration(text, &ms, em))
		return false;
	if (ms == 0) {
		errmsg_set(em, "a time to live of '%s' is no time", text);
		return false;
	}
	*ret_s = (int64_t)((ms + 999) / 1000);
	return true;
}

/* ---- numbers ---- */

bool text_i64(const char *text, int64_t min, int64_t max, int64_t *ret, struct errmsg *em)
{
	char *end;
	long long v;
	errno = 0;
	v = strtoll(text, &end, 10);
	if (errno || end == text || *end || isspace((unsigned char)*text) || *text == '+') {
		errmsg_set(em, "'%s' is not a number", text);
		return false;
	}
	if (v < min || v > max) {
		errmsg_set(em, "%s is not within %" PRId64 "..%" PRId64, text, min, max);
		return false;
	}
	*ret = v;
	return true;
}

bool text_lease(const char *text, int64_t *ret, struct errmsg *em)
{
	const char *digits = text + (*text == '-');
	unsigned long long v;
	char *end;
	errno = 0;
	v = strtoull(digits, &end, 16);
	if (errno || !isxdigit((unsigned char)*digits) || end == digits || *end || v == 0) {
		errmsg_set(em, "'%s' is not a lease ID (hexadecimal, as 'lease grant' prints it)", text);
		return false;
	}
	/* In two's complement, so that every ID that is ever printed is read again. */
	*ret = (int64_t)(*text == '-' ? 0 - v : v);
	return true;
}

void text_print_lease(char ret[24], int64_t lease)
{
	/* As in the keys of locks: a sign and the magnitude. */
	snprintf(ret, 24, "%s%" PRIx64, lease < 0 ? "-" : "", lease < 0 ? 0 - (uint64_t)lease : (uint64_t)lease);
}

void text_print_time(char ret[32], int64_t unix_ms)
{
	time_t t = (time_t)(unix_ms / 1000);
	struct tm tm;
	ret[0] = '\0';
	if (unix_ms > 0 && gmtime_r(&t, &tm))
		strftime(ret, 32, "%Y-%m-%dT%H:%M:%SZ", &tm);
}

/* ---- bytes ---- */

static int hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	c = (char)(c | 0x20);
	return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

bool text_hex(const char *text, struct buf *ret, struct errmsg *em)
{
	size_t len = strlen(text);
	bool fine = len % 2 == 0;
	for (size_t i = 0; fine && i < len; i++)
		fine = hex_digit(text[i]) >= 0;
	if (!fine) {
		errmsg_set(em, "'%s' is not an even number of hexadecimal digits", text);
		return false;
	}
	for (size_t i = 0; i < len; i += 2)
		buf_append_byte(ret, (uint8_t)(hex_digit(text[i]) << 4 | hex_digit(text[i + 1])));
	return true;
}

void text_to_hex(struct slice s, struct buf *ret)
{
	static const char digits[] = "0123456789abcdef";
	for (size_t i = 0; i < s.len; i++) {
		buf_append_byte(ret, (uint8_t)digits[s.ptr[i] >> 4]);
		buf_append_byte(ret, (uint8_t)digits[s.ptr[i] & 15]);
	}
}

/* Length of the character that starts here; 0: none does. Neither overlong forms nor surrogates. */
static size_t utf8_one(const uint8_t *p, size_t left)
{
	static const uint32_t least[] = { 0, 0, 0x80, 0x800, 0x10000 };
	size_t n = *p < 0x80 ? 1 : *p >= 0xf0 && *p < 0xf8 ? 4 : *p >= 0xe0 && *p < 0xf0 ? 3 : *p >= 0xc0 && *p < 0xe0 ? 2 : 0;
	uint32_t v;
	if (n == 0 || n > left)
		return 0;
	if (n == 1)
		return 1;
	v = (uint32_t)(*p & (0x7f >> n));
	for (size_t i = 1; i < n; i++) {
		if ((p[i] & 0xc0) != 0x80)
			return 0;
		v = v << 6 | (p[i] & 0x3f);
	}
	return v >= least[n] && v <= 0x10ffff && (v < 0xd800 || v > 0xdfff) ? n : 0;
}

bool text_is_utf8(struct slice s)
{
	for (size_t i = 0; i < s.len;) {
		size_t n = utf8_one(s.ptr + i, s.len - i);
		if (n == 0)
			return false;
		i += n;
	}
	return true;
}

/* ---- words ---- */

static bool escape(const char **at, struct buf *ret, struct errmsg *em)
{
	static const char from[] = "\"\\ntr", to[] = "\"\\\n\t\r";
	const char *p = *at, *known = *p ? strchr(from, *p) : NULL;
	if (known) {
		buf_append_byte(ret, (uint8_t)to[known - from]);
		*at = p + 1;
		return true;
	}
	if (*p == 'x' && p[1] && p[2] && hex_digit(p[1]) >= 0 && hex_digit(p[2]) >= 0) {
		buf_append_byte(ret, (uint8_t)(hex_digit(p[1]) << 4 | hex_digit(p[2])));
		*at = p + 3;
		return true;
	}
	errmsg_set(em, "no such escape: '\\%.3s'", p);
	return false;
}

bool text_word(const char **at, struct buf *ret, struct errmsg *em)
{
	const char *p = *at + strspn(*at, " \t");
	bool quoted = false;
	em->text[0] = '\0';
	if (!*p)
		return false;
	for (; *p && (quoted || !isblank((unsigned char)*p));) {
		if (*p == '"') {
			quoted = !quoted;
			p++;
		} else if (quoted && *p == '\\') {
			p++;
			if (!escape(&p, ret, em))
				return false;
		} else {
			buf_append_byte(ret, (uint8_t)*p++);
		}
	}
	if (quoted) {
		errmsg_set(em, "a quote is not closed");
		return false;
	}
	*at = p;
	return true;
}
