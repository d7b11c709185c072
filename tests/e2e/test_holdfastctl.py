"""holdfastctl: every command against cells of real processes, and what a lock promises when things break."""
import json
import os
import pathlib
import signal
import subprocess
import sys
import time

import cells
from clients import Eye, Talk, Terminal, insist, where
from runner import test

CTL = pathlib.Path(os.environ.get("HOLDFASTCTL", cells.TOP / "build" / "client-c" / "holdfastctl"))
DONE, FAILED, USAGE, NO_ANSWER, LOST, HELD, NOT_RUN, CANNOT_RUN, NOT_FOUND = 0, 1, 2, 3, 123, 124, 125, 126, 127


def _env(target):
    return dict(os.environ, HOLDFAST_ENDPOINTS=where(target))


def ctl(target, *args, code=DONE, timeout=30, stdin=None):
    """(standard output, standard error) of a command that ends with that code."""
    done = subprocess.run([CTL, *map(str, args)], env=_env(target), text=True, capture_output=True, timeout=timeout, check=False,
                          input=stdin if stdin is not None else "")
    assert done.returncode == code, f"{args} ended with {done.returncode}, not {code}: {done.stdout}{done.stderr}"
    assert code in (DONE,) or len(done.stderr.splitlines()) <= 2, done.stderr
    return done.stdout, done.stderr


def out(target, *args, **kwargs):
    return ctl(target, *args, **kwargs)[0]


def talk(target, *args):
    return Talk([CTL, *args], env=_env(target))


def told(text):
    """(token, lease) of what a holder says."""
    words = text.split()
    return int(words[words.index("token") + 1]), words[words.index("lease") + 1]


def alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="ascii") as f:
            return f.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def takes_signals(pid):
    """Whether it has begun to take SIGINT by itself."""
    with open(f"/proc/{pid}/status", encoding="ascii") as f:
        return next(int(line.split()[1], 16) for line in f if line.startswith("SigBlk")) >> (signal.SIGINT - 1) & 1


def read_when_written(path):
    return cells.wait_for(f"something in {path.name}", lambda: path.exists() and path.read_text().endswith("\n") and path.read_text().split(), 10)


# ---- keys, leases, members -------------------------------------------------------------------------------------------------------

@test()
def keys(server):
    with cells.Cell(server, 1) as c:
        for i, k in enumerate("abc"):
            assert out(c, "put", k, i + 1) == "OK\n"
        assert out(c, "get", "a") == "a\n1\n"
        assert out(c, "get", "none") == ""
        assert out(c, "get", "", "--prefix") == "a\n1\nb\n2\nc\n3\n"
        assert out(c, "get", "a", "c") == "a\n1\nb\n2\n"
        assert out(c, "get", "b", "--from-key", "--keys-only") == "b\nc\n"
        assert out(c, "get", "", "--prefix", "--limit", 2, "--values-only") == "1\n2\n"
        assert out(c, "get", "", "--prefix", "--count-only") == "3\n"
        assert out(c, "get", "", "--prefix", "--order", "desc", "--keys-only") == "c\nb\na\n"
        assert out(c, "put", "a", "9", "--prev-kv") == "OK\na\n1\n"
        assert out(c, "get", "", "--prefix", "--sort=value", "--values-only") == "2\n3\n9\n"
        assert out(c, "get", "", "--prefix", "--sort=mod", "--order=desc", "--limit=1") == "a\n9\n"
        assert out(c, "get", "a", "--rev", 4) == "a\n1\n"
        assert out(c, "get", "a", "--local") == "a\n9\n"
        assert out(c, "put", "a", "--ignore-value") == "OK\n" and out(c, "get", "a") == "a\n9\n"
        assert out(c, "put", "offset", "--", "-5") == "OK\n" and out(c, "get", "offset", "--values-only") == "-5\n"
        assert out(c, "put", "piped", stdin="from\na pipe\n") == "OK\n" and out(c, "get", "piped", "--values-only") == "from\na pipe\n"
        assert out(c, "del", "none") == "0\n"
        assert out(c, "del", "a", "--prev-kv") == "1\na\n9\n"
        assert out(c, "del", "b", "d") == "2\n"
        assert out(c, "del", "", "--prefix") == "2\n"
        # Errors say what, where and why, in one line.
        text = ctl(c, "get", "a", "--rev", 1000, code=FAILED)[1]
        assert text == f"holdfastctl: cannot get 'a', asked of {c.endpoints}: etcdserver: mvcc: required revision is a future revision\n", text
        assert "exclude each other" in ctl(c, "get", "a", "b", "--prefix", code=USAGE)[1]
        assert "a key is not empty" in ctl(c, "get", "", code=USAGE)[1]
        assert "key not found" in ctl(c, "put", "none", "--ignore-value", code=FAILED)[1]


