"""Exactly once: a request that names its session and its ID, sent again to whatever replica, takes effect once and is answered the same."""
import base64
import json
import sys
import time

import cells
from kit import clients, electionpb, error_of, error_of_future, insist, lockpb, pb, wait_queue
from runner import test

TTL = 60


def metadata(session, request, first=0):
    m = [("holdfast-session", str(session)), ("holdfast-request", str(request))]
    return m + ([("holdfast-first-unanswered", str(first))] if first else [])


def put(c, session, request, key=b"k", value=b"v", first=0, **fields):
    return c.kv.Put(pb.PutRequest(key=key, value=value, **fields), metadata=metadata(session, request, first), timeout=10)


def create(c, session, request, key=b"k"):
    """Succeeds for the one that creates the key."""
    compare = pb.Compare(key=key, target=pb.Compare.VERSION, version=0)
    op = pb.RequestOp(request_put=pb.PutRequest(key=key, value=b"v"))
    return c.kv.Txn(pb.TxnRequest(compare=[compare], success=[op]), metadata=metadata(session, request), timeout=10).succeeded


def json_call(replica, path, body, session=None, request=None):
    headers = {} if session is None else {"Grpc-Metadata-holdfast-session": str(session), "Grpc-Metadata-holdfast-request": str(request)}
    status, text = cells.http(f"http://{replica.endpoint}{path}", json.dumps(body).encode(), headers=headers)
    return status, json.loads(text)


def b64(b):
    return base64.b64encode(b).decode()


