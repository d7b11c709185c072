"""What libholdfast shows to the outside is what its header says, no more and no less: each call with its version, in the shared and in the static library, and with
a man page.

    library.py NM HEADER SHARED STATIC MAN3_DIR"""
import pathlib
import re
import subprocess
import sys

nm, header, shared, static, man3 = sys.argv[1:]
VERSION = "HOLDFAST_0"


def defined(*args):
    """The names that a library defines for others."""
    lines = subprocess.run([nm, "--defined-only", *args], check=True, capture_output=True, text=True).stdout.splitlines()
    return {line.split()[2] for line in lines if len(line.split()) == 3 and line.split()[1] in "TDBRV"}


public = set(re.findall(r"^HF_API [^;(]*?(hf_\w+)\(", pathlib.Path(header).read_text(), re.M))
wrong = []
for what, found, wanted in (
    ("the shared library", defined("-D", "--with-symbol-versions", shared), {f"{name}@@{VERSION}" for name in public}),
    ("the static library", defined("-g", static), public),
    ("the man pages", {p.stem for p in pathlib.Path(man3).glob("*.3")} & public, public),
):
    wrong += [f"{what} lacks {name}" for name in sorted(wanted - found)] + [f"{what} has {name}" for name in sorted(found - wanted)]
assert len(public) > 30, f"{len(public)} calls in {header}"
print("\n".join(wrong) or f"{len(public)} calls")
sys.exit(1 if wrong else 0)
