"""TLS as people set it up: mutual, on every listener and between replicas; who is turned away; files that change; clients that never finish."""
import contextlib
import json
import os
import pathlib
import select
import shutil
import socket
import ssl
import subprocess
import tempfile
import time

import cells
import pki
from clients import Eye, b64, call, curl, etcdctl, go_talk, insist, metric, python_talk
from runner import test

CTL = pathlib.Path(os.environ.get("HOLDFASTCTL", cells.TOP / "build" / "client-c" / "holdfastctl"))
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\4\0\0\0\0\0"
GET = b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n"


@test()
def the_page_on_security_says_what_does(server):
    """The ten lines of docs/security.md, as they stand, but for the ports."""
    page = (cells.TOP / "docs" / "security.md").read_text(encoding="utf-8")
    lines = page.partition("```sh\n")[2].partition("```")[0]
    for port in ("2379", "2380"):
        lines = lines.replace(port, str(cells.free_port()))
    assert len(lines.splitlines()) <= 12, "ten lines, and a loop"
    with tempfile.TemporaryDirectory() as folder:
        os.symlink(server, f"{folder}/holdfastd")
        env = dict(os.environ, PATH=f"{folder}:{CTL.parent}:{os.environ['PATH']}")
        done = subprocess.run(["bash", "-c", f"set -e; {lines}\nkill %1; wait"], cwd=folder, env=env, text=True, capture_output=True, timeout=60, check=False)
        assert "nobody else backs up now" in done.stdout, done.stdout + done.stderr


@contextlib.contextmanager
def certificates():
    """A CA with a server, a peer and the user alice, who is what this process' clients are from now on."""
    with tempfile.TemporaryDirectory(prefix="holdfast-pki-") as folder:
        yield pki.Pki(folder).cert("server").cert("peer").cert("alice").use("alice")


def ctl(*args, code=0):
    done = subprocess.run([CTL, *map(str, args)], text=True, capture_output=True, timeout=30, check=False)
    assert done.returncode == code, f"{args} ended with {done.returncode}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def answers(port, context, say, alpn=None):
    """What a listener says to a first request; b"" when it turns the client away, at the handshake or after it."""
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=10) as plain:
            if context is None:
                plain.sendall(say)
                return plain.recv(4096)
            if alpn:
                context.set_alpn_protocols([alpn])
            with context.wrap_socket(plain, server_hostname="127.0.0.1") as s:
                s.sendall(say)
                return s.recv(4096)
    except (ssl.SSLError, ConnectionError):
        return b""


class Listeners:
    """A replica with one of each: gRPC alone, HTTP alone, metrics alone, peers."""

    def __init__(self, cell):
        self.http, self.metrics = cells.free_port(), cells.free_port()
        r = cell.replicas[0]
        r.flags = ["--listen-client-http-urls", f"https://127.0.0.1:{self.http}", "--listen-metrics-urls", f"https://127.0.0.1:{self.metrics}"]
        r.health_url = f"https://127.0.0.1:{self.metrics}/health"
        self.ports = {"client": (r.client_port, PREFACE, "h2"), "peer": (r.peer_port, PREFACE, "h2"), "http": (self.http, GET, None), "metrics": (self.metrics, GET, None)}

    def who_answers(self, context):
        """The names of those that let this client in."""
        return {name for name, (port, say, alpn) in self.ports.items() if answers(port, context() if context else None, say, alpn)}


ALL = {"client", "peer", "http", "metrics"}


