"""Backups of real cells: saved, looked at, damaged, restored; and what replicas do about alarms."""
import base64
import json
import pathlib
import re
import shutil
import subprocess
import time

import cells
from kit import Client, clients, error_of, grpc, insist, pb, same_everywhere
from runner import test


def holdfastd(server, *args):
    return subprocess.run([str(server), "snapshot", *map(str, args)], text=True, capture_output=True, timeout=60, check=False)


def save(client, path):
    """As a client does that knows nothing of us: blobs one after the other. Returns how many bytes."""
    left = None
    with open(path, "wb") as f:
        for m in client.maintenance.Snapshot(pb.SnapshotRequest(), timeout=30):
            f.write(m.blob)
            assert left is None or m.remaining_bytes == left - len(m.blob), (left, m.remaining_bytes, len(m.blob))
            left = m.remaining_bytes
    assert left == 0
    return path.stat().st_size


def restore(server, backup, replica, cluster, token="restored"):
    return holdfastd(server, "restore", backup, "--data-dir", replica.data_dir, "--name", replica.name, "--initial-cluster", cluster,
                     "--initial-advertise-peer-urls", replica.peer_url, "--initial-cluster-token", token)


def filled(cell):
    """Keys, a held lock, a lease's key. Returns (token, revision)."""
    with Client(cell.replicas[0]) as c:
        insist(lambda: c.put(b"k000", b"v" * 2000))
        c.put_many((b"k%03d" % i, b"v" * 2000) for i in range(1, 300))
        lease = c.grant(600)
        held = c.take_lock(b"l", lease)
        c.put(b"leased", b"x", lease=lease)
        return held.fencing_token, c.put(b"last", b"x").header.revision


@test(own=True, timeout=120)
def a_backup_of_a_cell_becomes_a_new_cell(server):
    with cells.Cell(server, 3) as old:
        token, revision = filled(old)
        backup = old.dir / "backup"
        with Client(old.replicas[1]) as c:
            size = save(c, backup)
        assert size % 512 == 32, size  # what etcdctl looks at
        told = holdfastd(server, "status", backup, "-w", "json")
        assert told.returncode == 0, told.stderr
        told = json.loads(told.stdout)
        assert (told["revision"], told["totalKey"], told["leases"], told["totalSize"]) == (revision, 303, 1, size), told
        tokens = [token]
        for _ in range(2):  # twice from the same file: tokens rise from cell to cell
            with cells.Cell(server, 3, start=False) as new:
                cluster = ",".join(f"{r.name}={r.peer_url}" for r in new.replicas)
                for r in new.replicas:
                    done = restore(server, backup, r, cluster)
                    assert done.returncode == 0, done.stderr
                    time.sleep(0.4)  # the members restore at different moments, and must hold the same all the same
                new.flags = ["--corrupt-check-time", "500ms"]
                new.start()
                with clients(new) as cs:
                    reply = cs[0].kv.Range(pb.RangeRequest(key=b"\0", range_end=b"\0", keys_only=True), timeout=10)
                    assert reply.count == 301 and all(kv.key != b"leased" for kv in reply.kvs), reply.count
                    assert reply.header.revision > revision << 8
                    lease = cs[1].grant(600)
                    tokens.append(cs[1].take_lock(b"l", lease).fencing_token)
                    assert not list(cs[2].maintenance.Alarm(pb.AlarmRequest(), timeout=10).alarms)
                    hashes = {c.maintenance.HashKV(pb.HashKVRequest(revision=tokens[-1]), timeout=10).hash for c in cs}
                    assert len(hashes) == 1, hashes
                    try:
                        cs[0].kv.Range(pb.RangeRequest(key=b"last", revision=revision), timeout=10)
                        raise AssertionError("history of before is told")
                    except grpc.RpcError as e:
                        assert "compacted" in e.details(), e
                time.sleep(1.5)  # replicas compare their states
                assert all(r.running() for r in new.replicas)
        assert tokens == sorted(set(tokens)), tokens


