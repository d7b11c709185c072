/* lock_name.c: which keys contend for which lock.
 *
 * The key of a contender names its lease, so that one client's place in the queue is found again by whoever knows the lock's name and the
 * lease. etcd's mutex and election recipes write the lease in hex, some clients in decimal; both queue together. A key is compared with
 * what its lease would be written as, never read as a number: there is then one spelling each, and "007" or "0x7" is no contender. */
#include "internal.h"

enum { DIGITS_MAX = 24 }; /* more than any lease has in any spelling */

/* Whether `s` is v written in this base, lowercase, without leading zeros. */
static bool is_number(struct slice s, uint64_t v, unsigned base)
{
	do {
		if (s.len == 0 || s.ptr[s.len - 1] != "0123456789abcdef"[v % base])
			return false;
		s.len--;
		v /= base;
	} while (v);
	return s.len == 0;
}

static bool is_lease(struct slice s, lease_id lease)
{
	return is_number(s, (uint64_t)lease, 16) || (lease > 0 && is_number(s, (uint64_t)lease, 10));
}

bool lock_parse(struct slice key, lease_id lease, struct slice *ret_name)
{
	size_t slash = key.len;

	if (lease == 0)
		return false;
	/* A long key costs no long search. */
	while (slash > 0 && key.len - slash < DIGITS_MAX && key.ptr[slash - 1] != '/')
		slash--;
	if (slash == 0 || key.ptr[slash - 1] != '/')
		return false;
	if (!is_lease(slice_of(key.ptr + slash, key.len - slash), lease))
		return false;
	if (ret_name)
		*ret_name = slice_of(key.ptr, slash - 1);
	return true;
}

void lock_key(struct slice name, lease_id lease, struct buf *ret_key)
{
	buf_append_slice(ret_key, name);
	buf_printf(ret_key, "/%llx", (unsigned long long)lease);
}
