"""check.py: whether what the clients saw can have been. Each check returns the violations as texts; none is what we want.

Times are seconds of one monotonic clock, that of the process that ran all clients.
"""
import collections
import math

UNKNOWN = object()  # the outcome of a call that was not answered
RATE = 0.99         # the rates of two clocks differ by 1 % at most


# ---- registers: linearizability, key by key (Wing and Gong, with the states that were seen before) ----

class Op:
    """One call on one key. kind: put, get, cas, delete. arg: the value put, or (expected, new). seen: what it told of the key's value
    just before it (None: no key); for cas (succeeded, value); UNKNOWN: never answered."""

    __slots__ = ("kind", "arg", "seen", "began", "ended", "client")

    def __init__(self, kind, arg, seen, began, ended, client=None):
        self.kind, self.arg, self.seen, self.began, self.ended, self.client = kind, arg, seen, began, ended, client

    def __repr__(self):
        seen = "?" if self.seen is UNKNOWN else self.seen
        return f"{self.kind}({self.arg}) -> {seen} [{self.began:.4f}, {self.ended:.4f}]"

    def step(self, value):
        """(possible, value afterwards) when the key has `value`."""
        if self.kind == "cas":
            expected, new = self.arg
            fits = value == expected
            if self.seen is not UNKNOWN:
                succeeded, before = self.seen
                if succeeded != fits or (not succeeded and before != value):
                    return False, value
            return True, new if fits else value
        if self.seen is not UNKNOWN and self.seen != value:
            return False, value
        return True, {"put": self.arg, "delete": None}.get(self.kind, value)


def _observed(op):
    if op.seen is UNKNOWN:
        return None
    if op.kind == "cas":
        return op.arg[0] if op.seen[0] else op.seen[1]
    return op.seen


def _prune(ops):
    """Leaves out unanswered writes whose value nobody ever saw: every call tells the value before it, so they may as well not have happened."""
    observed = {_observed(op) for op in ops}
    kept = []
    for op in ops:
        new = op.arg[1] if op.kind == "cas" else op.arg
        if op.seen is UNKNOWN and (op.kind == "get" or (op.kind != "delete" and new not in observed)):
            continue
        kept.append(op)
    return kept


def check_register(ops, budget=300000):
    """One key's ops, in any order. None when they are linearizable, else the longest prefix's op that does not fit, or that it is undecided."""
    ops = sorted(_prune(ops), key=lambda o: o.began)
    ends = [math.inf if o.seen is UNKNOWN else o.ended for o in ops]
    must = sum(1 << i for i, e in enumerate(ends) if e < math.inf)
    seen = set()
    stack = [(0, None)]  # what is linearized, the value
    best, best_done = None, -1
    while stack:
        done, value = stack.pop()
        if (done, value) in seen:
            continue
        seen.add((done, value))
        if len(seen) > budget:
            return "undecided: too many possibilities"
        if done & must == must:
            return None
        # Whoever ended first of those left bounds who may come next.
        left = [i for i in range(len(ops)) if not done >> i & 1]
        first_end = min(ends[i] for i in left)
        count = bin(done & must).count("1")
        if count > best_done:
            best_done, best = count, min(left, key=lambda i: ends[i])
        for i in reversed(left):
            if ops[i].began > first_end:
                continue
            possible, after = ops[i].step(value)
            if possible:
                stack.append((done | 1 << i, after))
    return f"{ops[best]!r} fits nowhere after {best_done} of {bin(must).count('1')} calls"


def check_registers(history):
    """history: key -> ops."""
    out = []
    for key, ops in history.items():
        wrong = check_register(ops)
        if wrong:
            out.append(f"P5: key {key}: {wrong}")
    return out


# ---- leases ----

class Lease:
    """One session's lease: its TTL, when it was asked for, and every keep-alive's (sent, answered, TTL told)."""

    def __init__(self, ttl, asked):
        self.ttl, self.asked = ttl, asked
        self.renewals = []
        self.revoked_at = math.inf  # when its owner began to end it

    def sure_until(self, t):
        """Until when somebody who knows what its client knew at t may rely on it. Not later than revoked_at."""
        deadline = self.asked + self.ttl * RATE
        for sent, answered, ttl in self.renewals:
            if answered > min(t, deadline):
                break
            if ttl > 0:
                deadline = max(deadline, sent + self.ttl * RATE)
        return min(deadline, self.revoked_at)

    def known_at(self, t):
        """As sure_until, but of one who takes up an answer that came too late for the client, too: the cell's promise holds all the same."""
        sent = [s for s, answered, ttl in self.renewals if ttl > 0 and answered <= t]
        return min(max([self.asked, *sent]) + self.ttl * RATE, self.revoked_at)


def check_leases(leases):
    """No keep-alive was told that a lease is gone before its TTL had passed since the last one that was answered."""
    out = []
    for name, lease in leases.items():
        for sent, answered, ttl in lease.renewals:
            if ttl <= 0 and answered < min(lease.known_at(sent), lease.revoked_at):
                out.append(f"P4: lease {name:x} of {lease.ttl} s was told to be gone {lease.known_at(sent) - answered:.3f} s before its time, at {answered:.4f}")
                break
    return out


# ---- locks ----

