"""History that compacts itself, and a leader that leaves in good order."""
import threading

import cells
from kit import Client, clients, error_of
from runner import test


@test(own=True)
def history_beyond_so_many_revisions_goes_by_itself(server):
    with cells.Cell(server, 3, flags=["--auto-compaction-mode=revision", "--auto-compaction-retention=100"]) as cell, clients(cell) as cs:
        for c in cs:
            c.put_many((b"a", b"%d" % i) for i in range(334))
        cells.wait_for("revision 500 is compacted", lambda: "compacted" in error_of(lambda: cs[0].get(b"a", revision=500))[1], 20)
        # The last hundred of a thousand and some are kept.
        assert cs[1].get(b"a", revision=950) is not None


@test(own=True)
def a_stop_hands_leadership_over_and_fails_no_write(server):
    """SIGTERM of the leader under writes through the others: none fails, and another leads at once."""
    with cells.Cell(server, 3) as cell:
        leader = cell.leader()
        others = [Client(r) for r in cell.replicas if r is not leader]
        stop, failed, done = threading.Event(), [], [0]

        def write(c, n):
            i = 0
            while not stop.is_set():
                try:
                    c.put(b"k%d" % n, b"%d" % i)
                    done[0] += 1
                except Exception as e:  # any failure counts
                    failed.append(repr(e))
                    return
                i += 1

        threads = [threading.Thread(target=write, args=(c, n)) for n, c in enumerate(others)]
        for t in threads:
            t.start()
        cells.wait_for("writes flow", lambda: done[0] > 50, 20)
        leader.stop()
        before = done[0]
        cells.wait_for("writes flow on", lambda: done[0] > before + 50 or failed, 20)
        stop.set()
        for t in threads:
            t.join()
        assert not failed, failed
        assert cell.leader() is not leader
        for c in others:
            c.close()
