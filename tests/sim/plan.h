/* plan.h: the pieces that a run is made of, which can be left out one by one, and the plan of what goes wrong in it.
 *
 * Everything of a run is drawn from its seed as it goes on, much of it from streams that many share. So that leaving one thing out does not make another
 * thing of all others, a run of which something is left out goes by the plan of the whole run: that is run first, and every fault is noted, at its instant,
 * with the random numbers that it had.
 *
 *   (N1) a run by its plan of which nothing is left out is the run itself.
 *   (N2) what is left out is drawn all the same, and not carried out.
 *   (N3) the seed and the flags say all: nothing is kept in between. */
#ifndef HOLDFAST_SIM_PLAN_H
#define HOLDFAST_SIM_PLAN_H

#include "replica.h"

enum piece {
	/* those that take part: by number, as the trace names them */
	PIECE_REPLICA, /* the last ones only */
	PIECE_CLIENT, PIECE_WATCHER, PIECE_CACHER, PIECE_USER,
	/* faults: numbered from 1, by kind, as they come */
	PIECE_CRASH, PIECE_PARTITION, PIECE_LINK, PIECE_PAUSE, PIECE_STALL, PIECE_SLOW, PIECE_STORM, PIECE_CUT, PIECE_PEER_LOST, PIECE_GARBAGE, PIECE_TRANSFER,
	PIECE_STOP, PIECE_SPACE, PIECE_WIPE, PIECE_DAMAGE, PIECE_FAIL_OVER, PIECE_LAST_CRASH, PIECE_CHANGE,
	/* what is so or not */
	PIECE_LOSS, PIECE_DUPLICATES, PIECE_LATE, PIECE_REORDER, PIECE_JITTER, PIECE_CALL_LOSS, PIECE_CLOCKS, PIECE_SNAPSHOTS, PIECE_CHUNKS, PIECE_INSTALL_CRASHES,
	PIECE_COMPACTION, PIECE_BIG_VALUES, PIECE_LIMITS, PIECE_SHORT_LOG, PIECE_LINE, PIECE_SLOTS, PIECE_MEMBERS, PIECE_FREEZES, PIECE_REQUEST_IDS,
	/* what clients ask for, and users of the library */
	PIECE_PUT, PIECE_DELETE, PIECE_GET, PIECE_GET_SERIALIZABLE, PIECE_RANGE, PIECE_CAS, PIECE_COMPACT, PIECE_TTL, PIECE_LEADER,
	PIECE_LOCK, PIECE_CAMPAIGN, PIECE_RECIPE, PIECE_LOCK_WITHOUT_LEASE, PIECE_USER_READS, PIECE_USER_WRITES, PIECE_USER_FOLLOWS, PIECE_USER_LOCKS,
	PIECE_USER_OBSERVES,
	PIECE_COUNT
};
#define PIECE_NUMBERED_END PIECE_LOSS /* those before have numbers */

const char *piece_name(enum piece p);

/* ---- what is left out (cut.c) ---- */

#define CUT_NUMBERS 1024 /* of one kind that can be left out one by one; of the later ones all or none */

struct cut {
	bool whole[PIECE_COUNT];
	bool rest[PIECE_COUNT]; /* all from CUT_NUMBERS on */
	uint64_t out[PIECE_COUNT][CUT_NUMBERS / 64];
};

bool cut_has(const struct cut *c, enum piece p, uint32_t number);
void cut_set(struct cut *c, enum piece p, uint32_t number, bool out);
bool cut_is_empty(const struct cut *c);
/* LIST: NAME or NAME:NUMBER or NAME:FROM-TO, with commas between. only: of each kind named nothing but that is left. False: text is why not. */
bool cut_parse(struct cut *c, const char *list, bool only, char text[96]);
/* As " --without LIST --only LIST", whatever is needed; counts: how many there are of each. */
void cut_print(const struct cut *c, const uint32_t counts[PIECE_NUMBERED_END], FILE *to);

/* ---- the plan (plan.c) ---- */

enum plan_source { PLAN_CHAIN, PLAN_SINGLE, PLAN_CHANGE, PLAN_HEALING, PLAN_SOURCES };

struct plan_event {
	sim_us at;
	enum plan_source from;
	enum piece piece;
	uint32_t number;
	uint64_t what;
	struct rng fault_rng, cache_rng; /* as they were */
};

#define PLAN_EVENTS 4096 /* what is beyond is not in a run by the plan: that of some 1,700 seconds and more */

struct plan {
	uint32_t counts[PIECE_NUMBERED_END]; /* of those that there are */
	struct rng people_rng; /* before clients and others are drawn */
	size_t len;
	struct plan_event at[PLAN_EVENTS];
};

#define PLAN_EARLIEST (500 * SIM_MS) /* there is hardly a leader before */

struct world;
struct sim_options;
/* Something goes wrong now, or is about to be asked for. Numbers it, and notes it where a plan is being made. */
void plan_note(struct world *w, enum plan_source from, enum piece piece, uint64_t what);
sim_us plan_moved(const struct sim_options *o, const struct plan_event *e); /* by a plan: when it comes */
/* By a plan: when the next of those is; SIM_NEVER: there is none. */
sim_us plan_next_at(const struct world *w, enum plan_source from);
/* By a plan: the next of those, whose turn it is now, with its random numbers; NULL: it is left out, or there is none. */
const struct plan_event *plan_take(struct world *w, enum plan_source from);

/* A piece takes part. The last one of a trap ends the run: by a fault that needs just these it is seen that shrinking finds them. */
void trap_notice(struct world *w, enum piece piece, uint32_t number);

#endif
