/* raft_codec.c: raft messages to bytes and back.
 *
 * Appends are most of what replicas say to each other, so the caller can know the length before it writes: one
 * reservation, and each entry's data is copied once. For the same reason the reader goes over the bytes itself: the
 * entries are made from them, with nothing in between.
 *
 * What arrives is a peer's word, and a peer may be broken. The reader lets through only messages that a sound replica
 * could have sent, so that no handler of raft has to check the following again:
 *   (C1) the kind is known, and only an append has entries.
 *   (C2) entries follow log.index without a gap; their terms never fall, from log.term up to the message's own term.
 *   (C3) position 0 and term 0 go together, in log and in every entry.
 *   (C4) no number is so large that what is counted on from it could wrap around. */
#include "core/raft/raft_codec.h"

#include "base/pbw.h"
#include "core/wire.h"

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
static bool log_is_sound(const struct raft_message *m)
{
	switch (m->kind) {
	case KIND(RAFT_PREVOTE):
	case KIND(RAFT_VOTE):
	case KIND(RAFT_APPEND):
	case KIND(RAFT_SNAPSHOT):
		return id_is_sound(m->log.index, m->log.term) && m->log.term <= m->term;
	default:
		return true;
	}
}

static bool numbers_are_sound(const struct raft_message *m) /* (C4) */
{
	return (m->term | m->log.index | m->log.term | m->commit | m->match.index | m->match.term | m->round | m->chunk | m->chunks) <= NUMBER_MAX;
}

static bool message_is_sound(const struct raft_message *m)
{
	bool known = m->kind > KIND(RAFT_NONE) && m->kind <= KIND(RAFT_TIMEOUT_NOW);

	if (!known || !numbers_are_sound(m) || !log_is_sound(m))
		return false;
	if (m->entries_len > 0 && m->kind != KIND(RAFT_APPEND)) /* (C1) */
		return false;
	return m->kind != KIND(RAFT_SNAPSHOT) || m->chunk < m->chunks;
}

/* All but the entries, which are only counted. A field that comes twice counts as it comes last, as protobuf has it. */
static bool read_fields(struct slice body, struct raft_message *m)
{
	uint64_t kind = 0;
	struct wire w;

	for (wire_init(&w, body); wire_next(&w);) {
		switch (w.field) {
		case 1: kind = wire_u64(&w); break;
		case 2: m->term = wire_u64(&w); break;
		case 3: m->log.index = wire_u64(&w); break;
		case 4: m->log.term = wire_u64(&w); break;
		case 5: m->commit = wire_u64(&w); break;
		case 6: m->reject = wire_u64(&w) != 0; break;
		case 7: m->match.index = wire_u64(&w); break;
		case 8: m->match.term = wire_u64(&w); break;
		case 9: m->round = wire_u64(&w); break;
		case 10: m->force = wire_u64(&w) != 0; break;
		case MESSAGE_ENTRIES:
			(void)wire_bytes(&w);
			m->entries_len++;
			break;
		case 12: m->chunk = wire_u64(&w); break;
		case 13: m->chunks = wire_u64(&w); break;
		case 14: m->data = wire_bytes(&w); break;
		case 15: m->state_hash = wire_u64(&w); break;
		case 16: m->lost = wire_u64(&w) != 0; break;
		default: break;
		}
	}
	m->kind = (uint32_t)kind;
	return !w.bad && kind <= UINT32_MAX;
}

/* One that follows `prev`; NULL: none that a sound peer sends. */
static struct raft_entry *read_entry(struct slice bytes, struct entry_id prev, raft_term of_message)
{
	uint64_t index = 0, term = 0, kind = 0;
	struct slice data = { .ptr = NULL };
	struct wire w;

	for (wire_init(&w, bytes); wire_next(&w);) {
		switch (w.field) {
		case ENTRY_INDEX: index = wire_u64(&w); break;
		case ENTRY_TERM: term = wire_u64(&w); break;
		case ENTRY_KIND: kind = wire_u64(&w); break;
		case ENTRY_DATA: data = wire_bytes(&w); break;
		default: break;
		}
	}
	/* (C2); index 0 is a log_index that wrapped around */
	if (w.bad || index == 0 || index != prev.index + 1 || term == 0 || term < prev.term || term > of_message)
		return NULL;
	if (kind > RAFT_ENTRY_CONFIG || data.len > UINT32_MAX)
		return NULL;
	return raft_entry_new((struct entry_id){ .index = index, .term = term }, (enum raft_entry_kind)kind, data);
}

/* Into m->entries, which has room for them. */
static bool read_entries(struct slice body, struct raft_message *m)
{
	struct entry_id prev = m->log;
	struct wire w;

	m->entries_len = 0;
	for (wire_init(&w, body); wire_next(&w);) {
		struct raft_entry *e;

		if (w.field != MESSAGE_ENTRIES)
			continue;
		e = read_entry(w.bytes, prev, m->term);
		if (!e)
			return false;
		m->entries[m->entries_len++] = e;
		prev = (struct entry_id){ .index = e->index, .term = e->term };
	}
	return true;
}

enum err raft_message_decode(struct slice body, struct arena *arena, struct raft_message *ret)
{
	struct raft_message m = { .kind = 0 };

	if (!read_fields(body, &m) || !message_is_sound(&m))
		return ERR_MALFORMED;
	if (m.entries_len > 0) {
		m.entries = arena_alloc(arena, m.entries_len * sizeof(struct raft_entry *));
		if (!read_entries(body, &m)) {
			raft_message_release(&m);
			return ERR_MALFORMED;
		}
	}
	*ret = m;
	return ERR_OK;
}

void raft_message_release(struct raft_message *m)
{
	for (size_t i = 0; i < m->entries_len; i++)
		raft_entry_unref(m->entries[i]);
	m->entries = NULL;
	m->entries_len = 0;
}
