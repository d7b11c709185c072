"""relay.py: the network in our hands: between replicas, and between clients and replicas.

Everyone is reached through relays. A pair can be cut in both directions or one: what is sent then is kept, and arrives late when the
cut is healed, as it does after a real one; nothing is closed, so nobody is told. Or it is lost, with its connection. The way to somebody may be slow.
"""
import contextlib
import os
import socket
import threading
import time

import cells


def _inode_of(port):
    """Of the loopback TCP connection that begins at this port."""
    wanted = f":{port:04X}"
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        with open(table, encoding="ascii") as f:
            for line in f:
                parts = line.split()
                if parts[1].endswith(wanted) and parts[9] != "0":
                    return parts[9]
    return None


def _owner_of(port, replicas):
    """The replica whose process has opened the connection that comes from this port."""
    inode = _inode_of(port)
    for r in replicas:
        if not r.running():
            continue
        with contextlib.suppress(OSError):
            for fd in os.listdir(f"/proc/{r.process.pid}/fd"):
                with contextlib.suppress(OSError):
                    if os.readlink(f"/proc/{r.process.pid}/fd/{fd}") == f"socket:[{inode}]":
                        return r
    return None


class _Links:
    """Relays, and which pairs of names are cut."""

    def __init__(self, replicas):
        self.replicas = replicas
        self._cut = set()  # pairs (from, to) of names
        self._losses = 0  # times that what was kept was lost
        self._slow = {}  # name of the receiver -> bytes a second of each connection
        self._changed = threading.Condition()
        self._closed = False
        self._listeners = []

    def cut(self, sender, receiver):
        with self._changed:
            self._cut.add((sender.name, receiver.name))

    def slow(self, receiver, bytes_per_second):
        self._slow[receiver.name] = bytes_per_second

    def heal(self, lose=False):
        with self._changed:
            self._losses += lose
            self._slow.clear()
            self._cut.clear()
            self._changed.notify_all()

    def close(self):
        self._closed = True
        self.heal()
        for s in self._listeners:
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)
            s.close()

    def _relay(self, name_of, to, to_port):
        """A port whose connections go to that port of the replica `to`; name_of(port they come from): who makes them."""
        s = socket.socket()
        s.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        port = cells.free_port()
        s.bind(("127.0.0.1", port))
        s.listen(64)
        self._listeners.append(s)
        threading.Thread(target=self._accept, args=(s, name_of, to, to_port), daemon=True).start()
        return port

    def _accept(self, listener, name_of, to, to_port):
        while not self._closed:
            try:
                incoming, address = listener.accept()
            except OSError:
                return
            threading.Thread(target=self._connect, args=(incoming, name_of, address[1], to, to_port), daemon=True).start()

    def _connect(self, incoming, name_of, port, to, to_port):
        name = name_of(port)
        self._pass(name, to.name)
        try:
            outgoing = socket.create_connection(("127.0.0.1", to_port), timeout=5)
        except OSError:
            incoming.close()
            return
        for s in (incoming, outgoing):
            s.settimeout(None)
            s.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        threading.Thread(target=self._pump, args=(incoming, outgoing, name, to.name), daemon=True).start()
        self._pump(outgoing, incoming, to.name, name)

    def _pass(self, sender, receiver):
        """Waits while they are cut. False: what waited is lost."""
        with self._changed:
            if (sender, receiver) not in self._cut:
                return True
            before = self._losses
            self._changed.wait_for(lambda: (sender, receiver) not in self._cut)
            return before == self._losses

    def _pump(self, source, sink, sender, receiver):
        try:
            while data := source.recv(65536):
                if not self._pass(sender, receiver):
                    break
                if rate := self._slow.get(receiver):
                    time.sleep(len(data) / rate)
                sink.sendall(data)
        except OSError:
            pass
        # A process that died is noticed at once; across a cut it is not.
        self._pass(sender, receiver)
        for s in (source, sink):
            with contextlib.suppress(OSError):
                s.shutdown(socket.SHUT_RDWR)


class Network(_Links):
    """Between the replicas of a cell. Cell(..., relays=True) makes one."""

    def __init__(self, replicas):
        super().__init__(replicas)
        for r in replicas:
            self.add(r)

    def add(self, replica):
        """One that joins later: before it goes into the cell's list and starts."""
        replica.peer_url = f"http://127.0.0.1:{self._relay(self._peer, replica, replica.peer_port)}"

    def _peer(self, port):
        r = _owner_of(port, self.replicas)
        return r.name if r else None

    def isolate(self, replica):
        """Nothing to it, nothing from it."""
        for other in self.replicas:
            if other is not replica:
                self.cut(replica, other)
                self.cut(other, replica)


class Client(_Links):
    """Between one client, which is given `endpoints`, and the replicas."""

    def __init__(self, replicas, name="client"):
        super().__init__(replicas)
        self.name = name
        self.endpoints = ",".join(f"127.0.0.1:{self._relay(lambda _: name, r, r.client_port)}" for r in replicas)

    def deafen(self):
        """Nothing reaches the client; what it sends arrives."""
        for r in self.replicas:
            self.cut(r, self)

    def isolate(self):
        self.deafen()
        for r in self.replicas:
            self.cut(self, r)
