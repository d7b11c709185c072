/* test_service.c: what the services refuse, what they hand to the node, and how calls and streams live and end. */
#include <check.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include "base/mem.h"
#include "base/pbw.h"
#include "caller.h"
#include "etcd/rpc.pb-c.h"
#include "etcd/v3election.pb-c.h"
#include "etcd/v3lock.pb-c.h"
#include "fake_node.h"
#include "service/internal.h"

static struct node *node;
static struct service *service;
static const struct service_limits limits = { .max_txn_ops = 4, .max_request_bytes = 1000 };

static void setup(void)
{
	node = fake_node_new();
	service = service_new(node, &limits);
}

static void teardown(void)
{
	fake_node_free(node);
	service_free(service);
}

static struct test_caller *start(enum method_id method)
{
	struct test_caller *c = caller_new(method);
	caller_start(c, service);
	return c;
}

static ProtobufCBinaryData data_of(const char *text)
{
	return (ProtobufCBinaryData){ .len = strlen(text), .data = (uint8_t *)(uintptr_t)text };
}

#define UNTIL(condition)                                                       \
	do {                                                                   \
		struct timespec moment = { .tv_nsec = 1000000 };               \
		for (int left = 20000; !(condition); left--) {                 \
			ck_assert_msg(left > 0, "never true: " #condition);    \
			nanosleep(&moment, NULL);                              \
		}                                                              \
	} while (0)

static void refused(enum method_id method, const ProtobufCMessage *m, enum err e)
{
	struct test_caller *c = start(method);
	caller_send(c, m);
	service_half_close(&c->call);
	caller_wait_finished(c, e);
	ck_assert_uint_eq(c->replies_len, 0);
	caller_free(c);
}

static void answered(enum method_id method, const ProtobufCMessage *m)
{
	struct test_caller *c = start(method);
	caller_send(c, m);
	service_half_close(&c->call);
	caller_wait_finished(c, ERR_OK);
	ck_assert_uint_eq(c->replies_len, 1);
	caller_free(c);
}

/* ---- unary ---- */

START_TEST(unary__a_request_is_answered_once)
{
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	put.key = data_of("a");
	answered(METHOD_KV_PUT, &put.base);
	ck_assert_uint_eq(fake_node_figures(node).calls, 1);
}
END_TEST

START_TEST(unary__the_nodes_error_is_the_calls)
{
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	char number[16];
	snprintf(number, sizeof(number), "%d", (int)ERR_NO_SPACE);
	put.key = data_of("err");
	put.value = data_of(number);
	refused(METHOD_KV_PUT, &put.base, ERR_NO_SPACE);
}
END_TEST

START_TEST(unary__no_message_is_an_error)
{
	struct test_caller *c = start(METHOD_KV_PUT);
	service_half_close(&c->call);
	caller_wait_finished(c, ERR_MALFORMED);
	caller_free(c);
	ck_assert_uint_eq(fake_node_figures(node).calls, 0);
}
END_TEST

START_TEST(unary__two_messages_are_an_error)
{
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	struct test_caller *c = start(METHOD_KV_PUT);
	put.key = data_of("a");
	fake_node_hold(node, true);
	caller_send(c, &put.base);
	caller_send(c, &put.base);
	caller_wait_finished(c, ERR_MALFORMED);
	ck_assert_uint_eq(c->replies_len, 0);
	caller_free(c);
	ck_assert_uint_eq(fake_node_figures(node).calls, 1);
}
END_TEST

START_TEST(unary__what_comes_after_the_end_does_nothing)
{
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	struct test_caller *c = start(METHOD_KV_PUT);
	caller_send(c, &put.base);
	caller_wait_finished(c, ERR_EMPTY_KEY);
	caller_send(c, &put.base);
	service_half_close(&c->call);
	service_cancel(&c->call);
	service_writable(&c->call);
	caller_free(c);

	c = start(METHOD_KV_PUT);
	put.key = data_of("a");
	caller_send(c, &put.base);
	caller_wait_finished(c, ERR_OK);
	service_half_close(&c->call);
	service_cancel(&c->call);
	caller_free(c);
}
END_TEST

START_TEST(unary__cancel_before_the_request_ends_it)
{
	struct test_caller *c = start(METHOD_LOCK_LOCK);
	service_cancel(&c->call);
	caller_wait_finished(c, ERR_CANCELED);
	caller_free(c);
}
END_TEST

START_TEST(unary__cancel_reaches_the_node)
{
	V3lockpb__LockRequest lock = V3LOCKPB__LOCK_REQUEST__INIT;
	struct test_caller *c = start(METHOD_LOCK_LOCK);
	lock.name = data_of("l");
	caller_send(c, &lock.base);
	UNTIL(fake_node_figures(node).waiting == 1);
	ck_assert(!c->finished);
	service_cancel(&c->call);
	caller_wait_finished(c, ERR_CANCELED);
	caller_free(c);
}
END_TEST

START_TEST(unary__a_full_node_refuses)
{
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	put.key = data_of("a");
	fake_node_refuse(node, ERR_OVERLOADED);
	refused(METHOD_KV_PUT, &put.base, ERR_OVERLOADED);
}
END_TEST

START_TEST(unary__what_would_be_refused_as_too_much_never_reaches_the_node)
{
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	Etcdserverpb__LeaseRevokeRequest revoke = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;
	put.key = data_of("a");
	revoke.id = 7;
	fake_node_refuse_load(node, true);
	refused(METHOD_KV_PUT, &put.base, ERR_TOO_MANY_REQUESTS);
	ck_assert_uint_eq(fake_node_figures(node).calls, 0);
	answered(METHOD_LEASE_REVOKE, &revoke.base);
	fake_node_refuse_load(node, false);
	answered(METHOD_KV_PUT, &put.base);
}
END_TEST

START_TEST(unary__all_requests_together_have_a_bound)
{
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	struct test_caller *c = start(METHOD_KV_PUT);
	put.key = data_of("0123456789"); /* 12 bytes with what is around them */
	atomic_store(&service->bytes, SERVICE_BYTES_MAX - 20);
	fake_node_hold(node, true);
	caller_send(c, &put.base);
	ck_assert(!c->finished);
	refused(METHOD_KV_PUT, &put.base, ERR_TOO_MANY_REQUESTS);
	fake_node_hold(node, false);
	caller_wait_finished(c, ERR_OK);
	caller_free(c);
	answered(METHOD_KV_PUT, &put.base);
	ck_assert_uint_eq(atomic_load(&service->bytes), SERVICE_BYTES_MAX - 20);
}
END_TEST

START_TEST(unary__details_travel_with_the_error)
{
	V3lockpb__LockRequest lock = V3LOCKPB__LOCK_REQUEST__INIT;
	struct test_caller *c = start(METHOD_LOCK_LOCK);
	lock.name = data_of("l");
	lock.wait_case = V3LOCKPB__LOCK_REQUEST__WAIT_WAIT_MS;
	caller_send(c, &lock.base);
	caller_wait_finished(c, ERR_LOCK_HELD);
	ck_assert(slice_eq(buf_view(&c->details), slice_of_str("refused")));
	caller_free(c);
}
END_TEST

START_TEST(unary__no_leader_is_said_when_asked_for)
{
	Etcdserverpb__RangeRequest range = ETCDSERVERPB__RANGE_REQUEST__INIT;
	struct test_caller *c = caller_new(METHOD_KV_RANGE);
	range.key = data_of("a");
	fake_node_set_leaderless(node, 1000);
	answered(METHOD_KV_RANGE, &range.base); /* not asked for */
	c->call.need_leader = true;
	caller_start(c, service);
	caller_send(c, &range.base);
	caller_wait_finished(c, ERR_NO_LEADER);
	caller_free(c);
}
END_TEST

START_TEST(unary__who_asks_goes_along)
{
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	struct test_caller *c = caller_new(METHOD_KV_PUT);
	struct fake_figures f;
	put.key = data_of("a");
	c->call.client = slice_of_str("192.0.2.1:7");
	c->call.session = -5;
	c->call.request_id = 9;
	c->call.first_unanswered = 8;
	caller_start(c, service);
	caller_send(c, &put.base);
	caller_wait_finished(c, ERR_OK);
	caller_free(c);
	f = fake_node_figures(node);
	ck_assert_str_eq(f.client, "192.0.2.1:7");
	ck_assert_int_eq(f.session, -5);
	ck_assert_uint_eq(f.request_id, 9);
	ck_assert_uint_eq(f.first_unanswered, 8);
}
END_TEST

/* ---- checks ---- */

START_TEST(check__bytes_that_are_no_message)
{
	static const enum method_id ids[] = { METHOD_KV_PUT, METHOD_KV_COMPACT, METHOD_LEASE_KEEP_ALIVE, METHOD_WATCH_WATCH, METHOD_ELECTION_OBSERVE };
	for (size_t i = 0; i < sizeof(ids) / sizeof(ids[0]); i++) {
		struct test_caller *c = start(ids[i]);
		caller_send_bytes(c, "\xff\xff\xff", 3);
		caller_wait_finished(c, ERR_MALFORMED);
		caller_free(c);
	}
	ck_assert_uint_eq(fake_node_figures(node).calls, 0);
}
END_TEST

START_TEST(check__a_request_larger_than_allowed)
{
	char *value = mem_zalloc(limits.max_request_bytes + 1);
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	put.key = data_of("a");
	memset(value, 'x', limits.max_request_bytes);
	put.value = data_of(value);
	refused(METHOD_KV_PUT, &put.base, ERR_REQUEST_TOO_LARGE);
	value[limits.max_request_bytes - 100] = '\0';
	put.value = data_of(value);
	answered(METHOD_KV_PUT, &put.base);
	free(value);
}
END_TEST

/* A transaction in a transaction in a ...: each level is an operation and its transaction, so two messages. */
static struct buf nested(int levels)
{
	struct buf inner = { .ptr = NULL };
	for (int i = 0; i < levels; i++) {
		struct buf op = { .ptr = NULL }, txn = { .ptr = NULL };
		pbw_bytes_always(&op, 4, buf_view(&inner));
		pbw_bytes_always(&txn, 2, buf_view(&op));
		buf_free(&inner);
		buf_free(&op);
		inner = txn;
	}
	return inner;
}

START_TEST(check__a_request_nested_too_deeply)
{
	struct service_limits wide = { .max_txn_ops = 1000, .max_request_bytes = 1 << 20 };
	struct service *s = service_new(node, &wide);
	static const struct {
		int levels;
		enum err err;
	} cases[] = { { 16, ERR_OK }, { 17, ERR_TOO_DEEP }, { 10000, ERR_TOO_DEEP } };
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct buf bytes = nested(cases[i].levels);
		struct test_caller *c = caller_new(METHOD_KV_TXN);
		caller_start(c, s);
		caller_send_bytes(c, bytes.ptr, bytes.len);
		caller_wait_finished(c, cases[i].err);
		caller_free(c);
		buf_free(&bytes);
	}
	service_free(s);
}
END_TEST

