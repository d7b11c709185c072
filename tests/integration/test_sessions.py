"""holdfast.v1.Session: opened, kept alive, resumed, taken over, closed, expired; caches that are never stale; through the loss of a leader."""
import threading
import time

import cells
from kit import clients, error_of, insist, v1, wait_queue
from runner import test
from session_kit import Stream


def put(client, path, value, timeout=20, **fields):
    return client.nodes.Set(v1.NodesSetRequest(path=path, value=value, create=True, **fields), timeout=timeout)


def put_future(client, path, value, timeout=30):
    return client.nodes.Set.future(v1.NodesSetRequest(path=path, value=value, create=True), timeout=timeout)


def get(client, path):
    return client.nodes.Get(v1.NodesGetRequest(path=path), timeout=10).node


def figures_of(replica):
    status, text = cells.http(f"http://{replica.endpoint}/metrics")
    assert status == 200
    return dict(line.rsplit(" ", 1) for line in text.splitlines() if line and line[0] != "#")


@test(own=True)
def open_keep_alive_close(server):
    with cells.Cell(server, 1) as cell, clients(cell) as (c,):
        s = Stream(c)
        opened = s.open(ttl=30, name="worker 7")
        assert opened.session > 0 and len(opened.secret) == 32 and opened.ttl == 30 and opened.term > 0 and not opened.resumed
        kept = s.keep_alive()
        assert kept.ttl == 30 and kept.term == opened.term and not kept.cache_extended
        made = c.nodes.Create(v1.NodesCreateRequest(path="/workers/7", value=b"here", session=s.session), timeout=10).node
        assert made.session == s.session and made.version == 1
        hold = c.take_lock(b"job", s.session)
        assert c.ttl(s.session, keys=True).keys == sorted([b"/workers/7", hold.key])
        other = c.grant(60)
        assert Stream(c).open(ttl=0).ttl == 12
        waits = c.ask_lock(b"job", other)
        wait_queue(c, b"job", 2)
        s.send(close=v1.SessionClose())
        ended = s.next("ended")
        assert ended.reason == v1.SESSION_CLOSED
        assert s.wait_over() is None
        granted = waits.result(10)
        # The node, the hold and the lease went at one position: the next holder came to hold at that very revision.
        assert not get(c, "/workers/7").path and s.session not in c.leases()
        assert granted.fencing_token > hold.fencing_token and granted.header.revision == ended.revision