@test()
def forms_of_output_and_hex(server):
    with cells.Cell(server, 1) as c, Eye(c) as eye:
        eye.put(b"t", "gr\u00fcn \"x\"\n".encode())
        eye.put(b"\xff\x00", b"\x80")
        answer = json.loads(out(c, "get", "", "--prefix", "-o", "json"))
        assert [(kv["key"], kv["value"]) for kv in answer["kvs"]] == [("t", "gr\u00fcn \"x\"\n"), ({"hex": "ff00"}, {"hex": "80"})], answer
        assert answer["count"] == "2" and answer["more"] is False and answer["kvs"][0]["lease"] == "0", answer
        assert "kvs.0.key: \"t\"\n" in out(c, "get", "t", "--output=fields")
        lines = out(c, "get", "t", "-o", "table").splitlines()
        assert lines[0].split() == ["key", "create_revision", "mod_revision", "version", "value", "lease"] and lines[1].startswith("t "), lines
        assert out(c, "--hex", "get", "ff00") == "ff00\n80\n"
        assert out(c, "--hex", "put", "00", "c0ffee") == "OK\n" and eye.get(b"\0").value == b"\xc0\xff\xee"
        assert out(c, "--hex", "put", "01", stdin="beef\n") == "OK\n" and eye.get(b"\1").value == b"\xbe\xef"
        assert "hexadecimal" in ctl(c, "--hex", "get", "xyz", code=USAGE)[1]
        assert json.loads(out(c, "--hex", "get", "00", "-o", "json"))["kvs"][0]["value"] == "c0ffee"


@test()
def transactions_and_compaction(server):
    with cells.Cell(server, 1) as c:
        text = 'version("a") = "0"\n\nput a "1 2"\nget none\ndel none\n\nget a\n'
        assert out(c, "txn", stdin=text) == "SUCCESS\nOK\n0\n"
        assert out(c, "txn", stdin=text) == "FAILURE\na\n1 2\n"
        assert json.loads(out(c, "txn", "-o", "json", stdin=text))["responses"][0]["response_range"]["kvs"][0]["value"] == "1 2"
        assert "line 1: a compare is written" in ctl(c, "txn", stdin="a = b\n", code=USAGE)[1]
        for i in range(4):
            out(c, "put", "k", i)
        assert out(c, "compact", 5) == "compacted at revision 5\n"
        assert "has been compacted" in ctl(c, "compact", 4, code=FAILED)[1]
        assert "not a number" in ctl(c, "compact", "x", code=USAGE)[1]
        assert "is compacted" in ctl(c, "watch", "k", "--rev", 2, code=FAILED)[1]


@test()
def watches(server):
    with cells.Cell(server, 3) as c, Eye(c) as eye:
        for k in (b"a", b"b", b"c"):
            eye.put(k, k.upper())
        assert out(c, "watch", "a", "--rev", 1, "--events", 1) == "PUT\na\nA\n"
        assert out(c, "watch", "b", "d", "--rev=1", "--events=2") == "PUT\nb\nB\nPUT\nc\nC\n"
        answer = json.loads(out(c, "watch", "", "--prefix", "--rev", 2, "--events", 1, "-o", "json"))
        assert answer["events"][0]["kv"]["key"] == "a" and len(answer["events"]) == 1, answer
        leader = c.leader()
        order = [leader, *[r for r in c.replicas if r is not leader]]
        with talk(order, "watch", "k/", "--prefix", "--rev", 1, "--prev-kv") as w, Eye(order[1]) as other:
            for i in range(3):
                other.put(b"k/%d" % i, b"%d" % i)
            for i in range(3):
                assert w.collect(3) == ["PUT", f"k/{i}", str(i)]
            leader.kill()
            insist(lambda: other.put(b"k/3", b"3"))
            other.delete(b"k/0")
            assert w.collect(3) == ["PUT", "k/3", "3"]
            assert w.collect(5) == ["DELETE", "k/0", "0", "k/0", ""]
            assert w.unread() == []
            w.process.send_signal(signal.SIGINT)
            w.wait(status=130)