@test(own=True)
def the_same_again_on_every_replica_is_one_write(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        session = cs[0].grant(TTL)
        first = put(cs[0], session, 1, value=b"one")
        cs[1].put(b"k", b"two")
        for c in cs:
            again = put(c, session, 1, value=b"one")
            assert again.header.revision == first.header.revision
            assert again.header.member_id == c.status().header.member_id
            assert c.get(b"k").value == b"two"
        assert create(cs[0], session, 2, b"new") and create(cs[1], session, 2, b"new") and not create(cs[2], session, 3, b"new")


@test(own=True)
def over_json_too_and_across_the_two(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        session = cs[0].grant(TTL)
        body = {"key": b64(b"k"), "value": b64(b"json")}
        status, one = json_call(cell.replicas[0], "/v3/kv/put", body, session, 1)
        assert status == 200, one
        cs[1].put(b"k", b"other")
        status, two = json_call(cell.replicas[1], "/v3/kv/put", body, session, 1)
        assert status == 200 and two["header"]["revision"] == one["header"]["revision"], (one, two)
        assert put(cs[2], session, 1, value=b"json").header.revision == int(one["header"]["revision"])
        assert cs[2].get(b"k").value == b"other"
        status, lock = json_call(cell.replicas[0], "/v3/lock/lock", {"name": b64(b"l"), "lease": str(session)}, session, 2)
        assert status == 200, lock
        held = cs[1].lock.Lock(lockpb.LockRequest(name=b"l", lease=session), metadata=metadata(session, 2), timeout=10)
        assert held.fencing_token == int(lock["fencing_token"] if "fencing_token" in lock else lock["fencingToken"])
        for headers in ({"Grpc-Metadata-holdfast-session": "x"}, {"Grpc-Metadata-holdfast-session": "5"}, {"Grpc-Metadata-holdfast-request": "5"}):
            status, text = cells.http(f"http://{cell.replicas[0].endpoint}/v3/kv/put", json.dumps(body).encode(), headers=headers)
            assert status == 400, (headers, status, text)


@test(own=True)
def errors_are_results_and_bad_ids_are_refused(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        session = cs[0].grant(TTL)
        assert error_of(put, cs[0], session, 1, lease=4711)[0] == "NOT_FOUND"
        cs[0].grant(TTL, lease=4711)
        assert error_of(put, cs[1], session, 1, lease=4711)[0] == "NOT_FOUND"
        put(cs[1], session, 2)
        put(cs[1], session, 3, first=3)
        assert error_of(put, cs[2], session, 2) == ("FAILED_PRECONDITION", "holdfast: the result of this request ID is no longer kept")
        assert error_of(put, cs[2], 999999, 1) == ("NOT_FOUND", "holdfast: no such session")
        assert error_of(put, cs[2], session, 4, first=5)[0] == "INVALID_ARGUMENT"
        cs[0].revoke(session)
        assert error_of(put, cs[2], session, 3)[0] == "NOT_FOUND"


@test(own=True, timeout=120)
def after_a_fail_over_and_a_restart_of_all(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        session = cs[0].grant(TTL)
        first = put(cs[0], session, 1)
        held = cs[0].lock.Lock(lockpb.LockRequest(name=b"l", lease=session), metadata=metadata(session, 2), timeout=10)
        leader = cell.leader()
        leader.kill()
        rest = [c for c, r in zip(cs, cell.replicas) if r is not leader]
        for c in rest:
            assert insist(lambda: put(c, session, 1)).header.revision == first.header.revision
        leader.start()
        cell.wait_ready()
        for r in cell.replicas:
            r.kill()
        for r in cell.replicas:
            r.start()
        cell.wait_ready()
        for c in cs:
            assert insist(lambda: put(c, session, 1)).header.revision == first.header.revision
            again = insist(lambda: c.lock.Lock(lockpb.LockRequest(name=b"l", lease=session), metadata=metadata(session, 2), timeout=10))
            assert again.fencing_token == held.fencing_token


@test(own=True, timeout=120)
def after_a_snapshot_was_installed(server):
    with cells.Cell(server, 3, flags=["--snapshot-count=100"]) as cell, clients(cell) as cs:
        session = cs[0].grant(TTL)
        first = put(cs[0], session, 1, key=b"once", value=b"one")
        late = next(i for i, r in enumerate(cell.replicas) if r is not cell.leader())
        cell.replicas[late].kill()
        other = cs[(late + 1) % 3]
        for i in range(500):
            insist(lambda: other.put(b"k%d" % (i % 7), b"x"))
        cell.replicas[late].start()
        cell.wait_ready()
        assert insist(lambda: put(cs[late], session, 1, key=b"once", value=b"two")).header.revision == first.header.revision
        assert cs[late].get(b"once").value == b"one"


@test(own=True, timeout=120)
def increments_with_the_leader_killed_are_each_done_once(server):
    """A counter is raised by a compare and a put that may be sent several times; each ID counts once."""
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        session = cs[0].grant(TTL)
        started = time.monotonic()
        killed = None
        for request in range(1, 61):
            def once(i=[request]):
                i[0] += 1
                return put(cs[i[0] % 3], session, request, key=b"n", value=b"%d" % request, first=request)
            insist(once)
            if request == 20:
                killed = cell.leader()
                killed.kill()
            if request == 40:
                killed.start()
        kv = insist(lambda: cs[0].get(b"n"))
        assert kv.version == 60 and kv.value == b"60", f"version {kv.version} after 60 requests, {time.monotonic() - started:.1f} s"


@test(own=True)
def a_waiting_lock_keeps_its_place_when_its_replica_dies(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        leases = [cs[0].grant(TTL) for _ in range(3)]
        leader = cell.replicas.index(cell.leader())
        dies, stays = [i for i in range(3) if i != leader]
        held = cs[stays].take_lock(b"l", leases[0])
        request = lockpb.LockRequest(name=b"l", lease=leases[1])
        lost = cs[dies].lock.Lock.future(request, metadata=metadata(leases[1], 1), timeout=60)
        wait_queue(cs[stays], b"l", 2)
        later = cs[stays].ask_lock(b"l", leases[2])
        wait_queue(cs[stays], b"l", 3)
        place = cs[stays].queue(b"l")[1].create_revision
        cell.replicas[dies].kill()
        again = cs[stays].lock.Lock.future(request, metadata=metadata(leases[1], 1), timeout=60)
        time.sleep(0.5)
        cs[stays].unlock(held.key)
        assert again.result(20).fencing_token == place
        assert not later.done() and error_of_future(lost)[0] == "UNAVAILABLE"


@test(own=True)
def a_campaign_and_a_resign_again(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        session = cs[0].grant(TTL)
        request = electionpb.CampaignRequest(name=b"e", lease=session, value=b"me")
        won = cs[0].election.Campaign(request, metadata=metadata(session, 1), timeout=10)
        again = cs[1].election.Campaign(request, metadata=metadata(session, 1), timeout=10)
        assert again.leader == won.leader
        resign = electionpb.ResignRequest(leader=won.leader)
        cs[1].election.Resign(resign, metadata=metadata(session, 2), timeout=10)
        cs[2].election.Campaign(request, metadata=metadata(session, 3), timeout=10)
        cs[0].election.Resign(resign, metadata=metadata(session, 2), timeout=10)
        assert len(cs[0].queue(b"e")) == 1


if __name__ == "__main__":
    sys.exit("run.py runs these")