@test(own=True, timeout=60)
def a_replica_of_the_old_cell_has_no_part_in_the_restored_one(server):
    """Two of three are restored where they were, under their names and addresses; the third one is started with the old data."""
    with cells.Cell(server, 3) as cell, clients(cell) as cs:
        for i in range(20):
            insist(lambda i=i: cs[i % 3].put(b"k%d" % i, b"v"))
        backup = cell.dir / "backup"
        save(cs[0], backup)
        before = insist(lambda: cs[2].put(b"of the old", b"x")).header
        same_everywhere(cell)
        cluster = ",".join(f"{r.name}={r.peer_url}" for r in cell.replicas)
        for r in cell.replicas:
            r.kill()
        restored, old = cell.replicas[:2], cell.replicas[2]
        for r in restored:
            shutil.rmtree(r.data_dir)
            done = restore(server, backup, r, cluster, token="etcd-cluster")
            assert done.returncode == 0, done.stderr
        old.start()
        for r in restored:
            r.start()
        cell.wait_ready(restored)
        after = insist(lambda: cs[1].put(b"of the new", b"x")).header
        assert after.cluster_id != before.cluster_id and after.revision > before.revision << 8, (before, after)
        cells.wait_for("the old one is up", lambda: alive(old))
        assert error_of(cs[2].put, b"k", b"x", timeout=2)[0] in ("UNAVAILABLE", "DEADLINE_EXCEEDED")
        assert cs[2].get(b"of the new", serializable=True) is None and cs[2].get(b"k0", serializable=True) is not None
        assert cs[0].get(b"of the new") is not None and cs[0].get(b"of the old") is None


@test(own=True, timeout=90)
def what_is_no_whole_backup_is_refused(server):
    with cells.Cell(server, 1) as cell:
        filled(cell)
        backup, bad = cell.dir / "backup", cell.dir / "bad"
        with Client(cell.replicas[0]) as c:
            save(c, backup)
        data = backup.read_bytes()

        def refused(content, words):
            bad.write_bytes(content)
            for args in (("status", bad), ("restore", bad, "--data-dir", cell.dir / "new")):
                done = holdfastd(server, *args)
                assert done.returncode == 1 and words in done.stderr, (done.returncode, done.stderr)
                assert len(done.stderr.splitlines()) == 1, done.stderr
                assert not (cell.dir / "new").exists()

        refused(b"", "not a backup")
        refused(b"PNG" * 1000, "not a backup")
        refused(data[:20], "not a backup")
        for cut in (40, 5000, len(data) - 33, len(data) - 1):
            refused(data[:cut], "cut short")
        refused(data + b"x", "behind its end")
        for at in (18, 33, 41, 70000, len(data) - 40, len(data) - 10):
            flipped = bytearray(data)
            flipped[at] ^= 4
            refused(bytes(flipped), "the backup")
        done = holdfastd(server, "status", cell.dir / "nowhere")
        assert done.returncode == 1 and "No such file" in done.stderr
        done = holdfastd(server, "restore", backup, "--data-dir", cell.replicas[0].data_dir)
        assert done.returncode == 1 and "not empty" in done.stderr
        assert holdfastd(server, "restore", "--data-dir", cell.dir / "new").returncode == 2
        assert holdfastd(server, "nonsense").returncode == 2


@test(own=True, timeout=60)
def clients_of_etcd_and_our_own_save_backups(server):
    with cells.Cell(server, 1) as cell:
        filled(cell)
        theirs, ours = cell.dir / "theirs", cell.dir / "ours"
        done = cells.etcdctl(cell.endpoints, "snapshot", "save", theirs)
        assert done.returncode == 0, done.stderr
        assert holdfastd(server, "status", theirs).returncode == 0
        ctl = pathlib.Path(server).resolve().parents[1] / "client-c" / "holdfastctl"
        done = subprocess.run([str(ctl), "--endpoints", cell.endpoints, "snapshot", "save", str(ours)], text=True, capture_output=True, timeout=30, check=False)
        assert done.returncode == 0, done.stderr
        assert holdfastd(server, "status", ours).returncode == 0
        assert not (cell.dir / "ours.part").exists()
        status, text = cells.http(cell.replicas[0].url + "/v3/maintenance/snapshot", {})
        blobs = [base64.b64decode(json.loads(line)["result"]["blob"]) for line in text.splitlines()]
        assert status == 200 and b"".join(blobs).startswith(b"HOLDFAST BACKUP\n")


