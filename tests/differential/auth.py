"""auth.py: users, roles and permissions that come and go, and requests by whoever may or may not, on all targets alike.

Compared are error codes and texts, and replies but for tokens and IDs. Passwords are hashed at the least cost, on both sides.
"""
import random

import known
import target
from compare import Outcome
from etcd import auth_pb2, rpc_pb2 as pb
from report import Report

USERS = ["root", "u1", "u2", "u3"]
ROLES = ["root", "r1", "r2", "r3"]
KEYS = [b"a", b"b", b"c", b"ca", b"d/", b"d/1", b"d/2", b"e", b"\xff"]
ENDS = [b"", b"", b"", b"\0", b"b", b"c", b"cb", b"d0", b"e", b"z"]
METHODS = ["AuthEnable", "AuthDisable", "Authenticate", "UserAdd", "UserGet", "UserList", "UserDelete", "UserChangePassword",
           "UserGrantRole", "UserRevokeRole", "RoleAdd", "RoleGet", "RoleList", "RoleDelete", "RoleGrantPermission",
           "RoleRevokePermission", "Range", "Put", "DeleteRange", "Txn", "LeaseGrant", "LeaseRevoke"]
LEAST = 12
FLAGS = ["--bcrypt-cost", "4"]


class Target(target.Target):
    def __init__(self, name, server, size):
        super().__init__(name, server, size, FLAGS)
        self.tokens = {}

    def call(self, by, service, method, request, token, at):
        stub = self.stubs(by, service)[at % len(self.channels)]
        metadata = [("token", self.tokens.get(token, token))] if token else []
        if service == "auth":
            self.settle(at % len(self.channels))
        return target.outcome(getattr(stub, method).future(request, metadata=metadata, timeout=20))

    def settle(self, at):
        """Has a replica apply what was answered anywhere: a token that is yet to come, or with no users any read, waits for that. Who is asked about
        users while others know that they have changed may still take a token that is none any more, as in etcd."""
        if len(self.channels) > 1:
            target.outcome(self.kv[at].Range.future(pb.RangeRequest(key=b"a"), metadata=[("token", f"AAAAAAAAAAAAAAAA.{2**62}")], timeout=20))


def bare(message):
    copy = type(message)()
    copy.CopyFrom(message)
    header = getattr(copy, "header", None)
    if header is not None:
        header.cluster_id = header.member_id = header.raft_term = 0
    if isinstance(copy, pb.AuthenticateResponse):
        copy.token = ""
    if isinstance(copy, pb.AuthRoleGetResponse):  # etcd sorts by key alone
        perms = sorted(copy.perm, key=lambda p: (p.key, p.range_end))
        del copy.perm[:]
        copy.perm.extend(perms)
    return copy


