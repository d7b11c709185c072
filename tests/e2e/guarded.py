"""guarded.py: cells as people guard them, under TLS and with users, and tests that are told once and run each way.

A test with @each_way gets a Way instead of a server and starts its cells by it. What looks on from beside (Eye, etcdctl, curl) is root, by its certificate. The clients
that are tested log in as "tester", who may read and write everything but is not root, by name and password; their certificate is of nobody who is a user.
"""
import contextlib
import os
import tempfile

import cells
import pki
from clients import pb, rpc_pb2_grpc
from etcd import auth_pb2 as authpb
from runner import test

WAYS = ("plain", "tls", "users")
FLAGS = ["--bcrypt-cost", "4"]

# Whom a guarded cell knows: name, role, permission. The password of each is NAME-pw. reader reads a/.
USERS = (("root", "root", None),
         ("tester", "all", authpb.Permission(permType=authpb.Permission.READWRITE, key=b"\0", range_end=b"\0")),
         ("reader", "a", authpb.Permission(permType=authpb.Permission.READ, key=b"a/", range_end=b"a0")))


@contextlib.contextmanager
def mutual():
    """A CA, whose certificates the servers, users and a guest have. Some libraries want TLS before they show a password."""
    with tempfile.TemporaryDirectory(prefix="holdfast-pki-") as folder:
        own = pki.Pki(folder).cert("server").cert("peer").cert("guest")
        for name, _, _ in USERS:
            own.cert(name)
        yield own.use("guest")


def add_users(cell):
    """The users, and authentication is on."""
    with cell.replicas[0].channel() as channel:
        auth = rpc_pb2_grpc.AuthStub(channel)
        for name, role, permission in USERS:
            auth.UserAdd(pb.AuthUserAddRequest(name=name, password=f"{name}-pw"), timeout=10)
            auth.RoleAdd(pb.AuthRoleAddRequest(name=role), timeout=10)
            if permission:
                auth.RoleGrantPermission(pb.AuthRoleGrantPermissionRequest(name=role, perm=permission), timeout=10)
            auth.UserGrantRole(pb.AuthUserGrantRoleRequest(user=name, role=role), timeout=10)
        auth.AuthEnable(pb.AuthEnableRequest(), timeout=10)
    return cell


def guarded(server, own=None, size=3):
    """A cell with users, under TLS if there are certificates."""
    return add_users(cells.Cell(server, size, flags=FLAGS + (own.flags() if own else []), tls=own))


def log_in(user):
    """For the clients that follow."""
    os.environ.update(TEST_USER=user, TEST_PASSWORD=f"{user}-pw")


_SECTIONS = {"client-transport-security": ("cert-file", "key-file", "client-cert-auth", "trusted-ca-file"),
            "peer-transport-security": ("peer-cert-file", "peer-key-file", "peer-client-cert-auth", "peer-trusted-ca-file")}


def _settings(replica):
    """{name of a flag: value} of what it is started with."""
    flags, found = [str(f) for f in replica.arguments()], {}
    for i, flag in enumerate(flags):
        if flag.startswith("--"):
            found[flag[2:]] = flags[i + 1] if i + 1 < len(flags) and not flags[i + 1].startswith("--") else "true"
    return found


def _by_file(replica):
    """etcd.conf.yml.sample, filled in."""
    own = _settings(replica)
    lines = ["wal-dir:", "heartbeat-interval: 100", "election-timeout: 1000", "quota-backend-bytes: 0", "max-snapshots: 5", "max-wals: 5", "cors:", "discovery:", "discovery-fallback: 'proxy'",
             "discovery-proxy:", "discovery-srv:", "strict-reconfig-check: false", "enable-v2: true", "enable-pprof: true", "proxy: 'off'", "proxy-failure-wait: 5000", "debug: false",
             "logger: zap", "log-outputs: [stderr]", "force-new-cluster: false", "auto-compaction-mode: periodic", "auto-compaction-retention: \"1\""]
    for section, names in _SECTIONS.items():
        lines += [f"{section}:", *(f"  {name.removeprefix('peer-')}: {own.pop(name)}" for name in names if name in own)]
    lines += [f"{name}: {value}" for name, value in own.items()]
    path = replica.cell.dir / f"{replica.name}.yml"
    path.write_text("\n".join(lines) + "\n")
    replica.arguments = lambda: ["--config-file", path]


def _by_environment(replica):
    own = {"ETCD_" + name.upper().replace("-", "_"): value for name, value in _settings(replica).items()}
    replica.inside = ["env", *(f"{name}={value}" for name, value in own.items())]
    replica.arguments = lambda: []


def as_the_manual_shows(cell):
    """One replica is started by flags, one by the example file, one by the environment."""
    _by_file(cell.replicas[1])
    _by_environment(cell.replicas[2])


class Way:
    def __init__(self, name, server):
        self.name, self.server = name, server

    @contextlib.contextmanager
    def cell(self, size=3, prepare=lambda cell: None, signed=False):
        """prepare: what is done to the cell before its start; signed: users' tokens are."""
        with contextlib.ExitStack() as stack:
            own = stack.enter_context(mutual()).use("root", clients="guest") if self.name != "plain" else None
            flags = FLAGS + (own.flags() if own else []) + (own.signs_tokens() if own and signed else [])
            cell = stack.enter_context(cells.Cell(self.server, size, flags, start=False, tls=own))
            prepare(cell)
            cell.start()
            if self.name == "users":
                add_users(cell)
                log_in("tester")
            yield cell


def each_way(own=False, **kwargs):
    """As @test, for each way; without --full only with all that guards a cell."""
    def register(function):
        for name in WAYS:
            def told(server, name=name):
                function(Way(name, server))
            told.__module__, told.__name__ = function.__module__, f"{function.__name__}.{name}"
            test(own=own, full=name != "users", **kwargs)(told)
        return function
    return register
