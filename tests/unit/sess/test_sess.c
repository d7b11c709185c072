/* test_sess.c: clocks and states, streams, calls, caches, watches and holds of a session's core; the cell is played by hand. */
#include <stdio.h>
#include <stdlib.h>

#include "base/rng.h"
#include "errors.h"
#include "etcd/rpc.pb-c.h"
#include "etcd/v3election.pb-c.h"
#include "etcd/v3lock.pb-c.h"
#include "kit.h"

#define T0 1000000u

static void open_setup(void)
{
	kit_setup();
	kit_open();
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_OK);
}

static void lose_stream(void)
{
	kit_step((struct sess_event){ .kind = SESS_STREAM_ENDED, .stream = kit_stream(), .status = STATUS_UNAVAILABLE });
}

static void open_in_jeopardy(void)
{
	kit_at(T0 + LEASE_MS + 100);
	ck_assert_int_eq(kit_next(SESS_STATE)->state, HF_JEOPARDY);
	for (uint64_t before = kit_stream(); kit_stream() == before;)
		kit_at(kit.now + 10);
	kit_open(); /* a stream is being resumed all the while */
	ck_assert_int_eq(sess_state(kit.s), HF_JEOPARDY);
}

/* ---- clocks and states ---- */

START_TEST(clock__starts_when_open_was_sent)
{
	kit.now = T0 + 700; /* the answer was long on its way */
	kit_open();
	ck_assert_int_eq(sess_state(kit.s), HF_SAFE);
	ck_assert_uint_eq(sess_remaining_ms(kit.s, kit.now), LEASE_MS - 700);
	ck_assert_uint_eq(sess_cache_remaining_ms(kit.s, kit.now), LEASE_MS - 700);
}
END_TEST

START_TEST(clock__starts_when_the_keep_alive_was_sent)
{
	uint64_t sent, sequence;
	kit_at(T0 + 4000);
	sequence = kit_keep_alive_sequence();
	for (sent = T0 + 3600; sent < T0 + 4000 && sess_remaining_ms(kit.s, sent) > 0; sent++)
		;
	kit.now = T0 + 5500;
	kit_kept_alive(sequence, 5, true);
	ck_assert_uint_le(sess_remaining_ms(kit.s, kit.now), LEASE_MS - 1500);
	ck_assert_uint_ge(sess_remaining_ms(kit.s, kit.now), LEASE_MS - 1900); /* it was sent up to a tenth of the period early */
}
END_TEST

START_TEST(clock__jeopardy_is_told_before_the_cell_may_end_it)
{
	kit_cache("/a", "1", 50);
	kit_at(T0 + LEASE_MS);
	ck_assert_int_eq(kit_next(SESS_STATE)->state, HF_JEOPARDY);
	ck_assert_int_eq(sess_state(kit.s), HF_JEOPARDY);
	ck_assert_uint_eq(sess_remaining_ms(kit.s, kit.now), 0);
	ck_assert(!kit_cached("/a"));
	ck_assert_uint_lt(kit.now, T0 + TTL * 1000 - TTL * 10);
}
END_TEST

START_TEST(clock__is_looked_at_before_what_arrives)
{
	/* The process was stopped; an answer to what was sent long ago is the first thing it sees. */
	uint64_t sequence;
	kit_at(T0 + 4000);
	sequence = kit_keep_alive_sequence();
	kit_cache("/a", "1", 50);
	kit.now = T0 + 60000;
	kit_kept_alive(sequence, 5, true);
	ck_assert_int_eq(kit_next(SESS_STATE)->state, HF_JEOPARDY);
	ck_assert(!kit_any(SESS_STATE));
	ck_assert(!kit_cached("/a"));
}
END_TEST

START_TEST(clock__safe_again_after_an_answer_in_jeopardy)
{
	uint64_t sequence = 0;
	open_in_jeopardy();
	kit.at = 0;
	while (kit_any(SESS_SEND)) {
		Holdfast__V1__SessionRequest *m;
		struct sess_out *o = kit_next(SESS_SEND);
		m = holdfast__v1__session_request__unpack(NULL, o->bytes.len, o->bytes.ptr);
		if (m->request_case == HOLDFAST__V1__SESSION_REQUEST__REQUEST_KEEP_ALIVE)
			sequence = m->keep_alive->sequence;
		kit_sent_free(m);
	}
	kit_kept_alive(sequence, 5, true);
	ck_assert_int_eq(sess_state(kit.s), HF_SAFE);
	ck_assert_uint_gt(sess_remaining_ms(kit.s, kit.now), 0);
}
END_TEST

START_TEST(clock__expired_after_the_grace_period)
{
	kit_at(T0 + LEASE_MS + 44999);
	ck_assert_int_eq(kit_next(SESS_STATE)->state, HF_JEOPARDY);
	ck_assert_int_eq(sess_state(kit.s), HF_JEOPARDY);
	kit_at(T0 + LEASE_MS + 45000);
	ck_assert_int_eq(sess_state(kit.s), HF_EXPIRED);
	ck_assert_int_eq(kit_next(SESS_STATE)->reason, HF_REASON_NO_ANSWER);
	ck_assert_uint_eq(sess_next_ms(kit.s), SESS_NEVER);
}
END_TEST

START_TEST(clock__an_answer_without_the_right_to_cache_leaves_it_as_it_was)
{
	kit_at(T0 + 4000);
	kit_cache("/a", "1", 50);
	kit.at = 0;
	kit_kept_alive(kit_keep_alive_sequence(), 5, false);
	ck_assert(kit_cached("/a"));
	kit_at(T0 + LEASE_MS);
	ck_assert_int_eq(sess_state(kit.s), HF_SAFE);
	ck_assert(!kit_cached("/a"));
	ck_assert_uint_eq(sess_cache_remaining_ms(kit.s, kit.now), 0);
}
END_TEST

START_TEST(open__refused_and_too_late)
{
	kit_step((struct sess_event){ .kind = SESS_STREAM_ENDED, .stream = kit_stream(), .status = STATUS_INVALID_ARGUMENT, .text = slice_of_str("no") });
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_INVALID);
	ck_assert_int_eq(sess_state(kit.s), HF_EXPIRED);
	kit_teardown();
	kit_setup();
	kit_at(T0 + 30000);
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_TIMEOUT);
}
END_TEST

/* ---- streams ---- */

START_TEST(stream__resumes_elsewhere_with_its_secret)
{
	Holdfast__V1__SessionRequest *m;
	uint32_t before = kit.u.at[0].endpoint;
	ck_assert_int_eq(kit.u.at[0].kind, SESS_CONNECT);
	lose_stream();
	ck_assert_uint_ne(kit_next(SESS_CONNECT)->endpoint, before);
	m = kit_sent(HOLDFAST__V1__SESSION_REQUEST__REQUEST_RESUME);
	ck_assert_int_eq(m->resume->session, LEASE);
	ck_assert_uint_eq(m->resume->secret.len, 32);
	ck_assert_int_eq(m->resume->revision, 100);
	kit_sent_free(m);
	kit_keep_alive_sequence(); /* a resume moves no clock */
}
END_TEST

