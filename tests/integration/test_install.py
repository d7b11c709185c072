"""A replica that is far behind gets the state as a snapshot; when its process dies in the middle, what it has is not sent again."""
import contextlib
import os
import re

import cells
from kit import Client, insist, same_everywhere
from runner import test

FLAGS = ["--snapshot-count", "20", "--snapshot-catchup-entries", "2"]
CHUNK = 256 << 10
UNSYNCED = 8  # chunks that are made durable together


def counted(replica, name):
    text = cells.http(replica.url + "/metrics")[1]
    return int(re.search(rf"^holdfast_snapshot_{name}_total (\d+)$", text, re.M)[1])


def sent(replicas):
    return sum(counted(r, "sent_chunks") for r in replicas)


def newest_snapshot(replica):
    return max((int(p.name.split("-")[1]) for p in replica.data_dir.glob("snap-*") if "." not in p.name), default=0)


def fall_behind(cell, r, megabytes):
    """`r` is down, and the others have cut from their logs, and forgotten from memory, what it lacks."""
    others = [x for x in cell.replicas if x is not r]
    r.kill()
    with Client(others[0]) as c:
        for i in range(megabytes * 4):
            insist(lambda i=i: c.put(b"big%d" % i, os.urandom(CHUNK)))
        for i in range(25):
            insist(lambda i=i: c.put(b"small%d" % i, b"x"))
    for x in others:
        # The second one: it is begun when the log has been cut behind the first.
        cells.wait_for("two snapshots were made", lambda x=x: newest_snapshot(x) >= 40)
        x.stop()
    for x in others:
        x.start()
    cell.wait_ready(others)
    return others


@test(own=True)
def an_install_goes_on_after_the_receivers_death(server):
    with cells.Cell(server, 3, FLAGS, relays=True) as cell:
        leader = cell.leader()
        r = next(x for x in cell.replicas if x is not leader)
        with Client(leader) as c:
            c.put(b"a", b"1")
        others = fall_behind(cell, r, 6)
        assert sent(others) == 0
        cell.network.slow(r, 2 << 20)
        r.start()

        def some():
            with contextlib.suppress(OSError):  # it does not listen yet
                n = counted(r, "received_chunks")
                return n if n >= UNSYNCED + 4 else 0
            return 0
        before = cells.wait_for("some of it is there", some, 30)
        r.kill()
        cell.network.heal()
        r.start()
        cell.wait_ready()
        same_everywhere(cell)
        found = re.search(r"part of a snapshot is here.*?chunks=(\d+) of=(\d+)", r.log_path.read_text())
        assert found, r.log_tail(40)
        had, whole = int(found[1]), int(found[2])
        assert before - UNSYNCED <= had < whole, (before, had, whole)
        assert counted(r, "received_chunks") == whole - had
        assert counted(r, "received_bytes") <= (whole - had) * (CHUNK + 1000)
        # One was on its way, and one was asked for again.
        assert sent(others) <= whole + UNSYNCED + 2, (sent(others), whole)
        assert counted(r, "sent_chunks") == 0
        assert not list(r.data_dir.glob("snap-*.part"))
