"""Users, roles and permissions in cells of three: what must not be got round, and what goes on through restarts, snapshots and a change of leader."""
import base64
import json
import pathlib
import signal
import subprocess
import tempfile
import time
import types

import cells
import grpc
from kit import electionpb, error_of, lockpb, pb, v1
from etcd import auth_pb2, rpc_pb2_grpc, v3election_pb2_grpc, v3lock_pb2_grpc
from holdfast import v1_pb2_grpc
from runner import test
from session_kit import Stream

READ, WRITE, BOTH = 0, 1, 2
CHEAP = ["--bcrypt-cost", "4"]
SECRETS = ["root-Secret-1", "alice-Secret-2", "bob-Secret-3"]
DENIED = ("PERMISSION_DENIED", "etcdserver: permission denied")
NOBODY = ("INVALID_ARGUMENT", "etcdserver: user name is empty")
INVALID = ("UNAUTHENTICATED", "etcdserver: invalid auth token")


class As:
    """One replica, as some user; None: nobody."""

    def __init__(self, replica, user=None, password=None, token=None):
        self.channel = grpc.insecure_channel(replica.endpoint, [("grpc.use_local_subchannel_pool", 1)])
        self.auth = rpc_pb2_grpc.AuthStub(self.channel)
        self.replica, self.user, self.password, self.token = replica, user, password, token
        if user:
            self.log_in()

    def log_in(self):
        self.token = self.auth.Authenticate(pb.AuthenticateRequest(name=self.user, password=self.password), timeout=20).token

    @property
    def metadata(self):
        return [("token", self.token)] if self.token else []

    def __getattr__(self, name):
        """kv.Put as kv_Put(request)."""
        service, method = name.split("_")
        stub = {"kv": rpc_pb2_grpc.KVStub, "lease": rpc_pb2_grpc.LeaseStub, "watch": rpc_pb2_grpc.WatchStub, "auth": rpc_pb2_grpc.AuthStub,
                "maintenance": rpc_pb2_grpc.MaintenanceStub, "cluster": rpc_pb2_grpc.ClusterStub, "lock": v3lock_pb2_grpc.LockStub,
                "election": v3election_pb2_grpc.ElectionStub, "locks": v1_pb2_grpc.LocksStub}[service](self.channel)
        return lambda request, timeout=20: getattr(stub, method)(request, metadata=self.metadata, timeout=timeout)

    def put(self, key, value=b"", **fields):
        return self.kv_Put(pb.PutRequest(key=key, value=value, **fields))

    def get(self, key, end=b"", **fields):
        return [kv.value for kv in self.kv_Range(pb.RangeRequest(key=key, range_end=end, **fields)).kvs]

    def grant(self, ttl=60):
        return self.lease_LeaseGrant(pb.LeaseGrantRequest(TTL=ttl)).ID

    def close(self):
        self.channel.close()


def refused(expected, call, *args, **kwargs):
    try:
        answer = call(*args, **kwargs)
    except grpc.RpcError as e:
        got = (e.code().name, e.details())
        assert got == expected, (got, expected)
    else:
        raise AssertionError(f"let in: {answer}")


def perm(role, kind, key, end=b""):
    return pb.AuthRoleGrantPermissionRequest(name=role, perm=auth_pb2.Permission(permType=kind, key=key, range_end=end))


def set_up(cell, enable=True):
    """root; alice, who reads a/ and has all of b/; bob, who may write w and nothing else."""
    c = As(cell.replicas[0])
    for user, secret in zip(("root", "alice", "bob"), SECRETS):
        c.auth_UserAdd(pb.AuthUserAddRequest(name=user, password=secret))
    for role in ("root", "ab", "w"):
        c.auth_RoleAdd(pb.AuthRoleAddRequest(name=role))
    c.auth_RoleGrantPermission(perm("ab", READ, b"a/", b"a0"))
    c.auth_RoleGrantPermission(perm("ab", BOTH, b"b/", b"b0"))
    c.auth_RoleGrantPermission(perm("w", WRITE, b"w"))
    for user, role in (("root", "root"), ("alice", "ab"), ("bob", "w")):
        c.auth_UserGrantRole(pb.AuthUserGrantRoleRequest(user=user, role=role))
    if enable:
        c.auth_AuthEnable(pb.AuthEnableRequest())
    c.close()


