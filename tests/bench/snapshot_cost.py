"""snapshot_cost.py [--server PATH] [--mb 100]: what snapshots and a backup of so much state take, and what acquire costs meanwhile.

A cell of one replica: the machine's cores go to it alone. Another process writes one key all the time, so that snapshots come due one after another. Prints how
long the replica's own snapshots and a client's backup took, and p50 and p99 of acquire (grant a lock that nobody holds, and release it) between the snapshots,
while one is written, and while a backup is sent.
"""
import argparse
import datetime
import multiprocessing
import pathlib
import re
import sys
import threading
import time

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path[:0] = [str(TOP / "tests" / "lib"), str(TOP / "tests" / "integration")]
import cells  # noqa: E402
from kit import Client, pb  # noqa: E402

VALUE = 1000
SNAPSHOT_COUNT = 5000
SNAPSHOTS = 20


def fill(c, mb):
    value = b"v" * VALUE
    for i in range(0, mb * 1000, 100):
        ops = [pb.RequestOp(request_put=pb.PutRequest(key=b"fill/%08d" % k, value=value)) for k in range(i, i + 100)]
        c.kv.Txn(pb.TxnRequest(success=ops), timeout=30)


def acquire(c, lease, until):
    """[(wall clock when it began, seconds it took)]"""
    taken, n = [], 0
    while not until():
        name = b"bench/%d" % n
        n += 1
        began, at = time.time(), time.monotonic()
        reply = c.take_lock(name, lease)
        taken.append((began, time.monotonic() - at))
        c.unlock(reply.key)
    return taken


def snapshots(r):
    """[(wall clock when it began, when it was there)]"""
    found = re.findall(r"^(\S+Z) .*snapshot written index=\d+ took_ms=(\d+)", r.log_path.read_text(), re.M)
    ends = [(datetime.datetime.fromisoformat(at.replace("Z", "+00:00")).timestamp(), int(ms) / 1000) for at, ms in found]
    return [(end - took, end) for end, took in ends]


def churn(endpoint):
    """Entries, so that snapshots come due."""
    with Client(endpoint) as c:
        while True:
            c.put(b"churn", b"x")


def line(what, times):
    times = sorted(times)
    if not times:
        print(f"{what}: nothing measured")
        return
    print(f"{what}: p50 {1000 * times[len(times) // 2]:.2f} ms, p99 {1000 * times[len(times) * 99 // 100]:.2f} ms, max {1000 * times[-1]:.2f} ms, {len(times)} acquires")


def main():
    p = argparse.ArgumentParser()
    p.add_argument("--server", default=TOP / "build" / "server" / "holdfastd")
    p.add_argument("--mb", type=int, default=100)
    args = p.parse_args()
    flags = ["--snapshot-count", str(SNAPSHOT_COUNT), "--quota-backend-bytes", str(8 << 30)]
    with cells.Cell(args.server, 1, flags=flags) as cell:
        r = cell.replicas[0]
        with Client(r) as c, Client(r) as other:
            fill(c, args.mb)
            lease = c.grant(3600)
            writer = multiprocessing.get_context("spawn").Process(target=churn, args=(r.endpoint,), daemon=True)
            writer.start()
            first = len(snapshots(r)) + 1  # the one that is under way now began before all was there
            taken = acquire(c, lease, lambda: len(snapshots(r)) >= first + SNAPSHOTS)
            writer.kill()
            writer.join()
            size = []
            at = time.monotonic()

            def read():
                size.append(sum(len(m.blob) for m in other.maintenance.Snapshot(pb.SnapshotRequest(), timeout=120)))

            t = threading.Thread(target=read)
            t.start()
            backup = acquire(c, lease, lambda: not t.is_alive())
            took = time.monotonic() - at
        spans = snapshots(r)
        during = [s for began, s in taken if any(a < began + s and began < b for a, b in spans)]
        between = [s for began, s in taken if not any(a < began + s and began < b for a, b in spans)]
        spans = sorted(b - a for a, b in spans[first:])
        print(f"{len(spans)} snapshots written: p50 {1000 * spans[len(spans) // 2]:.0f} ms, max {1000 * spans[-1]:.0f} ms")
        print(f"backup of {size[0] / 1e6:.1f} MB read in {took:.2f} s")
        line("acquire, entries come in, no snapshot is written", between)
        line("acquire, entries come in, a snapshot is written", during)
        line("acquire, a backup is sent", [s for _, s in backup])


if __name__ == "__main__":
    main()
