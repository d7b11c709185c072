"""Power cuts: what the file system had not yet given to the device is gone. The image is copied at a random moment, the copy is what is started from."""
import random
import time

import cells
import disks
from kit import Client, Load, insist, same_everywhere
from runner import is_full, test

IMAGE_MB = 256


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

    def cut(self):
        """All at once."""
        for r in self.cell.replicas:
            r.pause()
        for i in self.images:
            i.copy()
        for r in self.cell.replicas:
            r.kill()
        for i in self.images:
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