def root(cell, at=0):
    return As(cell.replicas[at], "root", SECRETS[0])


def alice(cell, at=0):
    return As(cell.replicas[at], "alice", SECRETS[1])


def bob(cell, at=0):
    return As(cell.replicas[at], "bob", SECRETS[2])


class Watch:
    def __init__(self, who, *creates):
        self.open = True
        self.call = rpc_pb2_grpc.WatchStub(who.channel).Watch(self._requests(creates), metadata=who.metadata, timeout=60)

    def _requests(self, creates):
        for c in creates:
            yield pb.WatchRequest(create_request=pb.WatchCreateRequest(**c))
        while self.open:
            time.sleep(0.05)

    def next(self):
        return next(self.call)

    def close(self):
        self.open = False
        self.call.cancel()


@test(own=True)
def the_status_says_whether_it_is_on_and_at_which_revision(server):
    with cells.Cell(server, 1, flags=CHEAP) as cell:
        nobody = As(cell.replicas[0])
        before = nobody.auth_AuthStatus(pb.AuthStatusRequest())
        assert (before.enabled, before.authRevision) == (False, 1), before
        set_up(cell)
        r, a = root(cell), alice(cell)
        on = r.auth_AuthStatus(pb.AuthStatusRequest())
        assert on.enabled and on.authRevision > before.authRevision + 10, on
        refused(DENIED, a.auth_AuthStatus, pb.AuthStatusRequest())
        refused(NOBODY, nobody.auth_AuthStatus, pb.AuthStatusRequest())
        a.put(b"b/1", b"x")
        assert r.auth_AuthStatus(pb.AuthStatusRequest()).authRevision == on.authRevision, "a write of keys counts"
        r.auth_RoleAdd(pb.AuthRoleAddRequest(name="one-more"))
        status, text = cells.http(cell.replicas[0].url + "/v3/auth/status", "{}", headers={"Authorization": r.token})
        assert status == 200 and json.loads(text)["enabled"] is True and int(json.loads(text)["authRevision"]) == on.authRevision + 1, text


