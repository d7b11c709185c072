"""limits.py: many leases that end together; more load than can be served."""
import time

import cells
from run import Load, cell_cpu, say


def expiry(args):
    n = 1000 if args.quick else 10000
    for rate in (0, 1000):
        with cells.Cell(args.server, 3) as cell:
            load = Load(cell.replicas, "-n", n, "-ttl", "15", "expire")
            writes = Load(cell.replicas, "-rate", rate, "-dur", "40", "-n", "10000", "-size", "200", "writes") if rate else None
            told = load.line()
            say(f"{n} leases that end together, {rate} writes a second besides", late_p50_ms=told["late_p50_ms"], late_p99_ms=told["late_p99_ms"],
                late_max_ms=told["late_max_ms"], early=told["early"], renewed_within_ms=told["burst_ms"])
            if writes:
                w = writes.line()
                say("the writes", p50_ms=w["write_p50_ms"], p99_ms=w["write_p99_ms"], refused=w["refused"], failed=w["failed"])


def overload(args):
    seconds = 5 if args.quick else 20
    with cells.Cell(args.server, 3) as cell:
        quiet = Load(cell.replicas, "-conns", "1", "-outstanding", "1", "-dur", "3", "-size", "100", "flood").line()
        say("unlock and revoke without a flood", unlock_p50_ms=quiet["unlock_p50_ms"], unlock_p99_ms=quiet["unlock_p99_ms"], revoke_p99_ms=quiet["revoke_p99_ms"])
        for conns, outstanding, ops, size in ((30, 10, 100, 100), (30, 100, 100, 100), (60, 2000, 1, 100), (30, 100, 10, 10000)):
            before = cell_cpu(cell)
            began = time.monotonic()
            load = Load(cell.replicas, "-conns", conns, "-outstanding", outstanding, "-dur", seconds, "-size", size, "-ops", ops, "flood")
            rss = 0
            while load.process.stdout and not ready(load):
                rss = max(rss, *(r.rss_mb() for r in cell.running()))
                time.sleep(0.5)
            told = load.line()
            cores = sum(cell_cpu(cell).values()) - sum(before.values())
            say(f"{conns * outstanding} transactions of {ops} puts of {size} bytes at a time", served_per_s=told["ok"] / seconds, refused=told["refused"], failed=told["failed"],
                put_p99_ms=told.get("put_p99_ms", 0.0), unlock_n=told["unlock_n"], unlock_p50_ms=told.get("unlock_p50_ms", 0.0), unlock_p99_ms=told.get("unlock_p99_ms", 0.0),
                revoke_p99_ms=told.get("revoke_p99_ms", 0.0), most_memory_mb=rss, cores=cores / (time.monotonic() - began))


def ready(load):
    import select
    return bool(select.select([load.process.stdout], [], [], 0)[0])
