/* test_authorise.c: no method and no command is without a rule, and each is tried as nobody, as a user without rights, with a read-only role, and as
 * root. All of it is derived from the method table: a method that is added there is tried here. */
#include <check.h>
#include <stdlib.h>

#include "etcd/v3election.pb-c.h"
#include "fixture.h"

static struct world w;

#define ALL_FROM slice_of("\0", 1)

static void setup(void)
{
	world_init(&w);
	world_enable(&w);
	ck_assert_int_eq(user_add(&w, "none"), ERR_OK);
	ck_assert_int_eq(user_add(&w, "reader"), ERR_OK);
	ck_assert_int_eq(role_add(&w, "read"), ERR_OK);
	ck_assert_int_eq(permit(&w, "read", AUTHPB__PERMISSION__TYPE__READ, ALL_FROM, ALL_FROM), ERR_OK);
	ck_assert_int_eq(grant_role(&w, "reader", "read"), ERR_OK);
}

static void teardown(void)
{
	world_deinit(&w);
}

/* ---- requests: every text is "/k", every message is there ---- */

enum { DEPTH = 3 };

static ProtobufCMessage *filled(struct arena *a, const ProtobufCMessageDescriptor *d, int depth);

static void fill_field(struct arena *a, ProtobufCMessage *m, const ProtobufCFieldDescriptor *f, int depth)
{
	void *at = (char *)m + f->offset;

	if (f->label == PROTOBUF_C_LABEL_REPEATED)
		return;
	if (f->type == PROTOBUF_C_TYPE_BYTES)
		*(ProtobufCBinaryData *)at = (ProtobufCBinaryData){ strcmp(f->name, "range_end") ? 2 : 0, (uint8_t *)(uintptr_t) "/k" };
	else if (f->type == PROTOBUF_C_TYPE_STRING)
		*(char **)at = (char *)(uintptr_t) "/k";
	else if (f->type == PROTOBUF_C_TYPE_MESSAGE && depth > 0)
		*(ProtobufCMessage **)at = filled(a, f->descriptor, depth - 1);
	else
		return;
	if (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) {
		uint32_t *which = (uint32_t *)(void *)((char *)m + f->quantifier_offset);

		*which = *which ? *which : f->id; /* the first: a watch's creation */
	}
}

static ProtobufCMessage *filled(struct arena *a, const ProtobufCMessageDescriptor *d, int depth)
{
	ProtobufCMessage *m = arena_zalloc(a, d->sizeof_message);

	d->message_init(m);
	for (unsigned i = 0; i < d->n_fields; i++) {
		const ProtobufCFieldDescriptor *f = &d->fields[i];
		bool taken = (f->flags & PROTOBUF_C_FIELD_FLAG_ONEOF) && *(uint32_t *)(void *)((char *)m + f->quantifier_offset);

		if (!taken)
			fill_field(a, m, f, depth);
	}
	return m;
}

/* A transaction that puts, two levels down. */
static ProtobufCMessage *nested_put(struct arena *a)
{
	Etcdserverpb__TxnRequest *t[2];
	Etcdserverpb__PutRequest *put = (void *)filled(a, &etcdserverpb__put_request__descriptor, 0);

	for (int i = 0; i < 2; i++) {
		Etcdserverpb__RequestOp *op = arena_zalloc(a, sizeof *op);

		etcdserverpb__request_op__init(op);
		op->request_case = i ? ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_TXN : ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_PUT;
		if (i)
			op->request_txn = t[0];
		else
			op->request_put = put;
		t[i] = arena_zalloc(a, sizeof *t[i]);
		etcdserverpb__txn_request__init(t[i]);
		t[i]->failure = arena_zalloc(a, sizeof(void *));
		t[i]->failure[0] = op;
		t[i]->n_failure = 1;
	}
	return &t[1]->base;
}

static struct buf request_of(enum method_id id)
{
	struct arena a;
	struct buf b = { 0 };
	ProtobufCMessage *m;

