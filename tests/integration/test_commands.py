"""etcdctl, as it is, against cells of one, three and five; and what answers that a method is not there."""
import json
import re

import cells
from kit import Client, clients, raw_call
from runner import test


def ctl(cell, *args, **kwargs):
    p = cells.etcdctl(cell.endpoints, *args, **kwargs)
    assert p.returncode == 0, f"etcdctl {' '.join(map(str, args))}: status {p.returncode}: {p.stderr.strip()}"
    return p.stdout


def keys_and_transactions(cell):
    assert ctl(cell, "put", "a", "1") == "OK\n"
    assert ctl(cell, "put", "b", "2") == "OK\n"
    assert ctl(cell, "put", "a", "3", "--prev-kv") == "OK\na\n1\n"
    assert ctl(cell, "get", "a") == "a\n3\n"
    assert ctl(cell, "get", "", "--prefix", "--keys-only").split() == ["a", "b"]
    assert ctl(cell, "get", "a", "z", "-w", "fields").count('"Count" : 2') == 1
    txn = ctl(cell, "txn", input='value("a") = "3"\n\nput c 4\nget a\n\nput c 5\n\n')
    assert txn.startswith("SUCCESS") and "a\n3" in txn, txn
    txn = ctl(cell, "txn", input='version("c") > "1"\n\nput d 1\n\ndel c\n\n')
    assert txn.startswith("FAILURE"), txn
    assert ctl(cell, "get", "c") == ""
    assert ctl(cell, "del", "b") == "1\n"
    assert ctl(cell, "del", "--prefix", "nothing") == "0\n"


def compaction(cell):
    revision = json.loads(ctl(cell, "get", "a", "-w", "json"))["header"]["revision"]
    assert ctl(cell, "compaction", revision) == f"compacted revision {revision}\n"
    p = cells.etcdctl(cell.endpoints, "get", "a", "--rev", revision - 1)
    assert p.returncode != 0 and "required revision has been compacted" in p.stderr, p
    assert ctl(cell, "get", "a", "--rev", revision) == "a\n3\n"
    p = cells.etcdctl(cell.endpoints, "compaction", revision)
    assert p.returncode != 0 and "required revision has been compacted" in p.stderr, p


def leases(cell):
    lease = re.fullmatch(r"lease ([0-9a-f]{1,16}) granted with TTL\(60s\)\n", ctl(cell, "lease", "grant", 60)).group(1)
    assert ctl(cell, "put", "--lease", lease, "leased", "x") == "OK\n"
    assert f"lease {lease} keepalived with TTL(60)" in ctl(cell, "lease", "keep-alive", "--once", lease)
    told = ctl(cell, "lease", "timetolive", "--keys", lease)
    assert re.fullmatch(rf"lease {lease} granted with TTL\(60s\), remaining\((59|60)s\), attached keys\(\[leased\]\)\n", told), told
    assert ctl(cell, "lease", "list") == f"found 1 leases\n{lease}\n"
    assert ctl(cell, "lease", "revoke", lease) == f"lease {lease} revoked\n"
    assert ctl(cell, "get", "leased") == ""
    assert "already expired" in ctl(cell, "lease", "timetolive", lease)
    assert ctl(cell, "lease", "list") == "found 0 leases\n"


def members(cell):
    size = len(cell.replicas)
    listed = json.loads(ctl(cell, "member", "list", "-w", "json"))["members"]
    assert {m["name"] for m in listed} == {r.name for r in cell.replicas}, listed
    for m in listed:
        r = next(r for r in cell.replicas if r.name == m["name"])
        assert m["peerURLs"] == [r.peer_url] and m["clientURLs"] == [r.url], m
    status = json.loads(ctl(cell, "endpoint", "status", "-w", "json"))
    assert len(status) == size
    leaders = {s["Status"]["leader"] for s in status}
    assert len(leaders) == 1 and leaders <= {m["ID"] for m in listed}, f"leaders {leaders}"
    assert {s["Status"]["header"]["member_id"] for s in status} == {m["ID"] for m in listed}
    assert len({s["Status"]["header"]["cluster_id"] for s in status}) == 1
    assert all(re.fullmatch(r"3\.\d+\.\d+", s["Status"]["version"]) for s in status), status
    assert all(s["Status"]["raftTerm"] > 0 and s["Status"]["raftIndex"] > 0 for s in status), status
    p = cells.etcdctl(cell.endpoints, "endpoint", "health")
    assert p.returncode == 0 and (p.stdout + p.stderr).count("is healthy") == size, p


