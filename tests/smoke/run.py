"""run.py --server HOLDFASTD: a cell of three under a small load, a kill -9, a restart and SIGTERMs; for servers built with a sanitizer.

The load touches every front end and every thread: puts, transactions, locks, keep-alives, watches, elections, calls that are cancelled, JSON, and
bytes that are no request. What was acknowledged is found again, every replica that is stopped ends with status 0, and no sanitizer has written
a report (their options come from the environment; `log_path` is added here). The last line is "COUNT passed failed".
"""
import argparse
import contextlib
import os
import pathlib
import random
import signal
import socket
import sys
import tempfile
import threading
import time

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "lib"))
import cells  # noqa: E402

cells.stubs()
import grpc  # noqa: E402
from etcd import rpc_pb2 as pb, rpc_pb2_grpc, v3election_pb2, v3election_pb2_grpc, v3lock_pb2, v3lock_pb2_grpc  # noqa: E402

OPTIONS = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 2000), ("grpc.max_reconnect_backoff_ms", 300),
           ("grpc.use_local_subchannel_pool", 1)]


class Load:
    """One thread a task; each repeats its step until the end. What the cell refuses or cannot answer for now is expected, not counted."""

    def __init__(self, cell):
        self.cell = cell
        self.stop = threading.Event()
        self.acked = {}
        self.done = {}
        self.surprises = []
        self.threads = []

    def start(self):
        tasks = [self.write, self.write, self.lock, self.lock, self.keep_alive, self.watch, self.elect, self.cancel, self.json, self.noise]
        for i, task in enumerate(tasks):
            t = threading.Thread(target=self.repeat, args=(task, i), daemon=True)
            t.start()
            self.threads.append(t)

    def end(self):
        self.stop.set()
        for t in self.threads:
            t.join(60)
            assert not t.is_alive(), "a task of the load hangs"

    def repeat(self, task, number):
        rng = random.Random(number)
        n = 0
        while not self.stop.is_set():
            replica = rng.choice(self.cell.replicas)
            if not replica.running():
                time.sleep(0.05)
                continue
            n += 1
            try:
                with grpc.insecure_channel(replica.endpoint, OPTIONS) as channel:
                    task(channel, replica, rng, f"{number}-{n}")
                self.done[task.__name__] = self.done.get(task.__name__, 0) + 1
            except grpc.RpcError as e:
                if e.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED):
                    self.surprises.append(f"{task.__name__}: {e.code()} {e.details()}")
            except OSError:
                pass  # the replica went away
            except Exception as e:  # noqa: BLE001: whatever it is, it is told at the end
                self.surprises.append(f"{task.__name__}: {type(e).__name__} {e}")

    def write(self, channel, _replica, rng, name):
        kv = rpc_pb2_grpc.KVStub(channel)
        for i in range(30):
            key = f"w/{name}/{i}".encode()
            value = rng.randbytes(rng.randrange(2000))
            kv.Put(pb.PutRequest(key=key, value=value), timeout=15)
            self.acked[key] = value
        kv.Txn(pb.TxnRequest(compare=[pb.Compare(key=key, target=pb.Compare.VERSION, version=1)],
                             success=[pb.RequestOp(request_put=pb.PutRequest(key=b"t", value=b"x")),
                                      pb.RequestOp(request_range=pb.RangeRequest(key=b"w/", range_end=b"w0", limit=10))],
                             failure=[pb.RequestOp(request_delete_range=pb.DeleteRangeRequest(key=b"t"))]), timeout=15)
        kv.DeleteRange(pb.DeleteRangeRequest(key=b"none"), timeout=15)

    def lock(self, channel, _replica, rng, _name):
        lease = rpc_pb2_grpc.LeaseStub(channel).LeaseGrant(pb.LeaseGrantRequest(TTL=20), timeout=15).ID
        locks = v3lock_pb2_grpc.LockStub(channel)
        for _ in range(5):
            got = locks.Lock(v3lock_pb2.LockRequest(name=rng.choice([b"a", b"b"]), lease=lease), timeout=15)
            locks.Unlock(v3lock_pb2.UnlockRequest(key=got.key), timeout=15)
        rpc_pb2_grpc.LeaseStub(channel).LeaseRevoke(pb.LeaseRevokeRequest(ID=lease), timeout=15)

    def keep_alive(self, channel, _replica, _rng, _name):
        stub = rpc_pb2_grpc.LeaseStub(channel)
        ids = [stub.LeaseGrant(pb.LeaseGrantRequest(TTL=20), timeout=15).ID for _ in range(10)]

        def requests():
            for _ in range(20):
                for i in ids:
                    yield pb.LeaseKeepAliveRequest(ID=i)
        for answer in stub.LeaseKeepAlive(requests(), timeout=15):
            assert answer.TTL > 0, f"lease {answer.ID:x} is gone"
        stub.LeaseTimeToLive(pb.LeaseTimeToLiveRequest(ID=ids[0], keys=True), timeout=15)

    def watch(self, channel, _replica, _rng, _name):
        def requests():
            yield pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"w/", range_end=b"w0", start_revision=1, prev_kv=True))
            yield pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"a", range_end=b"c", progress_notify=True))
            self.stop.wait(3)
            yield pb.WatchRequest(cancel_request=pb.WatchCancelRequest(watch_id=1))
        answers = rpc_pb2_grpc.WatchStub(channel).Watch(requests(), timeout=4)
        try:
            for n, _ in enumerate(answers):
                if n == 20:
                    break
        finally:
            answers.cancel()

    def elect(self, channel, _replica, _rng, _name):
        stub = v3election_pb2_grpc.ElectionStub(channel)
        lease = rpc_pb2_grpc.LeaseStub(channel).LeaseGrant(pb.LeaseGrantRequest(TTL=20), timeout=15).ID
        observed = stub.Observe(v3election_pb2.LeaderRequest(name=b"e"), timeout=15)
        won = stub.Campaign(v3election_pb2.CampaignRequest(name=b"e", lease=lease, value=b"1"), timeout=15)
        stub.Proclaim(v3election_pb2.ProclaimRequest(leader=won.leader, value=b"2"), timeout=15)
        next(observed)
        observed.cancel()
        stub.Resign(v3election_pb2.ResignRequest(leader=won.leader), timeout=15)

    def cancel(self, channel, _replica, rng, _name):
        lease = rpc_pb2_grpc.LeaseStub(channel).LeaseGrant(pb.LeaseGrantRequest(TTL=20), timeout=15).ID
        locks, kv = v3lock_pb2_grpc.LockStub(channel), rpc_pb2_grpc.KVStub(channel)
        held = locks.Lock(v3lock_pb2.LockRequest(name=b"c" + str(lease).encode(), lease=lease), timeout=15)
        for i in range(10):
            calls = [locks.Lock.future(v3lock_pb2.LockRequest(name=held.key.rsplit(b"/", 1)[0]), timeout=15),
                     kv.Put.future(pb.PutRequest(key=b"cancelled", value=b"x" * rng.randrange(100000)), timeout=15),
                     kv.Range.future(pb.RangeRequest(key=b"w/", range_end=b"w0"), timeout=15)]
            time.sleep(rng.random() * 0.02)
            for c in calls:
                c.cancel()

    def json(self, _channel, replica, rng, _name):
        for _ in range(10):
            cells.http(replica.url + "/v3/kv/put", {"key": "anNvbg==", "value": "eA=="}, timeout=15)
            status, _ = cells.http(replica.url + "/v3/kv/range", {"key": "anNvbg=="}, timeout=15)
            assert status in (200, 503, 504, 408), f"status {status} of a range"
            cells.http(replica.url + rng.choice(["/health", "/metrics", "/version", "/nonsense"]), timeout=15)
        with socket.create_connection(("127.0.0.1", replica.client_port), timeout=5) as s:
            body = b'{"create_request":{"key":"anNvbg==","start_revision":1}}'
            s.sendall(b"POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
            s.recv(1000)

    def noise(self, _channel, replica, rng, _name):
        starts = [b"", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", b"GET / HTTP/1.1\r\n", b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nContent-Length: 9999\r\n\r\n"]
        for port in (replica.client_port, replica.peer_port):
            with socket.create_connection(("127.0.0.1", port), timeout=5) as s:
                s.sendall(rng.choice(starts) + rng.randbytes(rng.randrange(200)))
                s.settimeout(0.2)
                with contextlib.suppress(OSError):
                    s.recv(1000)


def check_acked(cell, acked):
    with grpc.insecure_channel(cell.running()[0].endpoint, OPTIONS) as channel:
        found = {}
        kv, key = rpc_pb2_grpc.KVStub(channel), b"w/"
        while True:
            r = kv.Range(pb.RangeRequest(key=key, range_end=b"w0", limit=500), timeout=30)
            found.update({x.key: x.value for x in r.kvs})
            if not r.more:
                break
            key = r.kvs[-1].key + b"\0"
    lost = [k for k, v in acked.items() if found.get(k) != v]
    assert not lost, f"{len(lost)} of {len(acked)} acknowledged writes are lost, such as {lost[0]}"


def story(cell, slow):
    """Yields the name of each step once it is over."""
    cell.start()
    load = Load(cell)
    load.start()
    yield "three replicas serve"
    time.sleep(4 * slow)
    dead = cell.leader(timeout=30)
    dead.kill()
    time.sleep(2 * slow)
    cell.leader(timeout=60)
    yield "the leader is killed, another leads"
    dead.start()
    cell.wait_ready([dead], timeout=60)
    time.sleep(3 * slow)
    yield "it is back"
    stopped = cell.leader(timeout=30)
    stopped.stop()
    time.sleep(slow)
    stopped.start()
    cell.wait_ready([stopped], timeout=60)
    yield "the leader is stopped by SIGTERM under load, with status 0, and is back"
    load.end()
    assert not load.surprises, f"{len(load.surprises)} surprises: {load.surprises[:5]}"
    assert len(load.done) == 8, f"only these tasks were ever done: {load.done}"
    print(f"done: {load.done}, {len(load.acked)} writes acknowledged")
    yield "nobody was told what was not so"
    check_acked(cell, load.acked)
    yield "all that was acknowledged is there"
    for r in cell.replicas:
        r.stop()
    yield "all stop with status 0"


def check_reports(reports):
    found = sorted(p for p in reports.glob("report.*") if p.stat().st_size)
    for p in found[:3]:
        print(f"--- {p.name}:\n{p.read_text(errors='replace')[:6000]}")
    assert not found, f"{len(found)} sanitizer reports"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--slow", type=float, default=1.0, help="by how much the times of the story are stretched")
    args = parser.parse_args()
    passed = failed = 0
    with tempfile.TemporaryDirectory(prefix="holdfast-reports-") as d:
        reports = pathlib.Path(d)
        for name in ("ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS"):
            os.environ[name] = f"{os.environ.get(name, '')}:log_path={reports}/report"
        began = time.monotonic()
        try:
            with cells.Cell(args.server, 3, ["--snapshot-count", "500"], start=False) as cell:
                for step in story(cell, args.slow):
                    passed += 1
                    print(f"ok   {step} ({time.monotonic() - began:.1f} s)", flush=True)
            check_reports(reports)
            passed += 1
            print("ok   no sanitizer had anything to report")
        except Exception as e:  # noqa: BLE001: any of them fails the run
            failed += 1
            print(f"FAIL {type(e).__name__}: {e}", flush=True)
            with contextlib.suppress(AssertionError):
                check_reports(reports)
    print(f"COUNT {passed} {failed}", flush=True)
    sys.stdout.flush()
    os._exit(1 if failed else 0)  # threads of a library may still hold a lock


signal.signal(signal.SIGINT, lambda *_: sys.exit(130))
if __name__ == "__main__":
    main()
