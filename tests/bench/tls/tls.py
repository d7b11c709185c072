"""tls.py: what TLS costs: one replica that listens both ways, driven over plain connections and over mutual TLS in turn.

Load and server share the machine, and the load pays for its side of TLS too. Rates vary with everything else that runs; so what counts is the server's CPU per operation, in seconds per 10,000,
and its ratio, plain to TLS.

    tests/bench/tls/tls.py [--server PATH] [--rounds N] [--seconds N] [OPERATION]...
"""
import argparse
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile

TOP = pathlib.Path(__file__).resolve().parents[3]
sys.path[:0] = [str(TOP / "tests" / "lib"), str(TOP / "tests" / "e2e")]
import cells  # noqa: E402
import clients  # noqa: E402
import pki  # noqa: E402


def cpu_s(process):
    with open(f"/proc/{process.pid}/stat", encoding="ascii") as f:
        fields = f.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("operations", nargs="*", default=["put", "get", "keepalive"])
    parser.add_argument("--server", default=str(TOP / "build" / "server" / "holdfastd"))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=int, default=3)
    args = parser.parse_args()
    load = clients.go_build("bench-load", [pathlib.Path(__file__).with_name("load.go")])
    with tempfile.TemporaryDirectory() as folder:
        own = pki.Pki(folder).cert("server").cert("peer").cert("load").use("load")
        with cells.Cell(args.server, 1, own.flags(), start=False, tls=own) as cell:
            replica, plain = cell.replicas[0], f"127.0.0.1:{cells.free_port()}"
            replica.flags = ["--listen-client-urls", f"{replica.url},http://{plain}"]
            cell.start()
            without = {k: v for k, v in os.environ.items() if not k.startswith("TEST_TLS")}
            for op in args.operations:
                rates, costs = {"plain": [], "tls": []}, {"plain": [], "tls": []}
                for _ in range(args.rounds):
                    for kind, endpoint, env in (("plain", plain, without), ("tls", replica.endpoint, os.environ)):
                        before = cpu_s(replica.process)
                        rate = float(subprocess.run([load, endpoint, op, "100", "10", str(args.seconds)], env=env, check=True, capture_output=True, text=True).stdout)
                        rates[kind].append(rate)
                        costs[kind].append((cpu_s(replica.process) - before) / (rate * args.seconds) * 1e4)
                rate = {k: statistics.median(v) for k, v in rates.items()}
                cost = {k: statistics.median(v) for k, v in costs.items()}
                print(f"{op}: plain {rate['plain']:.0f}/s, TLS {rate['tls']:.0f}/s, ratio {rate['tls'] / rate['plain']:.2f}; server CPU s per 10,000: "
                      f"{cost['plain']:.3f}, {cost['tls']:.3f}, ratio {cost['plain'] / cost['tls']:.2f}", flush=True)


if __name__ == "__main__":
    main()
