"""steps.py: random requests, and what a server said to them.

A step is one request of one method. The maker keeps just enough of the state in mind (revision, leases) that most requests mean
something, and strays from it on purpose: about one request in seven is borderline or wrong. Everything comes from one seeded
random source and from the replies of the oracle, so a seed tells the same story again.

Leases are made so that none ends by its time while they are compared: TTLs below a minute are granted and revoked in one breath.
Keys look like contenders for a lock (NAME/LEASE) only where that is meant: Holdfast has rules for those that etcd has not.
"""
import dataclasses
import random

METHODS = ("Range", "Put", "DeleteRange", "Txn", "Compact", "LeaseGrant", "LeaseRevoke", "LeaseTimeToLive", "LeaseLeases",
           "LeaseKeepAlive")
WEIGHTS = {"Range": 22, "Put": 19, "DeleteRange": 9, "Txn": 17, "Compact": 6, "LeaseGrant": 7, "LeaseRevoke": 6,
           "LeaseTimeToLive": 6, "LeaseLeases": 5.5, "LeaseKeepAlive": 6}

INT64_MAX, INT64_MIN = 2**63 - 1, -(2**63)
KEYS = [b"a", b"b", b"m", b"a/b", b"a/b/c", b"z", b"\x00", b"\x00\x00", b"\xff", b"\xff\xff", b"\xffa", b"k" * 300, "ключ".encode(),
        b"a\x00b", b"-"] + [b"k%02d" % i for i in range(24)]
VALUES = [b"", b"0", b"1", b"v", b"v2", b"\x00", b"\xff\xff", b"x" * 1000]
# None is the end of "NAME/LEASE" of a key above.
LEASES = list(range(0x7000, 0x700c)) + [-5, -0x7000, INT64_MAX, INT64_MIN + 1, 2**40]
ODD_NUMBERS = [0, -1, 1, -7, INT64_MAX, INT64_MIN, 2**32, 2**31]


@dataclasses.dataclass
class Step:
    method: str
    requests: list                   # one; of a LeaseKeepAlive stream any number
    only_subjects: tuple = None      # (code, text): not for the oracle, which has no such rule or does not survive it
    revoke_after: bool = False       # a lease too short to be compared any longer
    by: str = "grpc"                 # or "json"


def prefix_end(key):
    for i in range(len(key) - 1, -1, -1):
        if key[i] < 0xff:
            return key[:i] + bytes([key[i] + 1])
    return b"\x00"


def _all_ops(txn):
    for op in (*txn.success, *txn.failure):
        yield op
        if op.HasField("request_txn"):
            yield from _all_ops(op.request_txn)


def _deletes(txn):
    return any(op.HasField("request_delete_range") for op in _all_ops(txn))


def _keep_nothing(txn):
    """Stock 3.4 panics when a put wants to keep what a delete before it in the transaction took away."""
    for op in _all_ops(txn):
        if op.HasField("request_put"):
            op.request_put.ignore_value = op.request_put.ignore_lease = False


