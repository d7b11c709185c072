/* Leases, locks and elections as commands. */
#include <check.h>
#include <stdlib.h>

#include "world.h"

static void tell(const struct story *story)
{
	struct world w;

	world_init(&w);
	story_tell(&w, story);
	world_deinit(&w);
}

START_TEST(lease__grants_and_what_clients_are_told)
{
	static const struct story story[] = {
		{ "grant 0 10", "ERR_LEASE_NOT_FOUND" },
		{ "grant 5 1", "@1 ID:5 TTL:2" }, /* raised to the minimum */
		{ "grant 5 60", "ERR_LEASE_EXISTS" },
		{ "grant 6 9000000001", "ERR_LEASE_TTL_TOO_LARGE" },
		{ "grant 7 9000000000", "@1 ID:7 TTL:9000000000" },
		{ "grant -3 60", "@1 ID:-3 TTL:60" },
		{ "leases", "@1 [ID:5] [ID:7] [ID:-3]" },
		{ "put b 1 lease=5", "@2" },
		{ "put a 1 lease=5", "@3" },
		{ "ttl 5 keys", "@3 ID:5 grantedTTL:2 keys:a keys:b" },
		{ "ttl 5", "@3 ID:5 grantedTTL:2" },
		{ "ttl 99 keys", "@3 ID:99 TTL:-1" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(lease__takes_its_keys_along_in_one_revision)
{
	static const struct story story[] = {
		{ "grant 5 60", "@1 ID:5 TTL:60" },
		{ "grant 7 60", "@1 ID:7 TTL:60" },
		{ "put b 1 lease=5", "@2" },
		{ "put a 1 lease=5", "@3" },
		{ "put c 1 lease=7", "@4" },
		{ "put d 1", "@5" },
		{ "revoke 5", "@6" },
		{ "revoke 5", "ERR_LEASE_NOT_FOUND" },
		{ "get a e", "@6 c=1(4 4 1 7) d=1(5 5 1) count:2" },
		{ "grant 5 60", "@6 ID:5 TTL:60" },
		{ "revoke 5", "@6" }, /* without keys: no revision */
		{ NULL, NULL },
	};
	struct store_event first, second;
	struct world w;
	uint64_t n;

	world_init(&w);
	story_tell(&w, story);
	n = store_history_begin(w.env.store, 6);
	first = store_history_at(w.env.store, n);
	second = store_history_at(w.env.store, n + 1);
	ck_assert_uint_eq(store_history_end(w.env.store), n + 2);
	ck_assert(slice_eq(kv_key(first.kv), slice_of_str("a")) && first.kv->sub == 0); /* in key order */
	ck_assert(slice_eq(kv_key(second.kv), slice_of_str("b")) && second.kv->sub == 1);
	world_deinit(&w);
}
END_TEST

START_TEST(lease__keys_move_between_leases)
{
	static const struct story story[] = {
		{ "grant 7 10", "@1 ID:7 TTL:10" },
		{ "grant 8 10", "@1 ID:8 TTL:10" },
		{ "put a 1 lease=7", "@2" },
		{ "put a 2 lease=8", "@3" },
		{ "ttl 7 keys", "@3 ID:7 grantedTTL:10" },
		{ "ttl 8 keys", "@3 ID:8 grantedTTL:10 keys:a" },
		{ "put a 3", "@4" },
		{ "revoke 8", "@4" },
		{ "get a", "@4 a=3(2 4 3) count:1" },
		{ "put a 4 lease=7", "@5" },
		{ "del a", "@6 deleted:1" },
		{ "put a 5", "@7" },
		{ "revoke 7", "@7" },
		{ "get a", "@7 a=5(7 7 1) count:1" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(lease_end__counts_in_its_own_term_only)
{
	static const struct story story[] = {
		{ "grant 5 60", "@1 ID:5 TTL:60" },
		{ "grant 7 60", "@1 ID:7 TTL:60" },
		{ "grant -3 60", "@1 ID:-3 TTL:60" },
		{ "put a 1 lease=7", "@2" },
		{ "put e 1 lease=-3", "@3" },
		{ "end 2 7", "" }, /* the entry is of term 3 */
		{ "end 4 7", "" },
		{ "get a z count", "@3 count:2" },
		{ "end 3 7 99 -3 5 7", "" }, /* two of them have keys: two revisions */
		{ "get a z", "@5" },
		{ "leases", "@5" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(lock__queues_by_create_revision)
{
	static const struct story story[] = {
		{ "grant 16 60", "@1 ID:16 TTL:60" },
		{ "grant 17 60", "@1 ID:17 TTL:60" },
		{ "grant 18 60", "@1 ID:18 TTL:60" },
		{ "lock m lease=16 call=1", "held @2 key:m/10 fencing_token:2 lease:16 ttl:60" },
		{ "lock m lease=17 call=2", "waiting @3 key:m/11 fencing_token:3 lease:17 ttl:60" },
		{ "lock m lease=18 wait=5000 call=3", "waiting @4 key:m/12 fencing_token:4 lease:18 ttl:60" },
		{ "queue m", "16! 17 18" },
		{ "lock m lease=17 call=4", "waiting @4 key:m/11 fencing_token:3 lease:17 ttl:60" }, /* asks again: no revision */
		{ "lock m lease=16 wait=0 call=5", "held @4 key:m/10 fencing_token:2 lease:16 ttl:60" },
		{ "unlock m/10", "@5" },
		{ "queue m", "17! 18" },
		{ "revoke 17", "@6" },
		{ "queue m", "18!" },
		{ "lock m/n lease=16", "held @7 key:m/n/10 fencing_token:7 lease:16 ttl:60" }, /* another lock */
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(lock__refuses)
{
	static const struct story story[] = {
		{ "grant 16 60", "@1 ID:16 TTL:60" },
		{ "lock - lease=16", "ERR_EMPTY_KEY" },
		{ "lock m lease=99", "ERR_LEASE_NOT_FOUND" },
		{ "lock m", "ERR_LEASE_NOT_FOUND" },
		{ "lock m grant=60", "ERR_LEASE_NOT_FOUND" },
		{ "lock m lease=16 mode=2", "ERR_MALFORMED" },
		{ "lock m lease=16 wait=-1", "ERR_NEGATIVE" },
		{ "lock m lease=16", "held @2 key:m/10 fencing_token:2 lease:16 ttl:60" },
		{ "lock m lease=16 mode=shared", "ERR_LOCK_MODE_CHANGED" },
		{ "lock m lease=16 mode=shared wait=0", "ERR_LOCK_MODE_CHANGED" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(lock__a_failed_try_leaves_nothing_behind)
{
	static const struct story story[] = {
		{ "grant 16 60", "@1 ID:16 TTL:60" },
		{ "grant 17 60", "@1 ID:17 TTL:60" },
		{ "lock m lease=16", "held @2 key:m/10 fencing_token:2 lease:16 ttl:60" },
		{ "lock m lease=17 wait=0", "ERR_LOCK_HELD" },
		{ "lock m lease=20 grant=60 wait=0", "ERR_LOCK_HELD" },
		{ "lock m lease=17 wait=0 mode=shared", "ERR_LOCK_HELD" },
		{ "leases", "@2 [ID:16] [ID:17]" },
		{ "queue m", "16!" },
		/* a place that the lease had is given up */
		{ "lock m lease=17", "waiting @3 key:m/11 fencing_token:3 lease:17 ttl:60" },
		{ "lock m lease=17 wait=0", "ERR_LOCK_HELD" },
		{ "queue m", "16!" },
		{ "get m/11", "@4" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

/* J6, J4. Calls of replicas 1 to 5; lease 16 holds, 17 waits. */
START_TEST(lock__a_late_call_leaves_the_place_to_who_asks_beside_it)
{
	static const struct story story[] = {
		{ "grant 16 60", "@1 ID:16 TTL:60" },
		{ "grant 17 60", "@1 ID:17 TTL:60" },
		{ "lock m lease=16 call=101 saw=0", "held @2 key:m/10 fencing_token:2 lease:16 ttl:60" },
		{ "lock m lease=17 call=201 saw=0", "waiting @3 key:m/11 fencing_token:3 lease:17 ttl:60" },
		/* a late one, and the one that its client made after it at the same replica */
		{ "lock m lease=17 call=101 saw=0", "waiting @3 key:m/11 fencing_token:3 lease:17 ttl:60" },
		{ "lock m lease=17 call=102 saw=0", "waiting @3 key:m/11 fencing_token:3 lease:17 ttl:60" },
		{ "abandon m/11 call=101", "" },
		{ "lock m lease=17 call=101 saw=0", "ERR_LOCK_ASKED_ELSEWHERE" }, /* proposed again, and overtaken */
		{ "abandon m/11 call=102", "" },
		{ "abandon m/11 call=102", "" },
		{ "queue m", "16! 17" },
		{ "lock m lease=17 wait=0 call=103 saw=0", "ERR_LOCK_HELD" },
		{ "queue m", "16! 17" },
		/* who knew of the present one takes over, and what that one says no longer counts */
		{ "lock m lease=17 call=301 saw=201", "waiting @3 key:m/11 fencing_token:3 lease:17 ttl:60" },
		{ "abandon m/11 call=201", "" },
		{ "queue m", "16! 17" },
		{ "lock m lease=17 wait=0 call=302 saw=301", "ERR_LOCK_HELD" },
		{ "queue m", "16!" },
		/* the last of all takes the place with it, in whatever order they go, and whatever the reason */
		{ "lock m lease=17 call=202 saw=0", "waiting @5 key:m/11 fencing_token:5 lease:17 ttl:60" },
		{ "lock m lease=17 call=104 saw=0", "waiting @5 key:m/11 fencing_token:5 lease:17 ttl:60" },
		{ "abandon m/11 call=202", "" },
		{ "queue m", "16! 17" },
		{ "abandon m/11 call=104 waiting", "" },
		{ "queue m", "16!" },
		/* more than there is room for */
		{ "lock m lease=17 call=101 saw=0", "waiting @7 key:m/11 fencing_token:7 lease:17 ttl:60" },
		{ "lock m lease=17 call=201 saw=0", "waiting @7 key:m/11 fencing_token:7 lease:17 ttl:60" },
		{ "lock m lease=17 call=301 saw=0", "waiting @7 key:m/11 fencing_token:7 lease:17 ttl:60" },
		{ "lock m lease=17 call=401 saw=0", "waiting @7 key:m/11 fencing_token:7 lease:17 ttl:60" },
		{ "lock m lease=17 call=501 saw=0", "ERR_LOCK_ASKED_ELSEWHERE" },
		/* for a newer one of the same replica there is */
		{ "lock m lease=17 call=402 saw=0", "waiting @7 key:m/11 fencing_token:7 lease:17 ttl:60" },
		{ "lock m lease=17 call=502 saw=402", "waiting @7 key:m/11 fencing_token:7 lease:17 ttl:60" },
		{ "abandon m/11 call=502", "" },
		{ "queue m", "16!" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

/* J4 */
START_TEST(lock__a_hold_goes_when_all_who_asked_have_given_up)
{
	static const struct story story[] = {
		{ "grant 16 60", "@1 ID:16 TTL:60" },
		/* who made it, and a late one, in either order */
		{ "lock m lease=16 call=201 saw=0", "held @2 key:m/10 fencing_token:2 lease:16 ttl:60" },
		{ "lock m lease=16 call=101 saw=0", "held @2 key:m/10 fencing_token:2 lease:16 ttl:60" },
		{ "abandon m/10 call=101", "" },
		{ "abandon m/10 call=201 waiting", "" }, /* it may have been told */
		{ "queue m", "16!" },
		{ "abandon m/10 call=201", "" },
		{ "queue m", "" },
		{ "lock m lease=16 call=201 saw=0", "held @4 key:m/10 fencing_token:4 lease:16 ttl:60" },
		{ "lock m lease=16 call=101 saw=0", "held @4 key:m/10 fencing_token:4 lease:16 ttl:60" },
		{ "abandon m/10 call=201", "" },
		{ "abandon m/10 call=101", "" },
		{ "queue m", "" },
		/* 201 was taken over from, and may have been told: the hold goes when he has given up as well, whatever the order */
		{ "lock m lease=16 call=201 saw=0", "held @6 key:m/10 fencing_token:6 lease:16 ttl:60" },
		{ "lock m lease=16 call=301 saw=201", "held @6 key:m/10 fencing_token:6 lease:16 ttl:60" },
		{ "lock m lease=16 call=101 saw=0", "held @6 key:m/10 fencing_token:6 lease:16 ttl:60" },
		{ "abandon m/10 call=301", "" },
		{ "abandon m/10 call=101", "" },
		{ "queue m", "16!" },
		{ "abandon m/10 call=201", "" },
		{ "queue m", "" },
		{ "lock m lease=16 call=201 saw=0", "held @8 key:m/10 fencing_token:8 lease:16 ttl:60" },
		{ "lock m lease=16 call=301 saw=201", "held @8 key:m/10 fencing_token:8 lease:16 ttl:60" },
		{ "abandon m/10 call=201", "" },
		{ "queue m", "16!" },
		{ "abandon m/10 call=301", "" },
		{ "queue m", "" },
		/* nobody asks any more, and 302 takes over from nobody: 201 may have been told all the same */
		{ "lock m lease=16 call=201 saw=0", "held @10 key:m/10 fencing_token:10 lease:16 ttl:60" },
		{ "lock m lease=16 call=301 saw=201", "held @10 key:m/10 fencing_token:10 lease:16 ttl:60" },
		{ "abandon m/10 call=301", "" },
		{ "lock m lease=16 call=302 saw=0", "held @10 key:m/10 fencing_token:10 lease:16 ttl:60" },
		{ "abandon m/10 call=302", "" },
		{ "queue m", "16!" },
		{ "unlock m/10", "@11" },
		/* 201 is of the same replica as 202, and has not given up */
		{ "lock m lease=16 call=101 saw=0", "held @12 key:m/10 fencing_token:12 lease:16 ttl:60" },
		{ "lock m lease=16 call=201 saw=0", "held @12 key:m/10 fencing_token:12 lease:16 ttl:60" },
		{ "lock m lease=16 call=202 saw=0", "held @12 key:m/10 fencing_token:12 lease:16 ttl:60" },
		{ "abandon m/10 call=202", "" },
		{ "abandon m/10 call=101", "" },
		{ "queue m", "16!" },
		{ "unlock m/10", "@13" },
		/* five were taken over from, of which the first is not listed any more: he may have been told */
		{ "lock m lease=16 call=201 saw=0", "held @14 key:m/10 fencing_token:14 lease:16 ttl:60" },
		{ "lock m lease=16 call=301 saw=201", "held @14 key:m/10 fencing_token:14 lease:16 ttl:60" },
		{ "lock m lease=16 call=401 saw=301", "held @14 key:m/10 fencing_token:14 lease:16 ttl:60" },
		{ "lock m lease=16 call=202 saw=401", "held @14 key:m/10 fencing_token:14 lease:16 ttl:60" },
		{ "lock m lease=16 call=302 saw=202", "held @14 key:m/10 fencing_token:14 lease:16 ttl:60" },
		{ "lock m lease=16 call=402 saw=302", "held @14 key:m/10 fencing_token:14 lease:16 ttl:60" },
		{ "abandon m/10 call=301", "" },
		{ "abandon m/10 call=401", "" },
		{ "abandon m/10 call=202", "" },
		{ "abandon m/10 call=302", "" },
		{ "abandon m/10 call=402", "" },
		{ "queue m", "16!" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

/* J6. A late Campaign does not put its value over a later one, or over what was proclaimed since. */
START_TEST(campaign__a_late_one_changes_no_value)
{
	static const struct story story[] = {
		{ "grant 16 60", "@1 ID:16 TTL:60" },
		{ "lock m lease=16 value=new call=201 saw=0", "held @2 key:m/10 fencing_token:2 lease:16 ttl:60" },
		{ "lock m lease=16 value=old call=101 saw=0", "ERR_LOCK_ASKED_ELSEWHERE" },
		{ "lock m lease=16 value=new call=102 saw=0", "held @2 key:m/10 fencing_token:2 lease:16 ttl:60" },
		{ "lock m lease=16 value=old call=103 saw=0", "ERR_LOCK_ASKED_ELSEWHERE" }, /* 102 came late, too: the value is 201's */
		{ "get m/10", "@2 m/10=new(2 2 1 16) count:1" },
		/* it is heard by who asks again, and knows of 102 by then; of two by one replica the later one counts */
		{ "lock m lease=16 value=mine call=103 saw=102", "held @3 key:m/10 fencing_token:2 lease:16 ttl:60" },
		{ "lock m lease=16 value=other call=104 saw=0", "held @4 key:m/10 fencing_token:2 lease:16 ttl:60" },
		{ "lock m lease=16 value=mine call=102 saw=0", "ERR_LOCK_ASKED_ELSEWHERE" },
		{ "get m/10", "@4 m/10=other(2 4 3 16) count:1" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

/* J6. With an earlier call in the stead of one that gave up, a late one that saw the earlier one, or none at all, would be taken for newer. */
START_TEST(campaign__who_gave_up_stays_the_latest)
{
	static const struct story story[] = {
		{ "grant 16 60", "@1 ID:16 TTL:60" },
		{ "lock m lease=16 value=first call=101 saw=0", "held @2 key:m/10 fencing_token:2 lease:16 ttl:60" },
		{ "lock m lease=16 value=second call=103 saw=101 beside", "held @3 key:m/10 fencing_token:2 lease:16 ttl:60" },
		{ "abandon m/10 call=103", "" },
		{ "lock m lease=16 value=late call=201 saw=101", "ERR_LOCK_ASKED_ELSEWHERE" },
		{ "lock m lease=16 value=late call=102 saw=101", "ERR_LOCK_ASKED_ELSEWHERE" },
		{ "get m/10", "@3 m/10=second(2 3 2 16) count:1" },
		{ "lock m lease=16 value=third call=202 saw=103", "held @4 key:m/10 fencing_token:2 lease:16 ttl:60" },
		/* a call of the very replica goes on asking, whatever the later one saw */
		{ "lock m lease=16 value=fourth call=203 saw=202 beside", "held @5 key:m/10 fencing_token:2 lease:16 ttl:60" },
		{ "abandon m/10 call=203", "" },
		{ "abandon m/10 call=202", "" },
		/* nobody asks any more, and 101, that was taken over from, keeps the hold */
		{ "lock m lease=16 value=late call=301 saw=0", "ERR_LOCK_ASKED_ELSEWHERE" },
		{ "lock m lease=16 value=late call=101 saw=0", "ERR_LOCK_ASKED_ELSEWHERE" },
		{ "get m/10", "@5 m/10=fourth(2 5 4 16) count:1" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(lock__shared)
{
	static const struct story story[] = {
		{ "grant 1 60", "@1 ID:1 TTL:60" },
		{ "grant 2 60", "@1 ID:2 TTL:60" },
		{ "grant 3 60", "@1 ID:3 TTL:60" },
		{ "grant 4 60", "@1 ID:4 TTL:60" },
		{ "lock r lease=1 mode=shared wait=0", "held @2 key:r/1 fencing_token:2 lease:1 ttl:60" },
		{ "lock r lease=2 mode=shared wait=0", "held @3 key:r/2 fencing_token:3 lease:2 ttl:60" },
		{ "lock r lease=3 wait=0", "ERR_LOCK_HELD" },
		{ "lock r lease=3", "waiting @4 key:r/3 fencing_token:4 lease:3 ttl:60" },
		{ "lock r lease=4 mode=shared wait=0", "ERR_LOCK_HELD" }, /* behind one that waits */
		{ "lock r lease=4 mode=shared", "waiting @5 key:r/4 fencing_token:5 lease:4 ttl:60" },
		{ "queue r", "1s! 2s! 3 4s" },
		{ "unlock r/1", "@6" },
		{ "queue r", "2s! 3 4s" },
		{ "unlock r/2", "@7" },
		{ "queue r", "3! 4s" },
		{ "unlock r/3", "@8" },
		{ "queue r", "4s!" },
		{ "lock r lease=1 mode=shared wait=0", "held @9 key:r/1 fencing_token:9 lease:1 ttl:60" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(lock__makes_its_own_lease)
{
	static const struct story story[] = {
		{ "lock m lease=16 grant=60 wait=0 call=1", "held @2 key:m/10 fencing_token:2 lease:16 ttl:60" },
		{ "lock m lease=16 grant=60 wait=0 call=1", "ERR_LEASE_EXISTS" },
		{ "lock m lease=17 grant=9000000001", "ERR_LEASE_TTL_TOO_LARGE" },
		{ "leases", "@2 [ID:16]" },
		{ "lock m lease=17 grant=1 call=9", "waiting @3 key:m/11 fencing_token:3 lease:17 ttl:2" },
		{ "leases", "@3 [ID:16] [ID:17]" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(abandon__only_the_latest_call_may)
{
	static const struct story story[] = {
		{ "grant 16 60", "@1 ID:16 TTL:60" },
		{ "lock m lease=16 call=1", "held @2 key:m/10 fencing_token:2 lease:16 ttl:60" },
		{ "lock m lease=17 grant=60 call=8", "waiting @3 key:m/11 fencing_token:3 lease:17 ttl:60" },
		{ "put other 1 lease=17", "@4" },
		{ "lock m lease=17 call=9", "waiting @4 key:m/11 fencing_token:3 lease:17 ttl:60" },
		{ "abandon m/11 call=8 revoke=17", "" },
		{ "abandon m/11 revoke=17", "" },
		{ "abandon m/99 call=9 revoke=17", "" },
		{ "abandon - call=9", "" },
		{ "queue m", "16! 17" },
		{ "abandon m/11 call=9 revoke=17", "" },
		{ "get * *", "@5 m/10=(2 2 1 16) count:1" }, /* the lease went with all its keys, in one revision */
		{ "leases", "@5 [ID:16]" },
		{ "abandon m/10 call=1 waiting", "" }, /* held: it may have been told */
		{ "queue m", "16!" },
		{ "abandon m/10 call=1 revoke=99", "" }, /* not its lease: the place alone */
		{ "queue m", "" },
		{ "leases", "@6 [ID:16]" },
		{ "grant 17 60", "@6 ID:17 TTL:60" },
		{ "lock m lease=16", "held @7 key:m/10 fencing_token:7 lease:16 ttl:60" },
		{ "lock m lease=17 call=3", "waiting @8 key:m/11 fencing_token:8 lease:17 ttl:60" },
		{ "abandon m/11 call=3 waiting", "" },
		{ "queue m", "16!" },
		{ "put m/11 1 lease=17", "@10" }, /* a plain write: no call may abandon it */
		{ "abandon m/11", "" },
		{ "queue m", "16! 17" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(unlock__frees_that_very_hold_or_nothing)
{
	static const struct story story[] = {
		{ "grant 16 60", "@1 ID:16 TTL:60" },
		{ "grant 17 60", "@1 ID:17 TTL:60" },
		{ "lock m lease=16", "held @2 key:m/10 fencing_token:2 lease:16 ttl:60" },
		{ "lock m lease=17", "waiting @3 key:m/11 fencing_token:3 lease:17 ttl:60" },
		{ "unlock m/10 3", "ERR_STALE_TOKEN" },
		{ "unlock m/10 -1", "ERR_NEGATIVE" },
		{ "unlock - 2", "ERR_EMPTY_KEY" },
		{ "unlock m/10 2", "@4" },
		{ "unlock m/10 2", "@4" }, /* sent twice */
		{ "queue m", "17!" },
		{ "unlock m/11", "@5" },
		{ "lock m lease=16", "held @6 key:m/10 fencing_token:6 lease:16 ttl:60" },
		{ "unlock m/10 2", "@6" }, /* sent a third time: the later hold of the same lease stays */
		{ "queue m", "16!" },
		{ "unlock m/10", "@7" }, /* without a token, as etcd */
		{ "queue m", "" },
		{ "put plain 1", "@8" },
		{ "unlock plain", "ERR_NOT_CONTENDER" },
		{ "unlock plain 8", "ERR_NOT_CONTENDER" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(contender__keys_and_locks_do_not_blur)
{
	static const struct story story[] = {
		{ "grant 16 60", "@1 ID:16 TTL:60" },
		{ "grant 10 60", "@1 ID:10 TTL:60" },
		{ "put m/10 x", "@2" },
		{ "lock m lease=16", "ERR_CONTENDER_EXISTING_KEY" },
		{ "lock m lease=16 wait=0", "ERR_CONTENDER_EXISTING_KEY" },
		{ "put m/10 x lease=16", "ERR_CONTENDER_EXISTING_KEY" },
		{ "txn { } { put q 1 ; put m/10 x lease=16 } { }", "ERR_CONTENDER_EXISTING_KEY" },
		{ "del m/10", "@3 deleted:1" },
		{ "put m/10 x lease=10", "@4" }, /* lease 10 in decimal: the same bytes as 16 in hex */
		{ "lock m lease=16", "ERR_CONTENDER_EXISTING_KEY" },
		{ "queue m", "10!" },
		{ "put m/10 y lease=16", "ERR_CONTENDER_LEASE" },
		{ "put m/10 y", "ERR_CONTENDER_LEASE" },
		{ "put m/10 y keep_lease", "@5" },
		{ "put m/10 - keep_value lease=10", "@6" },
		{ "get m/10", "@6 m/10=y(4 6 3 10) count:1" },
		{ "revoke 10", "@7" },
		{ "lock m lease=16", "held @8 key:m/10 fencing_token:8 lease:16 ttl:60" },
		/* a recipe's key: exclusive, found again by Lock, its value left alone */
		{ "put n/10 1 lease=16", "@9" },
		{ "lock n lease=16 mode=shared", "ERR_LOCK_MODE_CHANGED" },
		{ "lock n lease=16 wait=0", "held @9 key:n/10 fencing_token:9 lease:16 ttl:60" },
		{ "get n/10", "@9 n/10=1(9 9 1 16) count:1" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(contender__no_two_of_one_lock_at_one_revision)
{
	static const struct story story[] = {
		{ "grant 16 60", "@1 ID:16 TTL:60" },
		{ "grant 17 60", "@1 ID:17 TTL:60" },
		{ "txn { } { put k/10 1 lease=16 ; put k/11 1 lease=17 } { }", "ERR_CONTENDER_TWICE" },
		{ "txn { } { put k/10 1 lease=16 ; txn { } { put k/11 1 lease=17 } { } } { }", "ERR_CONTENDER_TWICE" },
		{ "txn { } { put k/10 1 lease=16 ; put k/16 1 lease=16 } { }", "ERR_CONTENDER_TWICE" }, /* in hex, and in decimal */
		{ "txn { } { put k/10 1 lease=16 ; put j/11 1 lease=17 } { }", "@2 succeeded [[~2]] [[~2]]" },
		{ "txn { } { put k/11 1 lease=17 ; put k/10 2 lease=16 } { }", "@3 succeeded [[~3]] [[~3]]" },
		{ "queue k", "16! 17" },
		{ "txn { } { put z 1 ; put k/10 3 lease=17 } { }", "ERR_CONTENDER_LEASE" },
		{ "put k/x 1", "@4" },
		/* deleted and created in one transaction: a new contender, at the end of the queue */
		{ "txn { } { del k/ * ; put k/11 1 lease=17 } { }", "@5 succeeded [[~5 deleted:3]] [[~5]]" },
		{ "queue k", "17!" },
		{ "get k/11", "@5 k/11=1(5 5 1 17) count:1" },
		{ "txn { } { del k/ * prev ; put k/11 - keep_value lease=17 } { }", "ERR_KEY_NOT_FOUND" },
		{ "txn { } { txn { } { put k/10 1 lease=16 } { } ; txn { } { del k/10 } { } } { }",
		  "@6 succeeded [[~0 succeeded [[~6]]]] [[~0 succeeded [[~6 deleted:1]]]]" },
		{ "queue k", "17!" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(election__campaign_proclaim_resign)
{
	static const struct story story[] = {
		{ "grant 16 60", "@1 ID:16 TTL:60" },
		{ "grant 17 60", "@1 ID:17 TTL:60" },
		{ "leader e", "ERR_ELECTION_NO_LEADER" },
		{ "lock e lease=16 value=one call=1", "held @2 key:e/10 fencing_token:2 lease:16 ttl:60" },
		{ "lock e lease=17 value=two call=2", "waiting @3 key:e/11 fencing_token:3 lease:17 ttl:60" },
		{ "lock e lease=16 value=uno call=3", "held @4 key:e/10 fencing_token:2 lease:16 ttl:60" },
		{ "lock e lease=16 value=uno call=3", "held @4 key:e/10 fencing_token:2 lease:16 ttl:60" },
		{ "leader e", "@4 e/10=uno(2 4 2 16)" },
		{ "proclaim e/10 2 eins", "@5" },
		{ "proclaim e/11 3 dos lease=17", "@6" },
		{ "proclaim e/11 3 dos lease=16", "ERR_CONTENDER_LEASE" },
		{ "proclaim e/11 3 dos lease=99", "ERR_LEASE_NOT_FOUND" },
		{ "proclaim e/11 4 x", "ERR_ELECTION_NOT_LEADER" },
		{ "proclaim e/12 0 x", "ERR_ELECTION_NOT_LEADER" },
		{ "leader e", "@6 e/10=eins(2 5 3 16)" },
		{ "get e/11", "@6 e/11=dos(3 6 2 17) count:1" },
		{ "resign e/10 5", "@6" },
		{ "resign e/10 2", "@7" },
		{ "leader e", "@7 e/11=dos(3 6 2 17)" },
		{ "resign e/10 2", "@7" },
		{ "proclaim e/10 2 x", "ERR_ELECTION_NOT_LEADER" },
		{ "resign", "ERR_EMPTY_KEY" },
		{ NULL, NULL },
	};

	tell(story);
}
END_TEST

START_TEST(campaign_reply__names_the_leadership)
{
	static const uint8_t want[] = { 0x0a, 6, 8, 1, 16, 2, 32, 3 };
	struct kv_lock_result r = { .token = 7, .lease = 16, .key = { .ptr = (uint8_t *)(uintptr_t)"e/10", .len = 4 } };
	struct buf reply = { 0 };
	struct world w;

	world_init(&w);
	w.st.revision = 0; /* left out */
	kv_campaign_reply(&w.env, slice_of_str("e"), &r, &reply);
	w.st.revision = 1;
	ck_assert_mem_eq(reply.ptr, want, sizeof want);
	ck_assert_uint_eq(reply.len, sizeof want + 18);
	ck_assert_mem_eq(reply.ptr + sizeof want, "\x12\x0d\x0a\x01" "e\x12\x04" "e/10\x18\x07\x20\x10\xa0\x06\x07", 18);
	buf_free(&reply);
	world_deinit(&w);
}
END_TEST

int main(void)
{
	Suite *s = suite_create("core_kv_lock");
	TCase *c = tcase_create("lock");
	SRunner *r;
	int failed;

	tcase_add_test(c, lease__grants_and_what_clients_are_told);
	tcase_add_test(c, lease__takes_its_keys_along_in_one_revision);
	tcase_add_test(c, lease__keys_move_between_leases);
	tcase_add_test(c, lease_end__counts_in_its_own_term_only);
	tcase_add_test(c, lock__queues_by_create_revision);
	tcase_add_test(c, lock__refuses);
	tcase_add_test(c, lock__a_failed_try_leaves_nothing_behind);
	tcase_add_test(c, lock__a_late_call_leaves_the_place_to_who_asks_beside_it);
	tcase_add_test(c, lock__a_hold_goes_when_all_who_asked_have_given_up);
	tcase_add_test(c, campaign__a_late_one_changes_no_value);
	tcase_add_test(c, campaign__who_gave_up_stays_the_latest);
	tcase_add_test(c, lock__shared);
	tcase_add_test(c, lock__makes_its_own_lease);
	tcase_add_test(c, abandon__only_the_latest_call_may);
	tcase_add_test(c, unlock__frees_that_very_hold_or_nothing);
	tcase_add_test(c, contender__keys_and_locks_do_not_blur);
	tcase_add_test(c, contender__no_two_of_one_lock_at_one_revision);
	tcase_add_test(c, election__campaign_proclaim_resign);
	tcase_add_test(c, campaign_reply__names_the_leadership);
	suite_add_tcase(s, c);
	r = srunner_create(s);
	srunner_run_all(r, CK_NORMAL);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed != 0;
}
