"""libholdfast with real processes: the story that a lock service exists for, fail-over under many sessions, cached reads under leader kills, and every example."""
import math
import os
import signal
import sqlite3
import subprocess
import tempfile
import time
from pathlib import Path

import cached
import cells
import pki
import postgres
import relay
from lines import Lines, built
from runner import is_full, test

cells.stubs()
import grpc  # noqa: E402
from holdfast import v1_pb2 as v1, v1_pb2_grpc  # noqa: E402

FENCE_SQL = cells.TOP / "client-c" / "fence" / "fence.sql"


def places(replica, name):
    with grpc.insecure_channel(replica.endpoint, [("grpc.max_receive_message_length", -1)]) as ch:
        stub, found, after = v1_pb2_grpc.LocksStub(ch), 0, b""
        while True:
            r = stub.List(v1.LocksListRequest(prefix=name, after=after), timeout=10)
            found += sum(len(q.places) for q in r.locks)
            after = r.next
            if not after:
                return found


@test(own=True, timeout=200)
def a_leader_that_was_stopped_is_fenced_off(server):
    """2,000 contenders; the leader is stopped for longer than its TTL; exactly one waiter is woken, with a higher token; its first write raises the mark in
    PostgreSQL and in SQLite; the old leader wakes, its prepared write is refused by both, and its library says EXPIRED."""
    ttl, pause, processes, each = (12, 20, 4, 500) if is_full() else (4, 7, 4, 500)
    with postgres.Postgres() as pg, cells.Cell(server, 3) as cell:
        pg.run_file(FENCE_SQL)
        sql = pg.session()
        sql.run("CREATE TABLE guarded (owner bigint); INSERT INTO guarded VALUES (0)")
        file = cell.dir / "guarded.db"
        lite = sqlite3.connect(file)
        lite.executescript("PRAGMA journal_mode = WAL; CREATE TABLE guarded (owner INTEGER); INSERT INTO guarded VALUES (0)")
        psql = " ".join(a if "=" not in a else f"'{a}'" for a in pg.psql_args())

        def contender(sessions):
            return Lines([built(server, "tests/e2e/contender/contender"), cell.endpoints, "leader", sessions, ttl, file, psql])

        def owners():
            return lite.execute("SELECT owner FROM guarded").fetchone()[0], int(sql.run("SELECT owner FROM guarded")[0])

        old = contender(1)
        old_token = int(old.wait("granted").split()[2])
        assert old.ask("write", "wrote sqlite").endswith("ok")
        assert old.wait("wrote postgres").endswith("ok")
        waiters = [contender(each) for _ in range(processes)]
        for w in waiters:
            w.wait("open", 60)
        cells.wait_for("all queue", lambda: places(cell.replicas[0], b"leader") == 1 + processes * each, 60, step=0.2)
        assert not any(w.all("granted") for w in waiters)

        old.process.send_signal(signal.SIGSTOP)
        stopped = time.monotonic()
        holder = cells.wait_for("another leads", lambda: next((w for w in waiters if w.all("granted")), None), ttl + 15)
        new_token = int(holder.all("granted")[0].split()[2])
        assert new_token > old_token, f"token {new_token} after {old_token}"
        assert holder.ask("write", "wrote sqlite").endswith("ok")
        assert holder.wait("wrote postgres").endswith("ok")
        assert owners() == (new_token, new_token)

        # What the old one does next is to write: it does not look at the clock, the lock or anything before.
        since = len(old.lines)
        old.tell("write")
        time.sleep(max(0, pause - (time.monotonic() - stopped)))
        old.process.send_signal(signal.SIGCONT)
        assert old.wait("wrote sqlite", 30, since) == f"wrote sqlite {old_token} stale"
        assert old.wait("wrote postgres", 30, since) == f"wrote postgres {old_token} stale"
        old.wait("state 0 EXPIRED", 30)
        old.wait("lost 0", 5)
        assert old.ask("token", "token") == "token 0"
        assert owners() == (new_token, new_token)
        assert sum(len(w.all("granted")) for w in waiters) == 1, "more than one was woken"
        assert not any(w.all("state") or w.all("lost") or w.all("refused") for w in waiters)
        for w in [old, *waiters]:
            w.process.kill()


