"""election.py: candidates that campaign, proclaim, resign and are lost, and who observes them, on all targets in the same order (contend.py).

Observers must be told each leader and each value of a leader, the same everywhere. Since etcd's observer reads the present after a
leader has gone, no action follows before all have been told what the last one came to.
"""
import threading

import grpc

import contend
import known
import lock
import target
from etcd import rpc_pb2 as pb
from etcd import v3election_pb2 as el

OBSERVERS_MAX = 3


class Observer:
    """One Observe stream of all targets."""

    def __init__(self, field, name):
        self.field, self.name = field, name
        self.changed = threading.Condition()
        self.told = [[] for _ in field.targets]
        self.wanted = []       # what all must be told, from the keys
        self.closing = False
        self.calls = []
        by = target.channel(field.rng)
        for i, t in enumerate(field.targets):
            stubs = t.stubs(by, "election")
            call = stubs[field.rng.randrange(len(stubs))].Observe(el.LeaderRequest(name=name))
            self.calls.append(call)
            threading.Thread(target=self._read, args=(i, call), daemon=True).start()

    def _read(self, i, call):
        try:
            for r in call:
                self._take(i, r)
            end = "ended with OK"
        except grpc.RpcError as e:
            end = f"ended with {e.code().name} {e.details()}"
        if not self.closing:
            self._take(i, end)

    def _take(self, i, what):
        with self.changed:
            self.told[i].append(what)
            self.changed.notify_all()

    def wait(self, leader):
        """leader: the present one, or None."""
        last = self.wanted[-1] if self.wanted else None
        if leader is not None and leader != last:
            self.wanted.append(leader)
        for i, t in enumerate(self.field.targets):
            with self.changed:
                self.changed.wait_for(lambda i=i: len(self.told[i]) >= len(self.wanted), contend.WAIT_S)
                told = [r if isinstance(r, str) else self.field.canonical_kv(r.kv) for r in self.told[i]]
            if told != self.wanted:
                self.field.differ("Observe", t, f"observer of {self.name}", f"{self.wanted[-2:]}, {len(self.wanted)} in all",
                                  f"{told[-2:]}, {len(told)} in all")
                raise contend.Parted

    def close(self):
        self.closing = True
        for c in self.calls:
            c.cancel()


