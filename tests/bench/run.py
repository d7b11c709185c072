"""run.py [--server PATH] [--quick] KIND...: figures, by real processes and the load of tests/bench/load (Go). See scripts/bench."""
import argparse
import json
import os
import pathlib
import subprocess
import sys
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "torture"), str(HERE.parent / "lib"), str(HERE.parent / "integration")]
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import cells  # noqa: E402
import net  # noqa: E402

LOAD = cells.TOP / "build" / "bench" / "load"


class Load:
    """A load process: lines of JSON out, words in."""

    def __init__(self, replicas, *args):
        endpoints = ",".join(r.endpoint for r in replicas)
        self.process = cells.spawn([LOAD, "-ep", endpoints, *args], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def line(self):
        text = self.process.stdout.readline()
        assert text, f"the load ended with status {self.process.wait()}"
        return json.loads(text)

    def say(self, word):
        self.process.stdin.write(word + "\n")
        self.process.stdin.flush()

    def ask(self, word):
        self.say(word)
        return self.line()

    def end(self):
        self.process.stdin.close()
        cells.end(self.process, timeout=30)

    def cpu(self):
        return cpu_seconds(self.process.pid)


def cpu_seconds(pid):
    with open(f"/proc/{pid}/stat", encoding="ascii") as f:
        fields = f.read().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def cell_cpu(cell):
    return {r.name: cpu_seconds(r.process.pid) for r in cell.running()}


def machine():
    """Seconds so far that all cores together were idle, waited for the disk, and were taken away by the host."""
    with open("/proc/stat", encoding="ascii") as f:
        t = [int(x) / os.sysconf("SC_CLK_TCK") for x in f.readline().split()[1:]]
    return {"idle": t[3], "iowait": t[4], "stolen": t[7]}


def percentile(values, p):
    values = sorted(values)
    return values[min(len(values) - 1, int(len(values) * p))]


def say(what, **figures):
    print(f"{what}: " + ", ".join(f"{k} {v:.2f}" if isinstance(v, float) else f"{k} {v}" for k, v in figures.items()), flush=True)


def term(cell):
    from kit import Client
    with Client(cell.leader()) as c:
        return c.status().raftTerm


def main():
    import failover
    import headline
    import library
    import limits
    import locks
    kinds = {"locks": locks.run, "failover": failover.run, "watches": failover.watches, "expiry": limits.expiry, "overload": limits.overload, "headline": headline.run,
             "cached": library.caches, "clients": library.losses}
    parser = argparse.ArgumentParser()
    parser.add_argument("kinds", nargs="+", choices=kinds)
    parser.add_argument("--server", default=str(cells.TOP / "build" / "server" / "holdfastd"))
    parser.add_argument("--quick", action="store_true")
    args = parser.parse_args()
    net.enter()
    with open("/proc/loadavg", encoding="ascii") as f:
        say("this machine", cores=os.cpu_count(), load=f.read().split()[0], at=time.strftime("%Y-%m-%d %H:%M"))
    for kind in args.kinds:
        kinds[kind](args)
    sys.stdout.flush()
    os._exit(0)  # threads of the library may still hold a lock


if __name__ == "__main__":
    sys.modules["run"] = sys.modules["__main__"]
    main()
