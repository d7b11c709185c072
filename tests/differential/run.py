"""run.py: the same random requests to stock etcd and to Holdfast, every answer compared.

Each request of KV and Lease goes to an etcd of one node and to Holdfast cells of one and of three replicas, where each goes to a
replica picked at random. Replies (but for what cells cannot share, see compare.py), error codes and error texts must be the same.
With --full 100,000 requests. A difference names its seed and the number of the request: run again with --seed and a large enough --ops.
"""
import argparse
import collections
import os
import pathlib
import sys
import time

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib")]
import cells  # noqa: E402

cells.stubs()
import grpc  # noqa: E402
from etcd import rpc_pb2, rpc_pb2_grpc  # noqa: E402

import compare  # noqa: E402
import known  # noqa: E402
import steps  # noqa: E402

ORACLE = "/usr/bin/etcd"
PER_SEED = 1500
LEAST_PER_METHOD = 300
DIFFERENCES_SHOWN = 12
TIMEOUT_S = 20


class Target:
    """One cell, and a channel to each of its replicas."""

    def __init__(self, name, server, size):
        self.name = name
        self.cell = cells.Cell(server, size)
        options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
        self.channels = [grpc.insecure_channel(r.endpoint, options) for r in self.cell.replicas]
        self.kv = [rpc_pb2_grpc.KVStub(c) for c in self.channels]
        self.lease = [rpc_pb2_grpc.LeaseStub(c) for c in self.channels]
        self.last_asked = self.last_writer = 0

    def begin(self, step, rng):
        at = rng.randrange(len(self.channels))
        # A serializable read may be behind, unless it is asked where the last write was carried out.
        if step.method in ("Range", "Txn"):
            if "serializable: true" in str(step.requests[0])[:100000]:
                at = self.last_writer
        self.last_asked = at
        stub = (self.lease if step.method.startswith("Lease") else self.kv)[at]
        method = getattr(stub, step.method)
        if step.method == "LeaseKeepAlive":
            return method(iter(step.requests), timeout=TIMEOUT_S)
        return method.future(step.requests[0], timeout=TIMEOUT_S)

    def finish(self, step, call):
        try:
            replies = list(call) if step.method == "LeaseKeepAlive" else [call.result()]
        except grpc.RpcError as e:
            return compare.Outcome(e.code().name, e.details(), [])
        if step.method in ("Put", "DeleteRange", "Txn", "Compact", "LeaseRevoke"):
            self.last_writer = self.last_asked
        return compare.Outcome("OK", "", replies)

    def revoke(self, lease):
        self.lease[0].LeaseRevoke(rpc_pb2.LeaseRevokeRequest(ID=lease), timeout=TIMEOUT_S)

    def close(self):
        for c in self.channels:
            c.close()
        self.cell.close()


class OracleDied(Exception):
    """Stock etcd ended with a panic: nothing to compare with any more, and no fault of ours."""


class Totals:
    def __init__(self):
        self.methods = collections.Counter()
        self.errors = collections.Counter()
        self.known = collections.Counter()
        self.differences = []
        self.steps = 0

    def count(self, step, outcome):
        self.steps += 1
        self.methods[step.method] += 1
        if outcome.code != "OK":
            self.errors[f"{outcome.code} {outcome.text}"] += 1


def short(step):
    return " | ".join(str(r).replace("\n", " ")[:1500] for r in step.requests)


def one_step(step, targets, maker, totals, where):
    """Returns whether the targets still agree."""
    if step.only_subjects and targets[1].cell.server == ORACLE:
        return True  # etcd against itself: to try out this program
    asked = targets if not step.only_subjects else targets[1:]
    calls = [(t, t.begin(step, maker.rng)) for t in asked]
    outcomes = [(t, t.finish(step, c)) for t, c in calls]
    if step.revoke_after:
        for t, o in outcomes:
            if o.code == "OK":
                t.revoke(o.replies[0].ID)
    if step.only_subjects:
        wanted = compare.Outcome(*step.only_subjects, [])
    else:
        wanted = outcomes.pop(0)[1]
        if not targets[0].cell.replicas[0].running():
            raise OracleDied(f"{where}: the oracle did not survive {step.method} {short(step)}")
        maker.learn(step, wanted)
    totals.count(step, wanted)
    agree = True
    for t, o in outcomes:
        if compare.same(step, compare.canonical(step, wanted), compare.canonical(step, o)):
            continue
        name = known.explain(step, wanted, o)
        if name:
            totals.known[name] += 1
            continue
        agree = False
        totals.differences.append((where, t.name, step, wanted, o))
    return agree


