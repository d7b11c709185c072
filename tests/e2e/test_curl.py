"""curl: locks, elections and watches from a shell, and what becomes of them when the curl is killed."""
import contextlib
import json
import signal
import time

import cells
from clients import Eye, b64, call, curl, curl_talk, insist, metric, pb, unb64, wait_metric
from runner import test

GONE = 1.0  # seconds within which a client that went away is noticed


def _lease(replica, ttl=60):
    return call(replica, "/lease/grant", {"TTL": ttl})["ID"]


def _lock(replica, name, lease=None):
    return curl_talk(replica, "/lock/lock", {"name": b64(name), "lease": lease or _lease(replica)})


def _json(talk, timeout=10):
    return json.loads(talk.expect("^{", timeout).string)


@test()
def locks_with_tokens_pass_on_in_order(server):
    with cells.Cell(server, 3) as cell:
        held = _json(_lock(cell.replicas[0], "l"))
        with Eye(cell) as eye:
            waiting = []
            for i in range(4):
                waiting.append(_lock(cell.replicas[i % 3], "l"))
                eye.wait_queue(b"l", i + 2)
        last = int(held["fencing_token"])
        for i, w in enumerate(waiting):
            assert not [x for x in waiting[i:] if x.lines()], "two hold the lock"
            call(cell.replicas[(i + 1) % 3], "/lock/unlock", {"key": held["key"]})
            held = _json(w)
            w.wait()
            assert int(held["fencing_token"]) > last, held
            last = int(held["fencing_token"])
            assert unb64(held["key"]) == f"l/{int(held['lease']):x}" and 0 < int(held["ttl"]) <= 60, held


@test()
def a_lock_that_is_only_tried_or_waits_for_a_bound(server):
    with cells.Cell(server, 3) as cell:
        first = call(cell.replicas[0], "/lock/lock", {"name": b64("l"), "lease": _lease(cell.replicas[0])})
        began = time.monotonic()
        status, text = curl(cell.replicas[1], "/v3/lock/lock", {"name": b64("l"), "lease": _lease(cell.replicas[1]), "wait_ms": 0})
        assert status == 412 and time.monotonic() - began < 2, (status, text)
        assert json.loads(text)["code"] == 9, text
        status, text = curl(cell.replicas[2], "/v3/lock/lock", {"name": b64("l"), "lease": _lease(cell.replicas[2]), "wait_ms": "300"})
        assert status == 504 and json.loads(text)["code"] == 4, (status, text)
        with Eye(cell) as eye:
            eye.wait_queue(b"l", 1, 2)
        status, text = curl(cell.replicas[1], "/v3/lock/unlock", {"key": first["key"], "fencing_token": int(first["fencing_token"]) + 1})
        assert status == 412, (status, text)
        for _ in range(2):  # what is sent twice frees nothing else
            call(cell.replicas[1], "/lock/unlock", {"key": first["key"], "fencing_token": first["fencing_token"]})
        again = call(cell.replicas[0], "/lock/lock", {"name": b64("l"), "lease": first["lease"]})
        assert again["key"] == first["key"] and int(again["fencing_token"]) > int(first["fencing_token"])
        call(cell.replicas[1], "/lock/unlock", {"key": first["key"], "fencing_token": first["fencing_token"]})
        with Eye(cell) as eye:
            assert eye.queue(b"l") == [unb64(again["key"]).encode()], "an old token freed a later hold"
        status, text = curl(cell.replicas[1], "/v3/lock/lock", {"name": b64("l"), "lease": "12345"})
        assert status == 404 and "requested lease not found" in text, (status, text)


def _gone_within_a_second(eye, name, length, limit=GONE):
    began = time.monotonic()
    eye.wait_queue(name, length, 10)
    took = time.monotonic() - began
    print(f"gone after {took:.3f} s")
    assert took < limit, f"it left the queue only after {took:.2f} s"


@test()
def a_killed_curl_leaves_no_place_in_the_queue(server):
    for size in (1, 3):
        with cells.Cell(server, size) as cell, Eye(cell) as eye:
            held = call(cell.replicas[0], "/lock/lock", {"name": b64("l"), "lease": _lease(cell.replicas[0])})
            for r in cell.replicas:
                for sig in (signal.SIGKILL, signal.SIGINT):
                    lease = _lease(r)
                    waiting = _lock(r, "l", lease)
                    eye.wait_queue(b"l", 2)
                    cells.end(waiting.process, sig)
                    _gone_within_a_second(eye, b"l", 1)
                    assert int(lease) in eye.leases(), "its lease went too, which is its own affair"
                    campaign = curl_talk(r, "/election/campaign", {"name": b64("l"), "lease": lease, "value": b64("v")})
                    eye.wait_queue(b"l", 2)
                    cells.end(campaign.process, sig)
                    _gone_within_a_second(eye, b"l", 1)
                # With no lease of its own the call was given one, which goes with it.
                before = eye.leases()
                waiting = curl_talk(r, "/lock/lock", {"name": b64("l")})
                eye.wait_queue(b"l", 2)
                waiting.kill()
                _gone_within_a_second(eye, b"l", 1)
                cells.wait_for("the lease that was made for it is gone", lambda: eye.leases() == before, 5)
                wait_metric(r, "holdfast_waiters", 0)
            assert unb64(held["key"]).encode() == eye.queue(b"l")[0]


