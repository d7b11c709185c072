"""known.py: where Holdfast is meant to answer otherwise than stock etcd 3.4.23, the oracle. Nothing else may differ.

Each entry: a name, the reason, and when it applies: applies(step, oracle's outcome, subject's outcome). Requests that the oracle
does not survive, or whose effect would differ from then on, never reach it: they carry the answer that is wanted (steps.py,
only_subjects): an unknown sort order or target, which has an error from 3.5 on and makes 3.4 panic; a put that wants to
keep the value or lease of a key that its own transaction has deleted, which makes 3.4 panic too; and the writes that would blur
a contender for a lock, which etcd allows and Holdfast refuses because the order of its queues hangs on them.
"""

MESSAGE_MAX = 1572864 + 512 * 1024


def _larger_than_transport(step, oracle, subject):
    return (step.requests[0].ByteSize() > MESSAGE_MAX and oracle.code == subject.code == "RESOURCE_EXHAUSTED")


def _older_revision(step, oracle, subject):
    """The same but for revisions in headers that are lower."""
    if step.method != "LeaseKeepAlive" or oracle.code != "OK" or subject.code != "OK" or len(oracle.replies) != len(subject.replies):
        return False
    return all((a.ID, a.TTL) == (b.ID, b.TTL) and b.header.revision <= a.header.revision
               for a, b in zip(oracle.replies, subject.replies))


KNOWN = [
    ("keep-alive-revision", "a follower that forwards a keep-alive names the revision that it has applied itself; etcd's does the same",
     _older_revision),
    ("transport-limit-text", "what the gRPC library itself refuses, it words in its own way: Go's and C's differ", _larger_than_transport),
]


def explain(step, oracle, subject):
    for name, _, applies in KNOWN:
        if applies(step, oracle, subject):
            return name
    return None
