/* auth_test.c: users and permissions in whole cells: what is judged where the log stands, and what a replica knows of them after a snapshot. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "base/mem.h"
#include "base/pbw.h"
#include "etcd/rpc.pb-c.h"
#include "support/mini_answer.h"

static uint64_t add_user(struct mini_cell *m, size_t i, const char *name)
{
	Etcdserverpb__AuthUserAddRequest r = ETCDSERVERPB__AUTH_USER_ADD_REQUEST__INIT;

	r.name = (char *)(uintptr_t)name;
	return mini_request(m, i, METHOD_AUTH_USER_ADD, &r.base);
}

static uint64_t add_role(struct mini_cell *m, size_t i, const char *name)
{
	Etcdserverpb__AuthRoleAddRequest r = ETCDSERVERPB__AUTH_ROLE_ADD_REQUEST__INIT;

	r.name = (char *)(uintptr_t)name;
	return mini_request(m, i, METHOD_AUTH_ROLE_ADD, &r.base);
}

static uint64_t give_role(struct mini_cell *m, size_t i, const char *user, const char *role)
{
	Etcdserverpb__AuthUserGrantRoleRequest r = ETCDSERVERPB__AUTH_USER_GRANT_ROLE_REQUEST__INIT;

	r.user = (char *)(uintptr_t)user;
	r.role = (char *)(uintptr_t)role;
	return mini_request(m, i, METHOD_AUTH_USER_GRANT_ROLE, &r.base);
}

static uint64_t take_role(struct mini_cell *m, size_t i, const char *user, const char *role)
{
	Etcdserverpb__AuthUserRevokeRoleRequest r = ETCDSERVERPB__AUTH_USER_REVOKE_ROLE_REQUEST__INIT;

	r.name = (char *)(uintptr_t)user;
	r.role = (char *)(uintptr_t)role;
	return mini_request(m, i, METHOD_AUTH_USER_REVOKE_ROLE, &r.base);
}

static uint64_t permit(struct mini_cell *m, size_t i, const char *role, const char *key)
{
	Etcdserverpb__AuthRoleGrantPermissionRequest r = ETCDSERVERPB__AUTH_ROLE_GRANT_PERMISSION_REQUEST__INIT;
	Authpb__Permission perm = AUTHPB__PERMISSION__INIT;

	r.name = (char *)(uintptr_t)role;
	r.perm = &perm;
	perm.permtype = AUTHPB__PERMISSION__TYPE__READWRITE;
	perm.key = (ProtobufCBinaryData){ strlen(key), (uint8_t *)(uintptr_t)key };
	return mini_request(m, i, METHOD_AUTH_ROLE_GRANT_PERMISSION, &r.base);
}

static uint64_t enable(struct mini_cell *m, size_t i)
{
	Etcdserverpb__AuthEnableRequest r = ETCDSERVERPB__AUTH_ENABLE_REQUEST__INIT;

	return mini_request(m, i, METHOD_AUTH_ENABLE, &r.base);
}

/* Three replicas; root, and ann who may read and write /a. */
static struct mini_cell *cell_with(uint64_t snapshot_count)
{
	struct mini_cell *m = mini_new(&(struct mini_options){ .replicas = 3, .seed = 5, .disk_ms = 1, .net_ms = 1, .snapshot_count = snapshot_count, .snapshot_keep = 1 });
	size_t l = mini_elect(m, 10000);

	mini_run(m, 300);
	OK(m, add_user(m, l, "root"));
	OK(m, add_role(m, l, "root"));
	OK(m, give_role(m, l, "root", "root"));
	OK(m, add_user(m, l, "ann"));
	OK(m, add_role(m, l, "a"));
	OK(m, permit(m, l, "a", "/a"));
	OK(m, give_role(m, l, "ann", "a"));
	OK(m, enable(m, l));
	mini_run(m, 100);
	return m;
}

static uint64_t put_as(struct mini_cell *m, size_t i, const char *who, const char *key)
{
	mini_as(m, who);
	return mini_put(m, i, key, "v", 0);
}

static uint64_t get_as(struct mini_cell *m, size_t i, const char *who, const char *key)
{
	mini_as(m, who);
	return mini_get(m, i, key, true);
}

/* All replicas let ann at /a, and nobody at anything else. */
static void check_permissions(struct mini_cell *m, size_t i)
{
	OK(m, put_as(m, i, "ann", "/a"));
	FAILS(m, put_as(m, i, "ann", "/b"), ERR_PERMISSION_DENIED);
	FAILS(m, put_as(m, i, NULL, "/a"), ERR_USER_EMPTY);
	FAILS(m, put_as(m, i, "bob", "/a"), ERR_PERMISSION_DENIED);
	OK(m, get_as(m, i, "ann", "/a"));
	FAILS(m, get_as(m, i, "ann", "/b"), ERR_PERMISSION_DENIED);
	FAILS(m, get_as(m, i, NULL, "/a"), ERR_USER_EMPTY);
	OK(m, put_as(m, i, "root", "/b"));
}