START_TEST(stream__silence_is_left)
{
	kit_at(T0 + 4000);
	kit_keep_alive_sequence();
	ck_assert(!kit_any(SESS_CONNECT));
	kit_at(T0 + 4000 + 3000);
	kit_next(SESS_DROP);
	kit_next(SESS_CONNECT);
}
END_TEST

START_TEST(stream__what_an_old_one_says_is_not_heard)
{
	uint64_t old = kit_stream();
	lose_stream();
	kit_step((struct sess_event){ .kind = SESS_STREAM_ENDED, .stream = old, .status = STATUS_NOT_FOUND });
	ck_assert_int_eq(sess_state(kit.s), HF_SAFE);
}
END_TEST

START_TEST(stream__the_session_is_gone)
{
	lose_stream();
	kit_step((struct sess_event){ .kind = SESS_STREAM_ENDED, .stream = kit_stream(), .status = STATUS_NOT_FOUND,
				      .text = slice_of_str(err_text(ERR_UNKNOWN_SESSION)) });
	ck_assert_int_eq(sess_state(kit.s), HF_EXPIRED);
	ck_assert_int_eq(sess_reason(kit.s), HF_REASON_EXPIRED);
}
END_TEST

START_TEST(stream__taken_over_once_is_resumed_again_and_again_is_the_end)
{
	Holdfast__V1__SessionResponse m = HOLDFAST__V1__SESSION_RESPONSE__INIT;
	Holdfast__V1__SessionEnded e = HOLDFAST__V1__SESSION_ENDED__INIT;
	e.reason = HOLDFAST__V1__SESSION_END__SESSION_TAKEN_OVER;
	m.response_case = HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_ENDED;
	m.ended = &e;
	for (int i = 0; i < 5; i++) {
		ck_assert_int_eq(sess_state(kit.s), HF_SAFE);
		kit_tell(m);
		kit_at(kit.now + 500);
		kit_open();
	}
	ck_assert_int_eq(sess_state(kit.s), HF_EXPIRED);
	ck_assert_int_eq(sess_reason(kit.s), HF_REASON_TAKEN_OVER);
}
END_TEST

START_TEST(stream__closes_in_order)
{
	Holdfast__V1__SessionResponse m = HOLDFAST__V1__SESSION_RESPONSE__INIT;
	Holdfast__V1__SessionEnded e = HOLDFAST__V1__SESSION_ENDED__INIT;
	kit_ask((struct sess_ask){ .kind = SESS_ASK_CALL, .tag = 7, .method = METHOD_NODES_SET });
	kit_ask((struct sess_ask){ .kind = SESS_ASK_CLOSE, .tag = 8, .deadline_ms = T0 + 5000 });
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_CANCELED);
	kit_sent_free(kit_sent(HOLDFAST__V1__SESSION_REQUEST__REQUEST_CLOSE));
	lose_stream();
	kit_open();
	kit_sent_free(kit_sent(HOLDFAST__V1__SESSION_REQUEST__REQUEST_CLOSE)); /* asked again */
	e.reason = HOLDFAST__V1__SESSION_END__SESSION_CLOSED;
	m.response_case = HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_ENDED;
	m.ended = &e;
	kit_tell(m);
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_OK);
	ck_assert_int_eq(sess_state(kit.s), HF_CLOSED);
}
END_TEST

/* ---- calls ---- */

START_TEST(call__sent_again_with_its_id)
{
	struct sess_out *first, *again, *second;
	kit_ask((struct sess_ask){ .kind = SESS_ASK_CALL, .tag = 7, .method = METHOD_NODES_SET, .once = true, .bytes = slice_of_str("x") });
	kit_ask((struct sess_ask){ .kind = SESS_ASK_CALL, .tag = 8, .method = METHOD_NODES_SET, .once = true });
	first = kit_next(SESS_CALL);
	ck_assert_uint_eq(first->request_id, 1);
	second = kit_next(SESS_CALL);
	ck_assert_uint_eq(second->request_id, 2);
	ck_assert_uint_eq(second->first_unanswered, 1);
	lose_stream();
	kit_next(SESS_CANCEL);
	kit_open();
	again = kit_next(SESS_CALL);
	ck_assert_uint_eq(again->request_id, 1);
	ck_assert_uint_eq(again->bytes.len, 1);
	kit_reply(again, STATUS_UNAVAILABLE, "etcdserver: no leader", NULL);
	ck_assert(!kit_any(SESS_ANSWER));
	kit_at(kit.now + 1000);
	kit_next(SESS_CALL); /* the second, on the new stream */
	again = kit_next(SESS_CALL);
	ck_assert_uint_eq(again->request_id, 1);
	kit_reply(again, STATUS_FAILED_PRECONDITION, err_text(ERR_NODE_VERSION), NULL);
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_CONFLICT);
	kit_ask((struct sess_ask){ .kind = SESS_ASK_CALL, .tag = 9, .method = METHOD_NODES_SET, .once = true });
	ck_assert_uint_eq(kit_next(SESS_CALL)->first_unanswered, 2);
}
END_TEST

/* The first attempt may be applied yet; of one that was not sent before it is the answer. */
START_TEST(call__a_refusal_of_what_was_sent_before_is_not_its_end)
{
	struct sess_out *o;
	kit_ask((struct sess_ask){ .kind = SESS_ASK_CALL, .tag = 7, .method = METHOD_NODES_SET, .once = true });
	kit_reply(kit_next(SESS_CALL), STATUS_RESOURCE_EXHAUSTED, err_text(ERR_TOO_MANY_REQUESTS), NULL);
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_BUSY);
	kit_ask((struct sess_ask){ .kind = SESS_ASK_CALL, .tag = 8, .method = METHOD_NODES_SET, .once = true });
	kit_next(SESS_CALL);
	lose_stream();
	kit_open();
	o = kit_next(SESS_CALL);
	kit_reply(o, STATUS_RESOURCE_EXHAUSTED, err_text(ERR_TOO_MANY_REQUESTS), NULL);
	ck_assert(!kit_any(SESS_ANSWER));
	kit_at(kit.now + 200);
	o = kit_next(SESS_CALL);
	ck_assert_uint_eq(o->request_id, 2);
	kit_reply(o, STATUS_OK, "", NULL);
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_OK);
}
END_TEST

