"""ways.py: the same calls by gRPC and by the JSON gateway, so that a test is told once and run both ways. Messages are those of the stubs either way."""
import contextlib
import http.client
import json
import threading

import cells
from kit import Client, clients, electionpb, grpc, lockpb, pb, rpc_pb2_grpc, v1, wait_queue
from google.protobuf import json_format

CODES = {c.value[0]: c.name for c in grpc.StatusCode}


class Refused(Exception):
    def __init__(self, code, text, refusal=None):
        super().__init__(f"{code} {text}")
        self.code, self.text, self.refusal = code, text, refusal


class Waiting:
    """A call under way in a thread."""

    def __init__(self, call, stop):
        self._stop, self._result, self._error = stop, None, None
        self._thread = threading.Thread(target=self._run, args=(call,), daemon=True)
        self._thread.start()

    def _run(self, call):
        try:
            self._result = call()
        except Exception as e:  # noqa: BLE001: handed to who asks for the result
            self._error = e

    def done(self):
        return not self._thread.is_alive()

    def granted(self):
        return self.done() and self._error is None

    def result(self, timeout=20):
        self._thread.join(timeout)
        assert not self._thread.is_alive(), f"no answer within {timeout} s"
        if self._error:
            raise self._error
        return self._result

    def cancel(self):
        self._stop()
        self._thread.join(10)


class Grpc:
    name = "grpc"

    def __init__(self, replica):
        self.client = Client(replica)

    def close(self):
        self.client.close()

    def call(self, method, request, timeout=10, metadata=None):
        return self.start(method, request, timeout, metadata).result(timeout + 5)

    def start(self, method, request, timeout=60, metadata=None):
        stub = {"Lock": self.client.lock, "Election": self.client.election, "Locks": self.client.locks, "KV": self.client.kv,
                "Lease": self.client.lease}[method[0]]
        future = getattr(stub, method[1]).future(request, timeout=timeout, metadata=metadata)

        def wait():
            try:
                return future.result(timeout + 5)
            except grpc.RpcError as e:
                refusal, raw = None, dict(e.trailing_metadata() or ()).get("grpc-status-details-bin")
                if raw and b"LockRefusal" in raw:
                    payload = raw[raw.index(b"holdfast.v1.LockRefusal") + len(b"holdfast.v1.LockRefusal"):]
                    refusal = v1.LockRefusal.FromString(payload[2 + (payload[1] >> 7):])
                raise Refused(e.code().name, e.details(), refusal) from None
            except grpc.FutureCancelledError:
                raise Refused("CANCELLED", "by us") from None
        return Waiting(wait, future.cancel)


PATHS = {("Lock", "Lock"): ("lock/lock", lockpb.LockResponse), ("Lock", "Unlock"): ("lock/unlock", lockpb.UnlockResponse),
         ("Election", "Campaign"): ("election/campaign", electionpb.CampaignResponse), ("Election", "Proclaim"): ("election/proclaim", electionpb.ProclaimResponse),
         ("Election", "Leader"): ("election/leader", electionpb.LeaderResponse), ("Election", "Resign"): ("election/resign", electionpb.ResignResponse),
         ("Locks", "List"): ("holdfast/locks/list", v1.LocksListResponse), ("Locks", "Verify"): ("holdfast/locks/verify", v1.LocksVerifyResponse),
         ("Locks", "BreakHold"): ("holdfast/locks/break", v1.LocksBreakResponse), ("KV", "Put"): ("kv/put", pb.PutResponse),
         ("KV", "Txn"): ("kv/txn", pb.TxnResponse), ("KV", "DeleteRange"): ("kv/deleterange", pb.DeleteRangeResponse),
         ("KV", "Compact"): ("kv/compaction", pb.CompactionResponse),
         ("Lease", "LeaseGrant"): ("lease/grant", pb.LeaseGrantResponse), ("Lease", "LeaseRevoke"): ("lease/revoke", pb.LeaseRevokeResponse)}


