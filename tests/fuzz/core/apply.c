/* apply.c: what the log may hold: commands of any bytes are applied, or are no commands; in equal ways on equal replicas, and the state stays whole.
 *
 * Input: items, each a command; op 1..: the bytes are the payload of a command of kind op. */
#include "base/mem.h"
#include "core/command.h"
#include "driver.h"
#include "rig.h"
#include "sessions.h"

enum { ENTRIES_MAX = 400 };

static struct raft_entry *entry_of(const struct item *it, raft_index index)
{
	struct command cmd = { .kind = it->op % 20, .payload = it->bytes, .origin_member = rig_member(0), .origin_boot = 1, .origin_call = index };
	struct buf bytes = { .ptr = NULL };
	struct raft_entry *e;
	if (cmd.kind)
		command_encode(&cmd, &bytes);
	else
		buf_append_slice(&bytes, it->bytes);
	e = raft_entry_new((struct entry_id){ index, 1 }, RAFT_ENTRY_COMMAND, buf_view(&bytes));
	buf_free(&bytes);
	return e;
}

static uint64_t apply(struct slice data)
{
	struct raft_entry *tail[ENTRIES_MAX];
	struct item it;
	struct rig *r;
	struct core_status s;
	size_t n = 0;
	uint64_t hash;
	for (size_t pos = 0; n < ENTRIES_MAX && item_next(data, &pos, &it); n++)
		tail[n] = entry_of(&it, n + 1);
	r = rig_new(1, 7, tail, n);
	for (int i = 0; i < 300; i++) {
		core_status(r->core, &s);
		if (r->fatal || (s.role == RAFT_LEADER && s.applied > n))
			break;
		rig_pass(r, 10);
	}
	ASSERT(r->fatal == CORE_FATAL_CORRUPT || s.applied > n); /* what is no command at all: the log cannot be trusted */
	core_check(r->core);
	rig_check_snapshot(r);
	hash = state_hash(core_state(r->core));
	rig_pass(r, 3000); /* leases may end */
	core_check(r->core);
	rig_free(r);
	return hash;
}

static int fuzz_apply(const uint8_t *data, size_t size)
{
	uint64_t hash = apply(slice_of(data, size));
	if (size % 8 == 0)
		ASSERT(apply(slice_of(data, size)) == hash);
	return 0;
}

static void seeds(struct fuzz_corpus *c)
{
	for (unsigned kind = 0; kind < SESSIONS; kind++) {
		struct session s;
		session_make(&s, kind);
		corpus_add(c, buf_view(&s.commands));
		session_free(&s);
	}
}

const struct fuzz_target fuzz_target = { "apply", fuzz_apply, seeds, mutate_items, 4000 };