@test()
def leases(server):
    with cells.Cell(server, 3) as c, Eye(c) as eye:
        lease = out(c, "lease", "grant", "3s").split()[1]
        assert out(c, "lease", "grant", 60, "--id", "1f") == "lease 1f granted with TTL(60s)\n"
        assert out(c, "put", "mine", "1", "--lease", lease) == "OK\n"
        assert sorted(out(c, "lease", "list").split()) == sorted([lease, "1f"])
        text = out(c, "lease", "ttl", lease, "--keys")
        assert f"lease {lease} granted with TTL(3s), remaining(" in text and text.endswith("\nmine\n"), text
        assert out(c, "lease", "keep-alive", lease, "--once") == f"lease {lease} renewed with TTL(3s)\n"
        leader = c.leader()
        order = [leader, *[r for r in c.replicas if r is not leader]]
        with talk(order, "lease", "keep-alive", lease) as k:
            k.expect("renewed with TTL\\(3s\\)")
            leader.kill()
            time.sleep(4)  # more than its TTL
            k.expect("renewed")
            with Eye(order[1]) as other:
                assert other.get(b"mine")
            assert out(order[1:], "lease", "revoke", lease) == f"lease {lease} revoked\n"
            k.expect(f"lease {lease} has ended")
            k.wait(status=FAILED)
        assert out(order[1:], "lease", "ttl", lease) == f"lease {lease} has ended\n"
        assert "not found" in ctl(order[1:], "lease", "revoke", lease, code=FAILED)[1]
        assert "is not a lease ID" in ctl(c, "lease", "ttl", "xyz", code=USAGE)[1]
        assert json.loads(out(order[1:], "lease", "list", "-o", "json"))["leases"] == [{"ID": "31"}]
        del eye


@test(own=True)
def members_and_endpoints(server):
    with cells.Cell(server, 3) as c:
        rows = [line.split(", ") for line in out(c, "member", "list").splitlines()]
        assert sorted((r[2], r[1], r[3], r[4], r[5]) for r in rows) == sorted((r.name, "started", r.peer_url, r.url, "false") for r in c.replicas)
        assert len(out(c, "member", "list", "-o", "table").splitlines()) == 4
        status = json.loads(out(c, "endpoint", "status", "-o", "json"))
        assert [s["endpoint"] for s in status] == c.endpoints.split(",") and len({s["reply"]["leader"] for s in status}) == 1, status
        assert sorted(line.split(", ")[4] for line in out(c, "endpoint", "status").splitlines()) == ["follower", "follower", "leader"]
        assert out(c.replicas[0], "endpoint", "health", "--cluster").count("is healthy") == 3
        out(c, "put", "k", "1")
        assert len({line.split(", ")[1] for line in out(c, "endpoint", "hashkv", "--rev", 2).splitlines()}) == 1
        assert [s["reply"]["hash_revision"] for s in json.loads(out(c, "endpoint", "hashkv", "--rev", 2, "-o", "json"))] == ["2"] * 3
        added = out(c, "member", "add", "http://127.0.0.1:9", "--learner")
        new = added.split()[2]
        assert "as a learner" in added and f"{c.replicas[0].name}={c.replicas[0].peer_url}" in added and "NAME=http://127.0.0.1:9" in added, added
        assert out(c, "member", "update", new, "http://127.0.0.1:10") == f"updated member {new}\n"
        assert f"{new}, unstarted, , http://127.0.0.1:10, , true\n" in out(c, "member", "list")
        error = ctl(c, "member", "promote", new, code=FAILED)[1]
        assert "in sync with leader" in error and "never been started" in error, error
        assert out(c, "member", "remove", new).startswith(f"removed member {new}") and len(out(c, "member", "list").splitlines()) == 3
        heir = c.replicas[2 if c.leader() is c.replicas[0] else 0]
        heirs = next(r[0] for r in rows if r[2] == heir.name)
        assert out(c, "move-leader", heirs) == f"member {heirs} leads\n"
        cells.wait_for("it leads", lambda: c.leader() is heir, 10)
        assert "no member's ID" in ctl(c, "move-leader", "x", code=USAGE)[1]
        c.replicas[1].kill()
        text, error = ctl(c, "endpoint", "health", "--timeout", "1s", code=NO_ANSWER)
        assert text.count("is healthy") == 2 and f"no answer from {c.replicas[1].endpoint}" in error, (text, error)
        assert len(out(c, "endpoint", "health", "--timeout", "1s", "-o", "table", code=NO_ANSWER).splitlines()) == 3
        began = time.monotonic()
        answer = json.loads(out(c, "endpoint", "health", "-o", "json", code=NO_ANSWER))
        assert time.monotonic() - began < 8, "one that is not there was waited for until the time was over"
        assert [s["ok"] for s in answer] == [True, False, True] and answer[1]["error"], answer


