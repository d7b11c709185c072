"""run.py [--minutes N | --seconds N] [--seed N] [--size N] [--server PATH]: a cell of real processes, tortured under load, and its clients' histories checked.

Each replica is in a network namespace of its own (root; otherwise on loopback, see net.py). Clients write, read, lock, watch and renew all the while, and keep
book of every call; faults.py does the harm. Afterwards check.py says whether all that the clients saw can have been. Ends with status 1 if not, and keeps
the replicas' logs. A seed chooses the faults and what clients do; what threads and processes make of it differs from run to run.
"""
import argparse
import collections
import os
import pathlib
import shutil
import sys
import tempfile
import time

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent / "lib"), str(HERE.parent / "integration")]
os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")
os.environ.setdefault("GRPC_VERBOSITY", "NONE")
import cells  # noqa: E402
import net  # noqa: E402


def options():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--minutes", type=float)
    parser.add_argument("--seconds", type=float)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--size", type=int, default=5)
    parser.add_argument("--server", default=str(cells.TOP / "build" / "server" / "holdfastd"))
    parser.add_argument("--only", help="faults whose names contain one of these, separated by commas")
    args = parser.parse_args()
    args.seconds = args.seconds or 60 * (args.minutes or 1)
    return args


def found(world, counters):
    """All violations, as texts."""
    import check
    history, writes = collections.defaultdict(list), collections.defaultdict(dict)
    for c in world.registers:
        for key, op in c.ops:
            history[key].append(op)
        for key, revision, value in c.acked:
            writes[key][revision] = value
    holds = [h for c in world.lockers for h in c.holds]
    ends = {}
    for w in world.watchers:
        for at, when in w.ends.items():
            ends[at] = min(when, ends.get(at, when))
    answers = [a for c in world.clients for a in c.answers]
    out = [*world.surprises, *check.check_registers(history), *check.check_leases(world.leases), *check.check_holders(holds, world.leases),
           *check.check_tokens(holds), *check.check_ends(holds, world.leases, ends), *check.check_revisions(answers),
           *check.check_watches([w.watched for w in world.watchers], writes), *check.check_once(counters)]
    calls = sum(c.count for c in world.clients)
    print(f"TOTAL {calls} calls, {sum(c.unsure for c in world.clients)} of unknown outcome; {len(history)} keys, {sum(map(len, writes.values()))} acknowledged writes; "
          f"{len(holds)} grants, {sum(c.expired for c in world.lockers)} holders that fell silent; {len(world.leases)} leases, "
          f"{sum(len(lease.renewals) for lease in world.leases.values())} keep-alives; {sum(len(w.watched.events) for w in world.watchers)} events, "
          f"{sum(len(w.watched.gaps) for w in world.watchers)} gaps told; {sum(a for _, a, _, _ in counters)} requests with an ID", flush=True)
    if min(sum(map(len, writes.values())), len(holds), len(ends), sum(a for _, a, _, _ in counters)) < 10:
        out.append("too little happened: such a run proves nothing")
    return out


def versions(world):
    """(name, acknowledged, asked, version) of each counter."""
    from kit import Client, insist
    with Client(world.cell.replicas[0]) as c:
        def version(key):
            kv = insist(lambda: c.get(key.encode()))
            return kv.version if kv else 0
        return [(key, acked, asked, version(key)) for counter in world.counters for key, acked, asked in counter.done]


def torture(args):
    import faults
    import load
    from kit import Client, insist, same_everywhere
    with net.Cell(args.server, args.size, ["--snapshot-count", "150"]) as cell:
        cell.start()
        world = load.World(cell, args.seed)
        world.start()
        nemesis = faults.Faults(world, args.seed, args.seconds)
        if args.only:
            nemesis.kinds = [k for k in nemesis.kinds if any(w in k.__name__ for w in args.only.split(","))]
        nemesis.start()
        nemesis.join(args.seconds + 120)
        wrong = [nemesis.failure] if nemesis.failure else ["the faults do not end"] if nemesis.is_alive() else []
        world.finish()
        if not wrong:
            with Client(cell.replicas[0]) as c:
                world.finish_watchers(insist(lambda: c.range(key=b"x")).header.revision)
            same_everywhere(cell)
        print(f"TOTAL faults: {', '.join(f'{n} {k}' for k, n in sorted(nemesis.done.items()))}; {cell.network.count()}; "
              f"all served again {nemesis.slowest:.1f} s after a fault at the latest", flush=True)
        wrong += found(world, versions(world) if not wrong else [])
        if wrong:
            kept = tempfile.mkdtemp(prefix="holdfast-torture-")
            for r in cell.replicas:
                if r.log_path.exists():
                    shutil.copy(r.log_path, kept)
            print(f"logs: {kept}")
        return wrong


def main():
    args = options()
    net.enter()
    print(f"torture of {args.size} replicas, {args.seconds:g} s, seed {args.seed}", flush=True)
    wrong = torture(args)
    for text in wrong[:20]:
        print(f"FAIL {text}", flush=True)
    print(f"{'wrong' if wrong else 'ok'}: {len(wrong)} violations", flush=True)
    sys.stdout.flush()
    os._exit(1 if wrong else 0)  # threads of the library may still hold a lock


if __name__ == "__main__":
    main()
