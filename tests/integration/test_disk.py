"""Disks that fill up, fail and stand still, under whole replicas."""
import threading
import time

import cells
import disks
from kit import Client, KeepingAlive, Load, clients, error_of, grpc, insist, pb, same_everywhere, wait_queue
from runner import test

TTL = 60
DISK_MB = 200  # below 64 MiB of space a replica refuses what grows, and 32 MiB are kept back
MB = 1 << 20


class FullCell:
    """A cell with a small file system a replica."""

    def __init__(self, server, kind, size=3, mb=DISK_MB):
        disks.need_mounts()
        self.cell = cells.Cell(server, size, start=False)
        self.disks = []
        for r in self.cell.replicas:
            self.disks.append(kind(self.cell.dir, f"disk{r.number}", mb))
            r.data_dir = self.disks[-1].at / "data"
        self.cell.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for r in self.cell.replicas:
            if r.running():
                r.kill()
        for d in self.disks:
            d.close()
        self.cell.close()


def refused(c):
    try:
        c.put(b"grows", b"x", timeout=3)
    except grpc.RpcError as e:
        return e.code().name == "RESOURCE_EXHAUSTED"
    return False


def filled_up_together(server, kind):
    """All replicas at once: what ends and frees goes on, what grows is refused; then there is no space at all; and the way back."""
    with FullCell(server, kind) as full, clients(full.cell) as cs:
        leases = [cs[0].grant(TTL) for _ in range(3)]
        short = cs[1].grant(4)
        held, other = cs[0].take_lock(b"l", leases[0]), cs[0].take_lock(b"o", leases[1])
        cs[1].put(b"mortal", b"", lease=short)
        waiting = [cs[i].ask_lock(b"l", lease) for i, lease in ((1, leases[1]), (2, leases[2]))]
        wait_queue(cs[0], b"l", 3)
        with Load(full.cell, writers=2) as load, KeepingAlive(full.cell, leases, every=2) as sessions:
            load.wait_more(30)
            for d in full.disks:
                disks.fill(d.at, 20 * MB)
            cells.wait_for("what grows is refused", lambda: all(refused(c) for c in cs), 20)
            # A writer whose write is refused is at its end; what it was told before has to be there.
            assert error_of(cs[1].grant, TTL)[0] == "RESOURCE_EXHAUSTED"
            cs[2].unlock(held.key)
            first = next(w for w in waiting if cells.wait_for("a waiter is granted", lambda: [x for x in waiting if x.done()], 10) and w.done())
            cs[0].revoke(leases[1])
            assert cs[0].get(other.key) is None
            cells.wait_for("a lease ends by time", lambda: cs[1].get(b"mortal") is None, 12)
            cs[1].unlock(first.result(1).key)
            cells.wait_for("the last waiter is told", lambda: all(w.done() for w in waiting), 10)
            # No space at all. What there is to write waits, or fits into what is kept back; nobody dies of it.
            for d in full.disks:
                disks.fill(d.at)
            for _ in range(50):
                try:
                    cs[0].delete(key=b"none", timeout=1)
                except grpc.RpcError as e:
                    assert e.code().name in ("UNAVAILABLE", "DEADLINE_EXCEEDED"), e
            for d in full.disks:
                disks.fill(d.at, name="more")
            for r in full.cell.replicas:
                assert r.running(), f"{r.name} ended:\n{r.log_tail()}"
            for d in full.disks:
                disks.empty(d.at)
                disks.empty(d.at, "more")
            cells.wait_for("it comes back by itself", lambda: not any(refused(c) for c in cs), 30)
            full.cell.wait_ready()
            insist(lambda: cs[0].put(b"again", b"yes"))
            assert not [i for i in sessions.lost if i != leases[1]], "a lease was lost that was kept alive"
        assert insist(lambda: cs[2].get(b"again")).value == b"yes"
        same_everywhere(full.cell)
        load.check(cs[0])


@test(own=True, timeout=150)
def all_fill_up_together_on_ext4(server):
    filled_up_together(server, disks.Image)


@test(own=True, timeout=150, full=True)
def all_fill_up_together_on_tmpfs(server):
    filled_up_together(server, disks.Tmpfs)


@test(own=True)
def a_map_that_is_nearly_full_refuses_what_grows_and_nothing_else(server):
    disks.need_bad_disk()
    with cells.Cell(server, 1, start=False) as cell:
        disks.BadDisk(cell.replicas[0], map_bytes=100 * MB)
        cell.start()
        with Client(cell.replicas[0]) as c:
            lease = c.grant(TTL)
            held = c.take_lock(b"l", lease)
            for _ in range(200):
                try:
                    c.put(b"fill", b"x" * MB)
                except grpc.RpcError as e:
                    assert e.code().name == "RESOURCE_EXHAUSTED", e
                    break
            assert refused(c)
            assert c.keep_alive(lease) == [TTL]
            c.unlock(held.key)
            c.delete(key=b"fill")
            c.revoke(lease)
            assert c.leases() == set()
        assert cell.replicas[0].running()


