"""cells.py: cells of real processes for tests and demonstrations.

Ports are free loopback ports, data lies in a temporary directory, and everything that was started is ended, by process ID,
however the caller ends. Python stubs are generated from api/proto into the build directory.
"""
import atexit
import contextlib
import json
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

TOP = pathlib.Path(__file__).resolve().parents[2]
_children = set()


def _end_children():
    for p in list(_children):
        with contextlib.suppress(ProcessLookupError):
            # A stopped process does not hear SIGKILL's siblings; SIGKILL itself always works.
            p.kill()
        p.wait()
        _children.discard(p)


atexit.register(_end_children)
# Ended from outside, end what was started as well.
signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))


def spawn(args, **kwargs):
    """A child that does not outlive this process."""
    p = subprocess.Popen([str(a) for a in args], **kwargs)
    _children.add(p)
    return p


def end(p, sig=signal.SIGKILL, timeout=20):
    """Sends a signal and waits for the end. Returns the exit status."""
    if p.poll() is None:
        p.send_signal(sig)
    p.wait(timeout)
    _children.discard(p)
    return p.returncode


_given_ports = set()


def free_port():
    """A port that nobody listens on; never the same twice. Below the range that outgoing connections are given, so that a
    connection to a replica that is down can neither take its port nor meet itself there."""
    while True:
        port = random.randrange(12000, 32000)
        if port in _given_ports:
            continue
        with socket.socket() as s:
            s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                s.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given_ports.add(port)
        return port


def wait_for(what, probe, timeout=20.0, step=0.02):
    """Polls until probe() gives something true and returns it; fails with `what` otherwise."""
    deadline = time.monotonic() + timeout
    while True:
        value = probe()
        if value:
            return value
        if time.monotonic() > deadline:
            raise TimeoutError(f"{what}: not within {timeout:g} s")
        time.sleep(step)


def http(url, body=None, timeout=5.0, headers=None, context=None):
    """(status, text) of a GET, or of a POST when there is a body (bytes, str or something that JSON can say)."""
    if body is not None and not isinstance(body, (bytes, str)):
        body = json.dumps(body)
    if isinstance(body, str):
        body = body.encode()
    request = urllib.request.Request(url, data=body, headers=headers or {})
    try:
        with urllib.request.urlopen(request, timeout=timeout, context=context) as r:
            return r.status, r.read().decode()
    except urllib.error.HTTPError as e:
        return e.code, e.read().decode()


def stubs(build=None):
    """Generates the Python stubs once and makes them importable (etcd.rpc_pb2, etcd.rpc_pb2_grpc, ...)."""
    out = pathlib.Path(build or TOP / "build") / "python-stubs"
    protos = sorted((TOP / "api" / "proto").glob("*/*.proto"))
    stamp = out / "stamp"
    if not stamp.exists() or any(p.stat().st_mtime > stamp.stat().st_mtime for p in protos):
        out.mkdir(parents=True, exist_ok=True)
        plugin = shutil.which("grpc_python_plugin")
        subprocess.run(["protoc", f"--proto_path={TOP / 'api' / 'proto'}", f"--python_out={out}", f"--grpc_python_out={out}",
                        f"--plugin=protoc-gen-grpc_python={plugin}", *map(str, protos)], check=True)
        # Packages of their own: else an installed one of the same name comes first, wherever it is on the path.
        for folder in {p.parent.name for p in protos}:
            (out / folder / "__init__.py").touch()
        stamp.touch()
    for d in out.iterdir():  # packages of their own, or one of that name that is installed would go before them
        if d.is_dir():
            (d / "__init__.py").touch()
    if str(out) not in sys.path:
        sys.path.insert(0, str(out))


