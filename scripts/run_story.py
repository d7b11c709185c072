"""run_story.py: the main job of a lock service, told and checked step by step. Any step that does not hold ends it with status 1."""
import argparse
import contextlib
import pathlib
import queue
import signal
import subprocess
import sys
import threading
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tests" / "lib"))
import cells  # noqa: E402

LEASE_TTL = 5  # seconds

began = time.monotonic()


def tell(text):
    print(f"{time.monotonic() - began:7.2f} s  {text}", flush=True)


def demand(condition, reason):
    if not condition:
        raise AssertionError(reason)


# ---- a contender: a process of its own, so that it can be killed -----------------------------------------------------------

def contender_main(endpoints, name):
    """Opens a session, keeps it alive, takes the lock, says what happens on stdout, a line each."""
    cells.stubs()
    import grpc
    from etcd import rpc_pb2, rpc_pb2_grpc, v3lock_pb2, v3lock_pb2_grpc

    def say(*words):
        print(*words, flush=True)

    channels = [grpc.insecure_channel(e) for e in endpoints.split(",")]

    def anywhere(call):
        """Any replica serves any request; one that is dead is passed over. Only for calls that may be sent twice."""
        deadline = time.monotonic() + 10
        while True:
            for ch in channels:
                try:
                    return call(ch)
                except grpc.RpcError as e:
                    if e.code() != grpc.StatusCode.UNAVAILABLE or time.monotonic() > deadline:
                        raise

    lease = anywhere(lambda ch: rpc_pb2_grpc.LeaseStub(ch).LeaseGrant(rpc_pb2.LeaseGrantRequest(TTL=LEASE_TTL), timeout=3)).ID
    say("session", lease)

    def keep_alive():
        while True:
            try:
                reply = anywhere(lambda ch: next(rpc_pb2_grpc.LeaseStub(ch).LeaseKeepAlive(
                    iter([rpc_pb2.LeaseKeepAliveRequest(ID=lease)]), timeout=2)))
                say("alive" if reply.TTL > 0 else "lost", reply.TTL)
            except grpc.RpcError as e:
                say("unsure", e.code().name)
            time.sleep(LEASE_TTL / 5)

    threading.Thread(target=keep_alive, daemon=True).start()
    # Asking again with the same lease keeps the place in the queue, so this call may be sent to another replica when one dies.
    while True:
        try:
            reply = anywhere(lambda ch: v3lock_pb2_grpc.LockStub(ch).Lock(v3lock_pb2.LockRequest(name=name.encode(), lease=lease)))
            break
        except grpc.RpcError as e:
            if e.code() not in (grpc.StatusCode.UNAVAILABLE,):
                say("refused", e.code().name, e.details())
                return
    say("locked", reply.fencing_token, reply.key.decode())
    signal.pause()