	arena_init(&a);
	m = id == METHOD_KV_TXN ? nested_put(&a) : filled(&a, method_by_id(id)->request, DEPTH);
	buf_reserve(&b, protobuf_c_message_get_packed_size(m) + 1);
	b.len = protobuf_c_message_pack(m, b.ptr);
	arena_deinit(&a);
	return b;
}

static enum err ask(enum method_id id, const char *user)
{
	struct authoriser az = authoriser_of(&w);
	struct buf b = request_of(id);
	enum err e = authorise_request(&az, who(&w, user), id, buf_view(&b));

	arena_clear(&w.arena);
	buf_free(&b);
	return e;
}

/* ---- what is expected of whom ---- */

static enum err expected_of_none(const struct method *m)
{
	switch (m->permission) {
	case PERMISSION_NONE:
	case PERMISSION_AUTHENTICATED:
	case PERMISSION_LEASE:
		return ERR_OK;
	case PERMISSION_ROOT_OR_OWN:
		return m->id == METHOD_MAINTENANCE_ALARM ? ERR_OK : ERR_PERMISSION_DENIED; /* to look at alarms */
	default:
		return ERR_PERMISSION_DENIED;
	}
}

static enum err expected_of_reader(const struct method *m)
{
	return m->permission == PERMISSION_KEY_READ ? ERR_OK : expected_of_none(m);
}

START_TEST(methods__none_lacks_a_rule)
{
	ck_assert_msg(authorise_method_has_rule((enum method_id)_i), "%s", method_by_id((enum method_id)_i)->path);
}
END_TEST

START_TEST(methods__as_everybody)
{
	const struct method *m = method_by_id((enum method_id)_i);
	bool free_for_all = m->permission == PERMISSION_NONE;

	ck_assert_msg(ask(m->id, NULL) == (free_for_all ? ERR_OK : ERR_USER_EMPTY), "%s as nobody: %s", m->path, err_name(ask(m->id, NULL)));
	ck_assert_msg(ask(m->id, "none") == expected_of_none(m), "%s without rights: %s", m->path, err_name(ask(m->id, "none")));
	ck_assert_msg(ask(m->id, "reader") == expected_of_reader(m), "%s by a reader: %s", m->path, err_name(ask(m->id, "reader")));
	ck_assert_msg(ask(m->id, "root") == ERR_OK, "%s as root: %s", m->path, err_name(ask(m->id, "root")));
	ck_assert_int_eq(switch_to(&w, false), ERR_OK);
	ck_assert_msg(ask(m->id, NULL) == ERR_OK, "%s with authentication off", m->path);
}
END_TEST

START_TEST(commands__none_lacks_a_rule)
{
	const ProtobufCEnumDescriptor *d = &holdfast__internal__command_kind__descriptor;

	for (unsigned i = 0; i < d->n_values; i++)
		ck_assert_msg(authorise_command_has_rule((uint32_t)d->values[i].value), "%s", d->values[i].name);
	ck_assert(!authorise_command_has_rule(1000));
}
END_TEST

START_TEST(commands__unknown_ones_are_refused)
{
	struct authoriser az = authoriser_of(&w);
	struct command cmd = { .kind = 1000, .user = slice_of_str("root"), .auth_revision = auth_revision(w.auth) };

	ck_assert_int_eq(authorise_command(&az, &cmd), ERR_PERMISSION_DENIED);
}
END_TEST

/* ---- what once was got wrong elsewhere ---- */

static enum err check(enum method_id id, const char *user, const ProtobufCMessage *m)
{
	struct authoriser az = authoriser_of(&w);
	struct buf b = { 0 };
	enum err e;

	buf_reserve(&b, protobuf_c_message_get_packed_size(m) + 1);
	b.len = protobuf_c_message_pack(m, b.ptr);
	e = authorise_request(&az, who(&w, user), id, buf_view(&b));
	arena_clear(&w.arena);
	buf_free(&b);
	return e;
}

