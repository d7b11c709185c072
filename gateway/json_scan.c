/* json_scan.c: finds out where a JSON value ends and whether it is one.
 *
 * A machine of states over bytes, a stack of one bit a level for what encloses us. The states, and the words for what was not expected, are
 * those that Go's library tells its users. */
#include <stdio.h>

#include "json.h"

struct scanner {
	const uint8_t *at, *end;
	struct errmsg *em;
	size_t depth;
	uint8_t objects[JSON_DEPTH_MAX / 8 + 1]; /* bit set: that level is an object */
};

static bool is_space(uint8_t c)
{
	return c == ' ' || c == '\t' || c == '\r' || c == '\n';
}

static bool is_digit(uint8_t c)
{
	return c >= '0' && c <= '9';
}

/* A byte as Go quotes it: Latin-1 made readable. */
static void quote_char(uint8_t c, char *ret, size_t size)
{
	static const char named[] = "a\ab\bf\fn\nr\rt\tv\v";
	for (size_t i = 0; i + 1 < sizeof(named); i += 2) {
		if ((uint8_t)named[i + 1] == c) {
			snprintf(ret, size, "\\%c", named[i]);
			return;
		}
	}
	if (c == '\'' || c == '\\')
		snprintf(ret, size, "\\%c", c);
	else if (c >= ' ' && c < 0x7f)
		snprintf(ret, size, "%c", c);
	else if (c <= 0x7f)
		snprintf(ret, size, "\\x%02x", c);
	else if (c <= 0xa0 || c == 0xad)
		snprintf(ret, size, "\\u%04x", c);
	else
		snprintf(ret, size, "%c%c", 0xc0 | c >> 6, 0x80 | (c & 0x3f));
}

/* At the end of the text, or at a byte that does not belong there. */
static bool fail(struct scanner *s, const char *where)
{
	char c[16];
	if (s->at == s->end) {
		errmsg_set(s->em, "unexpected EOF");
		return false;
	}
	quote_char(*s->at, c, sizeof(c));
	errmsg_set(s->em, "invalid character '%s' %s", c, where);
	return false;
}

static void skip_space(struct scanner *s)
{
	while (s->at < s->end && is_space(*s->at))
		s->at++;
}

static bool scan_escape(struct scanner *s)
{
	if (s->at == s->end || !memchr("bfnrt\\/\"u", *s->at, 9))
		return fail(s, "in string escape code");
	if (*s->at++ != 'u')
		return true;
	for (int i = 0; i < 4; i++, s->at++) {
		if (s->at == s->end || !memchr("0123456789abcdefABCDEF", *s->at, 22))
			return fail(s, "in \\u hexadecimal character escape");
	}
	return true;
}

/* Behind the first quote. */
static bool scan_string(struct scanner *s)
{
	while (s->at < s->end && *s->at >= ' ') {
		uint8_t c = *s->at++;
		if (c == '"')
			return true;
		if (c == '\\' && !scan_escape(s))
			return false;
	}
	return fail(s, "in string literal");
}

static bool scan_word(struct scanner *s, const char *word)
{
	const char *rest = word;
	char where[48];
	while (*rest && s->at < s->end && *s->at == (uint8_t)*rest) {
		s->at++;
		rest++;
	}
	if (!*rest)
		return true;
	snprintf(where, sizeof(where), "in literal %s (expecting '%c')", word, *rest);
	return fail(s, where);
}

static bool scan_digits(struct scanner *s, const char *where)
{
	if (s->at == s->end || !is_digit(*s->at))
		return fail(s, where);
	while (s->at < s->end && is_digit(*s->at))
		s->at++;
	return true;
}

static bool scan_number(struct scanner *s)
{
	if (*s->at == '-')
		s->at++;
	if (s->at < s->end && *s->at == '0')
		s->at++;
	else if (!scan_digits(s, "in numeric literal"))
		return false;
	if (s->at < s->end && *s->at == '.') {
		s->at++;
		if (!scan_digits(s, "after decimal point in numeric literal"))
			return false;
	}
	if (s->at < s->end && (*s->at == 'e' || *s->at == 'E')) {
		s->at++;
		if (s->at < s->end && (*s->at == '+' || *s->at == '-'))
			s->at++;
		return scan_digits(s, "in exponent of numeric literal");
	}
	return true;
}

