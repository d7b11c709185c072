/* stall.c: a leader whose disk stands still hands the lead on.
 *
 * Its followers still make a quorum, so what is asked for there is committed and answered. But nothing is applied here before it is durable here: a leader
 * that cannot write knows of no lease and no waiter that is new, and whatever only the leader does (ends of leases, bounds) stands still with its disk.
 *
 *   (S1) the disk stands still while something is to be written and nothing has been completed for an election timeout, by the clock that stands
 *        still with us. A slow disk that goes on completing writes is none that stands still.
 *   (S2) a leader then asks for a transfer to whoever is furthest, again and again until it leads no more or the disk has answered. With nobody to take
 *        the lead, it goes on leading. */
#include "internal.h"

void stall_handed(struct core *c, uint64_t seq)
{
	if (c->disk.done == c->disk.handed)
		c->disk.since = core_clock(c);
	c->disk.handed = seq;
}

void stall_done(struct core *c, uint64_t seq)
{
	c->disk.done = seq;
	c->disk.since = core_clock(c);
}

void stall_tick(struct core *c)
{
	bool stands_still = c->disk.done < c->disk.handed && core_clock(c) - c->disk.since >= c->config.election_timeout_ms;

	if (stands_still && c->role == RAFT_LEADER && !raft_transferee(c->raft))
		raft_transfer(c->raft, 0);
}
