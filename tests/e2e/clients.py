"""clients.py: other people's clients as processes that can be listened to, and a few calls of our own to look from beside.

A client's output is read by a thread, line by line, so that a test awaits what a client says instead of sleeping. Clients in Go and
Node are built once, in build/e2e, whoever needs them first.
"""
import base64
import contextlib
import fcntl
import json
import os
import pathlib
import re
import select
import shutil
import signal
import subprocess
import threading
import time

import cells

cells.stubs()
import grpc  # noqa: E402
from etcd import rpc_pb2 as pb, rpc_pb2_grpc, v3election_pb2 as electionpb, v3election_pb2_grpc, v3lock_pb2 as lockpb, v3lock_pb2_grpc  # noqa: E402

HERE = pathlib.Path(__file__).resolve().parent
BUILT = cells.TOP / "build" / "e2e"
GO_STUBS = BUILT / "go-stubs"
PYTHON = "/usr/bin/python3"  # Debian's, which sees Debian's modules

# The shortest back-off is also the longest that a connection may take, so it is not short.
OPTIONS = [("grpc.initial_reconnect_backoff_ms", 100), ("grpc.min_reconnect_backoff_ms", 5000), ("grpc.max_reconnect_backoff_ms", 300),
           ("grpc.use_local_subchannel_pool", 1), ("grpc.max_receive_message_length", -1)]


STARTING = 30  # seconds until a client says its first word: an interpreter with all its libraries, on a busy machine


# ---- processes ---------------------------------------------------------------------------------------------------------------

class Talk:
    """A child whose lines are awaited. Standard error is read with standard output."""

    def __init__(self, args, **kwargs):
        self.args = [str(a) for a in args]
        self._lines = []
        self._at = 0
        self._over = False
        self._speaks_since = 0
        self._changed = threading.Condition()
        self.process = self._spawn(**kwargs)
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        if self.process.poll() is None:
            cells.end(self.process)

    def _spawn(self, **kwargs):
        return cells.spawn(self.args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1, errors="replace", **kwargs)

    def _output(self):
        yield from self.process.stdout

    def _read(self):
        for line in self._output():
            with self._changed:
                self._speaks_since = self._speaks_since or time.monotonic()
                self._lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self._over = True
            self._changed.notify_all()

    def lines(self):
        with self._changed:
            return list(self._lines)

    def unread(self):
        """The lines that were not awaited yet."""
        with self._changed:
            return self._lines[self._at:]

    def expect(self, pattern, timeout=10):
        """Awaits a line that matches, passing over others; returns the match."""
        begin = time.monotonic()
        with self._changed:
            while True:
                deadline = max(begin, self._speaks_since) + timeout if self._lines else begin + max(timeout, STARTING)
                while self._at < len(self._lines):
                    self._at += 1
                    found = re.search(pattern, self._lines[self._at - 1])
                    if found:
                        return found
                left = deadline - time.monotonic()
                if self._over or left <= 0:
                    what = "ended" if self._over else f"said nothing of the kind within {timeout:g} s"
                    said = "\n  ".join(self._lines[-15:])
                    raise AssertionError(f"'{' '.join(self.args[:6])}' {what}; awaited /{pattern}/; it said:\n  {said}")
                self._changed.wait(left)

    def collect(self, n, timeout=10):
        """The next n lines, whatever they are."""
        return [self.expect("", timeout).string for _ in range(n)]

    def say(self, text):
        self.process.stdin.write(text + "\n")
        self.process.stdin.flush()

    def close_input(self):
        self.process.stdin.close()

    def wait(self, timeout=15, status=0):
        """Awaits the end, with that status."""
        got = self.process.wait(timeout)
        deadline = time.monotonic() + 5
        with self._changed:
            while not self._over and time.monotonic() < deadline:
                self._changed.wait(0.1)
        assert status is None or got == status, f"'{' '.join(self.args[:6])}' ended with {got}:\n" + "\n".join(self.lines()[-15:])
        return got

    def interrupt(self, timeout=15):
        return cells.end(self.process, signal.SIGINT, timeout)

    def kill(self):
        cells.end(self.process)


