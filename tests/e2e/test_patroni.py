"""A real application: Patroni keeps PostgreSQL's leader in a cell of three, by the JSON gateway, through a switchover and, with --full, kill -9 of the
database's leader and of the cell's."""
import contextlib
import json
import os
import pathlib
import pwd
import shutil
import signal
import subprocess
import tempfile
import time

import cells
from runner import is_full, test

BIN = next(iter(sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)), None)


def as_postgres():
    """PostgreSQL refuses to run as root."""
    if os.getuid() != 0:
        return []
    pwd.getpwnam("postgres")
    return ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--"]


class Node:
    def __init__(self, cell, folder, name):
        self.name, self.folder = name, folder
        self.rest, self.port = cells.free_port(), cells.free_port()
        self.data = folder / name / "data"
        self.data.parent.mkdir()
        self.log = folder / f"{name}.log"
        self.process, self.refusal = None, None
        self.config = folder / f"{name}.yml"
        self.config.write_text(json.dumps({
            "scope": "demo", "name": name,
            "restapi": {"listen": f"127.0.0.1:{self.rest}", "connect_address": f"127.0.0.1:{self.rest}"},
            "etcd3": {"hosts": cell.endpoints},
            "bootstrap": {"dcs": {"ttl": 20, "loop_wait": 1, "retry_timeout": 3, "maximum_lag_on_failover": 1048576,
                                  "postgresql": {"use_pg_rewind": True, "parameters": {"shared_buffers": "16MB", "fsync": "off"}}},
                          "initdb": [{"encoding": "UTF8"}, "data-checksums"],
                          "pg_hba": ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]},
            "postgresql": {"listen": f"127.0.0.1:{self.port}", "connect_address": f"127.0.0.1:{self.port}", "data_dir": str(self.data), "bin_dir": str(BIN),
                           "pgpass": str(folder / name / "pgpass"), "parameters": {"unix_socket_directories": str(folder / name)},
                           "authentication": {"superuser": {"username": "postgres", "password": "p"}, "replication": {"username": "rep", "password": "p"}}},
            "watchdog": {"mode": "off"}}))

    def start(self):
        with open(self.log, "ab") as log:
            self.process = cells.spawn([*as_postgres(), shutil.which("patroni"), self.config], stdout=log, stderr=log, stdin=subprocess.DEVNULL,
                                       cwd=self.folder / self.name)

    def state(self):
        with contextlib.suppress(OSError, ValueError):
            return json.loads(cells.http(f"http://127.0.0.1:{self.rest}/patroni", timeout=2)[1])
        return {}

    def leads(self):
        s = self.state()
        return s.get("state") == "running" and s.get("role") in ("master", "primary")

    def follows(self):
        s = self.state()
        return s.get("state") == "running" and s.get("role") == "replica"

    def sql(self, text):
        p = subprocess.run([BIN / "psql", "-h", "127.0.0.1", "-p", str(self.port), "-U", "postgres", "-Atc", text], capture_output=True, text=True,
                           timeout=20, check=False)
        self.refusal = p.stderr.strip()
        return p.stdout.strip() if p.returncode == 0 else None

    def kill(self):
        """kill -9 of both, as a machine that goes away."""
        cells.end(self.process)
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)

    def stop(self):
        if self.process and self.process.poll() is None:
            cells.end(self.process, signal.SIGTERM, timeout=40)
        with contextlib.suppress(OSError, ValueError):
            os.kill(int((self.data / "postmaster.pid").read_text().split()[0]), signal.SIGKILL)


@contextlib.contextmanager
def patronis(server):
    with cells.Cell(server, 3) as cell, tempfile.TemporaryDirectory(prefix="holdfast-patroni-") as d:
        folder = pathlib.Path(d)
        nodes = [Node(cell, folder, n) for n in ("p1", "p2")]
        if os.getuid() == 0:
            who = pwd.getpwnam("postgres")
            for path in [folder, *folder.rglob("*")]:
                os.chown(path, who.pw_uid, who.pw_gid)
        try:
            yield cell, nodes
        except BaseException:
            for n in nodes:
                print(f"--- {n.name}, last refused: {n.refusal}, state: {n.state()}\n{n.log.read_text(errors='replace')[-4000:]}" if n.log.exists()
                      else f"--- {n.name}: no log", flush=True)
            raise
        finally:
            for n in nodes:
                n.stop()


@test(timeout=240)
def patroni_keeps_its_leader_here(server):
    assert shutil.which("patroni") and BIN, "patroni and postgresql are to be installed"
    with patronis(server) as (cell, (a, b)):
        a.start()
        cells.wait_for("the first leads", a.leads, 60, 0.2)
        b.start()
        cells.wait_for("the second follows", b.follows, 60, 0.2)
        assert a.sql("create table t (n int); insert into t values (1)") is not None
        cells.wait_for("the second has it", lambda: b.sql("select count(*) from t") == "1", 20, 0.2)  # what did not stream yet is lost by a switchover
        keys = cells.etcdctl(cell.endpoints, "get", "--prefix", "/service/demo/", "--keys-only").stdout
        assert "/service/demo/leader" in keys and "/service/demo/members/p2" in keys, keys
        assert cells.http(f"http://127.0.0.1:{a.rest}/switchover", {"leader": "p1", "candidate": "p2"}, timeout=60)[0] == 200
        cells.wait_for("the second leads", b.leads, 40, 0.2)
        cells.wait_for("the first follows", a.follows, 60, 0.2)
        assert cells.etcdctl(cell.endpoints, "get", "/service/demo/leader", "--print-value-only").stdout.strip() == "p2"
        assert b.sql("insert into t values (2)") is not None, b.refusal
        cells.wait_for("the first has it", lambda: a.sql("select count(*) from t") == "2", 20, 0.2)
        if not is_full():
            return
        cell.leader().kill()
        time.sleep(5)  # several rounds of Patroni's loop, in which nothing is to happen
        assert b.leads() and a.follows(), "a lost leader of the cell cost the database its own"
        b.kill()
        cells.wait_for("the first leads again", a.leads, 60, 0.2)
        assert a.sql("insert into t values (3)") is not None, a.refusal
        b.start()
        cells.wait_for("the one that was killed follows", b.follows, 60, 0.2)
        cells.wait_for("it has everything", lambda: b.sql("select count(*) from t") == "3", 20, 0.2)
        assert not a.follows() and a.leads()
