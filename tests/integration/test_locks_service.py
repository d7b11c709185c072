"""holdfast.v1.Locks: who holds and who waits, whether a token is current, and an operator who breaks a hold. Each by gRPC and by JSON."""
import sys

import cells
from kit import lockpb, wait_queue
from runner import test
from ways import both_ways, line_up, refused

TTL = 60


@test(own=True)
def holders_and_waiters_in_order(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        name, leases = tag + b"jobs/a", [cs[0].grant(TTL) for _ in range(4)]
        held = ways[0].lock(name, leases[0])
        waiting = []  # a call that nobody refers to is cancelled
        for n, lease in enumerate(leases[1:], 2):
            waiting.append(ways[n % 3].ask_lock(name, lease, mode=lockpb.SHARED if n == 4 else lockpb.EXCLUSIVE))
            queue = wait_queue(cs[0], name, n)
        ways[1].lock(tag + b"jobs/longer name", leases[1])
        ways[1].lock(tag + b"other", leases[1])
        for way in ways:
            reply = way.list(prefix=tag + b"jobs/")
            assert [q.name for q in reply.locks] == [name, tag + b"jobs/longer name"] and not reply.next
            places = reply.locks[0].places
            assert [p.lease for p in places] == leases
            assert [p.held for p in places] == [True, False, False, False]
            assert [p.mode for p in places] == [0, 0, 0, 1]
            assert [(p.fencing_token, p.key) for p in places] == [(kv.create_revision, kv.key) for kv in queue]
            assert places[0].fencing_token == held.fencing_token
            assert all(p.since_unix_ms > 1600000000000 and p.client.startswith("127.0.0.1:") for p in places), places
            assert [p.since_unix_ms for p in places] == sorted(p.since_unix_ms for p in places)
        assert not any(w.done() for w in waiting)
        for w in waiting:
            w.cancel()
    body(server)


@test(own=True)
def pages(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        lease = cs[0].grant(TTL)
        names = [tag + b"p%0*d" % (i % 3 + 1, i) for i in range(40)]
        for name in names:
            cs[0].take_lock(name, lease)
        got, after = [], b""
        while True:
            reply = ways[1].list(prefix=tag + b"p", limit=7, after=after)
            assert len(reply.locks) <= 7
            got += [q.name for q in reply.locks]
            after = reply.next
            if not after:
                break
        assert got == sorted(set(names), key=lambda n: (len(n), n))
        assert refused(ways[0].list, limit=-1).code == "INVALID_ARGUMENT"
    body(server)


@test(own=True)
def a_token_is_verified(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        name, leases = tag + b"l", [cs[0].grant(TTL) for _ in range(2)]
        held, waiting = line_up(ways, cs, name, leases)
        place = cs[0].queue(name)[1].create_revision
        for way in ways:
            answer = way.ask_verify(name, held.fencing_token).result()
            assert answer.current and answer.hold.lease == leases[0]
            assert not way.verify(name, place), "a place in the queue is no hold"
        ways[2].unlock(held.key)
        now = waiting.result(10)
        for way in ways:
            assert not way.verify(name, held.fencing_token) and way.verify(name, now.fencing_token)
        assert refused(ways[0].verify, b"", 1).code == "INVALID_ARGUMENT"
    body(server)


@test(own=True)
def a_hold_is_broken_and_logged(server):
    @both_ways
    def body(ways, cs, cell, tag):
        name, leases = tag + b"l", [cs[0].grant(TTL) for _ in range(3)]
        held, second, third = line_up(ways, cs, name, leases)

        def logged():
            return [sum("broken by an operator" in line for line in r.log_tail(200).splitlines()) for r in cell.replicas]
        before = logged()
        broken = ways[2].break_hold(name=name, fencing_token=held.fencing_token).broken
        assert broken.lease == leases[0] and broken.key == held.key
        got = second.result(10)
        assert not ways[1].break_hold(name=name, fencing_token=held.fencing_token).HasField("broken"), "a later hold was broken"
        assert cs[0].leases() >= set(leases), "the lease is the holder's own"
        assert ways[0].break_hold(key=got.key).broken.lease == leases[1]
        third.result(10)
        assert [n - b for n, b in zip(logged(), before)] == [1, 0, 1], "a break is told by who was asked for it"
        assert refused(ways[0].break_hold, name=name).code == "INVALID_ARGUMENT"
        cs[0].put(tag + b"plain")
        assert refused(ways[0].break_hold, key=tag + b"plain").code == "FAILED_PRECONDITION"
    body(server)


if __name__ == "__main__":
    sys.exit("run.py runs these")