START_TEST(call__no_more_ids_than_the_cell_keeps_results)
{
	struct sess_out *oldest;
	int sent = 0;
	for (uint64_t i = 0; i < 100; i++)
		kit_ask((struct sess_ask){ .kind = SESS_ASK_CALL, .tag = 100 + i, .method = METHOD_NODES_SET, .once = true });
	oldest = kit_next(SESS_CALL);
	for (sent = 1; kit_any(SESS_CALL); sent++)
		kit_next(SESS_CALL);
	ck_assert_int_eq(sent, 60);
	kit_reply(oldest, STATUS_OK, "", NULL);
	ck_assert(kit_any(SESS_CALL));
}
END_TEST

START_TEST(call__time_runs_out)
{
	kit_ask((struct sess_ask){ .kind = SESS_ASK_CALL, .tag = 7, .method = METHOD_NODES_SET, .once = true, .deadline_ms = T0 + 1500 });
	kit_at(T0 + 1500);
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_TIMEOUT);
	kit_next(SESS_CANCEL);
}
END_TEST

/* The session is over by the clock, which cancels what is under way: the other alone. */
START_TEST(call__an_answer_after_the_grace_period_is_of_a_call_that_is_over)
{
	struct sess_out *answered, *other, *canceled;
	open_in_jeopardy();
	kit_ask((struct sess_ask){ .kind = SESS_ASK_CALL, .tag = 7, .method = METHOD_NODES_SET });
	answered = kit_next(SESS_CALL);
	kit_ask((struct sess_ask){ .kind = SESS_ASK_CALL, .tag = 8, .method = METHOD_NODES_SET });
	other = kit_next(SESS_CALL);
	kit.now += 45000;
	kit_reply(answered, STATUS_OK, "", NULL);
	ck_assert_int_eq(sess_state(kit.s), HF_EXPIRED);
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_SESSION_LOST);
	canceled = kit_next(SESS_CANCEL);
	ck_assert(canceled->call == other->call && canceled->attempt == other->attempt);
	ck_assert(!kit_any(SESS_CANCEL));
}
END_TEST

/* ---- caches ---- */

START_TEST(cache__values_and_their_absence)
{
	struct sess_cached c;
	kit_cache("/a", "1", 50);
	kit_cache("/none", NULL, 51);
	ck_assert(sess_cache_load(kit.s, slice_of_str("/a"), false, &c));
	ck_assert(c.exists && c.node.mod_revision == 50 && c.node.value.len == 1);
	ck_assert(sess_cache_load(kit.s, slice_of_str("/none"), false, &c));
	ck_assert(!c.exists);
	ck_assert(!kit_cached("/b"));
}
END_TEST

/* The cell would say no; and they would count as misses. */
START_TEST(cache__what_lies_elsewhere_is_not_asked_for)
{
	struct hf_cache_stats stats;
	kit_teardown();
	kit_setup_under("/c");
	kit_open();
	for (size_t i = 0; i < 4; i++) {
		static const struct { const char *path; bool caching; } of[] = { { "/c", true }, { "/c/x", true }, { "/cx", false }, { "/other", false } };
		Holdfast__V1__NodesGetRequest *r;
		struct sess_out *call;
		kit_ask((struct sess_ask){ .kind = SESS_ASK_GET, .tag = 10 + i, .path = slice_of_str(of[i].path) });
		call = kit_next(SESS_CALL);
		r = holdfast__v1__nodes_get_request__unpack(NULL, call->bytes.len, call->bytes.ptr);
		ck_assert(r && (r->cache != 0) == of[i].caching && (r->session != 0) == of[i].caching);
		holdfast__v1__nodes_get_request__free_unpacked(r, NULL);
		kit_value(call, of[i].path, "1", 50, of[i].caching ? 5 : 0);
		ck_assert_int_eq(kit_cached(of[i].path), of[i].caching);
	}
	sess_cache_stats(kit.s, kit.now, &stats);
	ck_assert(stats.misses == 2 && stats.hits == 2 && stats.entries == 2);
}
END_TEST

START_TEST(cache__an_invalidation_drops_and_is_acknowledged)
{
	Holdfast__V1__SessionRequest *m;
	kit_cache("/a", "1", 50);
	kit_cache("/b", "1", 50);
	kit_invalidate(1, 5, "/a", false);
	ck_assert(!kit_cached("/a"));
	ck_assert(kit_cached("/b"));
	m = kit_sent(HOLDFAST__V1__SESSION_REQUEST__REQUEST_ACK);
	ck_assert(m->ack->number == 1 && m->ack->term == 5);
	kit_sent_free(m);
	kit_invalidate(2, 5, NULL, true);
	ck_assert(!kit_cached("/b"));
}
END_TEST

START_TEST(cache__an_answer_under_way_is_renounced)
{
	struct sess_out *call;
	kit_ask((struct sess_ask){ .kind = SESS_ASK_GET, .tag = 7, .path = slice_of_str("/a") });
	call = kit_next(SESS_CALL);
	kit_invalidate(1, 5, "/a", false);
	kit_value(call, "/a", "old", 50, 5);
	ck_assert(!kit_cached("/a"));
	kit_ask((struct sess_ask){ .kind = SESS_ASK_GET, .tag = 8, .path = slice_of_str("/a") });
	call = kit_next(SESS_CALL);
	kit_invalidate(2, 5, "/other", false);
	kit_value(call, "/a", "new", 60, 5);
	ck_assert(kit_cached("/a"));
}
END_TEST

START_TEST(cache__a_new_term_empties_it)
{
	struct sess_out *call;
	kit_cache("/a", "1", 50);
	kit_ask((struct sess_ask){ .kind = SESS_ASK_GET, .tag = 7, .path = slice_of_str("/b") });
	call = kit_next(SESS_CALL);
	kit_invalidate(1, 6, NULL, false);
	ck_assert_uint_eq(sess_term(kit.s), 6);
	ck_assert(!kit_cached("/a"));
	kit_value(call, "/b", "of the term before", 50, 5);
	ck_assert(!kit_cached("/b"));
	/* And what an older leader says means nothing any more: not even an acknowledgement. */
	while (kit_any(SESS_SEND))
		kit_next(SESS_SEND);
	kit_cache("/a", "1", 50);
	kit_invalidate(9, 5, "/a", true);
	ck_assert(kit_cached("/a"));
	ck_assert(!kit_any(SESS_SEND));
}
END_TEST

START_TEST(cache__any_reply_may_tell_the_term)
{
	Holdfast__V1__NodesSetResponse r = HOLDFAST__V1__NODES_SET_RESPONSE__INIT;
	Etcdserverpb__ResponseHeader h = ETCDSERVERPB__RESPONSE_HEADER__INIT;
	kit_cache("/a", "1", 50);
	kit_ask((struct sess_ask){ .kind = SESS_ASK_CALL, .tag = 7, .method = METHOD_NODES_SET });
	h.cluster_id = 1;
	h.revision = 200;
	h.raft_term = 9;
	r.header = &h;
	kit_reply(kit_next(SESS_CALL), STATUS_OK, "", &r.base);
	ck_assert_uint_eq(sess_term(kit.s), 9);
	ck_assert(!kit_cached("/a"));
}
END_TEST

