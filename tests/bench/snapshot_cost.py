"""snapshot_cost.py [--server PATH] [--mb 100]: what a snapshot and a backup of so much state take, and what acquire costs meanwhile.

A cell of one replica: the machine's cores go to it alone. Prints how long the replica's own snapshot and a client's backup took, and p50 and p99 of
acquire (grant a lock that nobody holds, and release it) without either, while snapshots are written, and while a backup is sent.
"""
import argparse
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
SNAPSHOT_COUNT = 20000


def fill(c, mb):
    value = b"v" * VALUE
    for i in range(0, mb * 1000, 100):
        ops = [pb.RequestOp(request_put=pb.PutRequest(key=b"fill/%08d" % k, value=value)) for k in range(i, i + 100)]
        c.kv.Txn(pb.TxnRequest(success=ops), timeout=30)


def acquire(c, lease, until, times):
    n = 0
    while not until():
        name = b"bench/%d" % n
        n += 1
        at = time.monotonic()
        reply = c.take_lock(name, lease)
        times.append(time.monotonic() - at)
        c.unlock(reply.key)


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
    with cells.Cell(args.server, 1, flags=["--snapshot-count", str(SNAPSHOT_COUNT), "--quota-backend-bytes", str(8 << 30)]) as cell:
        r = cell.replicas[0]
        with Client(r) as c, Client(r) as other:
            fill(c, args.mb)
            lease = c.grant(3600)
            normal, busy, backup = [], [], []
            end = time.monotonic() + 10
            acquire(c, lease, lambda: time.monotonic() > end, normal)
            before = len(re.findall("snapshot written", r.log_path.read_text()))
            fresh = threading.Event()

            def churn():  # entries, so that a snapshot comes due
                while not fresh.is_set():
                    other.put(b"churn", b"x")
                    if len(re.findall("snapshot written", r.log_path.read_text())) > before:
                        fresh.set()

            t = threading.Thread(target=churn)
            t.start()
            acquire(c, lease, fresh.is_set, busy)
            t.join()
            size = []
            at = time.monotonic()

            def read():
                size.append(sum(len(m.blob) for m in other.maintenance.Snapshot(pb.SnapshotRequest(), timeout=120)))

            t = threading.Thread(target=read)
            t.start()
            acquire(c, lease, lambda: not t.is_alive(), backup)
            took = time.monotonic() - at
        times = re.findall(r"snapshot written index=(\d+) took_ms=(\d+)", r.log_path.read_text())
        print("snapshots written:", ", ".join(f"at {i} in {ms} ms" for i, ms in times) or "none")
        print(f"backup of {size[0] / 1e6:.1f} MB read in {took:.2f} s")
        line("acquire, nothing else", normal)
        line("acquire, entries until a snapshot is written, and while it is", busy)
        line("acquire, while a backup is sent", backup)


if __name__ == "__main__":
    main()
