/* Transactions: what holds, what collides, what is done in which order, and what a failure leaves. */
#include <check.h>
#include <stdlib.h>

#include "base/pbw.h"
#include "world.h"

static void tell(const struct story *story)
{
	struct world w;

	world_init(&w);
	story_tell(&w, story);
	world_deinit(&w);
}

START_TEST(compare__every_target_and_result)
{
	static const struct story story[] = {
		{ "put a 5", "@2" },
		{ "put a 6", "@3" },
		{ "put b 6", "@4" },
		{ "grant 9 50", "@4 ID:9 TTL:50" },
		{ "put c 6 lease=9", "@5" },
		{ "txn { a.version=2 a.create=2 a.mod=3 a.value=6 a.lease=0 } { } { }", "@5 succeeded" },
		{ "txn { a.version>1 a.version<3 a.version!1 } { } { }", "@5 succeeded" },
		{ "txn { a.version>2 } { } { }", "@5" },
		{ "txn { c.lease=9 c.lease!8 c.lease>3 } { } { }", "@5 succeeded" },
		{ "txn { a.value>59 a.value<7 a.value!5 } { } { }", "@5 succeeded" },
		{ "txn { a.value=6 b.value=7 } { } { }", "@5" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(compare__an_absent_key_is_all_zero_but_has_no_value)
{
	static const struct story story[] = {
		{ "txn { z.version=0 z.create=0 z.mod=0 z.lease=0 z.create<1 } { } { }", "@1 succeeded" },
		{ "txn { z.version>0 } { } { }", "@1" },
		{ "txn { z.value=- } { } { }", "@1" },
		{ "txn { z.value!x } { } { }", "@1" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(compare__a_range_holds_for_every_key)
{
	static const struct story story[] = {
		{ "put a 6", "@2" },
		{ "put b 6", "@3" },
		{ "put c 7", "@4" },
		{ "txn { a..c.value=6 } { } { }", "@4 succeeded" },
		{ "txn { a..d.value=6 } { } { }", "@4" },
		{ "txn { a..*.mod>1 } { } { }", "@4 succeeded" },
		{ "txn { b..*.mod>2 } { } { }", "@4 succeeded" },
		{ "txn { a..*.mod>2 } { } { }", "@4" },
		{ "txn { d..*.mod=0 } { } { }", "@4 succeeded" }, /* no keys: as one that is absent */
		{ "txn { d..*.value!x } { } { }", "@4" },
		{ "txn { c..a.version=0 } { } { }", "@4 succeeded" },
		{ "txn { c..a.version>0 } { } { }", "@4" },
		{ "txn { *..*.version=1 } { } { }", "@4 succeeded" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(compare__numbers_out_of_the_enums_are_answered_as_etcd_does)
{
	static const struct story story[] = {
		{ "put a 1", "@2" },
		{ "txn { a.9=1 } { } { }", "@2 succeeded" }, /* an unknown target is always equal */
		{ "txn { a.9!1 } { } { }", "@2" },
		{ "txn { z.9<1 } { } { }", "@2" },
		{ NULL, NULL },
	};
	Etcdserverpb__Compare c = ETCDSERVERPB__COMPARE__INIT, *cs[] = { &c };
	Etcdserverpb__TxnRequest r = ETCDSERVERPB__TXN_REQUEST__INIT;
	struct buf reply = { 0 };
	struct world w;
	uint8_t packed[64];

	world_init(&w);
	story_tell(&w, story);
	c.key = (ProtobufCBinaryData){ .len = 1, .data = (uint8_t *)(uintptr_t)"a" };
	c.target = ETCDSERVERPB__COMPARE__COMPARE_TARGET__MOD;
	c.result = (Etcdserverpb__Compare__CompareResult)9; /* always true */
	c.target_union_case = ETCDSERVERPB__COMPARE__TARGET_UNION_VERSION;
	c.version = 77;
	r.n_compare = 1;
	r.compare = cs;
	ck_assert(!kv_txn(&w.env, slice_of(packed, etcdserverpb__txn_request__pack(&r, packed)), &reply));
	ck_assert_uint_eq(reply.len, 12);
	ck_assert_mem_eq(reply.ptr + 10, "\x10\x01", 2);
	/* the value of another target counts as left out: 0 */
	buf_clear(&reply);
	c.result = ETCDSERVERPB__COMPARE__COMPARE_RESULT__GREATER;
	ck_assert(!kv_txn(&w.env, slice_of(packed, etcdserverpb__txn_request__pack(&r, packed)), &reply));
	ck_assert_uint_eq(reply.len, 12);
	buf_free(&reply);
	world_deinit(&w);
}
END_TEST

START_TEST(txn__operations_in_order_at_one_revision)
{
	static const struct story story[] = {
		{ "txn { } { } { }", "@1 succeeded" },
		{ "txn { a.create=0 } { put a 1 ; get a } { get a }", "@2 succeeded [[~2]] [[~2 a=1(2 2 1) count:1]]" },
		{ "txn { a.create=0 } { put a 1 } { get a ; get b }", "@2 [[~2 a=1(2 2 1) count:1]] [[~2]]" },
		{ "txn { } { put a 2 prev ; get a ; get a rev=2 ; put b 1 ; get a * ; del zz } { }",
		  "@3 succeeded [[~3 a=1(2 2 1)]] [[~3 a=2(2 3 2) count:1]] [[~3 a=1(2 2 1) count:1]] [[~3]] "
		  "[[~3 a=2(2 3 2) b=1(3 3 1) count:2]] [[~3]]" },
		/* before the first change a header still tells the revision before */
		{ "txn { } { del zz ; get a ; put a 3 ; del zz ; get a } { }",
		  "@4 succeeded [[~3]] [[~3 a=2(2 3 2) count:1]] [[~4]] [[~4]] [[~4 a=3(2 4 3) count:1]]" },
		{ "txn { } { del b prev ; del b ; get b } { }", "@5 succeeded [[~5 deleted:1 b=1(3 3 1)]] [[~5]] [[~5]]" },
		{ "txn { } { del x z ; del z x ; get a keys } { }", "@5 succeeded [[~5]] [[~5]] [[~5 a=(2 4 3) count:1]]" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(txn__branches_are_chosen_before_anything_is_done)
{
	static const struct story story[] = {
		{ "txn { } { put d 1 ; txn { d.create=0 } { put e 1 ; get d } { put e 2 } } { }",
		  "@2 succeeded [[~2]] [[~0 succeeded [[~2]] [[~2 d=1(2 2 1) count:1]]]]" },
		{ "txn { } { txn { x.create=0 } { put x 1 } { } ; txn { x.create=0 } { get x ; txn { } { } { } } { } } { }",
		  "@3 succeeded [[~0 succeeded [[~3]]]] [[~0 succeeded [[~3 x=1(3 3 1) count:1]] [[~0 succeeded]]]]" },
		{ "txn { x.create=0 } { put q 1 } { txn { q.create=0 } { txn { x.value=1 } { del x prev } { } } { } ; get x }",
		  "@4 [[~0 succeeded [[~0 succeeded [[~4 deleted:1 x=1(3 3 1)]]]]]] [[~4]]" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(txn__one_that_fails_changes_nothing)
{
	/* world_do compares the state's hash */
	static const struct story story[] = {
		{ "put a 1", "@2" },
		{ "txn { } { put q 1 ; get a rev=3 } { }", "ERR_FUTURE_REVISION" },
		{ "txn { } { put q 1 ; put r 1 lease=9 } { }", "ERR_LEASE_NOT_FOUND" },
		{ "txn { } { put q 1 ; put r - keep_value } { }", "ERR_KEY_NOT_FOUND" },
		{ "txn { } { get a rev=99 ; put r - keep_value } { }", "ERR_KEY_NOT_FOUND" }, /* puts are judged first */
		{ "txn { } { put q 1 ; txn { } { txn { } { put r 1 lease=9 } { } } { } } { }", "ERR_LEASE_NOT_FOUND" },
		{ "txn { } { put q 1 ; txn { z.create=0 } { } { put r 1 lease=9 } } { }", "@3 succeeded [[~3]] [[~0 succeeded]]" },
		{ "compact 3", "@3" },
		{ "txn { } { put q 2 ; get a rev=2 } { }", "ERR_COMPACTED" },
		{ "txn { } { put q 2 ; get a rev=-1 } { }", "ERR_COMPACTED" },
		{ "txn { } { none } { }", "ERR_KEY_NOT_FOUND" },
		{ "txn { } { } { none }", "ERR_KEY_NOT_FOUND" },
		{ "txn { } { put q 1 ; put - 1 } { }", "ERR_EMPTY_KEY" },
		{ "txn { } { put q 1 ; del - z } { }", "ERR_EMPTY_KEY" },
		{ "txn { } { put q 1 ; get - z } { }", "ERR_EMPTY_KEY" },
		{ "txn { -.mod=0 } { put q 1 } { }", "ERR_EMPTY_KEY" },
		{ "txn { } { put q 1 ; get a z by=7 } { }", "ERR_INVALID_SORT_OPTION" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(txn__no_key_is_put_twice)
{
	static const struct story story[] = {
		{ "txn { } { put a 1 ; put a 2 } { }", "ERR_DUPLICATE_KEY" },
		{ "txn { } { put a 1 ; del a } { }", "ERR_DUPLICATE_KEY" },
		{ "txn { } { del a ; put a 1 } { }", "ERR_DUPLICATE_KEY" },
		{ "txn { } { } { del a c ; put b 1 }", "ERR_DUPLICATE_KEY" },
		{ "txn { } { put a 1 ; txn { } { put a 2 } { } } { }", "ERR_DUPLICATE_KEY" },
		{ "txn { } { put c 1 ; txn { } { } { put c 2 } } { }", "ERR_DUPLICATE_KEY" },
		{ "txn { } { txn { } { put d 1 } { } ; txn { } { } { put d 2 } } { }", "ERR_DUPLICATE_KEY" },
		{ "txn { } { del a z ; txn { } { put d 1 } { } } { }", "ERR_DUPLICATE_KEY" },
		{ "txn { } { txn { } { del a z } { } ; put d 1 } { }", "ERR_DUPLICATE_KEY" },
		{ "txn { } { txn { } { del a z } { } ; txn { } { put d 1 } { } } { }", "ERR_DUPLICATE_KEY" },
		{ "txn { } { del a c ; del d f ; del e ; txn { } { } { put dd 1 } } { }", "ERR_DUPLICATE_KEY" },
		{ "txn { } { del a c ; del d f ; del b e ; put c 1 } { }", "ERR_DUPLICATE_KEY" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(txn__what_etcd_lets_pass)
{
	static const struct story story[] = {
		{ "txn { } { del a b ; put b 1 } { }", "@2 succeeded [[~1]] [[~2]]" },
		{ "txn { } { del b a ; put b 1 } { }", "@3 succeeded [[~2]] [[~3]]" },
		{ "txn { } { del b b ; put b 1 } { }", "@4 succeeded [[~3]] [[~4]]" },
		{ "txn { } { del a ; del a ; del a z } { }", "@5 succeeded [[~4]] [[~4]] [[~5 deleted:1]]" },
		{ "txn { x.create>0 } { put a 1 } { put a 2 }", "@6 [[~6]]" },
		{ "txn { } { txn { } { put c 1 } { put c 2 } } { }", "@7 succeeded [[~0 succeeded [[~7]]]]" },
		{ "txn { } { del a c ; del d f ; put c 1 ; put f 1 } { }", "@8 succeeded [[~8 deleted:1]] [[~8]] [[~8]] [[~8]]" },
		/* a put, and a delete in a later nested transaction: done in order */
		{ "txn { } { txn { } { put d 1 } { } ; txn { } { del a z } { } ; get d } { }",
		  "@9 succeeded [[~0 succeeded [[~9]]]] [[~0 succeeded [[~9 deleted:3]]]] [[~9]]" },
		{ "txn { } { txn { } { put d 1 } { del d } } { }", "@10 succeeded [[~0 succeeded [[~10]]]]" },
		/* "to the end" collides with nothing: replace all keys at once */
		{ "txn { } { del * * prev ; put b 2 ; put c 2 } { }", "@11 succeeded [[~11 deleted:1 d=1(10 10 1)]] [[~11]] [[~11]]" },
		{ "get * *", "@11 b=2(11 11 1) c=2(11 11 1) count:2" },
		{ "txn { } { put b 3 ; del a * prev ; get b } { }",
		  "@12 succeeded [[~12]] [[~12 deleted:2 b=3(11 12 2) c=2(11 11 1)]] [[~12]]" },
		/* etcd falls over here; the key is not there any more when the put comes */
		{ "put c 1", "@13" },
		{ "txn { } { del a * ; put c - keep_value } { }", "ERR_KEY_NOT_FOUND" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

/* ---- checks without a state ---- */

static enum err check(struct world *w, const char *line, uint32_t max_ops)
{
	const ProtobufCMessageDescriptor *desc;
	struct slice packed = world_request(w, line, &desc);
	Etcdserverpb__TxnRequest *r;
	enum err e;

	ck_assert_ptr_eq(desc, &etcdserverpb__txn_request__descriptor);
	r = etcdserverpb__txn_request__unpack(NULL, packed.len, packed.ptr);
	e = kv_check_txn(r, max_ops);
	etcdserverpb__txn_request__free_unpacked(r, NULL);
	return e;
}

START_TEST(check_txn__counts_operations_as_etcd_does)
{
	static const struct {
		const char *line;
		uint32_t max;
		enum err want;
	} rows[] = {
		{ "txn { } { get a ; get b } { }", 2, ERR_OK },
		{ "txn { } { get a ; get b } { }", 1, ERR_TOO_MANY_OPS },
		{ "txn { a.mod=0 b.mod=0 } { get a } { }", 1, ERR_TOO_MANY_OPS },
		{ "txn { a.mod=0 } { get a ; get b } { get a ; get b ; get c }", 3, ERR_OK }, /* the largest list, not the sum */
		{ "txn { } { txn { } { get a } { } } { }", 1, ERR_TOO_MANY_OPS },
		{ "txn { } { txn { } { get a } { } } { }", 2, ERR_OK },
		{ "txn { } { txn { } { get a } { } ; txn { } { get b } { get c } } { }", 3, ERR_OK }, /* what is left is left to each */
		{ "txn { } { txn { } { txn { } { } { } } { } } { }", 2, ERR_OK },
		{ "txn { } { } { }", 0, ERR_OK },
	};
	struct world w;

	world_init(&w);
	for (size_t i = 0; i < sizeof rows / sizeof *rows; i++)
		ck_assert_msg(check(&w, rows[i].line, rows[i].max) == rows[i].want, "%s", rows[i].line);
	world_deinit(&w);
}
END_TEST

START_TEST(check_txn__an_applied_entry_is_not_judged_by_this_replicas_option)
{
	struct world w;

	world_init(&w);
	w.env.max_txn_ops = 1;
	ck_assert_str_eq(world_do(&w, "txn { } { put a 1 ; put b 1 } { }"), "@2 succeeded [[~2]] [[~2]]");
	world_deinit(&w);
}
END_TEST

static const char *read_only(struct world *w, const char *line)
{
	const ProtobufCMessageDescriptor *desc;
	struct slice packed = world_request(w, line, &desc);
	Etcdserverpb__TxnRequest *r = etcdserverpb__txn_request__unpack(NULL, packed.len, packed.ptr);
	bool serializable, is = kv_txn_is_read_only(r, &serializable);

	etcdserverpb__txn_request__free_unpacked(r, NULL);
	return !is ? "writes" : serializable ? "serializable" : "reads";
}

START_TEST(read_only__no_branch_writes)
{
	struct world w;

	world_init(&w);
	ck_assert_str_eq(read_only(&w, "txn { } { get a } { get b }"), "reads");
	ck_assert_str_eq(read_only(&w, "txn { } { get a serial } { get b }"), "reads");
	ck_assert_str_eq(read_only(&w, "txn { } { get a serial } { get b serial }"), "serializable");
	ck_assert_str_eq(read_only(&w, "txn { a.mod=0 } { } { }"), "reads");
	ck_assert_str_eq(read_only(&w, "txn { } { get a } { put b 1 }"), "writes");
	ck_assert_str_eq(read_only(&w, "txn { } { del a } { }"), "writes");
	ck_assert_str_eq(read_only(&w, "txn { } { txn { } { get a serial } { } } { }"), "serializable");
	ck_assert_str_eq(read_only(&w, "txn { } { txn { } { get a serial } { del a } } { }"), "writes");
	world_deinit(&w);
}
END_TEST

START_TEST(txn_read__answers_as_the_write_would)
{
	static const char *const lines[] = {
		"txn { a.mod=2 } { get a ; get a rev=2 } { get b }",
		"txn { a.mod=3 } { get a } { get a * limit=1 ; txn { } { get b } { } }",
		"txn { } { get a rev=9 } { }",
		"txn { } { } { }",
	};
	const ProtobufCMessageDescriptor *desc;
	struct world w;

	world_init(&w);
	world_do(&w, "put a 1");
	world_do(&w, "put b 1");
	for (size_t i = 0; i < sizeof lines / sizeof *lines; i++) {
		struct slice request = world_request(&w, lines[i], &desc);
		struct buf wrote = { 0 }, read = { 0 };

		ck_assert(kv_txn(&w.env, request, &wrote) == kv_txn_read(&w.env, request, &read));
		ck_assert(slice_eq(buf_view(&wrote), buf_view(&read)));
		buf_free(&wrote);
		buf_free(&read);
	}
	ck_assert(kv_txn_read(&w.env, world_request(&w, "txn { } { put a 1 } { }", &desc), &w.reply) == ERR_MALFORMED);
	world_deinit(&w);
}
END_TEST

START_TEST(txn__nested_too_deeply_is_refused_before_it_is_unpacked)
{
	struct buf request = { 0 };
	struct world w;

	world_init(&w);
	for (int depth = 0; depth < 20; depth++) {
		struct buf outer = { 0 };
		enum err want = depth <= 16 ? ERR_OK : ERR_TOO_DEEP;
		size_t success = pbw_open(&outer, 2), txn = pbw_open(&outer, 4);

		arena_clear(&w.scratch);
		ck_assert_int_eq(kv_txn(&w.env, buf_view(&request), NULL), want);
		buf_append_slice(&outer, buf_view(&request));
		pbw_close(&outer, txn);
		pbw_close(&outer, success);
		buf_free(&request);
		request = outer;
	}
	buf_free(&request);
	world_deinit(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_kv_txn");
	TCase *c = tcase_create("txn");
	SRunner *r;
	int failed;

	tcase_add_test(c, compare__every_target_and_result);
	tcase_add_test(c, compare__an_absent_key_is_all_zero_but_has_no_value);
	tcase_add_test(c, compare__a_range_holds_for_every_key);
	tcase_add_test(c, compare__numbers_out_of_the_enums_are_answered_as_etcd_does);
	tcase_add_test(c, txn__operations_in_order_at_one_revision);
	tcase_add_test(c, txn__branches_are_chosen_before_anything_is_done);
	tcase_add_test(c, txn__one_that_fails_changes_nothing);
	tcase_add_test(c, txn__no_key_is_put_twice);
	tcase_add_test(c, txn__what_etcd_lets_pass);
	tcase_add_test(c, check_txn__counts_operations_as_etcd_does);
	tcase_add_test(c, check_txn__an_applied_entry_is_not_judged_by_this_replicas_option);
	tcase_add_test(c, read_only__no_branch_writes);
	tcase_add_test(c, txn_read__answers_as_the_write_would);
	tcase_add_test(c, txn__nested_too_deeply_is_refused_before_it_is_unpacked);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
