"""watch.py: random watches over random histories, told the same by all targets.

A round opens a few streams on each target, over gRPC or JSON, and then does one thing after another, each on all targets and each waited for: a write, a
compaction, some watches created, one cancelled, progress asked for. So what etcd answers depends on nothing but the order. Before a
compaction and at the end of a round comes quiescence: each key that is watched is put and deleted, and every watch must have been told
its last event of these, or have been cancelled. Nothing sleeps.

Compared are each watch's events, in order, with all their fields; and every answer to a request with its flags, reason, ID and
revision. How events are grouped into responses may differ; a header must only not name a revision before its events.
"""
import hashlib
import queue
import random
import threading

import grpc

import compare
import known
import kv
import steps
import target
from etcd import rpc_pb2 as pb
from report import Report

ROUNDS_PER_CELL = 12
WAIT_S = 15
BODY_MAX = 450
LARGE = 10_000
IDS = [1, 2, 3, 5, 8, 77, -2, -7, 2**40, steps.INT64_MAX, steps.INT64_MIN]
MARKER = b"marker"


def shorten(kv):
    """So that values of a megabyte, each told by dozens of watches, do not stay."""
    if len(kv.value) > LARGE:
        kv.value = b"%d bytes, SHA-256 %s" % (len(kv.value), hashlib.sha256(kv.value).hexdigest().encode())


def header_free(message):
    copy = type(message)()
    copy.CopyFrom(message)
    copy.header.Clear()
    copy.header.revision = message.header.revision
    return copy


class Told:
    """What one target has told of one watch."""

    def __init__(self, created):
        self.created = created
        self.events = []
        self.lost = None      # the response that ended it because of a compaction
        self.canceled = False
        self.more = False     # the rest of the last response is to follow, in fragments
        self.wrong = None

    def take(self, r):
        if self.canceled or self.lost:
            self.wrong = self.wrong or "events after the end"
        if self.events and r.events and r.events[0].kv.mod_revision < self.events[-1].kv.mod_revision + (not self.more):
            self.wrong = self.wrong or "revisions that go back, or one in two responses"
        for e in r.events:
            shorten(e.kv)
            shorten(e.prev_kv)
        self.more = r.fragment
        if r.events and r.header.revision < r.events[-1].kv.mod_revision:
            self.wrong = self.wrong or f"events of revision {r.events[-1].kv.mod_revision} under a header of {r.header.revision}"
        self.events.extend(r.events)

    def last_revision(self):
        return self.events[-1].kv.mod_revision if self.events else 0


class Stream:
    """One Watch stream of one target, read by a thread of its own."""

    def __init__(self, t, at, body=None):
        """body: requests that are all there will be, by JSON."""
        self.target, self.at = t, at
        self.requests = queue.SimpleQueue()
        self.changed = threading.Condition()
        self.created, self.canceled, self.progress = [], [], []
        self.watches = {}     # by ID, the present ones and those that compaction has ended
        self.fragment_of = None
        self.wrong = None
        self.closing = False
        self.call = t.watch[at].Watch(iter(self.requests.get, None)) if body is None else t.json.watch[at].Watch(body)
        self.reader = threading.Thread(target=self._read, daemon=True)
        self.reader.start()

    def _read(self):
        try:
            for r in self.call:
                with self.changed:
                    self._take(header_free(r))
                    self.changed.notify_all()
            end = "ended with OK"
        except grpc.RpcError as e:
            end = f"ended with {e.code().name} {e.details()}"
        with self.changed:
            if not self.closing:
                self.wrong = self.wrong or end
            self.changed.notify_all()

    def _take(self, r):
        if self.fragment_of is not None and r.watch_id != self.fragment_of:
            self.wrong = f"a response of watch {r.watch_id} between the fragments of {self.fragment_of}"
        self.fragment_of = r.watch_id if r.fragment else None
        watch = self.watches.get(r.watch_id)
        if r.created:
            told = Told(r)
            self.created.append(told)
            if not r.canceled:
                self.watches[r.watch_id] = told
        elif r.canceled and r.compact_revision and watch:
            watch.lost = r
        elif r.canceled:
            self.canceled.append(r)
            if watch:
                watch.canceled = True
                del self.watches[r.watch_id]
        elif r.watch_id == -1 and not r.events:
            self.progress.append(r)
        elif watch:
            watch.take(r)
        else:
            self.wrong = self.wrong or f"events of watch {r.watch_id}, which there is not"

    def send(self, **request):
        self.requests.put(pb.WatchRequest(**request))

    def wait(self, probe):
        """Whether probe() became true in time."""
        with self.changed:
            return self.changed.wait_for(lambda: self.wrong or probe(), WAIT_S) and not self.wrong

    def half_close(self):
        self.requests.put(None)

    def close(self):
        with self.changed:
            self.closing = True
        self.call.cancel()
        self.requests.put(None)
        self.reader.join(WAIT_S)


