"""run.py: every client that people have, unchanged, against cells of real processes. See tests/lib/runner.py for how it runs."""
import pathlib
import sys

TOP = pathlib.Path(__file__).resolve().parents[2]
sys.path.insert(0, str(TOP / "tests" / "lib"))
import runner  # noqa: E402

if __name__ == "__main__":
    sys.exit(runner.main(pathlib.Path(__file__).resolve().parent, TOP / "build" / "server" / "holdfastd"))