@test(own=True, full=True)
def a_log_that_is_snapshotted_in_time_never_fills_its_map(server):
    disks.need_bad_disk()
    with cells.Cell(server, 1, start=False, flags=["--snapshot-count", "20"]) as cell:
        disks.BadDisk(cell.replicas[0], map_bytes=160 * MB)
        cell.start()
        with Client(cell.replicas[0], timeout=20) as c:
            for i in range(300):
                c.put(b"k%d" % (i % 5), b"x" * MB)
                if i % 20 == 19:
                    revision = c.get(b"k0").mod_revision
                    c.compact(revision)
            assert c.range(key=b"k", range_end=b"l").count == 5


@test(own=True, timeout=120)
def an_input_output_error_stops_a_replica_which_comes_back_as_after_a_crash(server):
    disks.need_bad_disk()
    with cells.Cell(server, 3, start=False) as cell:
        bad = [disks.BadDisk(r) for r in cell.replicas]
        cell.start()
        with Load(cell, writers=3) as load, clients(cell) as cs:
            for kind in ({"writes": "e"}, {"syncs": "e"}):
                load.wait_more(30)
                leader = cell.leader()
                at = cell.replicas.index(leader)
                bad[at].set(**kind)
                cells.wait_for("the replica stops", lambda: not leader.running(), 20)
                assert leader.process.returncode > 0, f"it ended with status {leader.process.returncode}"
                assert "cannot write, this replica stops" in leader.log_tail(), leader.log_tail()
                load.wait_more(30)  # the others go on
                bad[at].set()
                leader.start()
                cell.wait_ready()
            load.stop()
            same_everywhere(cell)
            load.check(cs[0])


class Beat:
    """Writes at one replica again and again; the longest time without success."""

    def __init__(self, replicas):
        self.gap = 0.0
        self.over = threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(r,), daemon=True) for r in replicas]
        self.last = time.monotonic()

    def __enter__(self):
        for t in self.threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.over.set()
        for t in self.threads:
            t.join(10)

    def run(self, replica):
        with Client(replica) as c:
            while not self.over.wait(0.01):
                try:
                    c.put(b"beat", b"", timeout=0.3)
                except grpc.RpcError:
                    continue
                now = time.monotonic()
                self.gap = max(self.gap, now - self.last)
                self.last = now


@test(own=True, timeout=120)
def a_leader_whose_disk_stands_still_hands_the_lead_on(server):
    disks.need_bad_disk()
    with cells.Cell(server, 3, start=False) as cell:
        bad = [disks.BadDisk(r) for r in cell.replicas]
        cell.start()
        with clients(cell) as cs:
            lease = cs[0].grant(4)
            leader = cell.leader()
            at = cell.replicas.index(leader)
            others = [r for r in cell.replicas if r is not leader]
            with Beat(others) as beat, KeepingAlive(cell, [lease], every=1) as sessions:
                bad[at].set(syncs="s")
                began = time.monotonic()
                cells.wait_for("another leads", lambda: cell_leader_among(others), 10)
                took = time.monotonic() - began
                time.sleep(2)
                assert beat.gap <= 3, f"no write for {beat.gap:.2f} s"
                assert leader.running()
                bad[at].set()
                cell.wait_ready()
                seen = sessions.renewed
                cells.wait_for("sessions live on", lambda: sessions.renewed >= seen + 3, 20)
                assert not sessions.lost
            print(f"another led after {took:.2f} s, longest time without a write elsewhere {beat.gap:.2f} s")
            assert insist(lambda: cs[at].get(b"beat")) is not None
            same_everywhere(cell)


def cell_leader_among(replicas):
    """One that leads by its own word."""
    for r in replicas:
        with Client(r, timeout=1) as c:
            try:
                s = c.maintenance.Status(pb.StatusRequest(), timeout=1)
            except grpc.RpcError:
                continue
            if s.leader == s.header.member_id:
                return r
    return None


@test(own=True, timeout=120)
def a_follower_whose_disk_stands_still_hurts_nobody_else(server):
    disks.need_bad_disk()
    with cells.Cell(server, 3, start=False) as cell:
        bad = [disks.BadDisk(r) for r in cell.replicas]
        cell.start()
        leader = cell.leader()
        follower = next(r for r in cell.replicas if r is not leader)
        others = [r for r in cell.replicas if r is not follower]
        with Client(leader) as c:
            term = c.status().raftTerm
            with Beat(others) as beat:
                bad[cell.replicas.index(follower)].set(syncs="s")
                for i in range(200):
                    c.put(b"k%d" % i, b"x" * 20000)
                time.sleep(3)
                assert beat.gap <= 1, f"no write for {beat.gap:.2f} s"
                bad[cell.replicas.index(follower)].set()
            assert c.status().raftTerm == term and cell.leader() is leader
        cell.wait_ready()
        same_everywhere(cell)
