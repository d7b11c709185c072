"""A cell of three with authentication on, and everybody's clients in it: etcdctl, curl, Go's, Python's, npm's, holdfastctl. What they do when they may, and
what they say when they may not."""
import base64
import os
import subprocess

import cells
from clients import b64, call, curl, etcdctl, go_talk, node_talk, python_talk
from guarded import FLAGS, USERS, guarded, log_in, mutual
from runner import test

BUILD = 240  # seconds; the first test compiles, or installs npm's packages


@test(own=True)
def etcdctl_and_curl(server):
    with cells.Cell(server, 3, flags=FLAGS) as cell:
        for user, _, _ in USERS:
            assert etcdctl(cell, "user", "add", f"{user}:{user}-pw") == f"User {user} created\n"
        for role in ("root", "all", "a"):
            etcdctl(cell, "role", "add", role)
        etcdctl(cell, "role", "grant-permission", "all", "readwrite", "", "--from-key")
        etcdctl(cell, "role", "grant-permission", "a", "read", "a/", "--prefix")
        for user, role, _ in USERS:
            etcdctl(cell, "user", "grant-role", user, role)
        assert etcdctl(cell, "auth", "enable") == "Authentication Enabled\n"
        assert etcdctl(cell, "--user", "tester:tester-pw", "put", "a/1", "x") == "OK\n"
        assert etcdctl(cell, "--user", "reader", "--password", "reader-pw", "get", "a/", "--prefix") == "a/1\nx\n"
        for args, said in ((["put", "a/1", "y"], "permission denied"), (["get", "b"], "permission denied"), (["del", "a/1"], "permission denied"),
                           (["user", "list"], "permission denied"), (["member", "add", "x", "--peer-urls=http://127.0.0.1:1"], "permission denied"),
                           (["compaction", "1"], "permission denied"), (["lock", "a/l", "true"], "permission denied")):
            code, text = etcdctl(cell, "--user", "reader:reader-pw", *args, ok=False)
            assert code != 0 and said in text, (args, text)
        code, text = etcdctl(cell, "get", "a/1", ok=False)
        assert code != 0 and "user name is empty" in text, text
        code, text = etcdctl(cell, "--user", "reader:wrong", "get", "a/1", ok=False)
        assert code != 0 and "authentication failed, invalid user ID or password" in text, text
        assert etcdctl(cell, "--user", "reader:reader-pw", "user", "get", "reader") == "User: reader\nRoles: a\n"
        assert "[a/, a0) (prefix a/)" in etcdctl(cell, "--user", "root:root-pw", "role", "get", "a")
        assert etcdctl(cell, "--user", "tester:tester-pw", "lock", "job", "echo", "held") == "held\n"
        token = call(cell.replicas[0], "/auth/authenticate", {"name": "reader", "password": "reader-pw"})["token"]
        for replica in cell.replicas:
            done = subprocess.run(["curl", "-s", "-H", f"Authorization: {token}", f"{replica.url}/v3/kv/range", "-d", '{"key":"%s"}' % b64("a/1")],
                                  text=True, capture_output=True, check=True, timeout=10)
            assert base64.b64encode(b"x").decode() in done.stdout, done.stdout
            status, text = curl(replica, "/v3/kv/range", {"key": b64("a/1")})
            assert status == 400 and "user name is empty" in text, text
        assert etcdctl(cell, "--user", "root:root-pw", "auth", "disable") == "Authentication Disabled\n"
        assert etcdctl(cell, "get", "a/1") == "a/1\nx\n"


@test(own=True)
def a_certificate_says_who_it_is(server):
    with mutual() as own, guarded(server, own) as cell:
        own.use("tester")
        assert etcdctl(cell, "put", "a/1", "x") == "OK\n"
        assert call(cell.replicas[1], "/kv/range", {"key": b64("a/1")})["count"] == "1"
        own.use("reader")
        assert etcdctl(cell, "get", "a/1") == "a/1\nx\n"
        assert curl(cell.replicas[1], "/v3/kv/put", {"key": b64("a/1")})[0] == 403
        code, text = etcdctl(cell, "put", "a/1", "y", ok=False)
        assert code != 0 and "permission denied" in text, text
        assert etcdctl(cell, "--user", "tester:tester-pw", "put", "a/1", "y") == "OK\n"  # a token goes before a certificate
        own.use("guest")
        code, text = etcdctl(cell, "get", "a/1", ok=False)
        assert code != 0 and "permission denied" in text, text