@test(own=True)
def endpoints_stand_in_for_each_other(server):
    with cells.Cell(server, 3) as c:
        dead = f"127.0.0.1:{cells.free_port()}"
        assert out(c, "put", "k", "1") == "OK\n"
        began = time.monotonic()
        assert out(f"{dead},{c.replicas[0].endpoint}", "get", "k") == "k\n1\n"
        assert time.monotonic() - began < 2
        # A leader that stands still accepts connections, and says nothing.
        leader = c.leader()
        order = [leader, *[r for r in c.replicas if r is not leader]]
        leader.pause()
        began = time.monotonic()
        assert out(order, "get", "k") == "k\n1\n"
        assert time.monotonic() - began < 9
        assert out(order, "put", "k", "2") == "OK\n"
        leader.resume()
        began = time.monotonic()
        text = ctl(dead, "get", "k", code=NO_ANSWER)[1]
        assert text == f"holdfastctl: cannot get 'k': no replica can be reached: {dead}: Connection refused\n" and time.monotonic() - began < 5, text
        ctl(dead, "get", "k", "--timeout", "500ms", code=NO_ANSWER)
        for bad in ("nonsense", "ftp://a:1", ""):
            ctl(c, "get", "k", "--endpoints", bad, code=USAGE)
        # A reader who has had enough is not an error to talk about; a full disk is.
        out(order, "put", "big", stdin="x" * 1000000)
        done = subprocess.run(["bash", "-c", f"{CTL} get big --values-only | head -c 1; echo ${{PIPESTATUS[0]}}"], env=_env(order), text=True,
                              capture_output=True, timeout=10, check=False)
        assert done.stdout == "x141\n" and done.stderr == "", done
        done = subprocess.run(f"{CTL} get k >/dev/full", shell=True, env=_env(c), capture_output=True, text=True, check=False)
        assert done.returncode == FAILED and "cannot write" in done.stderr, done


@test()
def help_man_page_and_completion(server):
    del server
    nobody = "127.0.0.1:1"
    everything = out(nobody, "--help")
    assert everything == out(nobody, "help") and "exit codes" in everything
    commands = [line[2:26].strip() for line in everything.partition("commands:\n")[2].partition("\n\n")[0].splitlines()]
    assert {"lock", "elect", "lease grant", "endpoint health"} <= set(commands), commands
    man = (cells.TOP / "docs" / "man" / "holdfastctl.1").read_text()
    assert man == out(nobody, "help", "--man"), "docs/man/holdfastctl.1 is old: make it by 'holdfastctl help --man'"
    for name in commands:
        text = out(nobody, "help", *name.split())
        assert text == out(nobody, *name.split(), "--help") and "\nexamples:\n  " in text and f"usage: holdfastctl {name}" in text, text
    assert "lease revoke" in out(nobody, "help", "lease") and "lease revoke" in out(nobody, "lease", "--help")
    assert "no command 'frob'" in ctl(nobody, "help", "frob", code=USAGE)[1]
    assert "needs to be told what" in ctl(nobody, "lease", code=USAGE)[1]
    assert "no command given" in ctl(nobody, code=USAGE)[1]
    assert out(nobody, "version").startswith("holdfastctl: ")

    def complete(line):
        words = line.split(" ")
        script = (f"source {cells.TOP / 'client-c' / 'bash-completion' / 'holdfastctl'}; COMP_WORDS=({' '.join(w or chr(39) * 2 for w in words)}); "
                  f"COMP_CWORD={len(words) - 1}; _holdfastctl; printf '%s\\n' \"${{COMPREPLY[@]}}\"")
        return subprocess.run(["bash", "--norc", "-c", script], text=True, capture_output=True, check=True,
                              env=dict(os.environ, PATH=f"{CTL.parent}:{os.environ['PATH']}")).stdout.split()
    assert complete("holdfastctl lo") == ["lock", "locks"]
    assert set(complete("holdfastctl lease ")) >= {"grant", "revoke", "keep-alive", "ttl", "list"}
    assert complete("holdfastctl lock x --sh") == ["--shared"]
    assert complete("holdfastctl get -o ") == ["simple", "table", "json", "fields"]
    assert "--wait" not in complete("holdfastctl get --")


# ---- locks -----------------------------------------------------------------------------------------------------------------------

@test(own=True)
def a_lock_with_a_command(server):
    with cells.Cell(server, 1) as c, Eye(c) as eye:
        tokens = []
        for _ in range(3):
            text, error = ctl(c, "lock", "l", "--", "sh", "-c", "echo $HOLDFAST_LOCK $HOLDFAST_TOKEN $HOLDFAST_LEASE; exit 7", code=7)
            name, token, lease = text.split()
            assert name == "l" and told(error) == (int(token), lease), (text, error)
            tokens.append(int(token))
            assert eye.queue(b"l") == [] and eye.leases() == set()
        assert tokens == sorted(set(tokens)), tokens
        ctl(c, "lock", "l", "--", "sh", "-c", "kill -9 $$", code=128 + 9)
        assert "No such file" in ctl(c, "lock", "l", "--", "no-such-command", code=NOT_FOUND)[1].splitlines()[-1]
        assert "denied" in ctl(c, "lock", "l", "--", "/etc/passwd", code=CANNOT_RUN)[1].splitlines()[-1]
        assert out(c, "lock", "l", "--", "cat", stdin="in and out") == "in and out"
        ctl("127.0.0.1:1", "lock", "l", "--", "true", code=NOT_RUN)
        ctl("127.0.0.1:1", "lock", "l", code=NO_ANSWER)
        assert "exclude each other" in ctl(c, "lock", "l", "--try", "--wait", "1s", code=USAGE)[1]
        assert eye.leases() == set()


