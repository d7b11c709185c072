"""What those who run it see: configuration, supervisors, health, metrics, web access, text for shells, limits."""
import collections
import contextlib
import fnmatch
import itertools
import json
import os
import pathlib
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import urllib.error
import urllib.request

import cells
import kit
from runner import test

TOP = pathlib.Path(__file__).resolve().parents[2]


def metrics_of(url):
    """{"name{labels}": value}"""
    out = {}
    for line in cells.http(url + "/metrics")[1].splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            assert name not in out, f"{name} comes twice"
            out[name] = float(value)
    return out


def raw(address, data, until=None, timeout=10):
    """What the server sends for these bytes, up to `until` or its end."""
    family = socket.AF_UNIX if isinstance(address, str) else socket.AF_INET
    with socket.socket(family) as s:
        s.settimeout(timeout)
        s.connect(address)
        s.sendall(data)
        got = b""
        while not (until and until in got):
            part = s.recv(65536)
            if not part:
                break
            got += part
        return got


@contextlib.contextmanager
def running(server, *args, env=None, cwd=None):
    with tempfile.TemporaryFile() as log:
        p = cells.spawn([server, *args], stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=cwd, env={**os.environ, **(env or {})})

        def text():
            log.seek(0)
            return log.read().decode()
        try:
            yield p, text
        finally:
            if p.poll() is None:
                cells.end(p, signal.SIGTERM)


def serves(url):
    with contextlib.suppress(OSError):
        return cells.http(url + "/health", timeout=1)[0] == 200
    return False


# ---- configuration ----

@test(own=True)
def etcds_example_file_and_environment_start_a_cell(server):
    """Three members: by YAML, by ETCD_*, by flags of which some have no meaning here."""
    with tempfile.TemporaryDirectory() as d:
        peers = [f"http://127.0.0.1:{cells.free_port()}" for _ in range(3)]
        clients = [f"http://127.0.0.1:{cells.free_port()}" for _ in range(3)]
        cluster = ",".join(f"m{i}={u}" for i, u in enumerate(peers))
        (pathlib.Path(d) / "m0.yml").write_text(f"""
name: m0
data-dir: {d}/m0
wal-dir:
snapshot-count: 10000
listen-peer-urls: {peers[0]}
listen-client-urls: {clients[0]}
max-snapshots: 5
cors:
initial-advertise-peer-urls: {peers[0]}
advertise-client-urls: {clients[0]}
discovery:
discovery-fallback: 'proxy'
initial-cluster: {cluster}
initial-cluster-token: 'tok'
initial-cluster-state: 'new'
strict-reconfig-check: false
enable-v2: true
client-transport-security:
peer-transport-security:
log-level: info
logger: zap
log-outputs: [stderr]
force-new-cluster: false
auto-compaction-mode: periodic
auto-compaction-retention: "1"
""")
        env = {"ETCD_NAME": "m1", "ETCD_DATA_DIR": f"{d}/m1", "ETCD_LISTEN_PEER_URLS": peers[1], "ETCD_LISTEN_CLIENT_URLS": clients[1],
               "ETCD_INITIAL_ADVERTISE_PEER_URLS": peers[1], "ETCD_ADVERTISE_CLIENT_URLS": clients[1], "HOLDFAST_INITIAL_CLUSTER": cluster,
               "ETCD_INITIAL_CLUSTER_TOKEN": "tok", "ETCD_ENABLE_PPROF": "true", "ETCD_SERVICE_HOST": "10.0.0.1"}
        flags = ["--name", "m2", "--data-dir", f"{d}/m2", "--listen-peer-urls", peers[2], "--listen-client-urls", clients[2],
                 "--initial-advertise-peer-urls", peers[2], "--advertise-client-urls", clients[2], "--initial-cluster", cluster,
                 "--initial-cluster-token=tok", "--max-wals", "5", "--pre-vote", "--enable-v2", "--wal-dir", f"{d}/wal"]
        with running(server, "--config-file", f"{d}/m0.yml") as (_, log0), running(server, env=env) as (_, log1), running(server, *flags) as (_, log2):
            for c in clients:
                cells.wait_for(f"{c} serves", lambda c=c: serves(c), 20)
            p = cells.etcdctl(",".join(clients), "member", "list")
            assert p.returncode == 0 and len(p.stdout.splitlines()) == 3, p
            cells.wait_for("it says that it is ready", lambda: "ready to serve client requests" in log0(), 5)
            lines = [json.loads(line) for line in log0().splitlines()]
            messages = [line["msg"] for line in lines]
            for m in ("published local member to cluster through raft", "enabled capabilities for version"):
                assert m in messages, messages
            assert {line["flag"] for line in lines if "has no effect" in line["msg"]} >= {"max-snapshots", "strict-reconfig-check", "enable-v2"}
            assert "ETCD_SERVICE_HOST" in log1() and "enable-pprof" in log1()
            assert "max-wals" in log2() and "wal-dir" in log2()


@test(own=True)
def a_variable_that_a_flag_contradicts_is_refused(server):
    p = subprocess.run([server, "--name", "a"], env={**os.environ, "ETCD_NAME": "b"}, capture_output=True, text=True, timeout=10, check=False)
    assert p.returncode == 2 and "ETCD_NAME" in p.stderr and "--name" in p.stderr, p