START_TEST(check__keys_and_transactions)
{
	Etcdserverpb__RangeRequest range = ETCDSERVERPB__RANGE_REQUEST__INIT;
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	Etcdserverpb__DeleteRangeRequest del = ETCDSERVERPB__DELETE_RANGE_REQUEST__INIT;
	Etcdserverpb__TxnRequest txn = ETCDSERVERPB__TXN_REQUEST__INIT;
	Etcdserverpb__RequestOp op = ETCDSERVERPB__REQUEST_OP__INIT;
	Etcdserverpb__RequestOp *ops[5] = { &op, &op, &op, &op, &op };
	refused(METHOD_KV_RANGE, &range.base, ERR_EMPTY_KEY);
	range.key = data_of("a");
	range.sort_target = 9;
	refused(METHOD_KV_RANGE, &range.base, ERR_INVALID_SORT_OPTION);
	refused(METHOD_KV_DELETE_RANGE, &del.base, ERR_EMPTY_KEY);
	put.key = data_of("a");
	put.ignore_value = 1;
	put.value = data_of("v");
	refused(METHOD_KV_PUT, &put.base, ERR_VALUE_PROVIDED);
	range.sort_target = ETCDSERVERPB__RANGE_REQUEST__SORT_TARGET__KEY;
	op.request_case = ETCDSERVERPB__REQUEST_OP__REQUEST_REQUEST_RANGE;
	op.request_range = &range;
	txn.success = ops;
	txn.n_success = 5;
	refused(METHOD_KV_TXN, &txn.base, ERR_TOO_MANY_OPS);
	txn.n_success = 4;
	answered(METHOD_KV_TXN, &txn.base);
}
END_TEST

