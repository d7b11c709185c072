"""session_kit.py: a session's stream as a test holds it: what is sent by hand, and everything that came, by kind."""
import collections
import queue
import threading
import time

import cells
import grpc
from kit import v1

KINDS = ("opened", "kept_alive", "invalidation", "event", "fail_over", "ended")


class Stream:
    """One stream to one replica. What comes waits in queues by kind; `error` is how it ended, once `over` is set."""

    def __init__(self, client, acks=True):
        self.client = client
        self.acks = acks      # acknowledges invalidations by itself, as soon as they come
        self.error = None
        self.over = threading.Event()
        self.term = 0
        self.session = 0
        self.secret = b""
        self.seen = collections.Counter()
        self._came = {k: queue.Queue() for k in KINDS}
        self._out = queue.Queue()
        self._sequence = 0
        self._call = client.sessions.Connect(iter(self._out.get, None))
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        try:
            for m in self._call:
                kind = m.WhichOneof("response")
                what = getattr(m, kind)
                self.term = max(self.term, getattr(what, "term", 0))
                self.seen[kind] += 1
                if kind == "invalidation" and self.acks:
                    self.ack(what)
                self._came[kind].put(what)
        except grpc.RpcError as e:
            self.error = (e.code().name, e.details())
        self.over.set()

    def send(self, **fields):
        self._out.put(v1.SessionRequest(**fields))

    def next(self, kind, timeout=15):
        """The next message of a kind; an assertion when the stream ends first."""
        deadline = time.monotonic() + timeout
        while True:
            try:
                return self._came[kind].get(timeout=0.05)
            except queue.Empty:
                assert not (self.over.is_set() and self._came[kind].empty()), f"no {kind}, the stream is over: {self.error}"
                assert time.monotonic() < deadline, f"no {kind} within {timeout} s"

    def none(self, kind):
        return self._came[kind].empty()

    def open(self, ttl=12, prefixes=(), name=""):
        self.send(open=v1.SessionOpen(ttl=ttl, cache_prefixes=prefixes, name=name))
        opened = self.next("opened")
        self.session, self.secret = opened.session, opened.secret
        return opened

    def resume(self, session, secret, revision=0, attempt=0):
        self.send(resume=v1.SessionResume(session=session, secret=secret, revision=revision, attempt=attempt))
        opened = self.next("opened")
        self.session, self.secret = opened.session, secret
        return opened

    def keep_alive(self, timeout=15):
        """Sends one and waits for its answer."""
        self._sequence += 1
        self.send(keep_alive=v1.SessionKeepAlive(sequence=self._sequence))
        while True:
            kept = self.next("kept_alive", timeout)
            if kept.sequence == self._sequence:
                return kept

    def ack(self, invalidation):
        self.send(ack=v1.SessionAck(number=invalidation.number, term=invalidation.term))

    def get(self, path, timeout=10, **fields):
        return self.client.nodes.Get(v1.NodesGetRequest(path=path, session=self.session, **fields), timeout=timeout)

    def list(self, path, timeout=10, **fields):
        return self.client.nodes.List(v1.NodesListRequest(path=path, session=self.session, **fields), timeout=timeout)

    def cached(self, path, read=None):
        """The first answer that may be cached. Until the leader has applied what this replica has, the session's opening for one, it grants nothing: it waits for its own
        disk, when the two others' are a quorum."""
        def granted():
            answer = (read or self.get)(path, cache=True)
            return answer if answer.grant.term else None
        return cells.wait_for(f"{path} may be cached", granted)

    def wait_over(self, timeout=15):
        assert self.over.wait(timeout), "the stream does not end"
        return self.error

    def drop(self):
        """The connection breaks, as far as the cell can tell."""
        self._call.cancel()
        self._out.put(None)