@test(own=True)
def unix_sockets_for_clients_and_peers(server):
    """Two members that meet at files alone; what kill -9 leaves is no obstacle."""
    with tempfile.TemporaryDirectory() as d:
        cluster = f"a=unix://{d}/pa,b=unix://{d}/pb"

        def flags(n):
            return ["--name", n, "--data-dir", f"{d}/{n}", "--listen-client-urls", f"unix://{d}/c{n}", "--listen-peer-urls", f"unix://{d}/p{n}",
                    "--initial-advertise-peer-urls", f"unix://{d}/p{n}", "--initial-cluster", cluster]

        def ok(n):
            with contextlib.suppress(OSError):
                return b'"true"' in raw(f"{d}/c{n}", b"GET /health HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
            return False
        with running(server, *flags("a")) as (a, _), running(server, *flags("b")):
            cells.wait_for("both serve", lambda: ok("a") and ok("b"), 20)
            p = cells.etcdctl(f"unix://{d}/ca", "put", "k", "v")
            assert p.returncode == 0, p
            cells.end(a)
            assert os.path.exists(f"{d}/ca")
            with running(server, *flags("a")) as (again, log):
                cells.wait_for("it serves again", lambda: again.poll() is not None or ok("a"), 20)
                assert again.poll() is None, log()
                p = cells.etcdctl(f"unix://{d}/ca", "get", "k")
                assert p.stdout == "k\nv\n", p
                second = subprocess.run([server, *flags("a")[:3], f"{d}/other", *flags("a")[4:]], capture_output=True, text=True, timeout=10, check=False)
                assert second.returncode == 1 and "in use" in second.stderr, second
                assert cells.end(again, signal.SIGTERM) == 0
            assert not os.path.exists(f"{d}/ca"), "the socket's file stays behind"


def link_local():
    """An IPv6 address that needs its scope, in brackets; None when this machine has none."""
    with contextlib.suppress(OSError), open("/proc/net/if_inet6", encoding="ascii") as f:
        for line in f:
            digits, _, _, scope, flags, name = line.split()
            if scope == "20" and not int(flags, 16) & 0x40:  # still being probed
                return digits, name
    return None


@test(own=True)
def ipv6_with_scopes_and_a_version_of_ones_choice(server):
    found = link_local()
    host = "::1"
    if found:
        digits, name = found
        host = ":".join(digits[i:i + 4] for i in range(0, 32, 4)) + "%" + name
    with tempfile.TemporaryDirectory() as d:
        ports = [cells.free_port() for _ in range(4)]
        peers = [f"http://[{host}]:{ports[0]}", f"http://[{host.replace('%', '%25')}]:{ports[1]}"]

        def flags(i):
            return ["--name", f"m{i}", "--data-dir", f"{d}/m{i}", "--listen-client-urls", f"http://[{host}]:{ports[2 + i]},http://[::1]:{ports[2 + i]}",
                    "--listen-peer-urls", peers[i], "--initial-advertise-peer-urls", peers[i], "--initial-cluster", f"m0={peers[0]},m1={peers[1]}",
                    "--etcd-version", "3.6.2"]
        url = f"http://[::1]:{ports[2]}"
        with running(server, *flags(0)) as (p, log), running(server, *flags(1)):
            cells.wait_for("it serves", lambda: p.poll() is not None or serves(url), 20)
            assert p.poll() is None, log()
            assert cells.http(url + "/version")[1] == '{"etcdserver":"3.6.2","etcdcluster":"3.6.0"}'
            assert 'etcd_server_version{server_version="3.6.2"}' in metrics_of(url)


@test(own=True)
def values_may_be_bounded(server):
    with cells.Cell(server, 1, flags=["--max-value-bytes", "1000"]) as cell, kit.Client(cell.replicas[0]) as c:
        c.kv.Put(kit.pb.PutRequest(key=b"k", value=b"x" * 1000))
        compare = kit.pb.Compare(key=b"k", target=kit.pb.Compare.VALUE, result=kit.pb.Compare.EQUAL, value=b"x" * 2000)
        big = kit.pb.RequestOp(request_put=kit.pb.PutRequest(key=b"k", value=b"x" * 1001))
        nested = kit.pb.RequestOp(request_txn=kit.pb.TxnRequest(failure=[big]))
        for request in (kit.pb.PutRequest(key=b"k", value=b"x" * 1001), kit.pb.TxnRequest(success=[big]), kit.pb.TxnRequest(success=[nested])):
            try:
                (c.kv.Put if isinstance(request, kit.pb.PutRequest) else c.kv.Txn)(request)
                raise AssertionError("a value that is too large was taken")
            except kit.grpc.RpcError as e:
                assert e.code() == kit.grpc.StatusCode.INVALID_ARGUMENT and "max-value-bytes" in e.details(), e
        c.kv.Txn(kit.pb.TxnRequest(compare=[compare]))
        assert c.kv.Range(kit.pb.RangeRequest(key=b"k")).kvs[0].version == 1


# ---- supervisors ----

class Notified:
    """The other end of sd_notify."""

    def __init__(self, directory):
        self.path = f"{directory}/notify"
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(self.path)
        self.lines = []

    def saw(self, line):
        self.socket.setblocking(False)
        with contextlib.suppress(BlockingIOError):
            while True:
                self.lines += self.socket.recv(4096).decode().splitlines()
        return line in self.lines


@test(own=True)
def systemd_hears_ready_watchdog_and_stopping(server):
    with tempfile.TemporaryDirectory() as d:
        n = Notified(d)
        peers = [f"http://127.0.0.1:{cells.free_port()}" for _ in range(2)]
        clients = [f"http://127.0.0.1:{cells.free_port()}" for _ in range(2)]

        def flags(i):
            return ["--name", f"m{i}", "--data-dir", f"{d}/m{i}", "--listen-peer-urls", peers[i], "--listen-client-urls", clients[i],
                    "--initial-advertise-peer-urls", peers[i], "--initial-cluster", f"m0={peers[0]},m1={peers[1]}"]
        env = {"NOTIFY_SOCKET": n.path, "WATCHDOG_USEC": "200000"}
        with running(server, *flags(0), env=env) as (p, _):
            cells.wait_for("the watchdog is fed while it waits for the other", lambda: n.saw("WATCHDOG=1"), 10)
            assert "READY=1" not in n.lines, "ready alone, with a cell of two"
            with running(server, *flags(1)):
                cells.wait_for("ready", lambda: n.saw("READY=1"), 20)
                n.lines.clear()
                cells.wait_for("fed again", lambda: n.saw("WATCHDOG=1"), 5)
                assert cells.end(p, signal.SIGTERM) == 0
            assert n.saw("STOPPING=1")


@test(own=True)
def the_unit_is_sound_and_shut_in(server):
    """As systemd judges it: no complaint, and an exposure of at most 2 of 10."""
    unit = (TOP / "scripts/packaging/holdfastd.service").read_text()
    assert "Type=notify" in unit and "WatchdogSec=" in unit
    with tempfile.TemporaryDirectory() as d:
        path = pathlib.Path(d) / "holdfastd.service"
        path.write_text(re.sub(r"^ExecStart=.*$", f"ExecStart={pathlib.Path(server).resolve()}", unit, flags=re.M))
        p = subprocess.run(["systemd-analyze", "verify", "--man=no", path], capture_output=True, text=True, timeout=30, check=False)
        assert p.returncode == 0 and "holdfastd.service" not in p.stdout + p.stderr, p
        p = subprocess.run(["systemd-analyze", "security", "--offline=yes", "--threshold=20", path], capture_output=True, text=True, timeout=30, check=False)
        assert p.returncode == 0 and "Overall exposure level" in p.stdout, p


@test(own=True)
def logs_go_where_they_should(server):
    with tempfile.TemporaryDirectory() as d:
        c, p = (f"http://127.0.0.1:{cells.free_port()}" for _ in range(2))
        with running(server, "--data-dir", f"{d}/x", "--listen-client-urls", c, "--listen-peer-urls", p, "--log-outputs", f"stderr,{d}/log",
                     "--debug") as (_, log):
            cells.wait_for("it says that it is ready", lambda: "ready to serve client requests" in log(), 20)
            assert (pathlib.Path(d) / "log").read_text() == log()


# ---- health ----

@test(own=True)
def a_full_store_is_no_reason_to_restart(server):
    """NOSPACE: /health says so, as etcd's does; /livez and /readyz stay green, so that no supervisor starts a loop of restarts."""
    with cells.Cell(server, 1, flags=["--quota-backend-bytes", "2000000"]) as cell, kit.Client(cell.replicas[0]) as c:
        url = cell.replicas[0].url
        assert cells.http(url + "/health")[0] == 200

        def full():
            try:
                c.kv.Put(kit.pb.PutRequest(key=os.urandom(8), value=b"x" * 100000))
            except kit.grpc.RpcError as e:
                return "space" in e.details()
            return False
        cells.wait_for("the quota is reached", full, 20)
        status, text = cells.http(url + "/health")
        assert status == 503 and json.loads(text) == {"health": "false", "reason": "ALARM NOSPACE"}, (status, text)
        assert cells.http(url + "/health?serializable=true")[0] == 503
        assert cells.http(url + "/health?exclude=NOSPACE")[0] == 200
        for page in ("/livez", "/readyz"):
            assert cells.http(url + page) == (200, "ok\n"), page
        assert metrics_of(url)["etcd_server_health_failures"] == 2


@test(own=True)
def without_a_leader_alive_and_not_ready(server):
    with cells.Cell(server, 3) as cell:
        leader = cell.leader()
        for r in cell.replicas:
            if r is not leader:
                r.kill()
        cells.wait_for("it knows that it leads nobody", lambda: cells.http(leader.url + "/health")[0] == 503, 20)
        assert json.loads(cells.http(leader.url + "/health")[1]) == {"health": "false", "reason": "RAFT NO LEADER"}
        assert cells.http(leader.url + "/health?serializable=true")[0] == 200
        assert cells.http(leader.url + "/livez?verbose") == (200, "[+]serializable_read ok\nok\n")
        status, text = cells.http(leader.url + "/readyz")
        assert status == 503 and "[-]linearizable_read failed: no leader" in text, text


@test(own=True)
def who_leads_nobody_any_more_is_not_healthy_for_a_moment(server):
    """A leader whose followers stand still believes that it leads for an election timeout; what its cell answers does not come."""
    with cells.Cell(server, 3) as cell:
        leader = cell.leader()
        others = [r for r in cell.replicas if r is not leader]
        for r in others:
            r.pause()
        started = threading.Event()
        found = []

        def look(page):
            started.wait()
            found.append((page, *cells.http(leader.url + page, timeout=30)))
        pages = ["/health", "/readyz", "/readyz/linearizable_read"]
        threads = [threading.Thread(target=look, args=(p,)) for p in pages]
        for t in threads:
            t.start()
        started.set()
        for page in ("/health?serializable=true", "/livez", "/readyz?exclude=linearizable_read"):
            assert cells.http(leader.url + page)[0] == 200, page
        for t in threads:
            t.join()
        assert sorted(p for p, status, _ in found if status == 503) == sorted(pages), found
        for r in others:
            r.resume()
        cells.wait_for("all of them are healthy", lambda: all(cells.http(r.url + "/health", timeout=30)[0] == 200 for r in cell.replicas), 20)
        # Nobody asks in a user's name.
        for command in (("user", "add", "root:secret"), ("user", "grant-role", "root", "root"), ("auth", "enable")):
            assert cells.etcdctl(cell.endpoints, *command).returncode == 0, command
        for r in cell.replicas:
            for page in ("/health", "/health?serializable=true", "/livez", "/readyz"):
                assert cells.http(r.url + page, timeout=30)[0] == 200, (r.name, page)
        m = metrics_of(leader.url)
        assert m['etcd_server_healthcheck{name="linearizable_read",type="readyz"}'] == 1
        assert m['etcd_server_healthchecks_total{name="linearizable_read",status="error",type="readyz"}'] == 2


# ---- metrics ----

@test(own=True)
def metrics_under_etcds_names(server):
    with cells.Cell(server, 1, flags=["--metrics", "extensive"]) as cell, kit.Client(cell.replicas[0]) as c:
        url = cell.replicas[0].url
        c.kv.Put(kit.pb.PutRequest(key=b"a", value=b"12345"), metadata=[("client-api-version", "3.4")])
        c.maintenance.HashKV(kit.pb.HashKVRequest(), metadata=[("client-api-version", 'x"} 1\\')])
        c.kv.DeleteRange(kit.pb.DeleteRangeRequest(key=b"a"))
        c.kv.Range(kit.pb.RangeRequest(key=b"a"))
        lease = c.lease.LeaseGrant(kit.pb.LeaseGrantRequest(TTL=60)).ID
        assert next(c.lease.LeaseKeepAlive(iter([kit.pb.LeaseKeepAliveRequest(ID=lease)]))).TTL == 60
        c.lease.LeaseRevoke(kit.pb.LeaseRevokeRequest(ID=lease))
        try:
            c.lease.LeaseRevoke(kit.pb.LeaseRevokeRequest(ID=lease))
        except kit.grpc.RpcError:
            pass
        m = metrics_of(url)
        label = 'grpc_method="{}",grpc_service="etcdserverpb.{}",grpc_type="unary"'
        want = {"etcd_server_has_leader": 1, "etcd_server_is_leader": 1, "etcd_mvcc_put_total": 1, "etcd_mvcc_delete_total": 1, "etcd_mvcc_range_total": 1,
                "etcd_debugging_lease_granted_total": 1, "etcd_debugging_lease_revoked_total": 1, "etcd_debugging_lease_renewed_total": 1,
                "etcd_debugging_mvcc_total_put_size_in_bytes": 6, "etcd_server_leader_changes_seen_total": 1,
                "etcd_debugging_lease_ttl_total_count": 1, "etcd_debugging_lease_ttl_total_sum": 60, 'etcd_debugging_lease_ttl_total_bucket{le="32"}': 0,
                'etcd_debugging_lease_ttl_total_bucket{le="64"}': 1, "etcd_debugging_auth_revision": 1, "etcd_mvcc_hash_rev_duration_seconds_count": 1,
                'etcd_server_client_requests_total{client_api_version="3.4",type="unary"}': 1,
                'etcd_server_client_requests_total{client_api_version="other",type="unary"}': 1,
                'etcd_server_client_requests_total{client_api_version="unknown",type="stream"}': 1,
                "etcd_server_snapshot_apply_in_progress_total": 0, "etcd_server_learner_promote_successes": 0,
                "grpc_server_handling_seconds_count{" + label.format("Put", "KV") + "}": 1,
                "grpc_server_handling_seconds_bucket{" + label.format("LeaseRevoke", "Lease") + ',le="+Inf"}': 2,
                "grpc_server_handled_total{grpc_code=\"OK\"," + label.format("Put", "KV") + "}": 1,
                "grpc_server_handled_total{grpc_code=\"NotFound\"," + label.format("LeaseRevoke", "Lease") + "}": 1,
                "grpc_server_started_total{" + label.format("LeaseRevoke", "Lease") + "}": 2}
        for name, value in want.items():
            assert m.get(name) == value, (name, m.get(name), value)
        assert m['etcd_disk_wal_fsync_duration_seconds_bucket{le="+Inf"}'] == m["etcd_disk_wal_fsync_duration_seconds_count"] >= 3
        assert m["etcd_server_proposals_applied_total"] == m["etcd_server_proposals_committed_total"] > 3


@test(own=True)
def watches_that_were_cancelled_are_counted_no_more(server):
    """A counter that never returns to zero is a leak, or is taken for one."""
    with cells.Cell(server, 1) as cell, kit.Client(cell.replicas[0]) as c:
        url = cell.replicas[0].url

        def figures():
            m = metrics_of(url)
            return m["etcd_debugging_mvcc_watcher_total"], m["etcd_debugging_mvcc_watch_stream_total"], m["etcd_debugging_mvcc_slow_watcher_total"]
        for how in ("cancelled", "dropped"):
            done = kit.threading.Event()

            def requests(done=done, how=how):
                for i in range(50):
                    yield kit.pb.WatchRequest(create_request=kit.pb.WatchCreateRequest(key=b"k%d" % i, watch_id=i + 1))
                if how == "cancelled":
                    for i in range(50):
                        yield kit.pb.WatchRequest(cancel_request=kit.pb.WatchCancelRequest(watch_id=i + 1))
                done.wait()
            stream = rpc = kit.rpc_pb2_grpc.WatchStub(c.channel).Watch(requests())
            for _ in range(50):
                assert next(stream).created
            if how == "dropped":
                assert figures() == (50, 1, 0), figures()
            else:
                cells.wait_for("no watch, and the stream", lambda: figures() == (0, 1, 0), 5)
            done.set()
            rpc.cancel()
            cells.wait_for("nothing", lambda: figures() == (0, 0, 0), 5)


@test(own=True)
def what_peers_say_to_each_other_is_counted(server):
    """Under etcd's names, with a peer's ID as the label."""
    with cells.Cell(server, 3) as cell, kit.Client(cell.leader()) as c:
        leader = cell.leader()
        others = {f"{m.ID:x}": next(r for r in cell.replicas if r.name == m.name)
                  for m in c.cluster.MemberList(kit.pb.MemberListRequest()).members if m.name != leader.name}

        def figure(what, label, peer):
            return metrics_of(leader.url)[f'etcd_network_peer_{what}_total{{{label}="{peer}"}}']
        before = {p: figure("sent_bytes", "To", p) for p in others}
        for _ in range(4):
            c.put(b"k", bytes(100_000))
        for p in others:
            cells.wait_for("all of it went out", lambda p=p: figure("sent_bytes", "To", p) - before[p] > 400_000)
            assert figure("received_bytes", "From", p) > 0
            assert figure("sent_failures", "To", p) == figure("received_failures", "From", p) == 0, p
            rtt = "etcd_network_peer_round_trip_time_seconds"
            cells.wait_for("it was asked how long it takes to answer", lambda p=p: metrics_of(leader.url)[f'{rtt}_count{{To="{p}"}}'] > 0)
            m = metrics_of(leader.url)
            assert 0 < m[f'{rtt}_sum{{To="{p}"}}'] < 5 and m[f'{rtt}_bucket{{To="{p}",le="+Inf"}}'] == m[f'{rtt}_count{{To="{p}"}}'], p
            assert [v for n, v in m.items() if n.startswith("etcd_network_disconnected_peers_total") and n.endswith(f'Remote="{p}"}}')] == [0]
        peer, gone = next(iter(others.items()))
        gone.kill()
        cells.wait_for("its streams broke", lambda: figure("sent_failures", "To", peer) > 0 and figure("received_failures", "From", peer) > 0)
        assert [v for n, v in metrics_of(leader.url).items() if n.startswith("etcd_network_disconnected_peers_total") and n.endswith(f'Remote="{peer}"}}')] >= [1]
        assert [v for n, v in metrics_of(leader.url).items() if n.startswith("etcd_network_active_peers") and n.endswith(f'Remote="{peer}"}}')] == [0]


def etcds_flags():
    """{name: default}, of 3.4 to 3.6."""
    lines = (pathlib.Path(__file__).with_name("etcd_flags.txt")).read_text().splitlines()
    return dict(line[2:].split("=", 1) for line in lines if line.startswith("--"))


@test(own=True)
def every_flag_of_etcds_releases_is_taken(server):
    """All at once, with their defaults; and the page for those who come from etcd names each."""
    flags = etcds_flags()
    p = subprocess.run([server, *(f"--{f}={v}" for f, v in flags.items()), "--version"], capture_output=True, text=True, timeout=20, check=False)
    assert p.returncode == 0 and p.stdout.startswith("holdfastd "), p
    told = subprocess.run(["etcd", "--help"], capture_output=True, text=True, check=False)
    stock = re.findall(r"^ +--([a-z0-9-]+)", told.stdout + told.stderr, re.M)
    assert len(stock) > 70, stock
    p = subprocess.run([server, *(f"--{f}={flags.get(f, '')}" for f in stock if f not in ("version", "help", "config-file")), "--version"],
                       capture_output=True, text=True, timeout=20, check=False)
    assert p.returncode == 0, p
    named = re.findall(r"`([a-z0-9*-]+)`", (TOP / "docs/migrating-from-etcd.md").read_text().split("## Flags")[1].split("## Metrics")[0])
    unnamed = [f for f in flags if not any(fnmatch.fnmatchcase(f.removeprefix("experimental-"), n) for n in named)]
    assert not unnamed, unnamed


@test(own=True)
def the_man_page_has_every_flag(server):
    """holdfastd.8 and --help name the same ones, and say the same of each."""
    told = set(re.findall(r"^  --([a-z0-9-]+) +(.*)$", subprocess.run([server, "--help"], capture_output=True, text=True, timeout=20, check=True).stdout, re.M))
    page = (TOP / "docs/man/holdfastd.8").read_text().split(".SH FLAGS")[1].split(".SH ")[0].replace("\\-", "-").replace("\\(aq", "'")
    written = set(re.findall(r"^\\fB--([a-z0-9-]+)\\fR\n(.*)$", page, re.M))
    assert len(told) > 60 and told == written, f"not in the page: {sorted(told - written)}, in it alone: {sorted(written - told)}"


def documented_as_absent():
    """Patterns of names in the table of docs/migrating-from-etcd.md that says what is not there."""
    table = (TOP / "docs/migrating-from-etcd.md").read_text().split("\nNot there:\n")[1]
    for row in re.findall(r"^\| (`.*`) \|", table, re.M):
        for name in re.findall(r"`([^`]+)`", row.split(" | ")[0]):
            m = re.fullmatch(r"(.*)\{(.*)\}(.*)", name)
            yield from ([m[1] + part + m[3] for part in m[2].split(",")] if m else [name])


def names_of(text):
    return set(re.findall(r"^# TYPE (\S+)", text, re.M))


def promtool(text):
    p = subprocess.run(["promtool", "check", "metrics"], input=text, text=True, capture_output=True, check=False)
    return set((p.stdout + p.stderr).splitlines())


@test(own=True)
def prometheus_scrapes_us_and_has_nothing_new_to_complain_of(server):
    if not shutil.which("prometheus"):
        raise AssertionError("no prometheus")
    extensive = ["--metrics=extensive"]
    with tempfile.TemporaryDirectory() as d, cells.Cell(server, 3, flags=extensive) as cell, cells.Cell(shutil.which("etcd"), 1, flags=extensive) as stock:
        assert cells.etcdctl(cell.endpoints, "put", "a", "b").returncode == 0
        text, theirs = (cells.http(c.replicas[0].url + "/metrics")[1] for c in (cell, stock))
        new = promtool(text) - promtool(theirs)
        assert not new, new
        absent = list(documented_as_absent())
        assert len(names_of(theirs)) > 100 and len(absent) > 20, (len(names_of(theirs)), absent)
        lacking = {n for n in names_of(theirs) - names_of(text) if not any(fnmatch.fnmatchcase(n, a) for a in absent)}
        assert not lacking, f"of stock etcd's, and neither here nor named in docs/migrating-from-etcd.md: {lacking}"
        both = {n for n in names_of(text) if any(fnmatch.fnmatchcase(n, a) for a in absent)}
        assert not both, f"said to be absent: {both}"
        port = cells.free_port()
        targets = ", ".join(f"'{r.endpoint}'" for r in cell.replicas)
        (pathlib.Path(d) / "p.yml").write_text(
            f"global: {{scrape_interval: 1s}}\nscrape_configs:\n- job_name: holdfast\n  static_configs:\n  - targets: [{targets}]\n")
        with open(f"{d}/log", "w", encoding="ascii") as log:
            p = cells.spawn(["prometheus", f"--config.file={d}/p.yml", f"--storage.tsdb.path={d}/data", f"--web.listen-address=127.0.0.1:{port}"],
                            stdout=log, stderr=log)

        def query(q):
            with contextlib.suppress(OSError, ValueError):
                found = json.loads(cells.http(f"http://127.0.0.1:{port}/api/v1/query?query={q}")[1])
                return [float(r["value"][1]) for r in found["data"]["result"]]
            return []
        cells.wait_for("all three are up", lambda: query("up") == [1, 1, 1], 30)
        cells.wait_for("one leader", lambda: query("sum(etcd_server_is_leader)") == [1], 10)
        cells.wait_for("the put is everywhere", lambda: query("etcd_mvcc_put_total") == [1, 1, 1], 10)
        cells.wait_for("a quantile", lambda: len(query("histogram_quantile(0.99,etcd_disk_wal_fsync_duration_seconds_bucket)")) == 3, 10)
        cells.end(p)


@test(own=True)
def locks_have_figures_by_the_beginning_of_their_names(server):
    with cells.Cell(server, 1) as cell, cells.Cell(server, 1, flags=["--lock-metrics-prefix", "jobs/night,jobs/"]) as chosen:
        for c in (cell, chosen):
            with kit.Client(c.replicas[0]) as client:
                held = client.lock.Lock(kit.lockpb.LockRequest(name=b"jobs/night/1"))
                waiting = client.lock.Lock.future(kit.lockpb.LockRequest(name=b"jobs/night/1", wait_ms=20000))
                kit.time.sleep(0.3)
                client.lock.Unlock(kit.lockpb.UnlockRequest(key=held.key))
                waiting.result()
                try:
                    client.lock.Lock(kit.lockpb.LockRequest(name=b"jobs/night/1", wait_ms=0))
                    raise AssertionError("held twice")
                except kit.grpc.RpcError:
                    pass
                for i in range(40):
                    client.lock.Lock(kit.lockpb.LockRequest(name=b"jobs/day/%d" % i if i < 2 else b"other%d/x" % i))
                client.lock.Lock(kit.lockpb.LockRequest(name=b"\xff\"/x"))
        m, n = metrics_of(cell.replicas[0].url), metrics_of(chosen.replicas[0].url)

        def figure(of, what, prefix):
            return of.get(f'holdfast_lock_{what}{{prefix="{prefix}"}}')
        assert figure(m, "grants_total", "jobs") == 4 and figure(m, "refused_total", "jobs") == 1 and figure(m, "unlocks_total", "jobs") == 1
        assert 0.3 <= figure(m, "wait_seconds_sum", "jobs") < 10 and figure(m, "wait_seconds_count", "jobs") == 4
        assert m['holdfast_lock_wait_seconds_bucket{prefix="jobs",le="+Inf"}'] == 4
        rows = [k for k in m if k.startswith("holdfast_lock_grants_total")]
        assert len(rows) == 33, len(rows)
        assert sum(m[k] for k in rows) == 43 and figure(m, "grants_total", "other") == 43 - 4 - 31
        assert figure(n, "grants_total", "jobs/night") == 2 and figure(n, "grants_total", "jobs/") == 2 and figure(n, "grants_total", "other") == 39


@test(own=True)
def holds_have_durations_by_what_ended_them(server):
    def figures(cell):
        """(prefix, end, count | sum | bucket of at most a second): of all replicas together."""
        out = collections.Counter()
        for r in cell.running():
            for k, v in metrics_of(r.url).items():
                m = re.fullmatch(r'holdfast_lock_hold_seconds_(count|sum|bucket)\{prefix="(.*)",end="(.*?)"(?:,le="(.*)")?\}', k)
                if m and m[4] in (None, "1.024"):
                    out[m[2], m[3], m[1]] += v
        return out

    with cells.Cell(server, 3) as cell:
        leader = cell.leader()
        follower = next(r for r in cell.replicas if r is not leader)
        with kit.Client(follower) as c:
            held = {name: c.take_lock(name, c.grant(ttl)) for name, ttl in
                    ((b"a/brief", 60), (b"a/long", 60), (b"a/dying", 1), (b"a/revoked", 60), (b"a/broken", 60), (b"b/deleted", 60), (b"c/over", 60))}
            c.unlock(held[b"a/brief"].key)
            c.revoke(held[b"a/revoked"].lease)
            c.locks.BreakHold(kit.v1.LocksBreakRequest(name=b"a/broken", fencing_token=held[b"a/broken"].fencing_token))
            c.delete(key=held[b"b/deleted"].key)
            c.election.Resign(kit.electionpb.ResignRequest(
                leader=c.election.Campaign(kit.electionpb.CampaignRequest(name=b"b/elected", lease=c.grant(60))).leader))
            waiting = c.ask_lock(b"a/long", c.grant(60))  # in vain: it has held nothing
            cells.wait_for("it waits", lambda: len(c.queue(b"a/long")) == 2)
            waiting.cancel()
            cells.wait_for("its place is gone", lambda: len(c.queue(b"a/long")) == 1)
            cells.wait_for("the lease has ended", lambda: figures(cell)["a", "expiry", "count"])
            c.unlock(held[b"a/long"].key)
            f = figures(cell)
            assert {k[:2]: v for k, v in f.items() if k[2] == "count"} == {
                ("a", "unlock"): 2, ("a", "expiry"): 1, ("a", "revoke"): 1, ("a", "break"): 1, ("b", "delete"): 1, ("b", "unlock"): 1}, f
            assert 1 <= f["a", "expiry", "sum"] <= f["a", "unlock", "sum"] < 60 and f["a", "expiry", "bucket"] == 0 and f["a", "unlock", "bucket"] <= 1, f
            assert [r for r in cell.replicas if any("lock_hold" in k for k in metrics_of(r.url))] == [leader], "told by another than who leads"

            # Who leads next knows since when it is held, and counts nothing of what was.
            leader.kill()
            cell.leader()
            c.unlock(held[b"c/over"].key)
            f = figures(cell)
            assert {k[:2]: v for k, v in f.items() if k[2] == "count"} == {("c", "unlock"): 1} and 1 <= f["c", "unlock", "sum"] < 60, f


# ---- HTTP ----

@test(own=True)
def metrics_on_a_port_of_their_own(server):
    with tempfile.TemporaryDirectory() as d:
        c, p, m, h = (f"http://127.0.0.1:{cells.free_port()}" for _ in range(4))
        with running(server, "--data-dir", f"{d}/x", "--listen-client-urls", c, "--listen-peer-urls", p, "--listen-metrics-urls", m,
                     "--listen-client-http-urls", h):
            cells.wait_for("it serves", lambda: serves(m), 20)
            assert "etcd_server_has_leader" in metrics_of(m)
            assert cells.http(m + "/v3/kv/range", "{}")[0] == 404, "methods, where only metrics should be"
            assert cells.http(h + "/v3/kv/range", '{"key":"YQ=="}')[0] == 200
            try:
                cells.http(c + "/health", timeout=2)
                raise AssertionError("HTTP, where only gRPC should be")
            except OSError:
                pass
            assert cells.etcdctl(c, "get", "a").returncode == 0


@test(own=True)
def web_pages_and_names(server):
    flags = ["--cors", "https://ok.example,https://fine.example", "--host-whitelist", "127.0.0.1,cell.example"]
    with cells.Cell(server, 1, flags=flags) as cell:
        url = cell.replicas[0].url

        def headers(**extra):
            with urllib.request.urlopen(urllib.request.Request(url + "/version", headers=extra), timeout=5) as r:
                return r.headers
        assert headers(Origin="https://ok.example")["Access-Control-Allow-Origin"] == "https://ok.example"
        assert headers(Origin="https://evil.example")["Access-Control-Allow-Origin"] is None
        assert headers()["Access-Control-Allow-Origin"] is None
        assert cells.http(url + "/version", headers={"Host": "cell.example:2379"})[0] == 200
        assert cells.http(url + "/version", headers={"Host": "evil.example"})[0] == 421
    with cells.Cell(server, 1, flags=["--enable-grpc-gateway=false"]) as cell:
        assert cells.http(cell.replicas[0].url + "/v3/kv/range", "{}")[0] == 404


@test()
def expect_chunked_and_head(server):
    with cells.Cell(server, 1) as cell:
        address = ("127.0.0.1", cell.replicas[0].client_port)
        body = b'{"key":"YQ==","value":"Yg=="}'
        head = b"POST /v3/kv/put HTTP/1.1\r\nHost: x\r\nConnection: close\r\n"
        chunked = b"".join(b"%x\r\n%s\r\n" % (len(p), p) for p in (body[:5], body[5:])) + b"0\r\n\r\n"
        got = raw(address, head + b"Transfer-Encoding: chunked\r\n\r\n" + chunked)
        assert b"200 OK" in got and b'"revision"' in got, got
        with socket.create_connection(address, timeout=10) as s:
            s.sendall(head + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % len(body))
            assert s.recv(100).startswith(b"HTTP/1.1 100"), "no word that the body may come"
            s.sendall(body)
            got = b""
            while part := s.recv(65536):
                got += part
            assert b"200 OK" in got and b'"revision"' in got, got
        got = raw(address, b"HEAD /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n")
        assert got.startswith(b"HTTP/1.1 200") and got.endswith(b"\r\n\r\n"), got[:200]


# ---- text for shells ----

@test(own=True)
def text_instead_of_base64(server):
    with cells.Cell(server, 1) as cell, kit.Client(cell.replicas[0]) as c:
        url = cell.replicas[0].url

        def call(path, body, by_header=False):
            status, text = cells.http(url + path + ("" if by_header else "?text=1"), json.dumps(body), headers={"Holdfast-Text": "1"} if by_header else None)
            return status, json.loads(text)
        for by_header in (False, True):
            status, reply = call("/v3/kv/put", {"key": "grüße", "value": "a \"b\" ☃", "prev_kv": True}, by_header)
            assert status == 200, reply
            status, reply = call("/v3/kv/range", {"key": "grüße"}, by_header)
            assert (reply["kvs"][0]["key"], reply["kvs"][0]["value"]) == ("grüße", "a \"b\" ☃"), reply
        assert c.kv.Range(kit.pb.RangeRequest(key="grüße".encode())).kvs[0].value == "a \"b\" ☃".encode()
        status, reply = call("/v3/lock/lock", {"name": "deploy"})
        assert status == 200 and re.fullmatch(r"deploy/[0-9a-f]+", reply["key"]), reply
        assert call("/v3/lock/unlock", {"key": reply["key"]})[0] == 200
        status, reply = call("/v3/kv/txn", {"compare": [{"key": "grüße", "target": "VALUE", "value": "a \"b\" ☃"}],
                                            "success": [{"request_put": {"key": "t", "value": "u"}}]})
        assert reply["succeeded"] is True, reply
        status, reply = call("/v3/kv/range", {"key": "\u0000", "range_end": "\u0000"})
        assert [kv["key"] for kv in reply["kvs"]] == ["grüße", "t"], reply
        # What is no text is told, and nothing is made up.
        c.kv.Put(kit.pb.PutRequest(key=b"bin", value=b"\xff\xfe"))
        status, reply = call("/v3/kv/range", {"key": "bin"})
        assert status == 412 and "UTF-8" in reply["message"], (status, reply)
        status, text = cells.http(url + "/v3/kv/range?text=1", b'{"key":"\xff"}')
        assert status == 400 and "UTF-8" in text, (status, text)
        status, reply = call("/v3/kv/put", {"key": "bin", "value": "now text", "prev_kv": True})
        assert status == 412 and "done" in reply["message"], (status, reply)
        assert call("/v3/kv/range", {"key": "bin"})[1]["kvs"][0]["value"] == "now text"
        # Streams too.
        first = int(call("/v3/kv/put", {"key": "w", "value": "eins"})[1]["header"]["revision"])
        c.kv.Put(kit.pb.PutRequest(key=b"w", value=b"\xff"))
        body = json.dumps({"create_request": {"key": "w", "start_revision": first}})
        got = raw(("127.0.0.1", cell.replicas[0].client_port), b"POST /v3/watch?text=1 HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s"
                  % (len(body), body.encode()))
        assert b"UTF-8" in got and b"grpc_code" in got, got


# ---- limits ----

def fill(c, keys, size):
    for i in range(keys):
        c.kv.Put(kit.pb.PutRequest(key=b"big/%04d" % i, value=os.urandom(size // 2).hex().encode()))


class Rss:
    """The most resident memory that a replica is seen to have."""

    def __init__(self, replica):
        self.replica, self.most, self.stop = replica, 0.0, kit.threading.Event()
        self.thread = kit.threading.Thread(target=self._look, daemon=True)
        self.thread.start()

    def _look(self):
        while not self.stop.wait(0.01):
            self.most = max(self.most, self.replica.rss_mb())

    def end(self):
        self.stop.set()
        self.thread.join()
        return self.most


@test(timeout=120, own=True)
def a_hundred_clients_that_range_over_everything_at_once(server):
    """20 MB each: 2 GB of replies, which stock etcd makes all at once. By gRPC and by JSON; twenty of them never read."""
    with cells.Cell(server, 1) as cell, kit.Client(cell.replicas[0]) as c:
        r = cell.replicas[0]
        fill(c, 200, 100000)
        rss = Rss(r)
        request = kit.pb.RangeRequest(**kit.EVERYTHING).SerializeToString()
        lengths, errors = [], []

        def by_grpc():
            with kit.grpc.insecure_channel(r.endpoint, kit.OPTIONS) as ch:
                try:
                    lengths.append(len(ch.unary_unary("/etcdserverpb.KV/Range")(request, timeout=60)))
                except kit.grpc.RpcError as e:
                    errors.append((e.code(), e.details()))

        def by_json():
            body = b'{"key":"AA==","range_end":"AA=="}'
            with socket.create_connection(("127.0.0.1", r.client_port), timeout=60) as s:
                s.sendall(b"POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
                first, n = b"", 0
                while part := s.recv(1 << 20):
                    first = first or part
                    n += len(part)
                if first.startswith(b"HTTP/1.1 429"):
                    errors.append((kit.grpc.StatusCode.RESOURCE_EXHAUSTED, "by JSON"))
                else:
                    lengths.append(n)
        idle = []
        for _ in range(20):
            s = socket.create_connection(("127.0.0.1", r.client_port))
            s.sendall(b"POST /v3/kv/range HTTP/1.1\r\nHost: x\r\nContent-Length: 33\r\n\r\n" + b'{"key":"AA==","range_end":"AA=="}')
            idle.append(s)
        threads = [kit.threading.Thread(target=f) for f in [by_grpc] * 50 + [by_json] * 30]
        for t in threads:
            t.start()
        # What is small goes on meanwhile.
        assert c.kv.Range(kit.pb.RangeRequest(key=b"big/0000")).count == 1
        # Those who never read hold their part of the budget until they go.
        cells.wait_for("those who do not read have their replies made", lambda: rss.most > 100, 30)
        for s in idle:
            s.close()
        for t in threads:
            t.join()
        most = rss.end()
        # Each is served, or told after a while that there was no room: how many, the machine decides.
        assert {code for code, _ in errors} <= {kit.grpc.StatusCode.RESOURCE_EXHAUSTED}, set(errors)
        assert len(lengths) + len(errors) == 80 and lengths, (len(lengths), len(errors))
        assert min(lengths) > 19000000, "an answer that was cut"
        assert metrics_of(r.url)['holdfast_refused_total{limit="range_bytes"}'] >= len(errors)
        by_grpc()
        assert len(lengths) + len(errors) == 81 and lengths[-1] > 19000000, "nobody is served any more"
        assert most < 900, f"{most:.0f} MB resident"


@test(own=True)
def one_connection_does_not_take_everything(server):
    """Calls of one connection are bounded; others go on, and what was refused is counted."""
    with cells.Cell(server, 1) as cell, kit.Client(cell.replicas[0]) as c, kit.Client(cell.replicas[0]) as other:
        c.lock.Lock(kit.lockpb.LockRequest(name=b"held"))
        lease = c.lease.LeaseGrant(kit.pb.LeaseGrantRequest(TTL=600)).ID
        waiting = [c.lock.Lock.future(kit.lockpb.LockRequest(name=b"held", lease=lease)) for _ in range(10100)]

        def refused():
            return [f for f in waiting if f.done()]
        cells.wait_for("some are refused", lambda: len(refused()) >= 100, 60)
        for f in refused():
            assert f.code() == kit.grpc.StatusCode.RESOURCE_EXHAUSTED, (f.code(), f.details())
        other.kv.Put(kit.pb.PutRequest(key=b"a", value=b"b"))
        assert metrics_of(cell.replicas[0].url)['holdfast_refused_total{limit="in_flight"}'] >= 100
        for f in waiting:
            f.cancel()
        cells.wait_for("and they count no more", lambda: c.kv.Put.future(kit.pb.PutRequest(key=b"a", value=b"c")).exception() is None, 30)


@test(timeout=200, full=True)
def watches_of_one_connection_are_bounded(server):
    """Over two streams; what is refused is counted, and another connection is not concerned."""
    with cells.Cell(server, 1) as cell, kit.Client(cell.replicas[0]) as c, kit.Client(cell.replicas[0]) as other:
        pb = kit.pb
        create = pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"k"))

        def watch(client, n):
            stream = kit.rpc_pb2_grpc.WatchStub(client.channel).Watch(itertools.chain(itertools.repeat(create, n), iter(hold.wait, True)))
            open_streams.append(stream)  # one that nobody holds is cancelled
            return sum(next(stream).canceled for _ in range(n))
        hold, open_streams = threading.Event(), []
        try:
            assert watch(c, 60_000) == 0
            assert watch(c, 40_010) == 10
            assert watch(other, 10) == 0
            assert metrics_of(cell.replicas[0].url)['holdfast_refused_total{limit="watches"}'] == 10
        finally:
            hold.set()
