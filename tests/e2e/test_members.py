"""Members come and go: stock etcdctl, our own command line, real processes. The procedure of docs/operations.md, "Replacing a replica", is here as it is there."""
import json
import pathlib
import shutil
import subprocess
import time

import cells
from runner import skip, test


def ctl(cell, *args, endpoints=None):
    return cells.etcdctl(endpoints or ",".join(r.endpoint for r in cell.running()), *args)


def insist(p):
    assert p.returncode == 0, f"{p.args}: {p.stdout}{p.stderr}"
    return p.stdout


def refused(p, text):
    assert p.returncode != 0 and text in p.stderr, f"{p.args}: wanted '{text}', got {p.returncode} {p.stdout}{p.stderr}"


def own(server, cell, *args):
    """Our own command line, which lies beside the server."""
    tool = pathlib.Path(server).resolve().parent.parent / "client-c" / "holdfastctl"
    return subprocess.run([tool, "--endpoints", ",".join(r.endpoint for r in cell.running()), *map(str, args)], text=True, capture_output=True, timeout=30, check=False)


def members(cell):
    """By peer URL."""
    found = json.loads(insist(ctl(cell, "member", "list", "-w", "json")))["members"]
    return {m["peerURLs"][0]: m for m in found}


def id_of(cell, r):
    return f"{members(cell)[r.peer_url]['ID']:x}"


def is_learner(cell, r):
    return members(cell)[r.peer_url].get("isLearner", False)


def newcomer(cell, number):
    return cells.Replica(cell, number)


def start_joining(cell, r, others, learner=False):
    cluster = ",".join(f"{x.name}={x.peer_url}" for x in [*others, r])
    with open(r.log_path, "ab") as log:
        r.process = cells.spawn([cell.server, "--name", r.name, "--data-dir", r.data_dir, "--listen-client-urls", r.url, "--advertise-client-urls", r.url,
                                 "--listen-peer-urls", r.peer_url, "--initial-advertise-peer-urls", r.peer_url, "--initial-cluster", cluster,
                                 "--initial-cluster-state", "existing", *cell.flags], stdout=log, stderr=log, stdin=subprocess.DEVNULL)
    if not learner:
        cell.replicas.append(r)


def promote(cell, r):
    """As soon as the cell finds that it has caught up."""
    mid = id_of(cell, r)
    cells.wait_for(f"{r.name} has caught up", lambda: ctl(cell, "member", "promote", mid).returncode == 0, 30, step=0.2)
    cell.replicas.append(r)


def removed_stops(r):
    assert r.process.wait(15) == 1
    assert "this member was removed from the cell" in r.log_path.read_text(), r.log_tail()


def same_hash(cell):
    def probe():
        seen = [cells.http(r.url + "/v3/kv/range", {"key": "AA==", "range_end": "AA==", "serializable": True}) for r in cell.running()]
        return len({json.dumps(json.loads(text).get("kvs")) for _, text in seen}) == 1 and all(status == 200 for status, _ in seen)
    cells.wait_for("all replicas agree", probe)


@test(own=True, timeout=120)
def a_dead_replica_of_five_is_replaced(server):
    with cells.Cell(server, 5, flags=["--snapshot-count", "100"]) as cell:
        for i in range(260):  # more than the log keeps: the new one needs a snapshot
            assert cells.http(cell.replicas[i % 5].url + "/v3/kv/put", {"key": "aw==", "value": "dg=="})[0] == 200
        dead = cell.replicas[1]
        for r in cell.replicas:  # and more than their memory does
            r.kill()
        for r in cell.replicas:
            if r is not dead:
                r.start()
        cell.wait_ready(cell.running())
        others = [r for r in cell.replicas if r is not dead]
        new = newcomer(cell, 6)
        insist(ctl(cell, "member", "add", new.name, f"--peer-urls={new.peer_url}", "--learner"))
        refused(ctl(cell, "member", "promote", id_of(cell, new)), "can only promote a learner member which is in sync with leader")
        start_joining(cell, new, others, learner=True)
        insist(ctl(cell, "member", "remove", id_of(cell, dead)))
        promote(cell, new)
        assert not is_learner(cell, new)
        assert len(members(cell)) == 5
        assert "\nholdfast_snapshots_installed_total 1\n" in cells.http(new.url + "/metrics")[1]
        insist(ctl(cell, "put", "after", "it", endpoints=new.endpoint))
        same_hash(cell)
        # The one that was replaced comes back: it is told, and stops.
        cell.replicas.remove(dead)
        start_joining(cell, dead, others)
        cell.replicas.remove(dead)
        removed_stops(dead)
        # Its quorum is that of five again: two more may die.
        for r in others[:2]:
            r.kill()
        cells.wait_for("it goes on with three", lambda: ctl(cell, "put", "still", "here").returncode == 0, 20)


