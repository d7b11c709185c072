"""KV.RangeStream: in parts what Range answers in one; at one revision; for readers who are slow, and who leave."""
import json

import cells
from kit import EVERYTHING, Client, error_of, pb, prefix
from runner import test

BIG = 300_000
PART = 1 << 20


def stream(c, **fields):
    return c.kv.RangeStream(pb.RangeRequest(**fields), timeout=20)


def merged(parts):
    """As etcd's clients put it together; and what a part may be."""
    out = pb.RangeResponse()
    for p in parts:
        assert p.ByteSize() < PART + BIG + 1000, p.ByteSize()
        out.MergeFrom(p.range_response)
    return out


def fill(c, n):
    for i in range(n):
        c.put(b"r/%03d" % i, bytes([i % 251]) * (BIG if i % 2 else 10))


@test()
def a_range_in_parts_is_the_range(server):
    with cells.Cell(server, 3) as cell:
        follower = next(r for r in cell.replicas if r is not cell.leader())
        with Client(cell.leader()) as lead, Client(follower) as c:
            fill(lead, 40)
            old = lead.put(b"r/000", b"again").header.revision - 1
            for fields in [{}, {"limit": 7}, {"limit": 40}, {"limit": 41}, {"keys_only": True}, {"count_only": True}, {"revision": old},
                           {"serializable": True, "revision": old}, {"sort_order": "ASCEND"}]:
                fields = {**prefix(b"r/"), **fields}
                one = c.range(**fields)
                parts = list(stream(c, **fields))
                assert merged(parts) == one, fields
                assert all(not p.range_response.HasField("header") for p in parts[:-1]), fields
            assert len(list(stream(c, **prefix(b"r/")))) > 4
            for fields in [{"key": b"r/001"}, {"key": b"none"}, {"key": b"z", "range_end": b"a"}, EVERYTHING]:
                assert merged(stream(c, **fields)) == c.range(**fields), fields
            for fields in [{"sort_order": "DESCEND"}, {"sort_target": "MOD"}, {"min_mod_revision": 3}, {"max_create_revision": 3}]:
                code, text = error_of(list, stream(c, key=b"r/", range_end=b"s", **fields))
                assert code == "UNIMPLEMENTED" and "use Range" in text, (fields, code, text)
            code, text = error_of(list, stream(c, key=b""))
            assert (code, text) == ("INVALID_ARGUMENT", "etcdserver: key is not provided"), (code, text)
            code, text = error_of(list, stream(c, key=b"a", revision=old + 1000))
            assert (code, text) == ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision"), (code, text)
            # etcd gives it no path of the gateway's.
            status, _ = cells.http(follower.url + "/v3/kv/range_stream", json.dumps({"key": "cg=="}).encode())
            assert status == 404, status


def slow_reader(c):
    """A stream of which the first part is read, and whose transport is full: the server has far more to say than gRPC holds for who does not read."""
    parts = iter(stream(c, **prefix(b"r/")))
    return parts, next(parts)


@test()
def a_range_in_parts_sees_one_revision_while_others_write(server):
    with cells.Cell(server, 1) as cell, Client(cell.replicas[0]) as c, Client(cell.replicas[0]) as writer:
        fill(writer, 80)
        before = writer.range(**prefix(b"r/"))
        parts, first = slow_reader(c)
        writer.delete(**prefix(b"r/04"))
        writer.put(b"r/079", b"new")
        writer.put(b"r/zzz", b"new")
        assert merged([first, *parts]) == before


@test()
def a_range_whose_revision_is_compacted_ends_with_that(server):
    with cells.Cell(server, 1) as cell, Client(cell.replicas[0]) as c, Client(cell.replicas[0]) as writer:
        fill(writer, 160)
        parts, first = slow_reader(c)
        writer.compact(writer.put(b"x").header.revision)
        code, text = error_of(list, parts)
        assert (code, text) == ("OUT_OF_RANGE", "etcdserver: mvcc: required revision has been compacted"), (code, text)
        assert not first.range_response.HasField("header")


@test()
def readers_in_parts_who_leave_hold_nothing(server):
    with cells.Cell(server, 1) as cell, Client(cell.replicas[0]) as writer:
        r = cell.replicas[0]
        fill(writer, 160)
        for _ in range(8):
            with Client(r) as c:
                parts, _ = slow_reader(c)
                parts.cancel()
        # All budget is there again: more than it is asked for at once.
        with Client(r) as c:
            all_at_once = [stream(c, **prefix(b"r/")) for _ in range(4)]
            assert all(merged(s).count == 160 for s in all_at_once)
            assert c.range(**prefix(b"r/"), count_only=True).count == 160
