"""kv.py: the same random requests of KV and Lease to all targets, one after another, each to a replica picked at random.

Replies (but for what cells cannot share, see compare.py), error codes and error texts must be the same. A difference names its seed
and the number of the request: run again with --seed and a large enough --ops.
"""
import compare
import known
import steps
import target
from etcd import rpc_pb2
from report import Report

PER_SEED = 1500
NORMAL = 3000


def short(step):
    return f"{step.method} {step.by} " + " | ".join(str(r).replace("\n", " ")[:1500] for r in step.requests)


def one_step(step, targets, maker, report, where):
    """Returns whether the targets still agree."""
    if step.only_subjects and targets[1].cell.server == target.ORACLE:
        return True  # etcd against itself: to try out this program
    asked = targets if not step.only_subjects else targets[1:]
    step.by = target.channel(maker.rng)
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
        targets[0].must_run(short(step))
        maker.learn(step, wanted)
    report.count(step.method, wanted)
    agree = True
    for t, o in outcomes:
        if compare.same(step, compare.canonical(step, wanted), compare.canonical(step, o)):
            continue
        if report.explained(step, wanted, o):
            continue
        agree = False
        report.differ(step.method, where, t, short(step), wanted, o, (wanted.code, wanted.text, o.code, o.text))
    return agree


def states_agree(targets):
    """After a difference: whether it was one of words only."""
    seen = set()
    for t in targets:
        reply = t.everything()
        leases = sorted(l.ID for l in t.lease[0].LeaseLeases(rpc_pb2.LeaseLeasesRequest(), timeout=target.TIMEOUT_S).leases)
        seen.add((reply.header.revision, tuple(leases), tuple(kv.SerializeToString(deterministic=True) for kv in reply.kvs)))
    return len(seen) == 1


def one_seed(seed, ops, server, report, last):
    targets = target.open_all(server)
    try:
        maker = steps.Maker(rpc_pb2, seed)
        done = 0
        while True:
            method = None
            if done >= ops and not maker.queue:
                # What chance has left short is made up for at the very end.
                method = report.rare() if last else None
                if not method:
                    break
            step = maker.step(method)
            done += 1
            if not one_step(step, targets, maker, report, f"seed {seed} request {done}"):
                if not states_agree(targets):
                    print(f"seed {seed}: the states part at request {done}; the rest of this seed is left out", flush=True)
                    break
                if report.had_enough():
                    break
    finally:
        target.close_all(targets)


def run(options):
    ops = options.ops or (36_000 if options.full else NORMAL)
    per_seed = ops if options.one_seed else min(ops, PER_SEED * (3 if options.full else 1))
    seeds = range(options.seed, options.seed + -(-ops // per_seed))
    report = Report("KV and Lease", steps.METHODS, known.KV)
    for seed in seeds:
        one_seed(seed, per_seed, options.server, report, last=seed == seeds[-1] and not options.ops)
    return report.finish(f"seeds {seeds[0]}..{seeds[-1]}", least=not options.ops)