@test(own=True)
def nothing_is_let_through(server):
    """Each of these once let somebody past his role, somewhere."""
    with cells.Cell(server, 3, flags=CHEAP) as cell:
        set_up(cell)
        r, a, b, nobody = root(cell), alice(cell, 1), bob(cell, 2), As(cell.replicas[0])
        r.put(b"a/1", b"A")
        r.put(b"w", b"W")
        r.put(b"z", b"Z")
        assert a.get(b"a/1") == [b"A"] and a.get(b"a/", b"a0") == [b"A"]
        a.put(b"b/1", b"B")
        b.put(b"w", b"W2")
        refused(NOBODY, nobody.get, b"a/1")
        refused(DENIED, a.get, b"z")
        # all forms of range_end
        for key, end in ((b"a/", b"\0"), (b"a/", b"a1"), (b"a", b"a0"), (b"\0", b"\0"), (b"a/1", b"b")):
            refused(DENIED, a.get, key, end)
        # prev_kv reads
        refused(DENIED, b.put, b"w", b"x", prev_kv=True)
        refused(DENIED, b.kv_DeleteRange, pb.DeleteRangeRequest(key=b"w", prev_kv=True))
        # nested transactions, both branches, compares
        inner = pb.TxnRequest(failure=[pb.RequestOp(request_range=pb.RangeRequest(key=b"z"))])
        refused(DENIED, a.kv_Txn, pb.TxnRequest(success=[pb.RequestOp(request_txn=inner)]))
        inner = pb.TxnRequest(success=[pb.RequestOp(request_put=pb.PutRequest(key=b"a/2"))])
        refused(DENIED, a.kv_Txn, pb.TxnRequest(failure=[pb.RequestOp(request_txn=pb.TxnRequest(success=[pb.RequestOp(request_txn=inner)]))]))
        refused(DENIED, a.kv_Txn, pb.TxnRequest(compare=[pb.Compare(key=b"z", target=pb.Compare.VALUE, value=b"Z")]))
        refused(DENIED, b.kv_Txn, pb.TxnRequest(success=[pb.RequestOp(request_put=pb.PutRequest(key=b"w", prev_kv=True))]))
        # leases: attach, revoke, keys
        lease = r.grant()
        r.put(b"z", b"Z", lease=lease)
        refused(DENIED, a.put, b"b/2", lease=lease)
        refused(DENIED, a.kv_Txn, pb.TxnRequest(success=[pb.RequestOp(request_put=pb.PutRequest(key=b"b/2", lease=lease))]))
        refused(DENIED, a.lease_LeaseRevoke, pb.LeaseRevokeRequest(ID=lease))
        refused(DENIED, a.lease_LeaseTimeToLive, pb.LeaseTimeToLiveRequest(ID=lease, keys=True))
        assert not a.lease_LeaseTimeToLive(pb.LeaseTimeToLiveRequest(ID=lease)).keys
        refused(DENIED, a.lock_Lock, lockpb.LockRequest(name=b"b/lock", lease=lease))
        refused(NOBODY, nobody.lease_LeaseGrant, pb.LeaseGrantRequest(TTL=60))
        refused(NOBODY, nobody.lease_LeaseLeases, pb.LeaseLeasesRequest())
        refused(NOBODY, lambda: list(nobody.lease_LeaseKeepAlive(iter([pb.LeaseKeepAliveRequest(ID=lease)]))))
        # locks and elections are their keys
        refused(DENIED, a.lock_Lock, lockpb.LockRequest(name=b"a/lock"))
        held = a.lock_Lock(lockpb.LockRequest(name=b"b/lock"))
        refused(DENIED, b.lock_Unlock, lockpb.UnlockRequest(key=held.key))
        refused(DENIED, b.locks_List, v1.LocksListRequest())
        refused(DENIED, b.locks_Verify, v1.LocksVerifyRequest(name=b"b/lock", fencing_token=held.fencing_token))
        assert a.locks_Verify(v1.LocksVerifyRequest(name=b"b/lock", fencing_token=held.fencing_token)).current
        refused(DENIED, a.locks_BreakHold, v1.LocksBreakRequest(key=held.key))
        a.lock_Unlock(lockpb.UnlockRequest(key=held.key))
        held = a.lock_Lock(lockpb.LockRequest(name=b"b/lock"))
        assert r.locks_BreakHold(v1.LocksBreakRequest(key=held.key)).broken.fencing_token == held.fencing_token
        refused(DENIED, b.election_Campaign, electionpb.CampaignRequest(name=b"b/e", lease=b.grant()))
        refused(DENIED, b.election_Leader, electionpb.LeaderRequest(name=b"b/e"))
        # what is root's
        for call, request in ((a.maintenance_Status, pb.StatusRequest()), (a.kv_Compact, pb.CompactionRequest(revision=2)),
                              (a.cluster_MemberAdd, pb.MemberAddRequest(peerURLs=["http://127.0.0.1:1"])),
                              (a.auth_UserList, pb.AuthUserListRequest()), (a.auth_AuthDisable, pb.AuthDisableRequest())):
            refused(DENIED, call, request)
        refused(NOBODY, nobody.cluster_MemberList, pb.MemberListRequest())
        assert len(a.cluster_MemberList(pb.MemberListRequest()).members) == 3
        for c in (r, a, b, nobody):
            c.close()


