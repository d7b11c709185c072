"""What clients, strangers and broken programs may send. Nothing of it stops a replica, and nothing stays behind."""
import os
import socket
import struct
import time

import cells
from kit import Client, alive, clients, descriptors, error_of, field, grpc, lockpb, pb, raw_call, varint, wait_queue
from runner import is_full, test

PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
SETTINGS = b"\0\0\0\x04\0\0\0\0\0"
PUT, TXN, RANGE = "/etcdserverpb.KV/Put", "/etcdserverpb.KV/Txn", "/etcdserverpb.KV/Range"
UNARY = [RANGE, PUT, TXN, "/etcdserverpb.KV/DeleteRange", "/etcdserverpb.KV/Compact", "/etcdserverpb.Lease/LeaseGrant",
         "/etcdserverpb.Lease/LeaseRevoke", "/etcdserverpb.Lease/LeaseTimeToLive", "/etcdserverpb.Lease/LeaseLeases", "/v3lockpb.Lock/Lock",
         "/v3lockpb.Lock/Unlock", "/etcdserverpb.Cluster/MemberList", "/etcdserverpb.Maintenance/Status"]


def nested(depth):
    """A transaction in a transaction in ..., by hand: libraries refuse to build it."""
    heads, size = [], 0
    for _ in range(depth):
        for number in (4, 2):
            head = varint(number << 3 | 2) + varint(size)
            heads.append(head)
            size += len(head)
    return b"".join(reversed(heads))


@test(own=True)
def bytes_that_are_no_message_are_refused(server):
    """Every method, at a leader and at a follower."""
    broken = [b"\xff", b"\x0a", b"\x0a\xff\xff\xff\xff\x0f", b"\x0a\x05ab", b"\x08" + b"\xff" * 10, b"\x0b", b"\x0c", b"\x0f",
              b"\x00\x00", b"\x0a\x80\x80\x80\x80\x80\x80\x80\x80\x80\x80\x01", b"\x12\xff\xff\xff\xff\xff\xff\xff\xff\x7f"]
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        for method in UNARY:
            for payload in broken:
                for c in cs[:2]:
                    code, text = raw_call(c, method, payload, timeout=5)
                    # Some of these bytes are a field that the message does not know, in good form.
                    assert code in ("INTERNAL", "OK", "INVALID_ARGUMENT", "NOT_FOUND", "OUT_OF_RANGE", "FAILED_PRECONDITION"), \
                        f"{method} {payload!r}: {code} {text}"
        for payload in broken[:6]:
            assert raw_call(cs[0], PUT, payload)[0] == "INTERNAL", payload
            stream = cs[1].channel.stream_stream("/etcdserverpb.Lease/LeaseKeepAlive", request_serializer=lambda b: b,
                                                 response_deserializer=lambda b: b)
            code, text = error_of(lambda p=payload: list(stream(iter([p]), timeout=5)))
            assert code == "INTERNAL", (payload, code, text)
        for r in cell.replicas:
            alive(r)


@test(timeout=120)
def random_bytes_are_survived(server):
    """Random, and messages with random bytes changed."""
    import random
    rng = random.Random(os.urandom(4))
    good = [pb.PutRequest(key=b"fuzz", value=b"value", prev_kv=True).SerializeToString(),
            pb.RangeRequest(key=b"fuzz", range_end=b"g", limit=5, sort_order=1).SerializeToString(),
            lockpb.LockRequest(name=b"fuzz", lease=77).SerializeToString(), nested(3)]
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        for _ in range(20000 if is_full() else 2000):
            payload = bytearray(rng.choice(good) if rng.random() < 0.8 else rng.randbytes(rng.randrange(40)))
            for _ in range(rng.randrange(1, 4)):
                if payload:
                    payload[rng.randrange(len(payload))] = rng.randrange(256)
            if rng.random() < 0.2:
                del payload[rng.randrange(len(payload) + 1):]
            method = rng.choice([m for m in UNARY if m != "/v3lockpb.Lock/Lock"])
            raw_call(rng.choice(cs), method, bytes(payload), timeout=5)
        for r in cell.replicas:
            alive(r)


