"""Python's clients as Debian packages them: python3-etcd3 over gRPC, python3-etcd3gw over JSON."""
import cells
from clients import Eye, etcdctl, insist, python_talk, wait_metric
from guarded import each_way
from runner import test

STORIES = ("kv", "transactions", "leases", "watch", "lock")


def _etcd3(replica, *args):
    return python_talk("etcd3_client.py", replica.client_port, *args)


def _etcd3gw(replica, *args):
    return python_talk("etcd3gw_client.py", replica.client_port, *args)


def _all(cell, client, *stories):
    for i, story in enumerate(stories):
        replica = cell.replicas[i % len(cell.replicas)]
        with client(replica, *story.split()) as py:
            py.expect(f"{story.split()[0]} fine", 30)
            py.wait()


@test()
def etcd3_on_a_cell_of_one(server):
    with cells.Cell(server, 1) as cell:
        _all(cell, _etcd3, *STORIES)


@test()
def etcd3_on_a_cell_of_three(server):
    with cells.Cell(server, 3) as cell:
        _all(cell, _etcd3, *STORIES)


@test()
def etcd3_members_and_status(server):
    with cells.Cell(server, 5) as cell:
        leader = cell.leader()
        with _etcd3(next(r for r in cell.replicas if r is not leader), "members") as py:
            py.expect("members 5 r1 r2 r3 r4 r5")
            py.expect(f"leader {leader.name}")
            py.wait()


@each_way(own=True)
def etcd3_waits_for_its_lock_and_watches_through_the_death_of_the_leader(way):
    """This client knows one replica: it is not the one that dies."""
    with way.cell() as cell:
        leader = cell.leader()
        a, b = [r for r in cell.replicas if r is not leader]
        with Eye(a) as eye:
            first = eye.put(b"p/0", b"0")
            with _etcd3(a, "waiting_lock") as one, _etcd3(b, "follow", "p/", first) as follow, _etcd3(a, "renew", "3") as renew:
                one.expect("held")
                follow.expect("PutEvent p/0 0")
                renew.expect("alive")
                with _etcd3(b, "waiting_lock") as two:
                    two.expect("asking")
                    wait_metric(b, "holdfast_watchers", 2)
                    leader.kill()
                    for i in range(1, 20):
                        insist(lambda i=i: eye.put(b"p/%d" % i, b"%d" % i))
                    for i in range(1, 20):
                        follow.expect(f"PutEvent p/{i} {i} at")
                    # Five answers and a lease would be over without any.
                    for _ in range(6):
                        renew.expect("alive")
                    assert two.unread() == [], "two hold the lock"
                    one.say("release")
                    one.expect("released")
                    two.expect("held")
                    two.say("release")
                    two.expect("released")
                    two.wait()
            assert etcdctl(a, "get", "alive", "--print-value-only") == "yes\n"


@test()
def etcd3gw_on_cells_of_one_and_three(server):
    for size in (1, 3):
        with cells.Cell(server, size) as cell:
            _all(cell, _etcd3gw, "kv", "leases", "lock", "watch 300")


@each_way()
def etcd3gw_watches_through_the_death_of_the_leader(way):
    with way.cell() as cell:
        leader = cell.leader()
        a = next(r for r in cell.replicas if r is not leader)
        with Eye(a) as eye, _etcd3gw(a, "follow", "p/") as follow:
            follow.expect("watching")
            eye.put(b"p/0", b"0")
            follow.expect("PUT p/0 0")
            leader.kill()
            for i in range(1, 20):
                insist(lambda i=i: eye.put(b"p/%d" % i, b"%d" % i))
            for i in range(1, 20):
                follow.expect(f"PUT p/{i} {i} at")
