"""A short form of scripts/torture, and its checkers on histories of known verdict."""
import subprocess
import sys

import cells
from runner import is_full, test

TORTURE = cells.TOP / "tests" / "torture"


@test(own=True)
def the_checkers_know_right_from_wrong(_server):
    sys.path.insert(0, str(TORTURE))
    import selfcheck
    print(f"{selfcheck.run()} histories")


@test(own=True, timeout=1200)
def a_cell_of_five_is_tortured_and_no_client_sees_anything_wrong(server):
    run = subprocess.run([sys.executable, TORTURE / "run.py", "--server", server, "--seconds", "600" if is_full() else "25"],
                         stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
    print(run.stdout)
    assert run.returncode == 0, next((line for line in run.stdout.splitlines() if line.startswith("FAIL")), "it broke off")