class Json:
    name = "json"

    def __init__(self, replica):
        self.host, port = replica.endpoint.split(":")
        self.port = int(port)

    def close(self):
        pass

    def call(self, method, request, timeout=10, metadata=None):
        return self.start(method, request, timeout, metadata).result(timeout + 5)

    def start(self, method, request, timeout=60, metadata=None):
        path, reply = PATHS[method]
        body = json_format.MessageToJson(request, preserving_proto_field_name=True)
        headers = {f"Grpc-Metadata-{k}": v for k, v in metadata or ()}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=timeout)
        stopped = threading.Event()

        def ask():
            try:
                connection.connect()
                if stopped.is_set():
                    raise OSError("by us")
                connection.request("POST", f"/v3/{path}", body, headers)
                r = connection.getresponse()
                text = r.read().decode()
            except (OSError, http.client.HTTPException, AttributeError) as e:
                raise Refused("UNAVAILABLE", f"{type(e).__name__}: {e}") from None
            finally:
                connection.close()
            if r.status != 200:
                error = json.loads(text)
                refusal = None
                for d in error.get("details", ()):
                    d.pop("@type", None)
                    refusal = json_format.ParseDict(d, v1.LockRefusal(), ignore_unknown_fields=True)
                raise Refused(CODES[error["code"]], error.get("message") or error.get("error"), refusal)
            return json_format.Parse(text, reply(), ignore_unknown_fields=True)

        def stop():
            stopped.set()
            with contextlib.suppress(OSError, AttributeError):
                connection.sock.shutdown(2)
        return Waiting(ask, stop)


    def stream(self, path, request, reply):
        """Yields what comes, for 20 s at most."""
        connection = http.client.HTTPConnection(self.host, self.port, timeout=20)
        connection.request("POST", f"/v3/{path}", json_format.MessageToJson(request, preserving_proto_field_name=True))
        r = connection.getresponse()
        while line := r.readline():
            yield json_format.ParseDict(json.loads(line)["result"], reply(), ignore_unknown_fields=True)


