/* perms.c: what a user may read and write, as spans of keys.
 *
 * All permissions of all his roles are put together once a revision into two lists of spans, sorted, disjoint and not touching:
 *   (P1) two spans of a list have a key between them that is in neither, so a range is permitted exactly when one span holds all of it.
 * A single key k is the span [k, k+"\0"): nothing lies between k and k+"\0". */
#include "core/auth/auth_internal.h"

struct span {
	struct slice begin, end;
	bool open; /* no end */
};

struct spans {
	struct span *at;
	size_t len;
};

struct auth_perms {
	struct arena arena;
	bool root;
	struct spans read, write;
};

void perms_forget(struct auth *a)
{
	struct slice name;
	size_t pos = 0;
	void *p;

	while (mapb_next(&a->perms, &pos, &name, &p)) {
		arena_deinit(&((struct auth_perms *)p)->arena);
		free(p);
		mapb_remove(&a->perms, name);
	}
}

static bool is_open(struct slice end)
{
	return end.len == 1 && end.ptr[0] == 0;
}

static struct span span_of(struct arena *arena, const struct auth_permission *p)
{
	struct span s = { .begin = arena_copy(arena, p->key), .open = is_open(p->end) };
	uint8_t *next;

	if (p->end.len > 0) {
		s.end = arena_copy(arena, p->end);
		return s;
	}
	next = arena_alloc(arena, p->key.len + 1);
	if (p->key.len)
		memcpy(next, p->key.ptr, p->key.len);
	next[p->key.len] = 0;
	s.end = slice_of(next, p->key.len + 1);
	return s;
}

static int span_cmp(const void *x, const void *y)
{
	return slice_cmp(((const struct span *)x)->begin, ((const struct span *)y)->begin);
}

/* P1 */
static void merge(struct spans *s)
{
	size_t n = 0;

	if (s->len == 0)
		return;
	qsort(s->at, s->len, sizeof(*s->at), span_cmp);
	for (size_t i = 1; i < s->len; i++) {
		struct span *last = &s->at[n];

		if (!last->open && slice_cmp(last->end, s->at[i].begin) < 0) {
			s->at[++n] = s->at[i];
			continue;
		}
		if (s->at[i].open)
			last->open = true;
		else if (!last->open && slice_cmp(last->end, s->at[i].end) < 0)
			last->end = s->at[i].end;
	}
	s->len = n + 1;
}

/* Empty ranges, which an older table may hold, permit nothing. */
static bool holds_a_key(const struct auth_permission *p)
{
	return p->end.len == 0 || is_open(p->end) || slice_cmp(p->key, p->end) < 0;
}

static void add_role(struct auth_perms *perms, const struct auth_role *r)
{
	for (size_t i = 0; i < r->permissions_len; i++) {
		const struct auth_permission *p = &r->permissions[i];

		if (!holds_a_key(p))
			continue;
		if (p->type == AUTHPB__PERMISSION__TYPE__READ || p->type == AUTHPB__PERMISSION__TYPE__READWRITE)
			perms->read.at[perms->read.len++] = span_of(&perms->arena, p);
		if (p->type == AUTHPB__PERMISSION__TYPE__WRITE || p->type == AUTHPB__PERMISSION__TYPE__READWRITE)
			perms->write.at[perms->write.len++] = span_of(&perms->arena, p);
	}
}

static struct auth_perms *perms_new(struct auth *a, const struct auth_user *u)
{
	struct auth_perms *perms = mem_zalloc(sizeof(*perms));
	struct auth_role *roles = arena_alloc(&a->arena, u->roles_len * sizeof(*roles) + 1);
	size_t total = 0, n = 0;

	arena_init(&perms->arena);
	perms->root = auth_user_is_root(u);
	for (size_t i = 0; i < u->roles_len; i++) {
		if (!auth_find_role(a, u->roles[i], &roles[n]))
			continue; /* root needs no record */
		total += roles[n++].permissions_len;
	}
	perms->read.at = arena_alloc(&perms->arena, total * sizeof(struct span) + 1);
	perms->write.at = arena_alloc(&perms->arena, total * sizeof(struct span) + 1);
	for (size_t i = 0; i < n; i++)
		add_role(perms, &roles[i]);
	merge(&perms->read);
	merge(&perms->write);
	return perms;
}

/* NULL: there is no such user. */
static const struct auth_perms *perms_of(struct auth *a, struct slice user)
{
	struct auth_perms *perms = mapb_get(&a->perms, user);
	struct auth_user u;

	if (perms)
		return perms;
	if (auth_find_user(a, user, &u)) {
		perms = perms_new(a, &u);
		mapb_put(&a->perms, user, perms);
	}
	arena_clear(&a->arena);
	return perms;
}

/* The last span that begins at or before the key, or NULL. */
static const struct span *span_before(const struct spans *s, struct slice key)
{
	size_t lo = 0, hi = s->len;

	while (lo < hi) {
		size_t mid = lo + (hi - lo) / 2;

		if (slice_cmp(s->at[mid].begin, key) <= 0)
			lo = mid + 1;
		else
			hi = mid;
	}
	return lo > 0 ? &s->at[lo - 1] : NULL;
}

static bool spans_hold(const struct spans *s, struct slice key, struct slice end)
{
	const struct span *span = span_before(s, key);

	if (!span)
		return false;
	if (span->open)
		return true;
	if (is_open(end))
		return false;
	if (end.len == 0 || slice_cmp(key, end) >= 0)
		return slice_cmp(key, span->end) < 0;
	return slice_cmp(key, span->end) < 0 && slice_cmp(end, span->end) <= 0;
}

enum err auth_check_user(struct auth *a, struct auth_who who)
{
	if (!a->enabled)
		return ERR_OK;
	if (who.revision == 0 || who.user.len == 0)
		return ERR_USER_EMPTY;
	if (who.revision != a->revision)
		return ERR_AUTH_OLD_REVISION;
	return auth_has_user(a, who.user) ? ERR_OK : ERR_PERMISSION_DENIED;
}

enum err auth_check_range(struct auth *a, struct auth_who who, struct slice key, struct slice end, unsigned need)
{
	const struct auth_perms *perms;
	enum err e = auth_check_user(a, who);

	if (e || !a->enabled)
		return e;
	perms = perms_of(a, who.user);
	ASSERT(perms);
	if (perms->root)
		return ERR_OK;
	if ((need & AUTH_READ) && !spans_hold(&perms->read, key, end))
		return ERR_PERMISSION_DENIED;
	if ((need & AUTH_WRITE) && !spans_hold(&perms->write, key, end))
		return ERR_PERMISSION_DENIED;
	return ERR_OK;
}

enum err auth_check_root(struct auth *a, struct auth_who who)
{
	const struct auth_perms *perms;

	if (!a->enabled)
		return ERR_OK;
	if (who.user.len == 0)
		return ERR_USER_EMPTY;
	perms = perms_of(a, who.user);
	return perms && perms->root ? ERR_OK : ERR_PERMISSION_DENIED;
}
