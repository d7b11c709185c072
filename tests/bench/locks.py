"""locks.py: what locks cost: pairs of Lock and Unlock beside stock etcd's, one lock with a long queue, and many locks held by many sessions."""
import shutil

import cells
from run import Load, cell_cpu, say

ETCD = shutil.which("etcd")


def pairs(cell, n, *more):
    """Processor time of all replicas for a pair, in µs."""
    load = Load(cell.replicas, "-n", n, *more, "pairs")
    load.line()
    before = sum(cell_cpu(cell).values())
    load.ask("go")
    spent = sum(cell_cpu(cell).values()) - before
    load.end()
    return spent / n * 1e6


def apart(args, replicas):
    """Locks of names of their own, a hundred clients; ours and etcd's in turn."""
    n, turns = (2000, 2) if args.quick else (10000, 5)
    spent = {"ours": [], "etcd": []}
    for turn in range(turns):
        for name, server in (("ours", args.server), ("etcd", ETCD))[::-1 if turn % 2 else 1]:
            if server:
                with cells.Cell(server, replicas) as cell:
                    spent[name].append(pairs(cell, n))
    figures = {f"{name}_us": sum(v) / len(v) for name, v in spent.items() if v}
    if spent["etcd"]:
        figures["ratio"] = figures["etcd_us"] / figures["ours_us"]
        figures["least_ratio"] = min(e / o for e, o in zip(spent["etcd"], spent["ours"]))
    say(f"Lock + Unlock, {replicas} replica{'s'[:replicas > 1]}, processor time a pair", **figures)


def one(args):
    n = 200 if args.quick else 2000
    for name, server in (("ours", args.server), ("etcd", ETCD)):
        if not server:
            continue
        with cells.Cell(server, 1) as cell:
            load = Load(cell.replicas, "-n", n, "-conns", "100", "-ttl", "600", "queue")
            try:
                load.line()
            except AssertionError as e:  # etcd on a busy machine: its waits read the queue again and again
                say(f"{n} queued on one lock, {name}: not measured, {e}")
                continue
            waiting, before = cell.replicas[0].rss_mb(), sum(cell_cpu(cell).values())
            told = load.ask("go")
            say(f"{n} queued on one lock, {name}", p50_ms=told["handover_p50_ms"], p99_ms=told["handover_p99_ms"], max_ms=told["handover_max_ms"],
                us_each=(sum(cell_cpu(cell).values()) - before) / n * 1e6, mb_queued=waiting, mb_after=cell.replicas[0].rss_mb())
            load.end()


def many(args):
    """The cost of a pair with nothing else there, and beside sessions that hold locks; they stay alive meanwhile, but send nothing."""
    scale = 10 if args.quick else 1
    sessions, locks, n, turns = 50000 // scale, 20000 // scale, 10000 // scale, 5
    with cells.Cell(args.server, 1) as empty, cells.Cell(args.server, 1) as full:
        held = Load(full.replicas, "-n", sessions, "-locks", locks, "-conns", "20", "-ttl", "3600", "-every", "3600", "sessions")
        held.line()
        spent = [(pairs(empty, n, "-prefix", f"a{i}"), pairs(full, n, "-prefix", f"b{i}")) for i in range(turns)]
        say(f"Lock + Unlock beside {locks} locks held by {sessions} sessions, processor time a pair", alone_us=sum(a for a, _ in spent) / turns,
            beside_us=sum(b for _, b in spent) / turns, mb=full.replicas[0].rss_mb())
        held.end()


def run(args):
    apart(args, 1)
    apart(args, 3)
    one(args)
    many(args)
