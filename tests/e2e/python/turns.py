"""turns.py: one of several who add to a counter under a lock, by whichever client the caller has: `take_turns(NAME, BOOK, ways)`.

Each turn is a read and a write that would lose additions if two did so at once. BOOK is a file that all write to: `in NAME` when the lock is held, `out NAME` before it is
given back. Says `turn N` for an addition that was acknowledged, `unsure N` for one whose answer did not come. Ends when BOOK.end is there.
"""
import os
import time


def insist(f, errors):
    """For what may be repeated."""
    while True:
        try:
            return f()
        except errors:
            time.sleep(0.05)


def take_turns(name, book, lock, read, write, errors):
    """lock: makes one, with acquire and release; read: the counter; write(lock, text): adds, if the lock is still held; errors: of a cell between leaders."""
    with open(book, "a", encoding="ascii", buffering=1) as f:
        while not os.path.exists(book + ".end"):
            mine = lock()
            try:
                if not mine.acquire():
                    time.sleep(0.02)
                    continue
            except errors:  # it may be held
                insist(mine.release, errors)
                continue
            f.write(f"in {name}\n")
            value = insist(read, errors) + 1
            try:
                assert write(mine, f"{value} {name}"), "the lock was lost"
                print("turn", value, flush=True)
            except errors:
                print("unsure", value, flush=True)
            f.write(f"out {name}\n")
            insist(mine.release, errors)
