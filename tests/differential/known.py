"""known.py: where Holdfast is meant to answer otherwise than stock etcd 3.4.23, the oracle. Nothing else may differ.

Each entry: a name, the reason, and when it applies, given what a part of the comparison knows of a difference. Requests that the
oracle does not survive, or whose effect would differ from then on, never reach it:
  - the ID of a watch that was cancelled with events on their way, which 3.4 gives to the next watch of that ID;
  - a watch from revision -1 before any compaction, with which 3.4 loses the history of the watches that it reads for at the same time;
  - an unknown sort order or target, which has an error from 3.5 on and makes 3.4 panic;
  - a first compaction at revision 0, which compacts nothing; etcd then refuses a second one, and negative revisions in transactions;
  - writes that would blur a contender for a lock, which etcd allows and Holdfast refuses, because the order of its queues hangs on them;
  - locks and elections without a name, whose keys would be those of a tree's root;
  - addresses of a member that are none, which end 3.4; a learner's new addresses, which make it a voter there; leadership for a learner,
    for which 3.4 waits in vain;
  - names of which one is the other with "/" and more behind it: etcd has them wait for one another.
"""

MESSAGE_MAX = 1572864 + 512 * 1024
COMPACTED = "etcdserver: mvcc: required revision has been compacted"


# ---- KV and Lease: step, oracle's outcome, subject's outcome ----

def _larger_than_transport(step, oracle, subject):
    """Our gateway has no message between itself and the service."""
    refused = "RESOURCE_EXHAUSTED" if step.by == "grpc" else "INVALID_ARGUMENT"
    return step.requests[0].ByteSize() > MESSAGE_MAX and oracle.code == "RESOURCE_EXHAUSTED" and subject.code == refused


def _older_revision(step, oracle, subject):
    """The same but for revisions in headers that are lower."""
    if step.method != "LeaseKeepAlive" or oracle.code != "OK" or subject.code != "OK" or len(oracle.replies) != len(subject.replies):
        return False
    return all((a.ID, a.TTL) == (b.ID, b.TTL) and b.header.revision <= a.header.revision
               for a, b in zip(oracle.replies, subject.replies))


KV = [
    ("keep-alive-revision", "a follower that forwards a keep-alive names the revision that it has applied itself; etcd's does the same",
     _older_revision),
    ("transport-limit-text", "what the gRPC library itself refuses, it words in its own way: Go's and C's differ. By JSON it is a request that is too large", _larger_than_transport),
]


# ---- Watch: what differs ("answer", "lost", "events"), what was asked, oracle's, subject's ----

def _negative_start(what, asked, oracle, subject):
    return (what == "answer" and getattr(asked, "start_revision", 0) < 0 and oracle.created and not oracle.canceled and
            subject.created and subject.canceled and subject.watch_id == -1 and subject.cancel_reason == COMPACTED and
            subject.header == oracle.header)


def _id_of_the_lost(what, asked, oracle, subject):
    return (what == "answer" and getattr(asked, "watch_id", 0) != 0 and "duplicate watch ID" in oracle.cancel_reason and
            subject.created and not subject.canceled and subject.watch_id == asked.watch_id and subject.header == oracle.header)


def _compaction_told_in_full(what, watch, oracle, subject):
    """etcd names revision 0 in the header, and no reason."""
    if what != "lost" or not oracle.lost or not subject.lost or oracle.events != subject.events:
        return False
    a, b = oracle.lost, subject.lost
    return (a.compact_revision, a.watch_id) == (b.compact_revision, b.watch_id) and b.cancel_reason == COMPACTED and \
        b.header.revision >= b.compact_revision and not b.events


def _unchanged_key(what, watch, oracle, subject):
    return (what == "lost" and oracle.lost and not subject.lost and not watch.request.range_end and
            all(e.kv.mod_revision >= oracle.lost.compact_revision for e in subject.events))


def _unseen(what, watch, oracle, subject):
    return what == "lost" and {0, 1} <= set(watch.request.filters) and watch.request.start_revision != 0


def _without_deleted_at_the_compacted(watch, events):
    return [e for e in events if not (e.type == 1 and e.kv.mod_revision == watch.compacted == watch.request.start_revision)]


def _deleted_at_the_compacted(what, watch, oracle, subject):
    return what == "events" and list(oracle.events) == _without_deleted_at_the_compacted(watch, subject.events)


def _previous_of_the_same_revision(what, watch, oracle, subject):
    """Perhaps with what the entry above has."""
    if what != "events":
        return False
    events = _without_deleted_at_the_compacted(watch, subject.events)
    return len(oracle.events) == len(events) and all(
        a == b or (a.type, a.kv) == (b.type, b.kv) and b.type == 1 and b.prev_kv.mod_revision == b.kv.mod_revision
        for a, b in zip(oracle.events, events))


