"""Go's clientv3 and its recipes, as Debian packages them: what Kubernetes-like programs are built of."""
import threading

import cells
from clients import Eye, etcdctl, events_until, go_talk, insist, metric, watch
from guarded import each_way
from runner import is_full, test

BUILD = 240  # seconds; the first test compiles


@test(timeout=BUILD)
def reads_writes_leases_and_errors(server):
    for size in (1, 3):
        with cells.Cell(server, size) as cell:
            with go_talk(cell, "kv") as go:
                go.expect(f"kv fine, {size} members", 30)
                go.wait()


@test(timeout=BUILD)
def software_transactional_memory(server):
    with cells.Cell(server, 3) as cell, go_talk(cell, "stm") as go:
        go.expect("stm fine", 40)


@test(timeout=BUILD)
def watches_of_every_form(server):
    with cells.Cell(server, 1) as cell, go_talk(cell, "forms") as go:
        go.expect("watch fine", 30)


class Writing:
    """Writes p/0, p/1, ... through whichever replica answers, until it is left."""

    def __init__(self, replicas):
        self.written = 0
        self._end = threading.Event()
        self._replicas = replicas
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self):
        eyes = [Eye(r, timeout=3) for r in self._replicas]
        while not self._end.is_set():
            eye = eyes[self.written % len(eyes)]
            insist(lambda eye=eye: eye.put(b"p/%d" % (self.written % 7), b"%d" % self.written), 30)
            self.written += 1
        for eye in eyes:
            eye.channel.close()

    def __enter__(self):
        self._thread.start()
        return self

    def wait_more(self, n):
        goal = self.written + n
        cells.wait_for(f"{n} more writes", lambda: self.written >= goal, 30)

    def __exit__(self, *_):
        self._end.set()
        self._thread.join(40)
        assert not self._thread.is_alive()


@each_way(timeout=BUILD)
def a_watch_resumes_through_deaths_without_a_gap_or_a_double(way):
    """The replica that the client is connected to dies, again and again; what it saw is compared with history."""
    with way.cell() as cell:
        with Eye(cell) as eye:
            first = eye.put(b"p/start")
        with go_talk(cell, "watch", "p/", first) as go:
            go.expect("PUT p/start")
            for turn in range(9 if is_full() else 3):
                victim = cell.leader() if turn == 0 else cell.replicas[turn % 3]
                lives = [r for r in cell.replicas if r is not victim]
                with Writing(lives) as writing:
                    writing.wait_more(30)
                    victim.kill()
                    writing.wait_more(60)
                victim.start()
                cell.wait_ready()
            with Eye(cell) as eye:
                insist(lambda: eye.put(b"p/end"))
                go.expect("PUT p/end", 20)
                with watch(eye, b"p/", range_end=b"p0", start_revision=first) as s:
                    want = [f"PUT {key.decode()} {value.decode()} at {rev}" for rev, _, key, value in events_until(s, b"p/end")]
            got = [line for line in go.lines() if line.startswith("PUT")]
            assert got == want, _difference(got, want)


def _difference(got, want):
    for i, (a, b) in enumerate(zip(got, want)):
        if a != b:
            return f"{len(got)} events, not {len(want)}; number {i} is '{a}', not '{b}' (before it '{want[i - 1]}')"
    return f"{len(got)} events, not {len(want)}"


@each_way(timeout=BUILD)
def a_lease_is_kept_alive_through_the_death_of_the_leader(way):
    with way.cell() as cell, go_talk(cell, "keepalive", 3) as go, go_talk(cell, "session", 3) as session:
        lease = go.expect("lease (.*)")[1]
        go.expect("alive 3")
        other = session.expect("session (.*)")[1]
        cell.leader().kill()
        # The client renews every second: three answers after the death are more than the lease lasts without.
        for _ in range(5):
            go.expect("alive 3")
        live = cell.running()
        assert etcdctl(live, "get", "alive", "--print-value-only") == "yes\n"
        assert session.lines()[1:] == [], "the session is over"
        etcdctl(live, "lease", "revoke", lease)
        go.expect("lost")
        etcdctl(live, "lease", "revoke", other)
        session.expect("done")


@each_way(timeout=BUILD)
def a_mutex_waits_through_the_death_of_the_leader_and_a_compaction(way):
    """The recipe waits by a watch of one key from the revision at which it asked. When it resumes that watch, the revision is compacted."""
    with way.cell() as cell, go_talk(cell, "mutex", "m") as first:
        held = int(first.expect(r"held (\d+)")[1])
        with go_talk(cell, "mutex", "m") as second:
            with Eye(cell.running()[1]) as eye:
                eye.wait_queue(b"m", 2)
                for i in range(5):
                    head = eye.put(b"other", b"%d" % i)
                eye.compact(head)
            for victim in (cell.leader(), *[r for r in cell.replicas if r is not cell.leader()]):
                victim.kill()
                with Eye(cell.running()[0]) as eye:
                    insist(lambda: eye.compact(eye.put(b"other")))
                victim.start()
                cell.wait_ready()
            # When the key has gone by the time it watches again, nobody knows any more what became of it before: etcd's client fails then.
            cells.wait_for("the second watches again", lambda: sum(metric(r, "holdfast_watchers") for r in cell.replicas) == 1, 15)
            assert second.lines() == [], "the second did not wait on"
            first.say("unlock")
            first.expect("released")
            assert int(second.expect(r"held (\d+)", 15)[1]) > held
            second.say("unlock")
            second.expect("released")


@each_way(timeout=BUILD)
def elections_with_proclaim_observe_and_resign(way):
    with way.cell() as cell, go_talk(cell, "observe", "e") as observer:
        observer.expect("observing")
        with go_talk(cell, "elect", "e", "one") as one, go_talk(cell, "elect", "e", "two") as two:
            won = {}
            with Eye(cell) as eye:
                first = eye.wait_queue(b"e", 2)[0].decode()
            # Whoever came first leads.
            leader, other = cells.wait_for("a leader", lambda: (one, two) if one.lines() else (two, one) if two.lines() else None, 10)
            won = leader.expect(r"held (\d+) (\S+)")
            assert won[2] == first and other.lines() == []
            observer.expect(f"leader {first} ")
            leader.say("proclaim again")
            leader.expect("proclaimed")
            observer.expect(f"leader {first} again")
            cell.leader().kill()
            with Eye(cell.running()[0]) as eye:
                insist(lambda: eye.put(b"alive"))
            leader.say("resign")
            next_key = other.expect(r"held (\d+) (\S+)", 15)[2]
            observer.expect(f"leader {next_key} ", 15)
            leader.expect("released", 15)
            other.say("resign")
            other.expect("released", 15)
