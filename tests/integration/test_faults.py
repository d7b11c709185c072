"""Faults that users of such services have met in public, each of which must not happen here."""
import contextlib
import threading

import cells
from kit import RETRY, Client, KeepAliveStream, Load, alive, clients, error_of, error_of_future, grpc, insist, pb, stays, wait_queue
from runner import test

TTL = 60
LEASE_GONE = ("NOT_FOUND", "etcdserver: requested lease not found")


@test(own=True)
def a_queued_lock_whose_own_lease_died_is_refused(server):
    """Not OK, neither at once nor later, and the lock goes to who is next."""
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        for i, c in enumerate(cs):
            name = b"l%d" % i
            first, second, third = (cs[0].grant(TTL) for _ in range(3))
            held = cs[0].take_lock(name, first)
            waiting = c.ask_lock(name, second)
            wait_queue(cs[0], name, 2)
            behind = cs[(i + 1) % 3].ask_lock(name, third)
            wait_queue(cs[0], name, 3)
            cs[(i + 2) % 3].revoke(second)
            assert error_of_future(waiting, 10) == LEASE_GONE
            stays("the one behind got the lock while it is held", lambda: not behind.done(), 0.3)
            cs[0].unlock(held.key)
            assert behind.result(10).key == b"%s/%x" % (name, third)