def counted(some):
    """SAFE now, ever in JEOPARDY, EXPIRED; the least time that any has left."""
    counts = [list(map(int, p.ask("counts", "counts").split()[1:])) for p in some]
    return [*(sum(c[i] for c in counts) for i in range(3)), min(c[3] for c in counts)]


def renewed(some, ttl, since):
    """By what was sent after that instant."""
    asked = time.monotonic()
    return counted(some)[3] > max(0, ttl * 990 - (asked - since) * 1000)


@test(own=True, timeout=200)
def no_session_is_lost_with_the_leader(server):
    """The leader is killed, then the next one stopped: every session is renewed by another, none has ended, and most were SAFE all the while."""
    sessions, ttl = (5000, 12) if is_full() else (400, 12)
    with cells.Cell(server, 3) as cell:
        some = [Lines([built(server, "tests/e2e/contender/contender"), cell.endpoints, "", sessions // 4, ttl, ""]) for _ in range(4)]

        for p in some:
            p.wait("open", 60)
        for harm, heal in ((cells.Replica.kill, cells.Replica.start), (cells.Replica.pause, cells.Replica.resume)):
            leader = cell.leader()
            began = time.monotonic()
            harm(leader)
            cells.wait_for("all are renewed", lambda since=began: renewed(some, ttl, since), 60, step=0.1)
            heal(leader)
            cell.wait_ready([leader])
        safe, jeopardy, expired, _ = counted(some)
        assert expired == 0, f"{expired} of {sessions} sessions were lost with the leader"
        assert jeopardy * 2 < sessions, f"{jeopardy} of {sessions} sessions were in jeopardy"
        assert safe == sessions, f"{safe} of {sessions} are safe"
        for p in some:
            p.tell("close")
            p.wait("closed", 60)
            assert p.end() == 0


@test(own=True, timeout=120)
def a_replica_that_is_cut_off_from_the_cell_is_left(server):
    """It lives, and says so, and that it has no leader: sessions go on at one that has."""
    ttl = 5
    with cells.Cell(server, 3, relays=True) as cell:
        p = Lines([built(server, "tests/e2e/contender/contender"), cell.endpoints, "", 40, ttl, ""])
        p.wait("open", 60)
        began = time.monotonic()
        cell.network.isolate(cell.leader())
        cells.wait_for("all are renewed", lambda: renewed([p], ttl, began), 60, step=0.1)
        safe, _, expired, _ = counted([p])
        assert (safe, expired) == (40, 0), f"{safe} are safe, {expired} have ended"
        cell.network.heal()
        cell.wait_ready()
        p.tell("close")
        p.wait("closed", 60)
        assert p.end() == 0


@test(own=True, timeout=300)
def cached_reads_are_never_stale(server):
    """Many sessions cache values that are written all the while, one of them all of them. Some of their processes are stopped for longer than their TTL, some
    are cut off, some are heard but hear nothing; leaders are killed and stopped."""
    each, keys, turns, ttl = (250, 4, 6, 5) if is_full() else (25, 16, 1, 3)
    with cells.Cell(server, 5) as cell:
        links = [relay.Client(cell.replicas) for _ in range(4)]
        readers = [cached.Cacher(server, cell, "read", each, 1500, ttl=ttl, keys=keys, endpoints=link.endpoints) for link in links]
        writer = cached.Cacher(server, cell, "write", 1200, keys=keys)
        for p in (writer, *readers):
            p.wait("open", 60)

        def calm():
            """Until all goes on: so many writes, so many reads from memory."""
            def so_far():
                return writer.counted()[0], sum(r.counted()[1] for r in readers)
            written, hits = so_far()
            cells.wait_for("writes and reads from memory", lambda: all(now >= least for now, least in zip(so_far(), (written + keys, hits + 500))), 60, step=0.2)

        def harm(stopped, isolated, deaf, seconds):
            readers[stopped % 4].process.send_signal(signal.SIGSTOP)
            links[isolated % 4].isolate()
            links[deaf % 4].deafen()
            time.sleep(seconds)
            readers[stopped % 4].process.send_signal(signal.SIGCONT)
            for link in links:
                link.heal()

        for turn in range(turns):
            calm()
            harm(turn, turn + 1, turn + 2, ttl + 1)
            calm()
            leader = cell.leader()
            (leader.pause if turn % 2 else leader.kill)()
            harm(turn + 2, turn + 3, turn + 1, 2.5)
            (leader.resume if turn % 2 else leader.start)()
            cell.wait_ready()
        calm()
        acknowledged, failed = writer.finish()
        counts = [r.finish() for r in readers]
        for link in links:
            link.close()
        reads, writes = cached.load(*(p.history for p in (writer, *readers)))
        wrong = cached.check(reads, writes)
        assert not wrong, f"{len(wrong)} reads are wrong: {wrong[:3]}"
        print(f"{acknowledged} writes, {len(reads)} reads, {sum(r.memory for r in reads)} of them from memory; hits, misses, failed, in jeopardy, expired: {counts}")
        assert failed == 0 and len(writes) == acknowledged
        assert any(c[4] for c in counts), "nobody was in jeopardy"


READ, WRITE = cached.Read, cached.Write
HISTORIES = [
    ("in order", True, [READ(0, 1, 0, 0, 1, False), READ(4, 5, 1, 0, 1, True), READ(9, 10, 2, 0, 1, True)]),
    ("older than a write", False, [READ(9, 10, 1, 0, 1, True)]),
    ("of another key", True, [READ(9, 10, 7, 1, 1, True)]),
    ("either one beside a write", True, [READ(6, 7, 1, 0, 1, True), READ(6, 7, 2, 0, 2, True)]),
    ("not back again", False, [READ(6, 7, 2, 0, 1, True), READ(7.5, 7.7, 1, 0, 2, True)]),
    ("of one that was never answered", True, [READ(21, 22, 3, 0, 1, False), READ(21, 22, 2, 0, 1, False)]),
    ("which stays once it was read", False, [READ(21, 22, 3, 0, 1, False), READ(23, 24, 2, 0, 1, True)]),
    ("before it was written", False, [READ(4, 5, 2, 0, 1, False)]),
    ("never written", False, [READ(30, 31, 4, 0, 1, False)]),
    ("there was something", False, [READ(4, 5, 0, 0, 1, True)]),
]


@test(own=True)
def what_is_stale_is_found_in_a_history(_):
    writes = [WRITE(2, 3, 1, 0), WRITE(5.5, 8, 2, 0), WRITE(20, math.inf, 3, 0), WRITE(0, 1, 7, 1)]
    for name, right, reads in HISTORIES:
        wrong = cached.check(reads, writes)
        assert (not wrong) == right, f"{name}: {wrong}"


EXAMPLES = {
    "lock": """held, with a token: yes
deposit: let in
an older one's deposit: stale fencing token: a later holder was here
given up: ok
closed: ok
""",
    "leader": """nobody leads
leads: host-a:80
the other's try: somebody else holds the lock
leads: host-a:81
members: 1, the first leads: yes
nobody leads
leads: host-b:80
""",
    "config": """/config/limit: there is none
/config/limit = 10, version 1
compare and set: ok
with an old version: the condition does not hold
/config/limit = 20, version 2
the watch fired, and the follower has 40
workers: 1
/config/limit = 40, version 3
most reads came from memory: yes
/config/limit: there is none
""",
    "cxx": """try: ok
fence: let in
""",
}


EXAMPLES["static"] = EXAMPLES["leader"]


@test(own=True, timeout=90)
def the_examples_do_what_they_say(server):
    with cells.Cell(server, 3) as cell:
        for name, want in EXAMPLES.items():
            r = subprocess.run([built(server, f"client-c/examples/example-{name}"), cell.endpoints], capture_output=True, text=True, timeout=40, check=False)
            assert r.returncode == 0 and r.stdout == want, f"{name}: status {r.returncode}\n{r.stdout}\n{r.stderr}"


@test(own=True, timeout=90)
def every_call_in_both_forms(server):
    """What each answers, when all is well and when it is asked for what cannot be; and a read from memory takes less than a microsecond of the processor."""
    with cells.Cell(server, 3) as cell:
        r = subprocess.run([built(server, "tests/e2e/calls/calls"), cell.endpoints], capture_output=True, text=True, timeout=80, check=False)
        hit, *rest = r.stdout.splitlines() or [""]
        assert r.returncode == 0 and rest == ["done"], f"status {r.returncode}\n{r.stdout}\n{r.stderr}"
        assert "HOLDFAST_TEST_CLIENTS" in os.environ or int(hit.split()[1]) < 1000, hit  # with sanitizers anything may take longer


@test(timeout=90)
def a_program_of_an_installed_library(server):
    """As an application is built: the flags from pkg-config, the headers and libraries from where they were installed."""
    with tempfile.TemporaryDirectory(prefix="holdfast-installed-") as folder:
        subprocess.run(["meson", "install", "-C", cells.TOP / "build", "--no-rebuild", "--quiet", "--destdir", folder], check=True, stdout=subprocess.DEVNULL)
        pc = next(Path(folder).rglob("holdfast.pc"))
        env = dict(os.environ, PKG_CONFIG_PATH=str(pc.parent), PKG_CONFIG_SYSROOT_DIR=folder)
        flags = subprocess.run(["pkg-config", "--cflags", "--libs", "holdfast", "holdfast-fence-sqlite", "sqlite3"], env=env, text=True, capture_output=True, check=True).stdout.split()
        assert next(Path(folder).rglob("man3/hf_lock.3"))
        for compiler, source in ((["cc", "-std=c99", "-pedantic"], "lock.c"), (["g++", "-std=c++11", "-pedantic"], "try.cc")):
            subprocess.run([*compiler, "-Wall", "-Wextra", "-Werror", "-D_POSIX_C_SOURCE=200809L", "-o", f"{folder}/{source}.out", cells.TOP / "client-c" / "examples" / source, *flags],
                           check=True)
        with cells.Cell(server, 1) as cell:
            env = dict(os.environ, LD_LIBRARY_PATH=str(pc.parent.parent))
            r = subprocess.run([f"{folder}/lock.c.out", cell.endpoints], env=env, capture_output=True, text=True, timeout=40, check=False)
            assert r.returncode == 0 and r.stdout == EXAMPLES["lock"], f"status {r.returncode}\n{r.stdout}\n{r.stderr}"


@test(own=True, timeout=60)
def a_hold_that_an_operator_breaks_is_told(server):
    with cells.Cell(server, 3) as cell:
        holder = Lines([built(server, "tests/e2e/contender/contender"), cell.endpoints, "l", 1, 10, ""])
        token = int(holder.wait("granted").split()[2])
        with grpc.insecure_channel(cell.replicas[1].endpoint) as ch:
            v1_pb2_grpc.LocksStub(ch).BreakHold(v1.LocksBreakRequest(name=b"l", fencing_token=token), timeout=10)
        assert "broken" in holder.wait("lost 0", 10)
        assert holder.ask("token", "token") == "token 0"
        assert not holder.all("state"), "the session lives on"
        holder.tell("close")
        assert holder.end() == 0


@test(own=True, timeout=90)
def a_client_with_a_user_under_tls(server):
    """Mutual TLS and users: a token is fetched, and fetched again when the cell has forgotten it; a wrong password is said."""
    with tempfile.TemporaryDirectory(prefix="holdfast-pki-") as folder:
        keys = pki.Pki(folder).cert("server").cert("peer").cert("alice").use("alice")
        with cells.Cell(server, 3, tls=keys, flags=keys.flags()) as cell:
            for args in (("user", "add", "root:secret"), ("user", "grant-role", "root", "root"), ("auth", "enable")):
                done = cells.etcdctl(",".join(r.url for r in cell.replicas), *args)
                assert done.returncode == 0, done.stderr
            os.environ.update(CONTENDER_CA=keys.path("ca.pem").read_text(), CONTENDER_CERT=keys.path("alice.pem").read_text(),
                              CONTENDER_KEY=keys.path("alice.key").read_text(), CONTENDER_USER="root", CONTENDER_PASSWORD="wrong")
            program = built(server, "tests/e2e/contender/contender")
            assert "not permitted" in Lines([program, cell.endpoints, "l", 1, 5, ""]).wait("failed 0", 20)
            os.environ["CONTENDER_PASSWORD"] = "secret"
            holder = Lines([program, cell.endpoints, "l", 1, 5, ""])
            token = holder.wait("granted", 20).split()[2]
            # Tokens live in the replicas' memory.
            for r in cell.replicas:
                r.kill()
                r.start()
                cell.wait_ready([r])
            assert holder.ask("unlock", "unlocked") == "unlocked ok"
            assert int(token) > 0 and not holder.all("state 0 EXPIRED")
            holder.tell("close")
            assert holder.end() == 0
