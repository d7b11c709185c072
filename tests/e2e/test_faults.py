"""Faults that other services of this kind have had in public, end to end. Each is also a unit test of the module that would have it; here real clients,
processes and deaths are in between."""
import json
import os
import random
import socket
import threading

import cells
import grpc
from clients import (Eye, Stream, b64, curl, curl_talk, electionpb, error_of, events_until, eyes, go_talk, insist, lockpb, pb, wait_metric,
                     watch)
from runner import is_full, test


def _prefix(p):
    return {"key": p, "range_end": p[:-1] + bytes([p[-1] + 1])}


# ---- watches ----------------------------------------------------------------------------------------------------------------

@test()
def a_watch_from_the_future_gets_nothing_old_when_it_moves_to_another_replica(server):
    """The other replica is behind: what it applies later is older than what was asked for."""
    with cells.Cell(server, 3) as cell, eyes(cell) as es:
        leader = cell.leader()
        a, b = [i for i, r in enumerate(cell.replicas) if r is not leader]
        at = cell.replicas.index(leader)
        start = es[at].put(b"f", b"0") + 20
        w = watch(es[a], b"f", start_revision=start)
        cell.replicas[b].pause()
        for i in range(1, 10):
            es[at].put(b"f", b"%d" % i)
        cell.replicas[a].resume()
        # It moves to the one that is behind, which answers when it goes on.
        w.call.cancel()
        moved = Stream(es[b].watch.Watch, pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"f", start_revision=start)))
        cell.replicas[b].resume()
        assert moved.next().created
        for i in range(10, 40):
            es[at].put(b"f", b"%d" % i)
        es[at].put(b"f", b"end")
        got = []
        while not got or got[-1][1] != b"end":
            got += [(e.kv.mod_revision, e.kv.value) for e in moved.next(lambda r: r.events).events]
        assert [r for r, _ in got] == list(range(start, start + len(got))), f"asked from {start}: {got}"
        assert got[0][1] == b"20"


@test()
def nothing_is_told_twice_or_left_out_when_a_watch_moves_on(server):
    """It moves between three replicas again and again, also to one that is paused and behind, while all of them are written to."""
    with cells.Cell(server, 3) as cell, eyes(cell) as es:
        first = es[0].put(b"d/start")
        end = threading.Event()

        def write(i):
            n = 0
            while not end.is_set():
                n += 1
                insist(lambda n=n: es[i].put(b"d/%d" % i, b"%d" % n))

        writers = [threading.Thread(target=write, args=(i,), daemon=True) for i in range(2)]
        for t in writers:
            t.start()
        got, next_revision = [], first
        for turn in range(60 if is_full() else 20):
            i = turn % 3
            if i == 2 and turn % 2:
                cell.replicas[2].pause()
                cells.wait_for("others go on", lambda r=es[0].revision() + 20: es[0].revision() >= r, 10)
            s = Stream(es[i].watch.Watch, pb.WatchRequest(create_request=pb.WatchCreateRequest(**_prefix(b"d/"), start_revision=next_revision, prev_kv=bool(turn % 2))))
            cell.replicas[2].resume()
            reply = s.next()
            assert reply.created and not reply.canceled, reply
            for _ in range(random.randrange(1, 6)):
                reply = s.next(lambda r: r.events)
                got += [(e.kv.mod_revision, e.kv.key, e.kv.value) for e in reply.events]
                next_revision = got[-1][0] + 1
            s.call.cancel()
        end.set()
        for t in writers:
            t.join(20)
        insist(lambda: es[1].put(b"d/end"))
        with watch(es[1], **_prefix(b"d/"), start_revision=first) as s:
            want = [(rev, key, value) for rev, _, key, value in events_until(s, b"d/end")]
        assert got == want[:len(got)], f"{len(got)} events, and not the first of {len(want)}"


