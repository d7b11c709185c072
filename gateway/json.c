/* json.c: walks JSON that json_scan() has passed, and turns strings into text and back. */
#include "json.h"

#include "base/mem.h"

const char *json_kind(struct slice value)
{
	switch (value.ptr[0]) {
	case '{':
		return "object";
	case '[':
		return "array";
	case '"':
		return "string";
	case 't':
	case 'f':
		return "bool";
	case 'n':
		return "null";
	default:
		return "number";
	}
}

bool json_is_null(struct slice value)
{
	return value.ptr[0] == 'n';
}

/* ---- the walk ---- */

static size_t skip_space(struct slice s, size_t pos)
{
	while (s.ptr[pos] == ' ' || s.ptr[pos] == '\t' || s.ptr[pos] == '\r' || s.ptr[pos] == '\n')
		pos++;
	return pos;
}

/* From the first quote to behind the last. Linear: neither search goes over a byte twice. */
static size_t skip_string(struct slice s, size_t pos)
{
	const uint8_t *at = s.ptr + pos + 1, *end = s.ptr + s.len;
	const uint8_t *quote = memchr(at, '"', (size_t)(end - at)), *escape;
	ASSERT(quote);
	while ((escape = memchr(at, '\\', (size_t)(quote - at)))) {
		at = escape + 2;
		if (at > quote)
			quote = memchr(at, '"', (size_t)(end - at));
		ASSERT(quote);
	}
	return (size_t)(quote + 1 - s.ptr);
}

static size_t skip_value(struct slice s, size_t pos)
{
	size_t depth = 0;
	do {
		switch (s.ptr[pos]) {
		case '"':
			pos = skip_string(s, pos);
			continue;
		case '{':
		case '[':
			depth++;
			break;
		case '}':
		case ']':
			depth--;
			break;
		default:
			break;
		}
		pos++;
	} while (depth && pos < s.len);
	return pos;
}

/* A scalar that is no string ends where something follows that cannot be its part. */
static size_t end_of_value(struct slice s, size_t pos)
{
	if (s.ptr[pos] == '{' || s.ptr[pos] == '[' || s.ptr[pos] == '"')
		return skip_value(s, pos);
	while (!memchr(" \t\r\n,]}", s.ptr[pos], 7))
		pos++;
	return pos;
}

static size_t skip_comma(struct slice s, size_t pos)
{
	pos = skip_space(s, pos);
	return s.ptr[pos] == ',' ? pos + 1 : pos;
}

bool json_next_member(struct slice object, size_t *pos, struct slice *ret_key, struct slice *ret_value)
{
	size_t at = skip_space(object, *pos ? *pos : 1), end;
	if (object.ptr[at] == '}')
		return false;
	end = skip_string(object, at);
	*ret_key = slice_of(object.ptr + at, end - at);
	at = skip_space(object, skip_space(object, end) + 1); /* the colon */
	end = end_of_value(object, at);
	*ret_value = slice_of(object.ptr + at, end - at);
	*pos = skip_comma(object, end);
	return true;
}

bool json_next_element(struct slice array, size_t *pos, struct slice *ret)
{
	size_t at = skip_space(array, *pos ? *pos : 1), end;
	if (array.ptr[at] == ']')
		return false;
	end = end_of_value(array, at);
	*ret = slice_of(array.ptr + at, end - at);
	*pos = skip_comma(array, end);
	return true;
}

/* ---- strings ---- */

/* The length of the UTF-8 character at the beginning; 0: there is none. */
static size_t utf8_len(struct slice s)
{
	uint8_t c = s.ptr[0];
	size_t len = c < 0x80 ? 1 : c < 0xc2 ? 0 : c < 0xe0 ? 2 : c < 0xf0 ? 3 : c < 0xf5 ? 4 : 0;
	if (len < 2)
		return len;
	if (s.len < len)
		return 0;
	for (size_t i = 1; i < len; i++) {
		if ((s.ptr[i] & 0xc0) != 0x80)
			return 0;
	}
	if ((c == 0xe0 && s.ptr[1] < 0xa0) || (c == 0xed && s.ptr[1] > 0x9f) || (c == 0xf0 && s.ptr[1] < 0x90) || (c == 0xf4 && s.ptr[1] > 0x8f))
		return 0;
	return len;
}

bool json_is_utf8(struct slice text)
{
	for (size_t i = 0, n; i < text.len; i += n) {
		n = utf8_len(slice_of(text.ptr + i, text.len - i));
		if (!n)
			return false;
	}
	return true;
}