class Watch:
    """The same watch of all targets: told[i] is what targets[i] told."""

    def __init__(self, stream, request, told, compacted):
        self.stream, self.request, self.told, self.compacted = stream, request, told, compacted
        self.id = told[0].created.watch_id
        self.dead = False

    def key(self):
        return self.request.key or b"\0"

    def awaited(self, put, deleted):
        """The revision of the last event that it must see of a put and a deletion of its key; 0 when it sees neither."""
        no_put, no_delete = 0 in self.request.filters, 1 in self.request.filters
        at = put if no_delete else deleted
        return 0 if no_put and no_delete or at < self.request.start_revision else at

    def is_told_all(self, i, put, deleted):
        """Of targets[i], once its key was put and deleted."""
        told = self.told[i]
        if told.lost:
            return True
        # One key may have been left alone since (see known.py), and filters may hide that this watch goes on.
        doomed = 0 < self.request.start_revision < self.compacted and (i == 0 or self.request.range_end)
        return not doomed and told.last_revision() >= self.awaited(put, deleted)

    def __str__(self):
        return f"watch {self.id}: " + str(self.request).replace("\n", " ")


class Streams:
    """The same stream of all targets."""

    def __init__(self, targets, rng, body=None):
        places = [rng.randrange(len(t.channels)) for t in targets]
        if body is not None:
            for t, at in zip(targets, places):
                t.catch_up(at)
        self.streams = [Stream(t, at, body) for t, at in zip(targets, places)]
        self.half_closed = body is not None
        self.watches = []     # in the order of their creation, without those that were refused
        self.spent = set()    # IDs not to be asked for again: etcd may still have events of their last watch, and gives them to the next

    def live(self):
        return [w for w in self.watches if not w.dead]

    def all_send(self, **request):
        for s in self.streams:
            s.send(**request)

    def catch_up(self):
        for s in self.streams:
            s.target.catch_up(s.at)


class Parted(Exception):
    """The targets are not alike any more; the rest of the cell's life is left out."""


