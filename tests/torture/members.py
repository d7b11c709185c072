"""members.py: changes of membership under load, as docs/operations.md has them: one that is lost is removed, a new one added as a learner, and promoted."""
import shutil
import time

import cells
import load
from etcd import rpc_pb2 as pb, rpc_pb2_grpc
from load import grpc

CHANGE_S = 30
# Not now: another change is under way, too few are heard, or the new one has not caught up.
LATER = (*load.UNSURE, "FAILED_PRECONDITION")


def ask(faults, method, request, not_here):
    """At any other replica, until it is answered. None: what was to be changed is not there (any more)."""
    deadline = time.monotonic() + CHANGE_S
    while True:
        replica = faults.rng.choice([r for r in faults.cell.running() if r is not not_here])
        try:
            return faults.ask(rpc_pb2_grpc.ClusterStub, method, request, replica)
        except grpc.RpcError as e:
            code = e.code().name
            if code == "NOT_FOUND" or "Peer URLs already exists" in e.details() or "can only promote" in e.details() and "in sync" not in e.details():
                return None
            assert code in LATER, f"{method}: {code} {e.details()}"
            assert time.monotonic() < deadline, f"{method}: still {code} {e.details()} after {CHANGE_S} s"
            time.sleep(0.1)


def member_of(faults, replica):
    found = [m for m in ask(faults, "MemberList", pb.MemberListRequest(linearizable=True), replica).members if replica.peer_url in m.peerURLs]
    return found[0] if found else None


def replace(faults):
    lost = faults.leader() if faults.rng.random() < 0.3 else faults.some(1)[0]
    lost.kill()
    shutil.rmtree(lost.data_dir)
    ask(faults, "MemberRemove", pb.MemberRemoveRequest(ID=member_of(faults, lost).ID), lost)
    ask(faults, "MemberAdd", pb.MemberAddRequest(peerURLs=[lost.peer_url], isLearner=True), lost)
    added = member_of(faults, lost)
    assert added, "a member that was added is not in the list"
    lost.joins = "existing"
    lost.start()
    if faults.rng.random() < 0.5:  # it dies with a part of its snapshot
        faults.sleep(0, 0.5)
        lost.kill()
        lost.start()
    if faults.rng.random() < 0.5:
        faults.leader().kill()
    ask(faults, "MemberPromote", pb.MemberPromoteRequest(ID=added.ID), lost)
    cells.wait_for("the new member is a voter", lambda: not member_of(faults, lost).isLearner, CHANGE_S)
