"""holdfast.v1.Nodes: over gRPC and JSON, beside the etcd API on the same keys, and what it refuses."""
import base64
import json

import cells
from kit import Client, clients, error_of, v1
from runner import test
from session_kit import Stream


def b64(b):
    return base64.b64encode(b).decode()


def ask_json(replica, what, headers=None, **body):
    status, text = cells.http(f"http://{replica.endpoint}/v3/holdfast/nodes/{what}", json.dumps(body).encode(), headers=headers)
    return status, json.loads(text)


def create(c, path, value=b"", **fields):
    return c.nodes.Create(v1.NodesCreateRequest(path=path, value=value, **fields), timeout=10).node


def names(reply):
    return [n.path.rsplit("/", 1)[1] for n in reply.nodes]


@test(own=True)
def nodes_are_the_keys_of_the_etcd_api(server):
    with cells.Cell(server, 1) as cell, clients(cell) as (c,):
        node = create(c, "/a/b", b"1")
        kv = c.get(b"/a/b")
        assert (kv.value, kv.version, kv.create_revision, kv.mod_revision) == (b"1", node.version, node.create_revision, node.mod_revision)
        c.put(b"/a/b", b"2")
        c.put(b"/a/c", b"3")
        c.put(b"/a/c/d", b"deeper")
        c.put(b"a/not a path", b"")
        c.put(b"/a/\xff", b"")
        c.put(b"/a/x/", b"")
        c.put(b"/a/", b"")
        reply = c.nodes.List(v1.NodesListRequest(path="/a", values=True), timeout=10)
        assert [(n.path, n.value, n.version) for n in reply.nodes] == [("/a/b", b"2", 2), ("/a/c", b"3", 1)] and not reply.more
        got = c.nodes.Get(v1.NodesGetRequest(path="/a/b"), timeout=10)
        assert got.node.value == b"2" and got.header.revision == reply.header.revision
        changed = c.nodes.Set(v1.NodesSetRequest(path="/a/b", value=b"4", if_mod_revision=got.node.mod_revision), timeout=10).node
        assert c.get(b"/a/b").mod_revision == changed.mod_revision and changed.version == 3 and not changed.value
        gone = c.nodes.Delete(v1.NodesDeleteRequest(path="/a/b", if_version=3), timeout=10)
        assert gone.node.mod_revision == changed.mod_revision and c.get(b"/a/b") is None


@test(own=True)
def lists_have_pages(server):
    with cells.Cell(server, 1) as cell, clients(cell) as (c,):
        for i in range(40):
            c.put(b"/p/%02d" % i, b"v")
            c.put(b"/p/%02d/below" % i, b"v")
        seen, after, pages = [], "", 0
        while True:
            reply = c.nodes.List(v1.NodesListRequest(path="/p", limit=7, after=after), timeout=10)
            seen += names(reply)
            pages += 1
            if not reply.more:
                break
            after = seen[-1]
        assert seen == ["%02d" % i for i in range(40)] and pages == 6
        big = b"x" * (64 << 10)
        for i in range(40):
            create(c, f"/big/{i:02}", big)
        reply = c.nodes.List(v1.NodesListRequest(path="/big", values=True), timeout=10)
        assert reply.more and 1 <= len(reply.nodes) < 40 and reply.ByteSize() <= 1 << 20


@test(own=True)
def sequential_numbers_rise_over_paths_deletions_and_restarts(server):
    with cells.Cell(server, 1) as cell, Client(cell.replicas[0]) as c:
        s = Stream(c)
        s.open(ttl=60)
        made = [create(c, path, session=s.session, sequential=True).path for path in ("/q/n-", "/q/n-", "/other/", "/q/n-")]
        numbers = [p[-19:] for p in made]
        assert numbers == sorted(set(numbers)) and all(n.isdigit() for n in numbers), made
        c.nodes.Delete(v1.NodesDeleteRequest(path=made[-1]), timeout=10)
        cell.replicas[0].kill()
        cell.replicas[0].start()
        cell.wait_ready()
        with Client(cell.replicas[0]) as again:
            assert create(again, "/q/n-", sequential=True).path[-19:] > numbers[-1]


