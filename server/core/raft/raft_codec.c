/* raft_codec.c: raft messages to bytes and back.
 *
 * Appends are most of what replicas say to each other, so the writer knows every length before it writes: one
 * reservation, and each entry's data is copied once.
 *
 * What arrives is a peer's word, and a peer may be broken. The reader lets through only messages that a sound replica
 * could have sent, so that no handler of raft has to check the following again:
 *   (C1) the kind is known, and only an append has entries.
 *   (C2) entries follow log.index without a gap; their terms never fall, from log.term up to the message's own term.
 *   (C3) position 0 and term 0 go together, in log and in every entry.
 *   (C4) no number is so large that what is counted on from it could wrap around. */
#include "core/raft/raft_codec.h"

#include "base/pbw.h"

#define NUMBER_MAX ((uint64_t)INT64_MAX) /* C4 */
#define KIND(name) HOLDFAST__INTERNAL__RAFT_MESSAGE_KIND__##name

/* Field numbers of internal.proto; all of their tags fit one byte, but for that of `lost`. */
enum { MESSAGE_ENTRIES = 11 };
enum { ENTRY_INDEX = 1, ENTRY_TERM = 2, ENTRY_KIND = 3, ENTRY_DATA = 4 };

static size_t u64_size(uint64_t v)
{
	return v ? 1 + pbw_varint_size(v) : 0;
}

static size_t bytes_size(size_t len)
{
	return len ? 1 + pbw_varint_size(len) + len : 0;
}

static size_t entry_size(const struct raft_entry *e)
{
	return u64_size(e->index) + u64_size(e->term) + u64_size(e->kind) + bytes_size(e->len);
}

size_t raft_message_encoded_size(const struct raft_message *m)
{
	size_t n = 0;

	n += u64_size(m->kind) + u64_size(m->term) + u64_size(m->log.index) + u64_size(m->log.term);
	n += u64_size(m->commit) + u64_size(m->reject) + u64_size(m->match.index) + u64_size(m->match.term);
	n += u64_size(m->round) + u64_size(m->force);
	for (size_t i = 0; i < m->entries_len; i++) {
		size_t len = entry_size(m->entries[i]);

		n += 1 + pbw_varint_size(len) + len;
	}
	n += u64_size(m->chunk) + u64_size(m->chunks) + bytes_size(m->data.len);
	return n + (m->state_hash ? 1 + 8 : 0) + (m->lost ? 2 + 1 : 0);
}

static void entry_encode(const struct raft_entry *e, struct buf *out)
{
	/* Not pbw_open(): it would move the data to make room for a length that we know already. */
	pbw_varint(out, MESSAGE_ENTRIES << 3 | PROTOBUF_C_WIRE_TYPE_LENGTH_PREFIXED);
	pbw_varint(out, entry_size(e));
	pbw_u64(out, ENTRY_INDEX, e->index);
	pbw_u64(out, ENTRY_TERM, e->term);
	pbw_u64(out, ENTRY_KIND, e->kind);
	pbw_bytes(out, ENTRY_DATA, raft_entry_data(e));
}

void raft_message_encode(const struct raft_message *m, struct buf *out)
{
	/* Every writer of pbw.h asks for the room of the longest number, so ask for a little more than the size. */
	buf_reserve(out, raft_message_encoded_size(m) + 32);
	pbw_u64(out, 1, m->kind);
	pbw_u64(out, 2, m->term);
	pbw_u64(out, 3, m->log.index);
	pbw_u64(out, 4, m->log.term);
	pbw_u64(out, 5, m->commit);
	pbw_u64(out, 6, m->reject);
	pbw_u64(out, 7, m->match.index);
	pbw_u64(out, 8, m->match.term);
	pbw_u64(out, 9, m->round);
	pbw_u64(out, 10, m->force);
	for (size_t i = 0; i < m->entries_len; i++)
		entry_encode(m->entries[i], out);
	pbw_u64(out, 12, m->chunk);
	pbw_u64(out, 13, m->chunks);
	pbw_bytes(out, 14, m->data);
	pbw_fixed64(out, 15, m->state_hash);
	pbw_u64(out, 16, m->lost);
}

