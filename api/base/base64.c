/* base64.c: see base64.h. etcd up to 3.5 reads the padded standard alphabet alone, later ones both alphabets with or without padding: we
 * read all that any of them does. */
#include "base64.h"

#define LETTERS "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789"

static const char standard[] = LETTERS "+/", url[] = LETTERS "-_";

static void encode(struct buf *out, struct slice bytes, const char *alphabet, bool padded)
{
	size_t full = bytes.len / 3 * 3, rest = bytes.len - full;
	const uint8_t *p = bytes.ptr;
	uint8_t *to;
	buf_reserve(out, (bytes.len + 2) / 3 * 4);
	to = out->ptr + out->len;
	for (size_t i = 0; i < full; i += 3, p += 3) {
		uint32_t v = (uint32_t)p[0] << 16 | (uint32_t)p[1] << 8 | p[2];
		*to++ = (uint8_t)alphabet[v >> 18];
		*to++ = (uint8_t)alphabet[v >> 12 & 63];
		*to++ = (uint8_t)alphabet[v >> 6 & 63];
		*to++ = (uint8_t)alphabet[v & 63];
	}
	if (rest) {
		uint32_t v = (uint32_t)p[0] << 16 | (rest == 2 ? (uint32_t)p[1] << 8 : 0);
		*to++ = (uint8_t)alphabet[v >> 18];
		*to++ = (uint8_t)alphabet[v >> 12 & 63];
		if (rest == 2 || padded)
			*to++ = rest == 2 ? (uint8_t)alphabet[v >> 6 & 63] : '=';
		if (padded)
			*to++ = '=';
	}
	if (to)
		out->len = (size_t)(to - out->ptr);
}

void base64_encode(struct buf *out, struct slice bytes)
{
	encode(out, bytes, standard, true);
}

void base64url_encode(struct buf *out, struct slice bytes)
{
	encode(out, bytes, url, false);
}

/* 0..63, or more for what is no digit. */
static unsigned digit_of(uint8_t c)
{
	if (c >= 'A' && c <= 'Z')
		return (unsigned)c - 'A';
	if (c >= 'a' && c <= 'z')
		return (unsigned)c - 'a' + 26;
	if (c >= '0' && c <= '9')
		return (unsigned)c - '0' + 52;
	if (c == '+' || c == '-')
		return 62;
	return c == '/' || c == '_' ? 63 : 64;
}

static bool is_line_end(uint8_t c)
{
	return c == '\n' || c == '\r';
}

static size_t skip_line_ends(struct slice text, size_t at)
{
	while (at < text.len && is_line_end(text.ptr[at]))
		at++;
	return at;
}

/* `at` is the end, or the first byte that is no digit, behind `digits` digits of the last group. Where it goes wrong is where Go says so. */
static bool check_end(struct slice text, size_t at, unsigned digits, size_t *ret_at)
{
	if (at == text.len) {
		*ret_at = at - 1;
		return digits != 1;
	}
	*ret_at = at;
	if (text.ptr[at] != '=' || digits < 2)
		return false;
	at = skip_line_ends(text, at + 1);
	if (digits == 2) {
		*ret_at = at == text.len ? at : at - 1;
		if (at == text.len || text.ptr[at] != '=')
			return false;
		at = skip_line_ends(text, at + 1);
	}
	*ret_at = at;
	return at == text.len;
}

bool base64_decode(struct buf *out, struct slice text, size_t *ret_at)
{
	uint32_t v = 0;
	unsigned digits = 0;
	size_t at = 0;
	uint8_t *to;
	buf_reserve(out, text.len / 4 * 3 + 3);
	to = out->ptr + out->len;
	for (; at < text.len; at++) {
		unsigned d = digit_of(text.ptr[at]);
		if (d > 63) {
			if (is_line_end(text.ptr[at]))
				continue;
			break;
		}
		v = v << 6 | d;
		if (++digits == 4) {
			*to++ = (uint8_t)(v >> 16);
			*to++ = (uint8_t)(v >> 8);
			*to++ = (uint8_t)v;
			digits = 0;
		}
	}
	if (!check_end(text, at, digits, ret_at))
		return false;
	if (digits == 2) {
		*to++ = (uint8_t)(v >> 4);
	} else if (digits == 3) {
		*to++ = (uint8_t)(v >> 10);
		*to++ = (uint8_t)(v >> 2);
	}
	out->len = (size_t)(to - out->ptr);
	return true;
}

static bool decode_exact(struct buf *out, struct slice text, void (*encoder)(struct buf *, struct slice))
{
	struct buf again = { .ptr = NULL };
	size_t from = out->len, at;
	bool ok = base64_decode(out, text, &at);
	if (ok) {
		encoder(&again, slice_of(out->ptr + from, out->len - from));
		ok = slice_eq(buf_view(&again), text);
	}
	if (!ok)
		out->len = from;
	buf_free(&again);
	return ok;
}

bool base64_decode_exact(struct buf *out, struct slice text)
{
	return decode_exact(out, text, base64_encode);
}

bool base64url_decode_exact(struct buf *out, struct slice text)
{
	return decode_exact(out, text, base64url_encode);
}
