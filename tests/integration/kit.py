"""kit.py: what the tests here share: clients of one replica, calls that wait, loads that keep book of what was acknowledged."""
import contextlib
import os
import queue
import threading
import time

import cells

cells.stubs()
import grpc  # noqa: E402
from etcd import rpc_pb2 as pb, rpc_pb2_grpc, v3lock_pb2 as lockpb, v3lock_pb2_grpc  # noqa: E402
from etcd import v3election_pb2 as electionpb, v3election_pb2_grpc  # noqa: E402
from holdfast import v1_pb2 as v1, v1_pb2_grpc  # noqa: E402

EVERYTHING = {"key": b"\0", "range_end": b"\0"}
# After these the outcome of a write is not known, or it is known not to be: it may be asked for again, elsewhere.
RETRY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)
OPTIONS = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1),
           # A replica that comes back is found soon (the "min" is the time that one attempt has); a channel of one's own is not shared with other tests' channels.
           ("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 2000), ("grpc.max_reconnect_backoff_ms", 300),
           ("grpc.use_local_subchannel_pool", 1)]


def prefix(p):
    """[p, p with its last byte + 1) as fields of a request."""
    return {"key": p, "range_end": p[:-1] + bytes([p[-1] + 1])}


def token_of(reply):
    """The fencing token of a LockResponse."""
    return reply.fencing_token


class Client:
    """Talks to one replica, over a connection of its own."""

    def __init__(self, replica, timeout=10):
        self.endpoint = getattr(replica, "endpoint", replica)
        self.timeout = timeout
        self.channel = grpc.insecure_channel(self.endpoint, OPTIONS)
        # Has the library look after the connection also while no call waits: else one whose calls all fail at once never comes up again.
        self.channel.subscribe(lambda _: None)
        self.kv = rpc_pb2_grpc.KVStub(self.channel)
        self.lease = rpc_pb2_grpc.LeaseStub(self.channel)
        self.lock = v3lock_pb2_grpc.LockStub(self.channel)
        self.locks = v1_pb2_grpc.LocksStub(self.channel)
        self.nodes = v1_pb2_grpc.NodesStub(self.channel)
        self.sessions = v1_pb2_grpc.SessionStub(self.channel)
        self.election = v3election_pb2_grpc.ElectionStub(self.channel)
        self.maintenance = rpc_pb2_grpc.MaintenanceStub(self.channel)
        self.cluster = rpc_pb2_grpc.ClusterStub(self.channel)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        self.channel.close()

    def put(self, key, value=b"", timeout=None, **fields):
        return self.kv.Put(pb.PutRequest(key=key, value=value, **fields), timeout=timeout or self.timeout)

    def put_many(self, items, timeout=None):
        """Of (key, value) each; fifty at a time: alone each waits for the disk."""
        items = list(items)
        for at in range(0, len(items), 50):
            for asked in [self.kv.Put.future(pb.PutRequest(key=k, value=v), timeout=timeout or self.timeout) for k, v in items[at:at + 50]]:
                asked.result()

    def range(self, timeout=None, **fields):
        return self.kv.Range(pb.RangeRequest(**fields), timeout=timeout or self.timeout)

    def get(self, key, timeout=None, **fields):
        """The key's version, or None."""
        kvs = self.range(timeout, key=key, **fields).kvs
        return kvs[0] if kvs else None

    def delete(self, timeout=None, **fields):
        return self.kv.DeleteRange(pb.DeleteRangeRequest(**fields), timeout=timeout or self.timeout)

    def compact(self, revision, **fields):
        return self.kv.Compact(pb.CompactionRequest(revision=revision, **fields), timeout=self.timeout)

    def grant(self, ttl, lease=0):
        return self.lease.LeaseGrant(pb.LeaseGrantRequest(TTL=ttl, ID=lease), timeout=self.timeout).ID

    def revoke(self, lease):
        return self.lease.LeaseRevoke(pb.LeaseRevokeRequest(ID=lease), timeout=self.timeout)

    def ttl(self, lease, keys=False):
        return self.lease.LeaseTimeToLive(pb.LeaseTimeToLiveRequest(ID=lease, keys=keys), timeout=self.timeout)

    def leases(self):
        return {s.ID for s in self.lease.LeaseLeases(pb.LeaseLeasesRequest(), timeout=self.timeout).leases}

    def keep_alive(self, *leases, timeout=None):
        """The TTLs that one stream answers for these leases."""
        requests = iter([pb.LeaseKeepAliveRequest(ID=i) for i in leases])
        return [r.TTL for r in self.lease.LeaseKeepAlive(requests, timeout=timeout or self.timeout)]

    def status(self):
        return self.maintenance.Status(pb.StatusRequest(), timeout=self.timeout)

    def ask_lock(self, name, lease, timeout=60, **fields):
        """A future: the call waits for its turn."""
        return self.lock.Lock.future(lockpb.LockRequest(name=name, lease=lease, **fields), timeout=timeout)

    def take_lock(self, name, lease, timeout=None, **fields):
        return self.lock.Lock(lockpb.LockRequest(name=name, lease=lease, **fields), timeout=timeout or self.timeout)

    def unlock(self, key, **fields):
        return self.lock.Unlock(lockpb.UnlockRequest(key=key, **fields), timeout=self.timeout)

    def queue(self, name):
        """The contenders' keys, by their place in the queue."""
        return self.range(**prefix(name + b"/"), sort_order=1, sort_target=2).kvs