static void give(const char *user, uint32_t type, const char *key)
{
	ck_assert_int_eq(user_add(&w, user), ERR_OK);
	ck_assert_int_eq(role_add(&w, user), ERR_OK);
	ck_assert_int_eq(permit(&w, user, type, slice_of_str(key), slice_of(NULL, 0)), ERR_OK);
	ck_assert_int_eq(grant_role(&w, user, user), ERR_OK);
}

static ProtobufCBinaryData bytes(const char *s, size_t len)
{
	return (ProtobufCBinaryData){ len, (uint8_t *)(uintptr_t)s };
}

START_TEST(faults__one_key_is_not_all_above_it)
{
	Etcdserverpb__WatchRequest r = ETCDSERVERPB__WATCH_REQUEST__INIT;
	Etcdserverpb__WatchCreateRequest create = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;

	give("one", AUTHPB__PERMISSION__TYPE__READ, "/k");
	r.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
	r.create_request = &create;
	create.key = bytes("/k", 2);
	ck_assert_int_eq(check(METHOD_WATCH_WATCH, "one", &r.base), ERR_OK);
	create.range_end = bytes("\0", 1);
	ck_assert_int_eq(check(METHOD_WATCH_WATCH, "one", &r.base), ERR_PERMISSION_DENIED);
	create.range_end = bytes("/l", 2);
	ck_assert_int_eq(check(METHOD_WATCH_WATCH, "one", &r.base), ERR_PERMISSION_DENIED);
	create.range_end = bytes("/k\0", 3);
	ck_assert_int_eq(check(METHOD_WATCH_WATCH, "one", &r.base), ERR_OK);
	create.key = bytes("", 0);
	create.range_end = bytes("\0", 1);
	ck_assert_int_eq(check(METHOD_WATCH_WATCH, "one", &r.base), ERR_PERMISSION_DENIED);
}
END_TEST

START_TEST(faults__prev_kv_is_a_read)
{
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	Etcdserverpb__DeleteRangeRequest del = ETCDSERVERPB__DELETE_RANGE_REQUEST__INIT;

	give("writer", AUTHPB__PERMISSION__TYPE__WRITE, "/k");
	put.key = del.key = bytes("/k", 2);
	ck_assert_int_eq(check(METHOD_KV_PUT, "writer", &put.base), ERR_OK);
	ck_assert_int_eq(check(METHOD_KV_DELETE_RANGE, "writer", &del.base), ERR_OK);
	put.prev_kv = del.prev_kv = true;
	ck_assert_int_eq(check(METHOD_KV_PUT, "writer", &put.base), ERR_PERMISSION_DENIED);
	ck_assert_int_eq(check(METHOD_KV_DELETE_RANGE, "writer", &del.base), ERR_PERMISSION_DENIED);
}
END_TEST

START_TEST(faults__leases_hold_keys_of_others)
{
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	Etcdserverpb__LeaseRevokeRequest revoke = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;
	Etcdserverpb__LeaseTimeToLiveRequest ttl = ETCDSERVERPB__LEASE_TIME_TO_LIVE_REQUEST__INIT;
	int64_t ttl_s;

	give("writer", AUTHPB__PERMISSION__TYPE__READWRITE, "/k");
	ck_assert_int_eq(lease_grant(w.lessor, 7, 60, 0, &ttl_s), ERR_OK);
	put.key = bytes("/k", 2);
	put.lease = revoke.id = ttl.id = 7;
	ck_assert_int_eq(check(METHOD_KV_PUT, "writer", &put.base), ERR_OK);
	ck_assert_int_eq(check(METHOD_LEASE_REVOKE, "writer", &revoke.base), ERR_OK);
	lease_attach(w.lessor, 7, slice_of_str("/secret"));
	ck_assert_int_eq(check(METHOD_KV_PUT, "writer", &put.base), ERR_PERMISSION_DENIED);
	ck_assert_int_eq(check(METHOD_LEASE_REVOKE, "writer", &revoke.base), ERR_PERMISSION_DENIED);
	ck_assert_int_eq(check(METHOD_LEASE_TIME_TO_LIVE, "writer", &ttl.base), ERR_OK);
	ttl.keys = true;
	ck_assert_int_eq(check(METHOD_LEASE_TIME_TO_LIVE, "writer", &ttl.base), ERR_PERMISSION_DENIED);
	ck_assert_int_eq(check(METHOD_LEASE_TIME_TO_LIVE, "root", &ttl.base), ERR_OK);
	lease_detach(w.lessor, 7, slice_of_str("/secret"));
}
END_TEST

