"""limits.py: many leases that end together; more load than can be served."""
import time

import cells
from run import Load, cell_cpu, say, term


def expiry(args):
    n = 1000 if args.quick else 10000
    for rate in (0, 1000):
        with cells.Cell(args.server, 3) as cell:
            load = Load(cell.replicas, "-n", n, "-ttl", "15", "expire")
            writes = Load(cell.replicas, "-rate", rate, "-dur", "40", "-n", "10000", "-size", "200", "writes") if rate else None
            first = term(cell)
            told = load.line()
            say(f"{n} leases that end together, {rate} writes a second besides", elections=term(cell) - first, late_p50_ms=told["late_p50_ms"], late_p99_ms=told["late_p99_ms"],
                late_max_ms=told["late_max_ms"], early=told["early"], renewed_within_ms=told["burst_ms"])
            if writes:
                w = writes.line()
                say("the writes", p50_ms=w["write_p50_ms"], p99_ms=w["write_p99_ms"], refused=w["refused"], failed=w["failed"])


def figures(told):
    return {f"{k}_{p}_ms": told.get(f"{k}_{p}_ms", 0.0) for k in ("unlock", "revoke") for p in ("p50", "p99")} | {"unlock_n": told["unlock_n"]}


def overload(args):
    seconds = 5 if args.quick else 20
    with cells.Cell(args.server, 3) as cell:
        frees = Load(cell.replicas, "-dur", "3", "frees")
        frees.line()
        say("unlock and revoke without a flood", **figures(frees.ask("go")))
        for conns, outstanding, ops, size in ((30, 10, 100, 100), (30, 100, 100, 100), (60, 2000, 1, 100), (30, 100, 10, 10000)):
            frees = Load(cell.replicas, "-dur", seconds - 3, "frees")
            frees.line()
            before = cell_cpu(cell)
            began = time.monotonic()
            load = Load(cell.replicas, "-conns", conns, "-outstanding", outstanding, "-dur", seconds, "-size", size, "-ops", ops, "flood")
            rss = 0
            time.sleep(2)  # until it floods
            frees.say("go")
            while not ready(load):
                rss = max(rss, *(r.rss_mb() for r in cell.running()))
                time.sleep(0.5)
            told = load.line()
            took = time.monotonic() - began
            cores = sum(cell_cpu(cell).values()) - sum(before.values())
            say(f"{conns * outstanding} transactions of {ops} puts of {size} bytes at a time", served_per_s=told["ok"] / took, refused=told["refused"], failed=told["failed"],
                put_p50_ms=told.get("put_p50_ms", 0.0), put_p99_ms=told.get("put_p99_ms", 0.0), **figures(frees.line()), most_memory_mb=rss, cores=cores / took, load_cores=load.cpu() / took)


def ready(load):
    import select
    return bool(select.select([load.process.stdout], [], [], 0)[0])
