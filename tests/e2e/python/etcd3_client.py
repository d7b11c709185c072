"""A client by Debian's python3-etcd3, unchanged: `etcd3_client.py PORT STORY [ARGUMENT]...`. Says what happens, a line each; ends with status 0."""
import os
import queue
import sys
import time

import etcd3
from turns import take_turns


def say(*words):
    print(*words, flush=True)


def kv(client):
    client.put("k/a", "1")
    client.put("k/b", "2")
    value, meta = client.get("k/a")
    assert value == b"1" and meta.key == b"k/a" and meta.version == 1 and meta.create_revision == meta.mod_revision
    assert client.get("none") == (None, None)
    assert [m.key for _, m in client.get_prefix("k/", sort_order="descend")] == [b"k/b", b"k/a"]
    assert [v for v, _ in client.get_range("k/a", "k/z", sort_target="mod", sort_order="ascend")] == [b"1", b"2"]
    assert len(list(client.get_all(keys_only=True))) == 2
    assert client.put("k/a", "9", prev_kv=True).prev_kv.value == b"1"
    assert client.put_if_not_exists("k/a", "no") is False and client.put_if_not_exists("k/c", "yes") is True
    assert client.replace("k/c", "yes", "again") is True and client.replace("k/c", "yes", "no") is False
    assert client.delete("none") is False and client.delete("k/c") is True
    assert client.delete("k/b", prev_kv=True, return_response=True).prev_kvs[0].value == b"2"
    assert client.delete_prefix("k/").deleted == 1
    client.put(b"\x00bytes\xff", b"\xff\x00")
    assert client.get(b"\x00bytes\xff")[0] == b"\xff\x00"
    assert client.get(b"\x00bytes\xff", serializable=True)[0] == b"\xff\x00"
    say("kv fine")


def transactions(client):
    t = client.transactions
    client.put("a", "1")
    ok, replies = client.transaction(
        compare=[t.value("a") == "1", t.version("a") > 0, t.create("none") == 0, t.mod("a") != 0],
        success=[t.put("a", "2"), t.get("a"), t.txn(compare=[t.value("a") == "2"], success=[t.put("nested", "yes")], failure=[])],
        failure=[t.delete("a")])
    assert ok and replies[1][0][0] == b"2", replies
    ok, _ = client.transaction(compare=[t.value("a") < "2"], success=[t.put("a", "no")], failure=[t.put("b", "else"), t.delete("a")])
    assert not ok and client.get("b")[0] == b"else" and client.get("a")[0] is None
    say("transactions fine")


def leases(client):
    lease = client.lease(30)
    client.put("leased", "1", lease)
    assert client.get("leased")[1].lease_id == lease.id
    assert lease.granted_ttl == 30 and 25 < lease.remaining_ttl <= 30 and list(lease.keys) == [b"leased"]
    assert lease.refresh()[0].TTL == 30
    chosen = client.lease(20, 777)
    assert chosen.id == 777
    chosen.revoke()
    assert chosen.refresh()[0].TTL == 0
    lease.revoke()
    assert client.get("leased") == (None, None)
    say("leases fine")


def members(client):
    found = list(client.members)
    say("members", len(found), *sorted(m.name for m in found))
    status = client.status()
    assert status.leader.id in [m.id for m in found] and status.raft_term > 0 and status.version.startswith("3."), status.version
    say("leader", status.leader.name)


