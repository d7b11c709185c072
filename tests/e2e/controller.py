"""controller.py ENDPOINTS ELECTION NAME RESOURCE-PORT: a controller as people write them, through stubs generated from api/proto.

Under TLS, and as a user, when TEST_TLS_CA, _CERT and _KEY, TEST_USER and TEST_PASSWORD say so. controller/controller.go is the same in Go.

Several run; the one that is elected works. It keeps its state, a counter, in a key of the cell, and writes it only under the condition that its
leader key is still the one it won (its create_revision, which is its fencing token too). Each step it also acts on a resource outside, which
sees the token. Nobody else's word is needed for safety: not a clock's, and not its own belief that it leads.

It says what happens, a line each: session, leads TOKEN, step NUMBER, deposed, sees NAME.
"""
import os
import pathlib
import socket
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "lib"))
import cells  # noqa: E402

cells.stubs()
import grpc  # noqa: E402
from etcd import rpc_pb2 as pb, rpc_pb2_grpc, v3election_pb2 as electionpb, v3election_pb2_grpc  # noqa: E402

TTL = 3  # seconds
STATE = b"controller/state"
RETRY = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED)


def say(*words):
    sys.stdout.write(" ".join(map(str, words)) + "\n")  # at once: several threads say something
    sys.stdout.flush()


def channel(endpoint):
    options = [("grpc.max_reconnect_backoff_ms", 300), ("grpc.initial_reconnect_backoff_ms", 100)]
    if "TEST_TLS_CA" not in os.environ:
        return grpc.insecure_channel(endpoint, options)
    files = [pathlib.Path(os.environ[f"TEST_TLS_{name}"]).read_bytes() for name in ("CA", "KEY", "CERT")]
    return grpc.secure_channel(endpoint, grpc.ssl_channel_credentials(*files), options)


class Cell:
    """The replicas; a call goes to the one that answered last, and to the next one when it does not."""

    def __init__(self, endpoints):
        self.channels = [channel(e) for e in endpoints.split(",")]
        self.at = 0
        self.token = ()
        self.user = os.environ.get("TEST_USER")
        if self.user:
            self.log_in()

    def log_in(self):
        request = pb.AuthenticateRequest(name=self.user, password=os.environ["TEST_PASSWORD"])
        self.token = (("token", self.call(rpc_pb2_grpc.AuthStub, "Authenticate", request).token),)

    def call(self, stub, method, request, timeout=2):
        """Repeats until somebody answers: only for what may be repeated."""
        while True:
            at = self.at
            try:
                return getattr(stub(self.channels[at % len(self.channels)]), method)(request, timeout=timeout, metadata=self.token)
            except grpc.RpcError as e:
                if e.code() == grpc.StatusCode.UNAUTHENTICATED and self.user:  # a replica that was restarted knows no tokens
                    self.log_in()
                elif e.code() in RETRY:
                    self.at = at + 1
                    time.sleep(0.02)
                else:
                    raise


class Session:
    def __init__(self, cell):
        self.cell = cell
        self.lease = cell.call(rpc_pb2_grpc.LeaseStub, "LeaseGrant", pb.LeaseGrantRequest(TTL=TTL)).ID
        self.lost = threading.Event()
        threading.Thread(target=self._keep_alive, daemon=True).start()

    def _keep_alive(self):
        while not self.lost.wait(TTL / 6):
            for ch in self.cell.channels:
                try:
                    call = rpc_pb2_grpc.LeaseStub(ch).LeaseKeepAlive(iter([pb.LeaseKeepAliveRequest(ID=self.lease)]), timeout=TTL / 3, metadata=self.cell.token)
                    if next(call).TTL <= 0:
                        self.lost.set()
                    break
                except grpc.RpcError:
                    continue


def observe(cell, election):
    """Says who leads, from whichever replica tells; goes to the next one when the stream breaks."""
    last, at = None, 0
    while True:
        try:
            stub = v3election_pb2_grpc.ElectionStub(cell.channels[at % len(cell.channels)])
            for r in stub.Observe(electionpb.LeaderRequest(name=election), metadata=cell.token):
                if (r.kv.create_revision, r.kv.value) != last:
                    last = (r.kv.create_revision, r.kv.value)
                    say("sees", r.kv.value.decode())
        except grpc.RpcError:
            at += 1
            time.sleep(0.02)


def campaign(cell, election, name, session):
    """Asking again with the same lease keeps the place in the queue, so it goes to another replica when one dies."""
    request = electionpb.CampaignRequest(name=election, lease=session.lease, value=name.encode())
    return cell.call(v3election_pb2_grpc.ElectionStub, "Campaign", request, timeout=None)


class Resource:
    """What the controllers control. It refuses a token lower than one that it has seen."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port)).makefile("rw")

    def act(self, token, name, step):
        self.socket.write(f"{token} {name} {step}\n")
        self.socket.flush()
        return self.socket.readline().strip() == "ok"


def read_state(cell):
    kvs = cell.call(rpc_pb2_grpc.KVStub, "Range", pb.RangeRequest(key=STATE)).kvs
    return (int(kvs[0].value.split()[0]), kvs[0].mod_revision) if kvs else (0, 0)


def write_state(cell, leader, name, step, revision):
    """True when it is written. Guarded by the leader key, and by the state's own revision: a write whose answer was lost, and which is repeated, is
    then refused though it was done, so the state is read again."""
    request = pb.TxnRequest(
        compare=[pb.Compare(key=leader.key, target=pb.Compare.CREATE, result=pb.Compare.EQUAL, create_revision=leader.rev),
                 pb.Compare(key=STATE, target=pb.Compare.MOD, result=pb.Compare.EQUAL, mod_revision=revision)],
        success=[pb.RequestOp(request_put=pb.PutRequest(key=STATE, value=f"{step} {leader.rev} {name}".encode()))],
        failure=[pb.RequestOp(request_range=pb.RangeRequest(key=leader.key))])
    reply = cell.call(rpc_pb2_grpc.KVStub, "Txn", request)
    if reply.succeeded:
        return True
    holders = reply.responses[0].response_range.kvs
    return None if holders and holders[0].create_revision == leader.rev else False


def lead(cell, name, resource, won):
    while True:
        step, revision = read_state(cell)
        step += 1
        if not resource.act(won.fencing_token, name, step):
            say("refused", step)
            return
        written = write_state(cell, won.leader, name, step, revision)
        if written is False:
            return
        if written:
            say("step", step)
        time.sleep(0.02)  # the work


def main():
    cell, election, name, resource = Cell(sys.argv[1]), sys.argv[2].encode(), sys.argv[3], Resource(int(sys.argv[4]))
    threading.Thread(target=observe, args=(cell, election), daemon=True).start()
    while True:
        session = Session(cell)
        say("session", format(session.lease, "x"))
        try:
            won = campaign(cell, election, name, session)
        except grpc.RpcError as e:
            say("failed", e.code().name, e.details())
            session.lost.set()
            continue
        say("leads", won.fencing_token)
        lead(cell, name, resource, won)
        say("deposed")
        session.lost.set()


if __name__ == "__main__":
    main()