def all_of_it(server, size):
    with cells.Cell(server, size) as cell:
        keys_and_transactions(cell)
        compaction(cell)
        leases(cell)
        members(cell)


@test()
def etcdctl_with_a_cell_of_one(server):
    all_of_it(server, 1)


@test()
def etcdctl_with_a_cell_of_three(server):
    all_of_it(server, 3)


@test()
def etcdctl_with_a_cell_of_five(server):
    all_of_it(server, 5)


@test()
def etcdctl_takes_a_lock_and_runs_a_command_under_it(server):
    with cells.Cell(server, 1) as cell:
        assert ctl(cell, "lock", "work", "echo", "done") == "done\n"
        assert ctl(cell, "get", "--prefix", "work/") == ""


@test(own=True)
def a_method_that_is_not_there_says_so_at_once(server):
    """Never a hang until the client's deadline."""
    with cells.Cell(server, 1) as cell, Client(cell.replicas[0]) as c:
        for method in ["/etcdserverpb.KV/Nothing", "/no.such.Service/Call", "/x", "/etcdserverpb.KV/", "/" + "y" * 5000]:
            code, text = raw_call(c, method, b"", timeout=5)
            assert code == "UNIMPLEMENTED", f"{method}: {code} {text}"
        # A streaming call, too.
        call = c.channel.stream_stream("/no.such.Service/Stream", request_serializer=lambda b: b, response_deserializer=lambda b: b)
        try:
            list(call(iter([b"", b""]), timeout=5))
            raise AssertionError("an unknown stream ended well")
        except Exception as e:  # noqa: BLE001
            assert e.code().name == "UNIMPLEMENTED", e


@test()
def health_says_whether_a_replica_serves(server):
    with cells.Cell(server, 3) as cell:
        for r in cell.replicas:
            status, text = cells.http(r.url + "/health")
            assert status == 200 and json.loads(text)["health"] == "true", (status, text)
        leader = cell.leader()
        others = [r for r in cell.replicas if r is not leader]
        for r in others:
            r.kill()

        def unhealthy():
            try:
                status, text = cells.http(leader.url + "/health", timeout=10)
            except OSError:
                return False
            return status == 503 and json.loads(text)["health"] == "false"
        cells.wait_for("the last of three says that it does not serve", unhealthy, 30)
        for r in others:
            r.start()
        cell.wait_ready()


@test()
def any_replica_serves_any_request(server):
    with cells.Cell(server, 5) as cell, clients(cell) as cs:
        for i, c in enumerate(cs):
            key = b"k%d" % i
            revision = c.put(key, b"v").header.revision
            for other in cs:
                kv = other.get(key)
                assert kv and kv.mod_revision == revision, f"{other.endpoint} does not see what {c.endpoint} acknowledged"
            lease = c.grant(60)
            for other in cs:
                assert lease in other.leases(), f"{other.endpoint} does not list the lease granted at {c.endpoint}"
                assert other.keep_alive(lease) == [60]
                assert other.ttl(lease).TTL in (59, 60)
            cs[(i + 1) % 5].put(b"leased", b"", lease=lease)
            cs[(i + 2) % 5].revoke(lease)
            assert all(other.get(b"leased") is None for other in cs)
            assert all(other.keep_alive(lease) == [0] for other in cs)
        assert cs[0].delete(key=b"k", range_end=b"l").deleted == 5
        assert all(c.range(key=b"k", range_end=b"l").count == 0 for c in cs)
