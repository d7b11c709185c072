"""members.py: Cluster and Maintenance: members that come and go, alarms, and what operators ask, on all targets alike.

Learners are added, updated, promoted and removed: they need no quorum, and none is ever started. A voter that cannot be reached is never
asked for: stock etcd of one loses its quorum over it. Nor is etcd 3.4 asked to give a member addresses that are none: it ends itself. Alarms are raised with a type: without one etcd 3.4 ends itself.
Members are named by their place: IDs are made of a time, so each target has its own. Hashes, sizes and the bytes of a snapshot belong to one
product; of these the shape is compared: that there are some, and that the stream ends with nothing remaining.
"""
import random

import cells
import compare
import known
import target
from etcd import rpc_pb2 as pb
from report import Report

NOBODY = [0, 1, 2**63, 2**64 - 1, 77]
URLS = ["http://127.0.0.1:%d" % p for p in range(1, 5)]
BAD_URLS = [[], [""], ["127.0.0.1:1"], ["ftp://127.0.0.1:1"], ["http://127.0.0.1"], ["http://127.0.0.1:1/path"], ["nonsense"]]
METHODS = ["MemberList", "MemberAdd", "MemberUpdate", "MemberPromote", "MemberRemove", "Alarm", "Status", "Defragment", "Hash", "HashKV", "Snapshot",
           "MoveLeader"]
LEAST = 12  # of a normal run