@test(own=True)
def malformed_tokens_are_refused_at_once(server):
    with cells.Cell(server, 3, flags=CHEAP) as cell:
        set_up(cell)
        for token in (".", "x", "x.", ".1", "a.b.c", "AAAAAAAAAAAAAAAA.1", "AAAAAAAAAAAAAAAA.99999999999999999999", "AAAAAAAAAAAAAAAA.-1",
                      "AAAAAAAAAAAAAAAA.9999999999", "é.1".encode().decode("latin1"), "A" * 3000):
            c = As(cell.replicas[1], token=token.encode("latin1").decode("ascii", "replace").replace("�", "?"))
            refused(INVALID, c.get, b"a/1")
            refused(INVALID, c.put, b"b/1")
            w = Watch(c, {"key": b"a/1"})
            reply = w.next()
            assert reply.created and reply.canceled and reply.cancel_reason.endswith("etcdserver: invalid auth token"), reply
            w.close()
            c.close()
        assert alice(cell, 2).get(b"a/1") == []


def session(who, **kwargs):
    """A session of whoever that is."""
    def bound(stub, *methods):
        return types.SimpleNamespace(**{m: (lambda request, f=getattr(stub, m), **kw: f(request, metadata=who.metadata, **kw)) for m in methods})

    nodes, sessions = v1_pb2_grpc.NodesStub(who.channel), v1_pb2_grpc.SessionStub(who.channel)
    return Stream(types.SimpleNamespace(nodes=bound(nodes, "Get", "List"), sessions=bound(sessions, "Connect")), **kwargs)


def sessions_follow_permissions(cell, r):
    """Alice has a session on each replica that may cache all: caches are emptied before she may read less, and what she watched once is over."""
    r.auth_RoleGrantPermission(perm("ab", READ, b"/n/", b"/n0"))
    r.put(b"/n/1", b"1")
    streams = [session(alice(cell, i), acks=i != 1) for i in range(3)]
    for s in streams:
        s.open(prefixes=["/"])
        got = s.get("/n/1", cache=True, watch=1)
        assert got.node.value == b"1" and got.HasField("grant"), got
        assert s.list("/n", cache=True, watch=2).HasField("grant")
        refused(DENIED, s.get, "/z", cache=True, watch=3)
    late = r.auth.RoleRevokePermission.future(pb.AuthRoleRevokePermissionRequest(role="ab", key=b"/n/", range_end=b"/n0"), metadata=r.metadata, timeout=20)
    owed = [s.next("invalidation") for s in streams]
    assert all({(i.path, i.aspect) for i in o.items} == {("/n/1", 0), ("/n", 1)} for o in owed), owed
    assert streams[1].get("/n/1").node.value == b"1" and not late.done()  # one has not said that it forgot: nothing is taken away yet
    streams[1].ack(owed[1])
    late.result()
    for s in streams:
        events = {e.watch: e.change for e in (s.next("event"), s.next("event"))}
        assert events == {1: v1.NODE_DENIED, 2: v1.NODE_DENIED}, events
        refused(DENIED, s.get, "/n/1", cache=True, watch=1)
    r.put(b"/n/1", b"2")  # neither waits for her nor is she told
    r.put(b"/z", b"2")
    for s in streams:
        s.keep_alive()
        assert s.seen["event"] == 2 and s.seen["invalidation"] == 1, s.seen


