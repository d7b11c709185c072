/* lessor.c: which leases there are, and which keys each holds.
 *
 * The leases themselves are replicated (state->leases) and change by applied commands only. Beside each record stands a companion
 * (struct lease) found by hash, so that a keep-alive costs one look-up. Attached keys are one derived tree under (lease ID, key): attach
 * and detach are O(log n), the keys of one lease lie side by side in key order, and a lease with very many keys is no special case.
 *
 * Invariants: L1–L5 of lease.h. L1 has two halves: that every attachment belongs to a lease that exists is asserted here; that attachments
 * and the store's keys are the same set is asserted by who ties both together (kv). The leader's half is deadline.c. */
#include "internal.h"

#include <endian.h>

#include "base/mem.h"

/* ---- attachments ---- */

struct attachment {
	struct tree_record base;
	uint32_t len;
	uint8_t bytes[]; /* lease ID, big-endian; key */
};

enum { ID_BYTES = 8 };

static const struct attachment *attachment_of(const struct tree_record *r)
{
	return (const struct attachment *)(const void *)r;
}

static struct tree_record *attachment_new(struct slice bytes)
{
	struct attachment *a = mem_alloc(sizeof(*a) + bytes.len);

	a->base.refs = 1;
	a->len = (uint32_t)bytes.len;
	memcpy(a->bytes, bytes.ptr, bytes.len);
	return &a->base;
}

static struct slice attachment_bytes(const struct tree_record *r)
{
	return slice_of(attachment_of(r)->bytes, attachment_of(r)->len);
}

static struct tree_record *attachment_clone(const struct tree_record *r)
{
	return attachment_new(attachment_bytes(r));
}

static void attachment_free(struct tree_record *r)
{
	free(r);
}

/* Derived, and so no part of any state's hash. */
static uint64_t attachment_hash(const struct tree_record *r)
{
	(void)r;
	return 0;
}

/* Never in a snapshot: no section, no encoding. */
static const struct tree_type attachment_type = {
	.key = attachment_bytes,
	.clone = attachment_clone,
	.free = attachment_free,
	.hash = attachment_hash,
};

/* Lent until the next call. */
static struct slice attachment_key(const struct lessor *ls, lease_id id, struct slice key)
{
	uint64_t be = htobe64((uint64_t)id);

	buf_clear(ls->scratch);
	buf_append(ls->scratch, &be, ID_BYTES);
	buf_append_slice(ls->scratch, key);
	return buf_view(ls->scratch);
}

/* ---- companions ---- */

struct lease *lessor_lease(const struct lessor *ls, lease_id id)
{
	return map64_get(&ls->leases, (uint64_t)id);
}

static struct lease *lessor_add(struct lessor *ls, lease_id id, int64_t ttl_s)
{
	struct lease *l = mem_zalloc(sizeof(*l));

	l->id = id;
	l->ttl_s = ttl_s;
	ASSERT(!map64_put(&ls->leases, (uint64_t)id, l));
	return l;
}

static void lessor_forget(struct lessor *ls)
{
	size_t pos = 0;
	uint64_t id;
	void *l;

	lessor_demote(ls);
	while (map64_next(&ls->leases, &pos, &id, &l))
		free(l);
	map64_deinit(&ls->leases);
	tree_deinit(&ls->attachments);
}

void lessor_rebuild_begin(struct lessor *ls)
{
	struct tree_cursor c;

	lessor_forget(ls);
	ls->leases = (struct map64){ 0 };
	tree_init(&ls->attachments, &attachment_type);
	for (struct tree_record *r = tree_first(&c, &ls->state->leases); r; r = tree_next(&c)) {
		const struct lease_record *lr = (const struct lease_record *)(const void *)r;

		lessor_add(ls, lr->id, lr->ttl_s);
	}
}

struct lessor *lessor_new(struct state *st, int64_t min_ttl_s)
{
	struct lessor *ls = mem_zalloc(sizeof(*ls));

	ASSERT(min_ttl_s >= 1 && min_ttl_s <= LEASE_TTL_MAX_S);
	ls->state = st;
	ls->min_ttl_s = min_ttl_s;
	ls->scratch = mem_zalloc(sizeof(*ls->scratch));
	list_init(&ls->due);
	tree_init(&ls->attachments, &attachment_type);
	lessor_rebuild_begin(ls);
	return ls;
}

void lessor_free(struct lessor *ls)
{
	if (!ls)
		return;
	lessor_forget(ls);
	buf_free(ls->scratch);
	free(ls->scratch);
	free(ls);
}

/* ---- applied commands ---- */

enum err lease_grant(struct lessor *ls, lease_id id, int64_t ttl_s, time_ms now, int64_t *ret_ttl)
{
	struct lease *l;