class Terminal(Talk):
    """A child in a terminal of its own: what is typed goes to whoever is in its foreground."""

    def _spawn(self, **kwargs):
        self._left = threading.Event()
        self._master, slave = os.openpty()
        try:
            return cells.spawn(["setsid", "--ctty", *self.args], stdin=slave, stdout=slave, stderr=slave, **kwargs)
        finally:
            os.close(slave)

    def _output(self):
        rest = b""
        while not self._left.is_set():
            if not select.select([self._master], [], [], 0.05)[0]:
                continue
            try:
                *whole, rest = (rest + os.read(self._master, 65536)).split(b"\r\n")
            except OSError:  # nobody is left at the other side
                return
            yield from (line.decode(errors="replace") for line in whole)

    def type(self, keys):
        os.write(self._master, keys.encode())

    def hang_up(self):
        """The window is closed."""
        self._left.set()
        self._reader.join()
        os.close(self._master)


def where(target):
    """Endpoints for a cell, a replica, a list of replicas, or text."""
    if isinstance(target, (list, tuple)):
        return ",".join(r.endpoint for r in target)
    return getattr(target, "endpoints", None) or getattr(target, "endpoint", target)


def etcdctl_env():
    return dict(os.environ, ETCDCTL_API="3")


def etcdctl(target, *args, ok=True, **kwargs):
    """What etcdctl prints on standard output; with ok=False (status, standard error)."""
    done = cells.etcdctl(where(target), *args, **kwargs)
    if not ok:
        return done.returncode, done.stderr
    assert done.returncode == 0, f"etcdctl {' '.join(map(str, args))} ended with {done.returncode}: {done.stderr}"
    return done.stdout


def etcdctl_talk(target, *args):
    return Talk(["etcdctl", f"--endpoints={where(target)}", *args], env=etcdctl_env())


def curl(replica, path, body=None, timeout=10):
    """(HTTP status, text) by curl itself."""
    args = ["curl", "-s", "-m", str(timeout), "-w", "\n%{http_code}", replica.url + path]
    if body is not None:
        args += ["-d", body if isinstance(body, str) else json.dumps(body)]
    done = subprocess.run(args, text=True, capture_output=True, timeout=timeout + 5, check=False)
    text, _, status = done.stdout.rpartition("\n")
    assert done.returncode == 0, f"curl {path} ended with {done.returncode}: {done.stderr}"
    return int(status), text


def call(replica, path, body=None, **kwargs):
    """The JSON of an answer that must be one."""
    status, text = curl(replica, "/v3" + path, body or {}, **kwargs)
    assert status == 200, f"{path} {body}: {status} {text}"
    return json.loads(text)


def curl_talk(replica, path, body, *more):
    return Talk(["curl", "-sN", replica.url + "/v3" + path, "-d", body if isinstance(body, str) else json.dumps(body), *more])


def b64(text):
    return base64.b64encode(text if isinstance(text, bytes) else text.encode()).decode()


def unb64(text):
    return base64.b64decode(text).decode()


# ---- looking from beside ---------------------------------------------------------------------------------------------------------

class Eye:
    """A gRPC client of one replica."""

    def __init__(self, replica, timeout=10):
        self.timeout = timeout
        # Of a cell: of its first replica.
        self.channel = getattr(replica, "replicas", [replica])[0].channel(OPTIONS)
        self.kv = rpc_pb2_grpc.KVStub(self.channel)
        self.watch = rpc_pb2_grpc.WatchStub(self.channel)
        self.lease = rpc_pb2_grpc.LeaseStub(self.channel)
        self.lock = v3lock_pb2_grpc.LockStub(self.channel)
        self.election = v3election_pb2_grpc.ElectionStub(self.channel)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.channel.close()

    def put(self, key, value=b"", **fields):
        return self.kv.Put(pb.PutRequest(key=key, value=value, **fields), timeout=self.timeout).header.revision

    def get(self, key, **fields):
        kvs = self.kv.Range(pb.RangeRequest(key=key, **fields), timeout=self.timeout).kvs
        return kvs[0] if kvs else None

    def delete(self, key):
        return self.kv.DeleteRange(pb.DeleteRangeRequest(key=key), timeout=self.timeout)

    def revision(self):
        return self.kv.Range(pb.RangeRequest(key=b"none"), timeout=self.timeout).header.revision

    def compact(self, revision):
        self.kv.Compact(pb.CompactionRequest(revision=revision, physical=True), timeout=self.timeout)

    def grant(self, ttl):
        return self.lease.LeaseGrant(pb.LeaseGrantRequest(TTL=ttl), timeout=self.timeout).ID

    def grant_many(self, ttl, n):
        """Fifty at a time: alone each waits for the disk."""
        leases = []
        while len(leases) < n:
            asked = [self.lease.LeaseGrant.future(pb.LeaseGrantRequest(TTL=ttl), timeout=self.timeout) for _ in range(min(50, n - len(leases)))]
            leases += [a.result().ID for a in asked]
        return leases

    def revoke(self, lease):
        return self.lease.LeaseRevoke(pb.LeaseRevokeRequest(ID=lease), timeout=self.timeout)

    def leases(self):
        return {s.ID for s in self.lease.LeaseLeases(pb.LeaseLeasesRequest(), timeout=self.timeout).leases}

    def queue(self, name):
        """The keys of those who hold or wait, in order."""
        end = name + b"0"  # the byte after '/'
        reply = self.kv.Range(pb.RangeRequest(key=name + b"/", range_end=end, sort_order=1, sort_target=2), timeout=self.timeout)
        return [kv.key for kv in reply.kvs]

    def wait_queue(self, name, length, timeout=10):
        def probe():
            keys = self.queue(name)
            return [keys] if len(keys) == length else None
        try:
            return cells.wait_for("", probe, timeout)[0]
        except TimeoutError:
            raise AssertionError(f"{name!r} has {len(self.queue(name))} contenders, not {length}, after {timeout} s") from None

    def ask_lock(self, name, lease, timeout=60):
        return self.lock.Lock.future(lockpb.LockRequest(name=name, lease=lease), timeout=timeout)

    def campaign(self, name, lease, value=b"", timeout=60):
        return self.election.Campaign.future(electionpb.CampaignRequest(name=name, lease=lease, value=value), timeout=timeout)

    def resign(self, leader):
        return self.election.Resign(electionpb.ResignRequest(leader=leader), timeout=self.timeout)