@test(own=True)
def watches_follow_permissions(server):
    with cells.Cell(server, 3, flags=CHEAP) as cell:
        set_up(cell, enable=False)
        early = Watch(As(cell.replicas[1]), {"key": b"a/1"})
        assert early.next().created
        As(cell.replicas[0]).auth_AuthEnable(pb.AuthEnableRequest())
        assert early.next().cancel_reason.endswith("etcdserver: user name is empty")  # nobody, now that it matters
        r, a = root(cell), alice(cell, 1)
        for key, end in ((b"a/1", b"\0"), (b"z", b""), (b"", b"\0"), (b"a", b"a0")):
            w = Watch(a, {"key": key, "range_end": end})
            reply = w.next()
            assert reply.created and reply.canceled and reply.watch_id == -1, reply
            assert reply.cancel_reason == "rpc error: code = PermissionDenied desc = etcdserver: permission denied", reply
            w.close()
        w = Watch(a, {"key": b"a/", "range_end": b"a0"}, {"key": b"b/1"})
        assert [w.next().watch_id for _ in range(2)] == [0, 1]
        r.put(b"a/1", b"1")
        assert w.next().events[0].kv.value == b"1"
        r.auth_RoleRevokePermission(pb.AuthRoleRevokePermissionRequest(role="ab", key=b"a/", range_end=b"a0"))
        r.put(b"a/1", b"2")
        r.put(b"b/1", b"3")
        replies = {x.watch_id: x for x in (w.next(), w.next())}
        assert replies[0].canceled and not replies[0].events and "permission denied" in replies[0].cancel_reason, replies
        assert replies[1].events[0].kv.value == b"3"
        sessions_follow_permissions(cell, r)
        r.auth_UserDelete(pb.AuthUserDeleteRequest(name="alice"))
        assert w.next().canceled
        w.close()


@test(own=True)
def tokens_run_out_and_watches_do_not(server):
    with cells.Cell(server, 3, flags=["--auth-token-ttl", "1"]) as cell:
        set_up(cell)
        r, a = root(cell), alice(cell, 1)
        w = Watch(a, {"key": b"b/1"})
        assert w.next().created
        cells.wait_for("the token's end", lambda: token_is_dead(a), step=1.5)  # each use makes it young again
        r.log_in()
        r.put(b"b/1", b"still")
        assert w.next().events[0].kv.value == b"still"
        late = Watch(a, {"key": b"b/1"})
        assert late.next().cancel_reason.endswith("invalid auth token")
        a.log_in()
        a.put(b"b/1")
        for x in (w, late):
            x.close()


def token_is_dead(c):
    try:
        c.get(b"b/1")
    except grpc.RpcError as e:
        return e.code() == grpc.StatusCode.UNAUTHENTICATED
    return False


@test(own=True)
def tokens_are_good_everywhere_and_end_with_their_password(server):
    with cells.Cell(server, 3, flags=CHEAP) as cell:
        set_up(cell)
        r, a = root(cell), alice(cell)
        for at in range(3):
            for _ in range(20):  # the newest is not late anywhere
                a.log_in()
                assert As(cell.replicas[at], token=a.token).get(b"b/x") == []
        r.auth_UserChangePassword(pb.AuthUserChangePasswordRequest(name="alice", password="another"))
        for at in range(3):
            refused(INVALID, As(cell.replicas[at], token=a.token).put, b"b/x")
        refused(("INVALID_ARGUMENT", "etcdserver: authentication failed, invalid user ID or password"), a.log_in)
        for password in ("", "another\0"):
            a.password = password
            refused(("INVALID_ARGUMENT", "etcdserver: authentication failed, invalid user ID or password"), a.log_in)
        a.password = "another"
        a.log_in()
        a.put(b"b/x")