@test(own=True)
def what_a_learner_serves_and_a_removed_member_leaves(server):
    with cells.Cell(server, 3) as cell:
        insist(ctl(cell, "put", "k", "v"))
        new = newcomer(cell, 4)
        insist(ctl(cell, "member", "add", new.name, f"--peer-urls={new.peer_url}", "--learner"))
        refused(ctl(cell, "member", "add", "x", "--peer-urls=http://127.0.0.1:9", "--learner"), "too many learner members in cluster")
        refused(ctl(cell, "member", "add", "x", f"--peer-urls={cell.replicas[0].peer_url}"), "Peer URLs already exists")
        refused(ctl(cell, "member", "remove", "1234"), "member not found")
        refused(ctl(cell, "member", "promote", id_of(cell, cell.replicas[0])), "can only promote a learner member")
        start_joining(cell, new, cell.replicas[:], learner=True)
        cells.wait_for("it has what was written", lambda: "v" in ctl(cell, "get", "k", "--consistency=s", endpoints=new.endpoint).stdout)
        cells.wait_for("it reaches the cell", lambda: cells.http(new.url + "/health", timeout=30)[0] == 200)
        assert cells.http(new.url + "/readyz")[1].count("[-]") == 1 and cells.http(new.url + "/readyz/non_learner")[0] == 503
        refused(ctl(cell, "get", "k", endpoints=new.endpoint), "rpc not supported for learner")
        refused(ctl(cell, "put", "k", "w", endpoints=new.endpoint), "rpc not supported for learner")
        assert "true" in insist(ctl(cell, "endpoint", "status", endpoints=new.endpoint))
        promote(cell, new)
        insist(ctl(cell, "put", "k", "w", endpoints=new.endpoint))
        # It may lead, and be removed while it does.
        leader = cell.leader()
        insist(ctl(cell, "move-leader", id_of(cell, new), endpoints=leader.endpoint))
        assert cell.leader() is new
        old = id_of(cell, new)
        insist(ctl(cell, "member", "remove", old))
        removed_stops(new)
        # Started again it stops again; its address is free for another.
        new.process = None
        cell.replicas.remove(new)
        start_joining(cell, new, cell.replicas[:])
        removed_stops(new)
        cell.replicas.remove(new)
        shutil.rmtree(new.data_dir)
        insist(ctl(cell, "member", "add", "again", f"--peer-urls={new.peer_url}"))
        start_joining(cell, new, cell.replicas[:])
        cell.wait_ready()
        assert id_of(cell, new) != old
        insist(ctl(cell, "put", "k", "x", endpoints=new.endpoint))
        same_hash(cell)


def until_done(cell, what, done, *args):
    """Also when the answer to the first try was lost."""
    def probe():
        p = ctl(cell, "member", *args)
        return p.returncode == 0 or done in p.stderr
    cells.wait_for(what, probe, 30, step=0.2)


