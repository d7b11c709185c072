"""faults.py: what is done to a tortured cell. Every fault begins, lasts for a while, and is taken back; then comes a calm in which the cell has to serve."""
import random
import threading
import time

import cells
import load
import members
from etcd import rpc_pb2 as pb, rpc_pb2_grpc
from load import grpc

SERVE_S = 15  # within it a cell at peace has to take a write


class Faults(threading.Thread):
    def __init__(self, world, seed, seconds):
        super().__init__(daemon=True)
        self.world, self.cell = world, world.cell
        self.rng = random.Random(f"{seed}/faults")
        self.ends = time.monotonic() + seconds
        self.done = {}
        self.failure = None
        self.slowest = 0.0
        self.kinds = [self.kill_one, self.kill_two, self.kill_all, self.stop_leader, self.stop_two, self.isolate_leader, self.isolate_two, self.split, self.one_way,
                      self.ring, self.slow, self.lossy, self.compact, self.transfer, self.kill_in_a_split, self.replace]

    def run(self):
        began = time.monotonic()
        kinds = []
        try:
            while time.monotonic() < self.ends:
                kinds = kinds or self.rng.sample(self.kinds, len(self.kinds))
                kind = kinds.pop()
                print(f"{time.monotonic() - began:6.1f} s {kind.__name__}", flush=True)
                kind()
                self.done[kind.__name__] = self.done.get(kind.__name__, 0) + 1
                self.mend()
        except Exception as e:  # noqa: BLE001
            self.failure = f"{type(e).__name__}: {e}"

    def mend(self):
        """Everything back, then a write at every replica that is a member."""
        self.cell.network.heal()
        for r in self.cell.replicas:
            if r.running():
                r.resume()
            else:
                r.start()
        began = time.monotonic()
        for r in self.cell.replicas:
            self.serves(r, began + SERVE_S)
        self.slowest = max(self.slowest, time.monotonic() - began)
        self.sleep(0.3, 1)

    def serves(self, replica, deadline):
        with grpc.insecure_channel(replica.endpoint, load.OPTIONS) as channel:
            while True:
                if not replica.running():
                    raise AssertionError(f"{replica.name} ended by itself:\n{replica.log_tail()}")
                try:
                    rpc_pb2_grpc.KVStub(channel).Put(pb.PutRequest(key=b"serves", value=replica.name.encode()), timeout=2)
                    return
                except grpc.RpcError as e:
                    if time.monotonic() > deadline:
                        raise AssertionError(f"{replica.name} does not serve {SERVE_S} s after the faults: {e.code().name} {e.details()}\n{replica.log_tail()}") from None
                    time.sleep(0.1)

    def sleep(self, least, most):
        self.world.over.wait(self.rng.uniform(least, most))

    def some(self, n):
        return self.rng.sample(self.cell.replicas, n)

    def leader(self):
        return self.cell.leader(timeout=SERVE_S)

    def minority(self):
        return (len(self.cell.replicas) - 1) // 2

    # ---- processes ----

    def kill_one(self):
        (self.leader() if self.rng.random() < 0.7 else self.some(1)[0]).kill()
        self.sleep(0.2, 2.5)

    def kill_two(self):
        for r in self.some(self.minority()):
            r.kill()
            self.sleep(0, 0.5)
        self.sleep(0.2, 2.5)

    def kill_all(self):
        for r in self.cell.replicas:
            r.process.kill()
        for r in self.cell.replicas:
            r.kill()

    def stop_leader(self):
        self.leader().pause()
        self.sleep(load.TTL, load.TTL + 2)

    def stop_two(self):
        for r in self.some(self.minority()):
            r.pause()
        self.sleep(1, load.TTL + 1)

    # ---- the network ----

    def cut_between(self, some):
        for a in some:
            for b in self.cell.replicas:
                if b not in some:
                    self.cell.network.cut(a, b)
                    self.cell.network.cut(b, a)

    def isolate_leader(self):
        self.cut_between([self.leader()])
        self.sleep(1, load.TTL + 2)

    def isolate_two(self):
        for r in self.some(self.minority()):
            self.cut_between([r])
        self.sleep(1, 3)

    def split(self):
        """The minority, with the leader in it if it so happens, sees itself."""
        self.cut_between(self.some(self.minority()))
        self.sleep(1, load.TTL + 1)

    def one_way(self):
        """Some hear and are not heard, or the other way round."""
        for r in {self.leader(), *self.some(1)}:
            deaf = self.rng.random() < 0.5
            for other in self.cell.replicas:
                if other is not r:
                    self.cell.network.cut(*((other, r) if deaf else (r, other)))
        self.sleep(1, 4)

    def ring(self):
        """Each sees its two neighbours alone."""
        n = len(self.cell.replicas)
        for i, a in enumerate(self.cell.replicas):
            for j, b in enumerate(self.cell.replicas):
                if i != j and (i - j) % n not in (1, n - 1):
                    self.cell.network.cut(a, b)
        self.sleep(1, 3)

    def links(self):
        return [(a, b) for a in self.cell.replicas for b in self.cell.replicas if a is not b]

    def slow(self):
        for a, b in self.links():
            if self.rng.random() < 0.5:
                self.cell.network.slow(a, b, self.rng.choice((5, 50, 300)), self.rng.choice((0, 5, 50)))
        self.sleep(1, 4)

    def lossy(self):
        for a, b in self.links():
            self.cell.network.lossy_link(a, b, self.rng.choice((0, 20, 200)), self.rng.choice((0, 50)))
        self.sleep(1, 4)

    # ---- what operators do ----

    def ask(self, stub, method, request, replica=None, timeout=3):
        with grpc.insecure_channel((replica or self.some(1)[0]).endpoint, load.OPTIONS) as channel:
            return getattr(stub(channel), method)(request, timeout=timeout)

    def compact(self):
        try:
            revision = self.ask(rpc_pb2_grpc.KVStub, "Range", pb.RangeRequest(key=b"x")).header.revision
            self.ask(rpc_pb2_grpc.KVStub, "Compact", pb.CompactionRequest(revision=max(1, revision - self.rng.choice((0, 10, 500)))))
        except grpc.RpcError as e:
            assert e.code().name in (*load.UNSURE, "OUT_OF_RANGE"), f"Compact: {e.code().name} {e.details()}"

    def transfer(self):
        for _ in range(self.rng.randrange(1, 4)):
            leader = self.leader()
            to = self.rng.choice([r for r in self.cell.replicas if r is not leader])
            try:
                target = self.ask(rpc_pb2_grpc.MaintenanceStub, "Status", pb.StatusRequest(), to).header.member_id
                self.ask(rpc_pb2_grpc.MaintenanceStub, "MoveLeader", pb.MoveLeaderRequest(targetID=target), leader)
            except grpc.RpcError as e:
                assert e.code().name in (*load.UNSURE, "FAILED_PRECONDITION"), f"MoveLeader: {e.code().name} {e.details()}"
            self.sleep(0.1, 0.5)

    def kill_in_a_split(self):
        """A process dies on the greater side, so that only just a majority is left."""
        some = self.some(self.minority() - 1)
        self.cut_between(some)
        self.sleep(0, 1)
        self.rng.choice([r for r in self.cell.replicas if r not in some]).kill()
        self.sleep(0.5, 2)

    def replace(self):
        """A member's disk is lost; it is removed, and a new one takes its place and its address. In between other things go wrong."""
        members.replace(self)