@test(own=True)
def replicas_agree_after_restarts_snapshots_and_fail_over(server):
    """And leases run out all the same."""
    with cells.Cell(server, 3, flags=["--snapshot-count", "50", "--snapshot-catchup-entries", "10"]) as cell:
        set_up(cell)
        r, a = root(cell), alice(cell)
        lease = a.grant(2)
        a.put(b"b/leased", lease=lease)
        lagging = cell.replicas[2]
        lagging.kill()
        for i in range(200):
            r.put(b"a/%d" % i, b"x")
        r.auth_RoleRevokePermission(pb.AuthRoleRevokePermissionRequest(role="ab", key=b"a/", range_end=b"a0"))
        lagging.start()
        cell.wait_ready()
        for at in range(3):
            c = alice(cell, at)
            refused(DENIED, c.get, b"a/1")
            c.put(b"b/%d" % at)
            refused(NOBODY, As(cell.replicas[at]).get, b"b/1")
        cells.wait_for("the lease's end", lambda: alice(cell, 2).get(b"b/leased") == [] and lease not in
                       {x.ID for x in alice(cell).lease_LeaseLeases(pb.LeaseLeasesRequest()).leases})
        everything = [root(cell, i).kv_Range(pb.RangeRequest(key=b"\0", range_end=b"\0")) for i in range(3)]
        assert len({(x.header.revision, str(x.kvs)) for x in everything}) == 1
        for rep in cell.replicas:
            rep.kill()
        for rep in cell.replicas:
            rep.start()
        cell.wait_ready()
        refused(INVALID, As(cell.replicas[0], token=a.token).put, b"b/1")  # of before, over a new connection
        a = alice(cell)
        a.put(b"b/1")
        lease = a.grant(60)
        leader = max(cell.replicas, key=lambda x: root_leads(cell, x))
        leader.kill()
        left = [x for x in cell.replicas if x is not leader]
        for x in left:
            cells.wait_for("a new leader", lambda x=x: can(As(x, "alice", SECRETS[1]).put, b"b/2"))
            refused(DENIED, As(x, "alice", SECRETS[1]).put, b"a/2")


@test(own=True, timeout=120)
def a_restored_cell_has_its_users_and_decides_alike(server):
    """From a backup that only root may take. Old tokens and leases are gone; leases of the new cell run out."""
    with cells.Cell(server, 3, flags=CHEAP) as old:
        set_up(old)
        r, a = root(old), alice(old)
        r.put(b"a/1", b"x")
        lease = a.grant(600)
        a.put(b"b/leased", lease=lease)
        refused(DENIED, lambda: list(a.maintenance_Snapshot(pb.SnapshotRequest())))
        backup = old.dir / "backup"
        backup.write_bytes(b"".join(m.blob for m in r.maintenance_Snapshot(pb.SnapshotRequest())))
        with cells.Cell(server, 3, start=False) as new:
            cluster = ",".join(f"{x.name}={x.peer_url}" for x in new.replicas)
            for x in new.replicas:
                done = subprocess.run([str(server), "snapshot", "restore", str(backup), "--data-dir", str(x.data_dir), "--name", x.name, "--initial-cluster",
                                       cluster, "--initial-advertise-peer-urls", x.peer_url, "--initial-cluster-token", "restored"],
                                      text=True, capture_output=True, timeout=60, check=False)
                assert done.returncode == 0, done.stderr
            new.flags = CHEAP + ["--corrupt-check-time", "500ms"]
            new.start()
            for at, x in enumerate(new.replicas):
                refused(NOBODY, As(x).put, b"b/1")
                refused(INVALID, As(x, token=a.token).put, b"b/1")
                c = alice(new, at)
                assert c.get(b"a/1") == [b"x"]
                refused(DENIED, c.put, b"a/1")
                c.put(b"b/%d" % at)
                refused(DENIED, bob(new, at).get, b"b/0")
            a, r = alice(new, 1), root(new, 2)
            assert a.get(b"b/leased") == [] and not a.lease_LeaseLeases(pb.LeaseLeasesRequest()).leases
            lease = a.grant(2)
            a.put(b"b/leased", lease=lease)
            r.auth_RoleRevokePermission(pb.AuthRoleRevokePermissionRequest(role="ab", key=b"a/", range_end=b"a0"))
            for at in range(3):
                refused(DENIED, alice(new, at).get, b"a/1")
            cells.wait_for("the lease's end", lambda: alice(new, 2).get(b"b/leased") == [] and
                           not alice(new).lease_LeaseLeases(pb.LeaseLeasesRequest()).leases)
            revision = r.kv_Range(pb.RangeRequest(key=b"a")).header.revision
            hashes = {root(new, at).maintenance_HashKV(pb.HashKVRequest(revision=revision)).hash for at in range(3)}
            assert len(hashes) == 1, hashes
            assert all(x.running() for x in new.replicas)


