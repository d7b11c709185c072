"""load.py: the clients of a tortured cell, each a thread that keeps book of all it asked and was told. What is not answered is unknown, never guessed."""
import random
import threading
import time

import cells
from check import UNKNOWN, Hold, Lease, Op, Watched

cells.stubs()
import grpc  # noqa: E402
from etcd import rpc_pb2 as pb, rpc_pb2_grpc, v3lock_pb2 as lockpb, v3lock_pb2_grpc  # noqa: E402

UNSURE = ("UNAVAILABLE", "DEADLINE_EXCEEDED", "CANCELLED", "UNKNOWN", "RESOURCE_EXHAUSTED")
# A connection whose packets are all lost is given up after some seconds, as a client that means it does.
OPTIONS = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 1000), ("grpc.max_reconnect_backoff_ms", 300),
           ("grpc.keepalive_time_ms", 10000), ("grpc.keepalive_timeout_ms", 3000), ("grpc.use_local_subchannel_pool", 1)]
LEARNER = "rpc not supported for learner"
TTL = 4
CALL_S = 3.0
OPS_A_KEY = 120
DELETE = 1  # of an event

now = time.monotonic


class Client(threading.Thread):
    """Talks to one replica until that does not answer, then to another; sometimes goes elsewhere for no reason."""

    def __init__(self, world, number):
        super().__init__(daemon=True)
        self.world, self.number = world, number
        self.rng = random.Random(f"{world.seed}/{type(self).__name__}/{number}")
        self.channels = [grpc.insecure_channel(r.endpoint, OPTIONS) for r in world.cell.replicas]
        self.at = self.rng.randrange(len(self.channels))
        self.answers = []  # (began, ended, revision) of what is linearizable
        self.count = self.unsure = 0

    def run(self):
        try:
            while not self.world.over.is_set():
                self.turn()
        except Exception as e:  # noqa: BLE001: told at the end, fails the run
            self.world.surprise(f"{type(self).__name__} {self.number}: {type(e).__name__}: {e}")

    def turn(self):
        raise NotImplementedError

    def stub(self, kind):
        return kind(self.channels[self.at])

    def elsewhere(self):
        self.at = (self.at + self.rng.randrange(1, len(self.channels))) % len(self.channels) if len(self.channels) > 1 else 0

    def call(self, kind, method, request, timeout=CALL_S, ok=(), **kwargs):
        """(reply or None, error code or None, began, ended). A code that is neither unsure nor in `ok` ends the client with a surprise."""
        if self.rng.random() < 0.02:
            self.elsewhere()
        began = now()
        self.count += 1
        try:
            reply = getattr(self.stub(kind), method)(request, timeout=timeout, **kwargs)
        except grpc.RpcError as e:
            code = e.code().name
            if LEARNER in (e.details() or ""):
                code = "UNAVAILABLE"  # certainly not carried out; to be asked elsewhere
            if code not in UNSURE and code not in ok:
                raise AssertionError(f"{method}: {code} {e.details()}") from None
            if code in UNSURE:
                self.unsure += 1
                self.elsewhere()
                self.world.over.wait(0.02)
            return None, f"{code} {e.details()}", began, now()
        ended = now()
        if hasattr(reply, "header"):
            self.answers.append((began, ended, reply.header.revision))
        return reply, None, began, ended


