"""The network between replicas is cut and healed, while each process goes on and can be reached by its clients.

To have a deposed leader that does not know it for long, it is also stopped for a while: a process that stood still moves its own
deadlines (it cannot have missed what nobody could send), so after going on it leads in its own eyes for about an election timeout,
with nobody to tell it otherwise.
"""
import random

import cells
from kit import Client, KeepAliveStream, KeepingAlive, Load, clients, error_of, grpc, insist, pb, same_everywhere, stays, wait_queue
from runner import is_full, test

UNSURE = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED")


class Deposed:
    """A cell of three whose leader was cut off and replaced, and still believes that it leads."""

    def __init__(self, cell, cs):
        self.cell = cell
        self.leader = cell.leader()
        self.old = cs[cell.replicas.index(self.leader)]
        self.up = [c for c in cs if c is not self.old]
        self.old.get(b"warm")
        cell.network.isolate(self.leader)
        self.leader.pause()
        insist(lambda: self.up[0].put(b"new leader", b"", timeout=1))

    def go_on(self):
        """The old leader runs again, still cut off."""
        self.leader.resume()

    def heal(self):
        self.cell.network.heal()
        self.cell.wait_ready()


def outcome(future, timeout=20):
    """("OK", reply) or (code, text)."""
    try:
        return "OK", future.result(timeout)
    except grpc.RpcError as e:
        return e.code().name, e.details()


@test(timeout=120)
def a_deposed_leader_that_is_cut_off_answers_no_stale_read(server):
    with cells.Cell(server, 3, relays=True) as cell, clients(cell) as cs:
        for turn in range(3):
            insist(lambda: cs[0].put(b"k", b"old"))
            d = Deposed(cell, cs)
            insist(lambda: d.up[0].put(b"k", b"new%d" % turn, timeout=1))
            reads = [d.old.kv.Range.future(pb.RangeRequest(key=b"k"), timeout=8) for _ in range(10)]
            txn = pb.TxnRequest()
            txn.success.add().request_range.key = b"k"
            reads.append(d.old.kv.Txn.future(txn, timeout=8))
            d.go_on()
            reads += [d.old.kv.Range.future(pb.RangeRequest(key=b"k"), timeout=8) for _ in range(10)]
            stays("a read was answered without a majority", lambda: not any(r.done() and not r.exception() for r in reads), 1.5)
            d.heal()
            for r in reads:
                code, reply = outcome(r)
                assert code in UNSURE + ("OK",), (code, reply)
                if code == "OK":
                    kvs = reply.kvs if hasattr(reply, "kvs") else reply.responses[0].response_range.kvs
                    assert kvs[0].value == b"new%d" % turn, f"a deposed leader answered {kvs[0].value}"


@test(own=True, timeout=120)
def a_deposed_leader_that_is_cut_off_renews_nothing(server):
    """One lease is revoked at the new leader, one lives. Of neither may the old one say that it is renewed, or gone."""
    with cells.Cell(server, 3, relays=True) as cell, clients(cell) as cs:
        for _ in range(2):
            lease, kept = insist(lambda: cs[0].grant(30)), insist(lambda: cs[0].grant(30))
            d = Deposed(cell, cs)
            insist(lambda: d.up[0].revoke(lease))
            answers = []
            for i in (lease, kept):
                stream = KeepAliveStream(d.old, timeout=8)
                stream.send(i)
                answers.append(stream)
            left = d.old.lease.LeaseTimeToLive.future(pb.LeaseTimeToLiveRequest(ID=lease), timeout=8)
            d.go_on()
            stays("a question about a lease was answered without a majority", lambda: not left.done() or left.exception(), 1.5)
            d.heal()
            told = []
            for stream in answers:
                try:
                    told.append(stream.receive().TTL)
                except grpc.RpcError as e:
                    assert e.code().name in UNSURE, e
                    told.append(None)
            assert told[0] in (0, None), f"a revoked lease was renewed: {told}"
            assert told[1] in (30, None), f"a lease that lives was told to be gone: {told}"
            code, reply = outcome(left)
            assert code in UNSURE or reply.TTL == -1, reply
            assert insist(lambda: d.old.keep_alive(lease, kept)) == [0, 30]


@test(timeout=120)
def a_deposed_leader_that_is_cut_off_ends_no_lease(server):
    """It lets leases run out that are renewed elsewhere; what it wants to say of them arrives when the cut is healed."""
    with cells.Cell(server, 3, relays=True) as cell, clients(cell) as cs:
        ttl = 3
        leases = [cs[i % 3].grant(ttl) for i in range(20)]
        for i, lease in enumerate(leases):
            cs[0].put(b"s/%d" % i, b"", lease=lease)
        with KeepingAlive(cell, leases, every=0.4) as sessions:
            for _ in range(2):
                leader = cell.leader()
                cell.network.isolate(leader)
                up = next(c for c, r in zip(cs, cell.replicas) if r is not leader)
                insist(lambda: up.put(b"x", b"", timeout=1))
                seen = sessions.renewed
                cells.wait_for("twice the TTL goes by in renewals", lambda: sessions.renewed >= seen + 2 * ttl / 0.4, 90)
                assert not sessions.lost, f"{len(sessions.lost)} leases were lost while the leader was cut off"
                cell.network.heal()
                cell.wait_ready()
                seen = sessions.renewed
                cells.wait_for("sessions renewed after the cut", lambda: sessions.renewed >= seen + 4, 60)
                assert not sessions.lost, f"{len(sessions.lost)} leases ended when the cut was healed"
        assert insist(lambda: cs[0].range(key=b"s/", range_end=b"s0")).count == len(leases)
        same_everywhere(cell)