class Field:
    def __init__(self, report, seed, targets):
        self.report, self.seed, self.targets = report, seed, targets
        self.rng = random.Random(seed)
        self.passwords, self.on, self.steps, self.lease = {}, False, 0, 100

    def ask(self, service, method, request, token=None):
        at = self.rng.randrange(12)
        by = target.channel(self.rng)
        self.steps += 1
        outcomes = [t.call(by, service, method, request, token, at) for t in self.targets]
        for o in outcomes:
            o.bare = Outcome(o.code, o.text, [bare(r) for r in o.replies])
        self.report.count(method, outcomes[0])
        for t, o in zip(self.targets[1:], outcomes[1:]):
            if o.bare != outcomes[0].bare and not self.report.explained(method, request, token, outcomes[0].bare, o.bare):
                self.report.differ(method, f"seed {self.seed} step {self.steps}", t, f"{by} as {token}: {request}", outcomes[0].bare, o.bare)
        return outcomes

    def root(self):
        return "root" if self.on else None

    def who(self):
        """By whom the next request is: mostly by root, who can change things."""
        kind = self.rng.random()
        if not self.on or kind < 0.05:
            return None
        if kind < 0.08:
            return self.rng.choice(["nonsense", "nonsense.1", "AAAAAAAAAAAAAAAA.3", "AAAAAAAAAAAAAAAA.x"])
        return "root" if kind < 0.7 else self.rng.choice(USERS)

    # ---- the Auth service ----

    def authenticate(self, user=None):
        user = user or self.rng.choice(USERS + ["nobody"])
        good = self.passwords.get(user, "x")
        password = good if self.rng.random() < 0.85 else self.rng.choice(["wrong", ""])
        outcomes = self.ask("auth", "Authenticate", pb.AuthenticateRequest(name=user, password=password))
        for t, o in zip(self.targets, outcomes):
            if o.code == "OK":
                t.tokens[user] = o.replies[0].token
        return outcomes[0].code

    def switch(self):
        if self.on and self.rng.random() < 0.6:
            o = self.ask("auth", "AuthDisable", pb.AuthDisableRequest(), self.who())
            if o[0].code == "OK":
                self.on = False
                for t in self.targets:
                    t.tokens.clear()
            return
        o = self.ask("auth", "AuthEnable", pb.AuthEnableRequest(), self.who())
        if o[0].code == "OK":
            self.on = True
            for user in USERS:
                self.authenticate(user)
        elif not self.on:
            self.add_root()

    def add_root(self):
        if self.ask("auth", "UserAdd", pb.AuthUserAddRequest(name="root", password="p0"))[0].code == "OK":
            self.passwords["root"] = "p0"
        self.ask("auth", "UserGrantRole", pb.AuthUserGrantRoleRequest(user="root", role="root"))

    def users(self, kind=None):
        rng, user, role = self.rng, self.rng.choice(USERS), self.rng.choice(ROLES)
        kind = rng.randrange(10) if kind is None else kind
        if kind < 2:
            no_password = rng.random() < 0.1
            password = f"p{rng.randrange(9)}"
            name = user if rng.random() < 0.95 else ""
            o = self.ask("auth", "UserAdd", pb.AuthUserAddRequest(name=name, password="" if no_password else password, options=auth_pb2.UserAddOptions(
                no_password=no_password)), self.who())
            if o[0].code == "OK":
                self.passwords[user] = password
        elif kind < 3:
            self.ask("auth", "UserDelete", pb.AuthUserDeleteRequest(name=user), self.who())
        elif kind < 4:
            password = f"p{rng.randrange(9)}"
            if self.ask("auth", "UserChangePassword", pb.AuthUserChangePasswordRequest(name=user, password=password), self.who())[0].code == "OK":
                self.passwords[user] = password
        elif kind < 7:
            self.ask("auth", "UserGrantRole", pb.AuthUserGrantRoleRequest(user=user, role=role), self.who())
        elif kind < 8:
            self.ask("auth", "UserRevokeRole", pb.AuthUserRevokeRoleRequest(name=user, role=role), self.who())
        elif kind < 9:
            self.ask("auth", "UserGet", pb.AuthUserGetRequest(name=user), self.who())
        else:
            self.ask("auth", "UserList", pb.AuthUserListRequest(), self.who())

    def range(self):
        key, end = self.rng.choice(KEYS), self.rng.choice(ENDS)
        return (key, end) if end in (b"", b"\0") or key < end else (key, b"")

    def roles(self, kind=None):
        rng, role = self.rng, self.rng.choice(ROLES[1:])
        kind = rng.randrange(12) if kind is None else kind
        if kind < 2:
            self.ask("auth", "RoleAdd", pb.AuthRoleAddRequest(name=role if rng.random() < 0.95 else ""), self.who())
        elif kind < 3:
            self.ask("auth", "RoleDelete", pb.AuthRoleDeleteRequest(role=rng.choice(ROLES)), self.who())
        elif kind < 4:
            self.ask("auth", "RoleList", pb.AuthRoleListRequest(), self.who())
        elif kind < 6:
            self.ask("auth", "RoleGet", pb.AuthRoleGetRequest(role=role), self.who())
        elif kind < 10:
            key, end = self.range()
            # 3.4 keeps a permission beside the one it should replace, when the role has others of that key.
            self.ask("auth", "RoleRevokePermission", pb.AuthRoleRevokePermissionRequest(role=role, key=key, range_end=end), self.root())
            perm = auth_pb2.Permission(permType=rng.randrange(3), key=key, range_end=end)
            self.ask("auth", "RoleGrantPermission", pb.AuthRoleGrantPermissionRequest(name=role, perm=perm), self.who())
        else:
            key, end = self.range()
            self.ask("auth", "RoleRevokePermission", pb.AuthRoleRevokePermissionRequest(role=role, key=key, range_end=end), self.who())

    # ---- what permissions are for ----

    def operation(self):
        rng = self.rng
        key, end = self.range()
        kind = rng.randrange(3)
        if kind == 0:
            return "Range", pb.RangeRequest(key=key, range_end=end, serializable=False)
        if kind == 1:
            return "Put", pb.PutRequest(key=key, value=b"%d" % rng.randrange(100), prev_kv=rng.random() < 0.3)
        return "DeleteRange", pb.DeleteRangeRequest(key=key, range_end=end, prev_kv=rng.random() < 0.3)

    def as_user(self):
        return self.rng.choice(USERS[1:]) if self.on and self.rng.random() < 0.9 else self.who()

    def data(self):
        rng = self.rng
        method, request = self.operation()
        if rng.random() < 0.75:
            self.ask("kv", method, request, self.as_user())
            return
        # prev_kv in transactions escapes 3.4's check.
        txn = pb.TxnRequest(compare=[pb.Compare(key=rng.choice(KEYS), target=pb.Compare.VERSION, result=pb.Compare.GREATER, version=0)])
        for ops in (txn.success, txn.failure):
            method, request = self.operation()
            if hasattr(request, "prev_kv"):
                request.prev_kv = False
            ops.add(**{"request_" + {"Range": "range", "Put": "put", "DeleteRange": "delete_range"}[method]: request})
        self.ask("kv", "Txn", txn, self.as_user())

    def leases(self):
        self.lease += 1
        user = self.as_user() or self.root()
        if self.ask("lease", "LeaseGrant", pb.LeaseGrantRequest(TTL=600, ID=self.lease), user)[0].code != "OK":
            return
        for _ in range(self.rng.randrange(3)):
            self.ask("kv", "Put", pb.PutRequest(key=self.rng.choice(KEYS), lease=self.lease), self.as_user())
        if self.ask("lease", "LeaseRevoke", pb.LeaseRevokeRequest(ID=self.lease), self.as_user())[0].code != "OK":
            self.ask("lease", "LeaseRevoke", pb.LeaseRevokeRequest(ID=self.lease), self.root())

    def act_rare(self, method):
        kinds = {"UserAdd": 0, "UserDelete": 2, "UserChangePassword": 3, "UserGrantRole": 4, "UserRevokeRole": 7, "UserGet": 8, "UserList": 9}
        role_kinds = {"RoleAdd": 0, "RoleDelete": 2, "RoleList": 3, "RoleGet": 4, "RoleGrantPermission": 6, "RoleRevokePermission": 10}
        if method in kinds:
            self.users(kinds[method])
        elif method in role_kinds:
            self.roles(role_kinds[method])
        elif method.startswith("Auth"):
            self.authenticate() if method == "Authenticate" else self.switch()
        else:
            self.leases() if method.startswith("Lease") else self.data()
        if self.rng.random() < 0.3:
            self.act()  # else all would be gone, or there, and nothing new be said

    def act(self):
        kind = self.rng.randrange(100)
        if kind < 5:
            self.switch()
        elif kind < 12:
            self.authenticate()
        elif kind < 34:
            self.users()
        elif kind < 56:
            self.roles()
        elif kind < 94:
            self.data()
        else:
            self.leases()

    def begin(self):
        """Root, so that it can be switched on; and some who may do something."""
        for user in USERS:
            self.passwords[user] = "p0"
            self.ask("auth", "UserAdd", pb.AuthUserAddRequest(name=user, password="p0"))
        for role in ROLES:
            self.ask("auth", "RoleAdd", pb.AuthRoleAddRequest(name=role))
        self.ask("auth", "UserGrantRole", pb.AuthUserGrantRoleRequest(user="root", role="root"))
        for i in (1, 2, 3):
            self.ask("auth", "UserGrantRole", pb.AuthUserGrantRoleRequest(user=f"u{i}", role=f"r{i}"))


def run(options):
    report = Report("Auth", METHODS, known.AUTH, least=LEAST)
    ops = options.ops or (12000 if options.full else 1500)
    targets = []
    try:
        for name, server, size in (("etcd", target.ORACLE, 1), ("holdfast of 1", options.server, 1), ("holdfast of 3", options.server, 3)):
            if server != target.ORACLE or not targets:
                targets.append(Target(name, server, size))
        field = Field(report, options.seed, targets)
        field.begin()
        # On until each method had its share, which chance alone does not give every seed.
        while not report.had_enough() and field.steps < 3 * ops:
            rare = None if field.steps < ops or options.ops else report.rare()
            if field.steps >= ops and not rare:
                break
            field.act_rare(rare) if rare else field.act()
    finally:
        for t in targets:
            t.close()
    return report.finish(f"seed {options.seed}", least=not options.ops)