START_TEST(check__leases)
{
	Etcdserverpb__LeaseGrantRequest grant = ETCDSERVERPB__LEASE_GRANT_REQUEST__INIT;
	Etcdserverpb__LeaseRevokeRequest revoke = ETCDSERVERPB__LEASE_REVOKE_REQUEST__INIT;
	refused(METHOD_LEASE_REVOKE, &revoke.base, ERR_LEASE_NOT_FOUND);
	revoke.id = -5;
	answered(METHOD_LEASE_REVOKE, &revoke.base);
	grant.ttl = 9000000001;
	refused(METHOD_LEASE_GRANT, &grant.base, ERR_LEASE_TTL_TOO_LARGE);
	grant.ttl = 9000000000;
	answered(METHOD_LEASE_GRANT, &grant.base);
	/* As etcd: raised to the minimum where the lease is made. */
	grant.ttl = -1;
	grant.id = -7;
	answered(METHOD_LEASE_GRANT, &grant.base);
}
END_TEST

START_TEST(check__locks)
{
	V3lockpb__LockRequest lock = V3LOCKPB__LOCK_REQUEST__INIT;
	V3lockpb__UnlockRequest unlock = V3LOCKPB__UNLOCK_REQUEST__INIT;
	refused(METHOD_LOCK_LOCK, &lock.base, ERR_EMPTY_KEY);
	lock.name = data_of("l");
	lock.wait_case = V3LOCKPB__LOCK_REQUEST__WAIT_WAIT_MS;
	lock.wait_ms = -1;
	refused(METHOD_LOCK_LOCK, &lock.base, ERR_NEGATIVE);
	lock.wait_ms = 0;
	lock.stream = -1;
	refused(METHOD_LOCK_LOCK, &lock.base, ERR_NEGATIVE);
	lock.stream = 0;
	lock.mode = 2;
	refused(METHOD_LOCK_LOCK, &lock.base, ERR_MALFORMED);
	refused(METHOD_LOCK_UNLOCK, &unlock.base, ERR_EMPTY_KEY);
	unlock.key = data_of("l/1");
	unlock.fencing_token = -1;
	refused(METHOD_LOCK_UNLOCK, &unlock.base, ERR_NEGATIVE);
	unlock.fencing_token = 1;
	answered(METHOD_LOCK_UNLOCK, &unlock.base);
}
END_TEST