static bool id_is_sound(raft_index index, raft_term term)
{
	return (index == 0) == (term == 0); /* (C3) */
}

/* For the kinds whose log field names an entry: no sender knows an entry of a term after its own. */
static bool log_is_sound(const Holdfast__Internal__RaftMessage *pb)
{
	switch (pb->kind) {
	case KIND(RAFT_PREVOTE):
	case KIND(RAFT_VOTE):
	case KIND(RAFT_APPEND):
	case KIND(RAFT_SNAPSHOT):
		return id_is_sound(pb->log_index, pb->log_term) && pb->log_term <= pb->term;
	default:
		return true;
	}
}

static bool numbers_are_sound(const Holdfast__Internal__RaftMessage *pb) /* (C4) */
{
	return pb->term <= NUMBER_MAX && pb->log_index <= NUMBER_MAX && pb->log_term <= NUMBER_MAX && pb->commit <= NUMBER_MAX &&
	       pb->match_index <= NUMBER_MAX && pb->match_term <= NUMBER_MAX && pb->round <= NUMBER_MAX && pb->chunk <= NUMBER_MAX &&
	       pb->chunks <= NUMBER_MAX;
}

static bool message_is_sound(const Holdfast__Internal__RaftMessage *pb)
{
	bool known = pb->kind > KIND(RAFT_NONE) && pb->kind <= KIND(RAFT_TIMEOUT_NOW);

	if (!known || !numbers_are_sound(pb) || !log_is_sound(pb))
		return false;
	if (pb->n_entries > 0 && pb->kind != KIND(RAFT_APPEND)) /* (C1) */
		return false;
	return pb->kind != KIND(RAFT_SNAPSHOT) || pb->chunk < pb->chunks;
}

static bool entries_are_sound(const Holdfast__Internal__RaftMessage *pb)
{
	struct entry_id prev = { .index = pb->log_index, .term = pb->log_term };

	for (size_t i = 0; i < pb->n_entries; i++) { /* (C2) */
		const Holdfast__Internal__RaftEntry *e = pb->entries[i];

		/* index 0 is a log_index that wrapped around */
		if (e->index == 0 || e->index != prev.index + 1 || e->term == 0)
			return false;
		if (e->term < prev.term || e->term > pb->term)
			return false;
		if (e->kind > RAFT_ENTRY_CONFIG || e->data.len > UINT32_MAX)
			return false;
		prev = (struct entry_id){ .index = e->index, .term = e->term };
	}
	return true;
}

static struct raft_entry **entries_decode(const Holdfast__Internal__RaftMessage *pb, struct arena *arena)
{
	struct raft_entry **entries = arena_alloc(arena, pb->n_entries * sizeof(struct raft_entry *));

	for (size_t i = 0; i < pb->n_entries; i++) {
		const Holdfast__Internal__RaftEntry *e = pb->entries[i];
		struct entry_id id = { .index = e->index, .term = e->term };

		entries[i] = raft_entry_new(id, (enum raft_entry_kind)e->kind, slice_of(e->data.data, e->data.len));
	}
	return entries;
}

enum err raft_message_decode(const Holdfast__Internal__RaftMessage *pb, struct arena *arena, struct raft_message *ret)
{
	if (!message_is_sound(pb) || !entries_are_sound(pb))
		return ERR_MALFORMED;
	*ret = (struct raft_message){
		.kind = (uint32_t)pb->kind,
		.term = pb->term,
		.log = { .index = pb->log_index, .term = pb->log_term },
		.commit = pb->commit,
		.reject = pb->reject != 0,
		.force = pb->force != 0,
		.match = { .index = pb->match_index, .term = pb->match_term },
		.round = pb->round,
		.entries = pb->n_entries ? entries_decode(pb, arena) : NULL,
		.entries_len = pb->n_entries,
		.chunk = pb->chunk,
		.chunks = pb->chunks,
		.data = slice_of(pb->data.data, pb->data.len),
		.state_hash = pb->state_hash,
		.lost = pb->lost != 0,
	};
	return ERR_OK;
}

void raft_message_release(struct raft_message *m)
{
	for (size_t i = 0; i < m->entries_len; i++)
		raft_entry_unref(m->entries[i]);
	m->entries = NULL;
	m->entries_len = 0;
}