@test(own=True)
def resumed_on_another_replica_with_its_secret_alone(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        a = Stream(cs[0])
        opened = a.open(ttl=30)
        revision = put(cs[1], "/seen", b"x").header.revision
        b = Stream(cs[1])
        again = b.resume(a.session, a.secret, revision)
        assert again.resumed and again.session == opened.session and again.revision >= revision and not again.secret
        # Twice at once: the second takes over, the first is told, and the session goes on.
        assert a.next("ended").reason == v1.SESSION_TAKEN_OVER and a.wait_over() is None
        assert b.keep_alive().ttl == 30
        c = Stream(cs[1])
        c.resume(a.session, a.secret)
        assert b.next("ended").reason == v1.SESSION_TAKEN_OVER
        c.drop()
        d = Stream(cs[2])
        d.resume(a.session, a.secret)
        assert d.keep_alive().ttl == 30 and a.session in cs[0].leases()
        # A client that numbers its tries: a lower number takes over from none that is higher.
        d.drop()
        e = Stream(cs[0])
        e.resume(a.session, a.secret, attempt=7)
        for attempt in (6, 7):
            late = Stream(cs[1])
            late.send(resume=v1.SessionResume(session=a.session, secret=a.secret, attempt=attempt))
            assert late.wait_over() == ("FAILED_PRECONDITION", "holdfast: a later stream has resumed the session")
        assert e.keep_alive().ttl == 30
        f = Stream(cs[1])
        f.resume(a.session, a.secret, attempt=8)
        assert e.next("ended").reason == v1.SESSION_TAKEN_OVER and f.keep_alive().ttl == 30


@test(own=True)
def bad_input(server):
    with cells.Cell(server, 1) as cell, clients(cell) as (c,):
        def ends(**fields):
            s = Stream(c)
            s.send(**fields)
            return s.wait_over()[0]

        good = Stream(c)
        good.open(ttl=30, prefixes=["/c"])
        assert ends(resume=v1.SessionResume(session=good.session + 1, secret=good.secret)) == "NOT_FOUND"
        assert ends(resume=v1.SessionResume(session=c.grant(60), secret=b"")) == "NOT_FOUND"  # a lease is no session yet
        assert ends(resume=v1.SessionResume(session=good.session)) == "PERMISSION_DENIED"
        assert ends(resume=v1.SessionResume(session=good.session, secret=bytes(32))) == "PERMISSION_DENIED"
        assert ends(resume=v1.SessionResume(session=good.session, secret=good.secret, revision=1 << 60)) == "OUT_OF_RANGE"
        assert ends(resume=v1.SessionResume(session=good.session, secret=good.secret, attempt=-1)) == "INVALID_ARGUMENT"
        assert ends(keep_alive=v1.SessionKeepAlive(sequence=1)) == "INVALID_ARGUMENT"
        assert ends(ack=v1.SessionAck(number=1)) == "INVALID_ARGUMENT"
        assert ends() == "INVALID_ARGUMENT"
        assert ends(open=v1.SessionOpen(ttl=-1)) == "OUT_OF_RANGE"
        assert ends(open=v1.SessionOpen(ttl=3601)) == "OUT_OF_RANGE"
        assert ends(open=v1.SessionOpen(ttl=61, cache_prefixes=["/"])) == "OUT_OF_RANGE"
        for bad in ("", "x", "/a/", "//", "/a/../b", "/" + "a" * 1024, "/a" * 33):
            assert ends(open=v1.SessionOpen(cache_prefixes=[bad])) == "INVALID_ARGUMENT", bad
        assert ends(open=v1.SessionOpen(cache_prefixes=["/a"] * 17)) == "INVALID_ARGUMENT"
        assert ends(open=v1.SessionOpen(name="x" * 257)) == "INVALID_ARGUMENT"
        twice = Stream(c)
        twice.open(ttl=30)
        twice.send(open=v1.SessionOpen())
        assert twice.wait_over()[0] == "INVALID_ARGUMENT" and twice.session in c.leases()
        # Acknowledged though never sent; of another term; and what was said before, once more.
        put(c, "/c/x", b"1")
        good.cached("/c/x")
        put(c, "/c/x", b"2")
        v = good.next("invalidation")
        for _ in range(3):
            good.ack(v)
        good.send(ack=v1.SessionAck(number=1 << 40, term=v.term - 1))
        assert good.keep_alive().cache_extended
        good.send(ack=v1.SessionAck(number=v.number + 1, term=v.term))
        assert good.wait_over()[0] == "INVALID_ARGUMENT"
        again = Stream(c)  # nothing is lost
        again.resume(good.session, good.secret)
        assert again.keep_alive().cache_extended


@test(own=True)
def expires_with_everything_in_one_entry_and_is_told(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        s, other = Stream(cs[0]), Stream(cs[1])
        ttl = s.open(ttl=2).ttl
        other.open(ttl=60)
        begin = time.monotonic()
        for name in "ab":
            cs[1].nodes.Create(v1.NodesCreateRequest(path="/e/" + name, session=s.session), timeout=10)
        assert len(other.list("/e", watch=9).nodes) == 2
        event = other.next("event", ttl + 30)
        assert time.monotonic() - begin >= ttl * 0.9  # begun after the open was sent
        assert event.watch == 9 and event.change == v1.NODE_CHILDREN_CHANGED
        assert not other.list("/e").nodes
        ended = s.next("ended")
        assert ended.reason == v1.SESSION_EXPIRED and s.wait_over() is None
        gone = Stream(cs[2])
        gone.send(resume=v1.SessionResume(session=s.session, secret=s.secret))
        assert gone.wait_over() == ("NOT_FOUND", "holdfast: no such session")
        revoked = Stream(cs[2])
        revoked.open(ttl=60)
        cs[0].revoke(revoked.session)
        assert revoked.next("ended").reason == v1.SESSION_REVOKED


@test(own=True)
def a_write_waits_for_who_caches_it(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        put(cs[0], "/cfg/a", b"old")
        put(cs[0], "/cfg/b", b"b")
        s = [Stream(c, acks=False) for c in cs]
        for one in s:
            one.open(ttl=60, prefixes=["/cfg"])
            answer = one.cached("/cfg/a")
            assert answer.node.value == b"old" and answer.grant.term == answer.header.raft_term
            one.cached("/cfg/none")
            one.cached("/cfg", one.list)
        outside = put(cs[0], "/elsewhere", b"1")
        assert not s[0].get("/elsewhere", cache=True).grant.term and outside.node.version == 1
        write = put_future(cs[1], "/cfg/a", b"new")
        vs = [one.next("invalidation") for one in s]
        assert all({(i.path, i.aspect) for i in v.items} == {("/cfg/a", 0), ("/cfg", 1)} and v.number == 1 for v in vs)
        # Meanwhile: reads are answered, the old value, not to be cached; others are written, and the right is not extended.
        for one in s:
            answer = one.get("/cfg/a", cache=True)
            assert answer.node.value == b"old" and not answer.grant.term
            assert not one.keep_alive().cache_extended
        put(cs[2], "/cfg2", b"overtakes")
        assert not write.done()
        s[0].ack(vs[0])
        s[1].ack(vs[1])
        assert s[1].keep_alive().cache_extended and not write.done()
        s[2].ack(vs[2])
        assert write.result(20).node.version == 2
        assert all(one.get("/cfg/a", cache=True).node.value == b"new" for one in s)
        # That there is none is cached too; whatever way it comes to be, it waits.
        future = cs[0].kv.Put.future(v1_put(b"/cfg/none", b"1"), timeout=30)
        v = [one.next("invalidation") for one in s]
        assert all(("/cfg/none", 0) in {(i.path, i.aspect) for i in x.items} for x in v) and not future.done()
        for one, x in zip(s, v):
            one.ack(x)
        future.result(20)


def v1_put(key, value):
    from kit import pb
    return pb.PutRequest(key=key, value=value)


@test(own=True)
def who_never_acknowledges_delays_by_a_ttl(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        put(cs[0], "/k", b"1")
        s = Stream(cs[1], acks=False)
        ttl = s.open(ttl=4, prefixes=["/"]).ttl
        s.cached("/k")
        s.keep_alive()
        stop = threading.Event()

        def renew():
            while not stop.wait(0.3):
                s.send(keep_alive=v1.SessionKeepAlive(sequence=1))
        threading.Thread(target=renew, daemon=True).start()
        begin = time.monotonic()
        future = put_future(cs[2], "/k", b"2")
        s.next("invalidation")
        owed = []

        def written():
            owed.append(float(figures_of(cell.leader())["holdfast_oldest_invalidation_seconds"]))
            return get(cs[0], "/k").value == b"2"
        # The writer's own patience may be shorter than the TTL; what it asked for is done all the same.
        cells.wait_for("the write", written, ttl + 30)
        assert time.monotonic() - begin > 1 and max(owed) > 0
        assert s.session in cs[0].leases()
        stop.set()
        future.cancel()


@test(own=True)
def watches_fire_once(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        s = Stream(cs[1])
        s.open(ttl=60)
        assert not s.get("/w", watch=1).node.path
        s.list("/", watch=2)
        made = put(cs[0], "/w", b"1").node
        event = s.next("event")
        events = {event.watch: event}
        event = s.next("event")
        events[event.watch] = event
        assert events[1].path == "/w" and events[1].change == v1.NODE_CHANGED and events[1].revision == made.mod_revision
        assert events[2].path == "/" and events[2].change == v1.NODE_CHILDREN_CHANGED
        put(cs[0], "/w", b"2")
        s.list("/", watch=3)
        s.get("/w", watch=4)
        s.get("/w", watch=5)
        s.send(unwatch=v1.SessionUnwatch(watches=[5, 77]))
        s.keep_alive()
        put(cs[2], "/w", b"3")  # a list tells children that come or go
        assert s.next("event").watch == 4
        s.get("/w", watch=6)
        cs[0].nodes.Delete(v1.NodesDeleteRequest(path="/w"), timeout=10)
        left = {e.watch: e.change for e in (s.next("event"), s.next("event"))}
        assert left == {3: v1.NODE_CHILDREN_CHANGED, 6: v1.NODE_DELETED}
        s.keep_alive()
        assert s.seen["event"] == 5
        # Only where the stream is.
        request = v1.NodesGetRequest(path="/w", session=s.session, watch=1)
        assert error_of(cs[0].nodes.Get, request, timeout=10) == ("FAILED_PRECONDITION",
                                                                 "holdfast: the session is not connected to this replica")


@test(own=True)
def the_leader_dies_and_no_cache_is_stale(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        leader = cell.leader()
        at = cell.replicas.index(leader)
        others = [i for i in range(3) if i != at]
        put(cs[at], "/cfg/a", b"old")
        lost, stays, silent = Stream(cs[at]), Stream(cs[others[0]]), Stream(cs[others[1]], acks=False)
        for s in (lost, stays, silent):
            s.open(ttl=20, prefixes=["/cfg"])
            s.cached("/cfg/a")
        term = stays.term
        leader.kill()
        assert lost.wait_over()[0] == "UNAVAILABLE"
        moved = Stream(cs[others[0]])
        moved.resume(lost.session, lost.secret, 1)
        assert moved.keep_alive(30).term > term
        assert stays.next("fail_over", 30).term > term
        # The new leader knows nothing of what was cached: everything goes.
        for s in (stays, moved, silent):
            v = s.next("invalidation", 30)
            assert v.all and v.number == 1 and v.term > term
        future = put_future(cs[others[0]], "/cfg/a", b"new", 60)
        cells.wait_for("the write waits at the gate", lambda: "\nholdfast_gated_writes 1\n" in cells.http(f"http://{cell.leader().endpoint}/metrics")[1], 20)
        assert not stays.get("/cfg/a", cache=True).grant.term
        assert stays.get("/cfg/a").node.value == b"old" and not future.done()
        beside = insist(lambda: put(cs[others[1]], "/beside", b"1"))
        assert beside.node.version == 1
        silent.ack(v)
        assert future.result(30).node.version == 2
        assert stays.keep_alive().cache_extended and moved.keep_alive().cache_extended
        answer = stays.get("/cfg/a", cache=True)
        assert answer.node.value == b"new" and answer.grant.term == answer.header.raft_term


@test(own=True)
def many_sessions_on_one_connection(server):
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        put(cs[0], "/cfg/shared", b"1")
        ss = [Stream(cs[i % 3]) for i in range(150)]
        for s in ss:
            s.send(open=v1.SessionOpen(ttl=60, cache_prefixes=["/cfg"]))
        for s in ss:
            s.session = s.next("opened", 30).session
        assert len({s.session for s in ss}) == len(ss)
        answers = [s.get("/cfg/shared", cache=True, timeout=30) for s in ss]
        assert all(a.grant.term for a in answers)
        assert put(cs[1], "/cfg/shared", b"2", 60).node.version == 2
        assert all(s.next("invalidation").number == 1 for s in ss)
        figures = figures_of(cell.leader())
        assert figures["holdfast_sessions"] == "150" and figures["holdfast_gated_writes"] == "0"
        assert float(figures["holdfast_invalidations_total"]) >= 150 and float(figures["holdfast_oldest_invalidation_seconds"]) == 0