@test(timeout=240)
def a_cell_of_three_serves_everybody_under_mutual_tls(server):
    """etcdctl, curl, holdfastctl, Python's and Go's clients, and what happens when the leader dies."""
    with certificates() as own, cells.Cell(server, 3, own.flags(), tls=own) as cell:
        first = cell.replicas[0]
        for story in ("kv", "lock"):
            with python_talk("etcd3_client.py", first.client_port, story) as py:
                py.expect(f"{story} fine", 30)
        with python_talk("etcd3gw_client.py", first.client_port, "kv") as py:
            py.expect("kv fine", 30)
        with go_talk(cell, "stm") as go:
            go.expect("stm fine", 60)
        assert etcdctl(cell, "put", "a", "1") == "OK\n" and etcdctl(cell.replicas[2], "get", "a") == "a\n1\n"
        assert "3/" not in etcdctl(cell, "endpoint", "health")
        status, text = curl(first, "/health")
        assert (status, text) == (200, '{"health":"true"}'), text
        lease = call(first, "/lease/grant", {"TTL": 60})["ID"]
        held = call(first, "/lock/lock", {"name": b64("l"), "lease": lease})
        assert int(held["fencing_token"]) > 0, held
        # curl offers HTTP/2 as well: JSON is answered in what both can do.
        spoken = subprocess.run(["curl", "-s", "-o", os.devnull, "-w", "%{http_version}", "--http2", first.url + "/v3/kv/range", "-d", '{"key":"YQ=="}'],
                                text=True, capture_output=True, timeout=20, check=False)
        assert spoken.returncode == 0 and spoken.stdout == "1.1", spoken
        ctl("--endpoints", cell.endpoints, "put", "b", "2")
        assert ctl("--endpoints", first.url, "get", "b") == "b\n2\n"
        assert "held" in ctl("--endpoints", cell.endpoints, "lock", "m", "--", "echo", "held")
        assert ctl("--endpoints", first.url, "endpoint", "health", "--cluster").count("https://") == 3
        leader = cell.leader()
        leader.kill()
        lives = [r for r in cell.replicas if r is not leader]
        with Eye(lives[0]) as eye:
            insist(lambda: eye.put(b"after", b"1"))
        leader.start()
        cell.wait_ready()
        assert etcdctl(leader, "get", "after", "--print-value-only") == "1\n"
        assert metric(leader, r'holdfast_tls_handshakes_total\{listener="peer"\}') >= 4
        assert metric(leader, r'holdfast_tls_handshakes_failed_total\{listener="peer"\}') == 0
        for r in cell.replicas:
            r.stop()


@test()
def the_others_are_turned_away_at_every_listener(server):
    """No certificate, another CA's, one that has expired, one that was revoked, plain text: client, peer, HTTP and metrics listeners alike."""
    with certificates() as own, cells.Cell(server, 1, own.flags(), start=False, tls=own) as cell:
        listeners = Listeners(cell)
        cell.start()
        other = pki.Pki(own.dir, "other").cert("alice")
        own.cert("late", days=-1).cert("mallory")

        def stranger():
            c = own.context()
            c.load_cert_chain(other.path("alice.pem"), other.path("alice.key"))
            return c
        assert listeners.who_answers(lambda: own.context("alice")) == ALL
        assert listeners.who_answers(lambda: own.context("mallory")) == ALL
        assert listeners.who_answers(own.context) == set(), "without a certificate"
        assert listeners.who_answers(stranger) == set(), "with a certificate of another CA"
        assert listeners.who_answers(lambda: own.context("late")) == set(), "with a certificate that has expired"
        assert listeners.who_answers(None) == set(), "without TLS"
        own.revoke("mallory")
        assert listeners.who_answers(lambda: own.context("mallory")) == set(), "with a certificate that was revoked"
        assert listeners.who_answers(lambda: own.context("alice")) == ALL
        # Each listener serves what it is for, and no more.
        context = own.context("alice")
        assert cells.http(f"https://127.0.0.1:{listeners.http}/v3/kv/put", {"key": "YQ=="}, context=context)[0] == 200
        assert cells.http(f"https://127.0.0.1:{listeners.metrics}/v3/kv/put", {"key": "YQ=="}, context=context)[0] == 404
        assert "holdfast_tls_handshakes_total" in cells.http(f"https://127.0.0.1:{listeners.metrics}/metrics", context=context)[1]
        assert answers(cell.replicas[0].client_port, own.context("alice"), GET) == b""
        assert answers(listeners.http, own.context("alice"), PREFACE) == b""
        assert etcdctl(cell, "get", "a", "--keys-only") == "a\n\n"