class Registers(Client):
    """Puts, reads, compares and deletes on a few keys that many share. Every write tells the value before it."""

    def __init__(self, world, number):
        super().__init__(world, number)
        self.ops = []  # (key, Op)
        self.acked = []  # (key, revision, value)
        self.guess = {}
        self.made = 0

    def turn(self):
        self.world.over.wait(self.rng.random() * 0.02)
        key = self.world.register(self.rng)
        kind = self.rng.choices(("put", "get", "cas", "delete"), (4, 5, 3, 1))[0]
        value = f"{self.number}.{self.made}"
        self.made += 1
        getattr(self, kind)(key, value)

    def note(self, key, kind, arg, seen, began, ended):
        self.ops.append((key, Op(kind, arg, seen, began, ended, self.number)))
        if seen is not UNKNOWN:
            self.guess[key] = arg if kind == "put" else seen if kind == "get" else None

    def put(self, key, value):
        reply, _, began, ended = self.call(rpc_pb2_grpc.KVStub, "Put", pb.PutRequest(key=key.encode(), value=value.encode(), prev_kv=True))
        seen = UNKNOWN
        if reply:
            seen = reply.prev_kv.value.decode() if reply.HasField("prev_kv") else None
            self.acked.append((key, reply.header.revision, value))
        self.note(key, "put", value, seen, began, ended)

    def get(self, key, _value):
        reply, _, began, ended = self.call(rpc_pb2_grpc.KVStub, "Range", pb.RangeRequest(key=key.encode()))
        self.note(key, "get", None, (reply.kvs[0].value.decode() if reply.kvs else None) if reply else UNKNOWN, began, ended)

    def cas(self, key, value):
        expected = self.guess.get(key)
        if expected is None:
            return self.get(key, value)
        compare = pb.Compare(key=key.encode(), target=pb.Compare.VALUE, value=expected.encode())
        read = pb.RequestOp(request_range=pb.RangeRequest(key=key.encode()))
        write = pb.RequestOp(request_put=pb.PutRequest(key=key.encode(), value=value.encode()))
        reply, _, began, ended = self.call(rpc_pb2_grpc.KVStub, "Txn", pb.TxnRequest(compare=[compare], success=[read, write], failure=[read]))
        seen = UNKNOWN
        if reply:
            kvs = reply.responses[0].response_range.kvs
            seen = (reply.succeeded, kvs[0].value.decode() if kvs else None)
            if reply.succeeded:
                self.acked.append((key, reply.header.revision, value))
        self.note(key, "cas", (expected, value), seen, began, ended)
        self.guess[key] = value if reply and reply.succeeded else seen[1] if reply else None
        return None

    def delete(self, key, _value):
        reply, _, began, ended = self.call(rpc_pb2_grpc.KVStub, "DeleteRange", pb.DeleteRangeRequest(key=key.encode(), prev_kv=True))
        seen = UNKNOWN
        if reply:
            seen = reply.prev_kvs[0].value.decode() if reply.prev_kvs else None
            if reply.deleted:
                self.acked.append((key, reply.header.revision, None))
        self.note(key, "delete", None, seen, began, ended)


class Session(threading.Thread):
    """A lease and its keep-alives, each with when it was sent and answered. `quiet` holds them back."""

    def __init__(self, client, ttl=TTL):
        super().__init__(daemon=True)
        self.client, self.ttl = client, ttl
        self.id, self.lease = 0, None
        self.quiet = threading.Event()
        self.ended = threading.Event()
        self.at = client.at
        self.start()

    def open(self):
        """A new lease, known to the book from before it is asked for. None: not now."""
        asked = now()
        reply = self.client.call(rpc_pb2_grpc.LeaseStub, "LeaseGrant", pb.LeaseGrantRequest(TTL=self.ttl))[0]
        if not reply:
            return None
        lease = Lease(reply.TTL, asked)
        self.client.world.note_lease(reply.ID, lease)
        self.quiet.clear()
        self.id, self.lease = reply.ID, lease
        return reply.ID

    def close(self):
        self.id = 0

    def sure(self):
        return self.id != 0 and self.lease.sure_until(now()) > now()

    def run(self):
        world, channels = self.client.world, self.client.channels
        while not world.over.wait(self.ttl / 4):
            wanted, lease = self.id, self.lease
            if not wanted or self.quiet.is_set():
                continue
            sent = now()
            try:
                stub = rpc_pb2_grpc.LeaseStub(channels[self.at])
                reply = next(stub.LeaseKeepAlive(iter([pb.LeaseKeepAliveRequest(ID=wanted)]), timeout=self.ttl / 3))
            except (grpc.RpcError, StopIteration):
                self.at = (self.at + 1) % len(channels)
                continue
            lease.renewals.append((sent, now(), reply.TTL))
            if reply.TTL <= 0 and self.id == wanted:
                self.id = 0


