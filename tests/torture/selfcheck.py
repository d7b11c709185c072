"""selfcheck.py: the checkers of check.py on small histories, right and wrong. Returns how many it tried; fails on a wrong verdict."""
import math

import check
from check import UNKNOWN, Hold, Lease, Op, Watched

INF = math.inf

REGISTERS = [
    ("in order", True, [Op("put", 1, None, 0, 1), Op("get", None, 1, 2, 3), Op("put", 2, 1, 4, 5), Op("delete", None, 2, 6, 7), Op("get", None, None, 8, 9)]),
    ("a stale read", False, [Op("put", 1, None, 0, 1), Op("put", 2, 1, 2, 3), Op("get", None, 1, 4, 5)]),
    ("a read beside the write may see either", True, [Op("put", 1, None, 0, 1), Op("put", 2, 1, 2, 9), Op("get", None, 1, 3, 4), Op("get", None, 2, 5, 6)]),
    ("reads may not go back", False, [Op("put", 1, None, 0, 1), Op("put", 2, 1, 2, 9), Op("get", None, 2, 3, 4), Op("get", None, 1, 5, 6)]),
    ("a lost write", False, [Op("put", 1, None, 0, 1), Op("get", None, None, 2, 3)]),
    ("an unanswered write may come late", True, [Op("put", 1, UNKNOWN, 0, INF), Op("get", None, None, 1, 2), Op("get", None, 1, 3, 4)]),
    ("or never", True, [Op("put", 1, UNKNOWN, 0, INF), Op("get", None, None, 1, 2), Op("put", 2, None, 3, 4)]),
    ("but not before it was asked for", False, [Op("get", None, 1, 0, 1), Op("put", 1, UNKNOWN, 2, INF)]),
    ("nor twice", False, [Op("put", 1, UNKNOWN, 0, INF), Op("put", 2, 1, 1, 2), Op("get", None, 1, 3, 4)]),
    ("two writers that both saw the same before them", False, [Op("put", 1, None, 0, 3), Op("put", 2, None, 1, 4)]),
    ("two winners of one compare", False, [Op("put", 0, None, 0, 1), Op("cas", (0, 1), (True, 0), 2, 4), Op("cas", (0, 2), (True, 0), 3, 5)]),
    ("one winner of two", True, [Op("put", 0, None, 0, 1), Op("cas", (0, 1), (True, 0), 2, 4), Op("cas", (0, 2), (False, 1), 3, 5)]),
    ("an unanswered compare won", True, [Op("put", 0, None, 0, 1), Op("cas", (0, 1), UNKNOWN, 2, INF), Op("get", None, 1, 3, 4)]),
    ("an unanswered delete", True, [Op("put", 0, None, 0, 1), Op("delete", None, UNKNOWN, 2, INF), Op("get", None, 0, 3, 4), Op("get", None, None, 5, 6)]),
]


def lease(ttl, asked, *renewals):
    made = Lease(ttl, asked)
    made.renewals = list(renewals)
    return made


def hold(lease_id, token, asked, told, given_back=INF, shared=False):
    h = Hold("l", lease_id, token, asked, told, shared)
    h.given_back, h.key = given_back, b"l/%x" % lease_id
    return h


def watched(*events, gaps=()):
    w = Watched()
    w.events, w.gaps = list(events), list(gaps)
    return w


def _cases():
    for name, good, ops in REGISTERS:
        yield name, good, [check.check_register(ops)] if check.check_register(ops) else []
    leases = {1: lease(10, 0, (4, 5, 10)), 2: lease(10, 0)}
    yield "one after the other", True, check.check_holders([hold(1, 5, 0, 1, 2), hold(2, 6, 0, 2.1, 3)], leases)
    yield "two at once", False, check.check_holders([hold(1, 5, 0, 1, 3), hold(2, 6, 0, 2, 4)], leases)
    yield "the first one's lease is over by then", True, check.check_holders([hold(1, 5, 0, 1), hold(2, 6, 0, 14)], {**leases, 2: lease(10, 10)})
    yield "it was renewed", False, check.check_holders([hold(1, 5, 0, 1), hold(2, 6, 0, 12)], {**leases, 2: lease(10, 10)})
    yield "both shared", True, check.check_holders([hold(1, 5, 0, 1, 3, True), hold(2, 6, 0, 2, 4, True)], leases)
    yield "shared beside exclusive", False, check.check_holders([hold(1, 5, 0, 1, 3, True), hold(2, 6, 0, 2, 4)], leases)
    yield "tokens rise", True, check.check_tokens([hold(1, 5, 0, 1), hold(2, 6, 2, 3)])
    yield "tokens fall", False, check.check_tokens([hold(1, 6, 0, 1), hold(2, 5, 2, 3)])
    yield "a token twice", False, check.check_tokens([hold(1, 6, 0, 1), hold(2, 6, 0, 3)])
    yield "a lease that lasts", True, check.check_leases({1: lease(10, 0, (4, 5, 10), (14, 15, 0))})
    yield "a lease that ends early", False, check.check_leases({1: lease(10, 0, (4, 5, 10), (12, 13, 0))})
    yield "a held key goes with its lease", True, check.check_ends([hold(1, 5, 0, 1)], leases, {(b"l/1", 5): 14.5})
    yield "a held key goes early", False, check.check_ends([hold(1, 5, 0, 1)], leases, {(b"l/1", 5): 12})
    yield "a held key goes by Unlock", True, check.check_ends([hold(1, 5, 0, 1, 2)], leases, {(b"l/1", 5): 2.1})
    yield "revisions rise", True, check.check_revisions([(0, 1, 5), (0.5, 2, 4), (3, 4, 5)])
    yield "a revision falls", False, check.check_revisions([(0, 1, 5), (2, 3, 4)])
    whole = [(2, "a", "1"), (3, "b", "1"), (4, "a", None)]
    writes = {"a": {2: "1", 4: None}, "b": {3: "1"}}
    yield "whole histories", True, check.check_watches([watched(*whole), watched(*whole)], writes)
    yield "a skipped event", False, check.check_watches([watched(*whole), watched(whole[0], whole[2])], writes)
    yield "skipped after compaction", True, check.check_watches([watched(*whole), watched(whole[0], whole[2], gaps=[(3, 4)])], writes)
    yield "an event twice", False, check.check_watches([watched(whole[0], whole[0])], writes)
    yield "out of order", False, check.check_watches([watched(whole[1], whole[0])], {})
    yield "another value", False, check.check_watches([watched(*whole), watched((2, "a", "2"))], {})
    yield "not what was acknowledged", False, check.check_watches([watched((2, "a", "2"))], writes)
    yield "each once", True, check.check_once([("c", 5, 6, 5), ("c", 5, 6, 6)])
    yield "one lost", False, check.check_once([("c", 5, 6, 4)])
    yield "one twice", False, check.check_once([("c", 5, 6, 7)])


def run():
    n = 0
    for name, good, found in _cases():
        assert good == (not found), f"the checker is wrong about '{name}': {found or 'no violation'}"
        n += 1
    return n
