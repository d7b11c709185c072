"""disks.py: disks in our hands: file systems in a file, whose power can be cut; and disks that fail on demand (tests/preload/bad_disk.c)."""
import ctypes
import os
import subprocess

import cells
import runner

BAD_DISK = cells.TOP / "build" / "tests" / "preload" / "bad_disk.so"
CLONE_NEWNS = 0x00020000


def need_mounts():
    """A mount namespace of one's own, which goes with this process and all its mounts. Skips the test where that, or a loop device, is not to be had."""
    if os.geteuid() != 0:
        runner.skip("needs root: file systems are mounted")
    if ctypes.CDLL(None, use_errno=True).unshare(CLONE_NEWNS) != 0 or _run("mount", "--make-rprivate", "/").returncode:
        runner.skip("no mount namespace to be had")


def need_bad_disk():
    if not BAD_DISK.exists():
        runner.skip("no bad_disk.so in this build")


def _run(*args):
    return subprocess.run([str(a) for a in args], capture_output=True, text=True, check=False)


def _must(*args):
    done = _run(*args)
    assert done.returncode == 0, f"{' '.join(map(str, args))}: {done.stderr.strip()}"


class Image:
    """An ext4 in a file, mounted at `at`."""

    def __init__(self, folder, name, mb):
        self.files = [folder / f"{name}.img0", folder / f"{name}.img1"]
        self.kept = folder / f"{name}.kept"
        self.at = folder / name
        self.at.mkdir()
        self.mb = mb
        self.new()

    def new(self):
        if os.path.ismount(self.at):
            _must("umount", self.at)
        self.files[0].unlink(missing_ok=True)
        with open(self.files[0], "wb") as f:
            f.truncate(self.mb << 20)
        _must("mkfs.ext4", "-q", "-F", self.files[0])
        self.mount()

    def mount(self):
        done = _run("mount", "-o", "loop", self.files[0], self.at)
        if "loop" in done.stderr and "find" in done.stderr:
            runner.skip(f"no loop device: {done.stderr.strip()}")
        assert done.returncode == 0, f"mount: {done.stderr.strip()}"

    def copy(self):
        """What has reached the device by now: all that a power cut leaves. What is still on its way there may change it while it is copied, which would be no
        state that the device ever had: a copy that is equal afterwards is one of the moment between."""
        for _ in range(50):
            _must("cp", "--sparse=always", self.files[0], self.files[1])
            if _run("cmp", "--silent", self.files[0], self.files[1]).returncode == 0:
                return
        raise AssertionError(f"{self.files[0]} changes all the time")

    def cut(self):
        """Nobody may have a file open in it. Goes on with the copy."""
        _must("umount", self.at)
        self.files.reverse()
        self.mount()

    def keep(self):
        """What it holds now is what again() brings back."""
        _must("umount", self.at)
        _must("cp", "--sparse=always", self.files[0], self.kept)
        self.mount()

    def again(self):
        _must("umount", self.at)
        _must("cp", "--sparse=always", self.kept, self.files[0])
        self.mount()

    def close(self):
        _must("umount", self.at)


class Tmpfs:
    def __init__(self, folder, name, mb):
        self.at = folder / name
        self.at.mkdir()
        _must("mount", "-t", "tmpfs", "-o", f"size={mb}m", "tmpfs", self.at)

    def close(self):
        _must("umount", self.at)


def fill(at, leave_bytes=0, name="filler"):
    """Takes the space of a file system, but for `leave_bytes`."""
    with open(at / name, "ab") as f:
        while True:
            free = os.statvfs(at)
            more = min(free.f_bavail * free.f_frsize - leave_bytes, 64 << 20)
            if more <= 0:
                return
            try:
                f.write(b"\0" * min(more, 1 << 20))
                f.flush()
            except OSError:
                return


def empty(at, name="filler"):
    (at / name).unlink(missing_ok=True)


class BadDisk:
    """The disk of one replica. Make it before the replica starts."""

    def __init__(self, replica, writes="-", syncs="-", map_bytes=0):
        self.path = replica.cell.dir / f"{replica.name}.disk"
        self.path.write_bytes(b"----")
        self.set(writes, syncs)
        replica.inside = ["env", f"BAD_DISK={self.path}", f"BAD_DISK_UNDER={replica.data_dir}",
                          *([f"BAD_DISK_MAP={map_bytes}"] if map_bytes else []), f"LD_PRELOAD={BAD_DISK}"]

    def set(self, writes="-", syncs="-"):
        with open(self.path, "r+b") as f:  # in place: the replica has it mapped
            f.write((writes + syncs).encode())