def replace_at_once(cell, r):
    """Another member at its address, once it has stopped."""
    until_done(cell, f"{r.name} is removed", "member not found", "remove", id_of(cell, r))
    removed_stops(r)
    cell.replicas.remove(r)
    shutil.rmtree(r.data_dir)
    until_done(cell, f"{r.name} is added", "Peer URLs already exists", "add", r.name, f"--peer-urls={r.peer_url}")
    start_joining(cell, r, cell.replicas[:])
    cell.wait_ready()


@test(own=True, full=True, timeout=150)
def who_sleeps_until_all_have_been_replaced_is_told_by_those_at_their_addresses(server):
    with cells.Cell(server, 3) as cell:
        first, second, asleep = cell.replicas
        asleep.pause()
        cell.replicas.remove(asleep)
        until_done(cell, "who sleeps is removed", "member not found", "remove", id_of(cell, asleep))
        new = newcomer(cell, 4)
        until_done(cell, "another is added", "Peer URLs already exists", "add", new.name, f"--peer-urls={new.peer_url}")
        start_joining(cell, new, [first, second])
        cell.wait_ready()
        replace_at_once(cell, first)
        replace_at_once(cell, second)
        asleep.resume()
        removed_stops(asleep)
        assert len(members(cell)) == 3


@test(own=True)
def a_wiped_member_is_refused(server):
    with cells.Cell(server, 3) as cell:
        r = cell.replicas[2]
        r.kill()
        shutil.rmtree(r.data_dir)
        r.start()  # as it was started the first time
        assert r.process.wait(20) == 1
        assert "another data directory" in r.log_tail(), r.log_tail()
        shutil.rmtree(r.data_dir)
        cell.replicas.remove(r)
        start_joining(cell, r, cell.replicas[:])  # as one that joins
        assert r.process.wait(20) == 1
        assert "another data directory" in r.log_tail(), r.log_tail()
        insist(ctl(cell, "put", "k", "v"))


@test(own=True)
def a_wrong_address_does_not_wedge_a_cell_of_one(server):
    with cells.Cell(server, 1) as cell:
        insist(ctl(cell, "member", "add", "x", "--peer-urls=http://127.0.0.1:9"))
        insist(ctl(cell, "put", "k", "v"))
        wrong = f"{members(cell)['http://127.0.0.1:9']['ID']:x}"
        second = newcomer(cell, 2)
        insist(ctl(cell, "member", "update", wrong, f"--peer-urls={second.peer_url}"))
        start_joining(cell, second, cell.replicas[:])
        cell.wait_ready()
        # It is counted once it has caught up: it may lead then, and one of the two alone is no quorum.
        insist(ctl(cell, "put", "k", "w", endpoints=second.endpoint))
        cells.wait_for("it is counted", lambda: ctl(cell, "move-leader", id_of(cell, second), endpoints=cell.leader().endpoint).returncode == 0, 20, step=0.2)
        assert cell.leader() is second
        second.kill()
        first = cell.replicas[0]
        assert ctl(cell, "--command-timeout=2s", "put", "k", "alone", endpoints=first.endpoint).returncode != 0, "one of two has written"
        second.start()
        cell.wait_ready()
        insist(ctl(cell, "put", "k", "x", endpoints=first.endpoint))


@test(own=True)
def a_change_that_would_leave_no_quorum_is_refused_with_the_reason(server):
    with cells.Cell(server, 3) as cell:
        ids = {r.name: id_of(cell, r) for r in cell.replicas}
        down = next(r for r in cell.replicas if r is not cell.leader())
        down.kill()
        cells.wait_for("the others have a leader", lambda: ctl(cell, "put", "k", "v").returncode == 0)
        time.sleep(1.2)  # longer than the election timeout within which it counts as heard
        alive = next(r for r in cell.running() if r is not cell.leader())
        p = own(server, cell, "member", "remove", ids[alive.name])
        assert p.returncode != 0 and "unhealthy cluster" in p.stderr and "2 voters, 1 heard, 2 needed" in p.stderr, p.stderr
        # A new member is no risk, since it is not counted before it has caught up; nor is it to remove the dead.
        new = newcomer(cell, 4)
        out = own(server, cell, "member", "add", new.peer_url)
        assert out.returncode == 0 and "--initial-cluster-state existing" in out.stdout, out.stdout + out.stderr
        assert own(server, cell, "member", "remove", ids[down.name]).returncode == 0
        insist(ctl(cell, "put", "k", "w"))