@test()
def a_killed_curl_that_has_waited_for_a_while_is_gone_at_once(server):
    """Only who has just asked may have closed its side to read a quick answer. Another must not be given the lock any more."""
    with cells.Cell(server, 3) as cell, Eye(cell) as eye:
        held = call(cell.replicas[0], "/lock/lock", {"name": b64("l"), "lease": _lease(cell.replicas[0])})
        waiting = [_lock(r, "l") for r in cell.replicas]
        eye.wait_queue(b"l", 4)
        time.sleep(0.5)
        for w in waiting:
            w.kill()
        _gone_within_a_second(eye, b"l", 1, limit=0.2)
        call(cell.replicas[0], "/lock/unlock", {"key": held["key"]})
        assert eye.queue(b"l") == []


@test()
def a_curl_that_dies_while_the_lock_is_handed_to_it_keeps_it_at_most_for_its_lease(server):
    """Killed at any moment around the grant. Whether it could still be told is not for the server to know; nothing is stuck either way."""
    with cells.Cell(server, 3) as cell, Eye(cell) as eye:
        for i in range(15):
            held = eye.ask_lock(b"l", eye.grant(60)).result(10)
            lease = eye.grant(60)
            waiting = _lock(cell.replicas[i % 3], "l", lease)
            second = eye.wait_queue(b"l", 2)[1]
            unlock = eye.kv.DeleteRange.future(pb.DeleteRangeRequest(key=held.key), timeout=10)
            time.sleep(i * 0.0004)  # the moment is what varies
            waiting.kill()
            unlock.result(10)
            if waiting.lines():
                assert eye.queue(b"l") == [second], "it was told that it holds"
            eye.revoke(lease)
            assert eye.queue(b"l") == []


@test()
def killed_streams_are_cleaned_up(server):
    with cells.Cell(server, 3) as cell, Eye(cell) as eye:
        leader = cell.leader()
        for r in (leader, next(r for r in cell.replicas if r is not leader)):
            before = metric(r, "holdfast_watchers")
            streams = [curl_talk(r, "/watch", {"create_request": {"key": b64("k%d" % i)}}) for i in range(8)]
            streams.append(curl_talk(r, "/watch", "".join(json.dumps({"create_request": {"key": b64("m%d" % i)}}) for i in range(5))))
            for s in streams:
                s.expect('"created":true')
            observers = [curl_talk(r, "/election/observe", {"name": b64("e")}) for _ in range(3)]
            cells.wait_for("13 watches and 3 observers", lambda: metric(r, "holdfast_watchers") >= before + 13 and metric(
                r, "holdfast_gateway_calls") == 12, 5)
            # A stream with something under way, and ones that are quiet.
            eye.put(b"k0", b"x")
            streams[0].expect('"events"')
            began = time.monotonic()
            for s in streams + observers:
                s.process.kill()
            wait_metric(r, "holdfast_watchers", before, 10)
            wait_metric(r, "holdfast_gateway_calls", 0, 10)
            assert time.monotonic() - began < GONE + 0.5, f"cleaned up only after {time.monotonic() - began:.2f} s"


@test()
def watches_with_history_filters_progress_and_cancel(server):
    with cells.Cell(server, 1) as cell, Eye(cell) as eye:
        first = eye.put(b"w/a", b"1")
        eye.put(b"w/b", b"2")
        eye.delete(b"w/a")
        body = "".join(json.dumps(m) for m in (
            {"create_request": {"key": b64("w/"), "range_end": b64("w0"), "start_revision": first, "prev_kv": True}},
            {"create_request": {"key": b64("w/"), "rangeEnd": b64("w0"), "startRevision": str(first), "filters": ["NOPUT"]}},
            {"create_request": {"key": b64("w/a"), "watch_id": 7}}, {"cancel_request": {"watch_id": 7}}, {"progress_request": {}}))
        with curl_talk(cell.replicas[0], "/watch", body) as w:
            seen = {}
            deadline = time.monotonic() + 10
            while time.monotonic() < deadline and not (len(seen.get("0", [])) == 3 and len(seen.get("1", [])) == 1 and "cancelled" in seen):
                r = json.loads(w.expect("^{").string)["result"]
                if "events" in r:
                    seen.setdefault(r.get("watch_id", "0"), []).extend(r["events"])
                if r.get("canceled"):
                    seen["cancelled"] = r["watch_id"]
            zero, one = seen["0"], seen["1"]
            assert [(e.get("type", "PUT"), unb64(e["kv"]["key"])) for e in zero] == [("PUT", "w/a"), ("PUT", "w/b"), ("DELETE", "w/a")], zero
            assert unb64(zero[2]["prev_kv"]["value"]) == "1" and [e["type"] for e in one] == ["DELETE"] and seen["cancelled"] == "7", seen
            eye.put(b"w/a", b"3")
            assert "events" in json.loads(w.expect("events").string)["result"]
        eye.compact(first + 2)
        with curl_talk(cell.replicas[0], "/watch", {"create_request": {"key": b64("w/"), "range_end": b64("w0"), "start_revision": first}}) as w:
            r = json.loads(w.expect("compact_revision").string)["result"]
            assert r["canceled"] and r["compact_revision"] == str(first + 2), r