class Maker:
    def __init__(self, pb, seed):
        self.pb = pb
        self.rng = random.Random(seed)
        self.revision = 1
        self.compacted = 0
        self.leases = set()
        self.queue = []              # steps that have to follow
        self.big = 0

    # ---- what the oracle's replies tell ----

    def learn(self, step, outcome):
        if outcome.code != "OK":
            return
        last = outcome.replies[-1] if outcome.replies else None
        if last is not None and last.header.revision:
            self.revision = last.header.revision
        if step.method == "LeaseGrant" and not step.revoke_after:
            self.leases.add(step.requests[0].ID)
        elif step.method == "LeaseRevoke":
            self.leases.discard(step.requests[0].ID)
        elif step.method == "Compact":
            self.compacted = step.requests[0].revision

    # ---- pieces ----

    def chance(self, p):
        return self.rng.random() < p

    def key(self):
        return b"" if self.chance(0.015) else self.rng.choice(KEYS)

    def key_range(self):
        key = self.key()
        kind = self.rng.randrange(10)
        if kind < 4:
            return key, b""
        if kind < 6:
            return key, prefix_end(key) if key else b"\x00"
        if kind < 7:
            return key, b"\x00"
        if kind < 8:
            return b"\x00", b"\x00"
        return key, self.rng.choice(KEYS)  # inverted or empty as often as not

    def past_revision(self):
        r = self.rng
        kind = r.randrange(12)
        if kind < 7:
            return max(1, self.revision - r.randrange(40))
        if kind < 9:
            return max(0, self.compacted + r.randrange(-2, 3))
        if kind < 11:
            return self.revision + r.randrange(3)
        return r.choice(ODD_NUMBERS)

    def bound(self):
        return 0 if self.chance(0.7) else self.past_revision()

    def lease(self, p_none=0.55):
        if self.chance(p_none):
            return 0
        if self.leases and not self.chance(0.1):
            return self.rng.choice(sorted(self.leases))
        return self.rng.choice(LEASES + [0x7eee, 1, -1])

    # ---- requests ----

    def make_range(self):
        r, rng = self.pb.RangeRequest(), self.rng
        r.key, r.range_end = self.key_range()
        if self.chance(0.3):
            r.limit = rng.choice([1, 2, 3, 5, 1000, -1, INT64_MAX, INT64_MIN, 0])
        if self.chance(0.25):
            r.revision = self.past_revision()
        if self.chance(0.45):
            r.sort_order = rng.randrange(3)
            r.sort_target = rng.randrange(5)
        r.serializable = self.chance(0.15)
        r.keys_only = self.chance(0.15)
        r.count_only = self.chance(0.1)
        if self.chance(0.3):
            r.min_mod_revision, r.max_mod_revision = self.bound(), self.bound()
            r.min_create_revision, r.max_create_revision = self.bound(), self.bound()
        return r

    def make_put(self):
        r, rng = self.pb.PutRequest(), self.rng
        r.key = self.key()
        r.value = rng.choice(VALUES)
        r.lease = self.lease()
        r.prev_kv = self.chance(0.3)
        if self.chance(0.12):
            r.ignore_value = True
            if not self.chance(0.2):
                r.value = b""
        if self.chance(0.12):
            r.ignore_lease = True
            if not self.chance(0.2):
                r.lease = 0
        return r

    def make_delete(self):
        r = self.pb.DeleteRangeRequest(prev_kv=self.chance(0.4))
        r.key, r.range_end = self.key_range()
        if r.range_end == b"\x00" and not self.chance(0.25):
            r.range_end = b""  # all keys at once, but not all the time
        return r

    def make_compare(self):
        c, rng = self.pb.Compare(), self.rng
        c.key = self.key()
        if self.chance(0.2):
            c.key, c.range_end = self.key_range()
        c.result = rng.randrange(4) if not self.chance(0.02) else rng.choice([4, 77, -1])
        c.target = rng.randrange(5)
        # Mostly the field that belongs to the target; sometimes another one, sometimes none.
        field = c.target if not self.chance(0.06) else rng.randrange(6)
        if field == 0:
            c.version = rng.choice([0, 1, 2, 3, -1])
        elif field == 1:
            c.create_revision = self.bound()
        elif field == 2:
            c.mod_revision = self.bound()
        elif field == 3:
            c.value = rng.choice(VALUES)
        elif field == 4:
            c.lease = self.lease()
        return c

    def make_ops(self, into, depth, most):
        for _ in range(self.rng.randrange(most + 1)):
            op = into.add()
            kind = self.rng.randrange(20)
            if kind < 7:
                op.request_put.CopyFrom(self.make_put())
            elif kind < 12:
                op.request_range.CopyFrom(self.make_range())
            elif kind < 16:
                op.request_delete_range.CopyFrom(self.make_delete())
            elif depth > 0:
                op.request_txn.CopyFrom(self.make_txn_body(depth - 1))
            elif kind < 19:
                op.request_put.CopyFrom(self.make_put())
            elif not self.chance(0.2):
                op.request_range.CopyFrom(self.make_range())
            # else: an operation that is none

    def make_txn_body(self, depth):
        t = self.pb.TxnRequest()
        for _ in range(self.rng.randrange(4)):
            t.compare.add().CopyFrom(self.make_compare())
        self.make_ops(t.success, depth, 4)
        self.make_ops(t.failure, depth, 3)
        return t

    def make_txn(self):
        if self.chance(0.03):
            return self.make_wide_txn()
        txn = self.make_txn_body(self.rng.choice([0, 0, 1, 2, 3]))
        if _deletes(txn):
            _keep_nothing(txn)
        return txn

    def make_wide_txn(self):
        """About as many operations as are allowed; some of them on the level below."""
        t, rng = self.pb.TxnRequest(), self.rng
        n = rng.choice([127, 128, 129, 200])
        where = rng.choice(["success", "failure", "compare", "nested"])
        if where == "compare":
            for _ in range(n):
                t.compare.add().CopyFrom(self.pb.Compare(key=b"a", version=0, result=1))
            return t
        ops = getattr(t, "failure" if where == "failure" else "success")
        if where == "nested":
            inner = ops.add().request_txn
            for _ in range(rng.choice([0, 1, 60])):
                ops.add().request_range.key = b"b"
            ops = inner.success
        for i in range(n - len(t.success)):
            ops.add().request_put.CopyFrom(self.pb.PutRequest(key=b"wide%03d" % i, value=b"w"))
        self.queue.append(Step("DeleteRange", [self.pb.DeleteRangeRequest(key=b"wide", range_end=b"widf")]))
        return t

    def make_compact(self):
        kind = self.rng.randrange(8)
        if kind < 3:
            revision = self.revision - self.rng.randrange(60)
        elif kind < 5:
            revision = self.compacted + self.rng.randrange(-1, 3)
        elif kind < 7:
            revision = self.revision + self.rng.randrange(3)
        else:
            revision = self.rng.choice(ODD_NUMBERS)
        if revision == self.compacted == 0:
            revision = -1  # of a compaction at 0 etcd remembers that there was one (known.py)
        return self.pb.CompactionRequest(revision=revision, physical=self.chance(0.2))

    def make_lease_grant(self):
        rng = self.rng
        kind = rng.randrange(10)
        free = [i for i in LEASES if i not in self.leases]
        if kind < 6 and free:
            return self.pb.LeaseGrantRequest(ID=rng.choice(free), TTL=rng.choice([600, 1000, 86400, 10**6, 9_000_000_000]))
        if kind < 8:
            return self.pb.LeaseGrantRequest(ID=rng.choice(LEASES), TTL=rng.choice([600, 9_000_000_001, INT64_MAX, 777]))
        # ID 0: the server chooses; short TTLs: raised to the least. Both are revoked at once.
        return self.pb.LeaseGrantRequest(ID=rng.choice([0, 0, 0x7fff0]), TTL=rng.choice([0, -1, 1, 2, 5, INT64_MIN, 60, 3600]))

    def make_lease_id(self):
        if self.leases and not self.chance(0.2):
            return self.rng.choice(sorted(self.leases))
        return self.rng.choice([0, 1, -1, 0x7eee, INT64_MIN, INT64_MAX] + LEASES)

    # ---- steps ----

    def step(self, method=None):
        if self.queue:
            return self.queue.pop(0)
        rng = self.rng
        if method is None:
            if self.chance(0.02):
                return self.special()
            method = rng.choices(METHODS, [WEIGHTS[m] for m in METHODS])[0]
        if method == "Range":
            return Step(method, [self.make_range()])
        if method == "Put":
            return Step(method, [self.make_put()])
        if method == "DeleteRange":
            return Step(method, [self.make_delete()])
        if method == "Txn":
            return Step(method, [self.make_txn()])
        if method == "Compact":
            return Step(method, [self.make_compact()])
        if method == "LeaseGrant":
            r = self.make_lease_grant()
            return Step(method, [r], revoke_after=r.ID in (0, 0x7fff0))
        if method == "LeaseRevoke":
            return Step(method, [self.pb.LeaseRevokeRequest(ID=self.make_lease_id())])
        if method == "LeaseTimeToLive":
            return Step(method, [self.pb.LeaseTimeToLiveRequest(ID=self.make_lease_id(), keys=self.chance(0.6))])
        if method == "LeaseLeases":
            return Step(method, [self.pb.LeaseLeasesRequest()])
        assert method == "LeaseKeepAlive"
        return Step(method, [self.pb.LeaseKeepAliveRequest(ID=self.make_lease_id()) for _ in range(rng.randrange(1, 4))])

    def special(self):
        kind = self.rng.randrange(5)
        if kind == 0:
            return self.large()
        if kind == 4:
            return self.keep_what_was_deleted()
        if kind == 1:
            return self.contender()
        if kind == 2:
            return self.odd_enum()
        return Step("Range", [self.pb.RangeRequest(key=b"\x00", range_end=b"\x00")])

    def large(self):
        """Around the largest request; what was stored is deleted again."""
        pb = self.pb
        self.big += 1
        size = self.rng.choice([1_400_000, 1_572_000, 1_573_000, 1_700_000, 2_090_000, 2_200_000])
        if self.chance(0.3):
            t = pb.TxnRequest()
            for i in range(2):
                t.success.add().request_put.CopyFrom(pb.PutRequest(key=b"big%d" % i, value=b"B" * (size // 2)))
            step = Step("Txn", [t])
        else:
            step = Step("Put", [pb.PutRequest(key=b"big", value=b"B" * size)])
        self.queue.append(Step("DeleteRange", [pb.DeleteRangeRequest(key=b"big", range_end=b"bih")]))
        return step

    def contender(self):
        """A key that contends for a lock: as in etcd while nobody blurs it, refused where somebody would."""
        pb, rng = self.pb, self.rng
        live = sorted(i for i in self.leases if i > 0)
        if len(live) < 2:
            return Step("LeaseLeases", [pb.LeaseLeasesRequest()])
        lease, other = rng.sample(live, 2)
        key = b"lock/%x" % lease
        delete = Step("DeleteRange", [pb.DeleteRangeRequest(key=b"lock/", range_end=b"lock0")])
        refused = "FAILED_PRECONDITION"
        lease_text = "holdfast: the write would change the lease of a contender for a lock"
        exists_text = "holdfast: the write would turn an existing key into a contender for a lock"
        twice_text = "holdfast: the write would create two contenders for one lock at one revision"
        twice = pb.TxnRequest()
        for i in (lease, other):
            twice.success.add().request_put.CopyFrom(pb.PutRequest(key=b"lock/%x" % i, lease=i))
        self.queue += [
            Step("Put", [pb.PutRequest(key=key, value=b"1", lease=lease)]),
            Step("Put", [pb.PutRequest(key=key, value=b"2", lease=lease, prev_kv=True)]),
            Step("Put", [pb.PutRequest(key=key, value=b"3", ignore_lease=True)]),
            Step("Put", [pb.PutRequest(key=key, value=b"x")], (refused, lease_text)),
            Step("Put", [pb.PutRequest(key=key, value=b"x", lease=other)], (refused, lease_text)),
            Step("Range", [pb.RangeRequest(key=b"lock/", range_end=b"lock0")]),
            delete,
            Step("Put", [pb.PutRequest(key=key, value=b"4")]),
            Step("Put", [pb.PutRequest(key=key, value=b"x", lease=lease)], (refused, exists_text)),
            Step("Range", [pb.RangeRequest(key=b"lock/", range_end=b"lock0")]),
            delete,
            Step("Txn", [twice], (refused, twice_text)),
            Step("Range", [pb.RangeRequest(key=b"lock/", range_end=b"lock0")]),
        ]
        return delete

    def keep_what_was_deleted(self):
        pb = self.pb
        t = pb.TxnRequest()
        t.success.add().request_delete_range.CopyFrom(pb.DeleteRangeRequest(key=b"k23", range_end=b"\x00"))
        t.success.add().request_put.CopyFrom(pb.PutRequest(key=b"k23", ignore_value=self.chance(0.5), ignore_lease=True))
        self.queue.append(Step("Txn", [t], ("INVALID_ARGUMENT", "etcdserver: key not found")))
        return Step("Put", [pb.PutRequest(key=b"k23", value=b"v")])

    def odd_enum(self):
        """Stock 3.4 ends with a panic at an unknown sort target; from 3.5 on it has this error."""
        bad = self.pb.RangeRequest(key=b"a", range_end=b"z")
        if self.chance(0.5):
            bad.sort_order, bad.sort_target = 1, self.rng.choice([5, 99, -1])
        else:
            bad.sort_order = self.rng.choice([3, 99, -1])
        error = ("INVALID_ARGUMENT", "etcdserver: invalid sort option")
        if self.chance(0.5):
            return Step("Range", [bad], error)
        t = self.pb.TxnRequest()
        t.success.add().request_range.CopyFrom(bad)
        return Step("Txn", [t], error)
