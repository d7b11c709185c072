"""net.py: the network of a tortured cell: each replica in a network namespace of its own, all packets through wire.c.

Without the right to make namespaces the replicas are on loopback, with lib/relay.py between them: cuts, but no slow or lossy links.
"""
import fcntl
import os
import socket
import struct
import subprocess
import sys

import cells

SUBNET = "10.77.0"
WIRE = cells.TOP / "build" / "tests" / "torture" / "wire"


def can_make_namespaces():
    return os.geteuid() == 0 and os.path.exists("/dev/net/tun") and \
        subprocess.run(["unshare", "-n", "true"], check=False, capture_output=True).returncode == 0


class Namespaces:
    """Call from a process that has a network namespace to itself (`unshare -n`): it becomes node 0."""

    lossy = True

    def __init__(self, replicas):
        self.replicas = replicas
        self._holders = [cells.spawn(["unshare", "-n", "sh", "-c", "echo; exec cat"], stdin=subprocess.PIPE, stdout=subprocess.PIPE) for _ in replicas]
        for h in self._holders:
            h.stdout.readline()  # it is in its namespace
        for r, h in zip(replicas, self._holders):
            r.inside = ["nsenter", "-t", str(h.pid), "-n"]
        self._wire = cells.spawn([WIRE, SUBNET, *(h.pid for h in self._holders)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        assert self._wire.stdout.readline() == "ready\n", "the network does not come up"

    def _order(self, text):
        self._wire.stdin.write(text + "\n")
        self._wire.stdin.flush()

    def cut(self, sender, receiver):
        self._order(f"cut {sender.number} {receiver.number}")

    def slow(self, sender, receiver, ms, jitter_ms):
        self._order(f"slow {sender.number} {receiver.number} {ms} {jitter_ms}")

    def lossy_link(self, sender, receiver, lost_per_mille, twice_per_mille):
        self._order(f"loss {sender.number} {receiver.number} {lost_per_mille}")
        self._order(f"twice {sender.number} {receiver.number} {twice_per_mille}")

    def heal(self):
        self._order("calm")

    def count(self):
        self._order("count")
        return self._wire.stdout.readline().strip()

    def close(self):
        for p in (self._wire, *self._holders):
            cells.end(p)


class Loopback:
    """The same on loopback: cuts alone."""

    lossy = False

    def __init__(self, replicas):
        import relay
        self._relays = relay.Network(replicas)
        self.cut, self.heal, self.close = self._relays.cut, self._relays.heal, self._relays.close

    def slow(self, *_):
        pass

    lossy_link = slow

    def count(self):
        return "no namespaces: cuts by relays alone"


class Cell(cells.Cell):
    def __init__(self, server, size, flags):
        namespaces = os.environ.get("TORTURE_NET") == "namespaces"
        super().__init__(server, size=0, flags=flags, start=False)
        self.replicas = [cells.Replica(self, i + 1, f"{SUBNET}.{i + 2}" if namespaces else "127.0.0.1") for i in range(size)]
        self.network = (Namespaces if namespaces else Loopback)(self.replicas)


def _loopback_up():
    """In a new namespace it is down."""
    SIOCSIFFLAGS, IFF_UP = 0x8914, 1
    if os.environ["TORTURE_NET"] == "namespaces":
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as s:
            fcntl.ioctl(s, SIOCSIFFLAGS, struct.pack("16sh14x", b"lo", IFF_UP))


def enter():
    """Goes on in a network namespace of one's own where that is possible; says so where it is not. Call first thing: it may start the program anew."""
    if os.environ.get("TORTURE_NET"):
        _loopback_up()
        return
    if can_make_namespaces():
        os.environ["TORTURE_NET"] = "namespaces"
        os.execvp("unshare", ["unshare", "-n", sys.executable, *sys.argv])
    print("not root, or no /dev/net/tun: no network namespaces; the replicas are on loopback, the network is cut by relays", flush=True)
    os.environ["TORTURE_NET"] = "loopback"
