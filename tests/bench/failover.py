"""failover.py: what the loss of a leader costs those who write, hold leases and watch."""
import time

import cells
import net
from run import Load, percentile, say, term


def gaps(cell, beat, times, harm, heal):
    """The longest gap in writes around each of so many losses of the leader."""
    found = []
    for _ in range(times):
        leader = cell.leader(timeout=30)
        beat.ask("mark")
        time.sleep(0.5)
        harm(leader)
        time.sleep(4)
        found.append(beat.ask("mark")["gap_ms"])
        heal(leader)
        cell.wait_ready()
        time.sleep(0.5)
    return found


def tell_gaps(what, found):
    say(what, times=len(found), gap_p50_ms=percentile(found, 0.5), gap_max_ms=max(found))


def losses(args, times):
    with net.Cell(args.server, 3, []) as cell:
        cell.start()
        beat = Load(cell.replicas, "beat")
        tell_gaps("leader of three killed (kill -9)", gaps(cell, beat, times, lambda r: r.kill(), lambda r: r.start()))
        tell_gaps("leader of three stopped (SIGSTOP)", gaps(cell, beat, times, lambda r: r.pause(), lambda r: r.resume()))

        def cut(leader):
            for other in cell.replicas:
                if other is not leader:
                    cell.network.cut(leader, other)
                    cell.network.cut(other, leader)
        tell_gaps("leader of three cut off from the others", gaps(cell, beat, times, cut, lambda _: cell.network.heal()))
        tell_gaps("leader of three stopped by SIGTERM", gaps(cell, beat, times, lambda r: r.stop(), lambda r: r.start()))
        beat.end()


def planned(args, times):
    """Calls at the two others while a leader is stopped by SIGTERM, and at all while the lead is moved."""
    from etcd import rpc_pb2 as pb
    from kit import Client, grpc
    with cells.Cell(args.server, 3) as cell:
        failed = calls = 0
        for _ in range(times):
            leader = cell.leader()
            load = Load([r for r in cell.replicas if r is not leader], "-rate", "500", "-dur", "3", "-n", "1000", "writes")
            time.sleep(1)
            leader.stop()
            told = load.line()
            failed, calls = failed + told["failed"] + told["refused"], calls + told["write_n"]
            leader.start()
            cell.wait_ready()
        say("leader stopped by SIGTERM under 500 writes a second at the others", times=times, writes=calls, failed=failed, p99_ms=told["write_p99_ms"], max_ms=told["write_max_ms"])
        failed = calls = moved = 0
        for _ in range(times):
            leader = cell.leader()
            to = next(r for r in cell.replicas if r is not leader)
            load = Load(cell.replicas, "-rate", "500", "-dur", "3", "-n", "1000", "writes")
            time.sleep(1)
            with Client(leader) as c, Client(to) as t:
                try:
                    c.maintenance.MoveLeader(pb.MoveLeaderRequest(targetID=t.status().header.member_id), timeout=5)
                except grpc.RpcError as e:
                    say("MoveLeader", code=e.code().name, text=e.details())
            told = load.line()
            moved += cell.leader() is to
            failed, calls = failed + told["failed"] + told["refused"], calls + told["write_n"]
        say("lead moved by MoveLeader under 500 writes a second", times=times, moved=moved, writes=calls, failed=failed, p99_ms=told["write_p99_ms"], max_ms=told["write_max_ms"])


def sessions(args, n):
    """Held across the death of the leader: TTL 30 s, renewed every 8 s."""
    from kit import Client
    with cells.Cell(args.server, 3) as cell:
        held = Load(cell.replicas, "-n", n, "-conns", "24", "-ttl", "30", "-every", "8", "sessions")
        say("sessions granted", **{k: v for k, v in held.line().items() if k != "kind"})
        time.sleep(10)
        before = held.ask("report")
        first = term(cell)
        leader = cell.leader()
        leader.kill()
        time.sleep(20)
        leader.start()
        time.sleep(30)
        after = held.ask("report")
        with Client(cell.leader()) as c:
            left = len(c.leases())
        say(f"{n} leases kept alive across the death of the leader", renewed=after["renewed"], lost=after["lost"], left=left, elections=term(cell) - first,
            keepalive_p99_before_ms=before["keepalive_p99_ms"], keepalive_p99_ms=after["keepalive_p99_ms"])
        held.end()


def watches(args):
    n = 5000 if args.quick else 50000
    with cells.Cell(args.server, 3) as cell:
        load = Load(cell.replicas, "-n", n, "-conns", "5", "watches")
        made = load.line()
        say(f"{n} watches on 5 connections", seconds=made["seconds"], leader_mb=cell.leader().rss_mb())
        first, leader = term(cell), cell.leader()
        began = time.monotonic()
        leader.kill()
        cell.leader(timeout=30)
        led = time.monotonic() - began

        def whole():
            return load.ask("report")["created"] == n
        cells.wait_for("all watches are there again", whole, 60)
        again = time.monotonic() - began
        time.sleep(5)
        told = load.ask("write")
        say("leader killed", led_again_s=led, all_watches_again_s=again, streams_broken=load.ask("report")["streams_broken"], elections=term(cell) - first, events_missing=told["missing"], written_s=told["written_seconds"],
            all_told_s=told["told_seconds"])
        load.end()


def run(args):
    times = 3 if args.quick else 20
    losses(args, times)
    planned(args, 2 if args.quick else 10)
    sessions(args, 5000 if args.quick else 50000)