class Way:
    """Verbs over either."""

    def __init__(self, replica, kind):
        self.wire = kind(replica)
        self.name = kind.name

    def close(self):
        self.wire.close()

    def lock(self, name, lease, timeout=10, metadata=None, **fields):
        return self.wire.call(("Lock", "Lock"), lockpb.LockRequest(name=name, lease=lease, **fields), timeout, metadata)

    def ask_lock(self, name, lease, timeout=60, metadata=None, **fields):
        return self.wire.start(("Lock", "Lock"), lockpb.LockRequest(name=name, lease=lease, **fields), timeout, metadata)

    def unlock(self, key, metadata=None, **fields):
        return self.wire.call(("Lock", "Unlock"), lockpb.UnlockRequest(key=key, **fields), metadata=metadata)

    def verify(self, name, token):
        return self.wire.call(("Locks", "Verify"), v1.LocksVerifyRequest(name=name, fencing_token=token)).current

    def ask_verify(self, name, token, timeout=30):
        return self.wire.start(("Locks", "Verify"), v1.LocksVerifyRequest(name=name, fencing_token=token), timeout)

    def list(self, **fields):
        return self.wire.call(("Locks", "List"), v1.LocksListRequest(**fields))

    def places(self, prefix):
        return [p for q in self.list(prefix=prefix).locks for p in q.places]

    def break_hold(self, metadata=None, **fields):
        return self.wire.call(("Locks", "BreakHold"), v1.LocksBreakRequest(**fields), metadata=metadata)

    def put(self, key, value=b"", metadata=None, **fields):
        return self.wire.call(("KV", "Put"), pb.PutRequest(key=key, value=value, **fields), metadata=metadata)

    def delete(self, key, metadata=None):
        return self.wire.call(("KV", "DeleteRange"), pb.DeleteRangeRequest(key=key), metadata=metadata)

    def compact(self, revision, metadata=None):
        return self.wire.call(("KV", "Compact"), pb.CompactionRequest(revision=revision), metadata=metadata)

    def grant(self, ttl, metadata=None):
        return self.wire.call(("Lease", "LeaseGrant"), pb.LeaseGrantRequest(TTL=ttl), metadata=metadata)

    def revoke(self, lease, metadata=None):
        return self.wire.call(("Lease", "LeaseRevoke"), pb.LeaseRevokeRequest(ID=lease), metadata=metadata)

    def txn(self, *puts, metadata=None):
        return self.wire.call(("KV", "Txn"), pb.TxnRequest(success=[pb.RequestOp(request_put=p) for p in puts]), metadata=metadata)

    def campaign(self, name, lease, value=b"", timeout=10, metadata=None, **fields):
        return self.wire.call(("Election", "Campaign"), electionpb.CampaignRequest(name=name, lease=lease, value=value, **fields), timeout, metadata)

    def ask_campaign(self, name, lease, value=b"", timeout=60, metadata=None, **fields):
        return self.wire.start(("Election", "Campaign"), electionpb.CampaignRequest(name=name, lease=lease, value=value, **fields), timeout, metadata)

    def proclaim(self, leader, value, metadata=None):
        return self.wire.call(("Election", "Proclaim"), electionpb.ProclaimRequest(leader=leader, value=value), metadata=metadata)

    def resign(self, leader, metadata=None):
        return self.wire.call(("Election", "Resign"), electionpb.ResignRequest(leader=leader), metadata=metadata)

    def leader(self, name):
        return self.wire.call(("Election", "Leader"), electionpb.LeaderRequest(name=name))

    def observe(self, name, vacancy=True):
        """Yields LeaderResponses for 20 s at most."""
        request = electionpb.LeaderRequest(name=name, vacancy=vacancy)
        if self.name == "grpc":
            return iter(self.wire.client.election.Observe(request, timeout=20))
        return self.wire.stream("election/observe", request, electionpb.LeaderResponse)

    def watch(self, key, end, ready):
        """Yields the events of [key, end), from when ready() is called."""
        request = pb.WatchRequest(create_request=pb.WatchCreateRequest(key=key, range_end=end))
        if self.name == "grpc":
            replies = rpc_pb2_grpc.WatchStub(self.wire.client.channel).Watch(iter([request]), timeout=20)
        else:
            replies = self.wire.stream("watch", request, pb.WatchResponse)
        assert next(replies).created
        ready()
        for reply in replies:
            yield from reply.events


def named(session, request, first_unanswered=0):
    """Metadata of a call that is to be carried out once."""
    m = [("holdfast-session", str(session)), ("holdfast-request", str(request))]
    return m + [("holdfast-first-unanswered", str(first_unanswered))] if first_unanswered else m


def refused(call, *args, **kwargs):
    """The Refused that a call must end with; also of a Waiting."""
    try:
        reply = call(*args, **kwargs)
    except Refused as e:
        return e
    raise AssertionError(f"no error, but {reply}")


@contextlib.contextmanager
def all_ways(replicas, kinds=(Grpc, Json)):
    """A Way a wire and replica: first all replicas by the first wire."""
    ways = [Way(r, kind) for kind in kinds for r in replicas]
    try:
        yield ways
    finally:
        for w in ways:
            w.close()


def line_up(ways, cs, name, leases):
    """The first lease holds the lock, the others wait for it in that order, each at another replica: what the first was told, and a Waiting each."""
    held, waiting = ways[0].lock(name, leases[0]), []
    for n, lease in enumerate(leases[1:], 2):
        waiting.append(ways[(n - 1) % len(ways)].ask_lock(name, lease))
        wait_queue(cs[0], name, n)
    return held, *waiting


def both_ways(test_body):
    """Runs a test's body for each wire on one cell of three: body(ways, cs, cell, tag): a Way and a Client a replica, and bytes to begin names with."""
    def run(server):
        with cells.Cell(server, 3) as cell, clients(cell) as cs:
            for kind in (Grpc, Json):
                with all_ways(cell.replicas, (kind,)) as ways:
                    print(f"by {kind.name}")
                    test_body(ways, cs, cell, kind.name.encode() + b"/")
    return run
