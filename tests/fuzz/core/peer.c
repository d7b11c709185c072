/* peer.c: what peers say, to a live core. Whatever it is: no crash, and the core's invariants hold.
 *
 * Input: items. OP_RAW: a whole PeerMessage. OP_FROM_1, OP_FROM_2: a body (its field's number, then the bytes) in an envelope that is in order.
 * OP_TIME: milliseconds. OP_REQUEST: a call of our own. OP_LOST, OP_HOLD, OP_GAP: a broken stream, a slow disk, a pause.
 * OP_NEAR: a message of raft in order by itself, whose numbers lie near those of this replica: a peer that contradicts what is agreed. */
#include "base/mem.h"
#include "core/raft/raft_codec.h"
#include "driver.h"
#include "etcd/rpc.pb-c.h"
#include "etcd/v3lock.pb-c.h"
#include "rig.h"
#include "sessions.h"

#define KIND_APPEND HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__RAFT_APPEND

static void request(struct rig *r, enum method_id method)
{
	static const char put[] = "\x0a\x01k\x12\x01v", get[] = "\x0a\x01k", grant[] = "\x08\x3c\x10\x07", alive[] = "\x08\x02", lock[] = "\x0a\x01l\x10\x02",
			  unlock[] = "\x0a\x03l/2";
	struct core_request q = { .tag = r->next_tag++, .method = method, .client = slice_of_str("fuzz"), .now_unix_ms = 1 };
	switch (method) {
	case METHOD_KV_RANGE:
	case METHOD_KV_DELETE_RANGE:
		q.bytes = slice_of_str(get);
		break;
	case METHOD_LEASE_GRANT:
		q.bytes = slice_of_str(grant);
		break;
	case METHOD_LEASE_KEEP_ALIVE:
	case METHOD_LEASE_REVOKE:
		q.bytes = slice_of_str(alive);
		break;
	case METHOD_LOCK_LOCK:
		q.bytes = slice_of_str(lock);
		break;
	case METHOD_LOCK_UNLOCK:
		q.bytes = slice_of_str(unlock);
		break;
	default:
		q.method = METHOD_KV_PUT;
		q.bytes = slice_of_str(put);
		break;
	}
	rig_step(r, (struct core_event){ .kind = EVENT_REQUEST, .request = &q });
}

static uint64_t near(uint64_t around, uint8_t by)
{
	int64_t d = by % 16 < 12 ? (int64_t)(by % 16) - 4 : (int64_t)(int8_t)by;
	return d < 0 && (uint64_t)-d > around ? 0 : around + (uint64_t)d;
}

static void near_message(struct rig *r, struct slice s)
{
	struct raft_message m = { .from = 0 };
	struct raft_entry *entries[8];
	struct core_status st;
	struct buf body = { .ptr = NULL };
	uint8_t b[12] = { 0 };
	raft_term term;
	memcpy(b, s.ptr, s.len < 12 ? s.len : 12);
	core_status(r->core, &st);
	m.kind = 1 + b[1] % 11U;
	m.term = near(st.term, b[2]);
	m.log.index = near(b[3] & 0x80 ? st.commit : st.last, b[3] & 0x7f);
	m.log.term = m.log.index ? near(st.term, b[4]) : 0;
	m.commit = near(b[5] & 0x80 ? st.commit : st.last, b[5] & 0x7f);
	m.match = (struct entry_id){ near(b[6] & 0x80 ? st.commit : st.last, b[6] & 0x7f), near(st.term, b[7]) };
	m.reject = b[8] & 1;
	m.force = b[8] & 2;
	m.round = b[9] % 16;
	m.chunk = b[10] % 4;
	m.chunks = b[10] / 16;
	m.state_hash = b[11];
	m.data = r->chunks_len ? buf_view(&r->chunks[0]) : s;
	term = m.log.term;
	if (m.kind == KIND_APPEND)
		m.entries_len = b[11] % 8;
	for (size_t i = 0; i < m.entries_len; i++) {
		if (term < m.term && (b[10] >> i & 1))
			term = term ? term + 1 : 1;
		entries[i] = raft_entry_new((struct entry_id){ m.log.index + 1 + i, term }, RAFT_ENTRY_NOOP, slice_of(NULL, 0));
	}
	m.entries = entries;
	raft_message_encode(&m, &body);
	rig_message(r, 1 + b[0] % 2, 10, buf_view(&body));
	buf_free(&body);
	raft_message_release(&m);
}