class Lockers(Client):
    """Take locks, hold them for a while, give them back; some fall silent with a lock in their hands, some leave without a word."""

    def __init__(self, world, number):
        super().__init__(world, number)
        self.session = Session(self)
        self.holds = []
        self.expired = 0

    def turn(self):
        self.world.over.wait(self.rng.random() * 0.03)
        if not self.session.sure():
            self.session.open()
            return
        name = self.rng.choice(("lock/a", "lock/b", "lock/c", "lock/d"))
        shared = name == "lock/c" and self.rng.random() < 0.7
        request = lockpb.LockRequest(name=name.encode(), lease=self.session.id, mode=lockpb.SHARED if shared else lockpb.EXCLUSIVE)
        if self.rng.random() < 0.3:
            request.wait_ms = self.rng.choice((0, 50, 500))
        # FAILED_PRECONDITION: a try, or another mode is waited for; NOT_FOUND, ABORTED: the lease has ended.
        reply, error, asked, told = self.call(v3lock_pb2_grpc.LockStub, "Lock", request, timeout=self.rng.choice((2, 8)),
                                          ok=("FAILED_PRECONDITION", "NOT_FOUND", "ABORTED"))
        if not reply:
            # It may hold the lock without knowing. Now and then it asks again and learns; else its lease runs out.
            if "lock is held" not in error and "in the time given" not in error and self.rng.random() < 0.5:
                self.session.close()
            return
        hold = Hold(name, reply.lease, reply.fencing_token, asked, told, shared)
        hold.key = bytes(reply.key)
        self.holds.append(hold)
        self.keep(hold)

    def keep(self, hold):
        fate = self.rng.random()
        if fate < 0.015:  # falls silent: the lease runs out, the lock passes on
            self.session.quiet.set()
            self.world.over.wait(TTL * 1.5)
            self.expired += 1
            self.session.close()
            return
        self.world.over.wait(self.rng.random() * 0.02)
        hold.given_back = now()
        if fate < 0.06:  # ends its session, and all it holds with it
            self.session.lease.revoked_at = hold.given_back
            gone, self.session.id = self.session.id, 0
            self.call(rpc_pb2_grpc.LeaseStub, "LeaseRevoke", pb.LeaseRevokeRequest(ID=gone), ok=("NOT_FOUND",))
            return
        self.call(v3lock_pb2_grpc.LockStub, "Unlock", lockpb.UnlockRequest(key=hold.key, fencing_token=hold.token), ok=("FAILED_PRECONDITION",))


class Watchers(Client):
    """Watches everything, from the beginning, over one stream after another, at one replica after another."""

    def __init__(self, world, number):
        super().__init__(world, number)
        self.watched = Watched()
        self.ends = {}  # (key, create_revision) -> when its end was seen
        self.created = {}
        self.next = 2
        self.target = None  # the run's last revision, once it is known

    def run(self):
        try:
            while self.target is None or self.next <= self.target:
                self.turn()
        except Exception as e:  # noqa: BLE001
            self.world.surprise(f"Watchers {self.number}: {type(e).__name__}: {e}")

    def turn(self):
        stop = threading.Event()

        def requests():
            yield pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"\0", range_end=b"\0", start_revision=self.next, prev_kv=True))
            stop.wait()
        # A stream that nobody feeds tells nothing of a replica that is cut off: its time is bounded.
        answers = self.stub(rpc_pb2_grpc.WatchStub).Watch(requests(), timeout=self.rng.uniform(1, 6))
        try:
            for reply in answers:
                self.take(reply)
                if reply.canceled or (self.target is not None and self.next > self.target):
                    break
        except grpc.RpcError as e:
            if e.code().name not in UNSURE and LEARNER not in (e.details() or ""):
                raise AssertionError(f"Watch: {e.code().name} {e.details()}") from None
        finally:
            stop.set()
            answers.cancel()
        self.elsewhere()

    def take(self, reply):
        at = now()
        if reply.canceled:
            assert reply.compact_revision > 0, f"a watch was cancelled: {reply}"
            self.watched.gaps.append((self.next, reply.compact_revision))
            self.next = max(self.next, reply.compact_revision)
            return
        for e in reply.events:
            key, deleted = e.kv.key.decode(), e.type == DELETE
            self.watched.events.append((e.kv.mod_revision, key, None if deleted else e.kv.value.decode()))
            if deleted and e.HasField("prev_kv"):
                self.ends.setdefault((bytes(e.kv.key), e.prev_kv.create_revision), at)
            self.next = e.kv.mod_revision + 1