class Hold:
    """A grant: from when the client was told until it began to give it back (inf: never)."""

    def __init__(self, lock, lease_id, token, asked, told, shared=False):
        self.lock, self.lease_id, self.token, self.asked, self.told, self.shared = lock, lease_id, token, asked, told, shared
        self.given_back = math.inf
        self.key = None

    def __repr__(self):
        return f"{'shared ' if self.shared else ''}hold {self.token} of {self.lock} by {self.lease_id:x}, told at {self.told:.4f}"


def _believed_until(hold, leases):
    lease = leases[hold.lease_id]
    end = hold.told
    # Belief grows with every answered keep-alive, and once lost it is gone.
    while True:
        until = min(lease.sure_until(end), hold.given_back)
        if until <= end:
            return end
        end = until


def check_holders(holds, leases):
    """P1 among clients: no two that both believe they hold a lock, unless both hold it shared."""
    out = []
    by_lock = collections.defaultdict(list)
    for h in holds:
        by_lock[h.lock].append((h.told, _believed_until(h, leases), h))
    for spans in by_lock.values():
        spans.sort(key=lambda s: s[0])
        open_spans = []
        for told, until, h in spans:
            open_spans = [s for s in open_spans if s[1] > told]
            for _, end, other in open_spans:
                if not (h.shared and other.shared) and other.lease_id != h.lease_id:
                    out.append(f"P1: {h} while {other} believed to hold it until {end:.4f}")
            open_spans.append((told, until, h))
    return out


def check_tokens(holds):
    """P2: along one lock, a grant that was asked for after another was told has a higher token; a token is one hold's."""
    out = []
    by_lock = collections.defaultdict(list)
    for h in holds:
        by_lock[h.lock].append(h)
    for same in by_lock.values():
        owner = {}
        for h in same:
            if owner.setdefault(h.token, h.lease_id) != h.lease_id:
                out.append(f"P2: token {h.token} of {h.lock} was given to {owner[h.token]:x} and {h.lease_id:x}")
        told = sorted(same, key=lambda h: h.told)
        asked = sorted(same, key=lambda h: h.asked)
        at, highest = 0, None
        for h in asked:
            while at < len(told) and told[at].told < h.asked:
                if not told[at].shared and not h.shared and (highest is None or told[at].token > highest.token):
                    highest = told[at]
                at += 1
            if highest and not h.shared and h.token < highest.token:
                out.append(f"P2: {h} was asked for after {highest} was told")
    return out


def check_ends(holds, leases, ends):
    """P4: no held key went while its owner could be sure of it. ends: (key, create_revision) -> when the first watcher saw it go."""
    out = []
    for h in holds:
        gone = ends.get((h.key, h.token))
        if gone is None or gone >= h.given_back:
            continue
        known = leases[h.lease_id].known_at(gone)
        if gone < known:
            out.append(f"P4: {h}: its key was seen to go at {gone:.4f}, {known - gone:.3f} s before its lease could end")
    return out


# ---- revisions, watches, requests sent again ----

def check_revisions(answers):
    """P5, P11: answers (began, ended, revision): what began after another had ended has no lower revision."""
    by_end = sorted(answers, key=lambda a: a[1])
    at, highest, out = 0, 0, []
    for began, _, revision in sorted(answers, key=lambda a: a[0]):
        while at < len(by_end) and by_end[at][1] < began:
            highest = max(highest, by_end[at][2])
            at += 1
        if revision < highest:
            out.append(f"P11: revision {revision} at {began:.4f}, after {highest} had been told")
    return out[:5]


class Watched:
    """What one watcher got over all its streams: events (revision, key, value or None), and the gaps that it was told of."""

    def __init__(self):
        self.events = []
        self.gaps = []  # (first missed, first revision again)


def check_watches(watchers, writes, first=2):
    """P7. writes: key -> {revision: value} of what was acknowledged. All watchers saw one history, in order, once, whole but for told gaps."""
    out = []
    history = {}
    for w in watchers:
        for revision, key, value in w.events:
            history.setdefault(revision, {})[key] = value
    for n, w in enumerate(watchers):
        last, keys = first - 1, set()
        gaps = sorted(w.gaps)
        for revision, key, value in w.events:
            if revision < last:
                out.append(f"P7: watcher {n}: revision {revision} after {last}")
                break
            if revision > last:
                keys = set()
                missed = [r for r in range(last + 1, revision) if r in history and not any(a <= r < b for a, b in gaps)]
                if missed:
                    out.append(f"P7: watcher {n}: went from revision {last} to {revision}, others saw {missed[:5]}")
            if key in keys:
                out.append(f"P7: watcher {n}: key {key} twice at revision {revision}")
            keys.add(key)
            last = revision
            if history[revision][key] != value:
                out.append(f"P7: watcher {n}: another value of {key} at revision {revision} than somebody else")
        ended = w.events[-1][0] if w.events else 0
        by_revision = collections.defaultdict(dict)
        for revision, key, value in w.events:
            by_revision[revision][key] = value
        for key, versions in writes.items():
            for revision, value in versions.items():
                if revision <= ended and not any(a <= revision < b for a, b in gaps) and by_revision[revision].get(key, "nothing") != value:
                    out.append(f"P7: watcher {n}: {key} = {value} was acknowledged at revision {revision} and told as {by_revision[revision].get(key, 'nothing')}")
        if len(out) > 20:
            break
    return out


def check_once(counters):
    """P9: counters (name, acknowledged, asked, version found): each acknowledged request counts once, none twice."""
    return [f"P9: {name}: {asked} requests, {acknowledged} acknowledged, {version} times carried out"
            for name, acknowledged, asked, version in counters if not acknowledged <= version <= asked]