class Contender:
    def __init__(self, cell, who, endpoints=None):
        self.who = who
        self.lines = queue.Queue()
        self.last = {}
        self.process = cells.spawn([sys.executable, __file__, "--contender", endpoints or cell.endpoints, "db"],
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            word, _, rest = line.strip().partition(" ")
            self.last[word] = (rest, time.monotonic())
            self.lines.put(word)

    def wait(self, word, timeout):
        cells.wait_for(f"{self.who} is '{word}'", lambda: word in self.last, timeout)
        return self.last[word][0]

    def fresh(self, word, timeout):
        """Waits for the word to be said anew, from now on."""
        now = time.monotonic()
        cells.wait_for(f"{self.who} is '{word}' again", lambda: self.last.get(word, ("", 0))[1] > now, timeout)

    def said(self, word):
        return word in self.last

    def kill(self):
        cells.end(self.process)


class Resource:
    """What a lock is there to protect. It remembers the highest token that it has seen and refuses older ones."""

    def __init__(self):
        self.mark = 0
        self.value = None

    def write(self, token, value):
        if token < self.mark:
            return False
        self.mark = token
        self.value = value
        return True


def story(cell):
    resource = Resource()
    tell(f"a cell of five serves: {cell.endpoints}; {cell.leader().name} leads")

    first = Contender(cell, "the first contender")
    lease = first.wait("session", 10)
    first.wait("alive", 5)
    tell(f"the first contender has a session (lease {int(lease):x}, {LEASE_TTL} s) and keeps it alive")

    token = int(first.wait("locked", 5).split()[0])
    demand(resource.write(token, "first"), "the resource refused the first holder")
    tell(f"it holds the lock 'db' with fencing token {token}; the resource takes its write")

    second = Contender(cell, "the second contender")
    second.wait("alive", 10)
    queued = cells.wait_for("the second contender's key in the queue", lambda: len(
        cells.etcdctl(cell.endpoints, "get", "--prefix", "db/", "--keys-only").stdout.split()) == 2, 5)
    demand(queued and not second.said("locked"), "two contenders hold the lock")
    tell("a second contender asks for it and waits (etcdctl sees both keys in the queue)")

    leader = cell.leader()
    leader.kill()
    killed = time.monotonic()
    tell(f"kill -9 of the leader, {leader.name}")
    new_leader = cell.leader()
    up = [r for r in cell.replicas if r.running()]
    put = cells.etcdctl(",".join(r.endpoint for r in up), "put", "proof", "of life")
    demand(put.returncode == 0, f"no write after the leader's death: {put.stderr}")
    tell(f"{new_leader.name} leads; a write went through {time.monotonic() - killed:.2f} s after the kill")
    first.fresh("alive", LEASE_TTL)
    demand(not first.said("lost") and not second.said("locked"), "the lock or the session did not survive the leader")
    tell("the first contender's session is alive, and it still holds the lock")

    other = next(r for r in up if r is not new_leader)
    other.kill()
    tell(f"kill -9 of a second replica, {other.name}")
    up = [r for r in cell.replicas if r.running()]
    get = cells.etcdctl(",".join(r.endpoint for r in up), "get", "proof", "--print-value-only")
    demand(get.stdout.strip() == "of life", f"three of five do not serve: {get.stderr}")
    first.fresh("alive", LEASE_TTL)
    tell("three of five go on: the write is there, the session alive")

    first.kill()
    died = time.monotonic()
    tell("kill -9 of the holder: nobody keeps its session alive any more")
    new_token = int(second.wait("locked", LEASE_TTL + 5).split()[0])
    took = time.monotonic() - died
    demand(took <= LEASE_TTL + 2, f"the lock passed on only after {took:.1f} s")
    demand(new_token > token, f"the token fell from {token} to {new_token}")
    tell(f"the lock passed on after {took:.2f} s (lease {LEASE_TTL} s); the second holder's token is {new_token}, above {token}")

    demand(resource.write(new_token, "second"), "the resource refused the new holder")
    demand(not resource.write(token, "first, late"), "the resource took a write of the dead holder")
    demand(resource.value == "second", "the resource has the wrong value")
    tell(f"the first holder's late write, with token {token}, is refused by the resource")

    for r in cell.replicas:
        if not r.running():
            r.start()
    cell.wait_ready()
    tell("both dead replicas are back and serve")
    second.kill()


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default=str(cells.TOP / "build" / "server" / "holdfastd"))
    parser.add_argument("--once", action="store_true", help="stop the cell at the end")
    parser.add_argument("--contender", nargs=2, metavar=("ENDPOINTS", "NAME"), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.contender:
        contender_main(*args.contender)
        return 0
    cells.stubs()
    with cells.Cell(args.server, 5) as cell:
        try:
            story(cell)
        except (AssertionError, TimeoutError, subprocess.TimeoutExpired) as e:
            tell(f"BROKEN: {e}")
            for r in cell.replicas:
                print(f"--- {r.name}:\n{r.log_tail(8)}", file=sys.stderr)
            return 1
        tell("the story holds")
        if not args.once:
            tell(f"the cell stays up; try: ETCDCTL_API=3 etcdctl --endpoints={cell.endpoints} lock db   (Ctrl-C ends)")
            with contextlib.suppress(KeyboardInterrupt):
                signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
