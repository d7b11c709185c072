"""The time of day jumps, at every replica and by years: time that counts is counted otherwise."""
import struct
import time

import cells
from kit import Client, KeepingAlive, clients, error_of, insist, same_everywhere, wait_queue
from runner import skip, test

WALL_CLOCK = cells.TOP / "build" / "tests" / "preload" / "wall_clock.so"
DAY = 86400
TTL = 3
JUMPS = (400 * DAY, -4000 * DAY, 3600, -3600, 0)  # of the first; the next has the next one


class WallClock:
    """Of one replica. Make it before the replica starts."""

    def __init__(self, replica):
        self.path = replica.cell.dir / f"{replica.name}.clock"
        self.path.write_bytes(bytes(8))
        replica.inside = ["env", f"WALL_CLOCK={self.path}", f"LD_PRELOAD={WALL_CLOCK}"]

    def set(self, seconds):
        with open(self.path, "r+b") as f:  # in place: the replica has it mapped
            f.write(struct.pack("=q", seconds))


def day_of_last_line(replica):
    return replica.log_tail(1)[:10]


@test(own=True, timeout=120)
def jumps_of_the_wall_clock_change_nothing(server):
    """No election, no lease that ends early or late, no wait that is over too soon; and a replica that starts in another year is one of them."""
    if not WALL_CLOCK.exists():
        skip("no wall_clock.so in this build")
    with cells.Cell(server, 3, start=False) as cell:
        clocks = [WallClock(r) for r in cell.replicas]
        cell.start()
        with clients(cell) as cs:
            leases = [cs[i % 3].grant(TTL) for i in range(6)]
            held = cs[0].take_lock(b"l", leases[0])
            waiting = cs[1].ask_lock(b"l", leases[1])
            wait_queue(cs[2], b"l", 2)
            term = cs[0].status().raftTerm
            with KeepingAlive(cell, leases, every=0.5) as sessions:
                asked = time.monotonic()
                mortal = cs[0].grant(TTL)
                cs[0].put(b"mortal", b"", lease=mortal)
                for turn in range(len(JUMPS)):
                    for i, clock in enumerate(clocks):
                        clock.set(JUMPS[(turn + i) % len(JUMPS)])
                    at = time.monotonic()
                    assert error_of(cs[turn % 3].take_lock, b"l", leases[2], wait_ms=300)[0] == "DEADLINE_EXCEEDED"
                    assert time.monotonic() - at >= 0.3, "a wait of 0.3 s was over before"
                    assert not waiting.done(), "two hold the lock"
                cells.wait_for("a lease ends by time", lambda: cs[2].get(b"mortal") is None, TTL + 2)
                lasted = time.monotonic() - asked
                assert lasted >= TTL, f"a lease of {TTL} s has ended after {lasted:.2f} s"
                seen = sessions.renewed
                cells.wait_for("sessions live on", lambda: sessions.renewed >= seen + 3, 20)
                assert not sessions.lost
                assert cs[1].status().raftTerm == term, "the jumps cost an election"
                cs[0].unlock(held.key)
                assert waiting.result(10).fencing_token > held.fencing_token
                # Started again in another year.
                down = cell.leader()
                down.kill()
                clocks[cell.replicas.index(down)].set(-9000 * DAY)
                down.start()
                cell.wait_ready()
                assert insist(lambda: Client(down).keep_alive(leases[3], timeout=2)) == [TTL]
                assert not sessions.lost
        same_everywhere(cell)
        years = {day_of_last_line(r)[:4] for r in cell.replicas}
        assert len(years) > 1, f"the clocks have not jumped: {years}"