START_TEST(cache__the_clock_is_read_after_the_value_was_loaded)
{
	struct sess_cached c;
	kit_cache("/a", "1", 50);
	ck_assert(sess_cache_load(kit.s, slice_of_str("/a"), false, &c));
	/* Stopped here for a while. */
	ck_assert(!sess_cache_confirm(kit.s, &c, T0 + LEASE_MS));
	ck_assert(sess_cache_confirm(kit.s, &c, T0 + LEASE_MS - 1));
}
END_TEST

START_TEST(cache__an_unheard_number_empties_it)
{
	kit_cache("/a", "1", 50);
	kit_invalidate(1, 5, "/x", false);
	ck_assert(kit_cached("/a"));
	kit_invalidate(3, 5, "/x", false);
	ck_assert(!kit_cached("/a"));
}
END_TEST

START_TEST(cache__has_a_bound)
{
	char path[16];
	struct hf_cache_stats stats;
	for (int i = 0; i < 150; i++) {
		snprintf(path, sizeof(path), "/k%d", i);
		kit_cache(path, "v", 50);
	}
	sess_cache_stats(kit.s, kit.now, &stats);
	ck_assert_uint_eq(stats.entries, 100);
	ck_assert(!kit_cached("/k0"));
	ck_assert(kit_cached("/k149"));
}
END_TEST

/* ---- watches ---- */

static struct sess_out *arm(uint64_t tag)
{
	kit_ask((struct sess_ask){ .kind = SESS_ASK_WATCH, .tag = tag, .path = slice_of_str("/w") });
	return kit_next(SESS_CALL);
}

static void event_of(uint64_t watch, Holdfast__V1__NodeChange change, int64_t revision)
{
	Holdfast__V1__SessionResponse m = HOLDFAST__V1__SESSION_RESPONSE__INIT;
	Holdfast__V1__SessionEvent e = HOLDFAST__V1__SESSION_EVENT__INIT;
	e.watch = watch;
	e.change = change;
	e.path = (char *)(uintptr_t)"/w";
	e.revision = revision;
	m.response_case = HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_EVENT;
	m.event = &e;
	kit_tell(m);
}

static void event(uint64_t watch, int64_t revision)
{
	event_of(watch, HOLDFAST__V1__NODE_CHANGE__NODE_CHANGED, revision);
}

START_TEST(watch__fires_once)
{
	struct sess_out *o;
	kit_value(arm(7), "/w", "1", 50, 0);
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_OK);
	event(1, 60);
	o = kit_next(SESS_FIRED);
	ck_assert(o->tag == 7 && o->code == HF_OK && o->revision == 60);
	event(1, 61);
	ck_assert(!kit_any(SESS_FIRED));
}
END_TEST

START_TEST(watch__an_event_may_come_before_its_answer)
{
	struct sess_out *call = arm(7);
	event(1, 60);
	ck_assert(!kit_any(SESS_FIRED));
	kit_value(call, "/w", "1", 50, 0);
	kit_next(SESS_ANSWER);
	ck_assert_int_eq(kit_next(SESS_FIRED)->revision, 60);
}
END_TEST

START_TEST(watch__its_right_is_taken_away)
{
	struct sess_out *o, *call;
	kit_value(arm(7), "/w", "1", 50, 0);
	kit_next(SESS_ANSWER);
	event_of(1, HOLDFAST__V1__NODE_CHANGE__NODE_DENIED, 50);
	o = kit_next(SESS_FIRED);
	ck_assert(o->tag == 7 && o->code == HF_DENIED);
	call = arm(8); /* before its answer, at the same revision */
	event_of(2, HOLDFAST__V1__NODE_CHANGE__NODE_DENIED, 50);
	kit_value(call, "/w", "1", 50, 0);
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_OK);
	ck_assert_int_eq(kit_next(SESS_FIRED)->code, HF_DENIED);
}
END_TEST

START_TEST(watch__is_armed_again_and_sees_what_it_missed)
{
	kit_value(arm(7), "/w", "1", 50, 0);
	kit_next(SESS_ANSWER);
	lose_stream();
	kit_open();
	kit_value(kit_next(SESS_CALL), "/w", "1", 50, 0); /* the same: still armed */
	ck_assert(!kit_any(SESS_FIRED));
	lose_stream();
	kit_open();
	kit_value(kit_next(SESS_CALL), "/w", NULL, 70, 0);
	ck_assert_int_eq(kit_next(SESS_FIRED)->change, HF_DELETED);
}
END_TEST

START_TEST(watch__follows_a_value)
{
	kit_ask((struct sess_ask){ .kind = SESS_ASK_FOLLOW, .tag = 7, .path = slice_of_str("/w") });
	kit_value(kit_next(SESS_CALL), "/w", "1", 50, 0);
	ck_assert_int_eq(kit_next(SESS_TOLD)->code, HF_OK);
	event(1, 60);
	kit_value(kit_next(SESS_CALL), "/w", "3", 62, 0);
	ck_assert_int_eq(kit_next(SESS_TOLD)->code, HF_OK);
	lose_stream();
	kit_open();
	kit_value(kit_next(SESS_CALL), "/w", "3", 62, 0); /* known */
	ck_assert(!kit_any(SESS_TOLD));
	event(1, 80);
	kit_value(kit_next(SESS_CALL), "/w", NULL, 80, 0);
	ck_assert_int_eq(kit_next(SESS_TOLD)->code, HF_NOT_FOUND);
	kit_at(kit.now + 100000);
	ck_assert_int_eq(kit_next(SESS_TOLD)->code, HF_SESSION_LOST);
}
END_TEST

/* ---- holds ---- */

static void grant(const struct sess_out *call, int64_t token)
{
	V3lockpb__LockResponse r = V3LOCKPB__LOCK_RESPONSE__INIT;
	r.key = (ProtobufCBinaryData){ .data = (uint8_t *)(uintptr_t)"l/4d", .len = 4 };
	r.fencing_token = token;
	kit_reply(call, STATUS_OK, "", &r.base);
}

static struct sess_out *lock(uint64_t tag, int64_t wait_ms)
{
	kit_ask((struct sess_ask){ .kind = SESS_ASK_LOCK, .tag = tag, .name = slice_of_str("l"), .wait_ms = wait_ms });
	return kit_next(SESS_CALL);
}

