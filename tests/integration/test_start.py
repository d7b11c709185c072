"""How a replica starts, refuses to start, and stops: flags, ports, signals, data directories."""
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import time

import cells
from kit import Client, KeepAliveStream, clients, grpc, insist, same_everywhere, wait_queue
from runner import is_full, test


def run(server, *args, timeout=20, cwd=None):
    """Runs the server to its end."""
    return subprocess.run([server, *map(str, args)], capture_output=True, text=True, timeout=timeout, check=False, stdin=subprocess.DEVNULL,
                          cwd=cwd)


def one_line(text):
    lines = text.strip().splitlines()
    assert len(lines) == 1, f"not one line: {lines}"
    return lines[0]


def solo_flags(directory, name="one"):
    client, peer = (f"http://127.0.0.1:{cells.free_port()}" for _ in range(2))
    return ["--name", name, "--data-dir", directory, "--listen-client-urls", client, "--advertise-client-urls", client,
            "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer, "--initial-cluster", f"{name}={peer}"], client


def start(server, *args, **kwargs):
    return cells.spawn([server, *args], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **kwargs)


def refused(server, *args, timeout=20):
    """Starts a replica that must not start. Returns the line that says why."""
    p = run(server, *args, timeout=timeout)
    assert p.returncode == 1, f"status {p.returncode}, not 1: {p.stdout} {p.stderr}"
    errors = [line for line in (p.stdout + p.stderr).splitlines() if re.search(r"\bERROR\b|^holdfastd:", line)]
    assert len(errors) == 1, f"not one line that says why: {p.stdout} {p.stderr}"
    return errors[0]


def healthy(url):
    try:
        return cells.http(url + "/health", timeout=1)[0] == 200
    except OSError:
        return False


# ---- flags ----

@test(own=True)
def help_and_version(server):
    for flag in ("--help", "-h"):
        p = run(server, flag)
        assert p.returncode == 0 and p.stderr == "", p
        for name in ("name", "data-dir", "listen-client-urls", "advertise-client-urls", "listen-peer-urls", "initial-advertise-peer-urls",
                     "initial-cluster", "initial-cluster-state", "initial-cluster-token", "heartbeat-interval", "election-timeout",
                     "snapshot-count", "log-level", "version", "help"):
            assert re.search(rf"^ *--{name}\b", p.stdout, re.M), f"--help says nothing of --{name}"
    p = run(server, "--version")
    assert p.returncode == 0 and re.match(r"holdfastd \d+\.\d+\.\d+", p.stdout) and len(p.stdout.splitlines()) == 1, p


@test(own=True)
def wrong_flags_are_one_line_and_status_2(server):
    wrong = [
        (["--no-such-flag", "x"], "no-such-flag"), (["--no-such-flag=x"], "no-such-flag"), (["--"], None), (["word"], "word"),
        (["--name"], "name"), (["--name="], "name"), (["--name", ""], "name"), (["--data-dir="], "data-dir"),
        (["--listen-client-urls", "nonsense"], "listen-client-urls"), (["--listen-client-urls", "http://127.0.0.1"], "listen-client-urls"),
        (["--listen-client-urls", "http://127.0.0.1:99999"], "listen-client-urls"), (["--listen-client-urls", ""], "listen-client-urls"),
        (["--listen-client-urls", "http://:0x10"], "listen-client-urls"), (["--listen-peer-urls", "ftp://127.0.0.1:1"], "listen-peer-urls"),
        (["--heartbeat-interval", "fast"], "heartbeat-interval"), (["--heartbeat-interval", "-1"], "heartbeat-interval"),
        (["--heartbeat-interval", "0"], "heartbeat-interval"), (["--heartbeat-interval", "99999999999999999999"], "heartbeat-interval"),
        (["--heartbeat-interval", "100ms"], "heartbeat-interval"), (["--heartbeat-interval", " 100 "], "heartbeat-interval"),
        (["--election-timeout", "200"], "election-timeout"), (["--election-timeout", ""], "election-timeout"),
        (["--snapshot-count", "0"], "snapshot-count"), (["--snapshot-count", "1e3"], "snapshot-count"),
        (["--initial-cluster-state", "maybe"], "initial-cluster-state"), (["--initial-cluster", "nonsense"], "initial-cluster"),
        (["--initial-cluster", "=http://127.0.0.1:1"], "initial-cluster"), (["--initial-cluster", "other=http://127.0.0.1:2380"], "initial-cluster"),
        (["--name", "a", "--initial-cluster", "a=http://127.0.0.1:7"], "initial-cluster"),
        (["--initial-cluster", ",".join(f"m{i}=http://127.0.0.1:{i + 1}" for i in range(40))], "initial-cluster"),
        (["--log-level", "loud"], "log-level"),
    ]
    with tempfile.TemporaryDirectory() as d:
        for args, word in wrong:
            p = run(server, *args, cwd=d, timeout=5)
            assert p.returncode == 2, f"{args}: status {p.returncode}: {p.stdout}{p.stderr}"
            line = one_line(p.stderr)
            assert p.stdout == "", f"{args}: says {p.stdout} on stdout"
            assert word is None or word in line, f"{args}: the line does not name it: {line}"
            assert os.listdir(d) == [], f"{args}: left {os.listdir(d)} behind"


@test(own=True)
def both_forms_of_flags_and_the_last_one_counts(server):
    with tempfile.TemporaryDirectory() as d:
        flags, client = solo_flags(pathlib.Path(d) / "data")
        pairs = list(zip(flags[::2], flags[1::2]))
        forms = [
            [x for f, v in pairs for x in (f, str(v))],
            [f"{f}={v}" for f, v in pairs],
            [f"{f[1:]}={v}" for f, v in pairs],  # one dash, as Go's flags allow
            ["--name=other", "--heartbeat-interval", "50"] + [f"{f}={v}" for f, v in pairs] + ["--heartbeat-interval=60"],
        ]
        for form in forms:
            p = start(server, *form)
            cells.wait_for(f"{form} serves", lambda: p.poll() is not None or healthy(client), 20)
            assert p.poll() is None, p.stdout.read()
            assert cells.end(p, signal.SIGTERM) == 0
        assert os.path.isdir(pathlib.Path(d) / "data")


@test(own=True)
def without_flags_the_data_lies_in_a_directory_named_after_the_member(server):
    with tempfile.TemporaryDirectory() as d:
        client, peer = (f"http://127.0.0.1:{cells.free_port()}" for _ in range(2))
        p = start(server, "--name", "me", "--listen-client-urls", client, "--listen-peer-urls", peer, cwd=d)
        cells.wait_for("it serves", lambda: healthy(client), 20)
        assert cells.end(p, signal.SIGTERM) == 0
        assert os.listdir(d) == ["me.holdfast"]


# ---- ports, signals ----

@test(own=True)
def a_port_in_use_is_a_clear_line_and_status_1(server):
    with cells.Cell(server, 1) as cell, tempfile.TemporaryDirectory() as d:
        taken = cell.replicas[0]
        flags, client = solo_flags(pathlib.Path(d) / "one")
        line = refused(server, *[taken.url if f == client else f for f in flags])
        assert str(taken.client_port) in line and "in use" in line, line
        flags, _ = solo_flags(pathlib.Path(d) / "two")
        peer = flags[flags.index("--listen-peer-urls") + 1]
        line = refused(server, *[str(f).replace(peer, taken.peer_url) for f in flags])
        assert str(taken.peer_port) in line and "in use" in line, line
        assert cell.replicas[0].healthy(), "it disturbed the one that has the port"


@test()
def sigterm_and_sigint_stop_cleanly_with_calls_open(server):
    for sig in (signal.SIGTERM, signal.SIGINT):
        with cells.Cell(server, 3) as cell, clients(cell) as cs:
            first, second = cs[0].grant(60), cs[0].grant(60)
            held = cs[0].take_lock(b"l", first)
            waits = [c.ask_lock(b"l", second) for c in cs]
            streams = [KeepAliveStream(c) for c in cs]
            for s in streams:
                assert s.ask(first).TTL == 60
            wait_queue(cs[0], b"l", 2)
            for r in cell.replicas:
                r.process.send_signal(sig)
            for r in cell.replicas:
                began = time.monotonic()
                status = r.process.wait(20)
                ok = (0,) if "holdfast" in server or "hf" in server else (0, -sig)
                assert status in ok, f"{r.name} ended with status {status}:\n{r.log_tail()}"
                assert time.monotonic() - began < 10
            for w in waits:
                assert isinstance(w.exception(10), grpc.RpcError), "a waiting call ended well while its replica stopped"
            for r in cell.replicas:
                r.start()
            cell.wait_ready()
            assert insist(lambda: cs[1].get(held.key)).lease == first, "the lock is gone"


@test(own=True)
def many_starts_and_stops(server):
    """Nothing is left behind that keeps the next start from working: ports, locks of directories."""
    with cells.Cell(server, 1) as cell, Client(cell.replicas[0]) as c:
        r = cell.replicas[0]
        for i in range(40 if is_full() else 12):
            revision = insist(lambda: c.put(b"n", b"%d" % i)).header.revision
            (r.kill if i % 3 == 0 else r.stop)()
            r.start()
            cell.wait_ready()
            kv = insist(lambda: c.get(b"n"))
            assert (kv.value, kv.mod_revision) == (b"%d" % i, revision)


@test(own=True)
def a_stop_right_after_the_start(server):
    with cells.Cell(server, 3, start=False) as cell:
        for i in range(10):
            for r in cell.replicas:
                r.start()
            for r in cell.replicas:
                # Its handlers are set once it logs anything; before that the signal's own effect is as good.
                cells.wait_for("it begins", lambda r=r: r.log_path.stat().st_size > 0 or not r.running(), 10, step=0.001)
                status = cells.end(r.process, signal.SIGTERM)
                assert status in (0, -signal.SIGTERM), f"status {status}:\n{r.log_tail()}"
        cell.start()


# ---- data directories ----

def filled_cell(server, size=1):
    cell = cells.Cell(server, size)
    with Client(cell.replicas[0]) as c:
        for i in range(300):
            c.put(b"k%03d" % i, b"marker-of-%03d-" % i + b"x" * 1000)
    return cell


@test(own=True)
def the_data_of_another_cell_is_refused(server):
    with filled_cell(server) as cell:
        r = cell.replicas[0]
        r.stop()
        cell.token = "another-cell"
        r.start()
        assert r.process.wait(20) == 1
        line = [x for x in r.log_tail(1).splitlines() if "ERROR" in x][0]
        assert "cell" in line and str(r.data_dir) in line, line
        cell.token = "test-cell"
        r.start()
        cell.wait_ready()
        with Client(r) as c:
            assert c.range(key=b"k", range_end=b"l").count == 300, "the refused start changed the data"


@test(own=True)
def the_data_of_another_member_is_refused(server):
    with cells.Cell(server, 3) as cell:
        a, b = cell.replicas[:2]
        for r in (a, b):
            r.stop()
        shutil.move(a.data_dir, cell.dir / "keep")
        shutil.copytree(b.data_dir, a.data_dir)
        a.start()
        assert a.process.wait(20) == 1
        line = [x for x in a.log_tail(1).splitlines() if "ERROR" in x][0]
        assert "member" in line and str(a.data_dir) in line, line
        shutil.rmtree(a.data_dir)
        shutil.move(cell.dir / "keep", a.data_dir)
        for r in (a, b):
            r.start()
        cell.wait_ready()
        same_everywhere(cell)


@test(own=True)
def a_second_process_on_the_same_data_is_refused(server):
    with filled_cell(server) as cell:
        r = cell.replicas[0]
        client, peer = (f"http://127.0.0.1:{cells.free_port()}" for _ in range(2))
        line = refused(server, "--name", r.name, "--data-dir", r.data_dir, "--listen-client-urls", client, "--listen-peer-urls", peer,
                       "--initial-advertise-peer-urls", r.peer_url, "--initial-cluster", f"{r.name}={r.peer_url}",
                       "--initial-cluster-token", cell.token)
        assert str(r.data_dir) in line, line
        with Client(r) as c:
            assert c.put(b"still", b"here") and c.range(key=b"k", range_end=b"l").count == 300


@test(own=True)
def an_existing_member_without_data_is_refused(server):
    with tempfile.TemporaryDirectory() as d:
        flags, _ = solo_flags(pathlib.Path(d) / "data")
        line = refused(server, *flags, "--initial-cluster-state", "existing")
        assert "data" in line, line
        assert not (pathlib.Path(d) / "data").exists() or not os.listdir(pathlib.Path(d) / "data")


@test(own=True)
def a_data_directory_that_cannot_be_used_is_refused(server):
    with tempfile.TemporaryDirectory() as d:
        file = pathlib.Path(d) / "file"
        file.write_text("not a directory")
        for where in (file, file / "below", pathlib.Path("/proc/no/such")):
            flags, _ = solo_flags(where)
            line = refused(server, *flags)
            assert str(where) in line, line
        strange = pathlib.Path(d) / "strange"
        (strange / "log").mkdir(parents=True)
        (strange / "log" / "data.mdb").write_bytes(b"no database" * 1000)
        flags, _ = solo_flags(strange)
        line = refused(server, *flags)
        assert str(strange) in line, line


def damage_value(path):
    """One bit of a value that was written: what no layout of the file notices."""
    data = bytearray(path.read_bytes())
    at = [m.start() for m in re.finditer(rb"marker-of-1[0-9][0-9]-", data)]
    assert at, "the values are not in the log's file"
    for i in at:
        data[i + 100] ^= 1
    path.write_bytes(data)


def damage_middle(path):
    """A stretch in the middle of the file, pages and all."""
    data = bytearray(path.read_bytes())
    middle = len(data) // 2
    for i in range(middle - 30000, middle + 30000, 7):
        data[i] ^= 0xff
    path.write_bytes(data)


def damage_half(path):
    """A disk that lost what was written last."""
    path.write_bytes(path.read_bytes()[:path.stat().st_size // 2])


def damage_zeros(path):
    data = bytearray(path.read_bytes())
    data[len(data) // 4:] = bytes(len(data) - len(data) // 4)
    path.write_bytes(data)


def damage_head(path):
    data = bytearray(path.read_bytes())
    data[:8192] = os.urandom(8192)
    path.write_bytes(data)


def refuses_damage(server, damage):
    with filled_cell(server) as cell:
        r = cell.replicas[0]
        r.stop()
        damage(r.data_dir / "log" / "data.mdb")
        r.start()
        # It may notice at once, or when it reads that far; either way it never answers.
        status = r.process.wait(20)
        assert status == 1, f"status {status}:\n{r.log_tail()}"
        lines = [x for x in r.log_tail(3).splitlines() if "ERROR" in x]
        assert lines and re.search(r"damaged|corrupt|cannot be trusted|replace", lines[-1]), r.log_tail()


@test(own=True)
def a_flipped_bit_in_the_log_is_refused(server):
    refuses_damage(server, damage_value)


@test(own=True)
def a_damaged_middle_of_the_log_is_refused(server):
    refuses_damage(server, damage_middle)


@test(own=True)
def a_truncated_log_is_refused(server):
    refuses_damage(server, damage_half)


@test(own=True)
def a_zeroed_log_is_refused(server):
    refuses_damage(server, damage_zeros)


@test(own=True)
def a_damaged_head_of_the_log_is_refused(server):
    refuses_damage(server, damage_head)


@test(own=True)
def a_damaged_snapshot_is_refused(server):
    with cells.Cell(server, 1, flags=["--snapshot-count", "50"]) as cell:
        r = cell.replicas[0]
        with Client(r) as c:
            for i in range(300):
                c.put(b"k%03d" % i, b"marker-of-%03d-" % i + b"x" * 1000)

        def snapshots():
            return [p for p in r.data_dir.rglob("data.mdb") if p.parent.name != "log"]
        cells.wait_for("a snapshot", snapshots, 10)
        r.stop()
        for p in snapshots():
            damage_value(p)
        r.start()
        status = r.process.wait(20)
        assert status == 1, f"status {status}:\n{r.log_tail()}"
        lines = [x for x in r.log_tail(3).splitlines() if "ERROR" in x]
        assert lines and re.search(r"damaged|corrupt|cannot be trusted|replace", lines[-1]), r.log_tail()


@test(own=True)
def a_wiped_member_is_refused_and_disturbs_nobody(server):
    """It comes back under its old ID with an empty disk: it may have voted and acknowledged before, and has forgotten it."""
    with filled_cell(server, 3) as cell:
        wiped = next(r for r in cell.replicas if r is not cell.leader())
        others = [r for r in cell.replicas if r is not wiped]
        with Client(cell.leader()) as c:
            leader, term = cell.leader(), c.status().raftTerm
            wiped.kill()
            shutil.rmtree(wiped.data_dir)
            wiped.start()
            status = wiped.process.wait(20)
            assert status == 1, f"status {status}:\n{wiped.log_tail()}"
            lines = [x for x in wiped.log_tail(4).splitlines() if "ERROR" in x]
            assert lines and "data directory" in lines[-1] and "add it anew" in lines[-1], wiped.log_tail()
            for i in range(3):  # a supervisor would start it again and again
                wiped.start()
                assert wiped.process.wait(20) == 1
            assert cell.leader() is leader and c.status().raftTerm == term, "it disturbed the cell"
            assert c.range(key=b"k", range_end=b"l").count == 300
            c.put(b"after", b"")
        same_everywhere(cell, others)


@test(own=True)
def a_wiped_member_does_not_make_a_majority(server):
    """One of three is down, a second one is wiped: what is left must not acknowledge anything."""
    with filled_cell(server, 3) as cell, clients(cell) as cs:
        leader = cell.leader()
        down, wiped = [r for r in cell.replicas if r is not leader]
        down.kill()
        wiped.kill()
        shutil.rmtree(wiped.data_dir)
        leader.kill()
        leader.start()
        wiped.start()
        with Client(leader) as c:
            try:
                c.put(b"x", b"", timeout=6)
                raise AssertionError("a wiped member voted, and a write was acknowledged")
            except grpc.RpcError as e:
                assert e.code().name in ("UNAVAILABLE", "DEADLINE_EXCEEDED"), e
        if wiped.running():
            wiped.kill()
        down.start()
        cell.wait_ready([leader, down])
        assert insist(lambda: cs[cell.replicas.index(down)].range(key=b"k", range_end=b"l")).count == 300