@test()
def a_snapshot_that_is_installed_tells_nothing_twice_and_hides_nothing(server):
    """A follower is paused while so much is written that it has to catch up by snapshot; its watch goes on, or says that it cannot."""
    with cells.Cell(server, 3, flags=["--snapshot-count", "50"]) as cell, eyes(cell) as es:
        leader = cell.leader()
        at = cell.replicas.index(leader)
        f = next(i for i in range(3) if i != at)
        w = watch(es[f], **_prefix(b"s/"))
        es[at].put(b"s/first")
        assert w.next(lambda r: r.events).events[0].kv.key == b"s/first"
        first = es[at].revision()
        cell.replicas[f].pause()
        calls = []
        for i in range(600):
            calls.append(es[at].kv.Put.future(pb.PutRequest(key=b"s/%d" % (i % 50), value=b"%d" % i + b"." * 2000), timeout=20))
        for c in calls:
            c.result()
        es[at].put(b"s/end")
        cell.replicas[f].resume()
        got = []
        while not got or got[-1][1] != b"s/end":
            reply = w.next(lambda r: r.events or r.canceled, 30)
            if reply.canceled:
                assert reply.compact_revision > 0, reply
                print(f"cancelled, compacted at {reply.compact_revision}")
                return
            got += [(e.kv.mod_revision, e.kv.key) for e in reply.events]
        assert [r for r, _ in got] == list(range(first + 1, first + 602)), "events were told twice or left out"


@test()
def a_slow_reader_misses_nothing_or_is_told_so(server):
    """A client that stops reading, much more data than any buffer holds, and a compaction above what it has read."""
    with cells.Cell(server, 1) as cell, Eye(cell) as eye:
        first = eye.put(b"b/0")
        body = json.dumps({"create_request": {"key": b64("b/"), "range_end": b64("b0"), "start_revision": first}}).encode()
        slow = socket.create_connection(("127.0.0.1", cell.replicas[0].client_port))
        slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 65536)
        slow.sendall(b"POST /v3/watch HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body))
        before = cell.replicas[0].rss_mb()
        for i in range(200):
            eye.put(b"b/%d" % (i % 10), b"%d " % i + b"x" * 100_000)
        head = eye.revision()
        eye.compact(head)
        eye.put(b"b/end")
        grown = cell.replicas[0].rss_mb() - before
        seen, lost = [], 0
        reader = slow.makefile("rb")
        slow.settimeout(20)
        for line in reader:
            if not line.startswith(b"{"):
                continue
            r = json.loads(line)["result"]
            seen += [int(e["kv"]["mod_revision"]) for e in r.get("events", [])]
            if r.get("canceled"):
                lost = int(r["compact_revision"])
                break
            if seen and seen[-1] > head:
                break
        slow.close()
        assert seen == list(range(first, first + len(seen))), "events were left out in silence"
        assert lost == head or seen[-1] > head, (lost, seen[-3:])
        # A sanitizer keeps what was freed.
        assert grown < 120 or "ASAN_OPTIONS" in os.environ, f"memory grew by {grown:.0f} MB for a reader that does not read (20 MB were written)"
        print(f"{len(seen)} events were told, then {'the loss' if lost else 'the end'}; memory grew by {grown:.0f} MB")


@test()
def a_delete_at_exactly_the_compacted_revision_is_told_to_a_watch_from_there(server):
    with cells.Cell(server, 3) as cell, eyes(cell) as es:
        for key in (b"one", b"p/x"):
            es[0].put(key)
            revision = es[0].delete(key).header.revision
            es[0].compact(revision)
            es[1].revision()
            for fields in ({"key": key}, _prefix(key[:1])):
                with watch(es[1], **fields, start_revision=revision) as s:
                    event = s.next(lambda r: r.events or r.canceled).events[0]
                    assert event.type == 1 and event.kv.key == key and event.kv.mod_revision == revision, event


@test()
def a_progress_notice_never_overtakes_events(server):
    with cells.Cell(server, 3) as cell, eyes(cell) as es:
        s = watch(es[1], **_prefix(b"p/"))
        end = threading.Event()

        def write():
            i = 0
            while not end.is_set():
                i += 1
                es[0].put(b"p/%d" % (i % 5))
        writer = threading.Thread(target=write, daemon=True)
        writer.start()
        notices, events, at = 0, [], 0
        while notices < 60 or len(events) < 40:
            s.send(pb.WatchRequest(progress_request=pb.WatchProgressRequest()))
            while True:
                reply = s.next()
                if not reply.events:
                    assert reply.watch_id == -1 or reply.watch_id == 0, reply
                    notices += 1
                    at = max(at, reply.header.revision)
                    break
                events += [e.kv.mod_revision for e in reply.events]
                assert events[len(events) - len(reply.events)] > at, f"event {events[-1]} after a notice of {at}"
        end.set()
        writer.join(10)
        assert events == list(range(events[0], events[0] + len(events)))


@test()
def watch_id_zero_is_an_id(server):
    with cells.Cell(server, 1) as cell, Eye(cell) as eye:
        s = watch(eye, b"a")
        assert s.replies[0].watch_id == 0, "the first ID is 0"
        s.send(pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"b")))
        assert s.next().watch_id == 1
        eye.put(b"a")
        assert s.next(lambda r: r.events).watch_id == 0
        s.send(pb.WatchRequest(cancel_request=pb.WatchCancelRequest(watch_id=0)))
        gone = s.next(lambda r: r.canceled)
        assert gone.watch_id == 0 and not gone.compact_revision, gone
        eye.put(b"a")
        eye.put(b"b")
        reply = s.next(lambda r: r.events)
        assert reply.watch_id == 1 and reply.events[0].kv.key == b"b", "watch 0 was not cancelled"
        wait_metric(cell.replicas[0], "holdfast_watchers", 1)
        # In JSON the ID is left out when it is 0.
        body = json.dumps({"create_request": {"key": b64("a")}}) + json.dumps({"cancel_request": {}})
        with curl_talk(cell.replicas[0], "/watch", body) as w:
            first = json.loads(w.expect("created").string)["result"]
            assert "watch_id" not in first, first
            assert json.loads(w.expect("canceled").string)["result"]["canceled"] is True