class Counters(Client):
    """Raises a counter by requests with a session and an ID, each sent again and again, anywhere, until it is answered."""

    def __init__(self, world, number):
        super().__init__(world, number)
        self.session = Session(self, ttl=30)
        self.key = ""
        self.request = self.asked = self.acked = 0
        self.done = []  # (key, acknowledged, asked) of sessions that are over

    def turn(self):
        if not self.session.id:
            self.finish()
            if not self.session.open():
                return
            self.key = f"count/{self.session.id:x}"
        session = self.session.id
        self.request += 1
        self.asked += 1
        metadata = [("holdfast-session", str(session)), ("holdfast-request", str(self.request)), ("holdfast-first-unanswered", str(self.request))]
        while not self.world.over.is_set():
            reply, error, _, _ = self.call(rpc_pb2_grpc.KVStub, "Put", pb.PutRequest(key=self.key.encode(), value=b"%d" % self.request), timeout=1.5,
                                           ok=("NOT_FOUND",), metadata=metadata)
            if reply:
                self.answers.pop()  # told again, it is of the past
                self.acked += 1
                break
            if error.startswith("NOT_FOUND"):
                self.session.close()
                break
        self.world.over.wait(0.01)

    def finish(self):
        if self.asked:
            self.done.append((self.key, self.acked, self.asked))
        self.request = self.asked = self.acked = 0


class World:
    """All clients of a run, and what they share."""

    def __init__(self, cell, seed):
        self.cell, self.seed = cell, seed
        self.over = threading.Event()
        self.leases = {}
        self.surprises = []
        self._lock = threading.Lock()
        self._keys, self._asked = [f"key/{i}" for i in range(3)], 0
        self.registers = [Registers(self, i) for i in range(5)]
        self.lockers = [Lockers(self, i) for i in range(5)]
        self.watchers = [Watchers(self, i) for i in range(3)]
        self.counters = [Counters(self, i) for i in range(2)]
        self.clients = [*self.registers, *self.lockers, *self.watchers, *self.counters]

    def register(self, rng):
        """A key; each is given up for a new one after a while, since the checker looks at whole keys."""
        with self._lock:
            self._asked += 1
            if self._asked % OPS_A_KEY == 0:
                self._keys[self._asked // OPS_A_KEY % len(self._keys)] = f"key/{self._asked // OPS_A_KEY + 2}"
            return rng.choice(self._keys)

    def note_lease(self, lease_id, lease):
        with self._lock:
            self.leases[lease_id] = lease

    def surprise(self, text):
        with self._lock:
            self.surprises.append(text)

    def start(self):
        for c in self.clients:
            c.start()

    def finish(self, timeout=60):
        """Ends the load; the watchers go on until they have seen all."""
        self.over.set()
        for c in self.registers + self.lockers + self.counters:
            c.join(timeout)
            if c.is_alive():
                self.surprise(f"{type(c).__name__} {c.number} hangs")
        for c in self.counters:
            c.finish()

    def finish_watchers(self, revision, timeout=60):
        for w in self.watchers:
            w.target = revision
        for w in self.watchers:
            w.join(timeout)
            if w.is_alive():
                self.surprise(f"P7: watcher {w.number} has not got beyond revision {w.next} of {revision}")