class Round:
    def __init__(self, part, targets, maker, where):
        self.part, self.report, self.targets, self.maker, self.where = part, part.report, targets, maker, where
        self.rng = maker.rng
        self.streams = [Streams(targets, self.rng) for _ in range(self.rng.randrange(1, 5))]
        self.used_ids = 9000

    def close(self):
        for group in self.streams:
            for s in group.streams:
                s.close()

    def differ(self, t, asked, wanted, got, kind=None):
        self.report.differ("Watch", self.where, t, asked, wanted, got, kind)

    # ---- answers ----

    def check_streams(self):
        for group in self.streams:
            for s in group.streams:
                if s.wrong:
                    self.differ(s.target, "a stream", "is well", s.wrong, s.wrong.split(" watch ")[0])
                    raise Parted

    def answers(self, group, kind, n):
        """The last n answers of a kind from each target, once all are there."""
        for s in group.streams:
            have = len(getattr(s, kind))
            if not s.wait(lambda s=s: len(getattr(s, kind)) >= n):
                self.check_streams()
                self.differ(s.target, f"{n} answers ({kind})", "came", f"{have} within {WAIT_S} s", kind)
                raise Parted
        return [getattr(s, kind)[-1] for s in group.streams]

    def compare_answers(self, group, asked, answers):
        for s, a in zip(group.streams[1:], answers[1:]):
            if a != answers[0] and not self.report.explained("answer", asked, answers[0], a):
                self.differ(s.target, asked, answers[0], a, "answer")

    # ---- what is done ----

    def make_create(self, group):
        rng, m = self.rng, self.maker
        r = pb.WatchCreateRequest()
        r.key, r.range_end = m.key_range()
        if rng.random() < 0.1:
            r.key, r.range_end = b"", rng.choice([b"", b"\0", b"b"])
        kind = rng.randrange(20)
        if kind < 6:
            r.start_revision = max(m.compacted, m.revision - rng.randrange(60))
        elif kind < 7:
            r.start_revision = max(0, m.revision - rng.randrange(60))
        elif kind < 9:
            r.start_revision = max(0, m.compacted + rng.randrange(-3, 4))
        elif kind < 11:
            r.start_revision = m.compacted
        elif kind < 13:
            r.start_revision = m.revision + rng.randrange(6)
        elif kind < 14:
            r.start_revision = rng.choice([1, steps.INT64_MAX, 2**40, steps.INT64_MIN, -1])
            if r.start_revision == -1 and m.compacted == 0:
                r.start_revision = -2  # at -1 etcd would lose the history of whichever watches are read with it (known.py)
        r.prev_kv = rng.random() < 0.4
        r.fragment = rng.random() < 0.3
        r.progress_notify = rng.random() < 0.2
        if rng.random() < 0.3:
            r.filters.extend(rng.choices([0, 1, 7], [5, 5, 1], k=rng.randrange(1, 4)))
        if r.start_revision < 0:
            self.used_ids += 1  # in stock etcd such a watch takes an ID: one that no other will get
            r.watch_id = self.used_ids
        elif rng.random() < 0.3:
            r.watch_id = rng.choice(IDS)
            if group and r.watch_id in group.spent:
                r.watch_id = 0
        return r

    def create(self, group):
        requests = [self.make_create(group) for _ in range(self.rng.randrange(1, 9))]
        group.catch_up()
        have = len(group.streams[0].created)
        for r in requests:
            group.all_send(create_request=r)
        self.take_created(group, requests, have)

    def create_by_json(self):
        """A stream whose body creates watches, and that goes on without another request; so none may need to be ended by one."""
        requests = [self.make_create(None) for _ in range(self.rng.randrange(1, 6))]
        for r in requests:
            r.watch_id, r.start_revision = 0, max(0, r.start_revision)
        # Once a Go server answers, what it has not read yet of a body is lost: its decoder has to have all of it at the first reading.
        while len(requests) > 1 and sum(len(str(r)) + len(r.key) + len(r.range_end) + 60 for r in requests) > BODY_MAX:
            requests.pop()
        group = Streams(self.targets, self.rng, [pb.WatchRequest(create_request=r) for r in requests])
        self.streams.append(group)
        self.take_created(group, requests, 0)

    def take_created(self, group, requests, have):
        for i, r in enumerate(requests):
            self.answers(group, "created", have + i + 1)
            told = [s.created[have + i] for s in group.streams]
            self.report.count("Watch")
            self.compare_answers(group, r, [t.created for t in told])
            accepted = [not t.created.canceled for t in told]
            if all(accepted):
                group.watches.append(Watch(group, r, told, self.maker.compacted))
            elif any(accepted):
                self.end_everywhere(group, r.watch_id)

    def end_everywhere(self, group, watch_id):
        """Of a watch that only some have: whatever has its ID ends, so that no more comes of it (see known.py)."""
        group.spent.add(watch_id)
        for s in group.streams:
            if watch_id in s.watches:
                n = len(s.canceled)
                s.send(cancel_request={"watch_id": watch_id})
                s.wait(lambda s=s, n=n: len(s.canceled) > n)
                s.canceled.pop()
        for w in group.live():
            w.dead = w.id == watch_id

    def cancel(self, group):
        present = group.live()
        kind = self.rng.randrange(10)
        asked = self.rng.choice(present).id if present and kind < 8 else self.rng.choice([0, 4, 999, -1, 1, 77, steps.INT64_MAX])
        if self.rng.random() < 0.3:
            self.quiesce()  # nothing is on its way any more: the ID may be taken again
        else:
            group.spent.add(asked)
        there = [asked in s.watches for s in group.streams]
        group.catch_up()
        n = len(group.streams[0].canceled)
        group.all_send(cancel_request={"watch_id": asked})
        if there[0]:
            self.compare_answers(group, f"cancel {asked}", self.answers(group, "canceled", n + 1))
        for w in present:
            w.dead = w.dead or w.id == asked
        self.progress(group)  # who answered what there is not has done so before this
        for s in group.streams:
            if len(s.canceled) != n + there[0]:
                self.differ(s.target, f"cancel {asked}", f"{int(there[0])} answers", f"{len(s.canceled) - n}", "cancel")
                raise Parted

    def progress(self, group):
        group.catch_up()
        n = len(group.streams[0].progress)
        group.all_send(progress_request={})
        self.compare_answers(group, "progress", self.answers(group, "progress", n + 1))

    def nothing(self, group):
        group.all_send()
        self.progress(group)

    def half_close(self, group):
        for s in group.streams:
            s.half_close()
        group.half_closed = True

    def write(self):
        method = self.rng.choices(["Put", "DeleteRange", "Txn", "LeaseGrant", "LeaseRevoke"], [6, 3, 6, 2, 2])[0]
        self.step(self.maker.step(method))

    def large(self):
        """One revision with more than a response should hold, for those who want to see what was before: fragments, where allowed."""
        keys = self.rng.sample(steps.KEYS, self.rng.randrange(2, 5))
        delete = pb.TxnRequest()
        for i, key in enumerate(keys):
            self.step(steps.Step("Put", [pb.PutRequest(key=key, value=bytes([i]) * 700_000)]))
            delete.success.add().request_delete_range.key = key
        self.step(steps.Step("Txn", [delete]))

    def step(self, step):
        if not kv.one_step(step, self.targets, self.maker, self.part.writes, self.where):
            raise Parted

    def compact(self):
        """Physically at once: etcd tells a watch of a compaction by what is left of history."""
        self.quiesce()
        m = self.maker
        at = m.revision - self.rng.choice([0, 0, 1, 2, 5, 20, 50])
        if at > m.compacted:
            self.step(steps.Step("Compact", [pb.CompactionRequest(revision=at, physical=True)]))

    # ---- quiescence ----

    def markers(self):
        """Puts and deletes what is watched, until the watches that start soon have started. Returns both revisions."""
        keys = sorted({w.key() for g in self.streams for w in g.live()} | {MARKER})
        soon = max([w.request.start_revision for g in self.streams for w in g.live()
                    if w.request.start_revision < self.maker.revision + 20] + [0])
        while True:
            put, delete = pb.TxnRequest(), pb.TxnRequest()
            for k in keys:
                put.success.add().request_put.CopyFrom(pb.PutRequest(key=k, value=MARKER))
                delete.success.add().request_delete_range.key = k
            self.step(steps.Step("Txn", [put]))
            at = self.maker.revision
            self.step(steps.Step("Txn", [delete]))
            if at >= soon:
                return at, self.maker.revision

    def quiesce(self):
        at = self.markers()
        for group in self.streams:
            for w in group.live():
                for i, s in enumerate(group.streams):
                    if not s.wait(lambda i=i, w=w: w.is_told_all(i, *at)):
                        self.check_streams()
                        self.differ(s.target, w, f"told all up to {at}", f"{w.told[i].last_revision()} within {WAIT_S} s", "late")
                        raise Parted
        self.check_streams()
        for group in self.streams:
            for w in group.live():
                self.compare_watch(group, w)

    def compare_watch(self, group, w):
        wanted = w.told[0]
        for s, got in zip(group.streams[1:], w.told[1:]):
            if got.wrong:
                self.differ(s.target, w, wanted.wrong or "is well", got.wrong, got.wrong.split()[0])
            elif bool(wanted.lost) != bool(got.lost):
                if not self.report.explained("lost", w, wanted, got):
                    self.differ(s.target, w, wanted.lost or "goes on", got.lost or "goes on", "lost")
                w.dead = True
            elif wanted.lost and not self.report.explained("lost", w, wanted, got):
                self.differ(s.target, w, wanted.lost, got.lost, "reason")
            elif wanted.events != got.events and not self.report.explained("events", w, wanted, got):
                self.differ(s.target, w, *first_difference(wanted.events, got.events), "events")
        self.part.events += len(wanted.events)
        if wanted.lost or w.dead:
            w.dead = True
            return
        for told in w.told:
            del told.events[:-1]  # the last one is still looked at, for the order

    # ---- all ----

    def run(self):
        try:
            for _ in range(self.rng.randrange(15, 40)):
                open_ones = [g for g in self.streams if not g.half_closed]
                group = self.rng.choice(open_ones) if open_ones else None
                kind = self.rng.randrange(100)
                if group and kind < 30:
                    self.create(group)
                elif group and kind < 37:
                    self.cancel(group)
                elif group and kind < 42:
                    self.progress(group)
                elif group and kind < 43:
                    self.nothing(group)
                elif group and kind < 45:
                    self.half_close(group)
                elif kind < 48:
                    self.large()
                elif kind < 51 and len(self.streams) < 8:
                    self.create_by_json()
                elif kind < 54:
                    self.compact()
                else:
                    self.write()
            self.quiesce()
            for g in self.streams:
                for s in g.streams:
                    if s.fragment_of is not None:
                        self.differ(s.target, "the last of several fragments", "came", "did not", "fragment")
        finally:
            self.close()