START_TEST(hold__granted_and_given_up)
{
	struct sess_out *o;
	grant(lock(7, -1), 40);
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_OK);
	ck_assert_int_eq(sess_hold_token(kit.s, 7), 40);
	ck_assert_int_eq(kit_next(SESS_CALL)->method, METHOD_WATCH_WATCH);
	kit_ask((struct sess_ask){ .kind = SESS_ASK_LOCK, .tag = 8, .name = slice_of_str("l"), .wait_ms = -1 });
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_BUSY);
	kit_ask((struct sess_ask){ .kind = SESS_ASK_UNLOCK, .tag = 9, .hold = 7 });
	ck_assert_int_eq(sess_hold_token(kit.s, 7), 0);
	o = kit_next(SESS_CALL);
	ck_assert_int_eq(o->method, METHOD_LOCK_UNLOCK);
	kit_reply(o, STATUS_UNAVAILABLE, "", NULL);
	ck_assert(!kit_any(SESS_ANSWER));
	kit_at(kit.now + 1000);
	kit_reply(kit_next(SESS_CALL), STATUS_OK, "", NULL);
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_OK);
}
END_TEST

START_TEST(hold__is_lost_with_the_session)
{
	grant(lock(7, -1), 40);
	kit_next(SESS_ANSWER);
	kit_at(T0 + LEASE_MS);
	ck_assert(!kit_any(SESS_LOST)); /* in jeopardy: whoever acts asks how long the session is safe, which is not at all */
	ck_assert_uint_eq(sess_remaining_ms(kit.s, kit.now), 0);
	kit_at(T0 + LEASE_MS + 45000);
	ck_assert_int_eq(kit_next(SESS_LOST)->reason, HF_REASON_NO_ANSWER);
	ck_assert_int_eq(sess_hold_token(kit.s, 7), 0);
	kit_ask((struct sess_ask){ .kind = SESS_ASK_UNLOCK, .tag = 9, .hold = 7 });
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_SESSION_LOST);
}
END_TEST

START_TEST(hold__is_lost_when_it_is_broken)
{
	Etcdserverpb__WatchResponse w = ETCDSERVERPB__WATCH_RESPONSE__INIT;
	Mvccpb__Event e = MVCCPB__EVENT__INIT, *events = &e;
	uint8_t bytes[256];
	struct sess_out *guard;
	grant(lock(7, -1), 40);
	kit_next(SESS_ANSWER);
	guard = kit_next(SESS_CALL);
	e.type = MVCCPB__EVENT__EVENT_TYPE__DELETE;
	w.n_events = 1;
	w.events = &events;
	kit_step((struct sess_event){ .kind = SESS_PART, .call = guard->call, .attempt = guard->attempt,
				      .bytes = slice_of(bytes, etcdserverpb__watch_response__pack(&w, bytes)) });
	ck_assert_int_eq(kit_next(SESS_LOST)->reason, HF_REASON_BROKEN);
	ck_assert_int_eq(sess_state(kit.s), HF_SAFE);
}
END_TEST

static struct sess_out copy_of(const struct sess_out *call)
{
	return (struct sess_out){ .call = call->call, .attempt = call->attempt, .request_id = call->request_id };
}

static void gone(const struct sess_out *call)
{
	kit_reply(call, (int)err_status(ERR_NOT_CONTENDER), err_text(ERR_NOT_CONTENDER), NULL);
}

/* A Lock that is given up while it is under way, and the name asked for again, which waits. Returns the Unlock. */
static struct sess_out give_up(struct sess_out *ret_lock)
{
	struct sess_out *o;
	*ret_lock = copy_of(lock(7, 1000));
	kit_at(T0 + 1000 + 3000);
	ck_assert(!kit_any(SESS_CANCEL)); /* L1 of hold.c: it ends by the Unlock */
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_TIMEOUT);
	o = kit_next(SESS_CALL);
	ck_assert_int_eq(o->method, METHOD_LOCK_UNLOCK);
	kit_ask((struct sess_ask){ .kind = SESS_ASK_LOCK, .tag = 8, .name = slice_of_str("l"), .wait_ms = -1 });
	ck_assert(!kit_any(SESS_CALL));
	return copy_of(o);
}

static struct sess_out unlock_follows(int64_t token)
{
	V3lockpb__UnlockRequest *u;
	struct sess_out *o = kit_next(SESS_CALL);
	ck_assert_int_eq(o->method, METHOD_LOCK_UNLOCK);
	u = v3lockpb__unlock_request__unpack(NULL, o->bytes.len, o->bytes.ptr);
	ck_assert(u && u->fencing_token == token && u->key.len == strlen("l/4d") && memcmp(u->key.data, "l/4d", u->key.len) == 0);
	v3lockpb__unlock_request__free_unpacked(u, NULL);
	return copy_of(o);
}

static void asks_again(void)
{
	ck_assert_int_eq(kit_next(SESS_CALL)->method, METHOD_LOCK_LOCK);
}

START_TEST(hold__what_was_not_waited_for_is_given_up_before_it_is_asked_again)
{
	struct sess_out asked, unlock = give_up(&asked);
	gone(&asked);
	ck_assert(!kit_any(SESS_CALL));
	kit_reply(&unlock, STATUS_OK, "", NULL);
	asks_again();
}
END_TEST

START_TEST(hold__an_unlock_may_be_answered_before_its_lock)
{
	struct sess_out asked, unlock = give_up(&asked);
	kit_reply(&unlock, STATUS_OK, "", NULL);
	ck_assert(!kit_any(SESS_CALL));
	gone(&asked);
	asks_again();
}
END_TEST

START_TEST(hold__a_lock_may_come_behind_its_unlock)
{
	struct sess_out asked, unlock = give_up(&asked), second;
	kit_reply(&unlock, STATUS_OK, "", NULL);
	kit_at(kit.now + 100);
	second = unlock_follows(0); /* for as long as the Lock has no end */
	ck_assert_uint_gt(second.request_id, unlock.request_id);
	if (_i) {
		grant(&asked, 40);
		kit_reply(&second, STATUS_OK, "", NULL); /* it may have been there before */
		second = unlock_follows(40);
		kit_reply(&second, (int)err_status(ERR_NOT_CONTENDER), err_text(ERR_NOT_CONTENDER), NULL);
	} else {
		gone(&asked);
		ck_assert(!kit_any(SESS_CALL)); /* L2 */
		kit_reply(&second, STATUS_OK, "", NULL);
	}
	asks_again();
	ck_assert_int_eq(sess_hold_token(kit.s, 7), 0);
}
END_TEST

/* It may wait behind another's, where the Unlocks find nothing: they come ever more seldom. */
START_TEST(hold__unlocks_of_a_lock_without_an_end_become_seldom)
{
	struct sess_out asked, unlock = give_up(&asked);
	uint64_t began = kit.now;
	int sent = 1;
	kit_reply(&unlock, STATUS_OK, "", NULL);
	while (kit.now < began + 2900) {
		kit_at(kit.now + 10);
		if (!kit_any(SESS_CALL))
			continue;
		unlock = unlock_follows(0);
		kit_reply(&unlock, STATUS_OK, "", NULL);
		sent++;
	}
	ck_assert_int_ge(sent, 4);
	ck_assert_int_le(sent, 10);
}
END_TEST