@test(own=True)
def a_write_sent_again_is_applied_once(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        s = Stream(cs[0])
        s.open(ttl=60)
        request = v1.NodesCreateRequest(path="/once/n-", sequential=True)
        metadata = [("holdfast-session", str(s.session)), ("holdfast-request", "1")]
        first = [c.nodes.Create(request, metadata=metadata, timeout=10).node.path for c in cs]
        assert len(set(first)) == 1 and len(cs[0].nodes.List(v1.NodesListRequest(path="/once"), timeout=10).nodes) == 1
        # By JSON the same, and what was asked by gRPC.
        headers = {f"Grpc-Metadata-{k}": v for k, v in metadata}
        assert {ask_json(r, "create", headers, path="/once/n-", sequential=True)[1]["node"]["path"] for r in cell.replicas} == set(first)
        for request, what, body in ((2, "set", {"value": b64(b"one"), "if_version": "1"}), (3, "delete", {"if_version": "2"})):
            headers["Grpc-Metadata-holdfast-request"] = str(request)
            told = [ask_json(r, what, headers, path=first[0], **body) for r in cell.replicas]
            assert all(status == 200 and reply["node"] == told[0][1]["node"] for status, reply in told), told
        assert not cs[0].nodes.List(v1.NodesListRequest(path="/once"), timeout=10).nodes


@test(own=True)
def bad_input(server):
    with cells.Cell(server, 1) as cell, clients(cell) as (c,):
        def code(call, request):
            return error_of(call, request, timeout=10)[0]

        bad = ["", "/", "x", "/x/", "//", "/.", "/..", "/a/./b", "/a\n", "/" + "a" * 1024, "/a" * 33]
        for path in bad:
            assert code(c.nodes.Create, v1.NodesCreateRequest(path=path)) == "INVALID_ARGUMENT", path
            assert code(c.nodes.Get, v1.NodesGetRequest(path=path)) == "INVALID_ARGUMENT", path
            assert code(c.nodes.Set, v1.NodesSetRequest(path=path, create=True)) == "INVALID_ARGUMENT", path
            assert code(c.nodes.Delete, v1.NodesDeleteRequest(path=path)) == "INVALID_ARGUMENT", path
            if path != "/":
                assert code(c.nodes.List, v1.NodesListRequest(path=path)) == "INVALID_ARGUMENT", path
        big = b"x" * ((64 << 10) + 1)
        assert code(c.nodes.Create, v1.NodesCreateRequest(path="/v", value=big)) == "INVALID_ARGUMENT"
        assert code(c.nodes.Set, v1.NodesSetRequest(path="/v", value=big, create=True)) == "INVALID_ARGUMENT"
        assert create(c, "/v", big[1:]).version == 1
        assert code(c.nodes.Create, v1.NodesCreateRequest(path="/v")) == "ALREADY_EXISTS"
        assert code(c.nodes.Create, v1.NodesCreateRequest(path="/e", session=12345)) == "NOT_FOUND"
        assert code(c.nodes.Create, v1.NodesCreateRequest(path="/e", session=c.grant(60))) == "NOT_FOUND"
        assert code(c.nodes.Set, v1.NodesSetRequest(path="/none", value=b"1")) == "NOT_FOUND"
        assert code(c.nodes.Set, v1.NodesSetRequest(path="/v", if_version=7)) == "FAILED_PRECONDITION"
        assert code(c.nodes.Set, v1.NodesSetRequest(path="/v", if_version=0)) == "ALREADY_EXISTS"
        assert code(c.nodes.Set, v1.NodesSetRequest(path="/v", if_version=-1)) == "INVALID_ARGUMENT"
        assert code(c.nodes.Delete, v1.NodesDeleteRequest(path="/none")) == "NOT_FOUND"
        assert code(c.nodes.Delete, v1.NodesDeleteRequest(path="/v", if_mod_revision=1)) == "FAILED_PRECONDITION"
        assert code(c.nodes.List, v1.NodesListRequest(path="/", limit=-1)) == "INVALID_ARGUMENT"
        assert code(c.nodes.Get, v1.NodesGetRequest(path="/v", cache=True)) == "FAILED_PRECONDITION"
        assert code(c.nodes.Get, v1.NodesGetRequest(path="/v", watch=1, session=1)) == "FAILED_PRECONDITION"
        assert c.get(b"/v").version == 1 and c.range(**{"key": b"/", "range_end": b"0"}).count == 1


@test(own=True)
def in_json(server):
    with cells.Cell(server, 1) as cell, clients(cell) as (c,):
        r = cell.replicas[0]
        status, reply = ask_json(r, "create", path="/j/a", value=b64(b"one"))
        assert status == 200 and reply["node"]["path"] == "/j/a" and reply["node"]["version"] == "1", reply
        status, reply = ask_json(r, "get", path="/j/a")
        assert status == 200 and base64.b64decode(reply["node"]["value"]) == b"one"
        status, reply = ask_json(r, "set", path="/j/a", value=b64(b"two"), if_version="1")
        assert status == 200 and reply["node"]["version"] == "2"
        status, reply = ask_json(r, "set", path="/j/a", value=b64(b"two"), if_version="1")
        assert status == 412 and reply["error"] == "holdfast: the node has another version", (status, reply)
        status, reply = ask_json(r, "list", path="/j")
        assert status == 200 and [n["path"] for n in reply["nodes"]] == ["/j/a"]
        status, reply = ask_json(r, "delete", path="/j/a")
        assert status == 200 and c.get(b"/j/a") is None
        status, reply = ask_json(r, "get", path="/j/a")
        assert status == 200 and "node" not in reply
        status, reply = ask_json(r, "get", path="j")
        assert status == 400 and reply["error"] == "holdfast: malformed path"