@test(own=True)
def held_by_somebody_else(server):
    with cells.Cell(server, 3) as c, Eye(c) as eye:
        with talk(c, "lock", "l", "--", "sleep", "60") as first:
            token, lease = told(first.expect("holding lock 'l'").string)
            began = time.monotonic()
            error = ctl(c, "lock", "l", "--try", "--", "true", code=HELD)[1]
            assert f"lock 'l' is held by lease {lease} with token {token} since 20" in error and error.endswith("; 0 waiting\n"), error
            assert time.monotonic() - began < 1.5
            refusal = json.loads(out(c, "lock", "l", "--try", "-o", "json", code=HELD))
            assert refusal["holder"]["fencing_token"] == str(token) and refusal["holder"]["lease"] == str(int(lease, 16)), refusal
            began = time.monotonic()
            ctl(c, "lock", "l", "--wait", "700ms", "--", "true", code=HELD)
            assert 0.7 <= time.monotonic() - began < 2.5
            ctl(c, "lock", "l", "--shared", "--wait", "0", code=HELD)
            assert len(eye.queue(b"l")) == 1 and len(eye.leases()) == 1, "a refused one left something behind"
            # One that waits gets it when it is free; one that is interrupted while it waits leaves nothing.
            with talk(c, "lock", "l", "--wait", "30s", "--", "true") as second, talk(c, "lock", "l") as third:
                eye.wait_queue(b"l", 3)
                third.process.send_signal(signal.SIGINT)
                third.wait(status=130)
                eye.wait_queue(b"l", 2)
                first.process.send_signal(signal.SIGTERM)
                assert told(second.expect("holding lock 'l'").string)[0] > token
                second.wait()
            first.wait(status=128 + 15)
        assert eye.queue(b"l") == [] and eye.leases() == set()
        with talk(c, "lock", "s", "--shared") as one, talk(c, "lock", "s", "--shared") as two:
            one.expect("holding lock 's'")
            two.expect("holding lock 's'")
            ctl(c, "lock", "s", "--try", code=HELD)


@test(own=True)
def a_lock_without_a_command(server):
    with cells.Cell(server, 1) as c, Eye(c) as eye:
        for sig in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            with talk(c, "lock", "l") as holder:
                token, lease = told(holder.expect("holding lock 'l'").string)
                assert eye.queue(b"l") == [b"l/" + lease.encode()] and token == eye.get(b"l/" + lease.encode()).create_revision
                holder.process.send_signal(sig)
                holder.wait()
            assert eye.queue(b"l") == [] and eye.leases() == set(), sig
        with talk(c, "lock", "l", "-o", "json") as holder:
            answer = json.loads(holder.expect("fencing_token").string)
            assert answer["key"].startswith("l/") and answer["ttl"] == "12", answer


@test(own=True, timeout=120)
def a_lock_outlives_its_leader(server):
    with cells.Cell(server, 3) as c:
        gate = c.dir / "gate"
        os.mkfifo(gate)
        leader = c.leader()
        others = [r for r in c.replicas if r is not leader]
        order = [leader, *others]
        with talk(order, "lock", "l", "--ttl", "4s", "--", "sh", "-c", f"cat {gate}; echo out") as first, Eye(others[0]) as eye:
            token = told(first.expect("holding lock 'l'").string)[0]
            with talk(order, "lock", "l", "--ttl", "4s", "--", "sh", "-c", "echo in $HOLDFAST_TOKEN") as second:
                keys_before = eye.wait_queue(b"l", 2)
                leader.kill()
                insist(lambda: eye.put(b"alive"))
                time.sleep(5)  # more than a TTL, so both must have renewed with the new leader
                assert eye.queue(b"l") == keys_before and second.lines() == [], second.lines()
                gate.write_text("open\n")
                first.expect("^out$")
                first.wait()
                assert int(second.expect("^in (.*)")[1]) > token
                second.wait()
                eye.wait_queue(b"l", 0)


@test(own=True, timeout=120)
def a_waiter_leaves_a_replica_that_stands_still(server):
    with cells.Cell(server, 3) as c:
        leader = c.leader()
        follower = next(r for r in c.replicas if r is not leader)
        order = [follower, *[r for r in c.replicas if r is not follower]]
        with talk(leader, "lock", "l", "--", "sleep", "60") as first, Eye(leader) as eye:
            first.expect("holding")
            with talk(order, "lock", "l", "--ttl", "6s", "--", "true") as second:
                eye.wait_queue(b"l", 2)
                follower.pause()
                time.sleep(7)  # more than the waiter's TTL
                assert len(eye.queue(b"l")) == 2
                first.process.send_signal(signal.SIGTERM)
                began = time.monotonic()
                second.expect("holding")
                second.wait()
                assert time.monotonic() - began < 5