def root_leads(cell, replica):
    s = root(cell, cell.replicas.index(replica)).maintenance_Status(pb.StatusRequest())
    return s.leader == s.header.member_id


def can(call, *args):
    try:
        call(*args)
    except grpc.RpcError:
        return False
    return True


@test(own=True)
def what_is_under_way_while_users_change_is_not_refused_for_it(server):
    with cells.Cell(server, 3, flags=CHEAP) as cell:
        set_up(cell)
        r, a = root(cell), alice(cell, 1)
        stub = rpc_pb2_grpc.KVStub(a.channel)
        for i in range(30):
            futures = [stub.Put.future(pb.PutRequest(key=b"b/%d" % k), metadata=a.metadata, timeout=20) for k in range(20)]
            r.auth_UserAdd(pb.AuthUserAddRequest(name=f"new{i}", options=auth_pb2.UserAddOptions(no_password=True)))
            for f in futures:
                f.result()


@test(own=True)
def the_gateway_knows_users_too(server):
    with cells.Cell(server, 1, flags=CHEAP) as cell:
        set_up(cell)
        url = cell.replicas[0].url

        def post(path, body, token=None):
            status, text = cells.http(f"{url}/v3/{path}", body, headers={"Authorization": token} if token else {})
            return status, json.loads(text)

        key = {"key": base64.b64encode(b"b/1").decode()}
        assert post("kv/range", key)[0] == 400
        for password in ({}, {"password": ""}, {"password": "wrong"}):
            status, reply = post("auth/authenticate", {"name": "alice", **password})
            assert status == 400 and "authentication failed" in reply["error"], reply
        token = post("auth/authenticate", {"name": "alice", "password": SECRETS[1]})[1]["token"]
        assert post("kv/put", key, token)[0] == 200
        assert post("kv/range", key, "Bearer " + token)[1]["count"] == "1"
        assert post("kv/put", {"key": base64.b64encode(b"z").decode()}, token)[0] == 403
        assert post("kv/put", key, "nonsense.1")[0] == 401
        root_token = post("auth/authenticate", {"name": "root", "password": SECRETS[0]})[1]["token"]
        for empty in ({"name": "x"}, {"name": "x", "password": ""}):
            status, reply = post("auth/user/add", empty, root_token)
            assert status == 400 and "empty" in reply["error"], reply


@test(own=True)
def acts_are_written_down_and_secrets_nowhere(server):
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder) / "audit.log"
        with cells.Cell(server, 1, flags=["--audit-log", str(path), "--log-level", "debug"]) as cell:
            set_up(cell)
            r, a = root(cell), alice(cell)
            held = a.lock_Lock(lockpb.LockRequest(name=b"b/lock"))
            refused(DENIED, a.locks_BreakHold, v1.LocksBreakRequest(key=held.key))
            path.rename(path.with_suffix(".1"))
            cell.replicas[0].process.send_signal(signal.SIGHUP)
            cells.wait_for("the new file", path.exists)
            a.lock_Unlock(lockpb.UnlockRequest(key=held.key))
            refused(NOBODY, As(cell.replicas[0]).lease_LeaseGrant, pb.LeaseGrantRequest(TTL=60))
            cells.wait_for("the lines", lambda: len(path.read_text().splitlines()) == 2)
            tokens = [r.token, a.token]
            cell.replicas[0].stop()
            texts = [path.with_suffix(".1").read_text(), path.read_text(), cell.replicas[0].log_path.read_text()]
        before, after = ([json.loads(line) for line in t.splitlines()] for t in texts[:2])
        assert [x["method"].split("/")[1] for x in after] == ["Unlock", "LeaseGrant"], after
        assert after[0]["user"] == "alice" and after[0]["result"] == "OK" and after[0]["request"]["key"] == held.key.decode()
        assert "user" not in after[1] and after[1]["error"] == NOBODY[1] and after[1]["address"].startswith("127.0.0.1:")
        lock = [x for x in before if x["method"] == "v3lockpb.Lock/Lock"]
        assert len(lock) == 1 and lock[0]["user"] == "alice" and lock[0]["request"] == {"name": "b/lock"}
        broken = [x for x in before if x["method"] == "holdfast.v1.Locks/BreakHold"][0]
        assert broken["result"] == "PermissionDenied" and broken["user"] == "alice"
        added = [x for x in before if x["method"].endswith("/UserAdd")]
        assert [x["request"]["name"] for x in added] == ["root", "alice", "bob"] and all(x["time"] for x in before)
        for secret in SECRETS + tokens:
            for text in texts:
                assert secret not in text, secret