START_TEST(hold__a_grant_that_comes_after_it_was_given_up_is_given_up)
{
	struct sess_out asked, unlock = give_up(&asked);
	grant(&asked, 40);
	ck_assert(!kit_any(SESS_ANSWER) && !kit_any(SESS_CALL));
	kit_reply(&unlock, STATUS_OK, "", NULL);
	unlock = unlock_follows(40);
	kit_reply(&unlock, STATUS_OK, "", NULL);
	asks_again();
}
END_TEST

START_TEST(hold__what_a_lock_left_that_was_lost_with_its_stream_is_given_up)
{
	struct sess_out asked, unlock = give_up(&asked), second;
	lose_stream();
	ck_assert(kit_next(SESS_CANCEL)->call == asked.call || kit_next(SESS_CANCEL)->call == asked.call);
	kit_open();
	second = unlock_follows(0);
	ck_assert_uint_eq(second.request_id, unlock.request_id); /* L2: it may have been carried out, and before the Lock */
	kit_reply(&second, STATUS_OK, "", NULL);
	second = unlock_follows(0);
	ck_assert_uint_gt(second.request_id, unlock.request_id);
	kit_reply(&second, STATUS_OK, "", NULL);
	asks_again();
}
END_TEST

/* L4: it may be what keeps the Unlock from being sent. */
START_TEST(hold__a_lock_that_was_given_up_is_not_waited_for_for_ever)
{
	struct sess_out asked, unlock = give_up(&asked);
	kit_kept_alive(1, 5, true); /* the replica is there */
	kit_at(kit.now + 2999);
	ck_assert(!kit_any(SESS_CANCEL));
	kit_at(kit.now + 1);
	ck_assert_uint_eq(kit_next(SESS_CANCEL)->call, asked.call);
	ck_assert(!kit_any(SESS_CALL)); /* L2 */
	kit_reply(&unlock, STATUS_OK, "", NULL);
	unlock = unlock_follows(0);
	kit_reply(&unlock, STATUS_OK, "", NULL);
	asks_again();
}
END_TEST

START_TEST(hold__a_lock_that_may_not_be_unlocked_is_cancelled)
{
	struct sess_out asked, unlock = give_up(&asked);
	kit_reply(&unlock, STATUS_PERMISSION_DENIED, err_text(ERR_PERMISSION_DENIED), NULL);
	ck_assert_uint_eq(kit_next(SESS_CANCEL)->call, asked.call);
	asks_again();
}
END_TEST

START_TEST(hold__a_refusal_of_what_was_asked_before_gives_the_place_up)
{
	struct sess_out *o = lock(7, -1);
	kit_reply(o, STATUS_UNAVAILABLE, "", NULL); /* it may have a place in the queue by now */
	kit_at(kit.now + 200);
	kit_reply(kit_next(SESS_CALL), STATUS_RESOURCE_EXHAUSTED, err_text(ERR_TOO_MANY_REQUESTS), NULL);
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_BUSY);
	o = kit_next(SESS_CALL);
	ck_assert_int_eq(o->method, METHOD_LOCK_UNLOCK);
	ck_assert_uint_ne(o->request_id, 0); /* it names no token: late and twice it could free what is held by then */
	kit_ask((struct sess_ask){ .kind = SESS_ASK_LOCK, .tag = 8, .name = slice_of_str("l"), .wait_ms = -1 });
	ck_assert(!kit_any(SESS_CALL));
	kit_reply(o, STATUS_OK, "", NULL);
	ck_assert_int_eq(kit_next(SESS_CALL)->method, METHOD_LOCK_LOCK);
}
END_TEST

/* By the connection, or whatever is on the way: the cell may have carried it out. */
START_TEST(hold__a_failure_that_is_not_the_cells_gives_the_place_up)
{
	struct sess_out *o = lock(7, -1);
	kit_reply(o, _i == 0 ? STATUS_INTERNAL : STATUS_UNKNOWN, "Received RST_STREAM with error code 2", NULL);
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_FAILED);
	o = kit_next(SESS_CALL);
	ck_assert_int_eq(o->method, METHOD_LOCK_UNLOCK);
	kit_reply(o, STATUS_OK, "", NULL);
	ck_assert_int_eq(lock(8, 0)->method, METHOD_LOCK_LOCK);
}
END_TEST

START_TEST(hold__a_refusal_of_the_first_attempt_is_all)
{
	kit_reply(lock(7, 0), STATUS_FAILED_PRECONDITION, err_text(ERR_LOCK_HELD), NULL);
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_HELD);
	ck_assert(!kit_any(SESS_CALL));
	ck_assert_int_eq(lock(8, 0)->method, METHOD_LOCK_LOCK);
}
END_TEST

START_TEST(hold__is_asked_for_again_when_we_were_in_our_own_way)
{
	static const enum err ways[] = { ERR_NOT_CONTENDER, ERR_LOCK_MODE_CHANGED, ERR_SESSION_ELSEWHERE };
	struct sess_out *o = lock(7, -1);
	for (size_t i = 0; i < 12; i++) {
		kit_reply(o, (int)err_status(ways[i % 3]), err_text(ways[i % 3]), NULL);
		ck_assert(!kit_any(SESS_ANSWER));
		lose_stream(); /* or by and by */
		kit_open();
		o = kit_next(SESS_CALL);
		ck_assert_int_eq(o->method, METHOD_LOCK_LOCK);
	}
	/* Not for ever: somebody else may use this lease. */
	kit_reply(o, (int)err_status(ERR_LOCK_MODE_CHANGED), err_text(ERR_LOCK_MODE_CHANGED), NULL);
	ck_assert_int_eq(kit_next(SESS_ANSWER)->code, HF_CONFLICT);
}
END_TEST

START_TEST(hold__counts_only_where_the_session_is_connected)
{
	struct sess_out *o = lock(7, -1);
	V3lockpb__LockRequest *l = v3lockpb__lock_request__unpack(NULL, o->bytes.len, o->bytes.ptr);
	V3electionpb__CampaignRequest *c;
	ck_assert(l && l->with_stream && l->stream == (int64_t)kit_stream());
	v3lockpb__lock_request__free_unpacked(l, NULL);
	kit_ask((struct sess_ask){ .kind = SESS_ASK_CAMPAIGN, .tag = 8, .name = slice_of_str("e"), .wait_ms = -1 });
	o = kit_next(SESS_CALL);
	c = v3electionpb__campaign_request__unpack(NULL, o->bytes.len, o->bytes.ptr);
	ck_assert(c && c->with_stream && c->stream == (int64_t)kit_stream());
	v3electionpb__campaign_request__free_unpacked(c, NULL);
}
END_TEST

