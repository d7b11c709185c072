"""scripts/cell: a local cell for whoever tries things out."""
import os
import subprocess
import tempfile

import cells
from runner import test


@test(own=True)
def a_replica_is_killed_and_comes_back(server):
    with tempfile.TemporaryDirectory(prefix="holdfast-script-") as folder:
        env = dict(os.environ, HOLDFAST_CELL=f"{folder}/cell", HOLDFAST_CELL_PORT=str(cells.free_port()), HOLDFAST_SERVER=str(server))

        def script(*args, code=0):
            done = subprocess.run([cells.TOP / "scripts" / "cell", *args], env=env, text=True, capture_output=True, timeout=60, check=False)
            assert done.returncode == code, (args, done.returncode, done.stdout, done.stderr)
            return done.stdout + done.stderr
        try:
            assert len(script("start", "3").strip().split(",")) == 3
            for _ in range(2):
                script("kill", "2")
                assert "r2  not running" in script("status")
                script("restart", "2")
                assert script("status").count(" serving\n") == 3
            assert "not running" in script("kill", "9", code=1)
        finally:
            script("stop", "--wipe")
        assert not os.path.exists(f"{folder}/cell")
