"""Bits that flip on a replica's disk: found at the start, cut out, fetched again from the others; alone it is refused. And what no checksum finds."""
import contextlib
import struct

import cells
from kit import Client, error_of, insist, pb, same_everywhere
from runner import test

FLAGS = ["--snapshot-count", "100", "--snapshot-catchup-entries", "20", "--heartbeat-interval", "50", "--election-timeout", "500"]


def flip(path, text):
    data = bytearray(path.read_bytes())
    at, found = data.find(text), 0
    while at >= 0:
        data[at] ^= 4
        found += 1
        at = data.find(text, at + 1)
    assert found, f"{text!r} is not in {path}"
    with open(path, "r+b") as f:
        f.write(data)


def probe(replica, path):
    with contextlib.suppress(OSError):
        return cells.http(replica.url + path)
    return None


def put_many(replica, first, last):
    c = Client(replica)
    try:
        for i in range(first, last):
            insist(lambda i=i: c.put(b"k%d" % i, b"value-number-%d." % i))
    finally:
        c.close()


@test(own=True)
def a_damaged_log_and_a_damaged_snapshot_are_fetched_again_from_the_peers(server):
    with cells.Cell(server, 3, FLAGS) as cell:
        leader = cell.leader()
        r = next(x for x in cell.replicas if x is not leader)
        put_many(leader, 0, 150)
        same_everywhere(cell)
        r.kill()
        flip(r.data_dir / "log/data.mdb", b"value-number-140.")
        r.start()
        cell.wait_ready()
        same_everywhere(cell)
        text = r.log_path.read_text()
        assert "stored data is damaged, the damage is cut out" in text and "neither votes nor serves" in text and "votes and serves again" in text, text
        put_many(leader, 150, 160)
        same_everywhere(cell)
        r.kill()
        newest = max(p for p in r.data_dir.glob("snap-*") if "." not in p.name)
        flip(newest / "data.mdb", b"value-number-7.")
        r.start()
        cell.wait_ready()
        same_everywhere(cell)
        text = r.log_path.read_text()
        assert "the snapshot of index" in text and text.count("votes and serves again") == 2, text
        r.stop()
        r.start()
        cell.wait_ready()
        assert not (r.data_dir / "damaged").exists(), "what was kept of the damage is kept for ever"


@test(own=True)
def nobody_is_served_while_it_recovers(server):
    """Those who have what it lost stand still: it knows that it may lack users and roles, so it tells nobody anything, however old an answer may be."""
    with cells.Cell(server, 3, FLAGS) as cell:
        others, r = cell.replicas[:2], cell.replicas[2]
        put_many(others[0], 0, 50)
        r.kill()
        flip(r.data_dir / "log/data.mdb", b"value-number-40.")
        for x in others:
            x.pause()
        try:
            r.start()
            status, text = cells.wait_for("it answers", lambda: probe(r, "/readyz"), 20)
            assert status == 503 and "recovering from the peers" in text, text
            with Client(r) as c:
                refused = ("UNAVAILABLE", "holdfast: this replica's disk was damaged, it recovers from its peers: ask another")
                assert error_of(c.range, key=b"k1", serializable=True) == refused
                assert error_of(c.range, key=b"k1") == refused
                assert error_of(c.put, b"k1", b"x") == refused
                assert error_of(list, c.kv.RangeStream(pb.RangeRequest(key=b"k1", serializable=True), timeout=10)) == refused
        finally:
            for x in others:
                x.resume()
        cell.wait_ready()
        same_everywhere(cell)


@test(own=True)
def a_damaged_replica_that_is_alone_stops_with_a_clear_line(server):
    with cells.Cell(server, 1, FLAGS) as cell:
        r = cell.replicas[0]
        put_many(r, 0, 50)
        r.kill()
        flip(r.data_dir / "log/data.mdb", b"value-number-30.")
        for _ in range(2):  # and again: it does not forget what it has lost
            r.start()
            cells.wait_for("it stops", lambda: not r.running(), 20)
            assert r.process.returncode > 0, r.log_tail()
        assert r.log_path.read_text().count("restore the cell from a backup") >= 2, r.log_tail()
        assert (r.data_dir / "damaged/log.mdb").exists(), "the damaged log is not kept"


def crc32c(data):
    crc = 0xffffffff
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = crc >> 1 ^ (0x82f63b78 if crc & 1 else 0)
    return crc ^ 0xffffffff


def forge(path, text, other):
    """Puts `other` in the place of `text` in entries of a log, checksum and all (storage/codec.c): as if the replica had once written something else."""
    data = bytearray(path.read_bytes())
    at, forged = data.find(text), 0
    while at >= 0:
        for value in range(at - 13, max(at - 400, 16), -1):
            low, high, _, key_size = struct.unpack_from("<4H", data, value - 16)  # LMDB's node: size of the value, flags, size of the key; then the key
            number, end = data[value - 8:value], value + (low | high << 16)
            if key_size == 8 and at + len(text) <= end <= value + 4096 and struct.pack("<I", crc32c(number + data[value + 4:end])) == data[value:value + 4]:
                data[at:at + len(text)] = other
                data[value:value + 4] = struct.pack("<I", crc32c(number + data[value + 4:end]))
                forged += 1
                break
        at = data.find(text, at + 1)
    assert forged, f"no entry with {text!r} is in {path}"
    with open(path, "r+b") as f:
        f.write(data)


@test(own=True)
def a_replica_that_holds_another_state_gets_the_alarm_and_stops(server):
    """Found when it has started, and, where that is switched off, within the interval."""
    for flags in ([], ["--experimental-initial-corrupt-check=false", "--corrupt-check-time", "500ms"]):
        with cells.Cell(server, 3, FLAGS + flags) as cell:
            leader = cell.leader()
            r = next(x for x in cell.replicas if x is not leader)
            others = [x for x in cell.replicas if x is not r]
            put_many(leader, 0, 10)
            same_everywhere(cell)
            with Client(r) as c:
                member = c.status().header.member_id
            r.kill()
            forge(r.data_dir / "log/data.mdb", b"value-number-7.", b"value-number-8.")
            for _ in range(2):  # and again: the alarm is still up
                r.start()
                cells.wait_for("it stops", lambda: not r.running(), 30)
                assert r.process.returncode > 0 and "differs from that of a quorum" in r.log_tail(), r.log_tail()
            for x in others:
                with Client(x) as c:
                    alarms = insist(lambda: c.maintenance.Alarm(pb.AlarmRequest(action=pb.AlarmRequest.GET), timeout=10)).alarms
                    assert [(a.memberID, a.alarm) for a in alarms] == [(member, pb.CORRUPT)], alarms
            put_many(others[0], 10, 12)  # who agrees goes on
            same_everywhere(cell, others)
