"""target.py: one cell that is asked, and stubs for each of its replicas.

The first of several targets is the oracle, stock etcd. Requests go to all at once; to which replica is up to the caller, and the
oracle has one.
"""
import time

import cells

cells.stubs()
import grpc  # noqa: E402
from etcd import rpc_pb2, rpc_pb2_grpc, v3election_pb2_grpc, v3lock_pb2_grpc  # noqa: E402

import compare  # noqa: E402
import json_channel  # noqa: E402

ORACLE = "/usr/bin/etcd"
TIMEOUT_S = 20
EVERYTHING = {"key": b"\0", "range_end": b"\0"}
JSON_PART = 0.4


def channel(rng):
    """Over what a request goes: "grpc" or "json"."""
    return "json" if rng.random() < JSON_PART else "grpc"


class Stubs:
    """One of each service for each replica, over gRPC or JSON."""

    def __init__(self, channels):
        self.kv = [rpc_pb2_grpc.KVStub(c) for c in channels]
        self.lease = [rpc_pb2_grpc.LeaseStub(c) for c in channels]
        self.watch = [rpc_pb2_grpc.WatchStub(c) for c in channels]
        self.cluster = [rpc_pb2_grpc.ClusterStub(c) for c in channels]
        self.maintenance = [rpc_pb2_grpc.MaintenanceStub(c) for c in channels]
        self.auth = [rpc_pb2_grpc.AuthStub(c) for c in channels]
        self.lock = [v3lock_pb2_grpc.LockStub(c) for c in channels]
        self.election = [v3election_pb2_grpc.ElectionStub(c) for c in channels]


class Target:
    def __init__(self, name, server, size, flags=()):
        self.name = name
        self.cell = cells.Cell(server, size, flags=flags)
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.channels = [grpc.insecure_channel(r.endpoint, options) for r in self.cell.replicas]
        self.gateways = [json_channel.JsonChannel(r.endpoint) for r in self.cell.replicas]
        self.grpc, self.json = Stubs(self.channels), Stubs(self.gateways)
        self.kv, self.lease, self.watch = self.grpc.kv, self.grpc.lease, self.grpc.watch
        self.last_asked = self.last_writer = 0
        self.asked_at, self.renewed = 0.0, {}  # of each lease: between which two instants, and the term

    def __str__(self):
        return self.name

    def stubs(self, by, service):
        """by: as channel() says. One for each replica."""
        return getattr(getattr(self, by), service)

    # ---- KV and Lease, by steps ----

    def begin(self, step, rng):
        at = rng.randrange(len(self.channels))
        # A serializable read may be behind, unless it is asked where the last write was carried out.
        if step.method in ("Range", "Txn"):
            if "serializable: true" in str(step.requests[0])[:100000]:
                at = self.last_writer
        self.last_asked, self.asked_at = at, time.monotonic()
        stub = self.stubs(step.by, "lease" if step.method.startswith("Lease") else "kv")[at]
        method = getattr(stub, step.method)
        if step.method == "LeaseKeepAlive":
            return method(iter(step.requests), timeout=TIMEOUT_S)
        return method.future(step.requests[0], timeout=TIMEOUT_S)

    def finish(self, step, call):
        try:
            replies = list(call) if step.method == "LeaseKeepAlive" else [call.result()]
        except grpc.RpcError as e:
            return compare.Outcome(e.code().name, e.details(), [])
        if step.method in ("Put", "DeleteRange", "Txn", "Compact", "LeaseRevoke"):
            self.last_writer = self.last_asked
        return compare.Outcome("OK", "", replies, self._age(step, replies))

    def _age(self, step, replies):
        """Of the lease that a step asks for; one that grants or renews leases is remembered."""
        now = time.monotonic()
        if step.method in ("LeaseGrant", "LeaseKeepAlive"):
            self.renewed.update((r.ID, (self.asked_at, now, r.header.raft_term)) for r in replies if r.TTL > 0)
        if step.method != "LeaseTimeToLive" or step.requests[0].ID not in self.renewed:
            return None
        begun, done, term = self.renewed[step.requests[0].ID]
        # A new leader gives every lease its whole time anew.
        return self.asked_at - done if replies[0].header.raft_term == term else 0, now - begun

    def revoke(self, lease):
        self.lease[0].LeaseRevoke(rpc_pb2.LeaseRevokeRequest(ID=lease), timeout=TIMEOUT_S)

    # ---- all ----

    def everything(self, at=0):
        """All keys, as of now."""
        return self.kv[at].Range(rpc_pb2.RangeRequest(**EVERYTHING), timeout=TIMEOUT_S)

    def catch_up(self, at):
        """Has a replica apply whatever was answered anywhere so far."""
        self.kv[at].Range(rpc_pb2.RangeRequest(key=b"\0", count_only=True), timeout=TIMEOUT_S)

    def must_run(self, what):
        for r in self.cell.replicas:
            if not r.running():
                raise RuntimeError(f"{self.name} did not survive {what}:\n{r.log_tail()}")

    def close(self):
        for c in self.channels + self.gateways:
            c.close()
        self.cell.close()


def outcome(call):
    """Waits for a call of one reply."""
    try:
        return compare.Outcome("OK", "", [call.result()])
    except grpc.FutureCancelledError:
        return compare.Outcome("CANCELLED", "", [])
    except grpc.RpcError as e:
        return compare.Outcome(e.code().name, e.details(), [])


def open_all(server, flags=()):
    """The oracle, and cells of one and of three of the server under test."""
    targets = []
    try:
        targets.append(Target("etcd", ORACLE, 1, flags))
        targets.append(Target("holdfast of 1", server, 1, flags))
        if server != ORACLE:  # three stock replicas part from one another: 3.4 applies some failing transactions on some of them
            targets.append(Target("holdfast of 3", server, 3, flags))
    except BaseException:
        close_all(targets)
        raise
    return targets


def close_all(targets):
    for t in targets:
        t.close()