class KeepAliveStream:
    """A LeaseKeepAlive stream held open: send(lease), then reply()."""

    def __init__(self, client, timeout=60):
        self._out = queue.Queue()
        self._call = client.lease.LeaseKeepAlive(iter(self._out.get, None), timeout=timeout)

    def ask(self, lease):
        self._out.put(pb.LeaseKeepAliveRequest(ID=lease))
        return next(self._call)

    def send(self, lease):
        self._out.put(pb.LeaseKeepAliveRequest(ID=lease))

    def receive(self):
        return next(self._call)

    def close(self):
        self._out.put(None)
        self._call.cancel()


@contextlib.contextmanager
def clients(cell, **kwargs):
    cs = [Client(r, **kwargs) for r in cell.replicas]
    try:
        yield cs
    finally:
        for c in cs:
            c.close()


def error_of(call, *args, **kwargs):
    """(code name, text) of the error that the call must end with."""
    try:
        reply = call(*args, **kwargs)
    except grpc.RpcError as e:
        return e.code().name, e.details()
    raise AssertionError(f"no error, but {reply}")


def error_of_future(future, timeout=30):
    return error_of(future.result, timeout)


def insist(call, timeout=30):
    """Repeats a call that may be repeated while the cell is between leaders."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return call()
        except grpc.RpcError as e:
            if e.code() not in RETRY or time.monotonic() > deadline:
                raise
            time.sleep(0.02)


def newest_snapshot(replica):
    """Its index; 0: there is none."""
    return max((int(p.name.split("-")[1]) for p in replica.data_dir.glob("snap-*") if "." not in p.name), default=0)


def wait_queue(client, name, length, timeout=15):
    """Waits until a lock has that many contenders; returns their keys in order."""
    def probe():
        kvs = client.queue(name)
        return [kvs] if len(kvs) == length else None
    try:
        return cells.wait_for("", probe, timeout)[0]
    except TimeoutError:
        raise AssertionError(f"lock {name!r} has {len(client.queue(name))} contenders, not {length}, after {timeout} s") from None


def stays(what, probe, seconds):
    """probe() stays true for a while: for what must not happen. Needs a time, since nothing announces it."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        assert probe(), what
        time.sleep(0.05)


class KeepingAlive:
    """Keeps leases alive from a thread, over all replicas in turn, passing over those that do not answer."""

    def __init__(self, cell, leases, every):
        self.lost = []
        self.renewed = 0
        self._leases, self._every = list(leases), every
        self._clients = [Client(r, timeout=2) for r in cell.replicas]
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._end.set()
        self._thread.join(10)
        for c in self._clients:
            c.close()

    def _run(self):
        at = 0
        while not self._end.wait(self._every):
            for _ in self._clients:
                try:
                    ttls = self._clients[at].keep_alive(*self._leases, timeout=2)
                except grpc.RpcError:
                    at = (at + 1) % len(self._clients)
                    continue
                self.lost += [i for i, t in zip(self._leases, ttls) if t <= 0]
                self.renewed += 1
                break