START_TEST(faults__compares_are_reads)
{
	Etcdserverpb__TxnRequest t = ETCDSERVERPB__TXN_REQUEST__INIT;
	Etcdserverpb__Compare c = ETCDSERVERPB__COMPARE__INIT, *list[] = { &c };

	give("writer", AUTHPB__PERMISSION__TYPE__WRITE, "/k");
	c.key = bytes("/k", 2);
	t.compare = list;
	t.n_compare = 1;
	ck_assert_int_eq(check(METHOD_KV_TXN, "writer", &t.base), ERR_PERMISSION_DENIED);
	ck_assert_int_eq(check(METHOD_KV_TXN, "reader", &t.base), ERR_OK);
	c.range_end = bytes("\0", 1);
	ck_assert_int_eq(check(METHOD_KV_TXN, "reader", &t.base), ERR_OK);
}
END_TEST

START_TEST(own__users_and_roles)
{
	Etcdserverpb__AuthUserGetRequest user = ETCDSERVERPB__AUTH_USER_GET_REQUEST__INIT;
	Etcdserverpb__AuthRoleGetRequest role = ETCDSERVERPB__AUTH_ROLE_GET_REQUEST__INIT;
	Etcdserverpb__AlarmRequest alarm = ETCDSERVERPB__ALARM_REQUEST__INIT;

	user.name = (char *)(uintptr_t) "reader";
	role.role = (char *)(uintptr_t) "read";
	ck_assert_int_eq(check(METHOD_AUTH_USER_GET, "reader", &user.base), ERR_OK);
	ck_assert_int_eq(check(METHOD_AUTH_USER_GET, "none", &user.base), ERR_PERMISSION_DENIED);
	ck_assert_int_eq(check(METHOD_AUTH_ROLE_GET, "reader", &role.base), ERR_OK);
	ck_assert_int_eq(check(METHOD_AUTH_ROLE_GET, "none", &role.base), ERR_PERMISSION_DENIED);
	alarm.action = ETCDSERVERPB__ALARM_REQUEST__ALARM_ACTION__DEACTIVATE;
	ck_assert_int_eq(check(METHOD_MAINTENANCE_ALARM, "reader", &alarm.base), ERR_PERMISSION_DENIED);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("authorise");
	TCase *t = tcase_create("authorise");
	SRunner *r = srunner_create(s);
	int failed;

	tcase_add_checked_fixture(t, setup, teardown);
	tcase_set_timeout(t, 60);
	tcase_add_loop_test(t, methods__none_lacks_a_rule, 0, METHOD_COUNT);
	tcase_add_loop_test(t, methods__as_everybody, 0, METHOD_COUNT);
	tcase_add_test(t, commands__none_lacks_a_rule);
	tcase_add_test(t, commands__unknown_ones_are_refused);
	tcase_add_test(t, faults__one_key_is_not_all_above_it);
	tcase_add_test(t, faults__prev_kv_is_a_read);
	tcase_add_test(t, faults__leases_hold_keys_of_others);
	tcase_add_test(t, faults__compares_are_reads);
	tcase_add_test(t, own__users_and_roles);
	suite_add_tcase(s, t);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