class Elections(contend.Field):
    def __init__(self, part, targets, seed):
        super().__init__(part, targets, seed)
        self.observers = []
        self.values = 0
        self.stale = []        # leaderships that are over

    def canonical(self, message):
        copy = super().canonical(message)
        if isinstance(copy, el.CampaignResponse):
            copy.leader.key = self.own_key(copy.leader.key)
            copy.leader.lease = copy.leader.lease if copy.leader.lease in self.leases else contend.OWN
            copy.ClearField("fencing_token")
        elif isinstance(copy, el.LeaderResponse):
            copy.kv.CopyFrom(self.canonical_kv(copy.kv))
        return copy

    def compare(self, method, asked, outcomes, call=None):
        super().compare(method, asked, outcomes, call)
        if method != "Campaign" or self.targets[1].cell.server == self.targets[0].cell.server:
            return
        for t, o in zip(self.targets[1:], outcomes[1:]):
            for r in o.replies:
                if r.fencing_token != call.rev or r.leader.rev != call.rev or r.header.revision < call.rev:
                    self.differ("Campaign", t, asked, f"token {call.rev}", r, "ours")

    def value(self):
        self.values += 1
        return self.rng.choice([b"v%d", b"\xff\x00%d", b"10.0.0.1:%d"]) % self.values

    def settle(self):
        super().settle()
        for o in self.observers:
            queue = self.queue(o.name)
            o.wait(queue[0] if queue else None)

    # ---- the calls ----

    def make(self, name, lease):
        return el.CampaignRequest(name=name, lease=lease, value=self.value())

    def campaign(self, name, lease, value=None):
        """Of one that contends already, it changes the value."""
        request = el.CampaignRequest(name=name, lease=lease, value=self.value() if value is None else value)
        call = self.start("Campaign", "election", name, lease, request)
        if call.rev:
            self.look(lambda: any(kv.create_revision == call.rev and kv.value == request.value for kv in self.queue(name)))

    def leader_key(self, election, kv, **other):
        """A function that makes it for each target."""
        def make(i):
            key = self.key_at(i, kv)
            leader = el.LeaderKey(name=election, key=key, rev=kv.create_revision, lease=int(key.rpartition(b"/")[2], 16))
            for field, v in other.items():
                setattr(leader, field, v)
            return leader
        return make

    def proclaim(self, leader):
        value = self.value()
        return self.ask("election", "Proclaim", lambda i: el.ProclaimRequest(leader=leader(i), value=value))

    def resign(self, leader):
        return self.ask("election", "Resign", lambda i: el.ResignRequest(leader=leader(i)))

    def leader(self, name):
        self.ask("election", "Leader", el.LeaderRequest(name=name))

    # ---- actions ----

    def again(self, name):
        kv = self.rng.choice(self.queue(name))
        if kv.lease not in self.leases or len(self.calls_of(kv)) > 1:
            return
        holds = kv == self.queue(name)[0]
        # Of a waiting one with the value that it has, nobody knows when it was heard.
        self.campaign(name, kv.lease, kv.value if holds and self.rng.random() < 0.5 else None)

    def odd_campaign(self, name):
        kind = self.rng.randrange(3)
        if kind == 0:
            self.campaign(name, self.rng.choice([1, 0x6fff, -1, 2**40]))
        elif kind == 1:
            self.campaign(name, 0)
        else:
            self.refused("election", "Campaign", el.CampaignRequest(lease=self.rng.choice(self.sessions)), "INVALID_ARGUMENT",
                         "etcdserver: key is not provided")

    def any_leader_key(self, name):
        """Mostly that of a leader; of one that waits; or one with something wrong."""
        rng = self.rng
        queue = self.queue(name)
        kind = rng.randrange(20)
        if not queue or kind < 3:
            if self.stale and kind < 14:
                return rng.choice(self.stale)
            return self.nobody(name)
        kv = queue[0] if kind < 12 else rng.choice(queue)
        if kind < 15:
            return self.leader_key(name, kv)
        if kind < 16:
            return self.leader_key(name, kv, rev=kv.create_revision + rng.choice([-1, 1, 1000]))
        if kind < 17:
            return self.leader_key(name, kv, name=rng.choice([b"", b"another"]))
        if kind < 18:
            return self.leader_key(name, kv, key=b"")
        if kind < 19:
            return self.leader_key(name, kv, rev=0)
        return lambda i: None

    def nobody(self, name):
        return lambda i: el.LeaderKey(name=name, key=name + b"/1", rev=1, lease=1)

    def odd_proclaim(self, name):
        """With another lease than the candidate's."""
        queue = self.queue(name)
        if not queue:
            return
        kv = self.rng.choice(queue)
        kind = self.rng.randrange(4)
        if kind == 0:
            self.proclaim(self.leader_key(name, kv, lease=self.rng.choice([1, 0x6fff, -1])))
        elif kind == 1 and kv.lease in self.leases:
            # Without a lease the candidate's own is meant; etcd makes a new one, and so has to be told.
            right, none = self.leader_key(name, kv), self.leader_key(name, kv, lease=0)
            self.proclaim(lambda i: (right if i == 0 else none)(i))
        elif kind == 2 and kv.lease in self.leases:
            other = self.free_session(name)
            if other != kv.lease:
                leader = self.leader_key(name, kv, lease=other)(0)
                self.refused("election", "Proclaim", el.ProclaimRequest(leader=leader, value=b"x"), "FAILED_PRECONDITION",
                             "holdfast: the write would change the lease of a contender for a lock")
        elif kind == 3:
            leader = el.LeaderKey(name=name, key=name + b"/1", rev=0, lease=kv.lease)  # etcd makes such a key
            self.refused("election", "Proclaim", el.ProclaimRequest(leader=leader, value=b"x"), "UNKNOWN", "election: not leader")

    def resign_any(self, name, most_waiting=False):
        """The leader, or one that waits; then perhaps once more."""
        queue = self.queue(name)
        waiters = self.waiters(name)
        kv = self.rng.choice(waiters) if waiters and most_waiting else queue[0] if queue else None
        if kv is None:
            self.resign(self.nobody(name))
            return
        key = self.leader_key(name, kv)
        keys = [key(i) for i in range(len(self.targets))]
        leader = keys.__getitem__
        self.resign(leader)
        if kv.lease in self.leases:
            self.stale = (self.stale + [leader])[-8:]
        if self.rng.random() < 0.3:
            self.resign(leader)

    def wrong_resign(self, name):
        leader = self.any_leader_key(name)
        keys = [leader(i) for i in range(len(self.targets))]
        there = any(keys[0] and kv.key == keys[0].key and kv.create_revision == keys[0].rev for kv in self.kvs)
        if not there:
            self.resign(keys.__getitem__)

    def lose_lease(self, name, waiting):
        queue = self.waiters(name) if waiting else self.queue(name)[:1]
        kv = self.rng.choice(queue) if queue else None
        if kv and kv.lease in self.sessions:
            self.stale = (self.stale + [self.leader_key(name, kv)])[-8:]
            self.revoke(kv.lease)

    def recipe_proclaim(self, name):
        """As clients do it themselves."""
        queue = [kv for kv in self.queue(name) if kv.lease in self.leases]
        if not queue:
            return
        kv = self.rng.choice(queue)
        txn = pb.TxnRequest()
        txn.compare.add(key=kv.key, target=1, result=0, create_revision=kv.create_revision)
        txn.success.add().request_put.CopyFrom(pb.PutRequest(key=kv.key, value=self.value(), lease=kv.lease))
        self.ask("kv", "Txn", txn)

    def observe(self, name):
        if len(self.observers) >= OBSERVERS_MAX:
            self.observers.pop(self.rng.randrange(len(self.observers))).close()
        self.report.count("Observe")
        self.observers.append(Observer(self, name))

    def act(self):
        rng = self.rng
        name = rng.choice(contend.NAMES[:5] if rng.random() < 0.9 else contend.NAMES)
        queue = self.queue(name)
        if len(self.sessions) < 8:
            self.grant()
        kind = rng.randrange(120)
        if not queue and rng.random() < 0.4:
            kind = 0
        if len(queue) > 4 and kind < 25:
            kind = 70
        actions = [
            (20, lambda: self.campaign(name, self.free_session(name))),
            (25, lambda: self.recipe_join(name, self.value())),
            (29, lambda: self.odd_campaign(name)),
            (33, lambda: queue and self.again(name)),
            (49, lambda: self.proclaim(self.any_leader_key(name))),
            (52, lambda: self.odd_proclaim(name)),
            (55, lambda: self.recipe_proclaim(name)),
            (70, lambda: self.leader(name if rng.random() < 0.95 else b"")),
            (82, lambda: self.resign_any(name)),
            (85, lambda: self.resign_any(name, True)),
            (91, lambda: self.wrong_resign(name)),
            (94, lambda: self.lose_lease(name, False)),
            (96, lambda: self.lose_lease(name, True)),
            (98, lambda: self.cancel(name)),
            (99, lambda: self.run_out(self.make, "Campaign", "election", name, 3)),
            (100, lambda: queue and self.delete(queue[0])),
            (120, lambda: self.observe(name)),
        ]
        next(do for below, do in actions if kind < below)()

    def close(self):
        super().close()
        for o in self.observers:
            o.close()


class Part(lock.Part):
    field, what, known_list = Elections, "Election", known.ELECTION
    methods = ["Campaign", "Proclaim", "Leader", "Observe", "Resign"]
    actions = 800


def run(options):
    return Part(options).counts
