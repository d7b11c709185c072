/* path.c: see path.h. */
#include "path.h"

/* The length of the character at s, or 0 when it is no UTF-8: cut short, overlong, a surrogate, or beyond U+10FFFF. */
static size_t utf8_len(struct slice s)
{
	uint8_t lead = s.ptr[0];
	size_t n = lead < 0x80 ? 1 : lead >= 0xc2 && lead < 0xe0 ? 2 : (lead & 0xf0) == 0xe0 ? 3 : lead >= 0xf0 && lead < 0xf5 ? 4 : 0;

	if (n == 0 || n > s.len)
		return 0;
	for (size_t i = 1; i < n; i++)
		if ((s.ptr[i] & 0xc0) != 0x80)
			return 0;
	if ((lead == 0xe0 && s.ptr[1] < 0xa0) || (lead == 0xed && s.ptr[1] >= 0xa0) || (lead == 0xf0 && s.ptr[1] < 0x90) ||
	    (lead == 0xf4 && s.ptr[1] >= 0x90))
		return 0;
	return n;
}

static bool is_control(struct slice s)
{
	return s.ptr[0] < 0x20 || s.ptr[0] == 0x7f || (s.len > 1 && s.ptr[0] == 0xc2 && s.ptr[1] < 0xa0);
}

static bool name_is_good(struct slice name)
{
	if (name.len == 0 || (name.ptr[0] == '.' && (name.len == 1 || (name.len == 2 && name.ptr[1] == '.'))))
		return false;
	while (name.len > 0) {
		size_t n = utf8_len(name);

		if (n == 0 || is_control(name))
			return false;
		name = slice_of(name.ptr + n, name.len - n);
	}
	return true;
}

enum err path_check(struct slice path)
{
	size_t depth = 0;

	if (path.len == 0 || path.ptr[0] != '/')
		return ERR_BAD_PATH;
	if (path.len > PATH_LEN_MAX)
		return ERR_PATH_TOO_DEEP;
	for (size_t at = 1; at <= path.len; depth++) {
		const uint8_t *slash = at < path.len ? memchr(path.ptr + at, '/', path.len - at) : NULL;
		size_t end = slash ? (size_t)(slash - path.ptr) : path.len;

		if (!name_is_good(slice_of(path.ptr + at, end - at)))
			return ERR_BAD_PATH;
		at = end + 1;
	}
	return depth > PATH_DEPTH_MAX ? ERR_PATH_TOO_DEEP : ERR_OK;
}

enum err path_check_or_root(struct slice path)
{
	return slice_eq(path, slice_of("/", 1)) ? ERR_OK : path_check(path);
}

struct slice path_parent(struct slice path)
{
	size_t n = path.len;

	if (n < 2 || path.ptr[0] != '/')
		return slice_of(NULL, 0);
	while (path.ptr[n - 1] != '/')
		n--;
	return slice_of(path.ptr, n > 1 ? n - 1 : 1);
}

bool path_is_under(struct slice path, struct slice top)
{
	if (slice_eq(top, slice_of("/", 1)))
		return path.len > 0 && path.ptr[0] == '/';
	return slice_starts_with(path, top) && (path.len == top.len || path.ptr[top.len] == '/');
}
