"""run_story.py: the main job of a lock service, told and checked step by step. Any step that does not hold ends it with status 1."""
import argparse
import contextlib
import json
import pathlib
import signal
import subprocess
import sys
import threading
import time

TESTS = pathlib.Path(__file__).resolve().parents[1] / "tests"
sys.path[:0] = [str(TESTS / "lib"), str(TESTS / "e2e")]
import cells  # noqa: E402
from clients import Talk, b64, call, curl_talk, etcdctl_talk, unb64  # noqa: E402

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
        sys.stdout.write(" ".join(map(str, words)) + "\n")  # at once: two threads say something
        sys.stdout.flush()

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


class Contender(Talk):
    """The contender as a process of its own."""

    def __init__(self, cell):
        super().__init__([sys.executable, __file__, "--contender", cell.endpoints, "db"])

    def said(self, word):
        return any(line.split()[0] == word for line in self.lines())

    def word(self, word, timeout):
        """Awaits the word and returns what follows it."""
        return self.expect(f"^{word} ?(.*)", timeout)[1]

    def alive_again(self):
        """Awaits an answer to a keep-alive that comes from now on."""
        n = sum(line.startswith("alive") for line in self.lines())
        cells.wait_for("the session is alive", lambda: sum(line.startswith("alive") for line in self.lines()) > n, LEASE_TTL)


class Renewing:
    """Keeps the lease of a curl alive, by curl, until it is left."""

    def __init__(self, replica, ttl=LEASE_TTL):
        self.replica, self.lease = replica, call(replica, "/lease/grant", {"TTL": ttl})["ID"]
        self._end = threading.Event()
        self._every = ttl / 3
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while not self._end.wait(self._every):
            call(self.replica, "/lease/keepalive", {"ID": self.lease})

    def stop(self):
        self._end.set()


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


def queue_of(replica, name):
    """The keys of those who hold and wait, in order, by curl."""
    kvs = call(replica, "/kv/range", {"key": b64(name + "/"), "range_end": b64(name + "0"), "sort_target": "CREATE"}).get("kvs", [])
    return [unb64(kv["key"]) for kv in kvs]


def wait_queue(replica, name, length):
    def probe():
        keys = queue_of(replica, name)
        return keys if len(keys) == length else None
    return cells.wait_for(f"{length} contenders for '{name}'", probe, 10)


def sees_end(watch, key):
    """The next end of a hold that the watch tells is this one."""
    demand(watch.expect("^DELETE$") and watch.expect("").string == key, f"the watch did not see {key} go")