@test()
def a_negative_start_is_refused(server):
    with cells.Cell(server, 1) as cell, Eye(cell) as eye:
        s = Stream(eye.watch.Watch, pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"a", start_revision=-5)))
        reply = s.next()
        if not reply.canceled:
            reply = s.next(lambda r: r.canceled)
        assert not reply.events and reply.cancel_reason, reply
        s.send(pb.WatchRequest(create_request=pb.WatchCreateRequest(key=b"a")))
        assert s.next().created, "the stream does not live on"
        status, text = curl(cell.replicas[0], "/v3/kv/range", {"key": b64("a"), "revision": -1})
        assert status in (200, 400), text


# ---- waits ------------------------------------------------------------------------------------------------------------------

@test()
def a_wait_for_a_lock_or_an_election_lives_through_compaction(server):
    """Whoever waits at a replica, asks again at another one, or waits by a recipe of a client: history is compacted meanwhile, and again."""
    with cells.Cell(server, 3) as cell, eyes(cell) as es, go_talk(cell, "observe", "e") as observer:
        leader = cell.leader()
        at = cell.replicas.index(leader)
        a, b = [i for i in range(3) if i != at]
        observer.expect("observing", 240)
        first = es[at].ask_lock(b"l", es[at].grant(60)).result(10)
        elected = es[at].campaign(b"e", es[at].grant(60), b"one").result(10)
        observer.expect("leader .* one")
        lease, elease = es[a].grant(60), es[a].grant(60)
        lock, campaign = es[b].ask_lock(b"l", lease), es[b].campaign(b"e", elease, b"two")
        es[a].wait_queue(b"l", 2)
        es[a].wait_queue(b"e", 2)
        with curl_talk(cell.replicas[a], "/lock/lock", {"name": b64("l"), "lease": es[a].grant(60)}) as third:
            es[a].wait_queue(b"l", 3)

            def compact():
                for i in range(20):
                    head = insist(lambda i=i: es[a].put(b"other", b"%d" % i))
                insist(lambda: es[a].compact(head))

            compact()
            cell.replicas[b].kill()
            for call_ in (lock, campaign):
                assert error_of(call_.result, 10)[0] == "UNAVAILABLE"
            compact()
            lock, campaign = insist(lambda: es[at].ask_lock(b"l", lease)), es[at].campaign(b"e", elease, b"two")
            compact()
            assert not lock.done() and not campaign.done(), (lock, campaign)
            insist(lambda: es[a].lock.Unlock(lockpb.UnlockRequest(key=first.key), timeout=10))
            got = lock.result(15)
            assert got.fencing_token > first.fencing_token
            insist(lambda: es[a].resign(elected.leader))
            won = campaign.result(15)
            assert won.fencing_token > elected.fencing_token
            observer.expect("leader .* two", 20)
            assert third.lines() == []
            es[a].revoke(lease)
            third.expect('"key"')


