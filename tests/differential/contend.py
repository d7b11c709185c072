"""contend.py: contenders for locks and elections, the same on all targets: what lock.py and election.py have in common.

One action after another, each waited for until all keys of all targets are alike, and until every call that must be answered by then
has been. Which must be is read off the oracle's keys: the contender with the lowest create_revision holds, so its calls are answered,
and nobody else's may be. What a call came to is compared when it is due.

A contender whose key goes while it waits is a case for itself: Holdfast's calls fail at once, etcd's are still to be answered when all
who came before are gone (known.py). Until then its lease contends for that name no more.
"""
import collections
import random
import time

import cells
import grpc

import compare
import target
from etcd import rpc_pb2 as pb

WAIT_S = 10
KEEP_ALIVE_S = 10
NAMES = [b"lk", "ключ".encode(), b"\xff\xfe", b"a\x00b", b"n" * 300, b"deep/er", b"trailing/", b"7000"]
OWN = -(2**62)  # stands for a lease that the server chose
ODD_KEYS = [b"nobody/1", b"lk/", b"plain", b"\x00", b"lk/ffffffffffffffff"]


class Parted(Exception):
    """The targets are not alike any more; the rest of the cell's life is left out."""


class Call:
    """One Lock or Campaign of all targets."""

    def __init__(self, method, name, lease, request, futures):
        self.method, self.name, self.lease, self.request, self.futures = method, name, lease, request, futures
        self.rev = 0                            # its contender's create_revision, which is the same everywhere
        self.outcomes = [None] * len(futures)   # as far as they were due

    def __str__(self):
        return f"{self.method} {str(self.request)!r}"


