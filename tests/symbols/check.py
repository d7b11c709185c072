"""check.py NM ALLOW LIB ARCHIVE...: what LIB takes from outside itself and the ARCHIVEs must be in the list ALLOW.

The core is to be pure: a clock, a socket, a thread or a random source would show up here by its name.
"""
import subprocess
import sys


def symbols(nm, archive, kinds):
    out = subprocess.run([nm, archive], capture_output=True, text=True, check=True).stdout
    found = set()
    for line in out.splitlines():
        parts = line.split()
        if len(parts) >= 2 and parts[-2] in kinds:
            found.add(parts[-1])
    return found


def main():
    nm, allow_file, lib, *archives = sys.argv[1:]
    with open(allow_file, encoding="ascii") as f:
        allowed = {line.split("#")[0].strip() for line in f} - {""}
    defined = set()
    for a in [lib, *archives]:
        defined |= symbols(nm, a, set("TtDdBbRrVvWwC"))
    wanted = symbols(nm, lib, {"U"})
    assert len(wanted) > 50, "this is not the core's library"
    outside = wanted - defined
    for a in archives:
        outside |= {s for s in symbols(nm, a, {"U"}) - defined if a.endswith("libbase.a")}
    bad = sorted(s for s in outside if s not in allowed and not s.startswith("protobuf_c_"))
    for s in bad:
        print(f"the core uses '{s}', which is not in {allow_file}")
    unused = sorted(allowed - outside)
    for s in unused:
        print(f"note: '{s}' is allowed but not used")
    # A check that cannot fail is none: a clock would be seen.
    assert "clock_gettime" not in allowed and "malloc" in outside
    return 1 if bad else 0


sys.exit(main())