@test()
def certificates_are_replaced_while_the_cell_runs(server):
    """A new CA, new certificates and bad files, with connections open all the time."""
    with certificates() as own, cells.Cell(server, 3, own.flags(), tls=own) as cell, Eye(cell.replicas[0]) as eye:
        old_ca = own.path("ca.pem").read_bytes()
        failures = r'holdfast_tls_reload_failures_total\{listener="client"\}'
        eye.put(b"a", b"1")
        for name in ("server.pem", "peer.pem", "ca.pem"):
            kept = own.path(name).read_bytes()
            own.replace(name, b"rubbish")
            if name == "ca.pem":  # the clients here read it too
                own.path("ca.pem").rename(own.path("kept"))
                own.replace("ca.pem", kept)
                continue
            assert etcdctl(cell, "put", "b", name) == "OK\n"
            own.replace(name, kept)
        assert etcdctl(cell, "put", "b", "2") == "OK\n"
        assert metric(cell.replicas[0], failures) >= 1 and metric(cell.replicas[0], r'holdfast_tls_files_stale\{listener="client"\}') == 0
        # The next CA joins the bundle, then everybody gets a certificate of it, then the old CA leaves.
        following = pki.Pki(own.dir, "next").cert("server").cert("peer").cert("alice")
        own.replace("ca.pem", old_ca + following.path("ca.pem").read_bytes())
        assert etcdctl(cell, "put", "b", "3") == "OK\n"
        for name in ("server", "peer", "alice"):
            for end in ("key", "pem"):
                own.replace(f"{name}.{end}", following.path(f"{name}.{end}").read_bytes())
        own.replace("ca.crl", own.path("ca.crl").read_bytes() + following.path("ca.crl").read_bytes())
        own.replace("ca.pem", following.path("ca.pem").read_bytes())
        own.replace("ca.crl", following.path("ca.crl").read_bytes())
        assert etcdctl(cell, "get", "b", "--print-value-only") == "3\n"
        # Who is connected stays connected.
        insist(lambda: eye.put(b"a", b"2"))
        # Links between replicas are made anew with the new ones.
        for r in cell.replicas:
            r.kill()
            r.start()
            cell.wait_ready([r])
        assert etcdctl(cell, "get", "a", "--print-value-only") == "2\n"


@test()
def peers_must_have_an_allowed_name(server):
    for flag, good, bad in (("--peer-cert-allowed-cn", {"cn": "cell-7"}, {"cn": "cell-8"}),
                            ("--peer-cert-allowed-hostname", {"names": "DNS:localhost,IP:127.0.0.1,DNS:p.cell-7"}, {"names": "DNS:localhost,IP:127.0.0.1,DNS:p.cell-8"})):
        with certificates() as own:
            own.cert("peer", **good).cert("stranger", **bad)
            with cells.Cell(server, 3, [*own.flags(), flag, "cell-7,other" if "cn" in flag else "p.cell-7"], start=False, tls=own) as cell:
                odd = cell.replicas[2]
                odd.flags = ["--peer-cert-file", own.path("stranger.pem"), "--peer-key-file", own.path("stranger.key")]
                for r in cell.replicas:
                    r.start()
                cell.wait_ready(cell.replicas[:2])
                assert etcdctl(cell.replicas[0], "put", "a", "1") == "OK\n"
                cells.wait_for("refusals", lambda: metric(cell.replicas[0], r'holdfast_tls_handshakes_failed_total\{listener="peer"\}') >= 2)
                assert not odd.healthy()
                # With the right one it is let in, without a restart of anybody.
                for end in ("key", "pem"):
                    own.replace(f"stranger.{end}", own.path(f"peer.{end}").read_bytes())
                cell.wait_ready()
                assert etcdctl(odd, "get", "a", "--print-value-only") == "1\n"