static void act(struct rig *r, const struct item *it)
{
	uint64_t number = 0;
	size_t n = it->bytes.len;
	memcpy(&number, n ? (const void *)it->bytes.ptr : "", n < 2 ? n : 2);
	switch (it->op % OP_COUNT) {
	case OP_RAW:
		rig_step(r, (struct core_event){ .kind = EVENT_MESSAGE, .message = it->bytes });
		break;
	case OP_FROM_1:
	case OP_FROM_2:
		if (n)
			rig_message(r, it->op % OP_COUNT == OP_FROM_1 ? 1 : 2, 10 + (it->bytes.ptr[0] + 6U) % 8, slice_of(it->bytes.ptr + 1, n - 1));
		break;
	case OP_TIME:
		rig_pass(r, number % 6000);
		break;
	case OP_REQUEST:
		request(r, (enum method_id)(number % METHOD_COUNT));
		break;
	case OP_LOST:
		rig_step(r, (struct core_event){ .kind = EVENT_PEER_LOST, .member = rig_member(1 + number % 2) });
		break;
	case OP_HOLD:
		rig_hold_disk(r, number % 2);
		break;
	case OP_GAP:
		r->now += 600 + number;
		rig_step(r, (struct core_event){ .kind = EVENT_GAP, .gap_ms = 600 + number });
		break;
	case OP_NEAR:
		near_message(r, it->bytes);
		break;
	}
}

static int fuzz_peer(const uint8_t *data, size_t size)
{
	struct rig *r = rig_new(RIG_MEMBERS, 11000, NULL, 0);
	struct item it;
	size_t n = 0;
	for (size_t pos = 0; item_next(slice_of(data, size), &pos, &it) && !r->fatal; n++) {
		act(r, &it);
		if (n % 16 == 0)
			core_check(r->core);
	}
	core_check(r->core);
	rig_check_snapshot(r);
	rig_free(r);
	return 0;
}

static void random_items(struct rng *rng, struct buf *b)
{
	for (int i = 0; i < 150; i++) {
		uint8_t bytes[12], t[2] = { (uint8_t)rng_below(rng, 200), (uint8_t)(rng_below(rng, 16) == 0) };
		for (size_t k = 0; k < sizeof(bytes); k++)
			bytes[k] = (uint8_t)rng_next(rng);
		if (rng_below(rng, 4))
			bytes[2] = 4; /* of this term */
		if (rng_below(rng, 3))
			item_add(b, OP_NEAR, slice_of(bytes, sizeof(bytes)));
		else
			item_add(b, rng_below(rng, 2) ? OP_TIME : OP_REQUEST, slice_of(t, 2));
		if (rng_below(rng, 20) == 0)
			item_add(b, OP_HOLD, slice_of(bytes, 1));
	}
}

static void seeds(struct fuzz_corpus *c)
{
	struct rng rng;
	rng_init(&rng, 3);
	for (unsigned kind = 0; kind < SESSIONS; kind++) {
		struct session s;
		session_make(&s, kind);
		corpus_add(c, buf_view(&s.events));
		/* Contradictions behind a sound beginning, and alone. */
		for (int i = 0; i < 4; i++) {
			struct buf b = buf_copy_of(slice_of(s.events.ptr, i % 2 ? s.events.len : 0));
			random_items(&rng, &b);
			corpus_add(c, buf_view(&b));
			buf_free(&b);
		}
		session_free(&s);
	}
}

const struct fuzz_target fuzz_target = { "peer", fuzz_peer, seeds, mutate_items, 1500 };
