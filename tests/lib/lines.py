"""lines.py: programs of ours that are told what to do, and say what happens, a line each."""
import os
import pathlib
import subprocess
import threading
import time

import cells


def built(server, path):
    """Beside the server that is tested, or in another build (with sanitizers, say)."""
    return pathlib.Path(os.environ.get("HOLDFAST_TEST_CLIENTS") or pathlib.Path(server).resolve().parents[1]) / path


class Lines:
    """A process that prints what happens, a line each."""

    def __init__(self, args):
        self.process = cells.spawn(args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1)
        self.lines = []
        self._changed = threading.Condition()
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        for line in self.process.stdout:
            with self._changed:
                self.lines.append(line.rstrip("\n"))
                self._changed.notify_all()
        with self._changed:
            self.lines.append(None)
            self._changed.notify_all()

    def tell(self, what):
        self.process.stdin.write(what + "\n")
        self.process.stdin.flush()

    def wait(self, start, timeout=30, since=0):
        """The first line at or behind `since` that begins so."""
        deadline = time.monotonic() + timeout
        with self._changed:
            while True:
                for line in self.lines[since:]:
                    if line is not None and line.startswith(start):
                        return line
                assert self.lines[-1:] != [None], f"ended without '{start}': {self.lines[-12:]}"
                left = deadline - time.monotonic()
                assert left > 0, f"no '{start}' within {timeout} s: {self.lines[-12:]}"
                self._changed.wait(left)

    def ask(self, what, start, timeout=30):
        since = len(self.lines)
        self.tell(what)
        return self.wait(start, timeout, since)

    def all(self, start):
        return [x for x in self.lines if x is not None and x.startswith(start)]

    def end(self):
        self.process.stdin.close()
        status = self.process.wait(60)
        cells.end(self.process)
        return status