class Field:
    def __init__(self, report, seed, targets):
        self.report, self.seed, self.targets = report, seed, targets
        self.rng = random.Random(seed)
        self.steps, self.revision, self.compacted = 0, 1, 0
        self.ids = [[m.ID for m in t.grpc.cluster[0].MemberList(pb.MemberListRequest(), timeout=target.TIMEOUT_S).members] for t in targets]
        self.own = [set(ids) for ids in self.ids]
        self.learners = []  # [{target: ID}], in the order of their coming
        self.gone = []
        self.added_ones = 0

    # ---- asking ----

    def ask(self, service, method, request, shape=None, by=None, leader=False):
        """request: a message, or a function of the target's number. shape: what of an answer is compared; all of it if None. leader: whom
        to ask; anybody if not."""
        self.steps += 1
        by = by or target.channel(self.rng)
        at = self.rng.randrange(12)
        requests = [request(i) if callable(request) else request for i in range(len(self.targets))]
        calls = []
        for t, r in zip(self.targets, requests):
            stubs = t.stubs(by, service)
            place = self.leader_of(t) if leader else at % len(stubs)
            if service != "kv":
                t.catch_up(place)  # each replica answers for itself
            stub = getattr(stubs[place], method)
            calls.append(stub(r, timeout=target.TIMEOUT_S) if method == "Snapshot" else stub.future(r, timeout=target.TIMEOUT_S))
        outcomes = [snapshot(c) if method == "Snapshot" else target.outcome(c) for c in calls]
        self.targets[0].must_run(f"{method} {requests[0]}")
        self.report.count(method, outcomes[0])
        bare = [compare.Outcome(o.code, o.text, [(shape or self.bare)(i, r) for r in o.replies]) for i, o in enumerate(outcomes)]
        for t, r, o in zip(self.targets[1:], requests[1:], bare[1:]):
            if o != bare[0] and not self.report.explained(method, requests[0], bare[0], o):
                self.report.differ(method, f"seed {self.seed} step {self.steps}", t, f"{by} {r}", bare[0], o, f"{bare[0].code} {bare[0].text} {o.code} {o.text}")
        return outcomes

    def leader_of(self, t):
        """Its place among the replicas of a target."""
        def leader():
            for n, stub in enumerate(t.grpc.maintenance):
                s = stub.Status(pb.StatusRequest(), timeout=target.TIMEOUT_S)
                if s.leader == s.header.member_id:
                    return [n]
        return cells.wait_for(f"{t} has a leader", leader)[0]

    def refused(self, service, method, request, code, text):
        """What the oracle does not survive, or does not recover from, of all others."""
        for i, t in enumerate(self.targets[1:], 1):
            stubs = t.stubs(target.channel(self.rng), service)
            r = request(i) if callable(request) else request
            got = target.outcome(getattr(stubs[self.leader_of(t)], method).future(r, timeout=target.TIMEOUT_S))
            if (got.code, got.text) != (code, text):
                self.report.differ(method, f"seed {self.seed} step {self.steps}", t, r, f"{code}: {text!r} is wanted", got)
        self.report.count(method)

    def place(self, i, member):
        """What a member is called everywhere."""
        if member in self.own[i]:
            return 1
        for n, learner in enumerate(self.learners):
            if learner[i] == member:
                return 100 + n
        return member if member in NOBODY else 99

    def bare(self, i, reply):
        """Without what belongs to one cell alone. The members that a cell began with are one, whatever their number."""
        copy = type(reply)()
        copy.CopyFrom(reply)
        copy.header.cluster_id = copy.header.member_id = copy.header.raft_term = 0
        if hasattr(copy, "member"):
            copy.member.ID = min(copy.member.ID, 1)
        if hasattr(copy, "members"):
            found = {}
            for m in copy.members:
                name = self.place(i, m.ID)
                m.ID = name
                if name == 1:
                    m.name = "r1"
                    del m.peerURLs[:], m.clientURLs[:]
                found[name] = m.SerializeToString(deterministic=True)
            del copy.members[:]
            copy.members.extend(pb.Member.FromString(found[k]) for k in sorted(found))
        if hasattr(copy, "alarms"):
            alarms = sorted({(self.place(i, a.memberID), a.alarm) for a in copy.alarms})
            del copy.alarms[:]
            for member, alarm in alarms:
                copy.alarms.add(memberID=member, alarm=alarm)
        return copy

    # ---- Cluster ----

    def list(self):
        self.ask("cluster", "MemberList", pb.MemberListRequest())

    def add(self):
        rng = self.rng
        if rng.random() < 0.35:
            self.ask("cluster", "MemberAdd", pb.MemberAddRequest(peerURLs=rng.choice(BAD_URLS), isLearner=rng.random() < 0.5))
            return
        if rng.random() < 0.2:  # an address that is taken, as a voter or a learner
            def taken(i):
                return pb.MemberAddRequest(peerURLs=[self.targets[i].cell.replicas[0].peer_url], isLearner=True)
            self.ask("cluster", "MemberAdd", taken)
            return
        self.added_ones += 1  # never twice: the ID is made of the addresses and the second, and one that was removed never comes back
        urls = [f"http://127.0.0.{n}:{1 + self.added_ones % 60000}" for n in rng.sample(range(1, 200), rng.randrange(1, 3))]
        outcomes = self.ask("cluster", "MemberAdd", pb.MemberAddRequest(peerURLs=urls, isLearner=True), shape=self.added)
        if all(o.code == "OK" for o in outcomes):
            self.learners.append([o.replies[0].member.ID for o in outcomes])

    def added(self, i, reply):
        copy = self.bare(i, reply)
        for m in (copy.member, *copy.members):
            m.ID = m.ID if m.ID == 1 and not m.isLearner else 99  # not yet known by a place
        return copy

    def any_member(self):
        """A learner, one that is gone, or nobody: a function of the target's number."""
        kind = self.rng.random()
        known_ones = self.learners if kind < 0.6 else self.gone
        if known_ones and kind < 0.8:
            ids = self.rng.choice(known_ones)
            return ids, lambda i: ids[i]
        nobody = self.rng.choice(NOBODY)
        return None, lambda i: nobody

    def own_member(self, i):
        return self.ids[i][0]

    def update(self):
        ids, who = self.any_member()
        if self.rng.random() < 0.2:
            self.refused("cluster", "MemberUpdate", pb.MemberUpdateRequest(ID=77, peerURLs=self.rng.choice(BAD_URLS)), "INVALID_ARGUMENT",
                         "etcdserver: given member URLs are invalid")
            return
        if ids in self.learners:
            # 3.4 takes it for a voter from then on, so only ours is asked; and back, so that addresses stay the same.
            self.update_of_learner(ids)
            return
        urls = self.rng.sample(URLS, 1)
        if self.rng.random() < 0.3:  # a member of the cell, with the address that it has
            self.ask("cluster", "MemberUpdate", lambda i: pb.MemberUpdateRequest(ID=self.own_member(i), peerURLs=self.address(i)))
            return
        self.ask("cluster", "MemberUpdate", lambda i: pb.MemberUpdateRequest(ID=who(i), peerURLs=urls))

    def members_of(self, i):
        return self.targets[i].grpc.cluster[0].MemberList(pb.MemberListRequest(), timeout=target.TIMEOUT_S).members

    def address(self, i):
        return next(list(m.peerURLs) for m in self.members_of(i) if m.ID == self.own_member(i))

    def update_of_learner(self, ids):
        for i, t in enumerate(self.targets[1:], 1):
            before = next(m for m in self.members_of(i) if m.ID == ids[i])
            for urls in (["http://127.0.0.1:9"], before.peerURLs):
                reply = t.grpc.cluster[0].MemberUpdate(pb.MemberUpdateRequest(ID=ids[i], peerURLs=urls), timeout=target.TIMEOUT_S)
                now = next(m for m in reply.members if m.ID == ids[i])
                if not now.isLearner or list(now.peerURLs) != list(urls):
                    self.report.differ("MemberUpdate", f"seed {self.seed} step {self.steps}", t, urls, "a learner at that address", now)
        self.report.count("MemberUpdate")

    def promote(self):
        _, who = self.any_member()
        if self.rng.random() < 0.3:
            who = self.own_member
        self.ask("cluster", "MemberPromote", lambda i: pb.MemberPromoteRequest(ID=who(i)))

    def remove(self):
        if self.rng.random() < 0.1:  # the last one: of cells of one
            every, self.targets = self.targets, self.targets[:2]
            self.ask("cluster", "MemberRemove", lambda i: pb.MemberRemoveRequest(ID=self.own_member(i)))
            self.targets = every
            return
        ids, who = self.any_member()
        outcomes = self.ask("cluster", "MemberRemove", lambda i: pb.MemberRemoveRequest(ID=who(i)))
        if ids in self.learners and outcomes[0].code == "OK":
            self.learners.remove(ids)
            self.gone = (self.gone + [ids])[-4:]

    # ---- Maintenance ----

    def alarm(self):
        rng = self.rng
        kind = rng.random()
        if kind < 0.4:
            self.ask("maintenance", "Alarm", pb.AlarmRequest(action=0, alarm=rng.choice([0, 0, 1, 2]), memberID=rng.choice([0, 0, 5])))
            return
        member = rng.choice([5, 6, 77])
        alarm = pb.NOSPACE
        self.ask("maintenance", "Alarm", pb.AlarmRequest(action=1, memberID=member, alarm=alarm))
        if rng.random() < 0.5:
            self.put()
        if rng.random() < 0.3:
            self.ask("maintenance", "Alarm", pb.AlarmRequest(action=0))
        self.ask("maintenance", "Alarm", pb.AlarmRequest(action=2, memberID=member, alarm=alarm))
        if rng.random() < 0.3:
            self.ask("maintenance", "Alarm", pb.AlarmRequest(action=2, memberID=rng.choice([5, 6, 77]), alarm=alarm))

    def put(self):
        outcomes = self.ask("kv", "Put", pb.PutRequest(key=b"k%d" % self.rng.randrange(9), value=b"v"))
        if outcomes[0].code == "OK":
            self.revision = outcomes[0].replies[0].header.revision

    def status(self):
        def shape(i, r):
            return (r.header.revision, bool(r.version), r.dbSize >= r.dbSizeInUse >= 0, r.leader in self.own[i], r.raftIndex >= r.raftAppliedIndex > 0,
                    r.raftTerm == r.header.raft_term > 0, list(r.errors), r.isLearner)
        self.ask("maintenance", "Status", pb.StatusRequest(), shape)

    def hash_kv(self):
        revision = self.rng.choice([0, self.revision, self.revision - 1, 1, self.revision + 5, -1 if self.rng.random() < 0.1 else 0])
        self.ask("maintenance", "HashKV", pb.HashKVRequest(revision=revision), lambda i, r: (r.header.revision, r.compact_revision),
                 by="grpc")  # 3.4 has it under the path of Hash

    def hash(self):
        self.ask("maintenance", "Hash", pb.HashRequest(), lambda i, r: (r.header.revision, r.hash != 0))

    def defragment(self):
        self.ask("maintenance", "Defragment", pb.DefragmentRequest(), lambda i, r: r.header.revision)

    def snapshot(self):
        self.ask("maintenance", "Snapshot", pb.SnapshotRequest(), lambda i, r: r)

    def move_leader(self):
        """To where it cannot go: nobody, or a learner."""
        ids, who = self.any_member()
        leader = [t.grpc.maintenance[0].Status(pb.StatusRequest(), timeout=target.TIMEOUT_S).leader for t in self.targets]
        if self.rng.random() < 0.3:
            ids, who = None, leader.__getitem__  # where it is: nothing to do
        if ids in self.learners:  # etcd waits for what will never be
            self.refused("maintenance", "MoveLeader", lambda i: pb.MoveLeaderRequest(targetID=ids[i]), "FAILED_PRECONDITION",
                         "etcdserver: bad leader transferee")
            return
        self.ask("maintenance", "MoveLeader", lambda i: pb.MoveLeaderRequest(targetID=who(i)), leader=True)

    def act(self, method=None):
        if method:
            name = {"MemberList": "list", "HashKV": "hash_kv", "MoveLeader": "move_leader"}.get(method, method.removeprefix("Member").lower())
            getattr(self, name)()
            return
        acts = [(self.list, 10), (self.add, 12), (self.update, 9), (self.promote, 9), (self.remove, 11), (self.alarm, 8), (self.status, 8),
                (self.defragment, 6), (self.hash, 6), (self.hash_kv, 8), (self.snapshot, 5), (self.move_leader, 7), (self.put, 6)]
        self.rng.choices([a for a, _ in acts], [w for _, w in acts])[0]()


def snapshot(call):
    """The shape of a stream: pieces, of which each says that less remains, and the last that nothing does."""
    try:
        replies = list(call)
    except target.grpc.RpcError as e:
        return compare.Outcome(e.code().name, e.details(), [])
    left = [r.remaining_bytes for r in replies]
    told = left == sorted(left, reverse=True) and left[-1:] == [0] and any(r.blob for r in replies)
    return compare.Outcome("OK", "", [f"{'pieces' if replies else 'nothing'}, what remains is {'told' if told else 'not told'}"])


def run(options):
    report = Report("Cluster and Maintenance", METHODS, known.MEMBERS, least=LEAST)
    ops = options.ops or (16000 if options.full else 400)
    targets = target.open_all(options.server)
    try:
        field = Field(report, options.seed, targets)
        while not report.had_enough():
            rare = None if field.steps < ops or options.ops else report.rare()
            if field.steps >= ops and not rare:
                break
            field.act(rare)
    finally:
        target.close_all(targets)
    return report.finish(f"seed {options.seed}", least=not options.ops)