START_TEST(check__elections)
{
	V3electionpb__CampaignRequest campaign = V3ELECTIONPB__CAMPAIGN_REQUEST__INIT;
	V3electionpb__LeaderRequest leader = V3ELECTIONPB__LEADER_REQUEST__INIT;
	V3electionpb__ResignRequest resign = V3ELECTIONPB__RESIGN_REQUEST__INIT;
	V3electionpb__ProclaimRequest proclaim = V3ELECTIONPB__PROCLAIM_REQUEST__INIT;
	V3electionpb__LeaderKey key = V3ELECTIONPB__LEADER_KEY__INIT;
	struct test_caller *c;
	refused(METHOD_ELECTION_CAMPAIGN, &campaign.base, ERR_EMPTY_KEY);
	campaign.name = data_of("e");
	campaign.stream = -1;
	refused(METHOD_ELECTION_CAMPAIGN, &campaign.base, ERR_NEGATIVE);
	refused(METHOD_ELECTION_LEADER, &leader.base, ERR_EMPTY_KEY);
	refused(METHOD_ELECTION_OBSERVE, &leader.base, ERR_EMPTY_KEY);
	proclaim.leader = resign.leader = &key;
	refused(METHOD_ELECTION_PROCLAIM, &proclaim.base, ERR_EMPTY_KEY);
	refused(METHOD_ELECTION_RESIGN, &resign.base, ERR_EMPTY_KEY);
	key.key = data_of("e/1");
	answered(METHOD_ELECTION_PROCLAIM, &proclaim.base);
	answered(METHOD_ELECTION_RESIGN, &resign.base);
	/* etcd's text, word for word. */
	resign.leader = NULL;
	c = start(METHOD_ELECTION_RESIGN);
	caller_send(c, &resign.base);
	caller_wait_finished(c, ERR_ELECTION_NOT_LEADER);
	ck_assert_str_eq(c->detail, "\"leader\" field must be provided");
	caller_free(c);
}
END_TEST

/* ---- metadata ---- */

START_TEST(metadata__is_read_strictly)
{
	static const struct {
		const char *name, *value;
		enum err err;
	} cases[] = {
		{ "holdfast-session", "123", ERR_OK },
		{ "holdfast-session", "-9223372036854775808", ERR_OK },
		{ "holdfast-session", "-9223372036854775809", ERR_BAD_METADATA },
		{ "holdfast-session", "9223372036854775808", ERR_BAD_METADATA },
		{ "holdfast-session", "12x", ERR_BAD_METADATA },
		{ "holdfast-session", " 12", ERR_BAD_METADATA },
		{ "holdfast-session", "-", ERR_BAD_METADATA },
		{ "holdfast-session", "", ERR_BAD_METADATA },
		{ "holdfast-request", "18446744073709551615", ERR_OK },
		{ "holdfast-request", "18446744073709551616", ERR_BAD_METADATA },
		{ "holdfast-request", "-1", ERR_BAD_METADATA },
		{ "holdfast-first-unanswered", "7", ERR_OK },
		{ "holdfast-first-unanswered", "+7", ERR_BAD_METADATA },
		{ "hasleader", "true", ERR_OK },
		{ "hasleader", "perhaps", ERR_OK },
		{ "user-agent", "x", ERR_OK },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct service_call c = { .need_leader = false };
		enum err e = service_metadata(&c, slice_of_str(cases[i].name), slice_of_str(cases[i].value));
		ck_assert_msg(e == cases[i].err, "%s: %s", cases[i].name, cases[i].value);
	}
}
END_TEST

START_TEST(metadata__sets_what_it_says)
{
	struct service_call c = { .need_leader = false };
	ck_assert_int_eq(service_metadata(&c, slice_of_str("holdfast-session"), slice_of_str("-77")), ERR_OK);
	ck_assert_int_eq(service_metadata(&c, slice_of_str("holdfast-request"), slice_of_str("5")), ERR_OK);
	ck_assert_int_eq(service_metadata(&c, slice_of_str("holdfast-first-unanswered"), slice_of_str("4")), ERR_OK);
	ck_assert_int_eq(service_metadata(&c, slice_of_str("hasleader"), slice_of_str("true")), ERR_OK);
	ck_assert_int_eq(service_metadata(&c, slice_of_str("token"), slice_of_str("secret")), ERR_OK);
	ck_assert_int_eq(c.session, -77);
	ck_assert_uint_eq(c.request_id, 5);
	ck_assert_uint_eq(c.first_unanswered, 4);
	ck_assert(c.need_leader);
	ck_assert(slice_eq(c.token, slice_of_str("secret")));
}
END_TEST

/* ---- keep-alives ---- */

static bool renew(struct test_caller *c, int64_t id)
{
	Etcdserverpb__LeaseKeepAliveRequest r = ETCDSERVERPB__LEASE_KEEP_ALIVE_REQUEST__INIT;
	r.id = id;
	return caller_send(c, &r.base);
}

static int64_t renewed_id(struct test_caller *c, size_t i, int64_t ttl)
{
	Etcdserverpb__LeaseKeepAliveResponse *r;
	int64_t id;
	r = etcdserverpb__lease_keep_alive_response__unpack(NULL, c->replies[i].len, c->replies[i].ptr);
	ck_assert_ptr_nonnull(r);
	ck_assert_int_eq(r->ttl, ttl);
	id = r->id;
	etcdserverpb__lease_keep_alive_response__free_unpacked(r, NULL);
	return id;
}

/* ---- a range in parts ---- */

