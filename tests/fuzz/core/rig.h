/* rig.h: one live core and the world it needs, all of it sound: a disk that checks what it is given as the real one does, and the time. What comes from
 * peers is the target's business. */
#ifndef HOLDFAST_TESTS_FUZZ_RIG_H
#define HOLDFAST_TESTS_FUZZ_RIG_H

#include "core/core.h"

#define RIG_MEMBERS 3

struct rig {
	struct core *core;
	time_ms now;
	enum core_fatal fatal;
	bool disk_held; /* writes wait */
	uint64_t held_seq, next_tag;
	/* the disk */
	struct entry_id snapshot;
	raft_index first;
	struct raft_entry **log; /* log[i] has index first + i */
	size_t log_len, log_cap;
	struct buf *chunks; /* of our own snapshot */
	size_t chunks_len;
	struct buf *received; /* chunks of one that comes */
	size_t received_len;
};

member_id rig_member(size_t i);
uint64_t rig_data_dir(size_t i);
uint64_t rig_cell(size_t members);
/* Replica 0 of so many. tail: entries that the log holds, all of term 1, moved in; may be NULL. */
struct rig *rig_new(size_t members, uint64_t seed, struct raft_entry **tail, size_t tail_len);
void rig_free(struct rig *r);
/* Steps and carries out what comes of it; nothing more happens once there was a fatal fault. */
void rig_step(struct rig *r, struct core_event e);
void rig_pass(struct rig *r, time_ms ms); /* time, with ticks */
void rig_hold_disk(struct rig *r, bool on);
/* A message with an envelope that is in order, from member i. body_field: 10..17. */
void rig_message(struct rig *r, size_t from, uint32_t body_field, struct slice body);
/* The whole state survives being written and read. */
void rig_check_snapshot(const struct rig *r);

#endif
