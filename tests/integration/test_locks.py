"""Locks by the Lock service: one holder, in order, passed on when its holder goes, and left by who gives up."""
import signal
import subprocess
import sys
import threading
import time

import cells
from kit import Client, clients, insist, token_of, wait_queue
from runner import is_full, test

TTL = 60


@test(own=True)
def tokens_rise_with_every_holder(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        last = 0
        for i in range(12):
            c = cs[i % 3]
            lease = c.grant(TTL)
            held = c.take_lock(b"l", lease)
            kv = cs[(i + 1) % 3].get(held.key)
            assert kv.lease == lease and held.key == b"l/%x" % lease, held
            assert held.fencing_token == kv.create_revision, f"token {held.fencing_token}, but the key was created at {kv.create_revision}"
            assert held.fencing_token > last, f"token {held.fencing_token} after {last}"
            last = held.fencing_token
            assert held.lease == lease and 0 < held.ttl <= TTL, held
            again = cs[(i + 2) % 3].take_lock(b"l", lease)
            assert (again.key, again.fencing_token) == (held.key, held.fencing_token), "asking again gave another hold"
            cs[(i + 1) % 3].unlock(held.key)
            assert c.get(held.key) is None
            if i % 2:
                c.revoke(lease)


@test()
def a_waiting_lock_passes_on_at_unlock(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        first, second = cs[0].grant(TTL), cs[1].grant(TTL)
        held = cs[0].take_lock(b"l", first)
        waiting = cs[1].ask_lock(b"l", second)
        wait_queue(cs[2], b"l", 2)
        assert not waiting.done(), "two hold the lock"
        cs[2].unlock(held.key)
        got = waiting.result(10)
        assert got.key == b"l/%x" % second
        assert [kv.key for kv in cs[2].queue(b"l")] == [got.key]


@test()
def a_waiting_lock_passes_on_when_the_holders_lease_is_revoked(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        first, second = cs[0].grant(TTL), cs[1].grant(TTL)
        cs[0].take_lock(b"l", first)
        waiting = cs[1].ask_lock(b"l", second)
        wait_queue(cs[2], b"l", 2)
        cs[2].revoke(first)
        assert waiting.result(10).key == b"l/%x" % second


@test()
def a_lock_is_free_within_its_ttl_and_two_seconds(server):
    """Nobody keeps the holder's lease alive; it must not end early either."""
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        ttl = 3
        first, second = cs[0].grant(ttl), cs[1].grant(TTL)
        cs[0].take_lock(b"l", first)
        asked = time.monotonic()
        assert cs[2].keep_alive(first) == [ttl]
        answered = time.monotonic()
        waiting = cs[1].ask_lock(b"l", second)
        waiting.result(30)
        now = time.monotonic()
        assert now - asked >= ttl, f"the lease ended {now - asked:.2f} s after its keep-alive was sent, before its {ttl} s"
        assert now - answered <= ttl + 2, f"the lock passed on {now - answered:.2f} s after the last keep-alive of a lease of {ttl} s"


@test()
def a_lock_with_no_lease_gets_one(server):
    with cells.Cell(server, 1) as cell, Client(cell.replicas[0]) as c:
        held = c.take_lock(b"l", 0)
        kv = c.get(held.key)
        assert kv.lease != 0 and kv.lease in c.leases() and held.key == b"l/%x" % kv.lease
        c.unlock(held.key)
        c.take_lock(b"l", c.grant(TTL))


@test(own=True)
def a_waiter_survives_the_leader(server):
    """The waiting call runs at a follower that lives on."""
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        for turn in range(3 if is_full() else 1):
            name = b"l%d" % turn
            leader = cell.leader()
            other = [c for c, r in zip(cs, cell.replicas) if r is not leader]
            first, second = other[0].grant(TTL), other[1].grant(TTL)
            held = other[0].take_lock(name, first)
            waiting = other[1].ask_lock(name, second)
            before = wait_queue(other[0], name, 2)
            leader.kill()
            after = insist(lambda: other[0].queue(name))
            assert [kv.key for kv in after] == [kv.key for kv in before], "the queue changed with the leader"
            assert [kv.create_revision for kv in after] == [kv.create_revision for kv in before]
            assert not waiting.done(), f"the waiting call ended with the leader: {waiting}"
            insist(lambda: other[1].unlock(held.key))
            got = waiting.result(20)
            assert got.key == before[1].key and token_of(got) == before[1].create_revision
            leader.start()
            cell.wait_ready()


@test(timeout=120)
def two_hundred_contenders_get_one_grant_a_release_in_order(server):
    n = 200
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        leases = [cs[i % 3].grant(600) for i in range(n)]
        calls, grants = [], []
        grant = threading.Semaphore(0)

        def granted(call, lease):
            grants.append((lease, call))
            grant.release()
        calls = []
        for i, lease in enumerate(leases):
            call = cs[i % 3].ask_lock(b"l", lease, timeout=100)
            call.add_done_callback(lambda f, lease=lease: granted(f, lease))
            calls.append(call)
        queue = [(kv.lease, kv.create_revision) for kv in wait_queue(cs[0], b"l", n, 60)]
        assert len({r for _, r in queue}) == n, "two contenders share a revision"
        for i, (lease, revision) in enumerate(queue):
            assert grant.acquire(timeout=20), f"no grant after {i} releases"
            got_lease, call = grants[i]
            reply = call.result(1)
            assert got_lease == lease, f"grant {i} went to another contender than the next in the queue"
            if hasattr(reply, "fencing_token") and reply.fencing_token:
                assert reply.fencing_token == revision
            assert len(grants) == i + 1, f"{len(grants)} grants after {i} releases"
            cs[i % 3].unlock(reply.key)
        assert len(cs[0].queue(b"l")) == 0


# ---- giving up ----

WAITER = """
import sys
sys.path[:0] = [sys.argv[1], sys.argv[2]]
import kit
with kit.Client(sys.argv[3]) as c:
    c.take_lock(b"l", int(sys.argv[4]), timeout=60)
    print("locked", flush=True)
"""


@test(own=True)
def a_waiting_client_that_is_killed_leaves_no_trace_in_the_queue(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        first, second, third = (cs[0].grant(TTL) for _ in range(3))
        held = cs[0].take_lock(b"l", first)
        for r in cell.replicas:
            p = cells.spawn([sys.executable, "-c", WAITER, cells.TOP / "tests" / "lib", cells.TOP / "tests" / "integration", r.endpoint, second],
                            stdout=subprocess.PIPE)
            wait_queue(cs[0], b"l", 2)
            cells.end(p, signal.SIGKILL)
            assert p.stdout.read() == b""
            wait_queue(cs[0], b"l", 1)
            assert second in cs[0].leases(), "giving up ended the lease"
        waiting = cs[1].ask_lock(b"l", third)
        wait_queue(cs[0], b"l", 2)
        cs[0].unlock(held.key)
        assert waiting.result(10).key == b"l/%x" % third