static struct test_caller *range_stream(const char *key, int64_t limit, int64_t at)
{
	Etcdserverpb__RangeRequest r = ETCDSERVERPB__RANGE_REQUEST__INIT;
	struct test_caller *c = start(METHOD_KV_RANGE_STREAM);
	r.key = data_of(key);
	r.range_end = data_of(":");
	r.limit = limit;
	r.revision = at;
	caller_send(c, &r.base);
	service_half_close(&c->call);
	return c;
}

/* "012 345: revision 7, more, count 10" of what has come. */
static void parts(struct test_caller *c, char *text, size_t size)
{
	struct buf out = { .ptr = NULL };
	for (size_t i = 0; i < c->replies_len; i++) {
		Etcdserverpb__RangeStreamResponse *m = etcdserverpb__range_stream_response__unpack(NULL, c->replies[i].len, c->replies[i].ptr);
		const Etcdserverpb__RangeResponse *r;
		ck_assert_ptr_nonnull(m);
		r = m->range_response;
		ck_assert_ptr_nonnull(r);
		buf_printf(&out, "%s", i ? " " : "");
		for (size_t k = 0; k < r->n_kvs; k++)
			buf_printf(&out, "%.1s", (const char *)r->kvs[k]->key.data);
		if (r->header)
			buf_printf(&out, ": revision %d%s, count %d", (int)r->header->revision, r->more ? ", more" : "", (int)r->count);
		else
			ck_assert(!r->more && r->count == 0);
		etcdserverpb__range_stream_response__free_unpacked(m, NULL);
	}
	snprintf(text, size, "%.*s", (int)out.len, (const char *)out.ptr);
	buf_free(&out);
}

START_TEST(range_stream__all_parts_are_one_reply)
{
	static const struct {
		const char *key;
		int64_t limit;
		size_t parts;
		const char *want;
	} cases[] = {
		{ "0", 0, 4, "012 345 678 9: revision 7, count 10" }, { "4", 0, 2, "456 789: revision 7, count 6" },
		{ "0", 7, 3, "012 345 6: revision 7, more, count 10" }, { "0", 6, 2, "012 345: revision 7, more, count 10" },
		{ "0", 1, 1, "0: revision 7, more, count 10" }, { "0", 10, 4, "012 345 678 9: revision 7, count 10" },
	};
	for (size_t i = 0; i < sizeof(cases) / sizeof(cases[0]); i++) {
		struct test_caller *c = range_stream(cases[i].key, cases[i].limit, 0);
		char text[128];
		for (size_t n = 1; n < cases[i].parts; n++) {
			caller_wait_replies(c, n);
			service_writable(&c->call);
		}
		caller_wait_finished(c, ERR_OK);
		parts(c, text, sizeof(text));
		ck_assert_str_eq(text, cases[i].want);
		ck_assert_uint_eq(c->reply_calls, cases[i].parts);
		caller_free(c);
	}
}
END_TEST

START_TEST(range_stream__who_does_not_read_is_not_sent_to)
{
	Etcdserverpb__PutRequest put = ETCDSERVERPB__PUT_REQUEST__INIT;
	struct test_caller *c = range_stream("0", 0, 0);
	caller_wait_replies(c, 1);
	/* What the node is asked afterwards is answered, so all that came before is. */
	put.key = data_of("a");
	answered(METHOD_KV_PUT, &put.base);
	ck_assert_uint_eq(c->replies_len, 1);
	ck_assert_uint_eq(fake_node_figures(node).calls, 2);
	service_cancel(&c->call);
	caller_wait_finished(c, ERR_CANCELED);
	service_writable(&c->call); /* too late */
	ck_assert_uint_eq(fake_node_figures(node).calls, 2);
	caller_free(c);
}
END_TEST

START_TEST(range_stream__cancel_waits_for_the_node)
{
	struct test_caller *c;
	fake_node_hold(node, true);
	c = range_stream("0", 0, 0);
	UNTIL(fake_node_figures(node).waiting == 1);
	service_cancel(&c->call);
	caller_wait_finished(c, ERR_CANCELED);
	ck_assert_uint_eq(fake_node_figures(node).cancels, 1);
	ck_assert_uint_eq(c->replies_len, 0);
	caller_free(c);
}
END_TEST

START_TEST(range_stream__an_error_between_parts_ends_it)
{
	struct test_caller *c = range_stream("0", 0, 9);
	caller_wait_replies(c, 1);
	service_writable(&c->call);
	caller_wait_finished(c, ERR_COMPACTED);
	ck_assert_uint_eq(c->replies_len, 1);
	caller_free(c);
	c = range_stream("0", 0, 0);
	caller_wait_replies(c, 1);
	fake_node_refuse(node, ERR_OVERLOADED);
	service_writable(&c->call);
	caller_wait_finished(c, ERR_OVERLOADED);
	caller_free(c);
}
END_TEST

