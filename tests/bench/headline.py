"""headline.py: what a cell of five has to carry, all at once, on the machine at hand."""
import time

import cells
from run import Load, cell_cpu, machine, say


def run(args):
    scale = 10 if args.quick else 1
    keys, n, locks = 100000 // scale, 50000 // scale, 20000 // scale
    seconds = 10 if args.quick else 30
    with cells.Cell(args.server, 5) as cell:
        filled = Load(cell.replicas, "-n", keys, "-conns", "20", "-prefix", "nodes", "fill").line()
        say(f"{keys} keys of 1 KB written", seconds=filled["seconds"])
        held = Load(cell.replicas, "-n", n, "-conns", "50", "-ttl", "12", "-every", "4", "-locks", locks, "sessions")
        told = held.line()
        say(f"{n} sessions, {locks} locks", grant_seconds=told["grant_seconds"], lock_seconds=told["lock_seconds"])
        time.sleep(5)
        for rate in (200, 2000):
            measure(cell, held, keys, rate / (1 if scale == 1 else 4), seconds)
        held.end()


def measure(cell, held, keys, rate, seconds):
    leader = cell.leader()
    writes = Load(cell.replicas, "-conns", "20", "-n", keys, "-prefix", "nodes", "-rate", rate, "-dur", seconds + 4, "writes")
    time.sleep(2)
    held.ask("report")
    before, held_before, writes_before, began = cell_cpu(cell), held.cpu(), writes.cpu(), time.monotonic()
    machine_before = machine()
    acquires = Load(cell.replicas, "-conns", "10", "-rate", "100", "-dur", seconds, "acquires")
    acquired = acquires.line()
    took = time.monotonic() - began
    machine_now = machine()
    after, kept = cell_cpu(cell), held.ask("report")
    load_cores = (held.cpu() - held_before + writes.cpu() - writes_before) / took
    wrote = writes.line()
    say(f"{rate:g} writes a second, {kept['renewed'] / took:.0f} keep-alives a second", acquire_p50_ms=acquired["acquire_p50_ms"], acquire_p99_ms=acquired["acquire_p99_ms"],
        acquire_max_ms=acquired["acquire_max_ms"], acquires_failed=acquired["failed"])
    say("  meanwhile", writes_done_per_s=wrote["write_n"] / (seconds + 4), write_p99_ms=wrote["write_p99_ms"], refused=wrote["refused"], failed=wrote["failed"],
        keepalive_p50_ms=kept["keepalive_p50_ms"], keepalive_p99_ms=kept["keepalive_p99_ms"], sessions_lost=kept["lost"])
    say("  costs", leader_cores=(after[leader.name] - before[leader.name]) / took,
        all_five_cores=(sum(after.values()) - sum(before.values())) / took, load_cores=load_cores, of_cores=__import__("os").cpu_count(),
        **{f"machine_{k}_cores": (machine_now[k] - machine_before[k]) / took for k in machine_now}, leader_mb=leader.rss_mb(), largest_mb=max(r.rss_mb() for r in cell.replicas))
