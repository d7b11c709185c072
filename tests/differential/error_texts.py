"""error_texts.py: which of etcd's error texts were reached, on both sides.

api/errors.h has the table. A text counts as reached when etcd answered with it and Holdfast's answer was compared with that. What stock etcd
3.4 of one replica, whole and at rest, cannot be brought to say is in UNREACHED, with the reason; so is a text that 3.4 does not have.
With --full a text that is in neither is a failure, and so is one that is in both: the list holds nothing that is not so.
"""
import pathlib
import re

TABLE = pathlib.Path(__file__).resolve().parents[2] / "api" / "errors.h"
NEWER = "a text of 3.5 or later"
FAULT = "takes a cell that has lost its leader, its quorum, a link or a disk: tests/integration and tests/sim break those"
RACE = "takes a race that no order of requests forces"
UNREACHED = {
    "etcdserver: invalid sort option": NEWER + ": 3.4 ends itself. What Holdfast says is compared with the table (steps.py)",
    "etcdserver: permission not given": NEWER,
    "etcdserver: cluster ID mismatch": NEWER,
    "etcdserver: invalid client api version": NEWER,
    "etcdserver: wrong downgrade target version format": NEWER,
    "etcdserver: invalid downgrade target version": NEWER,
    "etcdserver: cluster has a downgrade job in progress": NEWER,
    "etcdserver: no inflight downgrade job": NEWER,
    "etcdserver: cluster version not found during downgrade": NEWER,
    "etcdserver: rpc not supported for learner": "takes a learner that runs: tests/e2e has one",
    "etcdserver: member ID already exist": "the ID is made of the addresses, and that an address is taken is said first",
    "etcdserver: too many requests": "takes thousands of requests in flight: tests/integration fills the queue",
    "etcdserver: watch canceled": "no server says so: a client's library does",
    "etcdserver: not capable": "takes a cluster of releases before 3.0",
    "etcdserver: revision of auth store is old": RACE,
    "etcdserver: no leader": FAULT, "etcdserver: leader changed": FAULT, "etcdserver: request timed out": FAULT,
    "etcdserver: request timed out, possibly due to previous leader failure": FAULT,
    "etcdserver: request timed out, possibly due to connection lost": FAULT,
    "etcdserver: request timed out, waiting for the applied index took too long": FAULT,
    "etcdserver: context deadline exceeded": FAULT, "etcdserver: request canceled": RACE, "etcdserver: server stopped": RACE,
    "etcdserver: unhealthy cluster": FAULT, "etcdserver: corrupt cluster": FAULT,
    "etcdserver: not leader": "takes a follower, and the oracle has one replica: tests/e2e moves leaders",
}


def table():
    return re.findall(r'"((?:etcdserver|election): [^"]+)"', TABLE.read_text().partition("ERR_TABLE_HOLDFAST")[0])


def seen_in(text):
    """Of the output of a part, as report.py prints it."""
    return set(re.findall(r"^ +\d+ [A-Z_]+ ((?:etcdserver|election): .*)$", text, re.M))


def tell(seen, full):
    """Returns how many faults there are."""
    texts = sorted(set(table()))
    reached = [t for t in texts if t in seen]
    print(f"TOTAL error texts: {len(texts)} of etcd, {len(reached)} reached on both sides, {len(set(UNREACHED) - seen)} that cannot be")
    faults = [f"{t!r} is listed, and is none of the table" for t in UNREACHED if t not in texts]
    faults += [f"{t!r} is listed as out of reach, and was reached" for t in reached if t in UNREACHED and not t.endswith("sort option")]
    missing = [t for t in texts if t not in seen and t not in UNREACHED]
    for t in missing:
        print(f"      not reached: {t}")
    if full:
        faults += [f"{t!r} was not reached" for t in missing]
    for f in faults:
        print(f"FAIL error texts: {f}")
    return len(faults)