/* Asks for a lock, loses the cell until the session is in jeopardy, and has the lock granted then. Returns the keep-alive that is unanswered. */
static uint64_t grant_in_jeopardy(int64_t wait_ms)
{
	struct sess_out *o = NULL;
	uint64_t sequence = 0;
	lock(7, wait_ms);
	kit_at(T0 + LEASE_MS + 10);
	ck_assert_int_eq(sess_state(kit.s), HF_JEOPARDY);
	for (uint64_t before = kit_stream(); kit_stream() == before;)
		kit_at(kit.now + 10);
	kit_open();
	kit.at = 0;
	while (kit_any(SESS_CALL))
		o = kit_next(SESS_CALL);
	ck_assert_ptr_nonnull(o);
	kit.at = 0;
	while (kit_any(SESS_SEND)) {
		Holdfast__V1__SessionRequest *m;
		struct sess_out *s = kit_next(SESS_SEND);
		m = holdfast__v1__session_request__unpack(NULL, s->bytes.len, s->bytes.ptr);
		if (m->request_case == HOLDFAST__V1__SESSION_REQUEST__REQUEST_KEEP_ALIVE)
			sequence = m->keep_alive->sequence;
		kit_sent_free(m);
	}
	grant(o, 40);
	ck_assert_int_eq(sess_hold_token(kit.s, 7), 0);
	return sequence;
}

START_TEST(hold__a_grant_in_jeopardy_is_told_when_it_is_safe)
{
	kit_kept_alive(grant_in_jeopardy(-1), 5, true);
	ck_assert_int_eq(sess_state(kit.s), HF_SAFE);
	ck_assert_int_eq(sess_hold_token(kit.s, 7), 40);
}
END_TEST

START_TEST(hold__a_bounded_wait_has_its_bound_in_jeopardy_too)
{
	V3lockpb__UnlockRequest *u;
	struct sess_out *o;
	grant_in_jeopardy(20000);
	kit_at(T0 + 20000 + 2999);
	ck_assert(!kit_any(SESS_ANSWER));
	kit_at(T0 + 20000 + 3000);
	ck_assert_int_eq(sess_state(kit.s), HF_JEOPARDY);
	o = kit_next(SESS_ANSWER);
	ck_assert(o->tag == 7 && o->code == HF_TIMEOUT);
	while (!kit_any(SESS_CALL)) { /* as soon as there is a stream again */
		kit_at(kit.now + 10);
		kit_open();
	}
	o = kit_next(SESS_CALL);
	ck_assert_int_eq(o->method, METHOD_LOCK_UNLOCK);
	u = v3lockpb__unlock_request__unpack(NULL, o->bytes.len, o->bytes.ptr);
	ck_assert(u && u->fencing_token == 40);
	v3lockpb__unlock_request__free_unpacked(u, NULL);
	ck_assert_int_eq(sess_hold_token(kit.s, 7), 0);
}
END_TEST

/* ---- leaders ---- */

static void leads(const struct sess_out *call, int64_t token, int64_t mod)
{
	V3electionpb__LeaderResponse r = V3ELECTIONPB__LEADER_RESPONSE__INIT;
	Mvccpb__KeyValue kv = MVCCPB__KEY_VALUE__INIT;
	uint8_t bytes[256];
	kv.create_revision = token;
	kv.mod_revision = mod;
	r.kv = token ? &kv : NULL;
	r.vacant = token == 0;
	kit_step((struct sess_event){ .kind = SESS_PART, .call = call->call, .attempt = call->attempt,
				      .bytes = slice_of(bytes, v3electionpb__leader_response__pack(&r, bytes)) });
}

START_TEST(observe__tells_each_leader_once)
{
	struct sess_out *o;
	kit_ask((struct sess_ask){ .kind = SESS_ASK_OBSERVE, .tag = 7, .name = slice_of_str("e") });
	o = kit_next(SESS_CALL);
	leads(o, 40, 40);
	ck_assert_int_eq(kit_next(SESS_TOLD)->code, HF_OK);
	leads(o, 40, 60); /* another value */
	ck_assert_int_eq(kit_next(SESS_TOLD)->code, HF_OK);
	leads(o, 50, 50); /* it waited while that was published */
	ck_assert_int_eq(kit_next(SESS_TOLD)->code, HF_OK);
	lose_stream();
	kit_open();
	o = kit_next(SESS_CALL);
	leads(o, 40, 60); /* a replica that is behind */
	leads(o, 50, 50);
	ck_assert(!kit_any(SESS_TOLD));
	leads(o, 0, 0);
	ck_assert_int_eq(kit_next(SESS_TOLD)->code, HF_NOT_FOUND);
	leads(o, 0, 0);
	leads(o, 40, 60); /* behind again */
	ck_assert(!kit_any(SESS_TOLD));
	leads(o, 70, 70);
	ck_assert_int_eq(kit_next(SESS_TOLD)->code, HF_OK);
}
END_TEST

/* ---- whatever comes from outside ---- */

static void mutate(struct rng *r, uint8_t *bytes, size_t *len, size_t cap)
{
	for (uint64_t n = rng_below(r, 4); n > 0; n--) {
		if (*len > 0 && rng_chance(r, 700000))
			bytes[rng_below(r, *len)] = (uint8_t)rng_next(r);
		else if (*len < cap && rng_chance(r, 500000))
			bytes[(*len)++] = (uint8_t)rng_next(r);
		else if (*len > 0)
			*len -= rng_below(r, *len);
	}
}

static size_t some_message(struct rng *r, uint8_t *ret)
{
	Holdfast__V1__SessionResponse m = HOLDFAST__V1__SESSION_RESPONSE__INIT;
	Holdfast__V1__SessionOpened o = HOLDFAST__V1__SESSION_OPENED__INIT;
	Holdfast__V1__SessionKeptAlive k = HOLDFAST__V1__SESSION_KEPT_ALIVE__INIT;
	Holdfast__V1__SessionInvalidation v = HOLDFAST__V1__SESSION_INVALIDATION__INIT;
	Holdfast__V1__SessionEvent e = HOLDFAST__V1__SESSION_EVENT__INIT;
	Holdfast__V1__SessionFailOver f = HOLDFAST__V1__SESSION_FAIL_OVER__INIT;
	Holdfast__V1__NodeItem item = HOLDFAST__V1__NODE_ITEM__INIT, *items = &item;
	m.response_case = (Holdfast__V1__SessionResponse__ResponseCase)rng_between(r, 1, 5);
	m.opened = &o;
	o.session = LEASE;
	o.ttl = k.ttl = (int64_t)rng_next(r) >> rng_below(r, 64);
	o.term = k.term = v.term = f.term = rng_below(r, 9);
	k.sequence = rng_below(r, 30);
	k.cache_extended = 1;
	v.number = rng_next(r) >> rng_below(r, 64);
	v.n_items = rng_below(r, 2);
	v.items = &items;
	item.path = (char *)(uintptr_t)"/a";
	e.watch = rng_below(r, 4);
	switch (m.response_case) {
	case HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_KEPT_ALIVE: m.kept_alive = &k; break;
	case HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_INVALIDATION: m.invalidation = &v; break;
	case HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_EVENT: m.event = &e; break;
	case HOLDFAST__V1__SESSION_RESPONSE__RESPONSE_FAIL_OVER: m.fail_over = &f; break;
	default: break;
	}
	return holdfast__v1__session_response__pack(&m, ret);
}