@contextlib.contextmanager
def eyes(cell):
    with contextlib.ExitStack() as stack:
        yield [stack.enter_context(Eye(r)) for r in cell.replicas]


def insist(f, timeout=20):
    """Repeats a call that may be repeated while the cell is between leaders."""
    deadline = time.monotonic() + timeout
    while True:
        try:
            return f()
        except grpc.RpcError as e:
            if e.code() not in (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED) or time.monotonic() > deadline:
                raise
            time.sleep(0.05)


def error_of(f, *args, **kwargs):
    """(code name, text) of the error that a call must end with."""
    try:
        reply = f(*args, **kwargs)
    except grpc.RpcError as e:
        return e.code().name, e.details()
    raise AssertionError(f"no error, but {reply}")


def metric(replica, name):
    status, text = cells.http(replica.url + "/metrics", context=replica.tls_context())
    assert status == 200, text
    found = re.search(rf"^{name} (\S+)$", text, re.M)
    assert found, f"no metric {name}"
    return float(found[1])


def wait_metric(replica, name, value, timeout=5):
    try:
        cells.wait_for("", lambda: metric(replica, name) == value, timeout)
    except TimeoutError:
        raise AssertionError(f"{name} of {replica.name} is {metric(replica, name)}, not {value}, after {timeout} s") from None


class Stream:
    """A gRPC stream that is read by a thread; what was said is awaited. `send` is for streams of requests."""

    def __init__(self, method, first=None, one=False, timeout=120):
        import queue
        self.replies = []
        self.error = None
        self._at = 0
        self._changed = threading.Condition()
        self._out = queue.Queue()
        if one:
            self.call = method(first, timeout=timeout)
        else:
            if first is not None:
                self._out.put(first)
            self.call = method(iter(self._out.get, None), timeout=timeout)
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._out.put(None)
        self.call.cancel()

    def _read(self):
        try:
            for reply in self.call:
                with self._changed:
                    self.replies.append(reply)
                    self._changed.notify_all()
        except grpc.RpcError as e:
            self.error = e
        with self._changed:
            self.error = self.error or "ended"
            self._changed.notify_all()

    def send(self, request):
        self._out.put(request)

    def half_close(self):
        self._out.put(None)

    def next(self, want=lambda r: True, timeout=10):
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                while self._at < len(self.replies):
                    self._at += 1
                    if want(self.replies[self._at - 1]):
                        return self.replies[self._at - 1]
                left = deadline - time.monotonic()
                assert self.error is None and left > 0, f"awaited a reply for {timeout} s; the stream: {self.error or 'is open'}"
                self._changed.wait(left)

    def wait_end(self, timeout=10):
        with self._changed:
            assert self._changed.wait_for(lambda: self.error is not None, timeout), "the stream does not end"
        return self.error


def watch(eye, key, **fields):
    """A Watch stream with one watch, created."""
    s = Stream(eye.watch.Watch, pb.WatchRequest(create_request=pb.WatchCreateRequest(key=key, **fields)))
    first = s.next()
    assert first.created, first
    return s