class Load:
    """Writers over all replicas, and a book of every attempt.

    Each write has a key of its own. An attempt that fails without saying that it was not applied is followed by another one of the
    same key with another value, at the next replica. So afterwards, of each key: its version is the number of attempts that were
    applied (no attempt twice), and what was acknowledged is found at the revision that the acknowledgement named.
    """

    def __init__(self, cell, writers=6, name=b"w", value_size=40):
        self.cell = cell
        self.name = name
        self.writers = writers
        self.acks = {}         # key -> (revision, value) of the attempt that was acknowledged
        self.attempts = {}     # key -> number
        self.errors = {}
        self.longest_gap = 0.0
        self._last_ack = time.monotonic()
        self._filler = b"." * value_size
        self._end = threading.Event()
        self._lock = threading.Lock()
        self._threads = [threading.Thread(target=self._write, args=(i,), daemon=True) for i in range(writers)]

    def __enter__(self):
        for t in self._threads:
            t.start()
        return self

    def __exit__(self, *_):
        self.stop()

    def stop(self):
        self._end.set()
        for t in self._threads:
            t.join(30)
            assert not t.is_alive(), "a writer does not end"

    def acked(self):
        return len(self.acks)

    def wait_more(self, n, timeout=60):
        goal = self.acked() + n
        cells.wait_for(f"{n} more writes", lambda: self.acked() >= goal, timeout)

    def _write(self, writer):
        cs = [Client(r, timeout=3) for r in self.cell.replicas]
        at = writer % len(cs)
        number = 0
        while not self._end.is_set():
            key = b"%s/%d/%06d" % (self.name, writer, number)
            number += 1
            attempt = 0
            while True:
                attempt += 1
                value = b"%d:%s" % (attempt, self._filler)
                with self._lock:
                    self.attempts[key] = attempt
                try:
                    revision = cs[at].put(key, value).header.revision
                except grpc.RpcError as e:
                    if e.code() not in RETRY:
                        raise
                    with self._lock:
                        text = f"{e.code().name} {e.details()}"
                        self.errors[text] = self.errors.get(text, 0) + 1
                    at = (at + 1) % len(cs)
                    if self._end.is_set():
                        break
                    time.sleep(0.01)
                    continue
                now = time.monotonic()
                with self._lock:
                    self.acks[key] = (revision, value)
                    self.longest_gap = max(self.longest_gap, now - self._last_ack)
                    self._last_ack = now
                break
        for c in cs:
            c.close()

    def check(self, client):
        """Every acknowledged write is there, with its revision; none was applied twice. One read, then one per write that was tried again."""
        reply = insist(lambda: client.range(timeout=20, **prefix(self.name + b"/")))
        found = {kv.key: kv for kv in reply.kvs}
        for key, (revision, value) in self.acks.items():
            kv = found.get(key)
            assert kv, f"{key} was acknowledged at revision {revision} and is gone"
            if self.attempts[key] == 1:
                assert (kv.value, kv.mod_revision, kv.create_revision, kv.version) == (value, revision, revision, 1), \
                    f"{key} was acknowledged at revision {revision} and is {kv}"
                continue
            then = insist(lambda k=key, r=revision: client.get(k, revision=r))
            assert then and (then.value, then.mod_revision) == (value, revision), \
                f"{key}: acknowledged {value} at revision {revision}, there now: {then}"
        for key, kv in found.items():
            assert kv.version <= self.attempts[key], f"{key} was tried {self.attempts[key]} times and written {kv.version} times"
        # Whatever was applied is one revision each, and each acknowledgement named one of its own.
        revisions = [r for r, _ in self.acks.values()]
        assert len(set(revisions)) == len(revisions), "two writes were acknowledged with one revision"
        return len(self.acks)


def same_everywhere(cell, replicas=None, timeout=30):
    """Waits until all replicas have applied the same, and compares all that they hold, each asked for its own copy."""
    cs = [Client(r) for r in replicas or cell.replicas]
    try:
        def contents():
            replies = [insist(lambda c=c: c.range(**EVERYTHING, serializable=True)) for c in cs]
            if len({r.header.revision for r in replies}) != 1:
                return None
            return [(r.header.revision, [kv.SerializeToString(deterministic=True) for kv in r.kvs]) for r in replies]
        found = cells.wait_for("all replicas have the same revision", contents, timeout)
        for r, (revision, kvs) in zip(replicas or cell.replicas, found):
            assert kvs == found[0][1], f"at revision {revision} {r.name} holds other keys or values than {cell.replicas[0].name}"
        return found[0][0]
    finally:
        for c in cs:
            c.close()


def descriptors(replica):
    return len(os.listdir(f"/proc/{replica.process.pid}/fd"))


def alive(replica):
    """The same process as ever still serves."""
    assert replica.running(), f"{replica.name} ended with status {replica.process.returncode}:\n{replica.log_tail()}"
    with Client(replica) as c:
        insist(lambda: c.put(b"alive", b"yes"))
        assert insist(lambda: c.get(b"alive")).value == b"yes"


def varint(n):
    out = bytearray()
    while n > 0x7f:
        out.append(n & 0x7f | 0x80)
        n >>= 7
    return bytes(out + bytes([n]))


def field(number, payload):
    """A length-delimited protobuf field."""
    return varint(number << 3 | 2) + varint(len(payload)) + payload


def raw_call(client, method, payload, timeout=10):
    """Sends bytes as they are. Returns (code name, text), or ("OK", reply bytes)."""
    call = client.channel.unary_unary(method, request_serializer=lambda b: b, response_deserializer=lambda b: b)
    try:
        return "OK", call(payload, timeout=timeout)
    except grpc.RpcError as e:
        return e.code().name, e.details()
