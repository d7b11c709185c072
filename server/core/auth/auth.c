/* auth.c: what is known of users and roles at present, and how it is told. */
#include "core/auth/auth_internal.h"

static void read_head(struct auth *a)
{
	const struct auth_record *r = auth_record_find(a->state, KIND_HEAD, slice_of(NULL, 0));
	const Holdfast__Internal__AuthHead *h = NULL;

	a->enabled = false;
	a->revision = 1; /* etcd's first */
	if (!r)
		return;
	h = holdfast__internal__auth_head__unpack(&a->arena.pb, r->body_len, auth_record_body(r).ptr);
	ASSERT(h);
	a->enabled = h->enabled;
	a->revision = h->revision;
	arena_clear(&a->arena);
}

static uint64_t count_bytes(const struct state *st)
{
	struct tree_cursor c;
	uint64_t n = 0;

	for (struct tree_record *r = tree_first(&c, &st->auth); r; r = tree_next(&c))
		n += ((const struct auth_record *)r)->key_len + ((const struct auth_record *)r)->body_len;
	return n;
}

struct auth *auth_new(struct state *st)
{
	struct auth *a = mem_zalloc(sizeof(*a));

	a->state = st;
	arena_init(&a->arena);
	auth_rebuild(a);
	return a;
}

void auth_free(struct auth *a)
{
	if (!a)
		return;
	perms_forget(a);
	mapb_deinit(&a->perms);
	arena_deinit(&a->arena);
	free(a);
}

void auth_rebuild(struct auth *a)
{
	perms_forget(a);
	read_head(a);
	a->bytes = count_bytes(a->state);
	a->changes++;
}

bool auth_is_enabled(const struct auth *a)
{
	return a->enabled;
}

uint64_t auth_revision(const struct auth *a)
{
	return a->revision;
}

uint64_t auth_changes(const struct auth *a)
{
	return a->changes;
}

bool auth_find_user(struct auth *a, struct slice name, struct auth_user *ret)
{
	const struct auth_record *r = auth_record_find(a->state, KIND_USER, name);

	if (!r)
		return false;
	ASSERT(auth_user_parse(auth_record_body(r), &a->arena, ret));
	return true;
}

bool auth_find_role(struct auth *a, struct slice name, struct auth_role *ret)
{
	const struct auth_record *r = auth_record_find(a->state, KIND_ROLE, name);

	if (!r)
		return false;
	ASSERT(auth_role_parse(auth_record_body(r), &a->arena, ret));
	return true;
}

bool auth_has_user(const struct auth *a, struct slice name)
{
	return auth_record_find(a->state, KIND_USER, name) != NULL;
}

bool auth_user_is_root(const struct auth_user *u)
{
	for (size_t i = 0; i < u->roles_len; i++)
		if (slice_eq(u->roles[i], root_name()))
			return true;
	return false;
}

bool auth_has_role(struct auth *a, struct slice user, struct slice role)
{
	struct auth_user u;
	bool has = false;

	if (auth_find_user(a, user, &u))
		for (size_t i = 0; i < u.roles_len && !has; i++)
			has = slice_eq(u.roles[i], role);
	arena_clear(&a->arena);
	return has;
}

/* ---- told ---- */

void auth_status_fields(const struct auth *a, struct buf *out)
{
	pbw_u64(out, 2, a->enabled);
	pbw_u64(out, 3, a->revision);
}

/* The string in field 1, as a slice of the arena. ERR_MALFORMED. */
static enum err name_of(struct auth *a, const ProtobufCMessageDescriptor *desc, struct slice request, struct slice *ret)
{
	const Etcdserverpb__AuthUserGetRequest *m; /* all such requests are laid out alike */

	if (pb_check(desc, request, 1) != PB_CHECK_OK)
		return ERR_MALFORMED;
	m = (const void *)protobuf_c_message_unpack(desc, &a->arena.pb, request.len, request.ptr);
	if (!m)
		return ERR_MALFORMED;
	*ret = slice_of_str(m->name);
	return ERR_OK;
}

enum err auth_user_get_fields(struct auth *a, struct slice request, struct buf *out)
{
	struct auth_user u;
	struct slice name;
	enum err e = name_of(a, &etcdserverpb__auth_user_get_request__descriptor, request, &name);

	if (!e && !auth_find_user(a, name, &u))
		e = ERR_USER_NOT_FOUND;
	for (size_t i = 0; !e && i < u.roles_len; i++)
		pbw_bytes_always(out, 2, u.roles[i]);
	arena_clear(&a->arena);
	return e;
}

static void write_permission(struct buf *out, const struct auth_permission *p)
{
	size_t mark = pbw_open(out, 2);

	pbw_u64(out, 1, p->type);
	pbw_bytes(out, 2, p->key);
	pbw_bytes(out, 3, p->end);
	pbw_close(out, mark);
}

enum err auth_role_get_fields(struct auth *a, struct slice request, struct buf *out)
{
	struct auth_role r;
	struct slice name;
	enum err e = name_of(a, &etcdserverpb__auth_role_get_request__descriptor, request, &name);

	if (!e && !auth_find_role(a, name, &r))
		e = ERR_ROLE_NOT_FOUND;
	for (size_t i = 0; !e && i < r.permissions_len; i++)
		write_permission(out, &r.permissions[i]);
	arena_clear(&a->arena);
	return e;
}

static void write_names(const struct auth *a, uint8_t kind, struct buf *out)
{
	struct tree_cursor c;

	for (struct tree_record *r = tree_seek(&c, &a->state->auth, slice_of(&kind, 1)); r; r = tree_next(&c)) {
		const struct auth_record *record = (const struct auth_record *)r;

		if (record->bytes[0] != kind)
			return;
		pbw_bytes_always(out, 2, auth_record_name(record));
	}
}

void auth_user_list_fields(const struct auth *a, struct buf *out)
{
	write_names(a, KIND_USER, out);
}

void auth_role_list_fields(const struct auth *a, struct buf *out)
{
	write_names(a, KIND_ROLE, out);
}

enum err auth_look(struct auth *a, struct slice name, struct buf *out)
{
	struct auth_user u;

	if (!a->enabled)
		return ERR_AUTH_NOT_ENABLED;
	pbw_u64(out, 1, a->revision);
	if (auth_find_user(a, name, &u) && !u.no_password)
		pbw_bytes(out, 2, u.password);
	arena_clear(&a->arena);
	return ERR_OK;
}

void auth_check_invariants(const struct auth *a)
{
	ASSERT(a->revision > 0);
	ASSERT(a->bytes == count_bytes(a->state));
}
