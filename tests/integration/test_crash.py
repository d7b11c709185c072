"""kill -9, under load. What was acknowledged is there afterwards, once, at the revision that was named (P8, P11)."""
import random
import time

import cells
from kit import Client, KeepingAlive, Load, clients, insist, same_everywhere, wait_queue
from runner import is_full, test


def settle(cell, load):
    """Everybody back, the load over: one content, and every acknowledged write in it."""
    load.stop()
    for r in cell.replicas:
        if not r.running():
            r.start()
    cell.wait_ready()
    revision = same_everywhere(cell)
    with Client(cell.replicas[0]) as c:
        n = load.check(c)
    assert n > 100, f"only {n} writes were acknowledged: {load.errors}"
    print(f"{n} writes acknowledged, revision {revision}, longest gap {load.longest_gap:.2f} s, errors {load.errors}")


def kill_some(server, size, choose, rounds, extra=()):
    with cells.Cell(server, size, flags=extra) as cell, Load(cell) as load:
        load.wait_more(50)
        for _ in range(rounds * (5 if is_full() else 1)):
            for r in choose(cell):
                r.kill()
            load.wait_more(60)
            for r in cell.replicas:
                if not r.running():
                    r.start()
            cell.wait_ready()
            load.wait_more(30)
        settle(cell, load)


def leader_only(cell):
    return [cell.leader()]


def followers(n):
    return lambda cell: random.sample([r for r in cell.running() if r is not cell.leader()], n)


@test(timeout=180)
def leaders_of_three_are_killed_under_load(server):
    kill_some(server, 3, leader_only, 3)


@test(timeout=180)
def followers_of_three_are_killed_under_load(server):
    kill_some(server, 3, followers(1), 3)


@test(timeout=180)
def leaders_of_five_are_killed_under_load_with_a_follower_each(server):
    kill_some(server, 5, lambda cell: [cell.leader(), *followers(1)(cell)], 3)


@test(timeout=180)
def two_followers_of_five_are_killed_under_load(server):
    kill_some(server, 5, followers(2), 2)


@test(timeout=180)
def leaders_are_killed_while_snapshots_are_made_all_the_time(server):
    kill_some(server, 3, leader_only, 3, extra=["--snapshot-count", "60"])


def kill_all(server, size, rounds=3, extra=()):
    with cells.Cell(server, size, flags=extra) as cell, Load(cell) as load:
        for _ in range(rounds * (5 if is_full() else 1)):
            load.wait_more(80)
            for r in cell.replicas:
                r.process.kill()
            for r in cell.replicas:
                r.kill()
            for r in cell.replicas:
                r.start()
            cell.wait_ready()
        load.wait_more(30)
        settle(cell, load)


@test(timeout=180)
def a_sole_replica_is_killed_under_load(server):
    kill_all(server, 1)


@test(timeout=180)
def all_replicas_of_three_are_killed_at_once(server):
    kill_all(server, 3)


@test(timeout=180)
def all_replicas_of_five_are_killed_at_once(server):
    kill_all(server, 5, rounds=2)


@test(timeout=180)
def all_replicas_are_killed_at_once_with_snapshots_all_the_time(server):
    kill_all(server, 3, extra=["--snapshot-count", "40"])