# Says at each moment that it runs; ignores SIGTERM when told so.
_TICKER = """
import os, signal, sys, time
if sys.argv[2] == "stubborn":
    signal.signal(signal.SIGTERM, lambda *_: open(sys.argv[1] + ".term", "w").close())
f = open(sys.argv[1], "w")
f.write(f"{os.getpid()} {os.getppid()}\\n")
while True:
    f.write(f"{time.monotonic()}\\n")
    f.flush()
    time.sleep(0.01)
"""


def _last_tick(path):
    return float(path.read_text().split()[-1])


@test(own=True)
def a_command_never_outlives_the_lease(server):
    with cells.Cell(server, 1) as c:
        for manner in ("plain", "stubborn"):
            ticks = c.dir / f"ticks-{manner}"
            # A shell between, so that it is not the command itself that must be found and ended.
            with talk(c, "lock", "l", "--ttl", "3s", "--", "sh", "-c", f"{sys.executable} -c '{_TICKER}' {ticks} {manner}; true") as holder:
                holder.expect("holding")
                read_when_written(ticks)
                time.sleep(1.5)  # renewed at least once
                paused = time.monotonic()
                c.replicas[0].pause()
                holder.expect("lost lock 'l': the lease could not be renewed in time")
                # Every renewal was answered before the pause, so the lease may end 3 s after it; a plain command ends at SIGTERM, a quarter of the TTL before.
                last = _last_tick(ticks)
                assert last < paused + 3, f"{manner}: ran {last - paused:.2f} s after the pause"
                assert not alive(ticks.read_text().split()[0])
                assert (manner == "stubborn") == pathlib.Path(f"{ticks}.term").exists()
                c.replicas[0].resume()
                holder.wait(status=LOST)


@test(own=True)
def a_hold_that_is_broken_ends_the_command_at_once(server):
    with cells.Cell(server, 3) as c, Eye(c) as eye:
        for way in ("revoke", "delete"):
            ticks = c.dir / f"ticks-{way}"
            with talk(c, "lock", "l", "--", sys.executable, "-c", _TICKER, ticks, "stubborn") as holder:
                lease = told(holder.expect("holding").string)[1]
                read_when_written(ticks)
                ended = time.monotonic()
                if way == "revoke":
                    eye.revoke(int(lease, 16))
                else:
                    eye.delete(b"l/" + lease.encode())
                holder.expect("lost lock 'l'")
                holder.wait(status=LOST)
                assert _last_tick(ticks) - ended < 0.5
        with talk(c, "lock", "l") as holder:
            lease = told(holder.expect("holding").string)[1]
            eye.revoke(int(lease, 16))
            holder.expect("lost lock 'l'")
            holder.wait(status=LOST)


@test(own=True)
def a_hold_is_followed_past_a_compaction(server):
    with cells.Cell(server, 1) as c:
        with talk(c, "lock", "l", "--ttl", "20s") as holder:
            lease = told(holder.expect("holding").string)[1]
            key = b"l/" + lease.encode()
            holder.process.send_signal(signal.SIGSTOP)
            # Its streams break, and the history that it would go on with is forgotten.
            c.replicas[0].kill()
            c.replicas[0].start()
            c.wait_ready()
            with Eye(c) as eye:
                eye.compact(eye.put(key, b"another value", lease=int(lease, 16)))
                holder.process.send_signal(signal.SIGCONT)
                time.sleep(2)
                assert holder.unread() == [] and holder.process.poll() is None, holder.lines()
                eye.delete(key)
                holder.expect("lost lock 'l'", timeout=3)
                holder.wait(status=LOST)


@test(own=True)
def whoever_ends_it_the_lock_is_released(server):
    with cells.Cell(server, 1) as c, Eye(c) as eye:
        for sig in (signal.SIGHUP, signal.SIGTERM, signal.SIGINT):
            pid = c.dir / f"pid-{sig}"
            with talk(c, "lock", "l", "--", "sh", "-c", f"echo $$ > {pid}; trap 'exit 9' TERM; while :; do sleep 0.05; done") as holder:
                command = read_when_written(pid)[0]
                holder.process.send_signal(sig)
                holder.wait(status=9)
            assert not alive(command) and eye.queue(b"l") == [] and eye.leases() == set(), sig
        # One that does not listen to SIGTERM is killed 5 s later; a second signal is faster.
        with talk(c, "lock", "l", "--", "sh", "-c", f"trap '' TERM; echo $$ > {c.dir}/deaf; while :; do sleep 0.05; done") as holder:
            read_when_written(c.dir / "deaf")
            holder.process.send_signal(signal.SIGTERM)
            time.sleep(0.5)
            assert holder.process.poll() is None
            holder.process.send_signal(signal.SIGTERM)
            holder.wait(status=128 + 9, timeout=3)
        eye.wait_queue(b"l", 0, timeout=15)
        # kill -9 to holdfastctl: the command goes with it, and the lock with its lease.
        with talk(c, "lock", "l", "--ttl", "3s", "--", "sh", "-c", f"echo $$ > {c.dir}/orphan; exec sleep 60") as holder:
            command = read_when_written(c.dir / "orphan")[0]
            holder.process.kill()
            holder.wait(status=-9)
            cells.wait_for("the command's end", lambda: not alive(command), 2)
        eye.wait_queue(b"l", 0)


