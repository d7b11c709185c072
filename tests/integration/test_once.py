"""Exactly once: a request that names its session and its ID, sent again to whatever replica, takes effect once and is answered the same."""
import sys
import time

import cells
from kit import clients, error_of_future, insist, lockpb, newest_snapshot, pb, wait_queue
from runner import test
from ways import Waiting, all_ways, named, refused

TTL = 60


def put(c, session, request, key=b"k", value=b"v", first=0, **fields):
    return c.kv.Put(pb.PutRequest(key=key, value=value, **fields), metadata=named(session, request, first), timeout=10)


@test(own=True)
def an_error_is_a_result_too(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs, all_ways(cell.replicas) as ways:
        for n, first in enumerate((ways[0], ways[3])):
            session, lease = cs[0].grant(TTL), 4711 + n
            m = named(session, 1)
            assert refused(first.put, b"k", lease=lease, metadata=m).code == "NOT_FOUND"
            cs[0].grant(TTL, lease=lease)
            for way in ways:
                assert refused(way.put, b"k", lease=lease, metadata=m).code == "NOT_FOUND"
            assert cs[1].get(b"k") is None


@test(own=True)
def half_a_name_is_refused(server):
    with cells.Cell(server, 1) as cell, all_ways(cell.replicas) as ways:
        for way in ways:
            for m in ([("holdfast-session", "x")], [("holdfast-session", "5")], [("holdfast-request", "5")]):
                assert refused(way.put, b"k", metadata=m).code == "INVALID_ARGUMENT", m


@test(own=True, timeout=120)
def a_write_whose_outcome_nobody_can_tell_says_so(server):
    """It is applied, but before the follower that was asked hears of that, a snapshot takes the place of the log. One that names its request is answered all the same."""
    with cells.Cell(server, 3, flags=["--snapshot-count", "20", "--snapshot-catchup-entries", "2"], relays=True) as cell, clients(cell) as cs, \
            all_ways(cell.replicas) as ways:
        leader = cell.leader()
        at = next(i for i, r in enumerate(cell.replicas) if r is not leader)
        up = cs[cell.replicas.index(leader)]
        session, deaf = up.grant(TTL), cell.replicas[at]
        wires = [ways[at], ways[at + 3]]
        for way in wires:
            way.put(b"before")  # its connection is up
        others = [r for r in cell.replicas if r is not deaf]
        for r in others:
            cell.network.cut(r, deaf)
        unnamed = [Waiting(lambda w=w, n=n: w.put(b"u%d" % n), None) for n, w in enumerate(wires)]
        once = [Waiting(lambda w=w, n=n: w.put(b"n%d" % n, metadata=named(session, 1 + n)), None) for n, w in enumerate(wires)]
        cells.wait_for("they are applied", lambda: all(up.get(k + b"%d" % n) for n in range(2) for k in (b"u", b"n")))
        for _ in range(50):
            up.put(b"after")
        for r in others:  # they cut their logs behind a snapshot, and forget what they had in memory
            cells.wait_for("two snapshots were made", lambda r=r: newest_snapshot(r) >= 40)
            r.kill()
        for r in others:
            r.start()
        cell.wait_ready(others)
        cell.network.heal(lose=True)
        for call in unnamed:
            e = refused(call.result)
            assert (e.code, e.text) == ("UNAVAILABLE", "holdfast: the request may or may not have been applied"), e
        for n, call in enumerate(once):
            assert call.result().header.revision == insist(lambda n=n: cs[at].get(b"n%d" % n)).mod_revision


@test(own=True, timeout=120)
def increments_with_the_leader_killed_are_each_done_once(server):
    """A counter is raised by a compare and a put that may be sent several times; each ID counts once."""
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        session = cs[0].grant(TTL)
        started = time.monotonic()
        killed = None
        for request in range(1, 61):
            def once(i=[request]):
                i[0] += 1
                return put(cs[i[0] % 3], session, request, key=b"n", value=b"%d" % request, first=request)
            insist(once)
            if request == 20:
                killed = cell.leader()
                killed.kill()
            if request == 40:
                killed.start()
        kv = insist(lambda: cs[0].get(b"n"))
        assert kv.version == 60 and kv.value == b"60", f"version {kv.version} after 60 requests, {time.monotonic() - started:.1f} s"


@test(own=True)
def a_waiting_lock_keeps_its_place_when_its_replica_dies(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        leases = [cs[0].grant(TTL) for _ in range(3)]
        leader = cell.replicas.index(cell.leader())
        dies, stays = [i for i in range(3) if i != leader]
        held = cs[stays].take_lock(b"l", leases[0])
        request = lockpb.LockRequest(name=b"l", lease=leases[1])
        lost = cs[dies].lock.Lock.future(request, metadata=named(leases[1], 1), timeout=60)
        wait_queue(cs[stays], b"l", 2)
        later = cs[stays].ask_lock(b"l", leases[2])
        wait_queue(cs[stays], b"l", 3)
        place = cs[stays].queue(b"l")[1].create_revision
        cell.replicas[dies].kill()
        again = cs[stays].lock.Lock.future(request, metadata=named(leases[1], 1), timeout=60)
        time.sleep(0.5)
        cs[stays].unlock(held.key)
        assert again.result(20).fencing_token == place
        assert not later.done() and error_of_future(lost)[0] == "UNAVAILABLE"


if __name__ == "__main__":
    sys.exit("run.py runs these")