START_TEST(range_stream__takes_no_order_and_no_filter)
{
	Etcdserverpb__RangeRequest r = ETCDSERVERPB__RANGE_REQUEST__INIT;
	refused(METHOD_KV_RANGE_STREAM, &r.base, ERR_EMPTY_KEY);
	r.key = data_of("0");
	r.sort_target = ETCDSERVERPB__RANGE_REQUEST__SORT_TARGET__MOD;
	refused(METHOD_KV_RANGE_STREAM, &r.base, ERR_UNIMPLEMENTED);
	r.sort_target = ETCDSERVERPB__RANGE_REQUEST__SORT_TARGET__KEY;
	r.sort_order = ETCDSERVERPB__RANGE_REQUEST__SORT_ORDER__DESCEND;
	refused(METHOD_KV_RANGE_STREAM, &r.base, ERR_UNIMPLEMENTED);
	r.sort_order = ETCDSERVERPB__RANGE_REQUEST__SORT_ORDER__ASCEND;
	r.max_create_revision = 5;
	refused(METHOD_KV_RANGE_STREAM, &r.base, ERR_UNIMPLEMENTED);
	ck_assert_uint_eq(fake_node_figures(node).calls, 0);
}
END_TEST

START_TEST(keep_alive__answers_in_the_order_of_the_requests)
{
	struct test_caller *c = start(METHOD_LEASE_KEEP_ALIVE);
	fake_node_hold(node, true);
	fake_node_reverse(node, true);
	for (int64_t id = 1; id <= 20; id++)
		ck_assert(renew(c, id - 10));
	UNTIL(fake_node_figures(node).waiting == 20);
	ck_assert_uint_eq(c->replies_len, 0);
	fake_node_hold(node, false);
	caller_wait_replies(c, 20);
	for (size_t i = 0; i < 20; i++)
		ck_assert_int_eq(renewed_id(c, i, 7), (int64_t)i + 1 - 10);
	service_half_close(&c->call);
	caller_wait_finished(c, ERR_OK);
	caller_free(c);
}
END_TEST

START_TEST(keep_alive__a_lease_that_is_gone_is_an_answer)
{
	struct test_caller *c = start(METHOD_LEASE_KEEP_ALIVE);
	renew(c, 404);
	renew(c, 5);
	caller_wait_replies(c, 2);
	ck_assert_int_eq(renewed_id(c, 0, 0), 404);
	ck_assert_int_eq(renewed_id(c, 1, 7), 5);
	service_half_close(&c->call);
	caller_wait_finished(c, ERR_OK);
	caller_free(c);
}
END_TEST

START_TEST(keep_alive__half_close_waits_for_what_is_under_way)
{
	struct test_caller *c = start(METHOD_LEASE_KEEP_ALIVE);
	fake_node_hold(node, true);
	renew(c, 1);
	renew(c, 2);
	service_half_close(&c->call);
	UNTIL(fake_node_figures(node).waiting == 2);
	ck_assert(!c->finished);
	fake_node_hold(node, false);
	caller_wait_finished(c, ERR_OK);
	ck_assert_uint_eq(c->replies_len, 2);
	caller_free(c);
}
END_TEST

START_TEST(keep_alive__an_error_ends_the_stream_after_what_came_before)
{
	struct test_caller *c = start(METHOD_LEASE_KEEP_ALIVE);
	fake_node_hold(node, true);
	fake_node_reverse(node, true);
	renew(c, 1);
	renew(c, 500);
	renew(c, 3);
	service_half_close(&c->call);
	UNTIL(fake_node_figures(node).waiting == 3);
	fake_node_hold(node, false);
	caller_wait_finished(c, ERR_NO_LEADER);
	ck_assert_uint_eq(c->replies_len, 1);
	caller_free(c);
}
END_TEST

START_TEST(keep_alive__a_malformed_message_ends_the_stream_after_what_came_before)
{
	struct test_caller *c = start(METHOD_LEASE_KEEP_ALIVE);
	fake_node_hold(node, true);
	renew(c, 1);
	caller_send_bytes(c, "\xff", 1);
	renew(c, 2); /* too late */
	fake_node_hold(node, false);
	caller_wait_finished(c, ERR_MALFORMED);
	ck_assert_uint_eq(c->replies_len, 1);
	caller_free(c);
}
END_TEST

START_TEST(keep_alive__a_full_node_ends_the_stream)
{
	struct test_caller *c = start(METHOD_LEASE_KEEP_ALIVE);
	fake_node_refuse(node, ERR_OVERLOADED);
	renew(c, 1);
	caller_wait_finished(c, ERR_OVERLOADED);
	caller_free(c);
}
END_TEST

START_TEST(keep_alive__cancel_waits_for_the_node_and_says_nothing_more)
{
	struct test_caller *c = start(METHOD_LEASE_KEEP_ALIVE);
	fake_node_hold(node, true);
	for (int64_t id = 1; id <= 10; id++)
		renew(c, id);
	service_cancel(&c->call);
	caller_wait_finished(c, ERR_CANCELED);
	ck_assert_uint_eq(c->replies_len, 0);
	caller_free(c);
}
END_TEST

START_TEST(keep_alive__a_reader_who_does_not_read_stops_the_stream)
{
	struct test_caller *c = start(METHOD_LEASE_KEEP_ALIVE);
	for (int64_t id = 1; id < SERVICE_UNACKED; id++)
		ck_assert(renew(c, id));
	ck_assert(!renew(c, SERVICE_UNACKED)); /* its fill */
	caller_wait_replies(c, SERVICE_UNACKED);
	ck_assert_uint_eq(c->ready, 0);
	for (int i = 0; i < SERVICE_UNACKED; i++)
		service_writable(&c->call);
	ck_assert_uint_eq(c->ready, 1);
	ck_assert(renew(c, 99));
	service_half_close(&c->call);
	caller_wait_finished(c, ERR_OK);
	caller_free(c);
}
END_TEST

