"""What holders and waiters of locks and elections may rely on, line by line, each by gRPC and by JSON. And faults that others have had in public."""
import random
import threading
import time

import cells
from kit import Client, clients, electionpb, insist, lockpb, newest_snapshot, pb, stays, wait_queue
from runner import is_full, test
from ways import Grpc, Json, Refused, Waiting, all_ways, both_ways, line_up, named, refused

TTL = 60
SHARED = lockpb.SHARED


def arrives(way, key_of_nobody):
    """A channel that was broken may be waiting to connect again, and refuses meanwhile."""
    try:
        way.unlock(key_of_nobody)
    except Refused as e:
        assert e.code == "UNAVAILABLE", e
        return False
    return True


# ---- modes and waits ----

@test(own=True, timeout=120)
def first_come_first_served_and_no_writer_starves(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        name, leases = tag + b"l", [cs[0].grant(TTL) for _ in range(5)]
        readers = [ways[i].lock(name, leases[i], mode=SHARED) for i in range(2)]
        writer = ways[2].ask_lock(name, leases[2])
        wait_queue(cs[0], name, 3)
        late = ways[0].ask_lock(name, leases[3], mode=SHARED)
        wait_queue(cs[0], name, 4)
        assert refused(ways[1].lock, name, leases[4], mode=SHARED, wait_ms=0).code == "FAILED_PRECONDITION", "a reader overtook a waiting writer"
        ways[0].unlock(readers[0].key)
        stays("somebody was let in beside a reader", lambda: not writer.done() and not late.done(), 0.2)
        ways[1].unlock(readers[1].key)
        held = writer.result()
        stays("a reader beside the writer", lambda: not late.done(), 0.2)
        ways[2].unlock(held.key)
        assert late.result().fencing_token > held.fencing_token
    body(server)


@test(own=True, timeout=120)
def a_refusal_says_who_holds_and_leaves_nothing_behind(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        name, leases = tag + b"l", [cs[0].grant(TTL) for _ in range(3)]
        held, waiting = line_up(ways, cs, name, leases[:2])
        for way in ways:
            began = time.monotonic()
            for wait_ms, code, text in ((0, "FAILED_PRECONDITION", "the lock is held"), (300, "DEADLINE_EXCEEDED", "the lock was not granted in the time given")):
                e = refused(way.lock, name, leases[2], wait_ms=wait_ms)
                assert (e.code, e.text) == (code, f"holdfast: {text}") and e.refusal, e
                assert e.refusal.name == name and e.refusal.holder.since_unix_ms > 1600000000000, e.refusal
                assert (e.refusal.holder.lease, e.refusal.holder.fencing_token, e.refusal.waiters) == (leases[0], held.fencing_token, 1), e.refusal
                assert len(cs[0].queue(name)) == 2, "a refused call is still in the queue"
            assert time.monotonic() - began >= 0.3
            before = cs[0].leases()
            assert refused(way.lock, name, 0, wait_ms=200).code == "DEADLINE_EXCEEDED"
            assert refused(way.lock, name, 0, wait_ms=0).code == "FAILED_PRECONDITION"
            assert cs[0].leases() == before, "a refused call left a lease behind"
            assert refused(way.lock, name, leases[2], wait_ms=-1).code == "INVALID_ARGUMENT"
        assert not waiting.done()
        waiting.cancel()
    body(server)


@test(own=True, timeout=120)
def a_waiter_whose_lease_ends_is_told_so_and_never_granted(server):
    """Nor granted together with the next one, nor left to wait for ever."""
    @both_ways
    def body(ways, cs, _cell, tag):
        for n, end in enumerate(("revoke", "time")):
            name = tag + b"l%d" % n
            leases = [cs[0].grant(TTL), cs[0].grant(TTL if end == "revoke" else 3), cs[0].grant(TTL)]
            held, doomed, behind = line_up(ways, cs, name, leases)
            if end == "revoke":
                cs[2].revoke(leases[1])
            cells.wait_for("the lease ends", lambda lease=leases[1]: lease not in cs[0].leases(), 10)
            began = time.monotonic()
            e = refused(doomed.result)
            assert e.code == "NOT_FOUND" and time.monotonic() - began <= 1, e
            stays("the one behind it was let in beside the holder", lambda b=behind: not b.done(), 0.2)
            ways[0].unlock(held.key)
            assert behind.result().lease == leases[2]
    body(server)


@test(own=True, timeout=180)
def waits_end_with_their_call_or_their_replica(server):
    @both_ways
    def body(ways, cs, cell, tag):
        name, leases = tag + b"l", [insist(lambda: cs[0].grant(TTL)) for _ in range(3)]
        held = insist(lambda: cs[0].take_lock(name, leases[0]))
        for way in ways:
            gone = way.ask_lock(name, leases[1])
            wait_queue(cs[0], name, 2)
            gone.cancel()
            wait_queue(cs[0], name, 1)
        at = next(i for i, r in enumerate(cell.replicas) if r is not cell.leader() and i != 0)
        lost = ways[at].ask_lock(name, leases[1])
        wait_queue(cs[0], name, 2)
        behind = ways[0].ask_lock(name, leases[2])
        before = wait_queue(cs[0], name, 3)
        cell.replicas[at].kill()
        assert refused(lost.result).code == "UNAVAILABLE"
        # Asked again elsewhere: the same place, by its own token.
        again = ways[0].ask_lock(name, leases[1])
        stays("it was let in beside the holder", lambda: not again.done(), 0.3)
        insist(lambda: cs[0].unlock(held.key))
        got = again.result()
        assert got.fencing_token == before[1].create_revision and not behind.done(), "it lost its place"
        ways[0].unlock(got.key)
        assert behind.result().fencing_token == before[2].create_revision
        cell.replicas[at].start()
        cell.wait_ready()
    body(server)


@test(own=True, timeout=120)
def a_wait_that_is_cancelled_in_the_middle_lets_nobody_overtake(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        name, leases = tag + b"l", [cs[0].grant(TTL) for _ in range(3)]
        held, middle, last = line_up(ways, cs, name, leases)
        middle.cancel()
        wait_queue(cs[0], name, 2)
        stays("the last one got the lock while it is held", lambda: not last.done(), 0.3)
        ways[1].unlock(held.key)
        assert last.result().lease == leases[2]
    body(server)


@test(own=True, timeout=180)
def a_cancel_at_any_moment_leaves_a_hold_that_was_told_or_nothing(server):
    """Before the call is in the log, on its way through it, while it waits, when its turn has come."""
    def cancelled(calls):
        """The keys of those who were told that they hold it, all the same."""
        for call in calls:
            time.sleep(random.random() * 0.003)
            call.cancel()
        return [call.result().key for call in calls if call.granted()]

    @both_ways
    def body(ways, cs, _cell, tag):
        name, first, leases = tag + b"l", cs[0].grant(TTL), [cs[0].grant(TTL) for _ in range(6)]
        held = ways[0].lock(name, first)

        def ask(i):
            return [ways[(i + j) % 3].ask_lock(name, lease) for j, lease in enumerate(leases)]
        for i in range(150 if is_full() else 20):
            assert cancelled(ask(i)) == []
        wait_queue(cs[1], name, 1)
        # And while the lock changes hands.
        for i in range(100 if is_full() else 15):
            calls = ask(i)
            time.sleep(random.random() * 0.005)
            ways[i % 3].unlock(held.key)
            told = cancelled(calls)
            assert len(told) <= 1, f"{told} were all told that they hold the lock"
            # An answer that was on its way when its call was cancelled stands, whether or not it was read.
            cells.wait_for("all the others are gone", lambda i=i: len(cs[i % 3].queue(name)) <= 1, 15)
            left = [kv.key for kv in cs[i % 3].queue(name)]
            assert set(told) <= set(left), f"{told} is told to hold the lock, and {left} does"
            for key in left:
                ways[i % 3].unlock(key)
            held = ways[0].lock(name, first, wait_ms=5000)
    body(server)


@test(own=True, timeout=120)
def compaction_disturbs_no_waiter(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        name, leases = tag + b"l", [cs[0].grant(TTL) for _ in range(2)]
        held, waiting = line_up(ways, cs, name, leases)
        place = cs[0].queue(name)[1].create_revision
        for i in range(5):
            cs[0].compact(cs[0].put(b"x", b"%d" % i).header.revision)
        assert not waiting.done()
        again = ways[2].ask_lock(name, leases[1])
        ways[0].unlock(held.key)
        assert {waiting.result().fencing_token, again.result().fencing_token} == {place}
    body(server)


@test(own=True, timeout=120)
def the_same_session_has_one_place_and_one_hold(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        name, leases = tag + b"l", [cs[0].grant(TTL) for _ in range(2)]
        held = ways[0].lock(name, leases[0])
        for way in ways:
            again = way.lock(name, leases[0])
            assert (again.key, again.fencing_token) == (held.key, held.fencing_token)
            assert refused(way.lock, name, leases[0], mode=SHARED).code == "FAILED_PRECONDITION"
        early = ways[1].ask_lock(name, leases[1])
        place = wait_queue(cs[0], name, 2)[1].create_revision
        late = ways[2].ask_lock(name, leases[1])
        assert refused(ways[0].lock, name, leases[1], mode=SHARED).code == "FAILED_PRECONDITION", "a waiter changed its mode"
        time.sleep(0.2)  # nothing tells when the later call has arrived
        early.cancel()  # late: its place is another call's by now
        stays("the place went with a call that is not the latest", lambda: len(cs[0].queue(name)) == 2, 0.5)
        ways[0].unlock(held.key)
        assert late.result().fencing_token == place
    body(server)


# ---- tokens ----

@test(own=True, timeout=120)
def unlock_with_a_token_frees_that_hold_alone(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        name, lease = tag + b"l", cs[0].grant(TTL)
        first = ways[0].lock(name, lease)
        assert first.lease == lease and 0 < first.ttl <= TTL and cs[1].get(first.key).create_revision == first.fencing_token, first
        assert all(way.verify(name, first.fencing_token) for way in ways)
        ways[1].unlock(first.key, fencing_token=first.fencing_token)
        second = ways[2].lock(name, lease)
        assert second.key == first.key and second.fencing_token > first.fencing_token
        for way in ways:
            way.unlock(first.key, fencing_token=first.fencing_token)  # sent again: fine, and frees nothing
            assert way.verify(name, second.fencing_token) and not way.verify(name, first.fencing_token)
        e = refused(ways[0].unlock, second.key, fencing_token=second.fencing_token + 100)
        assert (e.code, e.text) == ("FAILED_PRECONDITION", "holdfast: the fencing token is not the holder's"), e
        ways[0].unlock(second.key)
        ways[1].unlock(second.key)  # gone: OK, as etcd says
        assert not any(way.verify(name, second.fencing_token) for way in ways)
        cs[0].put(tag + b"plain")
        assert refused(ways[2].unlock, tag + b"plain").code == "FAILED_PRECONDITION"
        assert cs[0].get(tag + b"plain") is not None
    body(server)


@test(own=True, timeout=120)
def a_deposed_leader_confirms_no_token_that_is_over(server):
    """The question is in its socket before it goes on, so it meets it believing that it still leads."""
    @both_ways
    def body(ways, cs, cell, tag):
        name, leases = tag + b"l", [insist(lambda: cs[0].grant(TTL)) for _ in range(2)]
        at = cell.replicas.index(cell.leader())
        held = ways[at].lock(name, leases[0])
        assert ways[at].verify(name, held.fencing_token)
        cell.replicas[at].pause()
        other = cs[(at + 1) % 3]
        insist(lambda: other.put(b"x", b"", timeout=1))
        insist(lambda: other.unlock(held.key))
        now = insist(lambda: other.take_lock(name, leases[1]))
        asked = [ways[at].ask_verify(name, held.fencing_token) for _ in range(5)]
        time.sleep(0.3)  # nothing tells when they have left
        cell.replicas[at].resume()
        for a in asked:
            try:
                assert not a.result(40).current, "a token that is over was confirmed"
            except Refused as e:  # not sure is an answer, too
                assert e.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"), e
        cell.wait_ready()
        cells.wait_for("it knows better", lambda: arrives(ways[at], name + b"/0"))
        assert ways[at].verify(name, now.fencing_token) and not ways[at].verify(name, held.fencing_token)
    body(server)


# ---- a lock is not lost by accident ----

@test(own=True, timeout=120)
def no_write_takes_a_contenders_lease_away(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        name, mine, other = tag + b"l", cs[0].grant(TTL), cs[0].grant(TTL)
        held = ways[0].lock(name, mine)
        for way in ways:
            for lease in (0, other):
                assert refused(way.put, held.key, b"v", lease=lease).code == "FAILED_PRECONDITION"
                assert refused(way.txn, pb.PutRequest(key=tag + b"else"), pb.PutRequest(key=held.key, lease=lease)).code == "FAILED_PRECONDITION"
        assert cs[0].get(tag + b"else") is None, "half a transaction"
        ways[1].put(held.key, b"value", lease=mine)
        ways[2].put(held.key, b"value again", ignore_lease=True)
        kv = cs[0].get(held.key)
        assert (kv.lease, kv.create_revision, kv.value) == (mine, held.fencing_token, b"value again")
        assert ways[0].verify(name, held.fencing_token)
        # A key that is there already never becomes a contender: it would jump the queue.
        squatter = name + b"/%x" % other
        cs[0].put(squatter)
        assert refused(ways[0].put, squatter, lease=other).code == "FAILED_PRECONDITION"
        assert refused(ways[1].lock, name, other, wait_ms=0).code == "FAILED_PRECONDITION"
    body(server)


@test(own=True, timeout=120)
def lock_renews_nothing_and_tells_the_lease_it_made(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        lease = cs[0].grant(3)
        time.sleep(1.2)
        ways[0].lock(tag + b"a", lease)
        assert cs[0].ttl(lease).TTL <= 2, "Lock extended its lease"
        made = ways[1].lock(tag + b"b", 0)
        assert made.lease != 0 and made.ttl == cs[0].ttl(made.lease).grantedTTL and made.key.endswith(b"/%x" % made.lease)
        assert cs[2].keep_alive(made.lease) == [made.ttl]
        cells.wait_for("the lease ends in its own time", lambda: lease not in cs[0].leases(), 6)
    body(server)


# ---- elections ----

@test(own=True, timeout=120)
def campaigns_have_bounds_and_end_with_their_lease(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        name, leases = tag + b"e", [cs[0].grant(TTL) for _ in range(3)]
        won = ways[0].campaign(name, leases[0], b"one")
        kv = cs[1].get(won.leader.key)
        assert (kv.create_revision, kv.value) == (won.leader.rev, b"one") and won.fencing_token == won.leader.rev
        for way in ways:
            for wait_ms, code in ((0, "FAILED_PRECONDITION"), (200, "DEADLINE_EXCEEDED")):
                e = refused(way.campaign, name, leases[1], wait_ms=wait_ms)
                assert e.code == code and (e.refusal.holder.lease, e.refusal.holder.fencing_token, e.refusal.waiters) == (leases[0], won.leader.rev, 0), (e, e.refusal)
            assert len(cs[0].queue(name)) == 1
        doomed = ways[1].ask_campaign(name, leases[1])
        wait_queue(cs[0], name, 2)
        cs[2].revoke(leases[1])
        began = time.monotonic()
        assert refused(doomed.result).code == "NOT_FOUND" and time.monotonic() - began <= 1
    body(server)


@test(own=True, timeout=120)
def resign_and_proclaim_are_fenced_by_revision(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        name, lease = tag + b"e", cs[0].grant(TTL)
        first = ways[0].campaign(name, lease, b"one").leader
        ways[1].proclaim(first, b"two")
        assert ways[2].leader(name).kv.value == b"two"
        ways[1].resign(first)
        assert refused(ways[0].proclaim, first, b"late").text == "election: not leader"
        second = ways[2].campaign(name, lease, b"three").leader
        assert second.key == first.key and second.rev > first.rev
        ways[0].resign(first)  # late: of an earlier leadership
        assert refused(ways[0].proclaim, first, b"late").text == "election: not leader"
        assert ways[0].leader(name).kv.value == b"three", "a late Resign or Proclaim touched a later leadership"
    body(server)


@test(own=True, timeout=120)
def observe_tells_vacancies_and_the_next_leader_comes_with_one_commit(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        name, leases = tag + b"e", [cs[0].grant(TTL) for _ in range(2)]
        seen, as_etcd = ways[1].observe(name), Waiting(lambda: [r.kv.value for _, r in zip(range(2), ways[2].observe(name, vacancy=False))], lambda: None)
        assert next(seen).vacant
        first = ways[0].campaign(name, leases[0], b"one").leader
        assert next(seen).kv.value == b"one"
        behind = ways[2].ask_campaign(name, leases[1], b"two")
        wait_queue(cs[0], name, 2)
        gone = cs[0].delete(key=first.key).header.revision
        now = ways[0].leader(name)
        assert (now.kv.lease, now.header.revision) == (leases[1], gone), "the next one did not lead with the commit that deleted the leader's key"
        won = behind.result()
        assert next(seen).kv.value == b"two" and won.leader.key == now.kv.key
        assert [p.lease for p in ways[1].places(name)] == [leases[1]], "an election is listed as a lock is"
        ways[2].resign(won.leader)
        assert next(seen).vacant
        assert refused(ways[0].leader, name).text == "election: no leader"
        assert as_etcd.result() == [b"one", b"two"], "the stream that etcd has tells who leads and nothing else"
    body(server)


@test(own=True, timeout=120)
def who_stands_for_election_can_be_watched(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        name, leases = tag + b"e", [cs[0].grant(TTL) for _ in range(2)]
        watching = threading.Event()
        events = Waiting(lambda: [(e.type, e.kv.key) for _, e in zip(range(4), ways[1].watch(name + b"/", name + b"0", watching.set))], lambda: None)
        assert watching.wait(10)
        first = ways[0].campaign(name, leases[0], b"one").leader
        behind = ways[2].ask_campaign(name, leases[1], b"two")
        wait_queue(cs[0], name, 2)
        ways[0].resign(first)
        second = behind.result().leader
        cs[0].revoke(leases[1])
        assert events.result() == [(0, first.key), (0, second.key), (1, first.key), (1, second.key)], "0: put, 1: deleted"
    body(server)


@test(own=True, timeout=120)
def what_was_asked_late_by_one_who_gave_up_changes_nothing(server):
    """It was asked for at a replica that stood still; its caller gave up, got it elsewhere, and gave it back."""
    @both_ways
    def body(ways, cs, cell, tag):
        election, lock, leases = tag + b"e", tag + b"l", [insist(lambda: cs[0].grant(TTL)) for _ in range(2)]
        at = next(i for i, r in enumerate(cell.replicas) if r is not cell.leader())
        other = (at + 1) % 3
        cells.wait_for("its connection is up", lambda: arrives(ways[at], lock + b"/0"))
        cell.replicas[at].pause()
        late = [ways[at].ask_campaign(election, leases[0], b"late", timeout=30), ways[at].ask_lock(lock, leases[0], timeout=30)]
        time.sleep(0.2)  # nothing tells when they have left
        for call in late:
            call.cancel()
        won = ways[other].campaign(election, leases[0], b"first")
        ways[other].resign(won.leader)
        ways[other].unlock(ways[other].lock(lock, leases[0]).key)
        cell.replicas[at].resume()
        cell.wait_ready()
        cells.wait_for("nothing is left of it", lambda: not cs[other].queue(election) and not cs[other].queue(lock), 10)
        stays("a call that had been given up came back", lambda: not cs[other].queue(election) and not cs[other].queue(lock), 0.5)
        assert ways[other].campaign(election, leases[1], b"second", wait_ms=1000).leader.lease == leases[1]
    body(server)


@test(own=True, timeout=120)
def a_late_call_shares_the_place_with_the_one_made_elsewhere(server):
    """A replica is cut off with a call for a place; its client asks elsewhere. Whichever of the two is given up, the other has its turn."""
    with cells.Cell(server, 3, relays=True) as cell, clients(cell) as cs:
        leader = cell.leader()
        at, other = (i for i, r in enumerate(cell.replicas) if r is not leader)

        def settled(i):
            """What was asked of that replica, or given up, is applied: the first put is behind the Lock, the second behind what its cancel asked for."""
            for _ in range(2):
                insist(lambda: cs[i].put(b"settled"))

        for kind, given_up in ((kind, given_up) for kind in (Grpc, Json) for given_up in ("late", "present")):
            with all_ways(cell.replicas, (kind,)) as ways:
                print(f"by {kind.name}, the {given_up} call is given up")
                name, leases = f"{kind.name}/{given_up}".encode(), [insist(lambda: cs[other].grant(TTL)) for _ in range(3)]
                held = ways[other].lock(name, leases[0])
                cells.wait_for("its connection is up", lambda: arrives(ways[at], name + b"/0"))
                cell.network.isolate(cell.replicas[at])
                late = ways[at].ask_lock(name, leases[1])
                time.sleep(0.2)  # nothing tells when it has left
                if given_up == "late":
                    late.cancel()
                present = ways[other].ask_lock(name, leases[1])
                wait_queue(cs[other], name, 2)
                behind = ways[other].ask_lock(name, leases[2])
                before = wait_queue(cs[other], name, 3)
                cell.network.heal()
                settled(at)
                if given_up == "present":
                    present.cancel()
                    settled(other)
                assert [kv.key for kv in cs[other].queue(name)] == [kv.key for kv in before], "the place was given up with one of its calls"
                ways[other].unlock(held.key)
                got = (present if given_up == "late" else late).result()
                assert got.fencing_token == before[1].create_revision and not behind.done()
                ways[other].unlock(got.key)
                assert behind.result().fencing_token == before[2].create_revision


# ---- exactly once ----

def eventually(call, *args, **kwargs):
    """What a request with an ID is told, sent until it is answered."""
    def told():
        try:
            return [call(*args, **kwargs)]
        except Refused as e:
            assert e.code in ("UNAVAILABLE", "DEADLINE_EXCEEDED"), e
            return None
    return cells.wait_for("an answer", told, 30)[0]


@test(own=True, timeout=120)
def every_call_that_names_its_request_is_carried_out_once(server):
    """By one wire, then by both at each replica."""
    with cells.Cell(server, 3) as cell, clients(cell) as cs, all_ways(cell.replicas) as ways:
        session = cs[0].grant(TTL)

        def again(call, of):
            """What all ways are told."""
            told = {of(call(way)) for way in ways}
            assert len(told) == 1, told
            return told.pop()

        def revision(reply):
            return reply.header.revision
        for n, first in enumerate((ways[0], ways[3])):
            name, m = b"%d" % n, [named(session, 20 * n + i) for i in range(1, 13)]
            put = first.put(name + b"k", b"v", metadata=m[0])
            assert again(lambda w: w.put(name + b"k", b"v", metadata=m[0]), revision) == revision(put)
            assert cs[0].get(name + b"k").version == 1
            txn = first.txn(pb.PutRequest(key=name + b"t"), metadata=m[1])
            assert again(lambda w: w.txn(pb.PutRequest(key=name + b"t"), metadata=m[1]), revision) == revision(txn)
            held = first.lock(name + b"l", session, metadata=m[2])
            assert again(lambda w: w.lock(name + b"l", session, metadata=m[2]), lambda r: r.fencing_token) == held.fencing_token
            first.unlock(held.key, metadata=m[3])
            later = cs[0].take_lock(name + b"l", session)
            again(lambda w: w.unlock(held.key, metadata=m[3]), revision)
            assert cs[1].get(held.key).create_revision == later.fencing_token, "an Unlock that was sent again freed a later hold"
            led = first.campaign(name + b"e", session, b"me", metadata=m[4]).leader
            assert again(lambda w: w.campaign(name + b"e", session, b"me", metadata=m[4]), lambda r: r.fencing_token) == led.rev
            first.proclaim(led, b"you", metadata=m[5])
            again(lambda w: w.proclaim(led, b"you", metadata=m[5]), revision)
            assert cs[0].get(led.key).version == 2
            first.resign(led, metadata=m[6])
            anew = cs[0].election.Campaign(electionpb.CampaignRequest(name=name + b"e", lease=session), timeout=10).leader
            again(lambda w: w.resign(led, metadata=m[6]), revision)
            assert cs[2].get(led.key).create_revision == anew.rev
            cs[1].put(name + b"k")
            gone = first.delete(name + b"k", metadata=m[7])
            cs[1].put(name + b"k")
            assert again(lambda w: w.delete(name + b"k", metadata=m[7]), lambda r: (r.header.revision, r.deleted)) == (revision(gone), 1)
            assert cs[2].get(name + b"k"), "a Delete that was sent again deleted what was written since"
            made = first.grant(TTL, metadata=m[8])
            assert again(lambda w: w.grant(TTL, metadata=m[8]), lambda r: r.ID) == made.ID
            first.revoke(made.ID, metadata=m[9])
            again(lambda w: w.revoke(made.ID, metadata=m[9]), lambda r: True)
            first.compact(revision(gone), metadata=m[10])
            again(lambda w: w.compact(revision(gone), metadata=m[10]), lambda r: True)
            broken = first.break_hold(key=later.key, metadata=m[11]).broken.fencing_token
            after = cs[0].take_lock(name + b"l", session)
            assert again(lambda w: w.break_hold(key=later.key, metadata=m[11]), lambda r: r.broken.fencing_token) == broken == later.fencing_token
            assert cs[1].get(after.key).create_revision == after.fencing_token, "a break that was sent again broke a later hold"


@test(own=True, timeout=120)
def what_is_asked_too_late_or_of_nobody_is_refused_as_that(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        key, session, other = tag + b"k", cs[0].grant(TTL), cs[0].grant(TTL)
        no_longer = ("FAILED_PRECONDITION", "holdfast: the result of this request ID is no longer kept")

        def again(way, *request, session=session):
            e = refused(way.put, key, metadata=named(session, *request))
            return e.code, e.text
        for request in range(1, 4):
            ways[0].put(key, metadata=named(session, request))
        ways[1].put(key, metadata=named(session, 4, 3))  # 1 and 2 have been answered
        for way in ways:
            assert again(way, 1) == again(way, 2) == no_longer
            way.put(key, metadata=named(session, 3))
            assert again(way, 5, 6)[0] == "INVALID_ARGUMENT"
            assert again(way, 1, session=4711) == ("NOT_FOUND", "holdfast: no such session")
        for request in range(1, 66):  # one more than a session has room for
            ways[request % 3].put(key, metadata=named(other, request))
        version = cs[0].get(key).version
        for way in ways:
            assert again(way, 1, session=other) == no_longer
            way.put(key, metadata=named(other, 2))
            assert refused(way.delete, key, metadata=named(session, 4)).text == "holdfast: this request ID was already used for another request"
        ways[0].put(tag + b"big", bytes(65 << 10))
        for n, way in enumerate(ways):  # what it came to is told once
            m = named(session, 7 + n)
            assert len(way.put(tag + b"big", bytes(65 << 10), prev_kv=True, metadata=m).prev_kv.value) == 65 << 10
            e = refused(ways[n - 1].put, tag + b"big", bytes(65 << 10), prev_kv=True, metadata=m)
            assert (e.code, e.text) == ("FAILED_PRECONDITION", "holdfast: the request was applied, and its result was too large to keep: read it again"), e
        cs[0].revoke(session)
        assert cs[0].get(tag + b"big").version == 4
        assert all(again(way, 4)[0] == "NOT_FOUND" for way in ways), "results outlived their session"
        assert cs[0].get(key).version == version == 4 + 65
    body(server)


@test(own=True, timeout=180)
def results_outlive_fail_overs_restarts_and_snapshots(server):
    with cells.Cell(server, 3, flags=["--snapshot-count=20", "--snapshot-catchup-entries=2"]) as cell, clients(cell) as cs, all_ways(cell.replicas) as ways:
        session = cs[0].grant(600)
        put, held = ways[0].put(b"k", b"one", metadata=named(session, 1)), ways[3].lock(b"l", session, metadata=named(session, 2))
        won = ways[1].campaign(b"e", session, metadata=named(session, 3))

        def as_before(*dead):
            for way in (w for i, w in enumerate(ways) if i % 3 not in dead):
                cells.wait_for("it is reached", lambda w=way: arrives(w, b"l/0"))
                assert eventually(way.put, b"k", b"other", metadata=named(session, 1)).header.revision == put.header.revision
                assert eventually(way.lock, b"l", session, metadata=named(session, 2)).fencing_token == held.fencing_token
                assert eventually(way.campaign, b"e", session, metadata=named(session, 3)).leader == won.leader
            assert insist(lambda: cs[next(i for i in range(3) if i not in dead)].get(b"k")).value == b"one"
        at = cell.replicas.index(cell.leader())
        cell.replicas[at].kill()
        as_before(at)
        # The others cut from their logs what it lacks (the third snapshot is begun when the log has been cut behind the second), and forget what they have in memory.
        others, made = [r for i, r in enumerate(cell.replicas) if i != at], cs[(at + 1) % 3].status().raftIndex
        for _ in range(3):
            cs[(at + 1) % 3].put_many((b"k%d" % i, b"") for i in range(25))
            cells.wait_for("a snapshot", lambda m=made: all(newest_snapshot(r) > m for r in others))
            made = max(map(newest_snapshot, others))
        for r in others:
            r.kill()
        for r in others:
            r.start()
        cell.wait_ready(others)
        cell.replicas[at].start()
        cell.wait_ready()
        assert "\nholdfast_snapshots_installed_total 0\n" not in cells.http(cell.replicas[at].url + "/metrics")[1], "it was sent the log"
        as_before()
        for r in cell.replicas:
            r.kill()
        for r in cell.replicas:
            r.start()
        cell.wait_ready()
        as_before()


# ---- faults that others have had ----

@test(own=True, timeout=120)
def an_unlock_behind_a_lock_that_has_no_answer_frees_it(server):
    """Whoever gives up builds the key himself. Both are lost with the leader, and proposed again to the next."""
    @both_ways
    def body(ways, cs, cell, tag):
        leader = cell.leader()
        at = next(i for i, r in enumerate(cell.replicas) if r is not leader)
        name, lease = tag + b"l", insist(lambda: cs[at].grant(TTL))
        leader.pause()
        asked = ways[at].ask_lock(name, lease)
        cells.wait_for("it is taken in", lambda: "holdfast_pending_calls 0" not in cells.http(cell.replicas[at].url + "/metrics")[1] or asked.done())
        ways[at].unlock(name + b"/%x" % lease)
        assert asked.result().lease == lease
        assert not cs[at].queue(name), "it is held, and was unlocked"
        leader.resume()
    body(server)


@test(own=True, timeout=180)
def fifty_waiters_are_each_woken_once_in_order_with_the_leader_killed_in_between(server):
    with cells.Cell(server, 5) as cell:
        leader = cell.leader()
        alive = [r for r in cell.replicas if r is not leader]
        with all_ways(alive) as ways, Client(alive[0]) as c:
            leases = [c.grant(600) for _ in range(51)]
            held = c.take_lock(b"l", leases[0])
            calls = {lease: ways[i % len(ways)].ask_lock(b"l", lease, timeout=120) for i, lease in enumerate(leases[1:])}
            queue = [kv.lease for kv in wait_queue(c, b"l", 51, 30)]
            for n, lease in enumerate(queue[1:]):
                if n == 20:
                    leader.kill()
                insist(lambda h=held: c.unlock(h.key))
                got = calls[lease].result(30)
                assert got.fencing_token > held.fencing_token
                early = [x for x in queue[n + 2:] if calls[x].done()]
                assert not early, f"{len(early)} were granted before their turn"
                held = got


@test(own=True, timeout=120)
def an_acquire_that_is_sent_again_after_a_broken_connection_makes_no_second_winner(server):
    """The replica dies with the call on its way; the client does not know what became of it, and asks again, as others do meanwhile."""
    @both_ways
    def body(ways, cs, cell, tag):
        for turn in range(3 if is_full() else 1):
            name, leases = tag + b"l%d" % turn, [insist(lambda: cs[0].grant(TTL)) for _ in range(2)]
            at = next(i for i, r in enumerate(cell.replicas) if r is not cell.leader() and i != 0)
            call = ways[at].ask_lock(name, leases[0])
            cell.replicas[at].kill()
            try:
                call.result()
            except Exception:  # noqa: BLE001: mostly; it may have been answered just before
                pass
            rest = [w for i, w in enumerate(ways) if i != at]
            asked = [rest[0].ask_lock(name, leases[1]), rest[1].ask_lock(name, leases[0]), rest[0].ask_lock(name, leases[0])]
            cells.wait_for("one is granted", lambda: any(c.granted() for c in asked), 20)
            stays("two hold it", lambda: len({c.result().lease for c in asked if c.granted()}) == 1, 0.5)
            holder = next(c for c in asked if c.granted()).result()
            assert insist(lambda: cs[0].queue(name))[0].key == holder.key
            insist(lambda: cs[0].revoke(holder.lease))
            cells.wait_for("the other has it then", lambda: {c.result().lease for c in asked if c.granted()} == set(leases), 20)
            cell.replicas[at].start()
            cell.wait_ready()
    body(server)


@test(own=True, timeout=120)
def a_queued_writer_that_is_revoked_lets_no_two_writers_in(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        name, leases = tag + b"l", [cs[0].grant(TTL) for _ in range(5)]
        readers = [ways[i].lock(name, leases[i], mode=SHARED) for i in range(2)]
        writers = []
        for i in range(3):
            writers.append(ways[i].ask_lock(name, leases[2 + i]))
            wait_queue(cs[0], name, 3 + i)
        cs[1].revoke(leases[2])
        assert refused(writers[0].result).code == "NOT_FOUND"
        ways[0].unlock(readers[0].key)
        stays("a writer beside a reader", lambda: not any(w.done() for w in writers[1:]), 0.3)
        ways[0].unlock(readers[1].key)
        held = writers[1].result()
        stays("two writers", lambda: not writers[2].done(), 0.3)
        ways[1].unlock(held.key)
        assert writers[2].result().fencing_token > held.fencing_token
    body(server)


@test(own=True, timeout=120)
def an_unlock_whose_connection_breaks_is_sent_again_and_frees_the_lock(server):
    """And what an earlier session of the same client held counts for nothing once that session is over."""
    @both_ways
    def body(ways, cs, cell, tag):
        name, lease, other = tag + b"l", insist(lambda: cs[0].grant(TTL)), insist(lambda: cs[0].grant(TTL))
        at = next(i for i, r in enumerate(cell.replicas) if r is not cell.leader())
        held = ways[at].lock(name, lease)
        cell.replicas[at].kill()
        assert refused(ways[at].unlock, held.key, metadata=named(lease, 1)).code in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
        for i in (1, 2):
            insist(lambda: cs[(at + 1) % 3].get(b"x"))
            ways[(at + i) % 3].unlock(held.key, metadata=named(lease, 1))
        got = ways[(at + 1) % 3].lock(name, other, wait_ms=2000)
        assert got.fencing_token > held.fencing_token
        cell.replicas[at].start()
        cell.wait_ready()
        cells.wait_for("what goes by it arrives again", lambda: arrives(ways[at], name + b"/0"))
        # A new session: the old one's key is another contender, and goes with it.
        new = cs[0].grant(TTL)
        waiting = ways[0].ask_lock(name, new)
        wait_queue(cs[0], name, 2)
        cs[1].revoke(other)
        assert waiting.result().lease == new
        assert [kv.lease for kv in cs[2].queue(name)] == [new]
    body(server)


@test(own=True, timeout=120)
def a_clients_deadline_leaves_no_place_that_is_granted_later(server):
    @both_ways
    def body(ways, cs, _cell, tag):
        name, leases = tag + b"l", [cs[0].grant(TTL) for _ in range(2)]
        held, before = ways[0].lock(name, leases[0]), cs[0].leases()
        for way in ways:
            assert refused(way.lock, name, leases[1], timeout=0.4).code in ("DEADLINE_EXCEEDED", "UNAVAILABLE")
            wait_queue(cs[0], name, 1)
            assert refused(way.lock, name, 0, timeout=0.4).code in ("DEADLINE_EXCEEDED", "UNAVAILABLE")
            cells.wait_for("the lease of a call that gave up is gone", lambda: cs[0].leases() == before, 10)
        ways[0].unlock(held.key)
        stays("a call that had given up was granted", lambda: not cs[1].queue(name), 0.3)
    body(server)