@test()
def success_from_campaign_means_that_the_key_is_there(server):
    """The candidate's lease ends, or its key is deleted, at about the moment at which it is elected."""
    with cells.Cell(server, 3) as cell, eyes(cell) as es:
        outcomes = {"elected": 0, "refused": 0}
        for i in range(60 if is_full() else 24):
            one, two = es[0], es[1 + i % 2]
            name = b"e%d" % i
            held = one.campaign(name, one.grant(60), b"one").result(10)
            lease = two.grant(60)
            candidate = two.campaign(name, lease, b"two", timeout=20)
            key = one.wait_queue(name, 2)[1]
            end_first = bool(i % 4 == 3)
            resign = one.election.Resign.future(electionpb.ResignRequest(leader=held.leader), timeout=10) if not end_first else None
            if i % 3 == 0:
                gone = two.kv.DeleteRange.future(pb.DeleteRangeRequest(key=key), timeout=10)
            else:
                gone = one.lease.LeaseRevoke.future(pb.LeaseRevokeRequest(ID=lease), timeout=10)
            if end_first:
                gone.result(10)
                code, text = error_of(candidate.result, 5)
                assert code in ("NOT_FOUND", "FAILED_PRECONDITION", "ABORTED", "CANCELLED"), (code, text)
                outcomes["refused"] += 1
                one.resign(held.leader)
                continue
            try:
                won = candidate.result(10)
            except grpc.RpcError as e:
                assert e.code() not in (grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.UNKNOWN), e
                outcomes["refused"] += 1
            else:
                # It was there, and first, at a revision that the answer vouches for.
                kv = one.get(key, revision=won.leader.rev) if won.leader.rev else None
                assert kv and kv.value == b"two" and won.header.revision >= won.leader.rev, won
                history = watch(one, key, start_revision=won.leader.rev)
                deleted = history.next(lambda r: r.events and r.events[-1].type == 1).events[-1].kv.mod_revision
                history.call.cancel()
                before = watch(one, held.leader.key, start_revision=held.leader.rev)
                resigned = before.next(lambda r: r.events and r.events[-1].type == 1).events[-1].kv.mod_revision
                before.call.cancel()
                assert resigned < deleted, "elected, but the key was gone before the leader was"
                outcomes["elected"] += 1
            resign.result(10)
            gone.result(10)
        print(outcomes)


@test()
def who_leads_is_told_at_once_when_the_leaders_key_is_deleted(server):
    """Deleting the leader's key elects the next within one commit, and the old one finds that out when it proclaims."""
    with cells.Cell(server, 3) as cell, eyes(cell) as es:
        one = es[0].campaign(b"e", es[0].grant(60), b"one").result(10)
        two = es[1].campaign(b"e", es[1].grant(60), b"two")
        es[2].wait_queue(b"e", 2)
        deleted = es[2].delete(one.leader.key).header.revision
        won = two.result(5)
        assert won.header.revision == deleted, (won, deleted)
        code, text = error_of(es[0].election.Proclaim, electionpb.ProclaimRequest(leader=one.leader, value=b"x"), timeout=5)
        assert (code, text) == ("UNKNOWN", "election: not leader")