def watch(client):
    """Iterators, prefixes, history, callbacks, several on one stream; the first has ID 0."""
    events, cancel = client.watch("w/a")
    prefixed, cancel_prefixed = client.watch_prefix("w/", prev_kv=True)
    called = queue.Queue()
    first_id = client.add_watch_callback("w/b", called.put)
    client.put("w/a", "1")
    client.put("w/b", "2")
    client.put("w/a", "3")
    client.delete("w/b")
    assert [next(events).value for _ in range(2)] == [b"1", b"3"]
    seen = [next(prefixed) for _ in range(4)]
    assert [(e.key, e.prev_value) for e in seen] == [(b"w/a", b""), (b"w/b", b""), (b"w/a", b"1"), (b"w/b", b"2")]
    assert isinstance(seen[3], etcd3.events.DeleteEvent) and isinstance(seen[2], etcd3.events.PutEvent)
    assert called.get(timeout=10).events[0].value == b"2" and isinstance(called.get(timeout=10).events[0], etcd3.events.DeleteEvent)
    client.cancel_watch(first_id)
    cancel()
    assert list(events) == []
    cancel_prefixed()
    history, cancel = client.watch_prefix("w/", start_revision=seen[0].mod_revision)
    assert [next(history).mod_revision for _ in range(4)] == [e.mod_revision for e in seen]
    cancel()
    try:
        client.watch_once("w/nothing", timeout=0.2)
        raise AssertionError("an event of nothing")
    except etcd3.exceptions.WatchTimedOut:
        pass
    client.compact(seen[2].mod_revision, physical=True)
    gone, _ = client.watch_prefix_response("w/", start_revision=seen[0].mod_revision)
    try:
        next(gone)
        raise AssertionError("compacted history was served")
    except etcd3.exceptions.RevisionCompactedError as e:
        assert e.compacted_revision == seen[2].mod_revision
    say("watch fine")


def lock(client):
    """The client's own lock: a key that is made only when there is none."""
    first, second = client.lock("l", ttl=20), client.lock("l", ttl=20)
    assert first.acquire() and first.is_acquired() and not second.is_acquired()
    assert not second.acquire(timeout=0)
    assert first.refresh()[0].TTL == 20
    assert first.release() and not first.release()
    with second as held:
        assert held.is_acquired()
    assert list(client.get_prefix("/locks/")) == []
    say("lock fine")


def waiting_lock(client):
    """Waits for its turn, by a watch. (The waiting that acquire() has built in does not go with Debian's tenacity.)"""
    mine = client.lock("l", ttl=20)
    say("asking")
    while not mine.acquire(timeout=0):
        value, other = client.get(mine.key)
        if value is not None:
            client.watch_once(mine.key, timeout=40, start_revision=other.mod_revision + 1)
    say("held")
    sys.stdin.readline()
    assert mine.release()
    say("released")


class Lock:
    """The client's lock, not waited for. (The waiting that acquire() has built in does not go with Debian's tenacity.)"""

    def __init__(self, client, name):
        self.own = client.lock(name, ttl=20)
        self.release = self.own.release

    def acquire(self):
        return self.own.acquire(timeout=0)


def turns(client, name, counter, book):
    def read():
        value, _ = client.get(counter)
        return int((value or b"0").split()[0])

    def write(lock, text):
        t = client.transactions
        return client.transaction(compare=[t.value(lock.own.key) == lock.own.uuid], success=[t.put(counter, text)], failure=[])[0]
    errors = (etcd3.exceptions.ConnectionFailedError, etcd3.exceptions.ConnectionTimeoutError)
    take_turns(name, book, lambda: Lock(client, counter), read, write, errors)


def follow(client, prefix, revision):
    """Says every event; ends when the stream breaks, as this client's watches do."""
    events, _ = client.watch_prefix(prefix, start_revision=int(revision))
    say("watching")
    for e in events:
        say(type(e).__name__, e.key.decode(), e.value.decode(), "at", e.mod_revision)


def renew(client, ttl):
    lease = client.lease(int(ttl))
    client.put("alive", "yes", lease)
    say("lease", format(lease.id, "x"))
    while lease.refresh()[0].TTL > 0:
        say("alive")
        time.sleep(int(ttl) / 5)
    say("lost")


if __name__ == "__main__":
    files = {name: os.environ.get(variable) for name, variable in (("ca_cert", "TEST_TLS_CA"), ("cert_cert", "TEST_TLS_CERT"), ("cert_key", "TEST_TLS_KEY"))}
    globals()[sys.argv[2]](etcd3.client(host="127.0.0.1", port=int(sys.argv[1]), timeout=20,
                                       user=os.environ.get("TEST_USER"), password=os.environ.get("TEST_PASSWORD"), **files), *sys.argv[3:])
    say("end")