@test(own=True)
def it_stops_when_its_parent_dies(server):
    with cells.Cell(server, 1) as c, Eye(c) as eye:
        for run in ("", f"-- sh -c 'echo $$ > {c.dir}/command; exec sleep 60'"):
            parent = cells.spawn(["sh", "-c", f"{CTL} lock l {run} & echo $! > {c.dir}/ctl; wait"], env=_env(c), stdout=subprocess.DEVNULL)
            child = read_when_written(c.dir / "ctl")[0]
            eye.wait_queue(b"l", 1)
            if run:
                read_when_written(c.dir / "command")
            cells.end(parent, signal.SIGKILL)
            eye.wait_queue(b"l", 0, timeout=3)
            cells.wait_for("its end", lambda child=child: not alive(child), 3)
            (c.dir / "ctl").unlink()
        assert not alive((c.dir / "command").read_text().strip()) and eye.leases() == set()


@test(own=True)
def interrupts_work_at_any_time(server):
    dead = f"127.0.0.1:{cells.free_port()}"
    with cells.Cell(server, 1) as c:
        c.replicas[0].pause()
        for args in (("get", "k"), ("lock", "l"), ("elect", "e", "v"), ("watch", "k"), ("elect", "--observe", "e"), ("txn",), ("put", "k"),
                     ("lease", "keep-alive", "1f"), ("endpoint", "status")):
            for target in (c, dead):
                with talk(target, *args, "--timeout", "60s") as t:
                    cells.wait_for("its beginning", lambda t=t: takes_signals(t.process.pid))
                    time.sleep(0.1)
                    t.process.send_signal(signal.SIGINT)
                    began = time.monotonic()
                    t.wait(status=130)
                    # What may have made a lease tries to end it.
                    assert time.monotonic() - began < (6 if args[0] in ("lock", "elect") else 1), args
        c.replicas[0].resume()


@test(own=True)
def locks_can_be_seen_verified_and_broken(server):
    with cells.Cell(server, 3) as c, Eye(c) as eye:
        assert out(c, "locks", "list") == "" and out(c, "locks", "show", "l") == ""
        with talk(c, "lock", "l", "--", "sleep", "60") as first, talk(c, "lock", "long", "--shared") as one, talk(c, "lock", "long", "--shared") as two:
            token, lease = told(first.expect("holding").string)
            shared = sorted(told(t.expect("holding").string)[0] for t in (one, two))
            with talk(c, "lock", "l", "--", "sleep", "60") as second:
                eye.wait_queue(b"l", 2)
                rows = [line.split() for line in out(c, "locks", "show", "l").splitlines()]
                assert [r[:6] for r in rows] == [["l", "held", "exclusive", "token", str(token), "lease"], ["l", "waits", "exclusive", "token", rows[1][4], "lease"]], rows
                assert rows[0][6] == lease and rows[0][7] == "since" and rows[0][9] == "from" and rows[0][10].startswith("127.0.0.1:"), rows
                names = [line.split()[0] for line in out(c, "locks", "list").splitlines()]
                assert names == ["l", "l", "long", "long"], names
                assert [line.split()[0] for line in out(c, "locks", "list", "lo").splitlines()] == ["long", "long"]
                table = out(c, "locks", "list", "-o", "table").splitlines()
                assert len(table) == 5 and table[0].split() == ["name", "state", "mode", "token", "lease", "since", "client"], table
                answer = json.loads(out(c, "locks", "list", "-o", "json"))
                assert [q["name"] for q in answer["locks"]] == ["l", "long"] and answer["locks"][0]["places"][0]["fencing_token"] == str(token), answer
                assert out(c, "locks", "verify", "l", token).startswith("current")
                assert "has no hold with token" in ctl(c, "locks", "verify", "l", token + 1, code=LOST)[1]
                assert "not a number" in ctl(c, "locks", "verify", "l", "x", code=USAGE)[1]
                # Breaking passes it on, and the broken command ends at once.
                assert f"broken: hold of lock 'l' token {token} lease {lease}" in out(c, "locks", "break", "l")
                first.expect("lost lock 'l'")
                first.wait(status=LOST)
                assert told(second.expect("holding").string)[0] > token
                assert "has no hold with token" in ctl(c, "locks", "break", "l", token, code=FAILED)[1]
                assert str(shared[0]) in ctl(c, "locks", "break", "long", code=USAGE)[1]
                out(c, "locks", "break", "long", shared[0])
                assert [line.split()[4] for line in out(c, "locks", "show", "long").splitlines()] == [str(shared[1])]
                assert "nobody holds" in ctl(c, "locks", "break", "free", code=FAILED)[1]


