"""lock.py: locks that are asked for, waited for, given back and lost, on all targets in the same order (contend.py).

Sessions contend for a few names by Lock and by the recipe that clients bring themselves. Compared are the keys, the order of grants,
replies with their revision, error codes and texts, and all keys after each action.
"""
import contend
import known
from etcd import rpc_pb2 as pb
from etcd import v3lock_pb2 as lk
from report import Report

PER_SEED = 500


class Locks(contend.Field):
    def canonical(self, message):
        copy = super().canonical(message)
        if isinstance(copy, lk.LockResponse):
            copy.key = self.own_key(copy.key)
            for ours in ("fencing_token", "lease", "ttl"):
                copy.ClearField(ours)
        return copy

    def compare(self, method, asked, outcomes, call=None):
        super().compare(method, asked, outcomes, call)
        if method != "Lock" or self.targets[1].cell.server == self.targets[0].cell.server:
            return
        for t, o in zip(self.targets[1:], outcomes[1:]):
            for r in o.replies:
                if r.fencing_token != call.rev or r.lease != int(r.key.rpartition(b"/")[2], 16) or r.ttl != (600 if call.lease else 60):
                    self.differ("Lock", t, asked, f"token {call.rev}, and lease and TTL as they are", r, "ours")

    def make(self, name, lease):
        return lk.LockRequest(name=name, lease=lease)

    def lock(self, name, lease):
        return self.start("Lock", "lock", name, lease, self.make(name, lease))

    def unlock(self, kv):
        self.ask("lock", "Unlock", lambda i: lk.UnlockRequest(key=self.key_at(i, kv)))

    # ---- actions ----

    def again(self, name):
        """The holder asks again; or one that waits does, and is then waited for (that it was heard cannot be seen)."""
        queue = self.queue(name)
        kv = self.rng.choice(queue)
        if kv.lease in self.leases and len(self.calls_of(kv)) < 2:
            self.lock(name, kv.lease)

    def odd_lock(self, name):
        kind = self.rng.randrange(3)
        if kind == 0:
            self.lock(name, self.rng.choice([1, 0x6fff, -1, 2**40]))
        elif kind == 1:
            self.lock(name, 0)
        else:
            self.refused("lock", "Lock", lk.LockRequest(lease=self.rng.choice(self.sessions)), "INVALID_ARGUMENT",
                         "etcdserver: key is not provided")

    def odd_unlock(self):
        key = self.rng.choice(contend.ODD_KEYS + [b""])
        if key == b"plain":
            # etcd deletes whatever it is given. What Holdfast has left is deleted then, so that revisions stay the same.
            self.ask("kv", "Put", pb.PutRequest(key=key, value=b"no lock"))
            self.ask("lock", "Unlock", lk.UnlockRequest(key=key))
            self.ask("kv", "DeleteRange", pb.DeleteRangeRequest(key=key), same=False)
        else:
            self.ask("lock", "Unlock", lk.UnlockRequest(key=key))

    def leave(self, name):
        """The holder goes, one way or another."""
        kv = self.queue(name)[0]
        kind = self.rng.randrange(10)
        if kind < 7:
            self.unlock(kv)
        elif kind < 8:
            self.delete(kv)
        else:
            self.lose_lease(kv)

    def leave_waiting(self, name):
        waiters = self.waiters(name)
        if not waiters:
            return
        kv = self.rng.choice(waiters)
        if self.rng.random() < 0.5:
            self.lose_lease(kv)
        else:
            self.unlock(kv)

    def lose_lease(self, kv):
        if kv.lease in self.sessions and all(self.is_heard(x) for x in self.kvs if x.lease == kv.lease):
            self.revoke(kv.lease)

    def act(self):
        rng = self.rng
        name = rng.choice(contend.NAMES[:6] if rng.random() < 0.9 else contend.NAMES)
        queue = self.queue(name)
        kind = rng.randrange(100)
        if len(self.sessions) < 8:
            self.grant()
        if not queue:
            kind = rng.randrange(70)
        elif len(queue) > 4 and kind < 40:
            return self.leave(name)
        if kind < 38:
            self.lock(name, self.free_session(name))
        elif kind < 46:
            self.recipe_join(name)
        elif kind < 52:
            self.odd_lock(name)
        elif kind < 58:
            self.odd_unlock()
        elif kind < 64 and queue:
            self.again(name)
        elif kind < 66 and queue:
            self.run_out(self.make, "Lock", "lock", name, 4)
        elif kind < 72:
            self.cancel(name)
        elif kind < 78:
            self.leave_waiting(name)
        elif queue:
            self.leave(name)


class Part:
    field, what, methods, known_list = Locks, "Lock", ["Lock", "Unlock"], known.LOCK
    actions = 500

    def __init__(self, options):
        self.report = Report(self.what, self.methods, self.known_list)
        actions = options.ops or self.actions * (24 if options.full else 1)
        per_seed = actions if options.one_seed else PER_SEED
        self.seeds = range(options.seed, options.seed + -(-actions // per_seed))
        for seed in self.seeds:
            contend.run_seed(self, seed, options.server, per_seed, self.field, seed == self.seeds[-1] and not options.ops)
            if self.report.had_enough():
                break
        self.counts = self.report.finish(f"seeds {self.seeds[0]}..{self.seeds[-1]}", least=not options.ops)


def run(options):
    return Part(options).counts
