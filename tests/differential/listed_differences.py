#!/usr/bin/env python3
"""listed_differences.py: the table of known differences in docs/migrating-from-etcd.md is what known.py has, word for word.

For itself: prints that table as it should be.
"""
import pathlib

import known

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "migrating-from-etcd.md"
BEGIN, END = "<!-- known differences: as in tests/differential/known.py -->\n", "<!-- end of known differences -->\n"
LISTS = [("keys, leases", known.KV), ("watches", known.WATCH), ("locks", known.LOCK), ("elections", [e for e in known.ELECTION if e not in known.LOCK]),
         ("users, roles", known.AUTH), ("members, maintenance", known.MEMBERS)]


def table():
    rows = [f"| {where} | {name} | {reason} |\n" for where, entries in LISTS for name, reason, _ in entries]
    return "| | | difference, and why |\n|---|---|---|\n" + "".join(rows)


def check():
    """Returns how many faults there are."""
    text = PAGE.read_text()
    found = text.partition(BEGIN)[2].partition(END)[0]
    if found == table():
        return 0
    print(f"FAIL listed differences: {PAGE.name} has another table than known.py; listed_differences.py prints the right one")
    return 1


if __name__ == "__main__":
    print(table(), end="")
