"""Peers by name, with a name server of our own: records that vanish, come back, and move. In name spaces of the test's own, so as root alone."""
import ctypes
import os
import signal
import socket
import struct
import subprocess
import tempfile
import threading

import cells
from runner import skip, test

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000


class NameServer:
    """Answers for A alone, on 127.0.0.1:53. `records` may be changed at any time; what is not in it does not exist."""

    def __init__(self, records):
        self.records, self.asked = dict(records), {}
        self.socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self.socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self._run, daemon=True).start()

    def _run(self):
        while True:
            query, sender = self.socket.recvfrom(4096)
            labels, at = [], 12
            while query[at]:
                labels.append(query[at + 1:at + 1 + query[at]].decode())
                at += 1 + query[at]
            name, kind = ".".join(labels).lower(), struct.unpack("!H", query[at + 1:at + 3])[0]
            question, address = query[12:at + 5], self.records.get(name)
            self.asked[name] = self.asked.get(name, 0) + 1
            answer = b"\xc0\x0c\0\x01\0\x01\0\0\0\0\0\x04" + socket.inet_aton(address) if address and kind == 1 else b""
            head = query[:2] + struct.pack("!HHHHH", 0x8180 if address else 0x8183, 1, 1 if answer else 0, 0, 0)
            self.socket.sendto(head + question + answer, sender)


def enter(folder):
    libc = ctypes.CDLL(None, use_errno=True)
    if os.getuid() != 0 or libc.unshare(CLONE_NEWNS | CLONE_NEWNET) != 0:
        skip("no name spaces of one's own")
    for name, text in (("resolv.conf", "nameserver 127.0.0.1\noptions timeout:1 attempts:1\n"), ("hosts", "127.0.0.1 localhost\n"),
                       ("nsswitch.conf", "hosts: files dns\n")):
        with open(f"{folder}/{name}", "w", encoding="ascii") as f:
            f.write(text)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    for name in ("resolv.conf", "hosts", "nsswitch.conf"):
        subprocess.run(["mount", "--bind", f"{folder}/{name}", f"/etc/{name}"], check=True)
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)


def put(cell, replica, value):
    return cells.etcdctl(replica.endpoint, "--command-timeout=3s", "put", "k", value, timeout=10).returncode == 0


@test(own=True, timeout=120)
def a_lost_record_kills_nobody(server):
    with tempfile.TemporaryDirectory() as d:
        enter(d)
        dns = NameServer({})
        with cells.Cell(server, 3, start=False) as cell:
            one, two, three = cell.replicas
            for r in cell.replicas:
                r.peer_url = f"http://{r.name}.cell.test:{r.peer_port}"
            for r in cell.replicas:
                r.start()
            # Nobody is known to the name server yet: that is no reason to end.
            cells.wait_for("the names are asked for", lambda: len(dns.asked) == 3, 20)
            assert all(r.running() for r in cell.replicas), [r.log_tail() for r in cell.replicas]
            for r in cell.replicas:
                dns.records[f"{r.name}.cell.test"] = "127.0.0.1"
            cell.wait_ready()
            assert put(cell, one, "1")
            # A record goes while its replica is away; the others do not mind, and find it again when it is back.
            two.kill()
            del dns.records["r2.cell.test"]
            before = dns.asked["r2.cell.test"]
            cells.wait_for("it is looked for", lambda: dns.asked["r2.cell.test"] > before + 3, 20)
            cells.wait_for("two of three go on", lambda: put(cell, one, "2"), 20)
            two.start()
            dns.records["r2.cell.test"] = "127.0.0.1"
            cell.wait_ready()
            # All records go under a cell that works: streams that are open stay so.
            records, dns.records = dns.records, {}
            assert put(cell, three, "3")
            dns.records = records
            for r in cell.replicas:
                assert r.running(), r.log_tail()


@test(own=True, timeout=120)
def a_record_that_moves_is_followed(server):
    with tempfile.TemporaryDirectory() as d:
        enter(d)
        dns = NameServer({f"r{i}.cell.test": "127.0.0.1" for i in (1, 2)})
        cluster = []
        ports = [(cells.free_port(), cells.free_port()) for _ in range(2)]
        cluster = ",".join(f"r{i + 1}=http://r{i + 1}.cell.test:{p}" for i, (_, p) in enumerate(ports))

        def start(i, host):
            c, p = ports[i]
            return cells.spawn([server, "--name", f"r{i + 1}", "--data-dir", f"{d}/r{i + 1}", "--listen-client-urls", f"http://127.0.0.1:{c}",
                                "--listen-peer-urls", f"http://{host}:{p}", "--initial-advertise-peer-urls", f"http://r{i + 1}.cell.test:{p}",
                                "--initial-cluster", cluster], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

        def serves(i):
            try:
                return cells.http(f"http://127.0.0.1:{ports[i][0]}/health", timeout=1)[0] == 200
            except OSError:
                return False
        one, two = start(0, "127.0.0.1"), start(1, "127.0.0.1")
        cells.wait_for("both serve", lambda: serves(0) and serves(1), 20)
        cells.end(two, signal.SIGTERM)
        dns.records["r2.cell.test"] = "127.0.0.3"
        two = start(1, "127.0.0.3")
        cells.wait_for("both serve again", lambda: serves(0) and serves(1), 20)
        assert one.poll() is None
        for p in (one, two):
            cells.end(p)
