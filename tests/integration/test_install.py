"""A replica that is far behind gets the state as a snapshot. When its process dies in the middle, or the sender's, what it has is not sent again."""
import contextlib
import json
import os
import re

import cells
from kit import Client, clients, insist, newest_snapshot, pb, same_everywhere
from runner import test

FLAGS = ["--snapshot-count", "20", "--snapshot-catchup-entries", "2"]
CHUNK = 256 << 10
UNSYNCED = 8  # chunks that are made durable together


def metric(replica, name):
    text = cells.http(replica.url + "/metrics")[1]
    return int(re.search(rf"^holdfast_{name} (\d+)$", text, re.M)[1])


def counted(replica, name):
    return metric(replica, f"snapshot_{name}_total")


def sent(replicas):
    return sum(counted(r, "sent_chunks") for r in replicas)


def received(replica):
    with contextlib.suppress(OSError):  # it does not listen yet
        return counted(replica, "received_chunks")
    return 0


def wait_received(replica, chunks, timeout=30):
    """Waits until so many chunks are there; returns how many by then."""
    return cells.wait_for(f"{replica.name} has {chunks} chunks", lambda: (lambda n: n >= chunks and n)(received(replica)), timeout)


def fall_behind(cell, behind, megabytes, count=20):
    """`behind` are down, and the others have cut from their logs, and forgotten from memory, what those lack. count: entries between snapshots."""
    others = [x for x in cell.replicas if x not in behind]
    for r in behind:
        r.kill()
    with Client(others[0]) as c:
        for i in range(megabytes * 4):
            insist(lambda i=i: c.put(b"big%d" % i, os.urandom(CHUNK)))
        # Until the second one: it is begun when the log has been cut behind the first. With a count well above that of the big ones none is due while
        # another is written, so all make theirs at one index.
        for n in (1, 2):
            for i in range(count):
                insist(lambda i=i: c.put(b"small%d" % i, b"x"))
            for x in others:
                cells.wait_for(f"{n} snapshots were made", lambda x=x, n=n: newest_snapshot(x) >= n * count)
    for x in others:
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
        others = fall_behind(cell, [r], 6)
        assert sent(others) == 0
        cell.network.slow(r, 2 << 20)
        r.start()
        before = wait_received(r, UNSYNCED + 4)
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


@test(own=True)
def two_installs_go_on_after_the_senders_death(server):
    """The next leader has the same snapshot, since equal states at one index are one snapshot: what was received from the first counts."""
    count, megabytes = 60, 6
    with cells.Cell(server, 5, ["--snapshot-count", str(count), "--snapshot-catchup-entries", "2"], relays=True) as cell:
        leader = cell.leader()
        behind = [x for x in cell.replicas if x is not leader][:2]
        others = fall_behind(cell, behind, megabytes, count)
        assert len({max(p.name for p in x.data_dir.glob("snap-*") if "." not in p.name) for x in others}) == 1, "the snapshots are not of one index"
        for r in behind:
            cell.network.slow(r, 2 << 20)
            r.start()
        for r in behind:
            wait_received(r, UNSYNCED)
        first = cell.leader()
        sent_first = sent([first])
        first.kill()
        had = [counted(r, "received_chunks") for r in behind]
        rest = [x for x in others if x is not first]
        for r, n in zip(behind, had):
            wait_received(r, n + 2)
        assert sent(rest) >= 4, "the first leader has sent all of it"
        cell.network.heal()
        cell.wait_ready(rest + behind)
        for r in behind:
            assert metric(r, "snapshots_installed_total") == 1
            # Twenty-four chunks are big values; the little ones fill less than another. Not one was taken twice.
            assert counted(r, "received_bytes") < (megabytes << 20) + CHUNK, (had, counted(r, "received_chunks"))
        # Of each one may have been under way when the first leader died, one was asked for again, and a slow answer may have it send one more.
        received = sum(counted(r, "received_chunks") for r in behind)
        assert sent_first + sent(rest) <= received + 4 * len(behind) < received + sum(had), (sent_first, sent(rest), received, had)
        first.start()
        cell.wait_ready()
        with clients(cell) as cs:
            insist(lambda: cs[0].put(b"after", b""))
            revision = same_everywhere(cell)
            assert len({insist(lambda c=c: c.maintenance.HashKV(pb.HashKVRequest(revision=revision), timeout=10)).hash for c in cs}) == 1