/* A replica that makes no sense ends nothing but its own stream, and no promise: the clock never goes beyond what was sent. */
START_TEST(outside__bytes_of_any_kind)
{
	struct rng r;
	uint8_t bytes[512];
	uint64_t tag = 100;
	rng_init(&r, (uint64_t)_i + 1);
	for (int n = 0; n < 400; n++) {
		size_t len = some_message(&r, bytes);
		struct sess_event e = { .kind = rng_chance(&r, 800000) ? SESS_STREAM_MESSAGE : rng_chance(&r, 500000) ? SESS_PART : SESS_REPLY,
					.stream = kit_stream(), .call = rng_below(&r, 12), .attempt = (uint32_t)rng_between(&r, 1, 3), .bytes = { bytes, 0 } };
		if (rng_chance(&r, 700000))
			mutate(&r, bytes, &len, 400);
		e.bytes.len = len;
		kit.now += rng_below(&r, 300);
		e.now_ms = kit.now;
		sess_step(kit.s, &e);
		if (rng_chance(&r, 100000)) {
			struct sess_ask a = { .kind = (enum sess_ask_kind)rng_below(&r, SESS_ASK_CLOSE), .tag = ++tag, .hold = tag - 1, .method = METHOD_NODES_SET,
					      .wait_ms = -1, .deadline_ms = SESS_NEVER, .name = slice_of_str("l"), .path = slice_of_str("/a") };
			e = (struct sess_event){ .kind = SESS_ASK, .now_ms = kit.now, .ask = a };
			sess_step(kit.s, &e);
		}
		sess_update_free(&kit.u);
		sess_take(kit.s, &kit.u);
		for (size_t i = 0; i < kit.u.len; i++)
			ck_assert_int_le(kit.u.at[i].kind, SESS_LOST);
	}
}
END_TEST

static void add(Suite *s, const char *name, void (*setup)(void), const TTest *const *tests, size_t len)
{
	TCase *t = tcase_create(name);
	tcase_add_checked_fixture(t, setup, kit_teardown);
	for (size_t i = 0; i < len; i++)
		tcase_add_test(t, tests[i]);
	suite_add_tcase(s, t);
}

#define ADD(s, name, setup, ...)                                                \
	do {                                                                    \
		const TTest *const tests[] = { __VA_ARGS__ };                   \
		add(s, name, setup, tests, sizeof(tests) / sizeof(tests[0]));   \
	} while (0)

int main(void)
{
	Suite *s = suite_create("sess");
	TCase *late, *outside;
	SRunner *r;
	int failed;
	ADD(s, "opening", kit_setup, clock__starts_when_open_was_sent, open__refused_and_too_late);
	ADD(s, "clock", open_setup, clock__starts_when_the_keep_alive_was_sent, clock__jeopardy_is_told_before_the_cell_may_end_it,
	    clock__is_looked_at_before_what_arrives, clock__safe_again_after_an_answer_in_jeopardy, clock__expired_after_the_grace_period,
	    clock__an_answer_without_the_right_to_cache_leaves_it_as_it_was);
	ADD(s, "stream", open_setup, stream__resumes_elsewhere_with_its_secret, stream__silence_is_left, stream__what_an_old_one_says_is_not_heard,
	    stream__the_session_is_gone, stream__taken_over_once_is_resumed_again_and_again_is_the_end, stream__closes_in_order);
	ADD(s, "call", open_setup, call__sent_again_with_its_id, call__a_refusal_of_what_was_sent_before_is_not_its_end, call__no_more_ids_than_the_cell_keeps_results, call__time_runs_out,
	    call__an_answer_after_the_grace_period_is_of_a_call_that_is_over);
	ADD(s, "cache", open_setup, cache__values_and_their_absence, cache__what_lies_elsewhere_is_not_asked_for, cache__an_invalidation_drops_and_is_acknowledged,
	    cache__an_answer_under_way_is_renounced, cache__a_new_term_empties_it, cache__any_reply_may_tell_the_term,
	    cache__the_clock_is_read_after_the_value_was_loaded, cache__an_unheard_number_empties_it, cache__has_a_bound);
	ADD(s, "watch", open_setup, watch__fires_once, watch__an_event_may_come_before_its_answer, watch__its_right_is_taken_away, watch__is_armed_again_and_sees_what_it_missed,
	    watch__follows_a_value);
	ADD(s, "hold", open_setup, hold__granted_and_given_up, hold__is_lost_with_the_session, hold__is_lost_when_it_is_broken,
	    hold__what_was_not_waited_for_is_given_up_before_it_is_asked_again, hold__an_unlock_may_be_answered_before_its_lock,
	    hold__unlocks_of_a_lock_without_an_end_become_seldom,
	    hold__a_grant_that_comes_after_it_was_given_up_is_given_up, hold__what_a_lock_left_that_was_lost_with_its_stream_is_given_up,
	    hold__a_lock_that_was_given_up_is_not_waited_for_for_ever, hold__a_lock_that_may_not_be_unlocked_is_cancelled, hold__a_grant_in_jeopardy_is_told_when_it_is_safe,
	    hold__a_bounded_wait_has_its_bound_in_jeopardy_too, hold__a_refusal_of_what_was_asked_before_gives_the_place_up,
	    hold__a_refusal_of_the_first_attempt_is_all, hold__is_asked_for_again_when_we_were_in_our_own_way, hold__counts_only_where_the_session_is_connected,
	    observe__tells_each_leader_once);
	late = tcase_create("late");
	tcase_add_checked_fixture(late, open_setup, kit_teardown);
	tcase_add_loop_test(late, hold__a_lock_may_come_behind_its_unlock, 0, 2);
	tcase_add_loop_test(late, hold__a_failure_that_is_not_the_cells_gives_the_place_up, 0, 2);
	suite_add_tcase(s, late);
	outside = tcase_create("outside");
	tcase_add_checked_fixture(outside, open_setup, kit_teardown);
	tcase_add_loop_test(outside, outside__bytes_of_any_kind, 0, 60);
	suite_add_tcase(s, outside);
	r = srunner_create(s);
	srunner_run_all(r, CK_ENV);
	failed = srunner_ntests_failed(r);
	srunner_free(r);
	return failed ? EXIT_FAILURE : EXIT_SUCCESS;
}
