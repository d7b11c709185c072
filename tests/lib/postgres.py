"""postgres.py: a real PostgreSQL of the test's own, on a unix socket in its temporary directory, and psql sessions that stay open.

The server does not run as root: then it runs as the user that Debian's package made.
"""
import os
import pathlib
import pwd
import queue
import shutil
import subprocess
import tempfile
import threading

import cells

USER = "holdfast"


def _bin():
    found = sorted(pathlib.Path("/usr/lib/postgresql").glob("*/bin/postgres"))
    assert found, "no PostgreSQL is installed"
    return found[-1].parent


class Postgres:
    def __init__(self):
        self.bin = _bin()
        self._tmp = tempfile.TemporaryDirectory(prefix="hf-pg-")
        self.dir = pathlib.Path(self._tmp.name)
        self._as = {}
        if os.geteuid() == 0:
            who = pwd.getpwnam("postgres")
            os.chown(self.dir, who.pw_uid, who.pw_gid)
            self._as = {"user": who.pw_uid, "group": who.pw_gid, "extra_groups": []}
        self.data = self.dir / "data"
        subprocess.run([str(self.bin / "initdb"), "-D", str(self.data), "-U", USER, "-A", "trust", "--no-sync", "--no-instructions", "-E", "UTF8", "--locale=C"],
                       check=True, stdout=subprocess.DEVNULL, cwd=self.dir, **self._as)
        self.log = self.dir / "log"
        with open(self.log, "wb") as log:
            self.process = cells.spawn([self.bin / "postgres", "-D", self.data, "-k", self.dir, "-c", "listen_addresses=", "-c", "fsync=off"],
                                       stdout=log, stderr=log, stdin=subprocess.DEVNULL, cwd=self.dir, **self._as)
        cells.wait_for("PostgreSQL serves", self._ready)

    def _ready(self):
        assert self.process.poll() is None, self.log.read_text()
        return subprocess.run([str(self.bin / "pg_isready"), "-q", "-h", str(self.dir), "-U", USER, "-d", "postgres"], check=False).returncode == 0

    def __enter__(self):
        return self

    def __exit__(self, *_):
        cells.end(self.process)
        shutil.rmtree(self.data, ignore_errors=True)
        self._tmp.cleanup()

    def session(self):
        return Psql(self)

    def run_file(self, path):
        subprocess.run([*self.psql_args(), "-f", str(path)], check=True, stdout=subprocess.DEVNULL)

    def psql_args(self):
        return ["psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-v", "VERBOSITY=verbose", "-h", str(self.dir), "-U", USER, "-d", "postgres"]


class SqlError(Exception):
    pass


class Psql:
    """One connection. run() waits for the answer; start() and answer() do it in two steps, for statements that wait for others."""

    def __init__(self, server):
        args = [a if a != "ON_ERROR_STOP=1" else "ON_ERROR_STOP=0" for a in server.psql_args()]
        self.process = cells.spawn(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, bufsize=1)
        self.lines = queue.Queue()
        self.marks = 0
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)

    def start(self, sql):
        self.marks += 1
        self.process.stdin.write(f"{sql};\n\\echo mark-{self.marks}\n")
        self.process.stdin.flush()

    def answer(self, timeout=20):
        """The rows as text; SqlError with the SQLSTATE in it."""
        rows = []
        while (line := self.lines.get(timeout=timeout)) != f"mark-{self.marks}":
            assert line is not None, "psql has ended"
            rows.append(line)
        errors = [r for r in rows if r.startswith("ERROR:")]
        if errors:
            raise SqlError("\n".join(rows))
        return rows

    def waits(self, seconds=0.3):
        """Nothing is answered for so long."""
        try:
            line = self.lines.get(timeout=seconds)
        except queue.Empty:
            return True
        raise AssertionError(f"did not wait: {line}")

    def run(self, sql):
        self.start(sql)
        return self.answer()