	if (id == 0)
		return ERR_LEASE_NOT_FOUND; /* as etcd says of "no lease" */
	if (ttl_s > LEASE_TTL_MAX_S)
		return ERR_LEASE_TTL_TOO_LARGE;
	if (lessor_lease(ls, id))
		return ERR_LEASE_EXISTS;
	if (ttl_s < ls->min_ttl_s)
		ttl_s = ls->min_ttl_s;
	tree_put_take(&ls->state->leases, &lease_record_new(id, ttl_s)->base);
	l = lessor_add(ls, id, ttl_s);
	if (ls->leading)
		lease_start(ls, l, now);
	if (ret_ttl)
		*ret_ttl = ttl_s;
	return ERR_OK;
}

enum err lease_remove(struct lessor *ls, lease_id id)
{
	struct lease *l = lessor_lease(ls, id);
	uint64_t be = htobe64((uint64_t)id);

	if (!l)
		return ERR_LEASE_NOT_FOUND;
	/* A key that outlived its lease would be held by nobody and freed by nobody (L1). */
	ASSERT(l->keys == 0);
	lease_stop(ls, l);
	ASSERT(tree_remove(&ls->state->leases, slice_of(&be, ID_BYTES)));
	map64_remove(&ls->leases, (uint64_t)id);
	free(l);
	return ERR_OK;
}

const struct lease_record *lease_find(const struct lessor *ls, lease_id id)
{
	uint64_t be = htobe64((uint64_t)id);

	if (!lessor_lease(ls, id))
		return NULL;
	return (const struct lease_record *)(const void *)tree_get(&ls->state->leases, slice_of(&be, ID_BYTES));
}

void lease_attach(struct lessor *ls, lease_id id, struct slice key)
{
	struct lease *l = lessor_lease(ls, id);
	struct slice bytes = attachment_key(ls, id, key);

	ASSERT(l);
	if (tree_get(&ls->attachments, bytes))
		return;
	tree_put_take(&ls->attachments, attachment_new(bytes));
	l->keys++;
}

void lease_detach(struct lessor *ls, lease_id id, struct slice key)
{
	struct lease *l = lessor_lease(ls, id);

	if (!l || !tree_remove(&ls->attachments, attachment_key(ls, id, key)))
		return;
	ASSERT(l->keys > 0);
	l->keys--;
}

struct slice lease_next_key(const struct lessor *ls, lease_id id, struct slice after)
{
	struct slice from = attachment_key(ls, id, after);
	struct slice found;
	struct tree_cursor c;
	struct tree_record *r;

	if (after.len) {
		buf_append_byte(ls->scratch, 0); /* the least key above `after` */
		from = buf_view(ls->scratch);
	}
	r = tree_seek(&c, &ls->attachments, from);
	if (!r)
		return (struct slice){ 0 };
	found = attachment_bytes(r);
	if (memcmp(found.ptr, from.ptr, ID_BYTES) != 0)
		return (struct slice){ 0 };
	return slice_of(found.ptr + ID_BYTES, found.len - ID_BYTES);
}

uint64_t lease_key_count(const struct lessor *ls, lease_id id)
{
	const struct lease *l = lessor_lease(ls, id);

	return l ? l->keys : 0;
}

uint64_t lessor_count(const struct lessor *ls)
{
	return ls->state->leases.len;
}

/* ---- proof ---- */

static void lessor_check_attachments(const struct lessor *ls)
{
	struct tree_cursor c;
	const struct lease *l = NULL;
	uint64_t n = 0;

	tree_check(&ls->attachments);
	for (struct tree_record *r = tree_first(&c, &ls->attachments); r; r = tree_next(&c)) {
		uint64_t be;
		lease_id id;

		ASSERT(attachment_of(r)->len > ID_BYTES);
		memcpy(&be, attachment_of(r)->bytes, ID_BYTES);
		id = (lease_id)be64toh(be);
		if (!l || l->id != id) {
			ASSERT_IF(l, l->keys == n);
			l = lessor_lease(ls, id);
			ASSERT(l); /* L1 */
			n = 0;
		}
		n++;
	}
	ASSERT_IF(l, l->keys == n);
}

void lessor_check(const struct lessor *ls)
{
	struct tree_cursor c;
	uint64_t keys = 0;

	ASSERT(ls->leases.len == ls->state->leases.len);
	for (struct tree_record *r = tree_first(&c, &ls->state->leases); r; r = tree_next(&c)) {
		const struct lease_record *lr = (const struct lease_record *)(const void *)r;
		const struct lease *l = lessor_lease(ls, lr->id);

		ASSERT(l && l->id == lr->id && lr->id != 0);
		ASSERT(l->ttl_s == lr->ttl_s);
		ASSERT(lr->ttl_s >= 1 && lr->ttl_s <= LEASE_TTL_MAX_S);
		keys += l->keys;
	}
	ASSERT(keys == ls->attachments.len);
	lessor_check_attachments(ls);
	lessor_check_deadlines(ls);
}
