"""npm's etcd3: the client that programs in Node use."""
import cells
from clients import Eye, etcdctl, insist, node_talk
from guarded import each_way
from runner import test

INSTALL = 200  # seconds; the first test installs npm's packages


def node(target, *args):
    return node_talk(target, "client.js", *args)


@test(timeout=INSTALL)
def reads_writes_transactions_and_leases(server):
    for size in (1, 3):
        with cells.Cell(server, size) as cell, node(cell, "kv") as js:
            js.expect("kv fine", 20)
            js.wait()


@test(timeout=INSTALL)
def software_transactional_memory(server):
    with cells.Cell(server, 3) as cell, node(cell, "stm") as js:
        js.expect("stm fine", 40)


@test(timeout=INSTALL)
def lock(server):
    with cells.Cell(server, 3) as cell, node(cell, "lock") as js:
        js.expect("lock fine", 20)


@each_way(timeout=INSTALL)
def a_watch_resumes_through_a_death_and_is_cancelled(way):
    # A replica that was restarted has forgotten simple tokens, and this client's watches do not log in again.
    with way.cell(signed=True) as cell, Eye(cell.replicas[2]) as eye:
        # The first host is the one that is connected to at first or not: every replica dies in turn.
        first = eye.put(b"w/0", b"0")
        with node(cell, "watch", "w/", first) as js:
            js.expect("watching")
            js.expect(f"PUT w/0 0 at {first}")
            eye.put(b"w/0", b"1")
            js.expect("PUT w/0 1 at .* was 0")
            eye.delete(b"w/0")
            js.expect("DELETE w/0 at ")
            n = 1
            for victim in cell.replicas[:2] + [cell.leader()]:
                victim.kill()
                with Eye(cell.running()[0]) as other:
                    for _ in range(5):
                        insist(lambda n=n, other=other: other.put(b"w/%d" % n, b"x"))
                        n += 1
                victim.start()
                cell.wait_ready()
            with Eye(cell) as other:
                insist(lambda: other.put(b"w/end", b"x"))
            js.expect("PUT w/end", 20)
            # A put whose answer was lost may have been made twice: each version is told once, and none is left out.
            told = [line.split() for line in js.lines() if line.startswith("PUT w/") and not line.startswith("PUT w/0 ")]
            revisions = [int(t[4]) for t in told]
            assert revisions == sorted(set(revisions)), f"told twice or out of order: {told}"
            assert sorted({int(t[1][2:]) for t in told[:-1]}) == list(range(1, n)), f"left out: {told}"
            js.say("cancel")
            js.expect("cancelled")


@each_way(timeout=INSTALL)
def a_lease_is_kept_alive_through_the_death_of_the_leader(way):
    with way.cell() as cell, node(cell, "lease", 3) as js:
        js.expect("^lease")
        js.expect("alive 3")
        cell.leader().kill()
        for _ in range(5):
            js.expect("alive 3")
        assert etcdctl(cell.running(), "get", "alive", "--print-value-only") == "yes\n"
        assert not [line for line in js.lines() if line.startswith("lost")]
        lease = etcdctl(cell.running(), "lease", "list").split()[-1]
        etcdctl(cell.running(), "lease", "revoke", lease)
        js.expect("lost")


@each_way(timeout=INSTALL)
def election_with_proclaim_observe_and_resign(way):
    with way.cell() as cell, node(cell, "observe", "e") as observer:
        observer.expect("observing")
        with node(cell, "elect", "e", "one") as one:
            one.expect("held")
            observer.expect("leader one")
            one.say("proclaim again")
            one.expect("proclaimed")
            observer.expect("leader again")
            with node(cell, "elect", "e", "two") as two:
                with Eye(cell.replicas[0]) as eye:
                    eye.wait_queue(b"election/e", 2)
                cell.leader().kill()
                with Eye(cell.running()[0]) as eye:
                    insist(lambda: eye.put(b"alive"))
                assert two.lines() == [], "both lead"
                one.say("resign")
                one.expect("released", 15)
                two.expect("held", 15)
                observer.expect("leader two", 15)
                two.say("resign")
                two.expect("released", 15)
                observer.expect("leader undefined", 15)