def states_agree(targets):
    """After a difference: whether it was one of words only."""
    everything = rpc_pb2.RangeRequest(key=b"\0", range_end=b"\0")
    seen = set()
    for t in targets:
        reply = t.kv[0].Range(everything, timeout=TIMEOUT_S)
        leases = sorted(l.ID for l in t.lease[0].LeaseLeases(rpc_pb2.LeaseLeasesRequest(), timeout=TIMEOUT_S).leases)
        seen.add((reply.header.revision, tuple(leases), tuple(kv.SerializeToString(deterministic=True) for kv in reply.kvs)))
    return len(seen) == 1


def one_seed(seed, ops, server, totals, last):
    targets = [Target("etcd", ORACLE, 1), Target("holdfast of 1", server, 1)]
    if server != ORACLE:  # three stock replicas part from one another: 3.4 applies some failing transactions on some of them
        targets.append(Target("holdfast of 3", server, 3))
    try:
        maker = steps.Maker(rpc_pb2, seed)
        done = 0
        while True:
            method = None
            if done >= ops and not maker.queue:
                # What chance has left short is made up for at the very end.
                rare = [m for m in steps.METHODS if totals.methods[m] < LEAST_PER_METHOD] if last else []
                if not rare:
                    break
                method = rare[0]
            step = maker.step(method)
            done += 1
            if not one_step(step, targets, maker, totals, f"seed {seed} request {done}"):
                if not states_agree(targets):
                    print(f"seed {seed}: the states part at request {done}; the rest of this seed is left out", flush=True)
                    break
                if len(totals.differences) > 200:
                    break
    except OracleDied as e:
        print(f"{e}; the rest of this seed is left out", flush=True)
    finally:
        for t in targets:
            t.close()


def print_differences(totals):
    shown = set()
    for where, name, step, wanted, got in totals.differences:
        kind = (step.method, wanted.code, wanted.text, got.code, got.text)
        if kind in shown:
            continue
        shown.add(kind)
        if len(shown) <= DIFFERENCES_SHOWN:
            print(f"FAIL {step.method}: {name} answers otherwise ({where}); wanted {wanted.code} {wanted.text!r}, got {got.code} {got.text!r}")
            print(f"     request {short(step)}\n     etcd     {wanted}\n     {name} {got}")
    if len(shown) > DIFFERENCES_SHOWN:
        print(f"     and {len(shown) - DIFFERENCES_SHOWN} kinds more")
    return len(shown)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--server", default=str(cells.TOP / "build" / "server" / "holdfastd"))
    parser.add_argument("--seed", type=int, help="only this one")
    parser.add_argument("--ops", type=int, help="requests in all (6,000; with --full 100,000)")
    parser.add_argument("--full", action="store_true")
    args = parser.parse_args()
    ops = args.ops or (100_000 if args.full else 6_000)
    first = args.seed if args.seed is not None else int(time.time())
    per_seed = ops if args.seed is not None else min(ops, PER_SEED * (4 if args.full else 1))
    seeds = range(first, first + -(-ops // per_seed))
    totals = Totals()
    began = time.monotonic()
    for seed in seeds:
        one_seed(seed, per_seed, args.server, totals, last=seed == seeds[-1] and ops >= 6000)
    print(f"TOTAL {totals.steps} requests in {time.monotonic() - began:.0f} s, seeds {seeds[0]}..{seeds[-1]}")
    print("TOTAL by method: " + ", ".join(f"{m} {totals.methods[m]}" for m in steps.METHODS))
    for text, n in sorted(totals.errors.items()):
        print(f"      {n:6} {text}")
    for name, reason, _ in known.KNOWN:
        print(f"      known: {name} ({totals.known[name]} times): {reason}")
    failed = print_differences(totals)
    if ops >= 6000:
        for m in steps.METHODS:
            if totals.methods[m] < LEAST_PER_METHOD and not failed:
                print(f"FAIL {m}: only {totals.methods[m]} requests, {LEAST_PER_METHOD} wanted")
                failed += 1
    parted = {step.method for _, _, step, _, _ in totals.differences}
    print(f"COUNT {len([m for m in steps.METHODS if totals.methods[m] and m not in parted])} {failed}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
