/* cache.c: values and lists that are never older than a completed write (S3, S4).
 *
 * What was asked for before an invalidation was acknowledged may be old: the call remembers the epoch in which it was sent, and an invalidation of its very
 * item moves it out of the present one. */
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "internal.h"

static void key_of(struct buf *ret, struct slice path, bool children)
{
	buf_append_byte(ret, children ? 'c' : 'v');
	buf_append_slice(ret, path);
}

static void entry_free(struct sess *s, struct entry *n)
{
	mapb_remove(&s->cache, buf_view(&n->key));
	list_remove(&n->lru);
	buf_free(&n->key);
	buf_free(&n->path);
	buf_free(&n->value);
	buf_free(&n->bytes);
	free(n);
}

void cache_empty(struct sess *s)
{
	s->epoch++;
	if (s->cache.len)
		s->stats.emptied++;
	while (!list_empty(&s->lru))
		entry_free(s, CONTAINER_OF(s->lru.next, struct entry, lru));
}

void cache_deinit(struct sess *s)
{
	cache_empty(s);
	mapb_deinit(&s->cache);
}

/* ---- invalidations ---- */

static void renounce(struct sess *s, struct slice path, bool children)
{
	struct buf key = { .ptr = NULL };
	struct entry *n;
	key_of(&key, path, children);
	n = mapb_get(&s->cache, buf_view(&key));
	buf_free(&key);
	if (n)
		entry_free(s, n);
	LIST_FOR_EACH(it, &s->calls) {
		struct call *c = CONTAINER_OF(it, struct call, node);
		if (c->kind == (children ? CALL_LIST : CALL_GET) && slice_eq(buf_view(&c->path), path))
			c->caching = false;
	}
}

void cache_invalidate(struct sess *s, const Holdfast__V1__SessionInvalidation *m)
{
	Holdfast__V1__SessionRequest r = HOLDFAST__V1__SESSION_REQUEST__INIT;
	Holdfast__V1__SessionAck a = HOLDFAST__V1__SESSION_ACK__INIT;
	sess_note_term(s, m->term);
	if (m->term < s->term)
		return; /* it has no meaning any more */
	if (s->invalidation_term != m->term) {
		s->invalidation_term = m->term;
		s->invalidation_number = m->number - 1;
	}
	/* What we did not hear of is in what we would acknowledge with this one. */
	if (m->all || m->number > s->invalidation_number + 1)
		cache_empty(s);
	for (size_t i = 0; i < m->n_items; i++)
		renounce(s, slice_of_str(m->items[i]->path), m->items[i]->aspect == HOLDFAST__V1__NODE_ASPECT__NODE_CHILDREN);
	if (m->number > s->invalidation_number)
		s->invalidation_number = m->number;
	s->stats.invalidations++;
	a.number = m->number;
	a.term = m->term;
	r.request_case = HOLDFAST__V1__SESSION_REQUEST__REQUEST_ACK;
	r.ack = &a;
	stream_send(s, &r);
}

/* ---- filling ---- */

static struct entry *entry_new(struct sess *s, struct slice path, bool children)
{
	struct buf key = { .ptr = NULL };
	struct entry *n;
	key_of(&key, path, children);
	n = mapb_get(&s->cache, buf_view(&key));
	if (n)
		entry_free(s, n);
	while (s->cache.len >= s->cache_max && !list_empty(&s->lru))
		entry_free(s, CONTAINER_OF(s->lru.prev, struct entry, lru));
	n = mem_zalloc(sizeof(*n));
	n->key = key;
	buf_append_slice(&n->path, path);
	buf_append_byte(&n->path, 0);
	n->fetched_ms = s->now;
	n->revision = s->revision;
	list_push_front(&s->lru, &n->lru);
	mapb_put(&s->cache, buf_view(&n->key), n);
	return n;
}

static bool granted(const struct sess *s, const struct call *c, const Holdfast__V1__NodesGrant *grant)
{
	return grant && grant->term == s->term && c->caching && c->epoch == s->epoch && s->state == HF_SAFE && s->now < s->cache_until;
}

static void take_value(struct sess *s, struct call *c, struct slice bytes)
{
	Holdfast__V1__NodesGetResponse *r = call_unpack(&holdfast__v1__nodes_get_response__descriptor, bytes);
	if (r && r->grant)
		sess_note_term(s, r->grant->term);
	if (r && granted(s, c, r->grant)) {
		struct entry *n = entry_new(s, buf_view(&c->path), false);
		n->exists = r->node != NULL;
		if (r->node) {
			n->version = r->node->version;
			n->create_revision = r->node->create_revision;
			n->mod_revision = r->node->mod_revision;
			buf_append(&n->value, r->node->value.data, r->node->value.len);
		}
	}
	if (r)
		protobuf_c_message_free_unpacked(&r->base, NULL);
}

static void take_list(struct sess *s, struct call *c, struct slice bytes)
{
	Holdfast__V1__NodesListResponse *r = call_unpack(&holdfast__v1__nodes_list_response__descriptor, bytes);
	if (r && r->grant)
		sess_note_term(s, r->grant->term);
	if (r && granted(s, c, r->grant)) {
		struct entry *n = entry_new(s, buf_view(&c->path), true);
		n->exists = true;
		buf_append_slice(&n->bytes, bytes);
	}
	if (r)
		protobuf_c_message_free_unpacked(&r->base, NULL);
}

void cache_take(struct sess *s, struct call *c, struct slice bytes)
{
	if (s->cache_max == 0 || !c->caching)
		return;
	s->stats.misses++;
	if (c->kind == CALL_GET)
		take_value(s, c, bytes);
	else
		take_list(s, c, bytes);
}

/* ---- giving out ---- */

bool sess_cache_load(struct sess *s, struct slice path, bool children, struct sess_cached *ret)
{
	uint8_t small[HF_PATH_MAX + 1];
	struct entry *n;
	if (s->state != HF_SAFE || s->cache.len == 0 || path.len >= sizeof(small))
		return false;
	small[0] = children ? 'c' : 'v';
	memcpy(small + 1, path.ptr, path.len);
	n = mapb_get(&s->cache, slice_of(small, path.len + 1));
	if (!n)
		return false;
	list_remove(&n->lru);
	list_push_front(&s->lru, &n->lru);
	*ret = (struct sess_cached){ .exists = n->exists, .bytes = buf_view(&n->bytes), .revision = n->revision, .fetched_ms = n->fetched_ms };
	ret->node = (struct hf_node){ .path = (const char *)n->path.ptr,
				      .value = { n->value.ptr, n->value.len },
				      .version = n->version,
				      .create_revision = n->create_revision,
				      .mod_revision = n->mod_revision };
	return true;
}

bool sess_cache_confirm(struct sess *s, const struct sess_cached *cached, uint64_t now_ms)
{
	if (s->state != HF_SAFE || now_ms >= s->cache_until)
		return false;
	s->stats.hits++;
	s->stats.hit_age_ms += now_ms > cached->fetched_ms ? now_ms - cached->fetched_ms : 0;
	return true;
}

void sess_cache_stats(const struct sess *s, uint64_t now_ms, struct hf_cache_stats *ret)
{
	uint64_t oldest = now_ms;
	*ret = s->stats;
	ret->entries = s->cache.len;
	LIST_FOR_EACH(it, &s->lru) {
		const struct entry *n = CONTAINER_OF(it, struct entry, lru);
		if (n->fetched_ms < oldest)
			oldest = n->fetched_ms;
	}
	ret->oldest_ms = now_ms - oldest;
}