@test(own=True)
def nesting_without_end_is_refused(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        for depth in (50, 1000, 10_000, 60_000):
            payload = nested(depth)
            for c in cs:
                code, text = raw_call(c, TXN, payload)
                assert (code, text) == ("INVALID_ARGUMENT", "holdfast: the request is nested too deeply") or len(payload) > 1_500_000, \
                    f"depth {depth}: {code} {text}"
            # In a field that the message does not know, and in one of another type.
            for odd in (field(99, payload), field(1, payload)):
                for method in UNARY:
                    if method != "/v3lockpb.Lock/Lock":
                        raw_call(cs[0], method, odd, timeout=5)
        code, text = raw_call(cs[0], TXN, nested(3))
        assert code == "OK", (code, text)
        groups = b"\x0b" * 100_000 + b"\x0c" * 100_000
        assert raw_call(cs[0], PUT, groups)[0] == "INTERNAL"
        for r in cell.replicas:
            alive(r)


@test()
def requests_that_are_too_large_are_refused(server):
    large = ("INVALID_ARGUMENT", "etcdserver: request is too large")
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        for c in cs:
            assert error_of(c.put, b"big", b"x" * 1_600_000) == large
            code, text = error_of(c.put, b"big", b"x" * 2_500_000)
            assert code == "RESOURCE_EXHAUSTED", (code, text)
            assert error_of(c.put, b"k" * 1_600_000, b"") == large
            txn = pb.TxnRequest()
            for i in range(20):
                txn.success.add().request_put.CopyFrom(pb.PutRequest(key=b"big%d" % i, value=b"x" * 80_000))
            assert error_of(c.kv.Txn, txn, timeout=10) == large
        assert cs[0].range(key=b"big", range_end=b"bih").count == 0
        assert cs[1].put(b"big", b"x" * 1_500_000)
        assert len(cs[2].get(b"big").value) == 1_500_000


@test()
def numbers_out_of_any_sense(server):
    """etcd's own answers where it has them; the differential tests compare them all."""
    big, low = 2**63 - 1, -(2**63)
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        for c in cs:
            assert c.range(key=b"a", limit=low).count == 0
            assert error_of(c.range, key=b"a", revision=big) == ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision")
            c.range(key=b"a", revision=low)
            assert error_of(c.compact, big) == ("OUT_OF_RANGE", "etcdserver: mvcc: required revision is a future revision")
            assert error_of(c.compact, low)[0] == "OUT_OF_RANGE"
            assert error_of(c.grant, big) == ("OUT_OF_RANGE", "etcdserver: too large lease TTL")
            lease = c.grant(low)
            c.revoke(lease)
            assert error_of(c.revoke, 0) == ("NOT_FOUND", "etcdserver: requested lease not found")
            assert error_of(c.put, b"a", b"", lease=low) == ("NOT_FOUND", "etcdserver: requested lease not found")
            assert c.keep_alive(0, low, big) == [0, 0, 0]
            assert c.ttl(low).TTL == -1
            assert error_of(c.put, b"") == ("INVALID_ARGUMENT", "etcdserver: key is not provided")
        for r in cell.replicas:
            alive(r)


@test()
def strange_names_of_locks(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        lease = cs[0].grant(60)
        for i, name in enumerate([b"\0", b"\xff", b"\xff\xff", b"/", b"//", b"a//", b"a/\0", b"\xc3\x28", b"x" * 100_000, b"%s%n", "ключ".encode()]):
            held = cs[i % 3].take_lock(name, lease)
            assert held.key == name + b"/%x" % lease
            cs[(i + 1) % 3].unlock(held.key)
            assert cs[i % 3].get(held.key) is None
        cs[0].unlock(b"no/such")


@test(own=True)
def clients_that_vanish_in_the_middle_of_a_call(server):
    """Connections are cut (with a reset) while streams and waiting calls are open on them."""
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        first, second = cs[0].grant(60), cs[0].grant(60)
        cs[0].take_lock(b"l", first)
        before = [descriptors(r) for r in cell.replicas]
        for _ in range(5):
            for r in cell.replicas:
                c = Client(r)
                calls = [c.ask_lock(b"l", second), c.ask_lock(b"other", second)]
                streams = [c.lease.LeaseKeepAlive(iter([pb.LeaseKeepAliveRequest(ID=first)] * 50)) for _ in range(20)]
                next(streams[0])
                puts = [c.kv.Put.future(pb.PutRequest(key=b"v%d" % i, value=b"x" * 10000)) for i in range(50)]
                c.close()
                del calls, streams, puts
        wait_queue(cs[0], b"l", 1)
        wait_queue(cs[1], b"other", 1)  # that one was granted: it lasts as long as its lease
        cs[2].revoke(second)
        wait_queue(cs[1], b"other", 0)
        for r, n in zip(cell.replicas, before):
            cells.wait_for(f"the descriptors of {r.name} return to {n}", lambda r=r, n=n: descriptors(r) <= n + 2, 20)
            alive(r)


def raw(port):
    s = socket.create_connection(("127.0.0.1", port), timeout=10)
    return s


def reset(s):
    s.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    s.close()


def frame(kind, flags, stream, payload):
    return struct.pack(">I", len(payload))[1:] + bytes([kind, flags]) + struct.pack(">I", stream) + payload


GARBAGE = [
    b"", b"\0", b"P", b"PRI", PREFACE[:10], PREFACE[:-1], b"PRI * HTTP/1.1\r\n\r\n", b"GET", b"GET / HTTP/1.1\r\n", b"GET /health HTTP/9.9\r\n\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + b"\xaa" * 500, b"\x00" * 5000, b"\xff" * 5000, b"A" * 200_000, b"\r\n" * 50_000,
    b"GET /" + b"x" * 100_000, b"POST /v3/kv/put HTTP/1.1\r\nContent-Length: 99999999999999999999\r\n\r\n",
    b"POST /v3/kv/put HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n", b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000,
    PREFACE, PREFACE + b"\xff" * 100, PREFACE + SETTINGS, PREFACE + SETTINGS + b"\xff\xff\xff" + b"\0" * 100, PREFACE + SETTINGS * 2000,
    PREFACE + SETTINGS + frame(6, 0, 0, b"12345678") * 3000, PREFACE + SETTINGS + frame(1, 4, 1, b"\xff" * 50),
    PREFACE + SETTINGS + frame(1, 0, 1, b"") + frame(9, 0, 1, b"\x40\x01a\x01b" * 1000) * 5, PREFACE + SETTINGS + frame(0, 1, 1, b"data"),
    PREFACE + SETTINGS + b"".join(frame(1, 5, 2 * i + 1, b"\x82") + frame(3, 0, 2 * i + 1, b"\0\0\0\x08") for i in range(2000)),
    PREFACE + SETTINGS + frame(8, 0, 0, b"\x7f\xff\xff\xff") * 2, PREFACE + SETTINGS + frame(5, 4, 1, b"\0\0\0\2\x82"),
]


def throw_garbage(cell, ports):
    before = [descriptors(r) for r in cell.replicas]
    for port in ports:
        for junk in GARBAGE + [os.urandom(n) for n in (1, 13, 14, 15, 24, 1000, 100_000)]:
            for end in ("close", "reset", "half"):
                s = raw(port)
                try:
                    s.sendall(junk)
                    if end == "half":
                        s.shutdown(socket.SHUT_WR)
                        s.settimeout(0.05)
                        s.recv(100)
                except OSError:
                    pass
                if end == "reset":
                    reset(s)
                else:
                    s.close()
    for r in cell.replicas:
        alive(r)
    for r, n in zip(cell.replicas, before):
        cells.wait_for(f"the descriptors of {r.name} return to {n}", lambda r=r, n=n: descriptors(r) <= n + 2, 40)


@test(timeout=120)
def garbage_on_the_client_port(server):
    with cells.Cell(server, 1) as cell:
        throw_garbage(cell, [cell.replicas[0].client_port])


@test(timeout=120)
def garbage_on_the_peer_port(server):
    with cells.Cell(server, 3) as cell:
        throw_garbage(cell, [r.peer_port for r in cell.replicas[:2]])
        term = Client(cell.replicas[0]).status().raftTerm
        assert term <= 3, f"it cost elections: term {term}"


@test(own=True)
def strangers_on_the_peer_port_are_heard_out_and_ignored(server):
    """Good gRPC calls, of methods that a peer has not, and of those that it has with anything for a message."""
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        cs[0].put(b"k", b"v")
        term = cs[0].status().raftTerm
        services = [p.read_text() for p in (cells.TOP / "api" / "proto" / "holdfast").glob("*.proto")]
        assert services
        for r in cell.replicas:
            with Client(f"127.0.0.1:{r.peer_port}") as c:
                for method in ["/x/y", PUT, "/holdfast.internal.Peer/Exchange", "/holdfast.v1.internal.Peer/Exchange", "/holdfast.internal.Peer/Stream"]:
                    for payload in (b"", b"\xff" * 100, os.urandom(1000), nested(5000), field(2, os.urandom(64))):
                        raw_call(c, method, payload, timeout=2)
                        call = c.channel.stream_stream(method, request_serializer=lambda b: b, response_deserializer=lambda b: b)
                        stream = call(iter([payload] * 20), timeout=1)
                        try:
                            for _ in stream:
                                pass
                        except grpc.RpcError:
                            pass
        for r in cell.replicas:
            alive(r)
        assert cs[0].status().raftTerm == term, "it cost an election"


@test(own=True)
def silence_after_the_preface_holds_nobody_up(server):
    """Connections that say nothing, or begin and say nothing more, while others are served."""
    with cells.Cell(server, 1) as cell, Client(cell.replicas[0]) as c:
        r = cell.replicas[0]
        before = descriptors(r)
        silent = []
        for i in range(900 if not is_full() else 5000):
            s = raw(r.client_port)
            s.sendall((b"", b"PRI", PREFACE, PREFACE + SETTINGS, b"GET / HTT", b"\x16\x03\x01")[i % 6])
            silent.append(s)
        for i in range(100):
            c.put(b"k", b"%d" % i, timeout=5)
        with Client(r) as fresh:
            assert fresh.get(b"k", timeout=5).value == b"99"
        assert cells.http(r.url + "/health", timeout=5)[0] == 200
        for s in silent:
            s.close()
        cells.wait_for(f"the descriptors return to {before}", lambda: descriptors(r) <= before + 2, 30)
        alive(r)


@test(timeout=150)
def thousands_of_connections_opened_and_dropped(server):
    with cells.Cell(server, 1) as cell, Client(cell.replicas[0]) as c:
        r = cell.replicas[0]
        c.put(b"k", b"")
        before = descriptors(r)
        rss = r.rss_mb()
        for i in range(20_000 if is_full() else 4_000):
            s = raw(r.client_port)
            if i % 4 == 1:
                s.sendall(PREFACE + SETTINGS)
            elif i % 4 == 2:
                s.sendall(b"GET /health HTTP/1.1\r\nHost: x\r\n\r\n")
            if i % 2:
                reset(s)
            else:
                s.close()
        for i in range(100):  # and whole gRPC connections
            with Client(r) as one:
                one.put(b"k", b"%d" % i)
        cells.wait_for(f"the descriptors return to {before}", lambda: descriptors(r) <= before + 2, 40)
        if "ASAN_OPTIONS" not in os.environ:  # that sanitizer keeps what was freed
            assert r.rss_mb() < rss + 100, f"{rss:.0f} MB before, {r.rss_mb():.0f} MB after"
        alive(r)


@test(own=True, timeout=150)
def running_out_of_descriptors_is_survived(server):
    """More connections than the process may have: it refuses or waits, and serves again when they go."""
    import resource
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    with cells.Cell(server, 1, start=False) as cell:
        r = cell.replicas[0]
        resource.setrlimit(resource.RLIMIT_NOFILE, (400, 400)) if hard < 1000 else None
        r.start()
        cell.wait_ready()
        # Lowered from outside, so that this process can open more than the server may.
        resource.prlimit(r.process.pid, resource.RLIMIT_NOFILE, (300, 300))
        with Client(r) as c:
            c.put(b"k", b"1")
            silent = []
            for _ in range(500):
                try:
                    s = socket.create_connection(("127.0.0.1", r.client_port), timeout=2)
                    s.sendall(PREFACE + SETTINGS)
                    silent.append(s)
                except OSError:
                    break
            c.put(b"k", b"2")  # who is connected is served
            for s in silent:
                s.close()

            def fresh():
                with Client(r) as new:
                    try:
                        return new.put(b"k", b"3", timeout=2)
                    except grpc.RpcError:
                        return None
            cells.wait_for("new clients are served again", fresh, 30)
        alive(r)


@test()
def a_half_close_before_any_message(server):
    with cells.Cell(server, 1) as cell, Client(cell.replicas[0]) as c:
        for method in UNARY:
            call = c.channel.stream_unary(method, request_serializer=lambda b: b, response_deserializer=lambda b: b)
            began = time.monotonic()
            code, text = error_of(lambda call=call: call(iter([]), timeout=5))
            assert code != "DEADLINE_EXCEEDED", f"{method} hangs until the deadline ({time.monotonic() - began:.1f} s)"
        assert list(c.lease.LeaseKeepAlive(iter([]), timeout=5)) == []
        # Two messages where one is wanted.
        call = c.channel.stream_unary(PUT, request_serializer=lambda b: b, response_deserializer=lambda b: b)
        body = pb.PutRequest(key=b"twice").SerializeToString()
        try:
            call(iter([body, body]), timeout=5)
        except grpc.RpcError as e:
            assert e.code().name != "DEADLINE_EXCEEDED", e
        assert varint(300) == b"\xac\x02"
        alive(cell.replicas[0])