@test()
def leases_and_locks_are_there_after_all_were_killed(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        first, second = cs[0].grant(120), cs[1].grant(120)
        cs[0].put(b"leased", b"1", lease=first)
        held = cs[0].take_lock(b"l", first)
        for r in cell.replicas:
            r.process.kill()
        for r in cell.replicas:
            r.kill()
        for r in cell.replicas:
            r.start()
        cell.wait_ready()
        kv = insist(lambda: cs[2].get(held.key))
        assert kv and kv.lease == first, "the lock is gone"
        left = insist(lambda: cs[1].ttl(first, keys=True))
        assert left.grantedTTL == 120 and left.TTL > 100 and sorted(left.keys) == [held.key, b"leased"], left
        waiting = cs[1].ask_lock(b"l", second)
        wait_queue(cs[2], b"l", 2)
        assert not waiting.done(), "two hold the lock"
        cs[2].revoke(first)
        waiting.result(10)
        assert cs[0].get(b"leased") is None


@test()
def writes_go_on_within_three_seconds_of_the_leaders_death_and_no_lease_is_lost(server):
    """The promise: writes again within 3 s. Each lease has a session that renews three times a TTL."""
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        leases = [cs[i % 3].grant(6) for i in range(30)]
        for i, lease in enumerate(leases):
            cs[i % 3].put(b"s/%d" % i, b"", lease=lease)
        with KeepingAlive(cell, leases, every=1.5) as sessions, Load(cell, writers=3) as load:
            for _ in range(2):
                load.wait_more(20)
                leader = cell.leader()
                up = [c for c, r in zip(cs, cell.replicas) if r is not leader]
                leader.kill()
                began = time.monotonic()
                insist(lambda: up[0].put(b"again", b"", timeout=1), timeout=10)
                took = time.monotonic() - began
                assert took <= 3, f"writes again only after {took:.2f} s"
                leader.start()
                cell.wait_ready()
            seen = sessions.renewed
            cells.wait_for("sessions renewed after all that", lambda: sessions.renewed >= seen + 3, 20)
            assert not sessions.lost, f"{len(sessions.lost)} leases were lost"
        reply = cs[0].range(key=b"s/", range_end=b"s0")
        assert reply.count == len(leases), f"{reply.count} of {len(leases)} leased keys are left"


@test(own=True)
def the_revision_does_not_fall_over_compaction_and_restart(server):
    """The newest revision is that of a deleted key, compacted: nothing in the store names it any more."""
    for size, kill in ((1, True), (1, False), (3, True)):
        with cells.Cell(server, size) as cell, clients(cell) as cs:
            for i in range(10):
                cs[0].put(b"k", b"%d" % i)
            cs[0].delete(key=b"k")
            revision = cs[0].range(key=b"k").header.revision
            cs[0].compact(revision, physical=True)
            for r in cell.replicas:
                (r.kill if kill else r.stop)()
            for r in cell.replicas:
                r.start()
            cell.wait_ready()
            for c in cs:
                now = insist(lambda c=c: c.range(key=b"k")).header.revision
                assert now == revision, f"revision {revision} before the restart, {now} after it"
            assert insist(lambda: cs[-1].put(b"k", b"")).header.revision == revision + 1
            assert insist(lambda: cs[0].range(key=b"k", revision=revision)).count == 0


@test(own=True)
def the_revision_does_not_fall_over_compaction_snapshot_and_restart(server):
    with cells.Cell(server, 3, flags=["--snapshot-count", "20"]) as cell, clients(cell) as cs:
        last_token = 0
        for turn in range(3):
            lease = insist(lambda: cs[0].grant(60))
            held = insist(lambda: cs[1].take_lock(b"l", lease))
            assert held.fencing_token > last_token
            last_token = held.fencing_token
            for i in range(40):
                insist(lambda: cs[i % 3].put(b"k", b"%d" % i))
            insist(lambda: cs[0].unlock(held.key))
            insist(lambda: cs[0].delete(key=b"k"))
            revision = insist(lambda: cs[0].range(key=b"k")).header.revision
            cs[0].compact(revision)
            for r in cell.replicas:
                (r.kill if turn % 2 else r.stop)()
            for r in cell.replicas:
                r.start()
            cell.wait_ready()
            for c in cs:
                now = insist(lambda c=c: c.range(key=b"k")).header.revision
                assert now >= revision, f"revision {revision} before the restart, {now} after it"


@test(own=True)
def a_replica_that_was_down_catches_up_by_snapshot(server):
    """Its log ends where the others' logs no longer begin. Leases, locks and compaction come along."""
    with cells.Cell(server, 3, flags=["--snapshot-count", "50"]) as cell, clients(cell) as cs:
        first, second = cs[0].grant(600), cs[1].grant(600)
        cs[0].put(b"old", b"1")
        for turn in range(2):
            down = next(r for r in cell.replicas if r is not cell.leader())
            if turn:  # the leader's own snapshots are no better than a follower's
                down = cell.leader()
            at = cell.replicas.index(down)
            up = [c for i, c in enumerate(cs) if i != at]
            down.kill()
            if not turn:
                insist(lambda: up[0].take_lock(b"l", first))
            for i in range(400):
                insist(lambda: up[i % 2].put(b"k%03d" % (i % 90), b"%d.%d" % (turn, i)))
            insist(lambda: up[0].delete(key=b"k00", range_end=b"k01"))
            revision = insist(lambda: up[1].put(b"last", b"", lease=second)).header.revision
            up[0].compact(revision - 20)
            down.start()
            cell.wait_ready([down])
            same_everywhere(cell)
            log = down.log_path.read_text(errors="replace")
            assert "snapshot" in log, "no word of a snapshot in its log"
            code_then = cs[at].get(b"last", revision=revision - 1)
            assert code_then is None or code_then.mod_revision < revision
            assert insist(lambda: cs[at].ttl(second, keys=True)).keys == [b"last"]
            waiting = cs[at].ask_lock(b"l", second)
            wait_queue(cs[at], b"l", 2)
            assert not waiting.done(), "two hold the lock"
            waiting.cancel()
            wait_queue(cs[at], b"l", 1)
            insist(lambda: cs[0].delete(key=b"last"))
        # What came by snapshot survives a restart, and carries a majority.
        cell.replicas[at].kill()
        cell.replicas[at].start()
        cell.wait_ready()
        same_everywhere(cell)
        cell.replicas[(at + 1) % 3].kill()
        insist(lambda: cs[at].put(b"after", b""))
        assert insist(lambda: cs[at].get(b"old")).value == b"1"


@test(own=True)
def a_follower_catches_up_by_snapshot_while_the_load_goes_on(server):
    with cells.Cell(server, 3, flags=["--snapshot-count", "50"]) as cell, Load(cell, value_size=2000) as load:
        for _ in range(3):
            load.wait_more(50)
            down = next(r for r in cell.replicas if r is not cell.leader())
            down.kill()
            load.wait_more(300)
            down.start()
            cell.wait_ready([down])
        settle(cell, load)
