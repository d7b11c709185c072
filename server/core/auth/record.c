/* record.c: a head, a user or a role as a record of the tree.
 *
 * On disk: the kind's byte and the packed message. What is read must be just what we would write (fields in order, roles and permissions sorted,
 * nothing unknown): otherwise a replica would believe its state equal to others' when it is not. */
#include "base/hash.h"
#include "core/auth/auth_internal.h"

enum { RECORD_DEPTH_MAX = 2 };

static const struct auth_record *record_of(const struct tree_record *r)
{
	return (const struct auth_record *)r;
}

struct auth_record *auth_record_new(uint8_t kind, struct slice name, struct slice body)
{
	struct auth_record *r = mem_alloc(sizeof(*r) + 1 + name.len + body.len);

	r->base.refs = 1;
	r->key_len = (uint32_t)(1 + name.len);
	r->body_len = (uint32_t)body.len;
	r->bytes[0] = kind;
	if (name.len)
		memcpy(r->bytes + 1, name.ptr, name.len);
	if (body.len)
		memcpy(r->bytes + r->key_len, body.ptr, body.len);
	r->hash = hash64(SECTION_AUTH, r->bytes, r->key_len + body.len);
	return r;
}

const struct auth_record *auth_record_find(const struct state *st, uint8_t kind, struct slice name)
{
	uint8_t key[1 + AUTH_NAME_MAX];

	if (name.len > AUTH_NAME_MAX)
		return NULL;
	key[0] = kind;
	if (name.len)
		memcpy(key + 1, name.ptr, name.len);
	return (const struct auth_record *)tree_get(&st->auth, slice_of(key, 1 + name.len));
}

/* ---- messages ---- */

static struct slice slice_of_data(ProtobufCBinaryData d)
{
	return slice_of(d.data, d.len);
}

static ProtobufCMessage *unpack(const ProtobufCMessageDescriptor *desc, struct slice body, struct arena *arena)
{
	if (pb_check(desc, body, RECORD_DEPTH_MAX) != PB_CHECK_OK)
		return NULL;
	return protobuf_c_message_unpack(desc, &arena->pb, body.len, body.ptr);
}

bool auth_user_parse(struct slice body, struct arena *arena, struct auth_user *ret)
{
	const Authpb__User *m = (const Authpb__User *)(const void *)unpack(&authpb__user__descriptor, body, arena);

	if (!m)
		return false;
	*ret = (struct auth_user){ .name = slice_of_data(m->name), .password = slice_of_data(m->password) };
	ret->no_password = m->options && m->options->no_password;
	ret->roles_len = m->n_roles;
	ret->roles = arena_alloc(arena, m->n_roles * sizeof(*ret->roles) + 1);
	for (size_t i = 0; i < m->n_roles; i++)
		ret->roles[i] = slice_of_str(m->roles[i]);
	return true;
}

bool auth_role_parse(struct slice body, struct arena *arena, struct auth_role *ret)
{
	const Authpb__Role *m = (const Authpb__Role *)(const void *)unpack(&authpb__role__descriptor, body, arena);

	if (!m)
		return false;
	*ret = (struct auth_role){ .name = slice_of_data(m->name), .permissions_len = m->n_keypermission };
	ret->permissions = arena_alloc(arena, m->n_keypermission * sizeof(*ret->permissions) + 1);
	for (size_t i = 0; i < m->n_keypermission; i++) {
		const Authpb__Permission *p = m->keypermission[i];

		ret->permissions[i] = (struct auth_permission){ (uint32_t)p->permtype, slice_of_data(p->key), slice_of_data(p->range_end) };
	}
	return true;
}

void auth_user_write(const struct auth_user *u, struct buf *out)
{
	size_t mark;

	pbw_bytes(out, 1, u->name);
	pbw_bytes(out, 2, u->password);
	for (size_t i = 0; i < u->roles_len; i++)
		pbw_bytes_always(out, 3, u->roles[i]);
	if (u->no_password) {
		mark = pbw_open(out, 4);
		pbw_u64(out, 1, 1);
		pbw_close(out, mark);
	}
}

