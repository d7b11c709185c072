/* sim.h: a whole cell of the real core in one thread of virtual time.
 *
 * Replicas are the real thing (server/core/core.h); what is around them is played: clocks, network, disks, clients. One number, the seed,
 * decides everything that happens, so a run can be replayed exactly; nothing here may look at a clock, an address or the order of a hash table.
 *
 *   (V1) an event happens at one instant; events of one instant happen in the order in which they were scheduled.
 *   (V2) a replica sees what a node would show it, in the order of server/node/node.c: completions, peers, calls, ticks.
 *   (V3) what leaves a replica has been checked against its disk, and what it applies against all others, before anybody sees it.
 *   (V4) clock rates of any two parties differ by at most 1 %; what wall clocks say is arbitrary.
 *   (V5) a check that fails ends the run at that instant, with the seed.
 *
 * Who plays what: net.c links; disk.c, snap.c disks; replica.c, start.c the node around a core; faults.c what goes wrong; client*.c the users;
 * referee.c applies every committed entry once and for all; check_*.c hold what happens against the promises (docs: P1 to P12). */
#ifndef HOLDFAST_SIM_H
#define HOLDFAST_SIM_H

#include "check.h"
#include "plan.h"

/* ---- the world ---- */

enum phase { PHASE_CHAOS, PHASE_HEALED, PHASE_LEADER_DUE, PHASE_DRAIN, PHASE_QUIET, PHASE_END, PHASE_STOPPED };

struct totals {
	uint64_t seeds, failed, sim_us, events;
	uint64_t poor; /* runs that prove little */
	uint64_t elections, leader_changes, crashes, partitions, pauses, stalls, slow_links, lost_packets, packets, damages, losses;
	uint64_t grants, hand_overs, lease_ends, snapshots, installs, chunks, resumed, parts_dropped, writes, reads, keep_alives, anew, unknown, requests, lock_refusals;
	uint64_t client_freezes, cancels, entries, campaigns, batches, compactions, recipes, watch_events, watch_cancels, observed, transfers, wipes;
	uint64_t retries, repeated; /* request IDs */
	uint64_t changes, changes_refused, joined, removed;
	uint64_t sessions, cached, cached_reads, invalidations, watch_fires, gated; /* caches */
	uint64_t operations, work_us; /* begun by clients; the time they had for it, summed over them */
	uint64_t library_sessions, library_jeopardies, library_hits, library_writes, library_told, library_grants, library_lost, library_leaders, library_calm;
};

struct sim_options {
	uint64_t seed;
	uint32_t replicas, clients, slots; /* 0: by seed */
	uint32_t seconds;
	bool trace, ci;
	/* a run of which something is left out: plan.h */
	const struct plan *plan;
	const struct cut *cut;
	sim_us gap;         /* at the most between one thing that goes wrong and the next; 0: as drawn */
	sim_us sooner;      /* and all of them come by so much sooner */
	sim_us heal;        /* when all is healed; 0: 26 s before the end */
	uint32_t timing;    /* how long everything takes is drawn anew: the n-th time */
	sim_us stop_at;     /* what has not failed by then is good; 0: goes on */
	struct plan *noted; /* of this run, for others */
	const char *trap_list;
	const struct cut *trap; /* the run fails once all of these have been there */
	struct verdict *verdict;
};

struct verdict { /* of a run, for the process that started it */
	bool failed, over; /* over: it came to its end */
	char check[320];   /* what failed, without its figures: the same for the same check */
	char text[1024];   /* and with them */
	sim_us at;
	uint64_t events, lines; /* of the trace */
};

