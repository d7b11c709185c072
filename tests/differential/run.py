#!/usr/bin/env python3
"""run.py: the same to stock etcd 3.4.23 and to Holdfast, every answer compared.

Stock etcd of one node is the oracle; the subjects are Holdfast cells of one and of three replicas. Parts, each a module with run():
kv (KV and Lease), watch, lock, election, gateway (JSON bodies), auth, members (Cluster and Maintenance). Two
requests in five go over the JSON gateway. Two parts run at a time, each in a process of its own. What is meant
to differ is in known.py, and in docs/migrating-from-etcd.md, which listed_differences.py holds alike; error_texts.py says which of etcd's errors were
reached. With --full 100,000 requests and more, over more seeds; each method 1,000 times. A difference names its seed: run that part again
with --seed, and it does the same again.
"""
import argparse
import concurrent.futures
import importlib
import os
import pathlib
import re
import subprocess
import sys
import threading
import time

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]
import cells  # noqa: E402
import error_texts  # noqa: E402
import listed_differences  # noqa: E402
import report  # noqa: E402

PARTS = {"kv": "kv", "watch": "watch", "election": "election", "lock": "lock", "gateway": "gateway_bodies", "auth": "auth", "members": "members"}
AT_ONCE = 2
LIMIT_S = 3600  # of one part, in the long form
OPERATIONS_IN_FULL = 100_000


def run_here(name, options):
    report.FULL = options.full
    options.one_seed = options.seed is not None
    options.seed = options.seed if options.one_seed else int(time.time())
    passed, failed = importlib.import_module(PARTS[name]).run(options)
    print(f"COUNT {passed} {failed}")
    return 1 if failed else 0


class Part:
    """One part in a process of its own; its output is shown when it is over."""

    def __init__(self, name, options):
        self.name = name
        self.args = [sys.executable, __file__, "--inside", name, "--server", options.server]
        self.args += ["--full"] if options.full else []
        self.args += ["--seed", options.seed] if options.seed is not None else []
        self.args += ["--ops", options.ops] if options.ops else []
        self.process = None
        self.text = ""

    def run(self):
        self.process = cells.spawn(self.args, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL, text=True)
        limit = threading.Timer(LIMIT_S, self.process.terminate)
        limit.start()
        lines = []
        for line in self.process.stdout:
            if line.startswith("PROGRESS "):
                print(line, end="", flush=True)
            else:
                lines.append(line)
        self.process.wait()
        limit.cancel()
        text = self.text = "".join(lines)
        counts = re.findall(r"^COUNT (\d+) (\d+)$", text, re.M)
        passed, failed = map(int, counts[-1]) if counts else (0, 1)
        print(re.sub(r"^COUNT .*\n", "", text, flags=re.M), end="", flush=True)
        if self.process.returncode != 0 and failed == 0 or not counts:
            print(f"FAIL {self.name}: ended with status {self.process.returncode}", flush=True)
            failed = max(failed, 1)
        return passed, failed

    def stop(self):
        if self.process and self.process.poll() is None:
            self.process.terminate()  # it ends what it started
            self.process.wait(20)


def too_few(operations, options):
    print(f"TOTAL operations: {operations}, each asked of stock etcd and of two cells")
    if options.full and not options.ops and operations < OPERATIONS_IN_FULL:
        print(f"FAIL operations: {OPERATIONS_IN_FULL} are wanted")
        return 1
    return 0


def run_all(names, options):
    cells.stubs()  # once, not by two at once
    parts = [Part(n, options) for n in names]
    pool = concurrent.futures.ThreadPoolExecutor(AT_ONCE)
    try:
        counts = list(pool.map(Part.run, parts))
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for p in parts:
            p.stop()
        raise
    passed, failed = (sum(c[i] for c in counts) for i in (0, 1))
    if len(parts) == len(PARTS):
        failed += error_texts.tell(set().union(*(error_texts.seen_in(p.text) for p in parts)), options.full)
        failed += listed_differences.check()
        failed += too_few(sum(int(n) for p in parts for n in re.findall(r"^TOTAL .*?: (\d+) requests", p.text, re.M)), options)
    print(f"COUNT {passed} {failed}")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all when none is named")
    parser.add_argument("--server", default=str(cells.TOP / "build" / "server" / "holdfastd"))
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--ops", type=int, help="how much of a part: requests (kv), rounds (watch), actions (lock, election)")
    parser.add_argument("--full", action="store_true")
    parser.add_argument("--inside", choices=PARTS, help=argparse.SUPPRESS)
    options = parser.parse_args()
    for name in options.parts:
        if name not in PARTS:
            parser.error(f"no part '{name}'; there are: {', '.join(PARTS)}")
    if options.inside:
        return run_here(options.inside, options)
    return run_all(options.parts or list(PARTS), options)


if __name__ == "__main__":
    sys.exit(main())