def first_difference(a, b):
    for i, (x, y) in enumerate(zip(a, b)):
        if x != y:
            return f"event {i} of {len(a)}: " + str(x)[:1500].replace("\n", " "), f"event {i} of {len(b)}: " + str(y)[:1500].replace("\n", " ")
    return [f"{len(e)} events, then " + str(e[min(len(a), len(b)):][:1])[:1500].replace("\n", " ") for e in (a, b)]


class Part:
    def __init__(self, options):
        self.options = options
        self.report = Report("Watch", ["Watch"], known.WATCH)
        self.writes = Report("writes under watch", [], known.KV)
        self.events = 0

    def cell(self, seed, rounds):
        targets = target.open_all(self.options.server)
        maker = steps.Maker(pb, seed)
        try:
            for i in range(rounds):
                Round(self, targets, maker, f"seed {seed} round {i + 1}").run()
        except Parted:
            print(f"seed {seed}: the targets part in round {i + 1}; the rest of this seed is left out", flush=True)
        finally:
            target.close_all(targets)


def run(options):
    part = Part(options)
    rounds = options.ops or (ROUNDS_PER_CELL * (16 if options.full else 2))
    per_cell = rounds if options.one_seed else ROUNDS_PER_CELL
    seeds = range(options.seed, options.seed + -(-rounds // per_cell))
    for seed in seeds:
        part.cell(seed, per_cell)
        if part.report.had_enough():
            break
    passed, failed = part.report.finish(f"seeds {seeds[0]}..{seeds[-1]}, {part.events} events", least=not options.ops)
    _, failed_writes = part.writes.finish("their answers", least=False)
    return passed, failed + failed_writes