def lock_story(cell, resource, survivor):
    """survivor: a replica that no part of the story kills; curl talks to it."""
    watch = etcdctl_talk(cell, "watch", "--prefix", "db/", "--rev=1")
    first = Contender(cell)
    lease = first.word("session", 10)
    token, key = first.word("locked", 10).split()
    demand(resource.write(int(token), "first"), "the resource refused the first holder")
    watch.expect(key)
    tell(f"the first contender, by gRPC, has a session (lease {int(lease):x}, {LEASE_TTL} s) and the lock 'db' with fencing token {token}")

    second = etcdctl_talk(cell, "lock", "db", f"--ttl={LEASE_TTL}")
    keys = wait_queue(survivor, "db", 2)
    renewing = Renewing(survivor)
    third = curl_talk(survivor, "/lock/lock", {"name": b64("db"), "lease": renewing.lease})
    keys = wait_queue(survivor, "db", 3)
    demand(keys[0] == key and not second.lines() and not third.lines(), "two hold the lock")
    tell("a second contender waits for it by 'etcdctl lock', a third one by curl; 'etcdctl watch' looks on")

    leader = cell.leader()
    leader.kill()
    killed = time.monotonic()
    tell(f"kill -9 of the leader, {leader.name}")
    call(survivor, "/kv/put", {"key": b64("proof"), "value": b64("of life")})
    tell(f"a write went through {time.monotonic() - killed:.2f} s after that; {cell.leader().name} leads")
    other = next(r for r in cell.running() if r is not survivor and r is not cell.leader())
    other.kill()
    tell(f"kill -9 of a second replica, {other.name}")
    get = cells.etcdctl(",".join(r.endpoint for r in cell.running()), "get", "proof", "--print-value-only")
    demand(get.stdout.strip() == "of life", f"three of five do not serve: {get.stderr}")
    first.alive_again()
    demand(not first.said("lost") and not second.lines() and not third.lines(), "the lock or the session did not survive")
    tell("three of five go on: the write is there, the session alive, the lock held, the others wait")

    first.kill()
    died = time.monotonic()
    tell("kill -9 of the holder: nobody keeps its session alive any more")
    second_key = second.expect("^db/", LEASE_TTL + 5).string
    took = time.monotonic() - died
    demand(took <= LEASE_TTL + 2, f"the lock passed on only after {took:.1f} s")
    demand(second_key == keys[1] and not third.lines(), "the third came before the second, or with it")
    second_token = int(call(survivor, "/kv/range", {"key": b64(second_key)})["kvs"][0]["create_revision"])
    sees_end(watch, keys[0])
    demand(second_token > int(token), f"the token fell from {token} to {second_token}")
    demand(resource.write(second_token, "second"), "the resource refused the second holder")
    demand(not resource.write(int(token), "first, late") and resource.value == "second", "the resource took a write of the dead holder")
    tell(f"the lock passed on after {took:.2f} s; etcdctl holds it with token {second_token}; a late write with token {token} is refused by the resource")

    second.interrupt()
    held = json.loads(third.expect('"key"').string)
    sees_end(watch, keys[1])
    third_token = int(held["fencing_token"])
    demand(unb64(held["key"]) == keys[2] and third_token > second_token, f"curl was answered {held}")
    demand(resource.write(third_token, "third") and not resource.write(second_token, "second, late"), "the resource mistook the tokens")
    tell(f"etcdctl lets go, and curl is answered: it holds the lock, with fencing token {third_token}")
    call(survivor, "/lock/unlock", {"key": held["key"], "fencing_token": third_token})
    sees_end(watch, keys[2])
    renewing.stop()
    watch.kill()
    tell("it unlocks; the watch has seen every hand-over")


def election_story(cell, survivor):
    observer = curl_talk(survivor, "/election/observe", {"name": b64("job"), "vacancy": True})

    def sees(value):
        told = json.loads(observer.expect("^{").string)["result"]
        got = unb64(told["kv"]["value"]) if "kv" in told else None
        demand(got == value and told.get("vacant", False) == (value is None), f"curl observes {told}")

    sees(None)
    a, b = (call(survivor, "/lease/grant", {"TTL": 60})["ID"] for _ in range(2))
    one = call(survivor, "/election/campaign", {"name": b64("job"), "lease": a, "value": b64("host-a")})
    sees("host-a")
    waiting = curl_talk(survivor, "/election/campaign", {"name": b64("job"), "lease": b, "value": b64("host-b")})
    wait_queue(survivor, "job", 2)
    demand(not waiting.lines(), "two lead")
    call(survivor, "/election/resign", {"leader": one["leader"]})
    two = json.loads(waiting.expect('"leader"').string)
    sees("host-b")
    demand(int(two["fencing_token"]) > int(one["fencing_token"]), "the token of the election fell")
    call(survivor, "/election/resign", {"leader": two["leader"]})
    sees(None)
    observer.kill()
    tell(f"an election by curl: host-a leads (token {one['fencing_token']}) and resigns, host-b leads (token {two['fencing_token']}) and resigns; an observer saw it all")


def story(cell):
    leader = cell.leader()
    tell(f"a cell of five serves: {cell.endpoints}; {leader.name} leads")
    survivor = next(r for r in cell.replicas if r is not leader)
    lock_story(cell, Resource(), survivor)
    election_story(cell, survivor)
    for r in cell.replicas:
        if not r.running():
            r.start()
    cell.wait_ready()
    tell("both dead replicas are back and serve")


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
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever is started in the background ignores it
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
            with contextlib.suppress(KeyboardInterrupt, SystemExit):
                signal.pause()
    return 0


if __name__ == "__main__":
    sys.exit(main())