START_TEST(keep_alive__a_front_end_that_pushes_on_is_stopped_at_the_bound)
{
	struct test_caller *c = start(METHOD_LEASE_KEEP_ALIVE);
	for (int i = 0; i < SERVICE_INFLIGHT_MAX; i++)
		renew(c, 1);
	ck_assert(!c->finished);
	renew(c, 1);
	caller_wait_finished(c, ERR_TOO_MANY_REQUESTS);
	ck_assert_uint_eq(c->replies_len, SERVICE_INFLIGHT_MAX);
	caller_free(c);
}
END_TEST

/* ---- streams that the node drives ---- */

static void watch(struct test_caller *c, const char *key)
{
	Etcdserverpb__WatchRequest r = ETCDSERVERPB__WATCH_REQUEST__INIT;
	Etcdserverpb__WatchCreateRequest create = ETCDSERVERPB__WATCH_CREATE_REQUEST__INIT;
	create.key = data_of(key);
	r.request_union_case = ETCDSERVERPB__WATCH_REQUEST__REQUEST_UNION_CREATE_REQUEST;
	r.create_request = &create;
	caller_send(c, &r.base);
}

START_TEST(watch__lives_until_its_client_leaves)
{
	struct test_caller *c = start(METHOD_WATCH_WATCH);
	watch(c, "a");
	watch(c, "b");
	caller_wait_replies(c, 2);
	service_half_close(&c->call);
	ck_assert(!c->finished);
	service_cancel(&c->call);
	caller_wait_finished(c, ERR_CANCELED);
	caller_free(c);
	UNTIL(fake_node_figures(node).streams == 0);
}
END_TEST

START_TEST(watch__gets_more_only_when_it_can_be_written)
{
	struct test_caller *c = start(METHOD_WATCH_WATCH);
	watch(c, "flood");
	caller_wait_replies(c, 1);
	for (size_t n = 1; n <= 20; n++) {
		service_writable(&c->call);
		caller_wait_replies(c, 1 + n * 10);
		ck_assert_uint_eq(c->reply_calls, 1 + n);
	}
	service_cancel(&c->call);
	caller_wait_finished(c, ERR_CANCELED);
	caller_free(c);
}
END_TEST

START_TEST(watch__a_malformed_message_ends_it)
{
	struct test_caller *c = start(METHOD_WATCH_WATCH);
	watch(c, "a");
	caller_send_bytes(c, "\x0a\x7f", 2);
	service_cancel(&c->call); /* the first reason stands */
	caller_wait_finished(c, ERR_MALFORMED);
	caller_free(c);
}
END_TEST

START_TEST(observe__one_request_then_replies)
{
	V3electionpb__LeaderRequest r = V3ELECTIONPB__LEADER_REQUEST__INIT;
	struct test_caller *c = start(METHOD_ELECTION_OBSERVE);
	r.name = data_of("e");
	caller_send(c, &r.base);
	service_half_close(&c->call);
	caller_wait_replies(c, 1);
	ck_assert(!c->finished);
	service_cancel(&c->call);
	caller_wait_finished(c, ERR_CANCELED);
	caller_free(c);

	c = start(METHOD_ELECTION_OBSERVE);
	r.name = data_of("end");
	caller_send(c, &r.base);
	caller_wait_finished(c, ERR_ELECTION_NO_LEADER);
	caller_free(c);

	c = start(METHOD_ELECTION_OBSERVE);
	service_half_close(&c->call);
	caller_wait_finished(c, ERR_MALFORMED);
	caller_free(c);

	c = start(METHOD_ELECTION_OBSERVE);
	service_cancel(&c->call);
	caller_wait_finished(c, ERR_CANCELED);
	caller_free(c);
}
END_TEST

START_TEST(stream__a_node_that_is_full_refuses)
{
	struct test_caller *c;
	fake_node_refuse(node, ERR_OVERLOADED);
	c = start(METHOD_WATCH_WATCH);
	caller_wait_finished(c, ERR_OVERLOADED);
	caller_free(c);
}
END_TEST

START_TEST(stream__a_message_that_is_not_taken_ends_it)
{
	struct test_caller *c = start(METHOD_WATCH_WATCH);
	watch(c, "a");
	caller_wait_replies(c, 1);
	fake_node_refuse(node, ERR_OVERLOADED);
	watch(c, "b");
	caller_wait_finished(c, ERR_TOO_MANY_REQUESTS);
	caller_free(c);
}
END_TEST

START_TEST(call__that_needs_a_leader_is_refused_only_when_there_has_been_none_for_a_while)
{
	struct test_caller *early = caller_new(METHOD_WATCH_WATCH), *late = caller_new(METHOD_WATCH_WATCH), *back = caller_new(METHOD_WATCH_WATCH);
	early->call.need_leader = late->call.need_leader = back->call.need_leader = true;
	fake_node_set_leaderless(node, 999);
	caller_start(early, service);
	ck_assert(!early->finished);
	fake_node_set_leaderless(node, 1000);
	caller_start(late, service);
	caller_wait_finished(late, ERR_NO_LEADER);
	fake_node_set_leaderless(node, 0);
	caller_start(back, service);
	ck_assert(!early->finished && !back->finished);
	service_cancel(&early->call);
	service_cancel(&back->call);
	caller_free(early);
	caller_free(late);
	caller_free(back);
}
END_TEST