struct config { /* drawn from the seed */
	uint32_t replicas, clients, keys, locks, watchers, cachers, users;
	bool ordered;          /* links keep order */
	uint32_t loss, dup, late; /* per million */
	sim_us delay, jitter, client_delay;
	sim_us disk_delay;
	sim_us fault_every;
	uint32_t weights[20];  /* of faults */
	uint64_t snapshot_count, snapshot_keep;
	uint32_t auto_compact_ms;
	uint32_t big_values;   /* per million of puts */
	uint32_t client_loss;
	uint32_t max_pending, max_waiters, kv_slots, request_timeout_ms;
	uint32_t snapshot_chunk; /* bytes; 0: as in earnest, where a state as small as here has one */
	uint32_t log_memory, append_bytes, inflight, admit_window;
	bool equal_clocks, wipes;
	bool members; /* come and go */
	bool calm;    /* only fail-overs */
	bool flapping; /* leaders are cut off for a moment, again and again, with much in flight: old tails meet new snapshots */
	uint64_t auto_compact_revisions;
};

struct world {
	struct sim_options opts;
	struct config config;
	struct rng rng, net_rng, disk_rng, fault_rng, cache_rng, part_rng;
	sim_us now;
	uint64_t next_seq, trace_lines;
	uint32_t faults_seen[PIECE_COUNT];
	size_t plan_next[PLAN_SOURCES];
	struct cut trapped;
	struct queue queue;
	enum phase phase;
	sim_us heal_at, leader_due_at, drain_at, end_at;
	uint64_t cell_id;
	char urls[REPLICAS_MAX][32];

	struct replica replicas[REPLICAS_MAX];
	struct link links[REPLICAS_MAX][REPLICAS_MAX];
	struct link client_links[CLIENTS_MAX][REPLICAS_MAX];
	sim_us storm_until;
	uint32_t storm_loss;
	struct client clients[CLIENTS_MAX];
	struct watcher watchers[WATCHERS_MAX];
	struct cacher cachers[CACHERS_MAX];
	struct user users[USERS_MAX];
	uint64_t next_stream;
	SIM_VEC(struct seen_event) events; /* all there ever were, in order */
	revision quiet_revision;           /* some seconds before the end */
	SIM_VEC(struct op) ops;

	/* what everybody together knows */
	SIM_VEC(struct committed) log; /* entry i is at[i - 1] */
	struct map64 seen;             /* (index, term) -> hash of the entry and the term before */
	struct map64 contents;         /* hash of an entry -> its term */
	struct map64 committed_once;   /* hash of each committed command of a client */
	struct map64 chunks;           /* (index, term, number) of every chunk saved -> hash of its bytes */
	struct map64 leaders;          /* term -> replica + 1 */
	struct map64 slots;            /* every member there ever was -> replica + 1, whose address it has or had */
	uint32_t last_leader;          /* replica + 1 */
	struct referee *referee;
	const struct command *applying; /* by the referee */
	revision told;                 /* the highest revision in any answer that had to be recent */
	struct key_history history[KEYS_MAX];
	struct lock_history locks[LOCKS_MAX];
	SIM_VEC(struct lease_info) leases;
	struct map64 lease_by_id; /* -> index + 1 */
	lease_id lease_just_ended;
	uint64_t writes_at_leader_due, grants_at_leader_due;
	uint64_t operator_calls;
	sim_us operator_at;
	struct {
		sim_us since[1u << REPLICAS_MAX]; /* by replicas, as bits: since when they have been able; SIM_NEVER: they are not */
		sim_us led_at;                    /* when anybody led last */
	} able;
	struct totals totals;
};

void world_run(struct world *w); /* the whole run, opts set; ends the process when a check fails */
struct state world_initial_state(const struct world *w);
struct core_config world_core_config(struct replica *r);
uint32_t world_slot_of(const struct world *w, member_id id); /* whose address is, or was, that of the member; UINT32_MAX: there never was one */
#define HEALED_US (26 * SIM_SECOND) /* from the healing to the end */
static inline sim_us world_chaos(const struct sim_options *o) { return o->seconds * SIM_SECOND - HEALED_US; }
static inline bool left_out(const struct world *w, enum piece p, uint32_t number) { return w->opts.cut && cut_has(w->opts.cut, p, number); }
static inline bool does_without(const struct world *w, enum piece p) { return w->opts.cut && w->opts.cut->whole[p]; }
void verdict_note(const struct world *w, const char *check, const char *text); /* event.c: the run fails */

#endif
