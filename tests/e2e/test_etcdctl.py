"""etcdctl: Debian's, as people use it in a shell."""
import json
import os
import subprocess

import cells
from clients import Eye, etcdctl, etcdctl_env, etcdctl_talk, insist, unb64, wait_metric
from runner import test


def _counted(first):
    """Three keys written by etcdctl: a=1, b=2, c=3; the revision of the last."""
    for i, k in enumerate("abc"):
        etcdctl(first, "put", k, i + 1)


@test()
def get_put_and_del_with_their_options(server):
    with cells.Cell(server, 1) as cell:
        _counted(cell)
        assert etcdctl(cell, "get", "a") == "a\n1\n"
        assert etcdctl(cell, "get", "", "--prefix") == "a\n1\nb\n2\nc\n3\n"
        assert etcdctl(cell, "get", "a", "c") == "a\n1\nb\n2\n"
        assert etcdctl(cell, "get", "b", "--from-key") == "b\n2\nc\n3\n"
        assert etcdctl(cell, "get", "", "--prefix", "--limit=2") == "a\n1\nb\n2\n"
        assert etcdctl(cell, "get", "", "--prefix", "--order=DESCEND", "--keys-only") == "c\n\nb\n\na\n\n"
        assert etcdctl(cell, "put", "a", "9", "--prev-kv") == "OK\na\n1\n"
        assert etcdctl(cell, "get", "", "--prefix", "--sort-by=VALUE", "--print-value-only") == "2\n3\n9\n"
        assert etcdctl(cell, "get", "", "--prefix", "--sort-by=MODIFY", "--order=DESCEND", "--limit=1") == "a\n9\n"
        assert etcdctl(cell, "get", "", "--prefix", "--sort-by=CREATE", "--order=DESCEND", "--limit=1") == "c\n3\n"
        assert etcdctl(cell, "get", "", "--prefix", "--sort-by=VERSION", "--order=DESCEND", "--limit=1") == "a\n9\n"
        assert etcdctl(cell, "get", "a", "--rev=4") == "a\n1\n"
        assert etcdctl(cell, "get", "a", "--consistency=s") == "a\n9\n"
        assert etcdctl(cell, "--hex", "get", "a") == "\\x61\n\\x39\n"
        answer = json.loads(etcdctl(cell, "get", "", "--prefix", "-w", "json", "--limit=1"))
        assert answer["more"] and answer["count"] == 3 and answer["header"]["revision"] == 5 and unb64(answer["kvs"][0]["key"]) == "a", answer
        assert '"Key" : "a"' in etcdctl(cell, "get", "a", "-w", "fields")
        assert etcdctl(cell, "put", "a", "--ignore-value") == "OK\n" and etcdctl(cell, "get", "a") == "a\n9\n"
        code, text = etcdctl(cell, "put", "none", "--ignore-value", ok=False)
        assert code != 0 and "key not found" in text, text
        code, text = etcdctl(cell, "get", "a", "--rev=1000", ok=False)
        assert code != 0 and "future revision" in text, text
        assert etcdctl(cell, "del", "none") == "0\n"
        assert etcdctl(cell, "del", "a", "--prev-kv") == "1\na\n9\n"
        assert etcdctl(cell, "del", "", "--from-key") == "2\n"
        assert etcdctl(cell, "get", "", "--prefix") == ""
        big = subprocess.run(["etcdctl", f"--endpoints={cell.endpoints}", "put", "stdin"], input="from a pipe\n", env=etcdctl_env(),
                             text=True, capture_output=True, timeout=10, check=False)
        assert big.stdout == "OK\n" and etcdctl(cell, "get", "stdin", "--print-value-only") == "from a pipe\n\n", big


def _txn(cell, text):
    done = subprocess.run(["etcdctl", f"--endpoints={cell.endpoints}", "txn", "--interactive"], input=text, env=etcdctl_env(), text=True,
                          capture_output=True, timeout=10, check=False)
    assert done.returncode == 0, done.stderr
    lines = [line for line in done.stdout.splitlines() if line]
    return lines[lines.index("failure requests (get, put, del):") + 1:]


@test()
def txn_interactive(server):
    with cells.Cell(server, 1) as cell:
        _counted(cell)
        got = _txn(cell, 'value("a") = "1"\nversion("b") > "0"\n\nput a new\nget b\ndel c\n\nput a not\n\n')
        assert got == ["SUCCESS", "OK", "b", "2", "1"], got
        got = _txn(cell, 'create("c") != "0"\n\nput c again\n\nget a\nput fallen yes\n\n')
        assert got == ["FAILURE", "a", "new", "OK"], got
        got = _txn(cell, 'mod("a") < "6"\nver("a") = "2"\n\nget a\n\n\n')
        assert got == ["SUCCESS", "a", "new"], got


