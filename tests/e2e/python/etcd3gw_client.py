"""A client by Debian's python3-etcd3gw, unchanged, over JSON: `etcd3gw_client.py PORT STORY [ARGUMENT]...`. Says what happens, a line each."""
import os
import sys

from etcd3gw.client import Etcd3Client
from etcd3gw.exceptions import ConnectionFailedError, ConnectionTimeoutError, Etcd3Exception
from etcd3gw.utils import _encode
from turns import take_turns


def say(*words):
    print(*words, flush=True)


def kv(client):
    assert client.put("k/a", "1") and client.put("k/b", b"\xff\x00")
    assert client.get("k/a") == [b"1"] and client.get("k/b") == [b"\xff\x00"] and client.get("none") == []
    value, meta = client.get("k/a", metadata=True)[0]
    assert value == b"1" and meta["key"] == b"k/a" and meta["version"] == "1" and meta["create_revision"] == meta["mod_revision"], meta
    assert [m["key"] for _, m in client.get_prefix("k/", sort_order="descend", sort_target="key")] == [b"k/b", b"k/a"]
    assert len(client.get_all()) == 2
    assert client.create("k/a", "no") is False and client.create("k/c", "yes") is True
    assert client.replace("k/c", "yes", "again") is True and client.replace("k/c", "yes", "no") is False
    done = client.transaction({
        "compare": [{"key": _encode("k/c"), "result": "EQUAL", "target": "VALUE", "value": _encode("again")}],
        "success": [{"request_put": {"key": _encode("k/c"), "value": _encode("txn")}}, {"request_range": {"key": _encode("k/c")}}],
        "failure": [{"request_delete_range": {"key": _encode("k/c")}}]})
    assert done["succeeded"] and done["responses"][1]["response_range"]["kvs"][0]["value"] == _encode("txn").decode() if isinstance(
        _encode("txn"), bytes) else _encode("txn"), done
    assert client.delete("none") is False and client.delete("k/a") is True and client.delete_prefix("k/") is True
    assert len(client.members()) > 0 and client.status()["version"].startswith("3.")
    say("kv fine")


def leases(client):
    lease = client.lease(30)
    client.put("leased", "1", lease=lease)
    assert 25 < lease.ttl() <= 30 and lease.refresh() == 30 and lease.keys() == [b"leased"]
    assert lease.revoke() and client.get("leased") == []
    assert lease.ttl() == -1 and lease.refresh() == -1
    try:
        lease.revoke()
        raise AssertionError("revoked twice")
    except Etcd3Exception as e:
        assert "requested lease not found" in str(e.detail_text), e.detail_text
    say("leases fine")


def lock(client):
    first, second = client.lock("l", ttl=20), client.lock("l", ttl=20)
    assert first.acquire() and first.is_acquired()
    assert not second.acquire() and not second.is_acquired()
    assert first.refresh() == 20 and first.release() and not first.release()
    with second as held:
        assert held.is_acquired()
    assert client.get_all() == []
    say("lock fine")


def watch(client, burst):
    """A burst of events comes whole: this client takes every chunk of the body for one message."""
    events, cancel = client.watch_prefix("w/")
    for i in range(int(burst)):
        client.put("w/%d" % (i % 10), str(i))
    assert [int(next(events)["kv"]["value"]) for _ in range(int(burst))] == list(range(int(burst)))
    client.delete("w/1")
    assert next(events)["type"] == "DELETE"
    cancel()
    assert client.get("w/2") != []
    say("watch fine")


def follow(client, prefix):
    events, _ = client.watch_prefix(prefix, start_revision=1)
    say("watching")
    for e in events:
        say(e.get("type", "PUT"), e["kv"]["key"].decode(), e["kv"].get("value", b"").decode(), "at", e["kv"]["mod_revision"])


def turns(client, name, counter, book):
    def read():
        found = client.get(counter)
        return int(found[0].split()[0]) if found else 0

    def write(lock, text):
        return client.transaction({"compare": [{"key": _encode(lock.key), "result": "EQUAL", "target": "VALUE", "value": _encode(lock.uuid)}],
                                   "success": [{"request_put": {"key": _encode(counter), "value": _encode(text)}}], "failure": []}).get("succeeded", False)
    take_turns(name, book, lambda: client.lock(counter, ttl=20), read, write, (ConnectionFailedError, ConnectionTimeoutError))


def log_in(client, name, password):
    """This client knows nothing of users: its token goes with everything that it asks."""
    client.session.headers["Authorization"] = client.post(client.get_url("/auth/authenticate"), json={"name": name, "password": password})["token"]


if __name__ == "__main__":
    for variable in ("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"):  # either goes before what a program says
        os.environ.pop(variable, None)
    files = {name: os.environ.get(variable) for name, variable in (("ca_cert", "TEST_TLS_CA"), ("cert_cert", "TEST_TLS_CERT"), ("cert_key", "TEST_TLS_KEY"))}
    it = Etcd3Client(host="127.0.0.1", port=int(sys.argv[1]), protocol="https" if files["ca_cert"] else "http", api_path="/v3/", timeout=20, **files)
    if os.environ.get("TEST_USER"):
        log_in(it, os.environ["TEST_USER"], os.environ["TEST_PASSWORD"])
    globals()[sys.argv[2]](it, *sys.argv[3:])
    say("end")
    # Its threads that read a stream are not daemons.
    sys.stdout.flush()
    os._exit(0)
