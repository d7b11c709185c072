"""cached.py: tests/e2e/cacher, which caches values or writes them; and its reads against the writes beside them, by the histories that it keeps.

Each key has one writer, whose numbers rise. So its history is linearizable when no read shows less than a write that was answered before the read was asked for,
nor less than another read that was answered before, nor a number before it was asked to be written.
"""
import bisect
import collections
import math
import pathlib
import struct

from lines import Lines, built

RECORD = struct.Struct("<QQQIHBx")
MEMORY, CELL, WRITTEN, UNKNOWN = range(4)

# begin, end: nanoseconds of one clock for all processes; value 0: there is no such node
Read = collections.namedtuple("Read", "begin end value key session memory")
Write = collections.namedtuple("Write", "begin end value key")


class Cacher(Lines):
    """kind: "write" and its period, or "read", its sessions and their rate."""

    def __init__(self, server, cell, kind, *load, ttl=12, keys=16, endpoints=None, history=True):
        self.history = cell.dir / f"history-{id(self)}" if history else "-"
        super().__init__([built(server, "tests/e2e/cacher/cacher"), endpoints or cell.endpoints, ttl, keys, self.history, kind, *load])

    def counted(self):
        """READS HITS MISSES FAILED JEOPARDY EXPIRED, or WRITTEN FAILED."""
        return list(map(int, self.ask("counts", "counts").split()[1:]))

    def finish(self):
        since = len(self.lines)
        assert self.end() == 0
        return list(map(int, self.wait("counts", 5, since).split()[1:]))


def load(*paths):
    reads, writes = [], []
    for path in paths:
        data = pathlib.Path(path).read_bytes()
        for begin, end, value, session, key, what in RECORD.iter_unpack(data[:len(data) // RECORD.size * RECORD.size]):
            if what in (MEMORY, CELL):
                reads.append(Read(begin, end, value, key, session, what == MEMORY))
            else:
                writes.append(Write(begin, math.inf if what == UNKNOWN else end, value, key))
    return reads, writes


class Floor:
    """The highest value of whatever had ended before an instant."""

    def __init__(self, calls):
        ended = sorted((c.end, c.value) for c in calls if c.end != math.inf)
        self._ends = [e for e, _ in ended]
        self._highest = []
        for _, v in ended:
            self._highest.append(max(v, self._highest[-1] if self._highest else 0))

    def before(self, instant):
        i = bisect.bisect_left(self._ends, instant)
        return self._highest[i - 1] if i else 0


def check(reads, writes):
    """What is wrong, a line each."""
    wrong = []
    by_key = collections.defaultdict(lambda: ([], []))
    for r in reads:
        by_key[r.key][0].append(r)
    for w in writes:
        by_key[w.key][1].append(w)
    for key, (its_reads, its_writes) in sorted(by_key.items()):
        begun = {w.value: w.begin for w in its_writes} | {0: -math.inf}
        written, seen = Floor(its_writes), Floor(its_reads)
        for r in its_reads:
            who = f"key {key}, session {r.session}, {'from memory' if r.memory else 'from the cell'}: {r.value}"
            if r.value < written.before(r.begin):
                wrong.append(f"{who}, {written.before(r.begin)} had been written")
            elif r.value < seen.before(r.begin):
                wrong.append(f"{who}, {seen.before(r.begin)} had been read")
            if begun.get(r.value, math.inf) > r.end:
                wrong.append(f"{who}, before it was written")
    return wrong
