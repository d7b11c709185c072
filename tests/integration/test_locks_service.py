"""holdfast.v1.Locks: who holds and who waits, whether a token is current, and an operator who breaks a hold. Over gRPC and over JSON."""
import base64
import json
import sys

import cells
import grpc
from kit import clients, error_of, lockpb, v1, wait_queue
from runner import test

TTL = 60


def b64(b):
    return base64.b64encode(b).decode()


def json_call(replica, path, body):
    status, text = cells.http(f"http://{replica.endpoint}/v3/holdfast/locks/{path}", json.dumps(body).encode())
    return status, json.loads(text)


def get(message, name):
    """A field of JSON, whichever way its name is written."""
    parts = name.split("_")
    return message.get(name, message.get(parts[0] + "".join(p.capitalize() for p in parts[1:])))


def refusal_of(call, *args, **kwargs):
    try:
        call(*args, **kwargs)
    except grpc.RpcError as e:
        raw = dict(e.trailing_metadata()).get("grpc-status-details-bin")
        return e.code().name, raw
    raise AssertionError("no error")


@test(own=True)
def holders_and_waiters_in_order(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        leases = [cs[0].grant(TTL) for _ in range(4)]
        held = cs[0].take_lock(b"jobs/a", leases[0])
        waiting = []  # a call that nobody refers to is cancelled
        for n, lease in enumerate(leases[1:], 2):
            waiting.append(cs[n % 3].ask_lock(b"jobs/a", lease, mode=lockpb.SHARED if n == 4 else lockpb.EXCLUSIVE))
            wait_queue(cs[0], b"jobs/a", n)
        cs[1].take_lock(b"jobs/longer name", leases[1])
        cs[1].take_lock(b"other", leases[1])
        for c in cs:
            reply = c.locks.List(v1.LocksListRequest(prefix=b"jobs/"), timeout=10)
            assert [q.name for q in reply.locks] == [b"jobs/a", b"jobs/longer name"] and not reply.next
            places = reply.locks[0].places
            assert [p.lease for p in places] == leases
            assert [p.held for p in places] == [True, False, False, False]
            assert [p.mode for p in places] == [0, 0, 0, 1]
            assert places[0].fencing_token == held.fencing_token and places[0].key == held.key
            assert all(p.since_unix_ms > 1600000000000 and p.client for p in places)
        assert not any(w.done() for w in waiting)
        status, reply = json_call(cell.replicas[2], "list", {"prefix": b64(b"jobs/")})
        assert status == 200 and [base64.b64decode(q["name"]) for q in reply["locks"]] == [b"jobs/a", b"jobs/longer name"], reply
        assert [int(p["lease"]) for p in reply["locks"][0]["places"]] == leases
        assert reply["locks"][0]["places"][0]["held"] is True


@test(own=True)
def pages(server):
    with cells.Cell(server, 1) as cell, clients(cell) as (c,):
        lease = c.grant(TTL)
        names = [b"p%0*d" % (i % 3 + 1, i) for i in range(40)]
        for name in names:
            c.take_lock(name, lease)
        got, after = [], b""
        while True:
            reply = c.locks.List(v1.LocksListRequest(prefix=b"p", limit=7, after=after), timeout=10)
            got += [q.name for q in reply.locks]
            after = reply.next
            if not after:
                break
        assert got == sorted(set(names), key=lambda n: (len(n), n))
        assert error_of(c.locks.List, v1.LocksListRequest(limit=-1), timeout=10)[0] == "INVALID_ARGUMENT"


@test(own=True)
def a_token_is_verified(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        first, second = cs[0].grant(TTL), cs[0].grant(TTL)
        held = cs[0].take_lock(b"l", first)
        waiting = cs[1].ask_lock(b"l", second)
        wait_queue(cs[0], b"l", 2)

        def current(c, token):
            return c.locks.Verify(v1.LocksVerifyRequest(name=b"l", fencing_token=token), timeout=10).current
        assert all(current(c, held.fencing_token) for c in cs)
        status, reply = json_call(cell.replicas[1], "verify", {"name": b64(b"l"), "fencing_token": str(held.fencing_token)})
        assert status == 200 and reply["current"] is True and int(reply["hold"]["lease"]) == first, reply
        cs[2].unlock(held.key)
        now = waiting.result(10)
        for c in cs:
            assert not current(c, held.fencing_token) and current(c, now.fencing_token)
        assert error_of(cs[0].locks.Verify, v1.LocksVerifyRequest(fencing_token=1), timeout=10)[0] == "INVALID_ARGUMENT"


@test(own=True)
def a_hold_is_broken_and_logged(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        leases = [cs[0].grant(TTL) for _ in range(3)]
        held = cs[0].take_lock(b"l", leases[0])
        second = cs[1].ask_lock(b"l", leases[1])
        wait_queue(cs[0], b"l", 2)
        third = cs[1].ask_lock(b"l", leases[2])
        wait_queue(cs[0], b"l", 3)
        request = v1.LocksBreakRequest(name=b"l", fencing_token=held.fencing_token)
        broken = cs[2].locks.BreakHold(request, timeout=10).broken
        assert broken.lease == leases[0] and broken.key == held.key
        got = second.result(10)
        again = cs[1].locks.BreakHold(request, timeout=10)
        assert not again.HasField("broken"), "a later hold was broken"
        assert cs[0].leases() >= set(leases), "the lease is the holder's own"
        status, reply = json_call(cell.replicas[0], "break", {"key": b64(got.key)})
        assert status == 200 and int(reply["broken"]["lease"]) == leases[1], reply
        third.result(10)
        for n, count in ((2, 1), (1, 0), (0, 1)):
            lines = [line for line in cell.replicas[n].log_tail(200).splitlines() if "broken by an operator" in line]
            assert len(lines) == count, (n, lines)
        assert error_of(cs[0].locks.BreakHold, v1.LocksBreakRequest(name=b"l"), timeout=10)[0] == "INVALID_ARGUMENT"
        cs[0].put(b"plain")
        assert error_of(cs[0].locks.BreakHold, v1.LocksBreakRequest(key=b"plain"), timeout=10)[0] == "FAILED_PRECONDITION"


@test(own=True)
def a_refusal_says_who_holds(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        leases = [cs[0].grant(TTL) for _ in range(3)]
        held = cs[0].take_lock(b"l", leases[0])
        waiting = cs[1].ask_lock(b"l", leases[1])
        wait_queue(cs[0], b"l", 2)
        for wait_ms, code in ((0, "FAILED_PRECONDITION"), (200, "DEADLINE_EXCEEDED")):
            name, raw = refusal_of(cs[2].take_lock, b"l", leases[2], wait_ms=wait_ms)
            refusal = v1.LockRefusal()
            assert name == code and raw, (name, raw)
            payload = raw[raw.index(b"holdfast.v1.LockRefusal") + len(b"holdfast.v1.LockRefusal"):]
            at = 1 + (2 if payload[1] & 0x80 else 1)
            refusal.ParseFromString(payload[at:])
            assert refusal.name == b"l" and refusal.holder.lease == leases[0]
            assert refusal.holder.fencing_token == held.fencing_token and refusal.waiters == 1, refusal
            body = {"name": b64(b"l"), "lease": str(leases[2]), "wait_ms": str(wait_ms)}
            status, text = cells.http(f"http://{cell.replicas[2].endpoint}/v3/lock/lock", json.dumps(body).encode())
            detail = json.loads(text)["details"][0]
            assert status >= 400 and int(detail["holder"]["lease"]) == leases[0] and int(detail["waiters"]) == 1, detail
            assert int(get(detail["holder"], "fencing_token")) == held.fencing_token
        assert not waiting.done()


if __name__ == "__main__":
    sys.exit("run.py runs these")
