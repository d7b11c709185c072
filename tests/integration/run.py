"""run.py [NAME...] [--server PATH] [--full] [--list]: real processes, real clients, real signals. See lib/runner.py."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "lib"))
import runner  # noqa: E402

if __name__ == "__main__":
    sys.exit(runner.main(HERE, runner.cells.TOP / "build" / "server" / "holdfastd"))