@test(own=True)
def long_queues_come_in_parts(server):
    with cells.Cell(server, 1) as c, Eye(c) as eye:
        leases = eye.grant_many(600, 1200)
        asked = [eye.ask_lock(b"q", lease) for lease in leases]
        eye.wait_queue(b"q", len(leases), timeout=30)
        with talk(c, "lock", "qq") as holder:
            holder.expect("holding")
            assert len(out(c, "locks", "show", "q").splitlines()) == 1200
            assert len(out(c, "locks", "list").splitlines()) == 1201
            assert out(c, "locks", "show", "qq").count("\n") == 1
        for a in asked:
            a.cancel()


@test(own=True)
def in_a_terminal(server):
    with cells.Cell(server, 1) as c, Eye(c) as eye:
        def terminal(*args):
            return Terminal([CTL, *args], env=_env(c))
        with terminal("lock", "l", "--", "cat") as t:  # it reads what is typed
            t.expect("holding")
            t.type("hello\n")
            t.expect("^hello")
            t.expect("^hello")  # the terminal's echo, then cat's
            t.type("\x04")
            t.wait()
        with terminal("lock", "l", "--", "sh", "-c", "trap 'exit 5' INT TERM; echo ready; while :; do sleep 0.05; done") as t:
            t.expect("ready")
            t.type("\x1a")  # nobody holds a lock and stands still
            t.type("\x03")  # to all in the foreground: the command ends by that, or by holdfastctl's SIGTERM
            t.wait(status=5)
        with terminal("lock", "l") as holder:
            holder.expect("holding")
            with terminal("lock", "l", "--wait", "60s") as waiter:
                waiter.expect("^waiting for lock 'l'")
                eye.wait_queue(b"l", 2)
                waiter.hang_up()
                waiter.wait(status=128 + signal.SIGHUP)
                eye.wait_queue(b"l", 1)
            holder.hang_up()
            holder.wait(status=None)
            eye.wait_queue(b"l", 0, timeout=3)
        with terminal("snapshot", "save", c.dir / "backup") as t:
            t.expect("saving .*backup: [0-9.]+ of [0-9.]+ MB.*saved [0-9]+ bytes to")
            t.wait()
        assert "MB" not in "".join(ctl(c, "snapshot", "save", c.dir / "backup"))  # nobody looks
        with terminal("lock", "l", "--", "sh", "-c", "echo ready $$; sleep 60") as t:
            command = t.expect("ready ([0-9]+)")[1]
            t.hang_up()
            t.wait(status=None)
            assert not alive(command)
            eye.wait_queue(b"l", 0, timeout=3)
        assert eye.leases() == set()


# ---- elections -------------------------------------------------------------------------------------------------------------------

@test(own=True, timeout=120)
def elections(server):
    with cells.Cell(server, 3) as c:
        leader = c.leader()
        order = [leader, *[r for r in c.replicas if r is not leader]]
        with talk(order, "elect", "--observe", "e") as observer, Eye(order[1]) as eye:
            observer.expect("^vacant$")
            with talk(order, "elect", "e", "one") as one, talk(order[1:], "elect", "e", "two", "--ttl", "5s") as two:
                first = one if len(cells.wait_for("a leader", lambda: one.lines() or two.lines(), 10)) and one.lines() else two
                second = two if first is one else one
                token = told(first.expect("^leading 'e' token (.*) value '(one|two)'").string)[0]
                assert observer.expect("^leader token (.*) lease").string.split()[2] == str(token)
                eye.wait_queue(b"e", 2)
                error = ctl(order, "elect", "e", "three", "--try", code=HELD)[1]
                assert f"election 'e' is held by" in error and f"token {token}" in error and "1 waiting" in error, error
                leader.kill()
                insist(lambda: eye.put(b"alive"))
                assert first.unread() == [] and second.lines() == []
                first.process.send_signal(signal.SIGINT)
                first.wait()
                assert told(second.expect("^leading 'e'").string)[0] > token
                observer.expect("^leader token")
                second.process.send_signal(signal.SIGINT)
                second.wait()
                observer.expect("^vacant$")
        assert out(order[1:], "elect", "e", "four", "--", "sh", "-c", "echo $HOLDFAST_ELECTION").strip() == "e"
        assert "too few" in ctl(c, "elect", "e", code=USAGE)[1]
        assert "does not campaign" in ctl(c, "elect", "--observe", "e", "v", code=USAGE)[1]