@test(timeout=BUILD, own=True)
def go(server):
    with mutual() as own, guarded(server, own) as cell:
        log_in("root")  # it compacts
        with go_talk(cell, "kv") as talk:
            talk.expect("kv fine, 3 members", 30)
            talk.wait()
        log_in("reader")
        with go_talk(cell, "kv") as talk:
            talk.expect("permission denied", 30)


@test(own=True)
def python(server):
    with mutual() as own, guarded(server, own) as cell:
        for i, (client, story) in enumerate((("etcd3gw", "kv"), ("etcd3gw", "leases"), ("etcd3gw", "lock"), ("etcd3", "kv"), ("etcd3", "leases"), ("etcd3", "watch"),
                                             ("etcd3", "lock"))):
            log_in("root" if (client, story) in (("etcd3gw", "kv"), ("etcd3", "watch")) else "tester")  # one asks for the status, the other compacts
            with python_talk(f"{client}_client.py", cell.replicas[i % 3].client_port, story) as talk:
                talk.expect(f"{story} fine", 30)
                talk.wait()
        log_in("reader")
        for client in ("etcd3", "etcd3gw"):
            with python_talk(f"{client}_client.py", cell.replicas[1].client_port, "kv") as talk:
                talk.expect("permission denied|Forbidden", 30)


@test(timeout=BUILD, own=True)
def node(server):
    with mutual() as own, guarded(server, own) as cell:
        for story in ("lock", "kv"):
            log_in("root" if story == "kv" else "tester")
            with node_talk(cell, "client.js", story) as talk:
                talk.expect(f"{story} fine", 30)
        log_in("reader")
        with node_talk(cell, "client.js", "kv") as talk:
            talk.expect("permission denied|PermissionDenied", 30)


@test(own=True)
def holdfastctl(server):
    ctl = cells.TOP / "build" / "client-c" / "holdfastctl"

    def run(*args, user=None, given=""):
        env = dict(os.environ, HOLDFAST_ENDPOINTS=cell.endpoints, **({"HOLDFAST_USER": user, "HOLDFAST_PASSWORD": f"{user}-pw"} if user else {}))
        done = subprocess.run([ctl, *args], env=env, input=given, text=True, capture_output=True, timeout=30, check=False)
        return done.returncode, done.stdout, done.stderr

    with guarded(server) as cell:
        assert run("put", "a/1", "x", user="tester")[:2] == (0, "OK\n")
        code, _, said = run("put", "a/1", "x", user="reader")
        assert code == 1 and said.endswith("etcdserver: permission denied\n"), said
        code, _, said = run("get", "a/1", "--user", "reader:wrong")
        assert code == 1 and "cannot log in as 'reader'" in said, said
        assert run("user", "add", "new", user="root", given="a-Password\n")[:2] == (0, "User new created\n")
        assert run("user", "grant-role", "new", "a", user="root")[0] == 0
        assert run("get", "a/1", "--user", "new:a-Password")[:2] == (0, "a/1\nx\n")
        assert run("role", "get", "a", user="root")[1] == "Role a\nKV Read:\n\t[a/, a0)\nKV Write:\n"
        assert run("auth", "status", user="root")[1].startswith("Authentication Status: true\n")
        assert run("lock", "job", "--", "sh", "-c", "echo held", user="tester")[:2] == (0, "held\n")
        assert run("lock", "a/job", "--", "true", user="reader")[0] == 125
        assert run("user", "passwd", "new", user="root", given="another\n")[0] == 0
        assert run("get", "a/1", "--user", "new:a-Password")[0] == 1
        assert run("user", "delete", "new", user="root")[1] == "User new deleted\n"