/* ---- watches ---- */

enum { WATCH = 1 };

static struct {
	unsigned created, refused, canceled, events;
} seen;

static void on_output(void *ctx, size_t i, struct core_output *o)
{
	(void)ctx;
	(void)i;
	for (size_t at = 0; at < o->messages.len;) {
		const uint8_t *p = o->messages.ptr + at;
		size_t len = (size_t)p[0] | (size_t)p[1] << 8 | (size_t)p[2] << 16 | (size_t)p[3] << 24;
		Etcdserverpb__WatchResponse *r = etcdserverpb__watch_response__unpack(NULL, len, p + 4);

		ck_assert_ptr_nonnull(r);
		seen.created += r->created && !r->canceled;
		seen.refused += r->created && r->canceled;
		seen.canceled += !r->created && r->canceled;
		seen.events += (unsigned)r->n_events;
		etcdserverpb__watch_response__free_unpacked(r, NULL);
		at += 4 + len;
	}
}

static void run_writable(struct mini_cell *m, size_t i, time_ms ms)
{
	for (time_ms t = 0; t < ms; t += 10) {
		mini_run(m, 10);
		mini_stream(m, i, EVENT_STREAM_WRITABLE, WATCH, METHOD_COUNT, slice_of(NULL, 0));
	}
}

static void watch(struct mini_cell *m, size_t i, struct slice end)
{
	struct buf b = { 0 };
	size_t mark = pbw_open(&b, 1);

	pbw_bytes(&b, 1, slice_of_str("/a"));
	pbw_bytes(&b, 2, end);
	pbw_close(&b, mark);
	mini_stream(m, i, EVENT_STREAM_MESSAGE, WATCH, METHOD_COUNT, buf_view(&b));
	buf_free(&b);
}

START_TEST(auth__a_watch_lasts_as_long_as_the_right_to_it)
{
	struct mini_cell *m = cell_with(0);
	size_t l = mini_leader(m), f = l == 0 ? 1 : 0;

	memset(&seen, 0, sizeof seen);
	mini_on_output(m, on_output, NULL);
	mini_as(m, "ann");
	mini_stream(m, f, EVENT_STREAM_OPEN, WATCH, METHOD_WATCH_WATCH, slice_of(NULL, 0));
	watch(m, f, slice_of(NULL, 0));
	watch(m, f, slice_of("", 1));
	watch(m, f, slice_of_str("/b"));
	run_writable(m, f, 300);
	ck_assert_uint_eq(seen.created, 1);
	ck_assert_uint_eq(seen.refused, 2);
	OK(m, put_as(m, l, "root", "/a"));
	run_writable(m, f, 300);
	ck_assert_uint_eq(seen.events, 1);
	mini_as(m, "root");
	OK(m, take_role(m, l, "ann", "a"));
	OK(m, put_as(m, l, "root", "/a"));
	run_writable(m, f, 300);
	ck_assert_uint_eq(seen.canceled, 1);
	ck_assert_uint_eq(seen.events, 1);
	mini_free(m);
}
END_TEST

START_TEST(auth__holds_at_every_replica)
{
	struct mini_cell *m = cell_with(0);

	for (size_t i = 0; i < 3; i++)
		check_permissions(m, i);
	mini_crash(m, mini_leader(m));
	check_permissions(m, mini_elect(m, 10000));
	mini_free(m);
}
END_TEST

/* The write is on its way while the right to it goes: it stands behind that in the log, and is refused there. */
START_TEST(auth__is_judged_where_the_log_stands)
{
	struct mini_cell *m = cell_with(0);
	size_t l = mini_leader(m), f = l == 0 ? 1 : 0;
	uint64_t revoked, before, after, far;

	before = put_as(m, l, "ann", "/a");
	mini_as(m, "root");
	revoked = take_role(m, l, "ann", "a");
	after = put_as(m, l, "ann", "/a");
	far = put_as(m, f, "ann", "/a");
	OK(m, before);
	OK(m, revoked);
	FAILS(m, after, ERR_PERMISSION_DENIED);
	FAILS(m, far, ERR_PERMISSION_DENIED);
	mini_run(m, 300);
	for (size_t i = 0; i < 3; i++)
		ck_assert_int_eq(core_state(mini_core(m, i))->revision, 2);
	mini_free(m);
}
END_TEST