WATCH = [
    ("negative-start", "a start before all history is refused, as later releases of etcd do; 3.4 takes it for one or another revision",
     _negative_start),
    ("id-of-the-lost", "the ID of a watch that compaction has ended is free at once; etcd's stays taken until it is cancelled once more",
     _id_of_the_lost),
    ("compaction-told-in-full", "a watch that compaction ends is told the reason and a revision in the header; etcd leaves both out",
     _compaction_told_in_full),
    ("unchanged-key", "a watch of one key goes on when that key has certainly not changed since: nothing was missed. etcd cancels it",
     _unchanged_key),
    ("deleted-at-the-compacted", "a watch from the compacted revision sees what was deleted at it; etcd's compaction takes that away",
     _deleted_at_the_compacted),
    ("unseen", "a watch whose filters leave nothing cannot be seen to have caught up; a compaction meanwhile ends it in etcd", _unseen),
    ("previous-of-the-same-revision", "of a key that one transaction puts and deletes, prev_kv is what the deletion found; etcd looks one "
     "revision back", _previous_of_the_same_revision),
]


# ---- Lock and Election: method, oracle's outcome, subject's outcome, the call if it is one that waits ----

CODES = {"etcdserver: requested lease not found": "NOT_FOUND", "etcdserver: key is not provided": "INVALID_ARGUMENT"}
LEASE_GONE = ("NOT_FOUND", "etcdserver: requested lease not found")
KEY_GONE = ("FAILED_PRECONDITION", "holdfast: the key is not a contender for a lock")


def _typed(method, oracle, subject, call):
    return oracle.code == "UNKNOWN" and oracle.text == subject.text and subject.code == CODES.get(subject.text)


def _zombie(method, oracle, subject, call):
    return call is not None and call.rev and oracle.code == "OK" and (subject.code, subject.text) in (LEASE_GONE, KEY_GONE)


def _unlock_of_no_contender(method, oracle, subject, call):
    return method == "Unlock" and oracle.code == "OK" and (subject.code, subject.text) == KEY_GONE


LOCK = [
    ("typed", "an error that etcd has a code for comes with that code; etcd's own lock and election services lose it and say Unknown", _typed),
    ("zombie", "a call whose key goes while it waits fails at once; etcd's waits on, and then says that it holds what it does not",
     _zombie),
    ("unlock-of-no-contender", "Unlock deletes nothing that does not contend for a lock; etcd's deletes any key", _unlock_of_no_contender),
]


def _campaign_header(method, oracle, subject, call):
    if method != "Campaign" or oracle.code != "OK" or subject.code != "OK":
        return False
    a, b = oracle.replies[0], subject.replies[0]
    return a.leader == b.leader and a.header.revision < b.header.revision


def _nameless(method, oracle, subject, call):
    return method == "Leader" and oracle.text == "election: no leader" and \
        (subject.code, subject.text) == ("INVALID_ARGUMENT", "etcdserver: key is not provided")


ELECTION = [
    LOCK[0], LOCK[1],
    ("campaign-header", "the header of a campaign's answer is of when it was won; etcd's of when it began, which may be long ago", _campaign_header),
    ("nameless", "an election has a name; etcd looks for one at the root of the tree of keys", _nameless),
]


# ---- Auth: method, request, by whom, oracle's outcome, subject's ----

def _no_password(method, asked, user, oracle, subject):
    return (method == "Authenticate" and "no password user" in oracle.text and
            subject.text == "etcdserver: authentication failed, invalid user ID or password")


def _unguarded_lease(method, asked, user, oracle, subject):
    return method.startswith("Lease") and user is None and oracle.code == "OK" and subject.text == "etcdserver: user name is empty"


AUTH = [
    ("unguarded-lease", "while authentication is on, nobody ends or makes a lease without saying who he is; 3.4 lets everybody", _unguarded_lease),
    ("no-password", "who has no password is refused like one whose password is wrong: that he has none is nobody's business", _no_password),
]


# ---- Cluster and Maintenance: method, request, oracle's outcome, subject's ----

def _defragment_header(method, asked, oracle, subject):
    return method == "Defragment" and oracle.code == subject.code == "OK" and oracle.replies == [0]


def _not_started(method, asked, oracle, subject):
    text = "etcdserver: re-configuration failed due to not enough started members"
    return oracle.code == "UNKNOWN" and oracle.text == text and (subject.code, subject.text) == ("FAILED_PRECONDITION", text)


MEMBERS = [
    ("defragment-header", "the header of Defragment's answer is as all others; etcd's is empty", _defragment_header),
    ("not-started", "an error of the table comes with its code: 3.4 forgets that of a change for which too few members run", _not_started),
]
