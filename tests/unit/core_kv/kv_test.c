/* Single requests: Put, DeleteRange, Range, Compact, and what needs no state to be refused. */
#include <check.h>
#include <stdlib.h>
#include <string.h>

#include "world.h"

static void tell(const struct story *story)
{
	struct world w;

	world_init(&w);
	story_tell(&w, story);
	world_deinit(&w);
}

START_TEST(put__keeps_counts_and_tells_what_was)
{
	static const struct story story[] = {
		{ "put a 1", "@2" },
		{ "put a 2 prev", "@3 a=1(2 2 1)" },
		{ "put a - keep_value prev", "@4 a=2(2 3 2)" },
		{ "put a 3 keep_value", "ERR_VALUE_PROVIDED" },
		{ "put b - keep_value", "ERR_KEY_NOT_FOUND" },
		{ "put b 1 keep_lease", "ERR_KEY_NOT_FOUND" },
		{ "put - 1", "ERR_EMPTY_KEY" },
		{ "grant 7 100", "@4 ID:7 TTL:100" },
		{ "put a 5 lease=7 prev", "@5 a=2(2 4 3)" },
		{ "put a 6 lease=8", "ERR_LEASE_NOT_FOUND" },
		{ "put b - keep_value lease=8", "ERR_LEASE_NOT_FOUND" }, /* of two faults, the lease first ... */
		{ "txn { } { put b - keep_value lease=8 } { }", "ERR_KEY_NOT_FOUND" }, /* ... but not in a transaction */
		{ "put a 6 keep_lease prev", "@6 a=5(2 5 4 7)" },
		{ "put a 6 keep_lease lease=7", "ERR_LEASE_PROVIDED" },
		{ "put a 7 prev", "@7 a=6(2 6 5 7)" }, /* a put without a lease takes it off */
		{ "ttl 7 keys", "@7 ID:7 grantedTTL:100" },
		{ "put b 1 prev", "@8" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(delete_range__takes_what_lives_in_the_range)
{
	static const struct story story[] = {
		{ "put a 1", "@2" },
		{ "put b 2", "@3" },
		{ "put c 3", "@4" },
		{ "put d 4", "@5" },
		{ "del x", "@5" }, /* nothing deleted, no revision */
		{ "del b prev", "@6 deleted:1 b=2(3 3 1)" },
		{ "del b prev", "@6" },
		{ "del c a", "@6" },
		{ "del c c", "@6" },
		{ "del c d prev", "@7 deleted:1 c=3(4 4 1)" },
		{ "del - z", "ERR_EMPTY_KEY" },
		{ "del a * prev", "@8 deleted:2 a=1(2 2 1) d=4(5 5 1)" },
		{ "del * *", "@8" },
		{ "put a 1", "@9" },
		{ "get a", "@9 a=1(9 9 1) count:1" }, /* starts over */
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

static const struct story five_keys[] = {
	{ "put a 5", "@2" }, { "put b 3", "@3" }, { "put c 3", "@4" }, { "put d 1", "@5" },
	{ "put b 4", "@6" }, { "put e 9", "@7" }, { NULL, NULL },
};

static void tell_of_five(const struct story *story)
{
	struct world w;

	world_init(&w);
	story_tell(&w, five_keys);
	story_tell(&w, story);
	world_deinit(&w);
}

START_TEST(range__ends_and_limits)
{
	static const struct story story[] = {
		{ "get *", "@7" },
		{ "get * *", "@7 a=5(2 2 1) b=4(3 6 2) c=3(4 4 1) d=1(5 5 1) e=9(7 7 1) count:5" },
		{ "get b d", "@7 b=4(3 6 2) c=3(4 4 1) count:2" },
		{ "get d b", "@7" },
		{ "get b b", "@7" },
		{ "get b * limit=2", "@7 b=4(3 6 2) c=3(4 4 1) more count:4" },
		{ "get b * limit=3", "@7 b=4(3 6 2) c=3(4 4 1) d=1(5 5 1) more count:4" },
		{ "get b * limit=4", "@7 b=4(3 6 2) c=3(4 4 1) d=1(5 5 1) e=9(7 7 1) count:4" },
		{ "get b * limit=-1", "@7 b=4(3 6 2) c=3(4 4 1) d=1(5 5 1) e=9(7 7 1) count:4" },
		{ "get b * limit=0x7fffffffffffffff by=mod", "@7 c=3(4 4 1) d=1(5 5 1) b=4(3 6 2) e=9(7 7 1) count:4" },
		{ "get a e keys", "@7 a=(2 2 1) b=(3 6 2) c=(4 4 1) d=(5 5 1) count:4" },
		{ "get a e count limit=1", "@7 count:4" },
		{ "get a limit=1", "@7 a=5(2 2 1) count:1" },
		{ "get a count", "@7 count:1" },
		{ "get nothing", "@7" },
		{ "get nothing count", "@7" },
		{ NULL, NULL },
	};

	tell_of_five(story);
}
END_TEST

/* Asks for part after part, as the service does, and compares all of them with the one reply. */
START_TEST(range_part__all_parts_are_the_range)
{
	enum { KEYS = 40, BIG = 150000 };
	Etcdserverpb__RangeRequest r = ETCDSERVERPB__RANGE_REQUEST__INIT;
	char *value = malloc(BIG);
	struct world w;
	size_t parts = 0, got = 0;
	uint8_t key[2] = { 'a', 'a' }, at[3] = { 'a', 'a', 0 }, end[1] = { 0 };
	bool more = true;

	world_init(&w);
	memset(value, 'v', BIG);
	for (int i = 0; i < KEYS; i++) {
		Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
		uint8_t *bytes = malloc(BIG + 64);

		key[1] = (uint8_t)('a' + i);
		put.key = (ProtobufCBinaryData){ 2, key };
		put.value = (ProtobufCBinaryData){ i % 3 ? BIG : 1, (uint8_t *)value };
		ck_assert(kv_put(&w.env, slice_of(bytes, etcdserverpb__put_request__pack(&put, bytes)), NULL) == ERR_OK);
		arena_clear(w.env.arena);
		free(bytes);
	}
	r.key = (ProtobufCBinaryData){ 2, at };
	r.range_end = (ProtobufCBinaryData){ 1, end };
	while (more) {
		uint8_t packed[64];
		struct buf reply = { 0 };
		Etcdserverpb__RangeResponse *m;

		ck_assert(kv_range_part(&w.env, slice_of(packed, etcdserverpb__range_request__pack(&r, packed)), &reply) == ERR_OK);
		arena_clear(w.env.arena);
		ck_assert_uint_le(reply.len, KV_PART_BYTES + BIG + 200);
		m = etcdserverpb__range_response__unpack(NULL, reply.len, reply.ptr);
		ck_assert_uint_gt(m->n_kvs, 0);
		for (size_t i = 0; i < m->n_kvs; i++, got++)
			ck_assert_int_eq(m->kvs[i]->key.data[1], 'a' + (int)got);
		more = m->more;
		ck_assert_int_eq(m->count, more ? 0 : (int64_t)m->n_kvs);
		at[1] = (uint8_t)('a' + got - 1);
		r.key.len = 3; /* with the zero byte */
		etcdserverpb__range_response__free_unpacked(m, NULL);
		buf_free(&reply);
		parts++;
	}
	ck_assert_uint_eq(got, KEYS);
	ck_assert_uint_ge(parts, 3);
	world_deinit(&w);
	free(value);
}
END_TEST

START_TEST(range__sorts)
{
	static const struct story story[] = {
		{ "get a z by=value", "@7 d=1(5 5 1) c=3(4 4 1) b=4(3 6 2) a=5(2 2 1) e=9(7 7 1) count:5" },
		{ "get a z by=value order=desc", "@7 e=9(7 7 1) a=5(2 2 1) b=4(3 6 2) c=3(4 4 1) d=1(5 5 1) count:5" },
		{ "get a z by=version", "@7 a=5(2 2 1) c=3(4 4 1) d=1(5 5 1) e=9(7 7 1) b=4(3 6 2) count:5" },
		{ "get a z by=version order=desc", "@7 b=4(3 6 2) a=5(2 2 1) c=3(4 4 1) d=1(5 5 1) e=9(7 7 1) count:5" },
		{ "get a z by=mod order=desc limit=1", "@7 e=9(7 7 1) more count:5" },
		{ "get a z by=create order=desc limit=2 keys", "@7 e=(7 7 1) d=(5 5 1) more count:5" },
		{ "get a z order=desc limit=2", "@7 e=9(7 7 1) d=1(5 5 1) more count:5" },
		{ "get a z order=asc limit=2", "@7 a=5(2 2 1) b=4(3 6 2) more count:5" },
		/* With no order etcd cuts by key, then sorts the rest; with one it sorts all. */
		{ "get a z by=value limit=1", "@7 b=4(3 6 2) more count:5" },
		{ "get a z by=value order=asc limit=1", "@7 d=1(5 5 1) more count:5" },
		{ "get a z by=value limit=1 minmod=1", "@7 d=1(5 5 1) more count:5" },
		{ "get b by=value order=desc", "@7 b=4(3 6 2) count:1" },
		{ "get z a by=value order=desc", "@7" },
		{ "get x z by=value order=desc", "@7" },
		{ "get a z order=3", "ERR_INVALID_SORT_OPTION" },
		{ "get a z by=5", "ERR_INVALID_SORT_OPTION" },
		{ "get a z by=-1", "ERR_INVALID_SORT_OPTION" },
		{ "get - z by=5", "ERR_EMPTY_KEY" },
		{ NULL, NULL },
	};

	tell_of_five(story);
}
END_TEST

START_TEST(range__filters_by_revision)
{
	static const struct story story[] = {
		{ "get a z minmod=4 maxmod=6", "@7 b=4(3 6 2) c=3(4 4 1) d=1(5 5 1) count:5" },
		{ "get a z mincreate=4 maxcreate=5", "@7 c=3(4 4 1) d=1(5 5 1) count:5" },
		{ "get a z minmod=4 limit=2", "@7 b=4(3 6 2) c=3(4 4 1) more count:5" },
		{ "get a z minmod=4 limit=4", "@7 b=4(3 6 2) c=3(4 4 1) d=1(5 5 1) e=9(7 7 1) count:5" },
		{ "get a z minmod=4 limit=1 count", "@7 count:5" },
		{ "get a z minmod=9", "@7 count:5" },
		{ "get a minmod=3", "@7 count:1" },
		{ NULL, NULL },
	};

	tell_of_five(story);
}
END_TEST

START_TEST(range__reads_the_past_until_it_is_compacted)
{
	static const struct story story[] = {
		{ "get a z rev=4", "@7 a=5(2 2 1) b=3(3 3 1) c=3(4 4 1) count:3" },
		{ "get a z rev=4 count", "@7 count:3" },
		{ "get a z rev=4 limit=1", "@7 a=5(2 2 1) more count:3" },
		{ "get b rev=5", "@7 b=3(3 3 1) count:1" },
		{ "get b rev=2", "@7" },
		{ "get a z rev=8", "ERR_FUTURE_REVISION" },
		{ "get a z rev=7 by=value order=desc limit=1", "@7 e=9(7 7 1) more count:5" },
		{ "get a z rev=-3 limit=1", "@7 a=5(2 2 1) more count:5" },
		{ "compact 4", "@7" },
		{ "get a z rev=3", "ERR_COMPACTED" },
		{ "get a z rev=4 keys", "@7 a=(2 2 1) b=(3 3 1) c=(4 4 1) count:3" },
		{ "get a rev=3", "ERR_COMPACTED" },
		{ "get a rev=-1", "@7 a=5(2 2 1) count:1" },
		{ NULL, NULL },
	};

	tell_of_five(story);
}
END_TEST

START_TEST(compact__goes_forward_only)
{
	static const struct story story[] = {
		{ "compact 5", "ERR_FUTURE_REVISION" },
		{ "compact -1", "ERR_COMPACTED" },
		{ "compact 0", "@1" },
		{ "put a 1", "@2" },
		{ "compact 2", "@2" },
		{ "compact 2", "ERR_COMPACTED" },
		{ "compact 1", "ERR_COMPACTED" },
		{ "compact 0", "ERR_COMPACTED" },
		{ "compact -1", "ERR_COMPACTED" },
		{ "compact 3", "ERR_FUTURE_REVISION" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(bytes__any_key_and_value_come_back)
{
	static const struct story story[] = {
		{ "put * *", "@2" },
		{ "put _ _", "@3" },
		{ "put __ -", "@4" },
		{ "put a* a*b", "@5" },
		{ "get * *", "@5 *=*(2 2 1) a*=a*b(5 5 1) _=_(3 3 1) __=(4 4 1) count:4" },
		{ "get a b", "@5 a*=a*b(5 5 1) count:1" },
		{ "get _ *", "@5 _=_(3 3 1) __=(4 4 1) count:2" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(malformed__changes_nothing)
{
	static const uint8_t cut[] = { 0x0a, 0x05, 'a' };
	struct slice request = slice_of(cut, sizeof cut);
	struct buf reply = { 0 };
	struct world w;
	uint64_t before;

	world_init(&w);
	before = state_hash(&w.st);
	ck_assert(kv_range(&w.env, request, &reply) == ERR_MALFORMED);
	ck_assert(kv_put(&w.env, request, &reply) == ERR_MALFORMED);
	ck_assert(kv_delete_range(&w.env, request, &reply) == ERR_MALFORMED);
	ck_assert(kv_txn(&w.env, request, &reply) == ERR_MALFORMED);
	ck_assert(kv_txn_read(&w.env, request, &reply) == ERR_MALFORMED);
	ck_assert(kv_compact(&w.env, request, &reply) == ERR_MALFORMED);
	ck_assert(kv_lease_grant(&w.env, request, &reply) == ERR_MALFORMED);
	ck_assert(kv_lease_revoke(&w.env, request, &reply) == ERR_MALFORMED);
	ck_assert(kv_lease_end(&w.env, request, 3) == ERR_MALFORMED);
	ck_assert(kv_lock(&w.env, request, NULL) == ERR_MALFORMED);
	ck_assert(kv_unlock(&w.env, request, &reply) == ERR_MALFORMED);
	ck_assert(kv_abandon(&w.env, request) == ERR_MALFORMED);
	ck_assert(kv_proclaim(&w.env, request, &reply) == ERR_MALFORMED);
	ck_assert(kv_resign(&w.env, request, &reply) == ERR_MALFORMED);
	ck_assert(kv_leader(&w.env, request, &reply) == ERR_MALFORMED);
	/* no bytes at all are a request of default values */
	ck_assert(kv_range(&w.env, slice_of(NULL, 0), &reply) == ERR_EMPTY_KEY);
	ck_assert(kv_put(&w.env, slice_of(NULL, 0), &reply) == ERR_EMPTY_KEY);
	ck_assert_uint_eq(reply.len, 0);
	ck_assert_uint_eq(state_hash(&w.st), before);
	world_deinit(&w);
}
END_TEST

START_TEST(rebuild__derives_everything_again)
{
	static const struct story before[] = {
		{ "grant 16 60", "@1 ID:16 TTL:60" },
		{ "put a 1 lease=16", "@2" },
		{ "lock m lease=16", "held @3 key:m/10 fencing_token:3 lease:16 ttl:60" },
		{ NULL, NULL },
	};
	static const struct story after[] = {
		{ "ttl 16 keys", "@3 ID:16 grantedTTL:60 keys:a keys:m/10" },
		{ "queue m", "16!" },
		{ "get a rev=2", "@3 a=1(2 2 1 16) count:1" },
		{ "revoke 16", "@4" },
		{ "queue m", "" },
		{ "get * *", "@4" },
		{ NULL, NULL },
	};
	struct world w;

	world_init(&w);
	story_tell(&w, before);
	kv_rebuild(&w.env);
	story_tell(&w, after);
	world_deinit(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_kv");
	TCase *c = tcase_create("requests");
	SRunner *r;
	int failed;

	tcase_add_test(c, put__keeps_counts_and_tells_what_was);
	tcase_add_test(c, delete_range__takes_what_lives_in_the_range);
	tcase_add_test(c, range__ends_and_limits);
	tcase_add_test(c, range_part__all_parts_are_the_range);
	tcase_add_test(c, range__sorts);
	tcase_add_test(c, range__filters_by_revision);
	tcase_add_test(c, range__reads_the_past_until_it_is_compacted);
	tcase_add_test(c, compact__goes_forward_only);
	tcase_add_test(c, bytes__any_key_and_value_come_back);
	tcase_add_test(c, malformed__changes_nothing);
	tcase_add_test(c, rebuild__derives_everything_again);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