@test(own=True, timeout=120)
def a_deposed_leader_that_is_cut_off_acknowledges_and_grants_nothing(server):
    with cells.Cell(server, 3, relays=True) as cell, clients(cell) as cs:
        for turn in range(2):
            name, key = b"l%d" % turn, b"w%d" % turn
            first, second = insist(lambda: cs[0].grant(60)), insist(lambda: cs[0].grant(60))
            d = Deposed(cell, cs)
            held = insist(lambda: d.up[0].take_lock(name, first))
            insist(lambda: d.up[0].put(key, b"theirs"))
            lock = d.old.ask_lock(name, second, timeout=8)
            free = d.old.ask_lock(b"free%d" % turn, second, timeout=8)
            put = d.old.kv.Put.future(pb.PutRequest(key=key, value=b"ours"), timeout=8)
            d.go_on()
            stays("something was acknowledged without a majority",
                  lambda: not any(f.done() and not f.exception() for f in (lock, free, put)), 1.5)
            d.heal()
            code, reply = outcome(put)
            assert code in UNSURE or code == "OK", (code, reply)
            kv = insist(lambda: d.up[1].get(key))
            # The outcome of what was not acknowledged is open, but it is one of the two, done once.
            assert (kv.value, kv.version) in ((b"theirs", 1), (b"ours", 2)), kv
            if code == "OK":
                assert kv.value == b"ours" and kv.mod_revision == reply.header.revision
            assert not lock.done() or lock.exception(), "two hold the lock"
            assert insist(lambda: d.up[0].queue(name))[0].key == held.key


@test(timeout=120)
def a_waiter_at_a_replica_that_is_cut_off_gets_its_turn_after_the_cut(server):
    """Its call waits all the while. It is granted once only, and never while somebody else holds the lock."""
    with cells.Cell(server, 3, relays=True) as cell, clients(cell) as cs:
        first, second = cs[0].grant(60), cs[0].grant(60)
        follower = next(r for r in cell.replicas if r is not cell.leader())
        at = cs[cell.replicas.index(follower)]
        up = [c for c in cs if c is not at]
        held = up[0].take_lock(b"l", first)
        waiting = at.ask_lock(b"l", second)
        wait_queue(up[0], b"l", 2)
        cell.network.isolate(follower)
        up[1].unlock(held.key)
        stays("a grant reached a replica that is cut off", lambda: not waiting.done() or waiting.exception(), 1)
        cell.network.heal()
        code, reply = outcome(waiting)
        if code == "OK":
            assert insist(lambda: up[0].queue(b"l"))[0].key == reply.key
        else:  # given up for lost meanwhile; then it has left the queue, or asks again
            assert code in UNSURE, (code, reply)
        got = insist(lambda: up[0]).take_lock(b"l", second, timeout=15)
        assert got.key == b"l/%x" % second


@test(timeout=180)
def leaders_and_followers_are_cut_off_under_load(server):
    """One after the other, sometimes in one direction only; what was held back arrives late."""
    rng = random.Random()
    with cells.Cell(server, 3, relays=True) as cell, Load(cell) as load:
        for _ in range(20 if is_full() else 4):
            load.wait_more(40)
            victim = cell.leader() if rng.random() < 0.6 else rng.choice(cell.replicas)
            if rng.random() < 0.6:
                cell.network.isolate(victim)
            else:
                other = rng.choice([r for r in cell.replicas if r is not victim])
                cell.network.cut(victim, other)
                if rng.random() < 0.5:
                    cell.network.cut(victim, next(r for r in cell.replicas if r not in (victim, other)))
            load.wait_more(40)
            cell.network.heal()
        load.stop()
        cell.wait_ready()
        same_everywhere(cell)
        with Client(cell.replicas[0]) as c:
            n = load.check(c)
        print(f"{n} writes, longest gap {load.longest_gap:.2f} s, {load.errors}")


@test(timeout=180)
def two_of_five_are_cut_off_under_load(server):
    with cells.Cell(server, 5, relays=True) as cell, Load(cell) as load:
        for _ in range(10 if is_full() else 2):
            load.wait_more(40)
            leader = cell.leader()
            pair = [leader, next(r for r in cell.replicas if r is not leader)]
            for r in pair:  # each alone: two that see one another are not more
                cell.network.isolate(r)
            load.wait_more(40)
            cell.network.heal()
        load.stop()
        cell.wait_ready()
        same_everywhere(cell)
        with Client(cell.replicas[0]) as c:
            assert load.check(c) > 100


@test(timeout=120)
def a_follower_that_was_cut_off_disturbs_nobody_when_it_is_back(server):
    """It has asked for votes all the while (pre-votes, that is): no new term, the same leader."""
    with cells.Cell(server, 3, relays=True) as cell, clients(cell) as cs:
        leader = cell.leader()
        follower = next(r for r in cell.replicas if r is not leader)
        at = cs[cell.replicas.index(leader)]
        term = at.status().raftTerm
        cell.network.isolate(follower)
        cells.wait_for("the follower knows that it is alone", lambda: not follower.healthy(), 20)
        assert error_of(cs[cell.replicas.index(follower)].put, b"x", timeout=2)[0] in UNSURE
        stays("the leader changed", lambda: at.status().raftTerm == term, 3)
        cell.network.heal()
        cell.wait_ready()
        same_everywhere(cell)
        assert cell.leader() is leader and at.status().raftTerm == term, "it disturbed the cell"
