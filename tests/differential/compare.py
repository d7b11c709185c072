"""compare.py: when two outcomes of one step are the same.

A remaining TTL is measured against the clock: against when its target was asked, and when it had last granted or renewed the lease.

What no two cells can share is taken out first: cluster and member IDs, the Raft term, IDs that the server chose. What etcd leaves to
chance is put in order: the list of leases, the keys of a lease, and sorted keys that compare equal (Go's sort is not stable).
"""
import dataclasses

TTL_ROUNDING_S = 1


@dataclasses.dataclass
class Outcome:
    code: str
    text: str
    replies: list
    age: tuple = None  # the least and the most seconds that a lease can be old which was asked for

    def __str__(self):
        if self.code != "OK":
            return f"{self.code}: {self.text!r}"
        return "OK " + " | ".join(str(r).replace("\n", " ")[:1500] for r in self.replies)


def _sort_value(target, kv):
    return (kv.key, kv.version, kv.create_revision, kv.mod_revision, kv.value)[target]


def _canonical_range(request, reply):
    target = request.sort_target
    if target not in (1, 2, 3, 4):
        return
    # keys_only has taken the values away that were compared: every order is as good as another.
    groups, last = [], None
    for kv in reply.kvs:
        value = b"" if target == 4 and request.keys_only else _sort_value(target, kv)
        if not groups or value != last:
            groups.append([])
        groups[-1].append(kv)
        last = value
    for group in groups:
        group.sort(key=lambda kv: kv.key)
    if reply.more and groups and len(groups[-1]) >= 1:
        # Which of the equal ones came in under the limit is chance as well: only how many.
        for kv in groups[-1]:
            kv.Clear()
    ordered = []
    for group in groups:
        for kv in group:
            copy = type(kv)()
            copy.CopyFrom(kv)
            ordered.append(copy)
    del reply.kvs[:]
    reply.kvs.extend(ordered)


def _canonical_txn(request, reply):
    ops = request.success if reply.succeeded else request.failure
    for op, part in zip(ops, reply.responses):
        if op.HasField("request_range") and part.HasField("response_range"):
            _canonical_range(op.request_range, part.response_range)
        elif op.HasField("request_txn") and part.HasField("response_txn"):
            _canonical_txn(op.request_txn, part.response_txn)


def canonical(step, outcome):
    if outcome.code != "OK":
        return outcome
    replies = []
    for i, reply in enumerate(outcome.replies):
        copy = type(reply)()
        copy.CopyFrom(reply)
        copy.header.cluster_id = copy.header.member_id = copy.header.raft_term = 0
        request = step.requests[min(i, len(step.requests) - 1)]
        if step.method == "Range":
            _canonical_range(request, copy)
        elif step.method == "Txn":
            _canonical_txn(request, copy)
        elif step.method == "LeaseGrant" and request.ID == 0:
            copy.ID = 1 if copy.ID > 0 else copy.ID
        elif step.method == "LeaseLeases":
            ids = sorted(l.ID for l in copy.leases)
            del copy.leases[:]
            for i in ids:
                copy.leases.add().ID = i
        elif step.method == "LeaseTimeToLive":
            keys = sorted(copy.keys)
            del copy.keys[:]
            copy.keys.extend(keys)
        replies.append(copy)
    return Outcome(outcome.code, outcome.text, replies, outcome.age)


def is_in_time(reply, age):
    """Whether so much of a TTL remains as can, of a lease that is so old."""
    return age is not None and age[0] - TTL_ROUNDING_S <= reply.grantedTTL - reply.TTL <= age[1] + TTL_ROUNDING_S


def same(step, a, b):
    if a.code != "OK" or b.code != "OK":
        return (a.code, a.text) == (b.code, b.text)
    if len(a.replies) != len(b.replies):
        return False
    for x, y in zip(a.replies, b.replies):
        if step.method == "LeaseTimeToLive" and is_in_time(x, a.age) and is_in_time(y, b.age):
            y.TTL = x.TTL
        if x != y:
            return False
    return True
