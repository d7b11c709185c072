"""More writes than the cell carries: what is refused, what passes by, and that nothing acknowledged is lost. Figures: scripts/bench overload."""
import cells
from kit import clients, lockpb, pb, prefix
from runner import test

TOO_MANY = ("RESOURCE_EXHAUSTED", "etcdserver: too many requests")
SIZE, COUNT = 100_000, 400  # four times what may wait for as long as nobody knows how fast it goes


def outcome(future):
    """None, or (code name, text)."""
    e = future.exception(timeout=60)
    return e and (e.code().name, e.details())


@test(own=True, timeout=120)
def unlock_passes_by_what_waits_and_too_much_is_refused(server):
    """Both followers stand still, so nothing can be committed; the leader's patience is long, so it goes on leading."""
    with cells.Cell(server, 3, flags=["--election-timeout", "3000"]) as cell, clients(cell, timeout=60) as cs:
        leader = cell.leader()
        c = cs[cell.replicas.index(leader)]
        held, other = c.take_lock(b"l", c.grant(600)), c.grant(600)
        followers = [r for r in cell.replicas if r is not leader]
        for r in followers:
            r.pause()
        try:
            puts = [c.kv.Put.future(pb.PutRequest(key=b"w/%04d" % i, value=b"v" * SIZE), timeout=60) for i in range(COUNT)]
            cells.wait_for("some are refused", lambda: any(p.done() for p in puts), 30)
            unlock = c.lock.Unlock.future(lockpb.UnlockRequest(key=held.key), timeout=60)
            revoke = c.lease.LeaseRevoke.future(pb.LeaseRevokeRequest(ID=other), timeout=60)
            cells.wait_for("all are in the line or refused", lambda: sum(p.done() for p in puts) >= COUNT // 2, 30)
        finally:
            for r in followers:
                r.resume()
        freed = [f.result(60).header.revision for f in (unlock, revoke)]
        outcomes = [outcome(p) for p in puts]
        assert set(outcomes) == {None, TOO_MANY}, set(outcomes)
        written = [p.result().header.revision for p, e in zip(puts, outcomes) if e is None]
        behind = sum(r > max(freed) for r in written)
        print(f"{len(written)} written, {COUNT - len(written)} refused, {behind} of those that were sent before behind the unlock")
        assert behind > len(written) // 4, "what frees something stood in line"
        there = {kv.key for kv in c.range(**prefix(b"w/"), keys_only=True).kvs}
        assert there == {b"w/%04d" % i for i, e in enumerate(outcomes) if e is None}
        c.put(b"k", b"v")