@test()
def watch_one_key_prefix_range_and_history(server):
    with cells.Cell(server, 1) as cell:
        _counted(cell)
        with etcdctl_talk(cell, "watch", "a", "--rev=1") as w:
            assert w.collect(3) == ["PUT", "a", "1"]
            etcdctl(cell, "put", "a", "2")
            etcdctl(cell, "del", "a")
            assert w.collect(6) == ["PUT", "a", "2", "DELETE", "a", ""]
            assert w.unread() == []
        with etcdctl_talk(cell, "watch", "--prefix", "", "--prev-kv", "--rev=4") as w:
            assert w.collect(3) == ["PUT", "c", "3"]
            assert w.collect(5) == ["PUT", "a", "1", "a", "2"]
            assert w.collect(5) == ["DELETE", "a", "2", "a", ""]
        with etcdctl_talk(cell, "watch", "b", "d", "--rev=2") as w:
            assert w.collect(6) == ["PUT", "b", "2", "PUT", "c", "3"]
        with etcdctl_talk(cell, "watch", "b", "--rev=2", "--", "sh", "-c", 'echo "$ETCD_WATCH_EVENT_TYPE $ETCD_WATCH_KEY=$ETCD_WATCH_VALUE at $ETCD_WATCH_REVISION"') as w:
            w.expect('^"?PUT"? "b"="2" at ')


@test(own=True)
def several_watches_in_one_interactive_session(server):
    with cells.Cell(server, 1) as cell, Eye(cell) as eye:
        with etcdctl_talk(cell, "watch", "--interactive") as w:
            w.say("watch --rev=2 one")
            w.say("watch --rev=2 --prefix many/")
            w.say("watch --rev=2 --prev-kv two")
            wait_metric(cell.replicas[0], "holdfast_watchers", 3)
            eye.put(b"one", b"1")
            assert w.collect(3) == ["PUT", "one", "1"]
            eye.put(b"many/x", b"2")
            assert w.collect(3) == ["PUT", "many/x", "2"]
            eye.put(b"two", b"3")
            assert w.collect(3) == ["PUT", "two", "3"]
            eye.put(b"two", b"4")
            assert w.collect(5) == ["PUT", "two", "3", "two", "4"]
            w.say("progress")
            w.expect("progress notify: 5")
        wait_metric(cell.replicas[0], "holdfast_watchers", 0)


@test()
def a_watch_goes_on_through_the_death_of_the_leader(server):
    with cells.Cell(server, 3) as cell:
        leader = cell.leader()
        others = [r for r in cell.replicas if r is not leader]
        # The leader's endpoint comes first and alone is connected to, so its death breaks the stream.
        with etcdctl_talk([leader, *others], "watch", "--prefix", "k/", "--rev=1") as w:
            for i in range(5):
                etcdctl(others, "put", f"k/{i}", i)
            for i in range(5):
                assert w.collect(3) == ["PUT", f"k/{i}", str(i)]
            leader.kill()
            with Eye(others[0]) as eye:
                for i in range(5, 10):
                    insist(lambda i=i: eye.put(b"k/%d" % i, b"%d" % i))
            for i in range(5, 10):
                assert w.collect(3) == ["PUT", f"k/{i}", str(i)], w.lines()
            assert w.unread() == []


@test()
def compaction_and_a_watch_from_what_is_compacted(server):
    with cells.Cell(server, 1) as cell:
        for i in range(5):
            etcdctl(cell, "put", "k", i)
        assert "compacted revision 5" in etcdctl(cell, "compaction", "5", "--physical")
        code, text = etcdctl(cell, "compaction", "4", ok=False)
        assert code != 0 and "required revision has been compacted" in text, text
        code, text = etcdctl(cell, "get", "k", "--rev=3", ok=False)
        assert code != 0 and "required revision has been compacted" in text, text
        assert etcdctl(cell, "get", "k", "--rev=5", "--print-value-only") == "3\n"
        with etcdctl_talk(cell, "watch", "k", "--rev=2") as w:
            w.expect("required revision has been compacted")
            w.wait(status=None)
        with etcdctl_talk(cell, "watch", "k", "--rev=5") as w:
            assert w.collect(6) == ["PUT", "k", "3", "PUT", "k", "4"]


@test()
def leases(server):
    with cells.Cell(server, 3) as cell:
        lease = etcdctl(cell, "lease", "grant", 3).split()[1]
        etcdctl(cell, "put", "mine", "1", f"--lease={lease}")
        text = etcdctl(cell, "lease", "timetolive", lease, "--keys")
        assert f"lease {lease} granted with TTL(3s), remaining(" in text and "attached keys([mine])" in text, text
        assert lease in etcdctl(cell, "lease", "list")
        leader = cell.leader()
        others = [r for r in cell.replicas if r is not leader]
        with etcdctl_talk([leader, *others], "lease", "keep-alive", lease) as alive:
            for _ in range(2):
                alive.expect(f"lease {lease} keepalived with TTL\\(3\\)")
            leader.kill()
            # Twice, so that one at least was sent after the death: the lease would be over by then.
            for _ in range(3):
                alive.expect(f"lease {lease} keepalived with TTL\\(3\\)")
            assert etcdctl(others, "get", "mine", "--print-value-only") == "1\n"
            etcdctl(others, "lease", "revoke", lease)
            alive.expect("expired or revoked")
        assert etcdctl(others, "get", "mine") == ""
        assert "already expired" in etcdctl(others, "lease", "timetolive", lease)