static bool in_object(const struct scanner *s)
{
	size_t level = s->depth - 1;
	return s->objects[level / 8] >> (level % 8) & 1;
}

static bool push(struct scanner *s, bool object)
{
	uint8_t bit = (uint8_t)(1U << (s->depth % 8));
	if (s->depth == JSON_DEPTH_MAX)
		return fail(s, "exceeded max depth");
	if (object)
		s->objects[s->depth / 8] |= bit;
	else
		s->objects[s->depth / 8] &= (uint8_t)~bit;
	s->depth++;
	s->at++;
	return true;
}

static bool scan_key(struct scanner *s)
{
	skip_space(s);
	if (s->at == s->end || *s->at != '"')
		return fail(s, "looking for beginning of object key string");
	s->at++;
	if (!scan_string(s))
		return false;
	skip_space(s);
	if (s->at == s->end || *s->at != ':')
		return fail(s, "after object key");
	s->at++;
	return true;
}

/* A scalar, or the beginning of what encloses more. *ret_open: it encloses, and is not empty. */
static bool scan_begin(struct scanner *s, bool *ret_open)
{
	*ret_open = false;
	skip_space(s);
	if (s->at == s->end)
		return fail(s, "");
	switch (*s->at) {
	case '{':
	case '[': {
		bool object = *s->at == '{';
		if (!push(s, object))
			return false;
		skip_space(s);
		if (s->at < s->end && *s->at == (object ? '}' : ']')) {
			s->at++;
			s->depth--;
			return true;
		}
		*ret_open = true;
		return !object || scan_key(s);
	}
	case '"':
		s->at++;
		return scan_string(s);
	case 't':
		return scan_word(s, "true");
	case 'f':
		return scan_word(s, "false");
	case 'n':
		return scan_word(s, "null");
	default:
		if (*s->at != '-' && !is_digit(*s->at))
			return fail(s, "looking for beginning of value");
		return scan_number(s);
	}
}

/* Behind a value: leaves what ends here, and stands before the next value when there is one. */
static bool scan_after(struct scanner *s)
{
	while (s->depth) {
		bool object = in_object(s);
		skip_space(s);
		if (s->at < s->end && *s->at == ',') {
			s->at++;
			return !object || scan_key(s);
		}
		if (s->at == s->end || *s->at != (object ? '}' : ']'))
			return fail(s, object ? "after object key:value pair" : "after array element");
		s->at++;
		s->depth--;
	}
	return true;
}

static bool scan_value(struct scanner *s)
{
	bool open;
	do {
		if (!scan_begin(s, &open) || (!open && !scan_after(s)))
			return false;
	} while (s->depth);
	return true;
}

enum json_scan json_scan(struct slice text, size_t *pos, struct slice *ret, struct errmsg *em)
{
	struct scanner s;
	const uint8_t *begin;
	s.at = text.len ? text.ptr + *pos : NULL;
	s.end = text.len ? text.ptr + text.len : NULL;
	s.em = em;
	s.depth = 0;
	skip_space(&s);
	begin = s.at;
	if (s.at == s.end) {
		*pos = text.len;
		return JSON_END;
	}
	if (!scan_value(&s))
		return JSON_ERROR;
	*ret = slice_of(begin, (size_t)(s.at - begin));
	*pos = (size_t)(s.at - text.ptr);
	return JSON_VALUE;
}

bool json_whole(struct slice text, struct slice *ret, struct errmsg *em)
{
	struct scanner s;
	struct errmsg inner;
	size_t pos = 0;
	switch (json_scan(text, &pos, ret, &inner)) {
	case JSON_VALUE:
		break;
	case JSON_ERROR:
		if (strcmp(inner.text, "unexpected EOF") != 0) {
			errmsg_set(em, "%s", inner.text);
			return false;
		}
		/* fall through */
	case JSON_END:
		errmsg_set(em, "unexpected end of JSON input");
		return false;
	}
	s.at = text.ptr + pos;
	s.end = text.ptr + text.len;
	s.em = em;
	skip_space(&s);
	return s.at == s.end || fail(&s, "after top-level value");
}
