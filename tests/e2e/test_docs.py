"""The pages docs/shell.md and docs/clients.md: every block is run, and what the page says comes out is compared with what does.

shell.md is a conversation of terminals. A block `sh` is typed into the first terminal, `sh terminal=2` into the second (whose running command is interrupted first,
as a person would). The block `text` or `json` after it is what that terminal prints since the last one that was compared; `…` stands for anything. `sh retry`: what it
prints may take a moment to come true, so it is typed again until it does. clients.md has whole programs, run by the language of their block, and blocks `sh` that
prepare for them.
"""
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import tempfile
import threading
import time

import cells
from clients import BUILT, go_env, node_modules
from runner import test

DOCS = cells.TOP / "docs"
ADDRESS = "127.0.0.1:2379"


class Block:
    def __init__(self, line, info, text):
        words = info.split()
        self.line, self.text = line, text
        self.language = words[0] if words else ""
        self.retry = "retry" in words
        self.terminal = next((w.partition("=")[2] for w in words if w.startswith("terminal=")), "1")
        self.file = next((w.partition("=")[2] for w in words if w.startswith("file=")), None)


def blocks(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    found = []
    for m in re.finditer(r"^```([^\n]*)\n(.*?)^```$", text, re.M | re.S):
        found.append(Block(text.count("\n", 0, m.start()) + 1, m[1], m[2]))
    return found


def matches(want, got):
    pattern = ".*?".join(re.escape(part) for part in want.strip().split("…"))
    return re.fullmatch(pattern, got.strip(), re.S) is not None


class Terminal:
    """A bash that is typed into. What it prints, errors included, is kept."""

    def __init__(self, folder):
        self.read_to = 0
        self.text = ""
        self._changed = threading.Condition()
        self.process = cells.spawn(["bash"], cwd=folder, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, start_new_session=True)
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self):
        while True:
            data = os.read(self.process.stdout.fileno(), 65536)
            with self._changed:
                self.text += data.decode(errors="replace")
                self._changed.notify_all()
            if not data:
                return

    def type(self, text):
        self.process.stdin.write(text.encode() + b"\n")
        self.process.stdin.flush()

    def wait(self, condition, timeout):
        """condition is of what was printed since the last comparison."""
        with self._changed:
            return self._changed.wait_for(lambda: condition(self.text[self.read_to:]), timeout)

    def run(self, text, timeout=30):
        """Types, and returns what came out when it is done."""
        mark = f"--done-{time.monotonic_ns()}--"
        self.type(text + f"\necho; echo {mark}")
        assert self.wait(lambda new: mark in new, timeout), f"not done within {timeout} s: {text}\nit printed: {self.text[self.read_to:]}"
        with self._changed:
            new, _, _ = self.text[self.read_to:].partition(mark)
            self.read_to = self.text.index(mark, self.read_to) + len(mark)
        return new

    def interrupt(self):
        """Ctrl-C for what runs in it."""
        children = subprocess.run(["pgrep", "-P", str(self.process.pid)], capture_output=True, text=True, check=False).stdout.split()
        for pid in children:
            os.kill(int(pid), signal.SIGINT)

    def settle(self):
        with self._changed:
            self.read_to = len(self.text)

    def close(self):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


@test(own=True)
def shell_page(server):
    page = blocks("shell.md")
    assert len([b for b in page if b.language == "sh"]) > 20
    with cells.Cell(server, 1) as cell, tempfile.TemporaryDirectory(prefix="holdfast-page-") as folder:
        terminals = {}
        at = 0
        try:
            while at < len(page):
                block = page[at]
                at += 1
                if block.terminal not in terminals:
                    terminals[block.terminal] = Terminal(folder)
                terminal = terminals[block.terminal]
                if block.language != "sh":
                    # Of the second terminal, whose command goes on.
                    assert terminal.wait(lambda new, b=block: matches(b.text, new), 10), f"shell.md:{block.line}: printed is\n{terminal.text[terminal.read_to:]}"
                    terminal.settle()
                    continue
                text = block.text.replace(ADDRESS, cell.replicas[0].endpoint)
                want = page[at] if at < len(page) and page[at].language != "sh" and page[at].terminal == block.terminal else None
                if block.terminal != "1":
                    terminal.interrupt()
                    terminal.run(":")
                    terminal.type(text)
                    continue
                deadline = time.monotonic() + 10
                while True:
                    got = terminal.run(text)
                    if want is None or matches(want.text, got) or not block.retry or time.monotonic() > deadline:
                        break
                    time.sleep(0.05)
                if want is None:
                    assert not got.strip(), f"shell.md:{block.line}: nothing is said to come out, but\n{got}"
                else:
                    assert matches(want.text, got), f"shell.md:{want.line}: printed is\n{got}"
                    at += 1
        finally:
            for t in terminals.values():
                t.close()


def _run(args, folder, env=None, timeout=60):
    done = subprocess.run([str(a) for a in args], cwd=folder, env=env, text=True, capture_output=True, timeout=timeout, stdin=subprocess.DEVNULL, check=False)
    assert done.returncode == 0, f"{args} ended with {done.returncode}:\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _go(source, folder):
    program = folder / "program"
    BUILT.mkdir(parents=True, exist_ok=True)
    _run(["go", "build", "-o", program, source], folder, go_env(), 200)
    return _run([program], folder)


RUN = {
    "python": lambda source, folder: _run(["/usr/bin/python3", source], folder),
    "js": lambda source, folder: _run(["node", source], folder, dict(os.environ, NODE_PATH=str(node_modules()))),
    "go": _go,
    "sh": lambda source, folder: _run(["bash", "-e", source], folder),
}


@test(timeout=300, own=True)
def clients_page(server):
    """Each program on a cell of its own, so that each stands alone as it does for its reader."""
    page = blocks("clients.md")
    programs = 0
    with tempfile.TemporaryDirectory(prefix="holdfast-page-") as name:
        folder = pathlib.Path(name)
        shutil.copytree(cells.TOP / "api" / "proto", folder / "api" / "proto")
        for at, block in enumerate(page):
            if block.language not in RUN:
                continue
            with cells.Cell(server, 1) as cell:
                source = folder / (block.file or f"program.{block.language}")
                source.write_text(block.text.replace(ADDRESS, cell.replicas[0].endpoint).replace("2379", str(cell.replicas[0].client_port)), encoding="utf-8")
                got = RUN[block.language](source, folder)
                want = page[at + 1].text if at + 1 < len(page) and page[at + 1].language == "text" else ""
                assert matches(want, got), f"clients.md:{block.line}: printed is\n{got}"
                programs += block.language != "sh"
    assert programs >= 6, f"only {programs} programs"