@test()
def elections_by_curl_alone(server):
    with cells.Cell(server, 3) as cell, Eye(cell) as eye:
        a, b, c = cell.replicas
        status, text = curl(a, "/v3/election/leader", {"name": b64("e")})
        assert (status, json.loads(text)["message"]) == (500, "election: no leader"), text
        with curl_talk(c, "/election/observe", {"name": b64("e"), "vacancy": True}) as observer:
            assert json.loads(observer.expect("^{").string)["result"]["vacant"] is True
            one = call(a, "/election/campaign", {"name": b64("e"), "lease": _lease(a), "value": b64("one")})
            assert one["fencing_token"] == one["leader"]["rev"], one
            two = curl_talk(b, "/election/campaign", {"name": b64("e"), "lease": _lease(b), "value": b64("two")})
            eye.wait_queue(b"e", 2)
            call(c, "/election/proclaim", {"leader": one["leader"], "value": b64("again")})
            assert unb64(call(b, "/election/leader", {"name": b64("e")})["kv"]["value"]) == "again"
            call(b, "/election/resign", {"leader": one["leader"]})
            won = _json(two)
            assert int(won["fencing_token"]) > int(one["fencing_token"])
            status, text = curl(a, "/v3/election/proclaim", {"leader": one["leader"], "value": b64("late")})
            assert status == 500 and "election: not leader" in text, text
            call(a, "/election/resign", {"leader": one["leader"]})
            eye.revoke(int(won["leader"]["lease"]))
            told = [json.loads(observer.expect("^{").string)["result"] for _ in range(4)]
            values = [unb64(r["kv"]["value"]) if "kv" in r else "(vacant)" for r in told]
            assert values == ["one", "again", "two", "(vacant)"], values


@test()
def keep_alive_bodies(server):
    with cells.Cell(server, 3) as cell:
        lease = _lease(cell.replicas[0], 30)
        gone = {"ID": "999"}
        with curl_talk(cell.replicas[1], "/lease/keepalive", json.dumps({"ID": lease}) + json.dumps(gone)) as k:
            k.wait()
            replies = [json.loads(line)["result"] for line in k.lines() if line]
            assert [(r["ID"], r.get("TTL")) for r in replies] == [(lease, "30"), ("999", None)], replies
        for path in ("/lease/timetolive", "/kv/lease/timetolive"):
            assert call(cell.replicas[2], path, {"ID": lease, "keys": True})["grantedTTL"] == "30"
        call(cell.replicas[2], "/kv/lease/revoke", {"ID": lease})
        assert call(cell.replicas[0], "/lease/timetolive", {"ID": lease})["TTL"] == "-1"


@test()
def health_version_metrics_and_v3beta(server):
    with cells.Cell(server, 3) as cell:
        for r in cell.replicas:
            assert json.loads(curl(r, "/health")[1])["health"] == "true"
            assert json.loads(curl(r, "/version")[1])["etcdserver"].startswith("3.")
            assert curl(r, "/v3beta/kv/put", {"key": b64("k"), "value": b64("v")})[0] == 200
            assert curl(r, "/v3/none", {})[0] == 404 and curl(r, "/v3/kv/put")[0] == 405
        assert sum(metric(r, "holdfast_is_leader") for r in cell.replicas) == 1
        leader = cell.leader()
        for r in cell.replicas:
            if r is not leader:
                r.kill()
        cells.wait_for("it says that it is not healthy", lambda: curl(leader, "/health")[0] == 503, 15, 0.1)
        assert json.loads(curl(leader, "/health")[1])["health"] == "false"


@test()
def calls_by_curl_wait_through_the_death_of_the_leader(server):
    with cells.Cell(server, 3) as cell:
        leader = cell.leader()
        a, b = [r for r in cell.replicas if r is not leader]
        held = call(a, "/lock/lock", {"name": b64("l"), "lease": _lease(a)})
        watching = {"create_request": {"key": b64("l/"), "range_end": b64("l0")}}
        with Eye(b) as eye, curl_talk(a, "/watch", watching) as w, contextlib.ExitStack() as stack:
            w.expect("created")
            waiting = stack.enter_context(_lock(b, "l"))
            eye.wait_queue(b"l", 2)
            leader.kill()
            insist(lambda: eye.put(b"alive"))
            assert waiting.lines() == []
            call(a, "/lock/unlock", {"key": held["key"]})
            got = _json(waiting)
            assert int(got["fencing_token"]) > int(held["fencing_token"])
            told = [json.loads(line)["result"]["events"] for line in [w.expect('"events"').string for _ in range(2)]]
            assert [e.get("type", "PUT") for events in told for e in events] == ["PUT", "DELETE"], told
