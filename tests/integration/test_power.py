"""Power cuts: what the file system had not yet given to the device is gone. The image is copied at a random moment, the copy is what is started from."""
import pathlib
import random
import shutil
import subprocess
import tempfile
import time

import cells
import disks
from kit import Client, Load, insist, same_everywhere
from runner import is_full, skip, test
from test_damage import flip

IMAGE_MB = 256
MEND_CUT = cells.TOP / "build" / "tests" / "unit" / "storage" / "mend_cut"


class PowerCell:
    """A cell whose replicas have a file system each, and one load over all cuts."""

    def __init__(self, server, size, bad=False):
        self.cell = cells.Cell(server, size, flags=["--snapshot-count", "300"], start=False)
        self.images = []
        for r in self.cell.replicas:
            image = disks.Image(self.cell.dir, f"disk{r.number}", IMAGE_MB)
            r.data_dir = image.at / "data"
            self.images.append(image)
            if bad:
                disks.BadDisk(r, syncs="l")
        self.cell.start()

    def cut(self, replicas=None):
        """All, or these, at once."""
        replicas = replicas or self.cell.replicas
        images = [self.images[self.cell.replicas.index(r)] for r in replicas]
        for r in replicas:
            r.pause()
        for i in images:
            i.copy()
        for r in replicas:
            r.kill()
        for i in images:
            i.cut()

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for r in self.cell.replicas:
            if r.running():
                r.kill()
        for i in self.images:
            i.close()
        self.cell.close()


def cut_again_and_again(server, size, cuts):
    disks.need_mounts()
    total = 0
    with PowerCell(server, size) as p:
        for n in range(cuts):
            with Load(p.cell, writers=4, name=b"w%d" % n, value_size=random.choice((10, 300, 3000))) as load:
                load.wait_more(5)
                time.sleep(random.random() * 0.6)
                p.cut()
                load.stop()
            p.cell.start()
            with Client(p.cell.replicas[0]) as c:
                total += load.check(c)
                assert insist(lambda: c.put(b"after", b"%d" % n))
            if size > 1:
                same_everywhere(p.cell)
    print(f"{cuts} cuts of {size}, {total} acknowledged writes, all there")


@test(own=True, timeout=900)
def all_that_was_acknowledged_survives_power_cuts(server):
    cut_again_and_again(server, 1, 200 if is_full() else 10)


@test(own=True, timeout=1800)
def all_that_was_acknowledged_survives_power_cuts_of_all_three_at_once(server):
    cut_again_and_again(server, 3, 200 if is_full() else 2)


@test(own=True)
def without_syncs_power_cuts_lose_what_was_acknowledged(server):
    """Else the tests above would prove nothing."""
    disks.need_mounts()
    disks.need_bad_disk()
    for _ in range(5):
        with PowerCell(server, 1, bad=True) as p:
            with Load(p.cell, writers=4) as load:
                load.wait_more(50)
                p.cut()
                load.stop()
            try:
                p.cell.start()
                with Client(p.cell.replicas[0]) as c:
                    load.check(c)
            except AssertionError as e:
                print(f"lost, as expected: {str(e).splitlines()[0]}")
                return
    raise AssertionError("five power cuts of a disk that never syncs lost nothing")


# ---- of a replica that mends its damaged disk ----

class MendCut:
    """tests/unit/storage/mend_cut.c on an image."""

    def __init__(self, folder, scene):
        self.scene = str(scene)
        self.damaged = folder / f"damaged{scene}"
        self.image = disks.Image(folder, f"scene{scene}", 32)
        self.dir = self.image.at / "data"
        assert self.run("prepare", self.scene, self.damaged) == 0
        shutil.copytree(self.damaged, self.dir)
        self.image.keep()

    def run(self, *args):
        done = subprocess.run([MEND_CUT, *args], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False, timeout=60)
        self.said = done.stdout
        return done.returncode

    def live(self, step, *how):
        """Mends up to that step; then the power is cut. Returns how far it had come."""
        status = self.run("live", self.dir, str(step), *how)
        assert status in (0, 77, 79), f"step {step}: ended with {status}: {self.said}"
        self.image.copy()
        self.image.cut()
        return status

    def check(self, status):
        return self.run("check", self.scene, self.dir, self.damaged, str(status)) == 0


@test(own=True, timeout=600)
def the_power_is_cut_at_any_step_of_mending_a_damaged_disk(_server):
    """What was damaged is found damaged again, or mended with what is lost written down; and all of it, once that was acknowledged again."""
    if not MEND_CUT.exists():
        skip("no mend_cut in this build")
    disks.need_mounts()
    scenes = int(subprocess.run([MEND_CUT, "scenes"], stdout=subprocess.PIPE, text=True, check=True).stdout)
    cuts, ended = 0, {0: 0, 77: 0, 79: 0}
    shm = pathlib.Path("/dev/shm")  # for speed: what counts is what has reached the loop device
    with tempfile.TemporaryDirectory(prefix="holdfast-mend-", dir=shm if shm.is_dir() else None) as folder:
        for scene in range(scenes):
            m = MendCut(pathlib.Path(folder), scene)
            try:
                steps = range(1, 200) if is_full() else sorted(random.sample(range(1, 70), 4))
                for step in steps:
                    m.image.again()
                    first = status = m.live(step)
                    if first == 77 and random.random() < 0.3:  # and in the next start again
                        status = m.live(random.randrange(1, 60))
                    cuts += 1
                    ended[status] += 1
                    assert m.check(status), f"scene {scene}, cut before step {step} ({status}): {m.said}"
                    if first == 0:  # there is no such step
                        break
                if scene == 0:  # where nothing is synced it shows, or all that would prove nothing
                    m.image.again()
                    assert m.live(200, "unsynced") == 0 and not m.check(0), m.said
                    assert "what was acknowledged again is gone" in m.said, m.said
            finally:
                m.image.close()
    print(f"{cuts} cuts: {ended[77]} before what was lost was acknowledged again, {ended[79]} after it, {ended[0]} at the end")


@test(own=True, timeout=1800, full=True)
def the_power_is_cut_again_and_again_while_a_damaged_replica_mends(server):
    disks.need_mounts()
    with PowerCell(server, 3) as p:
        for n in range(30):
            r = random.choice(p.cell.replicas)
            with Load(p.cell, writers=4, name=b"w%d" % n, value_size=300) as load:
                load.wait_more(120)
                load.stop()
            same_everywhere(p.cell)
            r.kill()
            snapshots = [x for x in r.data_dir.glob("snap-*") if "." not in x.name]
            if n > 0 and snapshots and random.random() < 0.4:
                flip(max(snapshots) / "data.mdb", b"w%d/" % random.randrange(n))
            else:
                flip(r.data_dir / "log/data.mdb", b"w%d/0/000005" % n)
            for _ in range(random.randrange(1, 4)):
                r.start()
                time.sleep(random.random() * 0.5)
                p.cut([r])
            r.start()
            p.cell.wait_ready()
            same_everywhere(p.cell)
            with Client(r) as c:
                load.check(c)
