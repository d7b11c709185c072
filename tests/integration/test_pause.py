"""SIGSTOP: a leader that stands still, longer than a lease or an election, and goes on without knowing."""
import time

import cells
from kit import Client, KeepAliveStream, KeepingAlive, clients, error_of, grpc, insist, pb, same_everywhere, stays, wait_queue
from runner import test


def pause_leader(cell, cs):
    leader = cell.leader()
    old = cs[cell.replicas.index(leader)]
    up = [c for c in cs if c is not old]
    old.get(b"warm")  # its connection is up
    leader.pause()
    return leader, old, up


@test(own=True, timeout=120)
def a_stalled_leader_ends_no_lease_that_was_renewed_at_the_new_one(server):
    """It stands still for longer than the leases last. When it goes on its clock says that all are over."""
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        ttl = 3
        leases = [cs[i % 3].grant(ttl) for i in range(20)]
        for i, lease in enumerate(leases):
            cs[0].put(b"s/%d" % i, b"", lease=lease)
        with KeepingAlive(cell, leases, every=0.5) as sessions:
            for _ in range(2):
                leader, old, up = pause_leader(cell, cs)
                insist(lambda: up[0].put(b"x", b"", timeout=1))
                seen = sessions.renewed
                # Twice the TTL, counted in renewals that somebody answered.
                cells.wait_for("the sessions live on at the new leader", lambda: sessions.renewed >= seen + 2 * ttl / 0.5, 60)
                assert not sessions.lost, f"{len(sessions.lost)} leases were lost while the old leader stood still"
                leader.resume()
                seen = sessions.renewed
                cells.wait_for("the sessions live on after it", lambda: sessions.renewed >= seen + 4, 60)
                assert not sessions.lost, f"{len(sessions.lost)} leases ended when the old leader went on"
                cell.wait_ready()
            assert insist(lambda: cs[0].range(key=b"s/", range_end=b"s0")).count == len(leases)
        same_everywhere(cell)


@test(own=True, timeout=120)
def a_pause_of_the_whole_cell_ends_no_lease(server):
    """All stand still for longer than the TTL: nobody could renew, and nobody is ended for that."""
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        lease = cs[0].grant(4)
        cs[0].put(b"s", b"", lease=lease)
        cs[0].keep_alive(lease)
        for r in cell.replicas:
            r.pause()
        time.sleep(6)
        for r in cell.replicas:
            r.resume()
        assert insist(lambda: cs[1].keep_alive(lease, timeout=2)) == [4], "the lease ended for our own pause"
        assert insist(lambda: cs[2].get(b"s")) is not None


@test(timeout=120)
def a_deposed_leader_answers_no_stale_read(server):
    """The read is in its socket before it goes on, so it meets it believing that it still leads."""
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        for turn in range(3):
            insist(lambda: cs[0].put(b"k", b"old"))
            leader, old, up = pause_leader(cell, cs)
            insist(lambda: up[0].put(b"k", b"new%d" % turn, timeout=1))
            reads = [old.kv.Range.future(pb.RangeRequest(key=b"k"), timeout=30) for _ in range(20)]
            leader.resume()
            answered = 0
            for read in reads:
                try:
                    value = read.result(30).kvs[0].value
                except grpc.RpcError:
                    continue
                answered += 1
                assert value == b"new%d" % turn, f"a deposed leader answered {value}"
            print(f"{answered} of {len(reads)} reads answered")
            cell.wait_ready()


@test(own=True, timeout=120)
def a_deposed_leader_renews_no_lease_that_was_revoked(server):
    """A keep-alive waits in its socket; at the new leader the lease is revoked meanwhile."""
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        lease, kept = cs[0].grant(30), cs[0].grant(30)
        leader, old, up = pause_leader(cell, cs)
        stream = KeepAliveStream(old)
        stream.send(lease)
        stream.send(kept)
        insist(lambda: up[0].revoke(lease))
        leader.resume()
        try:
            assert stream.receive().TTL == 0, "a revoked lease was renewed"
            assert stream.receive().TTL == 30
        except grpc.RpcError as e:  # not sure is an answer, too
            print(f"the stream ended: {e.code().name} {e.details()}")
        cell.wait_ready()
        assert insist(lambda: old.keep_alive(lease, kept)) == [0, 30]


@test(timeout=120)
def a_deposed_leader_grants_no_second_holder(server):
    """Lock calls wait in its socket, and in its queue; the lock changes hands at the new leader."""
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        leases = [cs[0].grant(60) for _ in range(4)]
        leader = cell.leader()
        old = cs[cell.replicas.index(leader)]
        up = [c for c in cs if c is not old]
        held = up[0].take_lock(b"l", leases[0])
        queued = old.ask_lock(b"l", leases[1])
        wait_queue(up[0], b"l", 2)
        leader.pause()
        late = old.ask_lock(b"l", leases[2])
        insist(lambda: up[0].put(b"x", b"", timeout=1))
        insist(lambda: up[1].unlock(held.key))
        third = insist(lambda: up[1]).ask_lock(b"l", leases[3])
        wait_queue(up[0], b"l", 2)
        leader.resume()

        def holders():
            """Who has been told, and who is first in the queue: the two may never differ."""
            first = insist(lambda: up[0].queue(b"l"))[0].lease
            told = [l for f, l in ((queued, leases[1]), (late, leases[2]), (third, leases[3])) if f.done() and not f.exception()]
            return told in ([], [first])
        cell.wait_ready()
        stays("somebody was told that it holds the lock who is not first in the queue", holders, 2)


@test(timeout=120)
def a_stalled_follower_disturbs_nobody(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        leader = cell.leader()
        follower = next(r for r in cell.replicas if r is not leader)
        term = Client(leader).status().raftTerm
        up = [c for c, r in zip(cs, cell.replicas) if r is not follower]
        follower.pause()
        time.sleep(5)
        for i in range(20):
            up[i % 2].put(b"k%d" % i, b"")
        follower.resume()
        cell.wait_ready()
        same_everywhere(cell)
        assert cell.leader() is leader, "the stalled follower took the lead away"
        assert Client(leader).status().raftTerm == term, "a new term for nothing"


@test()
def without_a_majority_nothing_is_acknowledged(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        cs[0].put(b"k", b"1")
        lease = cs[0].grant(600)
        leader = cell.leader()
        c = cs[cell.replicas.index(leader)]
        others = [r for r in cell.replicas if r is not leader]
        for r in others:
            r.kill()
        for call in (lambda: c.put(b"k", b"2", timeout=3), lambda: c.get(b"k", timeout=3), lambda: c.take_lock(b"l", lease, timeout=3),
                     lambda: c.keep_alive(lease, timeout=3)):
            code, _ = error_of(call)
            assert code in ("DEADLINE_EXCEEDED", "UNAVAILABLE"), code
        assert c.get(b"k", serializable=True).value == b"1"
        for r in others:
            r.start()
        cell.wait_ready()
        assert insist(lambda: cs[1].get(b"k")).value in (b"1", b"2")
