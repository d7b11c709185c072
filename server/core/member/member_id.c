/* member_id.c: the numbers that a cell and its members are known by, derived as etcd derives them.
 *
 * Every replica of a new cell works them out for itself from the same configuration, so no two may differ by the order in which it
 * lists addresses: addresses are sorted as bytes, IDs as numbers. Tools written for etcd expect these very values. */
#include "core/member/member.h"

#include "base/hash.h"
#include "base/mem.h"
#include "core/member/member_record.h"

static uint64_t digest_id(const struct buf *b)
{
	uint8_t digest[20];
	uint64_t id = 0;

	sha1(buf_view(b), digest);
	for (unsigned i = 0; i < 8; i++)
		id = id << 8 | digest[i];
	return id;
}

/* By insertion: a member has a handful of addresses. */
void member_sort_urls(const char **urls, size_t len)
{
	for (size_t i = 1; i < len; i++) {
		const char *url = urls[i];
		size_t at = i;

		for (; at > 0 && strcmp(urls[at - 1], url) > 0; at--)
			urls[at] = urls[at - 1];
		urls[at] = url;
	}
}

member_id member_derive_id(const char *const *peer_urls, size_t len, const char *token)
{
	const char **sorted = mem_alloc(len * sizeof(*sorted));
	struct buf b = { 0 };
	member_id id;

	for (size_t i = 0; i < len; i++)
		sorted[i] = peer_urls[i];
	member_sort_urls(sorted, len);
	for (size_t i = 0; i < len; i++)
		buf_append_slice(&b, slice_of_str(sorted[i]));
	buf_append_slice(&b, slice_of_str(token));
	id = digest_id(&b);
	buf_free(&b);
	free(sorted);
	return id;
}

/* The number of ids below ids[i], with the earlier of equal ones first: its place in order. */
static size_t place_of(const member_id *ids, size_t len, size_t i)
{
	size_t place = 0;

	for (size_t j = 0; j < len; j++)
		place += ids[j] < ids[i] || (ids[j] == ids[i] && j < i);
	return place;
}

uint64_t member_derive_cell_id(const member_id *ids, size_t len)
{
	struct buf b = { 0 };
	uint64_t id;

	buf_reserve(&b, len * 8);
	b.len = len * 8;
	for (size_t i = 0; i < len; i++)
		member_put_key(ids[i], b.ptr + 8 * place_of(ids, len, i));
	id = digest_id(&b);
	buf_free(&b);
	return id;
}

/* etcd puts the time behind an empty token: decimal seconds. */
member_id member_derive_added_id(const char *const *peer_urls, size_t len, uint64_t unix_s)
{
	char text[24], *at = &text[sizeof(text) - 1];

	*at = '\0';
	do
		*--at = (char)('0' + unix_s % 10);
	while ((unix_s /= 10) > 0);
	return member_derive_id(peer_urls, len, at);
}