class Replica:
    def __init__(self, cell, number, host="127.0.0.1"):
        self.cell = cell
        self.number = number
        self.name = f"r{number}"
        self.host = host
        self.joins = "new"  # the cell; "existing" for one that was added to it
        self.inside = []  # what its command begins with, such as a way into a network namespace or an environment
        self.client_port = free_port()
        self.peer_port = free_port()
        self.endpoint = f"{host}:{self.client_port}"
        self.tls = getattr(cell, "tls", None)
        scheme = "https" if self.tls else "http"
        self.url = f"{scheme}://{self.endpoint}"
        self.peer_url = f"{scheme}://{host}:{self.peer_port}"
        self.flags = []  # its own, behind those of the cell
        self.data_dir = cell.dir / self.name
        self.log_path = cell.dir / f"{self.name}.log"
        self.health_url = None  # where it is served when not at `url`
        self.process = None

    def channel(self, options=()):
        import grpc
        if not self.tls:
            return grpc.insecure_channel(self.endpoint, options)
        return grpc.secure_channel(self.endpoint, self.tls.channel_credentials(), options)

    def tls_context(self):
        return self.tls.context(self.tls.user) if self.tls else None

    def arguments(self):
        """What the server is started with."""
        cluster = ",".join(f"{r.name}={r.peer_url}" for r in self.cell.replicas)
        return ["--name", self.name, "--data-dir", self.data_dir, "--listen-client-urls", self.url, "--advertise-client-urls", self.url,
                "--listen-peer-urls", f"{'https' if self.tls else 'http'}://{self.host}:{self.peer_port}", "--initial-advertise-peer-urls", self.peer_url,
                "--initial-cluster", cluster, "--initial-cluster-token", self.cell.token, "--initial-cluster-state", self.joins, *self.cell.flags, *self.flags]

    def start(self):
        assert self.process is None or self.process.poll() is not None, f"{self.name} runs already"
        with open(self.log_path, "ab") as log:
            self.process = spawn([*self.inside, self.cell.server, *self.arguments()], stdout=log, stderr=log, stdin=subprocess.DEVNULL)

    def running(self):
        return self.process is not None and self.process.poll() is None

    def healthy(self):
        try:
            status, text = http(self.health_url or self.url + "/health", timeout=1, context=self.tls_context())
        except (OSError, urllib.error.URLError):
            return False
        return status == 200 and '"true"' in text

    def kill(self):
        """kill -9"""
        end(self.process, signal.SIGKILL)

    def stop(self):
        """SIGTERM; the exit status must be 0 within the time."""
        status = end(self.process, signal.SIGTERM)
        assert status == 0, f"{self.name} ended with status {status} after SIGTERM:\n{self.log_tail()}"

    def pause(self):
        """Once it returns no thread of it does anything any more; what it asked of the kernel may still be done."""
        self.process.send_signal(signal.SIGSTOP)
        wait_for(f"{self.name} stands still", self._stands_still, step=0.001)

    def _stands_still(self):
        """The signal is one thread's, whenever that gets a processor: the others go on until then."""
        states = []
        for task in pathlib.Path(f"/proc/{self.process.pid}/task").iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                states.append((task / "stat").read_text(encoding="ascii", errors="replace").rsplit(")", 1)[1].split()[0])
        return "T" in states and all(s in "TD" for s in states)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def rss_mb(self):
        with open(f"/proc/{self.process.pid}/status", encoding="ascii") as f:
            return next(int(line.split()[1]) for line in f if line.startswith("VmRSS")) / 1024

    def log_tail(self, lines=15):
        try:
            return "\n".join(self.log_path.read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""


class Cell:
    """A cell of `size` replicas of `server`, which may be any binary that takes etcd's flags. tls: a pki.Pki with a user; URLs are https:// then."""

    def __init__(self, server, size=1, flags=(), start=True, token="test-cell", relays=False, tls=None):
        self.server = str(server)
        self.token = token
        self.tls = tls
        self.flags = list(flags)
        self._dir = tempfile.TemporaryDirectory(prefix="holdfast-cell-")
        self.dir = pathlib.Path(self._dir.name)
        self.replicas = []
        for i in range(size):
            self.replicas.append(Replica(self, i + 1))
        self.network = None
        if relays:  # see relay.py
            import relay
            self.network = relay.Network(self.replicas)
        if start:
            self.start()

    def __enter__(self):
        return self

    def __exit__(self, kind, *_):
        if kind is not None:
            for r in self.replicas:
                print(f"--- {r.name}:\n{r.log_tail()}", file=sys.stderr)
        self.close()

    def start(self):
        for r in self.replicas:
            r.start()
        self.wait_ready()

    def wait_ready(self, replicas=None, timeout=30):
        for r in replicas or self.replicas:
            def ready(r=r):
                if not r.running():
                    raise AssertionError(f"{r.name} ended with status {r.process.returncode}:\n{r.log_tail()}")
                return r.healthy()
            wait_for(f"{r.name} serves", ready, timeout)

    @property
    def endpoints(self):
        return ",".join(r.endpoint for r in self.replicas)

    def running(self):
        return [r for r in self.replicas if r.running()]

    def leader(self, timeout=10):
        """The replica that its own Status names as the leader."""
        stubs()
        import grpc
        from etcd import rpc_pb2, rpc_pb2_grpc

        def probe():
            for r in self.running():
                try:
                    with r.channel() as ch:
                        s = rpc_pb2_grpc.MaintenanceStub(ch).Status(rpc_pb2.StatusRequest(), timeout=1)
                    if s.leader and s.leader == s.header.member_id:
                        return r
                except grpc.RpcError:
                    continue
            return None
        return wait_for("a leader", probe, timeout)

    def close(self):
        for r in self.replicas:
            if r.running():
                r.process.send_signal(signal.SIGCONT)
                end(r.process)
        if self.network:
            self.network.close()
        self._dir.cleanup()


def etcdctl(endpoints, *args, timeout=20, **kwargs):
    """Runs etcdctl (API 3) and returns the completed process, text captured."""
    env = dict(os.environ, ETCDCTL_API="3")
    return subprocess.run(["etcdctl", f"--endpoints={endpoints}", *map(str, args)], env=env, text=True, capture_output=True,
                          timeout=timeout, check=False, **kwargs)
