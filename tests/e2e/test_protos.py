"""Our protos as users have them: installed, found by pkg-config, and loaded by a client that knows nothing else of us."""
import os
import pathlib
import subprocess
import tempfile

import cells
from clients import node_talk
from guarded import each_way


def installed(folder):
    """Where `meson install` puts the protos, as pkg-config says it."""
    subprocess.run(["meson", "install", "-C", cells.TOP / "build", "--no-rebuild", "--quiet", "--destdir", folder], check=True, stdout=subprocess.DEVNULL)
    pc = next(pathlib.Path(folder).rglob("holdfast-proto.pc"))
    env = dict(os.environ, PKG_CONFIG_PATH=str(pc.parent), PKG_CONFIG_SYSROOT_DIR=str(folder))
    p = subprocess.run(["pkg-config", "--variable=protodir", "holdfast-proto"], env=env, text=True, capture_output=True, check=True)
    found = pathlib.Path(p.stdout.strip())
    return found if found.exists() else pathlib.Path(f"{folder}{found}")


@each_way(timeout=200)
def node_by_grpc_js_with_the_installed_protos(way):
    with tempfile.TemporaryDirectory() as d:
        protos = installed(d)
        assert (protos / "holdfast" / "v1.proto").exists() and not (protos / "holdfast" / "internal.proto").exists(), list(protos.rglob("*"))
        with way.cell() as cell, node_talk(cell, "protos.js", protos, "all") as js:
            js.expect("held", 20)
            leader = cell.leader()
            leader.kill()
            survivor = next(i for i, r in enumerate(cell.replicas) if r is not leader)
            js.say(str(survivor))
            js.expect("all fine", 30)