def promote(leader, member):
    """None, or why not: (reason, entries behind, ms since it was heard)."""
    status, text = cells.http(leader.url + "/v3/cluster/member/promote", {"ID": str(member)})
    if status == 200:
        return None
    details = json.loads(text)["details"][0]
    return details["reason"], int(details["behind"]), int(details.get("last_heard_ms", 0))


def refused_because(leader, member, reason):
    """The numbers that come with it."""
    return cells.wait_for(f"it is not promoted because {reason}", lambda: (lambda r: r and r[0] == reason and r)(promote(leader, member)), 10)[1:]


def log_on_disk(replica):
    return sum(p.stat().st_blocks * 512 for p in (replica.data_dir / "log").iterdir())


def memory(replica):
    """What it has allocated, without the files that it has mapped."""
    with open(f"/proc/{replica.process.pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1]) for line in f if line.startswith("RssAnon")) << 10


@test(own=True, timeout=120)
def a_learner_that_never_finishes_does_not_hold_the_log(server):
    """First its link is so slow that there is a newer snapshot before it has all of one; then it stands still in the middle."""
    kept, keys = 20 + 2, 16
    with cells.Cell(server, 3, FLAGS, relays=True) as cell:
        leader = cell.leader()
        with Client(leader) as c:
            def write(n):
                for i in range(n):
                    revision = insist(lambda i=i: c.put(b"big%d" % (i % keys), os.urandom(CHUNK))).header.revision
                    if i % 10 == 9:
                        c.compact(revision)

            def goes_on(n):
                """Many times what the log keeps is written: it grows no further, on disk or in memory."""
                disk, anonymous = log_on_disk(leader), memory(leader)
                write(n)
                cells.wait_for("the log is cut", lambda: metric(leader, "raft_last_index") - metric(leader, "raft_first_index") <= kept, 10)
                grown = (log_on_disk(leader) - disk) / (n * CHUNK), (memory(leader) - anonymous) / (n * CHUNK)
                print(f"{n * CHUNK >> 20} MB written; of that more on disk, in memory: {grown}")
                assert max(grown) < 0.5, grown

            write(100)  # the log's end is kept in memory, up to 16 MiB
            learner = cells.Replica(cell, 4)
            learner.joins = "existing"
            cell.network.add(learner)
            cell.network.slow(learner, 512 << 10)
            member = c.cluster.MemberAdd(pb.MemberAddRequest(peerURLs=[learner.peer_url], isLearner=True), timeout=10).member.ID
            cell.replicas.append(learner)
            learner.start()
            cells.wait_for("it has begun", lambda: write(10) or received(learner), 60)
            goes_on(160)
            before = received(learner)
            assert metric(learner, "snapshots_installed_total") == 0
            lacks, silent = refused_because(leader, member, "it is being sent a snapshot")
            assert lacks > kept and 0 <= silent <= 1000, (lacks, silent)
            learner.pause()
            goes_on(160)
            lacks, silent = refused_because(leader, member, "it is not heard")
            assert lacks > 2 * kept and silent > 1000, (lacks, silent)
            learner.resume()
            cell.network.heal()
            cells.wait_for("it has the state", lambda: metric(learner, "snapshots_installed_total") >= 1, 30)
            print(f"{before} chunks before, {counted(learner, 'received_chunks')} in the end")
            cells.wait_for("it is promoted", lambda: promote(leader, member) is None, 20)
            same_everywhere(cell)
            assert not list(learner.data_dir.glob("snap-*.part"))