/* He has logged in, and was deleted in front of what he asks for: his token is none any more, which is what he needs to know. */
START_TEST(auth__a_token_that_was_lost_on_the_way_is_called_so)
{
	struct mini_cell *m = cell_with(0);
	size_t l = mini_leader(m);
	Etcdserverpb__AuthUserDeleteRequest delete = ETCDSERVERPB__AUTH_USER_DELETE_REQUEST__INIT;
	Etcdserverpb__AuthDisableRequest disable = ETCDSERVERPB__AUTH_DISABLE_REQUEST__INIT;
	char token[MINI_TOKEN_MAX], ann[] = "ann";
	uint64_t deleted, disabled;

	mini_as(m, "root");
	OK(m, give_role(m, l, ann, "root"));
	mini_log_in(m, l, ann, token);
	mini_as(m, "root");
	delete.name = ann;
	deleted = mini_request(m, l, METHOD_AUTH_USER_DELETE, &delete.base);
	mini_with_token(m, token);
	disabled = mini_request(m, l, METHOD_AUTH_DISABLE, &disable.base);
	ck_assert_ptr_null(mini_answer(m, deleted));
	ck_assert_ptr_null(mini_answer(m, disabled));
	OK(m, deleted);
	FAILS(m, disabled, ERR_AUTH_INVALID_TOKEN);
	mini_free(m);
}
END_TEST

/* Who brings no token has none to lose. */
START_TEST(auth__a_role_that_was_lost_on_the_way_is_missed)
{
	struct mini_cell *m = cell_with(0);
	size_t l = mini_leader(m);
	Etcdserverpb__AuthDisableRequest disable = ETCDSERVERPB__AUTH_DISABLE_REQUEST__INIT;
	uint64_t revoked, disabled;

	mini_as(m, "root");
	OK(m, give_role(m, l, "ann", "root"));
	revoked = take_role(m, l, "ann", "root");
	mini_as(m, "ann");
	disabled = mini_request(m, l, METHOD_AUTH_DISABLE, &disable.base);
	OK(m, revoked);
	FAILS(m, disabled, ERR_PERMISSION_DENIED);
	mini_free(m);
}
END_TEST

START_TEST(auth__survives_snapshots)
{
	struct mini_cell *m = cell_with(6);
	size_t lagging = mini_leader(m) == 0 ? 1 : 0, l = mini_leader(m);
	raft_index before = core_state(mini_core(m, lagging))->applied.index;
	struct core_status status;

	mini_crash(m, lagging);
	for (int i = 0; i < 40; i++)
		OK(m, put_as(m, l, "root", "/b"));
	OK(m, permit(m, l, "a", "/c"));
	OK(m, put_as(m, l, "ann", "/c"));
	for (int i = 0; i < 10; i++)
		OK(m, put_as(m, l, "root", "/b"));
	mini_run(m, 300);
	for (size_t i = 0; i < 3; i++) { /* what is cut off the log stays in memory for a while */
		if (i == lagging)
			continue;
		mini_crash(m, i);
		mini_restart(m, i);
	}
	l = mini_elect(m, 10000);
	ck_assert_uint_gt(mini_log_first(m, l), before + 1); /* so it cannot be brought up by entries alone */
	mini_restart(m, lagging);
	mini_run(m, 3000);
	ck_assert_uint_eq(core_state(mini_core(m, lagging))->applied.index, core_state(mini_core(m, l))->applied.index);
	core_status(mini_core(m, lagging), &status);
	ck_assert_uint_eq(status.snapshots_installed, 1);
	OK(m, get_as(m, lagging, "ann", "/c")); /* as of while it was away */
	check_permissions(m, lagging);
	mini_run(m, 300);
	for (size_t i = 0; i < 3; i++)
		mini_crash(m, i);
	for (size_t i = 0; i < 3; i++)
		mini_restart(m, i);
	mini_elect(m, 10000);
	mini_run(m, 300);
	for (size_t i = 0; i < 3; i++)
		check_permissions(m, i);
	mini_free(m);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_auth_cell");
	TCase *tc = tcase_create("cell");
	SRunner *sr;
	int failed;

	tcase_set_timeout(tc, 60);
	tcase_add_test(tc, auth__a_watch_lasts_as_long_as_the_right_to_it);
	tcase_add_test(tc, auth__holds_at_every_replica);
	tcase_add_test(tc, auth__is_judged_where_the_log_stands);
	tcase_add_test(tc, auth__a_token_that_was_lost_on_the_way_is_called_so);
	tcase_add_test(tc, auth__a_role_that_was_lost_on_the_way_is_missed);
	tcase_add_test(tc, auth__survives_snapshots);
	suite_add_tcase(s, tc);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