@test()
def lock_runs_a_command_and_the_next_waits(server):
    with cells.Cell(server, 3) as cell:
        gate = cell.dir / "gate"
        os.mkfifo(gate)
        leader = cell.leader()
        others = [r for r in cell.replicas if r is not leader]
        order = [leader, *others]
        with etcdctl_talk(order, "lock", "l", "--", "sh", "-c", f"echo first in $ETCD_LOCK_KEY; cat {gate}; echo first out") as first:
            key = first.expect("first in (l/[0-9a-f]+)")[1]
            with etcdctl_talk(order, "lock", "l", "--", "sh", "-c", "echo second in $ETCD_LOCK_KEY $ETCD_LOCK_REV") as second, Eye(others[0]) as eye:
                keys = eye.wait_queue(b"l", 2)
                assert keys[0].decode() == key
                leader.kill()
                insist(lambda: eye.put(b"alive"))
                assert eye.wait_queue(b"l", 2) == keys and second.lines() == [], "the lock did not survive the leader"
                gate.write_text("open\n")
                first.expect("first out")
                first.wait()
                got = second.expect("second in (.*) (.*)")
                assert got[1].encode() == keys[1], got
                second.wait()
                eye.wait_queue(b"l", 0)


@test()
def lock_holds_until_interrupted_and_passes_on_the_commands_status(server):
    with cells.Cell(server, 1) as cell, Eye(cell) as eye:
        with etcdctl_talk(cell, "lock", "l") as first:
            key = first.expect("^l/").string.encode()
            assert eye.queue(b"l") == [key]
            with etcdctl_talk(cell, "lock", "l", "--ttl=3") as second:
                keys = eye.wait_queue(b"l", 2)
                first.interrupt()
                assert second.expect("^l/").string.encode() == keys[1]
                second.kill()
                # Nobody keeps the second one's session alive: the lock is free after its 3 s.
                with etcdctl_talk(cell, "lock", "l", "--", "sh", "-c", "exit 7") as third:
                    third.expect("exit status 7")
                    third.wait(status=1)
        eye.wait_queue(b"l", 0)


@test()
def elect_and_observe(server):
    with cells.Cell(server, 3) as cell, Eye(cell) as eye:
        with etcdctl_talk(cell, "elect", "-l", "e") as observer:
            with etcdctl_talk(cell, "elect", "e", "one") as one:
                key = one.expect("^e/").string
                assert one.expect("").string == "one"
                assert observer.collect(2) == [key, "one"]
                with etcdctl_talk(cell, "elect", "e", "two") as two:
                    keys = eye.wait_queue(b"e", 2)
                    leader = cell.leader()
                    one.interrupt()
                    two.expect(keys[1].decode())
                    assert observer.collect(2) == [keys[1].decode(), "two"]
                    leader.kill()
                    with etcdctl_talk(cell, "elect", "e", "three") as three, Eye(next(r for r in cell.running())) as other:
                        last = cells.wait_for("the third", lambda: insist(lambda: other.queue(b"e"))[1:], 10)[0]
                        two.interrupt()
                        assert three.expect("^e/").string.encode() == last
                        assert observer.collect(2) == [last.decode(), "three"]


@test()
def members_status_and_health(server):
    with cells.Cell(server, 5) as cell:
        rows = [line.split(", ") for line in etcdctl(cell, "member", "list").splitlines()]
        assert sorted((r[2], r[1], r[3], r[4], r[5]) for r in rows) == sorted(
            (r.name, "started", r.peer_url, r.url, "false") for r in cell.replicas), rows
        status = json.loads(etcdctl(cell, "endpoint", "status", "-w", "json"))
        assert len(status) == 5 and len({s["Status"]["leader"] for s in status}) == 1, status
        assert [s["Endpoint"] for s in status if s["Status"]["header"]["member_id"] == s["Status"]["leader"]] == [cell.leader().endpoint]
        done = cells.etcdctl(cell.endpoints, "endpoint", "health", "--cluster")
        assert done.returncode == 0 and (done.stdout + done.stderr).count("is healthy") == 5, done
        cell.replicas[3].kill()
        done = cells.etcdctl(cell.endpoints, "endpoint", "health", "--command-timeout=1s", "--dial-timeout=500ms")
        assert done.returncode != 0 and (done.stdout + done.stderr).count("is healthy") == 4, done


@test()
def make_mirror_copies_one_cell_to_another(server):
    with cells.Cell(server, 1) as source, cells.Cell(server, 1) as mirror, Eye(source) as eye, Eye(mirror) as copy:
        eye.put(b"m/before", b"1")
        eye.put(b"other", b"no")
        with etcdctl_talk(source, "make-mirror", "--prefix", "m/", mirror.endpoints):
            cells.wait_for("the first key", lambda: copy.get(b"m/before"), 10)
            eye.put(b"m/after", b"2")
            eye.delete(b"m/before")
            cells.wait_for("the change", lambda: copy.get(b"m/after") and not copy.get(b"m/before"), 10)
            assert copy.get(b"other") is None
