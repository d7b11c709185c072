"""runner.py: runs test functions, each in a process of its own, two at a time.

A test is a function that carries the decorator @test, in a module test_*.py beside the program that calls main(). It gets the
path of the server under test and passes when it returns. A process a test: what one leaves behind (threads, channels, a hung
call) cannot touch the next, and a test that hangs can be ended with all that it started.

One line a test with its time; a failure is FAIL NAME: REASON, with the traceback and everything that the test wrote after the
last line of all tests. The very last line is "COUNT passed failed".
"""
import argparse
import contextlib
import importlib
import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
import traceback

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import cells  # noqa: E402

AT_ONCE = 2
SKIPPED = 77
_tests = {}


def test(timeout=90, own=False, full=False):
    """own: of something that stock etcd does not have or does wrong: left out when that is the server. full: only with --full."""
    def register(function):
        name = f"{function.__module__.removeprefix('test_')}.{function.__name__}"
        _tests[name] = function
        function.timeout, function.own, function.full = timeout, own, full
        return function
    return register


def skip(reason):
    print(reason, flush=True)
    sys.exit(SKIPPED)


def is_full():
    return os.environ.get("HOLDFAST_TEST_FULL") == "1"


def _run_here(name, server):
    """The inside of a test's process. The last line that starts with REASON is what the outside tells."""
    signal.signal(signal.SIGINT, signal.default_int_handler)  # whoever runs in the background ignores it, and so would all that is started here
    signal.signal(signal.SIGHUP, signal.SIG_DFL)  # by nohup as well
    try:
        _tests[name](server)
    except Exception as e:  # noqa: BLE001: whatever it was, the test has failed
        traceback.print_exc()
        print(f"REASON {type(e).__name__}: {e}".splitlines()[0], flush=True)
        return 1
    return 0


class Run:
    def __init__(self, program, name, server):
        self.name = name
        self.began = time.monotonic()
        self.output = tempfile.TemporaryFile()
        self.process = subprocess.Popen([sys.executable, program, "--inside", name, "--server", server], stdin=subprocess.DEVNULL,
                                        stdout=self.output, stderr=subprocess.STDOUT, start_new_session=True)
        self.timed_out = False
        self.took = 0.0

    def wait(self):
        limit = _tests[self.name].timeout
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.timed_out = True
            self.end()
        self.took = time.monotonic() - self.began

    def end(self):
        """Lets the test end its children; then its whole process group, in case it could not."""
        self.process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.process.wait(15)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def text(self):
        self.output.seek(0)
        return self.output.read().decode(errors="replace")

    def reason(self):
        if self.timed_out:
            return f"not over within {_tests[self.name].timeout} s"
        found = re.findall(r"^REASON (.*)", self.text(), re.M)
        return found[-1] if found else f"ended with status {self.process.returncode}"


def _run_all(names, program, server):
    waiting = list(names)
    failed, skipped, passed = [], [], []
    lock = threading.Lock()
    running = set()

    def worker():
        while True:
            with lock:
                if not waiting:
                    return
                run = Run(program, waiting.pop(0), server)
                running.add(run)
            run.wait()
            with lock:
                running.discard(run)
                status = run.process.returncode
                if status == 0 and not run.timed_out:
                    passed.append(run)
                    print(f"ok   {run.name} ({run.took:.1f} s)", flush=True)
                elif status == SKIPPED and not run.timed_out:
                    skipped.append(run)
                    print(f"skip {run.name} ({run.took:.1f} s): {run.text().strip().splitlines()[-1]}", flush=True)
                else:
                    failed.append(run)
                    print(f"FAIL {run.name}: {run.reason()} ({run.took:.1f} s)", flush=True)

    workers = [threading.Thread(target=worker, daemon=True) for _ in range(AT_ONCE)]
    try:
        for w in workers:
            w.start()
        for w in workers:
            w.join()
    except BaseException:
        waiting.clear()
        for run in list(running):
            run.end()
        raise
    for run in failed:
        print(f"\n=== {run.name}\n{run.text()[-12000:]}")
    return len(passed), len(failed)


def main(folder, default_server):
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*", help="only tests whose name contains one of these")
    parser.add_argument("--server", default=str(default_server), help="a binary that takes etcd's flags")
    parser.add_argument("--full", action="store_true", help="the long forms")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--inside", help=argparse.SUPPRESS)
    args = parser.parse_args()
    sys.path.insert(0, str(folder))
    # Set before grpc is loaded anywhere: it must not follow our children, and has nothing to say.
    os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    cells.stubs()
    for path in sorted(pathlib.Path(folder).glob("test_*.py")):
        importlib.import_module(path.stem)
    if args.inside:
        return _run_here(args.inside, args.server)
    if args.full:
        os.environ["HOLDFAST_TEST_FULL"] = "1"
    stock = pathlib.Path(args.server).name.startswith("etcd")
    names = [n for n, t in _tests.items() if (not args.names or any(a in n for a in args.names)) and not (stock and t.own)
             and (args.full or not t.full)]
    if args.list:
        print("\n".join(names))
        return 0
    if not names:
        print("no such test")
    passed, failed = _run_all(names, str(pathlib.Path(folder) / "run.py"), args.server)
    print(f"COUNT {passed} {failed if names else 1}")
    return 1 if failed or not names else 0