@test(own=True, timeout=60)
def alarms_by_json(server):
    with cells.Cell(server, 1) as cell:
        def call(method, **body):
            return cells.http(f"{cell.replicas[0].url}/v3/{method}", body)

        key = {"key": base64.b64encode(b"k").decode(), "value": ""}
        assert call("maintenance/alarm") == (200, "{}")
        assert call("maintenance/alarm", action="ACTIVATE", memberID=5, alarm="NOSPACE") == (200, '{"alarms":[{"memberID":"5","alarm":"NOSPACE"}]}')
        assert call("kv/put", **key)[0] == 429
        assert "database space exceeded" in call("kv/put", **key)[1]
        assert call("kv/deleterange", key=key["key"])[0] == 200
        assert cells.http(cell.replicas[0].url + "/health")[0] == 503 and cells.http(cell.replicas[0].url + "/livez")[0] == 200
        assert '"errors":["memberID:5 alarm:NOSPACE "]' in call("maintenance/status")[1]
        assert call("maintenance/alarm", action="ACTIVATE")[0] == 400  # without a type: stock etcd ends itself over it
        cell.replicas[0].kill()
        cell.replicas[0].start()
        cells.wait_for("it serves", lambda: call("maintenance/alarm") == (200, '{"alarms":[{"memberID":"5","alarm":"NOSPACE"}]}')
                       if alive(cell.replicas[0]) else False)
        assert call("maintenance/alarm", action="DEACTIVATE", memberID=5, alarm="NOSPACE")[0] == 200
        assert call("kv/put", **key)[0] == 200
        assert call("maintenance/defragment")[0] == 200
        assert '"hash":' in call("maintenance/hash")[1] and '"hash_revision":' in call("maintenance/hashkv")[1]
        assert "future revision" in call("maintenance/hashkv", revision=1000)[1]
        assert call("maintenance/downgrade", version="3.4.0")[0] in (400, 412)
        assert "wrong downgrade target version format" in call("maintenance/downgrade", version="x")[1]
        assert "no inflight downgrade" in call("maintenance/downgrade", action="CANCEL")[1]


def alive(r):
    try:
        return cells.http(r.url + "/livez", timeout=1)[0] == 200
    except OSError:
        return False


@test(own=True, timeout=60)
def over_the_quota_the_alarm_comes_and_goes_by_itself(server):
    with cells.Cell(server, 3, flags=["--quota-backend-bytes", "2000000"]) as cell, clients(cell) as cs:
        lease = cs[0].grant(600)
        e = None
        for i in range(300):
            try:
                cs[0].put(b"k%03d" % i, b"v" * 10000)
            except grpc.RpcError as refusal:
                e = refusal
                break
        assert e and e.details() == "etcdserver: mvcc: database space exceeded", e
        cells.wait_for("the alarm is up", lambda: [a.alarm for a in cs[1].maintenance.Alarm(pb.AlarmRequest(), timeout=5).alarms] == [1])
        assert "four fifths" in cell.leader().log_path.read_text()

        def near():
            return re.search(r"^holdfast_quota_near (\d)$", cells.http(cell.leader().url + "/metrics")[1], re.M)[1]
        assert near() == "1"
        cs[2].lease.LeaseRevoke(pb.LeaseRevokeRequest(ID=lease), timeout=5)
        cs[2].kv.DeleteRange(pb.DeleteRangeRequest(key=b"k", range_end=b"l"), timeout=5)
        insist(lambda: cs[1].put(b"again", b"x"))
        cells.wait_for("the alarm is gone", lambda: not cs[1].maintenance.Alarm(pb.AlarmRequest(), timeout=5).alarms)
        cells.wait_for("and the warning", lambda: near() == "0")