def events_until(stream, last, timeout=20):
    """[(mod_revision, type, key, value)] up to and including the event of key `last`."""
    got = []
    while not got or got[-1][2] != last:
        reply = stream.next(lambda r: r.events or r.canceled, timeout)
        assert not reply.canceled, reply
        got += [(e.kv.mod_revision, e.type, e.kv.key, e.kv.value) for e in reply.events]
    return got


# ---- what has to be built ---------------------------------------------------------------------------------------------------------

@contextlib.contextmanager
def _alone(what):
    """One process at a time prepares."""
    BUILT.mkdir(parents=True, exist_ok=True)
    with open(BUILT / f"{what}.lock", "w", encoding="ascii") as f:
        fcntl.flock(f, fcntl.LOCK_EX)
        yield


def _newer(target, sources):
    return target.exists() and all(target.stat().st_mtime >= s.stat().st_mtime for s in sources)


def go_env():
    return dict(os.environ, GO111MODULE="off", GOFLAGS="", GOPATH=f"/usr/share/gocode:{GO_STUBS}", GOCACHE=str(BUILT / "go-cache"), CGO_ENABLED="0")


def _go_stubs():
    """Go packages generated from our protos, `holdfast/PACKAGE` in GO_STUBS."""
    top = cells.TOP / "api" / "proto"
    protos = sorted((top / "etcd").glob("*.proto"))
    stamp = GO_STUBS / "stamp"
    if _newer(stamp, protos):
        return stamp
    packages = {p: re.search(r"^package (\w+);", p.read_text(), re.M)[1] for p in protos}
    where_from = ",".join(f"M{p.relative_to(top)}=holdfast/{package}" for p, package in packages.items())
    for p, package in packages.items():
        out = GO_STUBS / "src" / "holdfast" / package
        out.mkdir(parents=True, exist_ok=True)
        done = subprocess.run(["protoc", f"--proto_path={top}", f"--go_out=plugins=grpc,paths=source_relative,{where_from}:{out}", p], text=True, capture_output=True, check=False)
        assert done.returncode == 0, f"protoc: {done.stderr}"
        for made in (out / "etcd").glob("*.go"):
            made.replace(out / made.name)
    stamp.touch()
    return stamp


def go_build(name, sources, stubs=False):
    """A program in Go against Debian's libraries, clientv3 or our own stubs; built when its sources are newer."""
    target = BUILT / name
    with _alone("go"):
        if stubs:
            sources = [*sources, _go_stubs()]
        if not _newer(target, sources):
            sources = [s for s in sources if s.suffix == ".go"]
            done = subprocess.run(["go", "build", "-o", target, *sources], env=go_env(), text=True, capture_output=True, check=False)
            assert done.returncode == 0, f"go build: {done.stderr}"
            target.touch()
    return target


def go_talk(target, *args):
    return Talk([go_build("go-client", sorted((HERE / "go").glob("*.go"))), where(target), *args])


def controller_talk(language, target, *args):
    """A controller by generated stubs, in Python or in Go."""
    program = [go_build("controller", [HERE / "controller" / "controller.go"], stubs=True)] if language == "go" else [PYTHON, "-u", HERE / "controller.py"]
    return Talk([*program, where(target), *args])


def node_modules():
    """The folder of npm's packages, installed as package-lock.json says."""
    lock = HERE / "node" / "package-lock.json"
    stamp = BUILT / "node" / "stamp"
    with _alone("node"):
        if not _newer(stamp, [lock]):
            (BUILT / "node").mkdir(exist_ok=True)
            for f in ("package.json", "package-lock.json"):
                shutil.copy(HERE / "node" / f, BUILT / "node" / f)
            done = subprocess.run(["npm", "ci", "--ignore-scripts", "--no-audit", "--no-fund"], cwd=BUILT / "node", text=True,
                                  capture_output=True, timeout=150, check=False)
            assert done.returncode == 0, f"npm ci: {done.stderr[-2000:]}"
            stamp.touch()
    return BUILT / "node" / "node_modules"


def node_talk(target, script, *args):
    return Talk(["node", HERE / "node" / script, where(target), *args], env=dict(os.environ, NODE_PATH=str(node_modules()), NODE_NO_WARNINGS="1"))


def python_talk(script, *args):
    """A process of its own: another client's messages have the same names as our stubs'."""
    return Talk([PYTHON, "-u", HERE / "python" / script, *args])