@test()
def a_candidate_that_gave_up_is_never_elected(server):
    """Its lease lives on. Whether it cancelled, ran into its deadline, was killed, or its replica was: it is no candidate any more."""
    with cells.Cell(server, 3) as cell, eyes(cell) as es:
        leader = cell.leader()
        at = cell.replicas.index(leader)
        a, b = [i for i in range(3) if i != at]
        held = es[at].campaign(b"e", es[at].grant(300), b"one").result(10)
        leases = [es[at].grant(300) for _ in range(4)]
        cancelled = es[a].campaign(b"e", leases[0], b"cancelled")
        es[at].wait_queue(b"e", 2)
        cancelled.cancel()
        es[at].wait_queue(b"e", 1, 2)
        late = es[a].campaign(b"e", leases[1], b"late", timeout=0.5)
        assert error_of(late.result, 5)[0] == "DEADLINE_EXCEEDED"
        es[at].wait_queue(b"e", 1, 2)
        killed = curl_talk(cell.replicas[a], "/election/campaign", {"name": b64("e"), "lease": leases[2], "value": b64("killed")})
        es[at].wait_queue(b"e", 2)
        killed.kill()
        es[at].wait_queue(b"e", 1, 2)
        lost_call = es[b].campaign(b"e", leases[3], b"lost its replica")
        lost = es[at].wait_queue(b"e", 2)[1]
        heir = es[a].campaign(b"e", es[a].grant(300), b"heir")
        es[at].wait_queue(b"e", 3)
        cell.replicas[b].kill()
        assert error_of(lost_call.result, 5)[0] == "UNAVAILABLE"
        # Nobody asks again in its place within the grace.
        cells.wait_for("the lost one left the queue", lambda: lost not in es[at].queue(b"e"), 30)
        assert not heir.done()
        es[at].resign(held.leader)
        assert heir.result(5).leader.key == es[at].queue(b"e")[0]
        assert {x for x in leases} <= es[at].leases(), "leases that nobody ended are gone"


# ---- half closed --------------------------------------------------------------------------------------------------------------

def _post(replica, path, body, cut=None):
    s = socket.create_connection(("127.0.0.1", replica.client_port))
    text = body.encode()
    data = b"POST /v3%s HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%s" % (path.encode(), len(text), text)
    s.sendall(data if cut is None else data[:cut])
    s.shutdown(socket.SHUT_WR)
    return s


@test()
def streams_that_are_half_closed_harm_nobody(server):
    """Over JSON the stream ends in time; over gRPC it goes on, since its client may still listen. In the middle of a body it is no request."""
    with cells.Cell(server, 3) as cell, Eye(cell) as eye:
        replica = cell.replicas[0]
        lease = eye.grant(60)
        bodies = [("/watch", json.dumps({"create_request": {"key": b64("h")}})), ("/election/observe", json.dumps({"name": b64("e")})),
                  ("/lease/keepalive", json.dumps({"ID": lease})), ("/lock/lock", json.dumps({"name": b64("l")})), ("/kv/range", json.dumps({"key": b64("h")}))]
        held = eye.ask_lock(b"l", lease).result(10)
        for turn in range(4):
            sockets = [_post(replica, path, body) for path, body in bodies]
            sockets += [_post(replica, path, body, cut) for path, body in bodies for cut in (3, 30, 70)]
            eye.put(b"h", b"%d" % turn)
            for s in sockets:
                s.settimeout(10)
                while s.recv(65536):  # until the server closes
                    pass
                s.close()
        wait_metric(replica, "holdfast_watchers", 0)
        wait_metric(replica, "holdfast_gateway_calls", 0)
        assert eye.wait_queue(b"l", 1) == [held.key]
        s = watch(eye, b"h")
        s.half_close()
        eye.put(b"h", b"last")
        assert s.next(lambda r: r.events).events[0].kv.value == b"last"
        s.call.cancel()
        observer = Stream(eye.election.Observe, electionpb.LeaderRequest(name=b"e"), one=True)
        eye.campaign(b"e", eye.grant(60), b"v").result(10)
        assert observer.next().kv.value == b"v"
        replies = list(eye.lease.LeaseKeepAlive(iter([pb.LeaseKeepAliveRequest(ID=lease)]), timeout=5))
        assert [r.TTL for r in replies] == [60]
        assert all(r.running() for r in cell.replicas)
