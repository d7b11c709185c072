"""library.py: what many sessions of libholdfast cost a cell: those that read from their caches, and those that live through the loss of the leader."""
import time

import cached
import cells
from lines import Lines, built
from run import cell_cpu, cpu_seconds, percentile, say

PROCESSES = 4


def requests(cell):
    """What clients have asked of all replicas so far: gets of nodes, sets, and messages of session streams (keep-alives, acknowledgements)."""
    counted = dict.fromkeys(("gets", "sets", "session"), 0)
    names = {'grpc_method="Get",grpc_service="holdfast.v1.Nodes"': "gets", 'grpc_method="Set",grpc_service="holdfast.v1.Nodes"': "sets",
             'grpc_service="holdfast.v1.Session"': "session"}
    for r in cell.running():
        for line in cells.http(r.url + "/metrics")[1].splitlines():
            if line.startswith("grpc_server_msg_received_total"):
                for what, name in names.items():
                    counted[name] += int(line.split()[-1]) * (what in line)
    return counted


def writes_of(writer):
    """Milliseconds that each took."""
    return [(w.end - w.begin) / 1e6 for w in cached.load(writer.history)[1]]


def caches(args):
    """Sessions that all cache one value. Each of them asks twice for what was written, so it is written so often that one read in a hundred goes to the cell."""
    sessions, rate, seconds, period = (100, 5000, 20, 4400) if args.quick else (1000, 50000, 60, 4400)
    with cells.Cell(args.server, 5) as cell:
        alone = cached.Cacher(args.server, cell, "write", 200, keys=1)
        alone.wait("open")
        time.sleep(5)
        alone.finish()
        readers = [cached.Cacher(args.server, cell, "read", sessions // PROCESSES, rate // PROCESSES, keys=1, history=False) for _ in range(PROCESSES)]
        for r in readers:
            r.wait("open", 60)
        writer = cached.Cacher(args.server, cell, "write", period, keys=1)
        writer.wait("open")
        time.sleep(5)
        figures_of(cell, readers, writer, seconds, f"{sessions} sessions cache one value that is written every {period / 1000:g} s")
        writer.finish()
        for r in readers:
            r.finish()
        took, quiet = writes_of(writer), writes_of(alone)
        say("  the writes", times=len(took), p50_ms=percentile(took, 0.5), p99_ms=percentile(took, 0.99), max_ms=max(took), p99_without_caches_ms=percentile(quiet, 0.99))


def figures_of(cell, readers, writer, seconds, what):
    def now():
        return [r.counted() for r in readers], requests(cell), sum(cell_cpu(cell).values()), sum(cpu_seconds(p.process.pid) for p in (writer, *readers)), time.monotonic()
    counts, asked, cores, load, began = now()
    time.sleep(seconds)
    counts_after, asked_after, cores_after, load_after, ended = now()
    took = ended - began
    reads, hits, misses, failed, jeopardy, expired = (sum(after[i] - before[i] for before, after in zip(counts, counts_after)) for i in range(6))
    per_s = {k: (asked_after[k] - asked[k]) / took for k in asked}
    say(what, reads_per_s=reads / took, hit_percent=100 * hits / max(reads, 1), misses_per_s=misses / took, failed=failed, jeopardy=jeopardy, expired=expired)
    say("  the cell served", gets_per_s=per_s["gets"], sets_per_s=per_s["sets"], session_messages_per_s=per_s["session"], cores=(cores_after - cores) / took,
        load_cores=(load_after - load) / took)


def losses(args):
    """Sessions whose leader is killed, and stopped: the states that they went through, and how near they came."""
    sessions, ttl, times = (400, 12, 1) if args.quick else (5000, 12, 5)
    with cells.Cell(args.server, 3) as cell:
        some = [Lines([built(args.server, "tests/e2e/contender/contender"), cell.endpoints, "", sessions // PROCESSES, ttl, ""]) for _ in range(PROCESSES)]
        for p in some:
            p.wait("open", 120)
        for name, harm, heal in (("killed (kill -9)", lambda r: r.kill(), lambda r: r.start()), ("stopped (SIGSTOP)", lambda r: r.pause(), lambda r: r.resume())):
            renewed, least, jeopardy, expired = [], ttl * 1000, 0, 0
            for _ in range(times):
                before, leader, began = counts_of(some), cell.leader(), time.monotonic()
                harm(leader)
                after, lowest = all_renewed(some, ttl, began, 4 * ttl)
                renewed.append(time.monotonic() - began)
                least, jeopardy, expired = min(least, lowest), jeopardy + after[1] - before[1], expired + after[2] - before[2]
                heal(leader)
                cell.wait_ready()
            say(f"{sessions} sessions, TTL {ttl} s, leader of three {name}", times=times, ever_in_jeopardy=jeopardy, expired=expired,
                all_renewed_after_s_p50=percentile(renewed, 0.5), at_most_s=max(renewed), least_remaining_ms=least)
        for p in some:
            p.tell("close")
            p.wait("closed", 60)


def counts_of(some):
    """SAFE now, ever in JEOPARDY, EXPIRED, and the least time that any still has."""
    counts = [list(map(int, p.ask("counts", "counts").split()[1:])) for p in some]
    return [*(sum(c[i] for c in counts) for i in range(3)), min(c[3] for c in counts)]


def all_renewed(some, ttl, since, timeout):
    """Until all have been renewed by what was sent after that instant; returns the last counts, and the least time that any had left."""
    lowest = ttl * 1000

    def renewed():
        nonlocal lowest
        asked = time.monotonic()
        counts = counts_of(some)
        lowest = min(lowest, counts[3])
        return counts if counts[3] > max(0, ttl * 990 - (asked - since) * 1000) else None
    return cells.wait_for("all are renewed", renewed, timeout, step=0.1), lowest