START_TEST(stream__ends_when_the_leader_stays_away_if_it_asked_for_that)
{
	struct test_caller *w = caller_new(METHOD_WATCH_WATCH), *k = caller_new(METHOD_LEASE_KEEP_ALIVE), *careless = start(METHOD_WATCH_WATCH);
	w->call.need_leader = k->call.need_leader = true;
	caller_start(w, service);
	caller_start(k, service);
	service_tick(service, 1000);
	fake_node_set_leaderless(node, 2999);
	service_tick(service, 4900);
	ck_assert(!w->finished && !k->finished);
	fake_node_set_leaderless(node, 3000);
	service_tick(service, 4901);
	caller_wait_finished(w, ERR_NO_LEADER);
	caller_wait_finished(k, ERR_NO_LEADER);
	ck_assert(!careless->finished);
	caller_free(w);
	caller_free(k);
	service_cancel(&careless->call);
	caller_free(careless);
}
END_TEST

static void add_unary(TCase *t)
{
	tcase_add_test(t, unary__a_request_is_answered_once);
	tcase_add_test(t, unary__the_nodes_error_is_the_calls);
	tcase_add_test(t, unary__no_message_is_an_error);
	tcase_add_test(t, unary__two_messages_are_an_error);
	tcase_add_test(t, unary__what_comes_after_the_end_does_nothing);
	tcase_add_test(t, unary__cancel_before_the_request_ends_it);
	tcase_add_test(t, unary__cancel_reaches_the_node);
	tcase_add_test(t, unary__a_full_node_refuses);
	tcase_add_test(t, unary__what_would_be_refused_as_too_much_never_reaches_the_node);
	tcase_add_test(t, unary__all_requests_together_have_a_bound);
	tcase_add_test(t, stream__a_message_that_is_not_taken_ends_it);
	tcase_add_test(t, unary__details_travel_with_the_error);
	tcase_add_test(t, unary__no_leader_is_said_when_asked_for);
	tcase_add_test(t, unary__who_asks_goes_along);
	tcase_add_test(t, check__bytes_that_are_no_message);
	tcase_add_test(t, check__a_request_larger_than_allowed);
	tcase_add_test(t, check__a_request_nested_too_deeply);
	tcase_add_test(t, check__keys_and_transactions);
	tcase_add_test(t, check__leases);
	tcase_add_test(t, check__locks);
	tcase_add_test(t, check__elections);
	tcase_add_test(t, metadata__is_read_strictly);
	tcase_add_test(t, metadata__sets_what_it_says);
}

static void add_streams(TCase *t)
{
	tcase_add_test(t, range_stream__all_parts_are_one_reply);
	tcase_add_test(t, range_stream__who_does_not_read_is_not_sent_to);
	tcase_add_test(t, range_stream__cancel_waits_for_the_node);
	tcase_add_test(t, range_stream__an_error_between_parts_ends_it);
	tcase_add_test(t, range_stream__takes_no_order_and_no_filter);
	tcase_add_test(t, keep_alive__answers_in_the_order_of_the_requests);
	tcase_add_test(t, keep_alive__a_lease_that_is_gone_is_an_answer);
	tcase_add_test(t, keep_alive__half_close_waits_for_what_is_under_way);
	tcase_add_test(t, keep_alive__an_error_ends_the_stream_after_what_came_before);
	tcase_add_test(t, keep_alive__a_malformed_message_ends_the_stream_after_what_came_before);
	tcase_add_test(t, keep_alive__a_full_node_ends_the_stream);
	tcase_add_test(t, keep_alive__cancel_waits_for_the_node_and_says_nothing_more);
	tcase_add_test(t, keep_alive__a_reader_who_does_not_read_stops_the_stream);
	tcase_add_test(t, keep_alive__a_front_end_that_pushes_on_is_stopped_at_the_bound);
	tcase_add_test(t, watch__lives_until_its_client_leaves);
	tcase_add_test(t, watch__gets_more_only_when_it_can_be_written);
	tcase_add_test(t, watch__a_malformed_message_ends_it);
	tcase_add_test(t, observe__one_request_then_replies);
	tcase_add_test(t, stream__a_node_that_is_full_refuses);
	tcase_add_test(t, call__that_needs_a_leader_is_refused_only_when_there_has_been_none_for_a_while);
	tcase_add_test(t, stream__ends_when_the_leader_stays_away_if_it_asked_for_that);
}

int main(void)
{
	Suite *s = suite_create("service");
	TCase *t = tcase_create("service");
	SRunner *sr;
	int failed;
	tcase_set_timeout(t, 60);
	tcase_add_checked_fixture(t, setup, teardown);
	add_unary(t);
	add_streams(t);
	suite_add_tcase(s, t);
	sr = srunner_create(s);
	srunner_run_all(sr, CK_NORMAL);
	failed = srunner_ntests_failed(sr);
	srunner_free(sr);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