void auth_role_write(const struct auth_role *r, struct buf *out)
{
	pbw_bytes(out, 1, r->name);
	for (size_t i = 0; i < r->permissions_len; i++) {
		const struct auth_permission *p = &r->permissions[i];
		size_t mark = pbw_open(out, 2);

		pbw_u64(out, 1, p->type);
		pbw_bytes(out, 2, p->key);
		pbw_bytes(out, 3, p->end);
		pbw_close(out, mark);
	}
}

int auth_permission_cmp(const struct auth_permission *a, const struct auth_permission *b)
{
	int c = slice_cmp(a->key, b->key);

	return c ? c : slice_cmp(a->end, b->end);
}

/* ---- the tree's type ---- */

static struct slice auth_record_key(const struct tree_record *r)
{
	return slice_of(record_of(r)->bytes, record_of(r)->key_len);
}

static struct tree_record *auth_record_clone(const struct tree_record *r)
{
	return &auth_record_new(record_of(r)->bytes[0], auth_record_name(record_of(r)), auth_record_body(record_of(r)))->base;
}

static void auth_record_free(struct tree_record *r)
{
	free(r);
}

static uint64_t auth_record_hash(const struct tree_record *r)
{
	return record_of(r)->hash;
}

static void auth_record_encode(const struct tree_record *r, struct buf *out)
{
	buf_append_byte(out, record_of(r)->bytes[0]);
	buf_append_slice(out, auth_record_body(record_of(r)));
}

static bool name_fits(struct slice name)
{
	return name.len > 0 && name.len <= AUTH_NAME_MAX;
}

static bool rewrite_user(struct slice body, struct arena *arena, struct buf *out, struct slice *ret_name)
{
	struct auth_user u;

	if (!auth_user_parse(body, arena, &u) || !name_fits(u.name) || u.roles_len > AUTH_ROLES_MAX)
		return false;
	for (size_t i = 0; i + 1 < u.roles_len; i++)
		if (slice_cmp(u.roles[i], u.roles[i + 1]) >= 0)
			return false;
	auth_user_write(&u, out);
	*ret_name = u.name;
	return true;
}

static bool rewrite_role(struct slice body, struct arena *arena, struct buf *out, struct slice *ret_name)
{
	struct auth_role r;

	if (!auth_role_parse(body, arena, &r) || !name_fits(r.name) || r.permissions_len > AUTH_PERMISSIONS_MAX)
		return false;
	for (size_t i = 0; i + 1 < r.permissions_len; i++)
		if (auth_permission_cmp(&r.permissions[i], &r.permissions[i + 1]) >= 0)
			return false;
	auth_role_write(&r, out);
	*ret_name = r.name;
	return true;
}

static bool rewrite_head(struct slice body, struct arena *arena, struct buf *out, struct slice *ret_name)
{
	const Holdfast__Internal__AuthHead *h =
		(const Holdfast__Internal__AuthHead *)(const void *)unpack(&holdfast__internal__auth_head__descriptor, body, arena);

	if (!h || h->revision == 0)
		return false;
	pbw_u64(out, 1, h->enabled != 0);
	pbw_u64(out, 2, h->revision);
	*ret_name = slice_of(NULL, 0);
	return true;
}

static enum err auth_record_decode(struct slice bytes, struct tree_record **ret)
{
	struct slice body, name;
	struct buf again = { 0 };
	struct arena arena;
	enum err e = ERR_CORRUPT;
	bool ok = false;

	if (bytes.len == 0)
		return ERR_CORRUPT;
	body = slice_of(bytes.ptr + 1, bytes.len - 1);
	arena_init(&arena);
	switch (bytes.ptr[0]) {
	case KIND_HEAD: ok = rewrite_head(body, &arena, &again, &name); break;
	case KIND_ROLE: ok = rewrite_role(body, &arena, &again, &name); break;
	case KIND_USER: ok = rewrite_user(body, &arena, &again, &name); break;
	default: break;
	}
	if (ok && slice_eq(buf_view(&again), body)) {
		*ret = &auth_record_new(bytes.ptr[0], name, body)->base;
		e = ERR_OK;
	}
	buf_free(&again);
	arena_deinit(&arena);
	return e;
}

const struct tree_type auth_record_type = {
	.section = SECTION_AUTH,
	.version = 1,
	.key = auth_record_key,
	.clone = auth_record_clone,
	.free = auth_record_free,
	.hash = auth_record_hash,
	.encode = auth_record_encode,
	.decode = auth_record_decode,
};