@test(own=True)
def a_queued_lock_whose_own_lease_ran_out_is_refused(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        first, second = cs[0].grant(TTL), cs[0].grant(2)
        cs[0].take_lock(b"l", first)
        waiting = cs[1].ask_lock(b"l", second)
        wait_queue(cs[0], b"l", 2)
        assert error_of_future(waiting, 20) == LEASE_GONE
        assert len(cs[0].queue(b"l")) == 1


@test(own=True)
def a_lock_with_an_unknown_lease_is_refused_and_leaves_nothing(server):
    with cells.Cell(server, 1) as cell, Client(cell.replicas[0]) as c:
        assert error_of(c.take_lock, b"l", 12345) == LEASE_GONE
        assert len(c.queue(b"l")) == 0


@test(own=True)
def a_compaction_during_a_wait_neither_fails_it_nor_leaves_a_ghost(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        leases = [cs[0].grant(TTL) for _ in range(4)]
        held = cs[0].take_lock(b"l", leases[0])
        waiting = [cs[i].ask_lock(b"l", leases[i + 1]) for i in range(3)]
        order = wait_queue(cs[0], b"l", 4)
        for i in range(50):
            revision = cs[i % 3].put(b"noise", b"%d" % i).header.revision
        cs[1].compact(revision, physical=True)
        stays("a wait ended with the compaction", lambda: not any(w.done() for w in waiting), 0.5)
        by_lease = {leases[i + 1]: w for i, w in enumerate(waiting)}
        key = held.key
        for kv in order[1:]:
            revision = cs[0].put(b"noise", b"").header.revision
            cs[0].compact(revision)
            cs[0].unlock(key)
            key = by_lease[kv.lease].result(10).key
            assert key == kv.key
        cs[0].unlock(key)
        assert len(cs[0].queue(b"l")) == 0, "a ghost is left in the queue"
        assert cs[2].take_lock(b"l", leases[0]).key == b"l/%x" % leases[0]


@test(own=True)
def a_lock_is_not_blocked_by_the_keys_of_another_that_begins_alike(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        leases = [cs[0].grant(TTL) for _ in range(4)]
        cs[0].take_lock(b"a/b", leases[0])
        cs[0].put(b"a/plain", b"no contender")
        cs[0].put(b"a/%x" % leases[3], b"named like one, but of no lease")
        assert cs[1].take_lock(b"a", leases[1], timeout=5).key == b"a/%x" % leases[1]
        assert cs[2].take_lock(b"a/b/c", leases[2], timeout=5).key == b"a/b/c/%x" % leases[2]
        waiting = cs[1].ask_lock(b"a/b", leases[1])
        wait_queue(cs[0], b"a/b", 3)  # with the holder of a/b/c, which is in the range of keys, not in the queue
        assert not waiting.done()
        cs[0].revoke(leases[0])
        waiting.result(10)


@test(own=True)
def a_key_put_again_with_a_lease_does_not_jump_the_queue(server):
    """A key of an old create_revision would be first, before the holder."""
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        first, second = cs[0].grant(TTL), cs[0].grant(TTL)
        key = b"l/%x" % second
        cs[0].put(key, b"early, and no contender")
        held = cs[0].take_lock(b"l", first, timeout=5)
        refused = ("FAILED_PRECONDITION", "holdfast: the write would turn an existing key into a contender for a lock")
        for c in cs:
            assert error_of(c.put, key, b"", lease=second) == refused
            assert error_of(c.take_lock, b"l", second, timeout=5) == refused
        assert cs[1].take_lock(b"l", first, timeout=5).fencing_token == held.fencing_token, "the holder lost its hold"
        cs[2].delete(key=key)
        waiting = cs[1].ask_lock(b"l", second)
        wait_queue(cs[0], b"l", 2)
        assert not waiting.done()
        cs[0].unlock(held.key)
        assert waiting.result(10).fencing_token > held.fencing_token


@test()
def a_keep_alive_of_an_unknown_lease_answers_ttl_0_and_the_stream_goes_on(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        lease = cs[0].grant(TTL)
        for c in cs:
            stream = KeepAliveStream(c)
            for unknown in (12345, 0, -1, 2**63 - 1, -(2**63)):
                reply = stream.ask(unknown)
                assert (reply.ID, reply.TTL) == (unknown, 0), reply
                assert stream.ask(lease).TTL == TTL
            stream.close()


@test()
def a_renewal_after_the_revoke_answers_ttl_0(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        for i in range(30):
            lease = cs[i % 3].grant(TTL)
            stream = KeepAliveStream(cs[(i + 1) % 3])
            assert stream.ask(lease).TTL == TTL
            cs[(i + 2) % 3].revoke(lease)
            assert stream.ask(lease).TTL == 0, "a revoked lease was renewed"
            stream.close()


@test()
def a_renewal_races_with_the_end_of_the_lease(server):
    """A lease that was renewed lives on; one that was not is told to be gone. Never the one told and the other done."""
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        ttl = 2
        leases = [cs[i % 3].grant(ttl) for i in range(60)]
        for i, lease in enumerate(leases):
            cs[0].put(b"s/%03d" % i, b"", lease=lease)
        told = {}
        pending = set(leases)
        at = 0

        def ask_one():
            """Around the moment of their end, one lease after the other."""
            nonlocal at
            lease = sorted(pending)[at % len(pending)]
            at += 1
            left = insist(lambda: cs[at % 3].ttl(lease))
            if left.TTL < 0 or (left.TTL == 0 and at % 40 == 0):
                told[lease] = insist(lambda: cs[(at + 1) % 3].keep_alive(lease))[0]
                pending.discard(lease)
            return not pending
        cells.wait_for("all leases were asked for at their end", ask_one, 30, step=0)
        alive = [i for i in leases if told[i] > 0]
        keys = {kv.lease for kv in insist(lambda: cs[0].range(key=b"s/", range_end=b"s0")).kvs}
        wrong = [i for i in leases if told[i] == 0 and i in keys]
        assert not wrong, f"{len(wrong)} leases were told to be gone, and their keys are there"
        for i in alive:  # just renewed: there for another TTL, or ended since by its time, which is told
            ttl_now = insist(lambda i=i: cs[0].ttl(i)).TTL
            assert ttl_now >= 0 or i not in keys
        print(f"{len(alive)} renewed at the last moment, {len(leases) - len(alive)} gone")


@test(own=True, timeout=120)
def time_to_live_tells_no_nonsense_while_leaders_change(server):
    """Of a lease that lives it never says that it is gone, nor a time that it cannot have; of one that is gone or never was, never that it lives."""
    with cells.Cell(server, 3) as cell, clients(cell, timeout=10) as cs:
        lives, gone, never = cs[0].grant(TTL), cs[1].grant(TTL), 12345
        cs[0].put(b"of/it", b"", lease=lives)
        cs[2].revoke(gone)
        end = threading.Event()
        answers, wrong = [0, 0, 0], []

        def ask(at):
            while not end.is_set():
                for lease in (lives, gone, never):
                    try:
                        r = cs[at].ttl(lease, keys=True)
                    except grpc.RpcError as e:
                        if e.code() not in RETRY:
                            wrong.append((at, lease, e))
                        end.wait(0.02)
                        continue
                    answers[at] += 1
                    if r.ID != lease or (0 < r.TTL <= TTL and r.grantedTTL == TTL and list(r.keys) == [b"of/it"]) != (lease == lives) or \
                            (lease != lives and (r.TTL, r.grantedTTL, list(r.keys)) != (-1, 0, [])):
                        wrong.append((at, lease, r))
        threads = [threading.Thread(target=ask, args=(i,)) for i in range(3)]
        for t in threads:
            t.start()
        for i in range(4):
            leader = cell.leader()
            if i % 2:
                leader.kill()
                leader.start()
                cell.wait_ready()
            else:
                members = insist(lambda r=leader: cs[r.number - 1].cluster.MemberList(pb.MemberListRequest(), timeout=10).members)
                to = next(m.ID for m in members if m.name != leader.name)
                with Client(leader) as c, contextlib.suppress(grpc.RpcError):  # it may have lost the lead by itself
                    c.maintenance.MoveLeader(pb.MoveLeaderRequest(targetID=to), timeout=20)
            before = list(answers)
            cells.wait_for("every replica answers again", lambda b=before: all(n > m + 3 for n, m in zip(answers, b)) or wrong, 40)
        end.set()
        for t in threads:
            t.join()
        assert not wrong, wrong[:5]


@test(own=True, timeout=120)
def defragmentation_stops_nobody(server):
    """Asked for again and again at every member, while all of them are written to."""
    with cells.Cell(server, 3) as cell, clients(cell, timeout=20) as cs:
        pids = [r.process.pid for r in cell.replicas]
        with Load(cell) as load:
            load.wait_more(20)
            for _ in range(10):
                for c in cs:
                    c.maintenance.Defragment(pb.DefragmentRequest(), timeout=20)
            load.wait_more(20)
        assert load.check(cs[0]) >= 40
        assert [r.process.pid for r in cell.replicas] == pids
        for r in cell.replicas:
            alive(r)
            assert cells.http(r.url + "/health", timeout=30)[0] == 200, r.name