# ---- the same questions to stock etcd ------------------------------------------------------------------------------------------

def answers(server):
    """What a cell of three says to each of these, in words that do not depend on IDs and ports."""
    with cells.Cell(server, 3) as cell:
        leader = cell.leader()
        follower = next(r for r in cell.replicas if r is not leader)
        ids = {r: id_of(cell, r) for r in cell.replicas}
        taken = cell.replicas[0].peer_url
        said = []

        def ask(what, *args):
            p = ctl(cell, *args)
            said.append((what, p.returncode != 0, p.stderr.strip().splitlines()[-1] if p.returncode else ""))

        def post(what, r, path, body):
            status, text = cells.http(r.url + path, body)
            said.append((what, status, json.loads(text).get("error", "")))

        ask("remove who is none", "member", "remove", "1234")
        ask("promote who is none", "member", "promote", "1234")
        ask("promote a voter", "member", "promote", ids[follower])
        post("add nothing", leader, "/v3/cluster/member/add", {"peerURLs": []})
        post("add no URL", leader, "/v3/cluster/member/add", {"peerURLs": ["nonsense"]})
        post("add without a port", leader, "/v3/cluster/member/add", {"peerURLs": ["http://10.0.0.1"]})
        post("add with a path", leader, "/v3/cluster/member/add", {"peerURLs": ["http://10.0.0.1:1/x"]})
        ask("update who is none", "member", "update", "1234", "--peer-urls=http://127.0.0.1:9")
        ask("update to an address that is taken", "member", "update", ids[leader], f"--peer-urls={follower.peer_url}")
        ask("hand over to nobody", "move-leader", "1234")
        post("hand over, asked of a follower", follower, "/v3/maintenance/transfer-leadership", {"targetID": str(int(ids[follower], 16))})
        post("hand over to nobody, by JSON", leader, "/v3/maintenance/transfer-leadership", {"targetID": "4660"})
        post("hand over to itself", leader, "/v3/maintenance/transfer-leadership", {"targetID": str(int(ids[leader], 16))})
        # etcd wants to have been connected to all for five seconds first.
        cells.wait_for("a learner is added", lambda: ctl(cell, "member", "add", "l", "--peer-urls=http://127.0.0.1:9", "--learner").returncode == 0, 20, step=0.5)
        ask("add an address that is taken", "member", "add", "x", f"--peer-urls={taken}")
        ask("add another", "member", "add", "m", "--peer-urls=http://127.0.0.1:10", "--learner")
        learner = f"{members(cell)['http://127.0.0.1:9']['ID']:x}"
        ask("promote it at once", "member", "promote", learner)
        post("hand over to a learner", leader, "/v3/maintenance/transfer-leadership", {"targetID": str(int(learner, 16))})
        ask("remove it", "member", "remove", learner)
        ask("remove it again", "member", "remove", learner)
        post("hand over", leader, "/v3/maintenance/transfer-leadership", {"targetID": str(int(ids[follower], 16))})
        assert cell.leader() is follower
        ask("remove the leader", "member", "remove", ids[follower])
        cells.wait_for("the others go on", lambda: ctl(cell, "put", "k", "v", endpoints=leader.endpoint).returncode == 0)
        return said


@test(own=True)
def refusals_are_those_of_etcd(server):
    stock = shutil.which("etcd")
    if not stock:
        skip("there is no etcd here")
    theirs, ours = answers(stock), answers(server)
    different = [(a, b) for a, b in zip(theirs, ours, strict=True) if a != b]
    assert not different, "\n".join(f"etcd: {a}\nhere: {b}" for a, b in different)