def make_keys(folder, kind):
    private, public = pathlib.Path(folder) / "key.pem", pathlib.Path(folder) / "pub.pem"
    args = {"RS": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"], "PS": ["-algorithm", "RSA", "-pkeyopt", "rsa_keygen_bits:2048"],
            "ES": ["-algorithm", "EC", "-pkeyopt", "ec_paramgen_curve:P-256"], "Ed": ["-algorithm", "ed25519"]}[kind]
    subprocess.run(["openssl", "genpkey", *args, "-out", private], check=True, capture_output=True)
    subprocess.run(["openssl", "pkey", "-in", private, "-pubout", "-out", public], check=True, capture_output=True)
    return private, public


@test(own=True)
def signed_tokens_of_every_family(server):
    for method in ("RS256", "PS256", "ES256", "EdDSA", "HS256"):
        with tempfile.TemporaryDirectory() as folder:
            if method == "HS256":
                private = pathlib.Path(folder) / "secret"
                private.write_bytes(b"0123456789abcdef0123456789abcdef")
                keys = f"priv-key={private}"
            else:
                private, public = make_keys(folder, method[:2])
                keys = f"pub-key={public},priv-key={private}"
            with cells.Cell(server, 1, flags=["--auth-token", f"jwt,{keys},sign-method={method},ttl=60s"]) as cell:
                set_up(cell)
                a = alice(cell)
                a.put(b"b/1")
                refused(DENIED, a.get, b"z")
                header, claims, signature = a.token.split(".")
                assert json.loads(base64.urlsafe_b64decode(header + "==")) == {"alg": method, "typ": "JWT"}
                said = json.loads(base64.urlsafe_b64decode(claims + "=="))
                assert said["username"] == "alice" and 50 < said["exp"] - time.time() < 70
                said["username"] = "root"
                forged = base64.urlsafe_b64encode(json.dumps(said).encode()).decode().rstrip("=")
                none = base64.urlsafe_b64encode(b'{"alg":"none"}').decode().rstrip("=")
                for token in (f"{header}.{forged}.{signature}", f"{none}.{forged}.", f"{header}.{claims}.", f"{header}.{claims}", "..", "x",
                              f"{header}.{claims}.{signature[:-4]}AAAA", a.token + ".x", "A" * 9000):
                    refused(INVALID, As(cell.replicas[0], token=token[:7000]).put, b"b/1")
                r = root(cell)
                r.auth_UserAdd(pb.AuthUserAddRequest(name="new", options=auth_pb2.UserAddOptions(no_password=True)))
                refused(("INVALID_ARGUMENT", "etcdserver: revision of auth store is old"), a.put, b"b/1")
                a.log_in()
                a.put(b"b/1")
                if method == "ES256":
                    other = tempfile.mkdtemp(dir=folder)
                    for new, old in zip(make_keys(other, "ES"), (private, public)):
                        new.replace(old)
                    cells.wait_for("the new keys", lambda: token_is_dead(a))
                    a.log_in()
                    a.put(b"b/1")
                    private.write_text("no key")
                    cells.wait_for("a line about it", lambda: "the old ones stay" in cell.replicas[0].log_path.read_text())
                    a.log_in()