class Field:
    def __init__(self, part, targets, seed):
        self.part, self.report, self.targets = part, part.report, targets
        self.rng = random.Random(seed)
        self.elsewhere = random.Random(seed)  # for what is asked as often as it takes: leaves the story alone
        self.seed, self.actions = seed, 0
        self.leases = set()                   # all that were ever granted by us
        self.sessions = []                    # those that live
        self.calls = []
        self.recipes = set()                  # create_revisions of contenders that clients made themselves
        self.kvs = []                         # the oracle's, in the order of creation
        self.revision = 0
        self.heard_after = collections.deque(maxlen=16)  # seconds from the start of a call until all had its key
        self.kept_at = time.monotonic()       # when the leases that servers chose were last renewed
        self.looked = False                   # since the last thing that was asked
        self.look()

    # ---- asking ----

    def differ(self, method, t, asked, wanted, got, kind=None):
        self.report.differ(method, f"seed {self.seed} action {self.actions}", t, asked, wanted, got, kind)

    def begin(self, service, method, requests, **options):
        """requests: one for each target."""
        futures = []
        self.looked = False
        options.setdefault("timeout", 300)
        by = target.channel(self.rng)
        for t, request in zip(self.targets, requests):
            stubs = t.stubs(by, service)
            stub = stubs[self.rng.randrange(len(stubs))]
            futures.append(getattr(stub, method).future(request, **options))
        return futures

    def ask(self, service, method, request, same=True):
        """A call that is answered at once. request: a message, or a function of the target's number. Returns all outcomes, which are
        compared unless they cannot be the same."""
        requests = [request(i) if callable(request) else request for i in range(len(self.targets))]
        outcomes = [target.outcome(f) for f in self.begin(service, method, requests)]
        if method in self.report.methods_wanted:
            self.report.count(method, outcomes[0])
        if same:
            self.compare(method, requests[0], outcomes)
        return outcomes

    def refused(self, service, method, request, code, text):
        """What the oracle must not see, because its effect would differ from then on: how Holdfast answers."""
        if self.targets[1].cell.server == target.ORACLE:
            return
        by = target.channel(self.rng)
        for t in self.targets[1:]:
            stubs = t.stubs(by, service)
            got = target.outcome(getattr(stubs[self.rng.randrange(len(stubs))], method).future(request, timeout=target.TIMEOUT_S))
            if (got.code, got.text) != (code, text):
                self.differ(method, t, request, f"{code}: {text!r} is wanted", got)
        self.report.count(method)

    # ---- comparing ----

    def own_key(self, key):
        """A key that ends with a lease which the server chose, without it."""
        name, slash, lease = key.rpartition(b"/")
        try:
            return name + b"/own" if slash and len(lease) > 8 and int(lease, 16) not in self.leases else key
        except ValueError:
            return key

    def canonical_kv(self, kv):
        copy = type(kv)()
        copy.CopyFrom(kv)
        copy.key = self.own_key(kv.key)
        if kv.lease and kv.lease not in self.leases:
            copy.lease = OWN
        return copy

    def canonical(self, message):
        """Without what no two cells can share; a subclass takes out more."""
        copy = type(message)()
        copy.CopyFrom(message)
        copy.header.Clear()
        copy.header.revision = message.header.revision
        return copy

    def compare(self, method, asked, outcomes, call=None):
        wanted = self._canonical_outcome(outcomes[0])
        for t, o in zip(self.targets[1:], outcomes[1:]):
            got = self._canonical_outcome(o)
            if wanted != got and not self.report.explained(method, wanted, got, call):
                self.differ(method, t, asked, wanted, got, f"{wanted.code} {wanted.text} {got.code} {got.text}")

    def _canonical_outcome(self, o):
        return compare.Outcome(o.code, "" if o.code == "DEADLINE_EXCEEDED" else o.text, [self.canonical(r) for r in o.replies])

    # ---- the state ----

    def _states(self):
        futures = []
        for t in self.targets:
            stub = t.kv[self.elsewhere.randrange(len(t.kv))]
            futures.append(stub.Range.future(pb.RangeRequest(**target.EVERYTHING), timeout=target.TIMEOUT_S))
        states = []
        for f in futures:
            reply = f.result()
            kvs = sorted((self.canonical_kv(kv) for kv in reply.kvs), key=lambda kv: (kv.create_revision, kv.key))
            states.append((reply.header.revision, kvs))
        return states

    def look(self, probe=lambda: True, give_up=lambda: False):
        """Waits until all are alike and probe() is true of them, or until it may give up."""
        deadline = time.monotonic() + WAIT_S
        while True:
            states = self._states()
            self.revision, self.kvs = states[0]
            if all(s == states[0] for s in states) and probe():
                self.looked = True
                return
            if give_up():
                return
            if time.monotonic() > deadline:
                break
            time.sleep(0.002)
        self.targets[0].must_run("this")
        for t, s in zip(self.targets[1:], states[1:]):
            if s != states[0]:
                text = [f"revision {r}: " + " | ".join(f"{kv.key} {kv.create_revision} {kv.mod_revision} {kv.lease:x}" for kv in kvs)
                        for r, kvs in (states[0], s)]
                self.differ(self.report.methods_wanted[0], t, "all keys", *text, "keys")
        if all(s == states[0] for s in states):
            self.differ(self.report.methods_wanted[0], "all", "an action", "has its effect", f"not within {WAIT_S} s", "effect")
        raise Parted

    def queue(self, name):
        return [kv for kv in self.kvs if kv.key.rpartition(b"/")[0] == name and kv.lease]

    def find(self, name, lease):
        return next((kv for kv in self.queue(name) if kv.lease == lease), None)

    def calls_of(self, kv):
        return [c for c in self.calls if c.rev == kv.create_revision]

    # ---- calls that wait ----

    def start(self, call_method, service, name, lease, request, **options):
        """Starts a call and waits until its contender is there, or it was refused."""
        before, began = self.revision, time.monotonic()
        call = Call(call_method, name, lease, request, self.begin(service, call_method, [request] * len(self.targets), **options))
        self.report.count(call_method)

        def there():
            kv = self.find(name, lease) if lease else next((kv for kv in self.queue(name) if kv.create_revision > before), None)
            if kv:
                call.rev = kv.create_revision
                return True
            return call.futures[0].done() and target.outcome(call.futures[0]).code != "OK"
        if "timeout" in options:
            self.look(there, lambda: all(f.done() for f in call.futures))
        else:
            self.look(there)
            self.heard_after.append(time.monotonic() - began)
        self.calls.append(call)
        return call

    def earlier(self, call):
        return [kv for kv in self.queue(call.name) if kv.create_revision < call.rev]

    def is_due(self, call, i):
        present = any(kv.create_revision == call.rev for kv in self.queue(call.name))
        if not call.rev or not self.earlier(call):
            return True
        return not present and i > 0  # its key is gone: etcd waits all the same

    def settle(self):
        """Every call that is due is answered, and no other."""
        for call in list(self.calls):
            for i, f in enumerate(call.futures):
                if call.outcomes[i] is not None:
                    continue
                if self.is_due(call, i):
                    self.wait_due(call, i, f)
                elif f.done():
                    self.differ(call.method, self.targets[i], call, "waits", target.outcome(f), "too early")
                    raise Parted
            if all(call.outcomes):
                self.calls.remove(call)
                self.report.count_error(call.method, call.outcomes[0])
                self.compare(call.method, call, call.outcomes, call)

    def wait_due(self, call, i, future):
        deadline = time.monotonic() + WAIT_S
        while not future.done() and time.monotonic() < deadline:
            time.sleep(0.001)
        if not future.done():
            self.differ(call.method, self.targets[i], call, "is answered", f"not within {WAIT_S} s", "late")
            raise Parted
        call.outcomes[i] = target.outcome(future)

    # ---- leases and keys ----

    def grant(self):
        lease = 0x7000 + len(self.leases) if self.rng.random() < 0.8 else 2**62 + self.rng.getrandbits(60)
        self.leases.add(lease)
        self.sessions.append(lease)
        self.ask("lease", "LeaseGrant", pb.LeaseGrantRequest(ID=lease, TTL=600))
        return lease

    def revoke(self, lease):
        self.sessions.remove(lease)
        self.ask("lease", "LeaseRevoke", pb.LeaseRevokeRequest(ID=lease))

    def free_session(self, name):
        """A lease that does not contend for the name, and of which no call does."""
        busy = {kv.lease for kv in self.queue(name)} | {c.lease for c in self.calls if c.name == name}
        free = [s for s in self.sessions if s not in busy]
        return self.rng.choice(free) if free else self.grant()

    def recipe_join(self, name, value=b""):
        """A client that brings its own recipe."""
        lease = self.free_session(name)
        key = name + b"/%x" % lease
        txn = pb.TxnRequest()
        txn.compare.add(key=key, target=1, result=0, create_revision=0)
        txn.success.add().request_put.CopyFrom(pb.PutRequest(key=key, value=value, lease=lease))
        txn.failure.add().request_range.key = key
        self.ask("kv", "Txn", txn)
        self.look(lambda: self.find(name, lease))
        self.recipes.add(self.find(name, lease).create_revision)

    def delete(self, kv, wanted_same=True):
        self.ask("kv", "DeleteRange", lambda i: pb.DeleteRangeRequest(key=self.key_at(i, kv)), wanted_same)

    def key_at(self, i, kv):
        """The key of a contender as targets[i] has it: the same, unless it chose the lease."""
        if not kv.key.endswith(b"/own"):
            return kv.key
        reply = self.targets[i].everything()
        return next(x.key for x in reply.kvs if x.create_revision == kv.create_revision)

    def is_heard(self, kv):
        """Of a call that asks again for what waits already, nobody knows when it was heard: such a contender has to be left alone."""
        return len(self.calls_of(kv)) <= (kv.create_revision not in self.recipes)

    def waiters(self, name):
        """Contenders behind the first one that may be ended."""
        return [kv for kv in self.queue(name)[1:] if self.is_heard(kv)]

    def cancel(self, name):
        calls = [c for kv in self.waiters(name) for c in self.calls_of(kv)]
        if not calls:
            return
        call = self.rng.choice(calls)
        self.calls.remove(call)
        for f in call.futures:
            f.cancel()
        self.look(lambda: not any(kv.create_revision == call.rev for kv in self.kvs))

    def run_out(self, make, method, service, name, most):
        """Some calls with a deadline, all of which must wait until then."""
        timeout = 0.5 + 5 * max(self.heard_after, default=0)  # it must have been heard by then, however slow the machine is
        if not self.queue(name):
            return
        calls = []
        for _ in range(self.rng.randrange(1, most + 1)):
            lease = self.free_session(name)
            calls.append(self.start(method, service, name, lease, make(name, lease), timeout=timeout))
        for call in calls:
            self.calls.remove(call)
            outcomes = [target.outcome(f) for f in call.futures]
            if (outcomes[0].code, outcomes[0].text) == ("UNKNOWN", "context deadline exceeded"):
                outcomes[0].code = "DEADLINE_EXCEEDED"  # etcd's recipe was quicker than the client
            if any(o.code != "DEADLINE_EXCEEDED" for o in outcomes):
                self.differ(method, "all", call, "DEADLINE_EXCEEDED", outcomes, "deadline")
        if not all(c.rev for c in calls):
            self.level(name, {c.lease for c in calls})
        self.look(lambda: not any(kv.lease in {c.lease for c in calls} for kv in self.queue(name)))

    def level(self, name, leases):
        """Some have not heard of a call before its deadline, and so have never written its key, nor deleted it: two revisions."""
        print(f"seed {self.seed} action {self.actions}: a deadline passed before all had heard of it", flush=True)
        keys = {name + b"/%x" % lease for lease in leases}
        cells.wait_for("the calls are over", lambda: not any(keys & {kv.key for kv in t.everything().kvs} for t in self.targets))
        revisions = [t.everything().header.revision for t in self.targets]
        for t, revision in zip(self.targets, revisions):
            for _ in range((max(revisions) - revision) // 2):
                t.kv[0].Put(pb.PutRequest(key=b"level"), timeout=target.TIMEOUT_S)
                t.kv[0].DeleteRange(pb.DeleteRangeRequest(key=b"level"), timeout=target.TIMEOUT_S)

    def keep_own(self):
        """Leases that servers chose have 60 seconds from when their calls are answered, by a clock that is not a part of the story."""
        if time.monotonic() - self.kept_at < KEEP_ALIVE_S or not any(kv.lease == OWN for kv in self.kvs):
            return
        self.kept_at = time.monotonic()
        for t in self.targets:
            own = {kv.lease for kv in t.everything().kvs if kv.lease and kv.lease not in self.leases}
            list(t.lease[0].LeaseKeepAlive(iter([pb.LeaseKeepAliveRequest(ID=i) for i in own]), timeout=target.TIMEOUT_S))

    # ---- all ----

    def run(self, actions, last):
        for _ in range(12):
            self.grant()
        while self.actions < actions or last and self.report.rare():
            self.actions += 1
            self.keep_own()
            self.act()
            if not self.looked:
                self.look()
            self.settle()
            if self.report.had_enough() or self.actions > 20 * actions:
                break
        self.finish()

    def finish(self):
        """All leave, first come first served."""
        while self.kvs:
            self.delete(self.kvs[0], False)
            self.look()
            self.settle()
        if self.calls:
            self.differ(self.calls[0].method, "all", self.calls[0], "is over", "waits", "end")

    def close(self):
        for call in self.calls:
            for f in call.futures:
                f.cancel()


def run_seed(part, seed, server, actions, field_class, last):
    targets = target.open_all(server)
    field = None
    try:
        field = field_class(part, targets, seed)
        field.run(actions, last)
    except Parted:
        print(f"seed {seed}: the targets part at action {field.actions}; the rest of this seed is left out", flush=True)
    except grpc.RpcError as e:
        field.differ(part.report.methods_wanted[0], "some target", "something", "is answered", f"{e.code()} {e.details()}", "lost")
    finally:
        if field:
            field.close()
        target.close_all(targets)