@test()
def who_never_finishes_holds_up_nobody(server):
    """Half-open handshakes by the hundred, then headers that come byte by byte: others are served all the while, and these are closed in the end."""
    with certificates() as own, cells.Cell(server, 1, own.flags(), start=False, tls=own) as cell:
        listeners = Listeners(cell)
        cell.start()
        replica = cell.replicas[0]
        before = len(os.listdir(f"/proc/{replica.process.pid}/fd"))
        with contextlib.ExitStack() as stack:
            halves = []
            for port in (replica.client_port, replica.peer_port, listeners.http, listeners.metrics):
                for i in range(100 if port != replica.peer_port else 40):
                    s = stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=10))
                    s.sendall(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"[:i % 12])
                    halves.append(s)
            slow = []
            for _ in range(100):
                plain = stack.enter_context(socket.create_connection(("127.0.0.1", listeners.http), timeout=10))
                s = stack.enter_context(own.context("alice").wrap_socket(plain, server_hostname="127.0.0.1"))
                s.sendall(b"POST /v3/kv/range HTTP/1.1\r\nHost: x\r\n")
                slow.append(s)
            context = own.context("alice")
            deadline = time.monotonic() + 30
            served = 0
            left = set(halves) | set(slow)
            while left:
                assert time.monotonic() < deadline, f"{len(left)} are still open"
                assert etcdctl(cell, "put", "a", served, timeout=5) == "OK\n"
                assert cells.http(f"https://127.0.0.1:{listeners.http}/health", timeout=5, context=context)[0] == 200
                served += 1
                for s in slow:
                    with contextlib.suppress(OSError):
                        s.sendall(b"x")
                left -= {s for s in select.select(list(left), [], [], 0.2)[0] if _is_over(s)}
            assert served > 3
        cells.wait_for("all of their descriptors are closed", lambda: len(os.listdir(f"/proc/{replica.process.pid}/fd")) <= before + 8, 10)


def _is_over(s):
    """The connection below was closed; what came before, a refusal or an alert, is passed over."""
    with socket.socket(fileno=os.dup(s.fileno())) as raw:
        raw.setblocking(False)
        try:
            while raw.recv(4096):
                pass
        except BlockingIOError:
            return False
        except ConnectionError:
            pass
        return True


@test()
def unix_sockets_speak_tls_as_well(server):
    """unixs:// for clients and between replicas: mutual, as over TCP."""
    with certificates() as own, tempfile.TemporaryDirectory() as d:
        cluster = f"a=unixs://{d}/pa,b=unixs://{d}/pb"
        for n in "ab":
            cells.spawn([server, "--name", n, "--data-dir", f"{d}/{n}", "--listen-client-urls", f"unixs://{d}/c{n}", "--listen-peer-urls", f"unixs://{d}/p{n}",
                         "--initial-advertise-peer-urls", f"unixs://{d}/p{n}", "--initial-cluster", cluster, *own.flags()], stderr=subprocess.DEVNULL)

        def health(path, context):
            with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as plain:
                plain.settimeout(5)
                plain.connect(path)
                with context.wrap_socket(plain, server_hostname="localhost") if context else plain as s:
                    s.sendall(GET.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n"))
                    return s.recv(4096)
            return b""
        for n in "ab":
            cells.wait_for(f"{n} serves", lambda n=n: b'"true"' in health(f"{d}/c{n}", own.context("alice")))
        assert health(f"{d}/ca", own.context()) == health(f"{d}/ca", None) == b""
        # This client looks for the path in the certificate.
        assert etcdctl(f"unixs://{d}/ca", "--insecure-skip-tls-verify", "put", "k", "v") == "OK\n"
        assert etcdctl(f"unixs://{d}/cb", "--insecure-skip-tls-verify", "get", "k") == "k\nv\n"


@test()
def certificates_of_its_own_making(server):
    """--auto-tls and --peer-auto-tls: kept over restarts, and made anew when they would expire."""
    with tempfile.TemporaryDirectory() as folder:
        nobody = pki.Pki(folder)
        with cells.Cell(server, 3, ["--auto-tls", "--peer-auto-tls", "--self-signed-cert-validity", "1"], start=False, tls=nobody) as cell:
            replica = cell.replicas[0]
            made = replica.data_dir / "fixtures" / "client" / "cert.pem"
            for r in cell.replicas:
                r.start()

            def ready(r):
                with contextlib.suppress(OSError, ssl.SSLError):
                    return cells.http(r.url + "/health", timeout=1, context=ssl.create_default_context(cafile=str(r.data_dir / "fixtures" / "client" / "cert.pem")))[0] == 200
                return False
            for r in cell.replicas:
                cells.wait_for(f"{r.name} serves", lambda r=r: ready(r), 30)
            cert = made.read_text()
            os.environ.update(ETCDCTL_CACERT=str(made), HOLDFAST_CACERT=str(made))
            assert etcdctl(replica, "put", "a", "1") == "OK\n"
            assert ctl("--endpoints", replica.url, "get", "a") == "a\n1\n"
            assert ctl("--endpoints", cell.replicas[1].url, "--insecure-skip-tls-verify", "get", "a") == "a\n1\n"
            assert "no replica" in ctl("--endpoints", cell.replicas[1].url, "--timeout", "2s", "get", "a", code=3)
            replica.stop()
            replica.start()
            cells.wait_for("it serves again", lambda: ready(replica), 30)
            assert made.read_text() == cert
            # One that has expired is not used again.
            replica.stop()
            for end in ("pem", "key"):
                shutil.copy(nobody.cert("old", days=-1).path(f"old.{end}"), replica.data_dir / "fixtures" / "client" / ("cert.pem" if end == "pem" else "key.pem"))
            replica.start()
            cells.wait_for("it serves with a new one", lambda: ready(replica), 30)
            assert json.loads(cells.http(replica.url + "/version", context=ssl.create_default_context(cafile=str(made)))[1])["etcdserver"]