static void append_rune(struct buf *out, uint32_t r)
{
	if (r < 0x80) {
		buf_append_byte(out, (uint8_t)r);
		return;
	}
	if (r < 0x800) {
		buf_append_byte(out, (uint8_t)(0xc0 | r >> 6));
	} else if (r < 0x10000) {
		buf_append_byte(out, (uint8_t)(0xe0 | r >> 12));
		buf_append_byte(out, (uint8_t)(0x80 | (r >> 6 & 0x3f)));
	} else {
		buf_append_byte(out, (uint8_t)(0xf0 | r >> 18));
		buf_append_byte(out, (uint8_t)(0x80 | (r >> 12 & 0x3f)));
		buf_append_byte(out, (uint8_t)(0x80 | (r >> 6 & 0x3f)));
	}
	buf_append_byte(out, (uint8_t)(0x80 | (r & 0x3f)));
}

static uint32_t hex4(const uint8_t *p)
{
	uint32_t v = 0;
	for (int i = 0; i < 4; i++) {
		uint8_t c = p[i];
		v = v << 4 | (uint32_t)(c <= '9' ? c - '0' : (c | 0x20) - 'a' + 10);
	}
	return v;
}

/* Behind the 'u', in text before the last quote. Returns how much was taken; 0: half a pair. */
static size_t unquote_rune(struct slice rest, struct buf *out)
{
	uint32_t r = hex4(rest.ptr), low;
	if (r < 0xd800 || r > 0xdfff) {
		append_rune(out, r);
		return 4;
	}
	if (r > 0xdbff || rest.len < 10 || rest.ptr[4] != '\\' || rest.ptr[5] != 'u')
		return 0;
	low = hex4(rest.ptr + 6);
	if (low < 0xdc00 || low > 0xdfff)
		return 0;
	append_rune(out, 0x10000 + ((r - 0xd800) << 10) + (low - 0xdc00));
	return 10;
}

static uint8_t unescape(uint8_t c)
{
	switch (c) {
	case 'b':
		return '\b';
	case 'f':
		return '\f';
	case 'n':
		return '\n';
	case 'r':
		return '\r';
	case 't':
		return '\t';
	default:
		return c;
	}
}

bool json_unquote(struct slice value, struct buf *out)
{
	struct slice s = slice_of(value.ptr + 1, value.len - 2);
	buf_reserve(out, s.len);
	for (size_t i = 0, n; i < s.len; i += n) {
		if (s.ptr[i] != '\\') {
			n = utf8_len(slice_of(s.ptr + i, s.len - i));
			if (!n)
				return false;
			buf_append(out, s.ptr + i, n);
		} else if (s.ptr[i + 1] != 'u') {
			buf_append_byte(out, unescape(s.ptr[i + 1]));
			n = 2;
		} else {
			n = unquote_rune(slice_of(s.ptr + i + 2, s.len - i - 2), out);
			if (!n)
				return false;
			n += 2;
		}
	}
	return true;
}

static bool is_plain(uint8_t c)
{
	return c >= ' ' && c < 0x80 && c != '"' && c != '\\' && c != '<' && c != '>' && c != '&';
}

static void quote_ascii(struct buf *out, uint8_t c)
{
	static const char two[] = "\"\"\\\\n\nr\rt\t";
	for (size_t i = 0; i + 1 < sizeof(two); i += 2) {
		if ((uint8_t)two[i + 1] == c) {
			buf_append_byte(out, '\\');
			buf_append_byte(out, (uint8_t)two[i]);
			return;
		}
	}
	buf_printf(out, "\\u%04x", c);
}

void json_quote(struct buf *out, struct slice text)
{
	size_t i = 0;
	buf_append_byte(out, '"');
	while (i < text.len) {
		size_t run = i;
		while (run < text.len && is_plain(text.ptr[run]))
			run++;
		buf_append(out, text.ptr + i, run - i);
		i = run;
		if (i == text.len)
			break;
		if (text.ptr[i] < 0x80) {
			quote_ascii(out, text.ptr[i++]);
			continue;
		}
		run = utf8_len(slice_of(text.ptr + i, text.len - i));
		if (!run)
			buf_append(out, "\\ufffd", 6);
		else if (run == 3 && text.ptr[i] == 0xe2 && text.ptr[i + 1] == 0x80 && (text.ptr[i + 2] | 1) == 0xa9)
			buf_printf(out, "\\u202%d", text.ptr[i + 2] & 0xf);
		else
			buf_append(out, text.ptr + i, run);
		i += run ? run : 1;
	}
	buf_append_byte(out, '"');
}
