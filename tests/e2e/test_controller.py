"""Controllers in Python and Go that elect one of them, through the deaths of replicas and controllers and a pause longer than a session."""
import random
import signal
import socket
import threading
import time

import cells
from clients import Eye, controller_talk, events_until, insist, watch
from guarded import as_the_manual_shows, each_way

TTL = 3
NAMES = {"anna": "python", "bert": "go", "cleo": "python", "dora": "go"}


class Resource:
    """Listens to the controllers, keeps book of every act in the order of arrival, and refuses old tokens."""

    def __init__(self):
        self.acts, self.refused = [], []
        self._mark = 0
        self._lock = threading.Lock()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.port = self._server.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self):
        while True:
            connection, _ = self._server.accept()
            threading.Thread(target=self._serve, args=(connection.makefile("rw"),), daemon=True).start()

    def _serve(self, client):
        for line in client:
            token, name, step = line.split()
            with self._lock:
                fresh = int(token) >= self._mark
                (self.acts if fresh else self.refused).append((int(token), name, int(step), time.monotonic()))
                self._mark = max(self._mark, int(token))
            client.write("ok\n" if fresh else "refused\n")
            client.flush()

    def wait_acts(self, n, of=None, timeout=15):
        """n more acts, by that controller if one is named."""
        begin = len(self.acts)

        def probe():
            new = [a for a in self.acts[begin:] if of is None or a[1] == of]
            return new if len(new) >= n else None
        return cells.wait_for(f"{n} acts of {of or 'anybody'}", probe, timeout)


def _check_book(resource, history):
    tokens = [a[0] for a in resource.acts]
    assert tokens == sorted(tokens), f"tokens fell: {tokens}"
    by_token = {}
    for token, name, _, _ in resource.acts:
        assert by_token.setdefault(token, name) == name, f"token {token} is {name}'s and {by_token[token]}'s"
    steps = [int(value.split()[0]) for value in history]
    assert steps == list(range(1, len(steps) + 1)), f"the state did not go on step by step: {steps}"
    written = [int(value.split()[1]) for value in history]
    assert written == sorted(written), f"a deposed controller wrote the state: {written}"
    return by_token


@each_way(own=True, timeout=240)  # the first test compiles
def one_controller_acts_at_any_time_and_the_state_goes_on(way):
    resource = Resource()
    with way.cell(prepare=as_the_manual_shows) as cell:
        names = random.sample(list(NAMES), 3)
        print("order:", names)
        controllers = {}
        with Eye(cell) as eye:
            for i, n in enumerate(names):
                controllers[n] = controller_talk(NAMES[n], cell, "controllers", n, resource.port)
                eye.wait_queue(b"controllers", i + 1, 20)
        first = resource.wait_acts(5)[0]
        leading = first[1]
        for c in controllers.values():
            c.expect(f"sees {leading}")

        leader = cell.leader()
        leader.kill()
        resource.wait_acts(10)
        assert all(a[:2] == first[:2] for a in resource.acts), "the leadership did not survive the death of a replica"
        leader.start()
        cell.wait_ready()

        controllers.pop(leading).kill()
        died = time.monotonic()
        second = cells.wait_for("another one acts", lambda: [a for a in resource.acts if a[1] != leading], TTL + 5)[0]
        assert second[3] - died <= TTL + 2, f"it took {second[3] - died:.1f} s"
        assert second[0] > first[0] and second[2] >= first[2]
        leading = second[1]
        for c in controllers.values():
            c.expect(f"sees {leading}")
        resource.wait_acts(5)

        # Paused for longer than its session, while a replica dies too; then it goes on, and does not know.
        paused = controllers[leading].process
        paused.send_signal(signal.SIGSTOP)
        other = next(n for n in controllers if n != leading)
        leader = cell.leader()
        leader.kill()
        third = resource.wait_acts(5, other, TTL + 8)[0]
        assert third[0] > second[0]
        paused.send_signal(signal.SIGCONT)
        controllers[leading].expect("deposed", 15)
        controllers[leading].expect("session", 15)
        cells.wait_for(f"it sees {other}", lambda: f"sees {other}" in controllers[leading].lines(), 15)
        resource.wait_acts(5, other)
        # It is back in the queue and next in line.
        with Eye(cell.running()[0]) as eye:
            assert len(insist(lambda: eye.queue(b"controllers"))) == 2 or eye.wait_queue(b"controllers", 2)
        controllers[other].kill()
        resource.wait_acts(5, leading, TTL + 8)
        controllers[leading].kill()

        with Eye(cell.running()[0]) as eye:
            eye.put(b"controller/the end")
            with watch(eye, b"controller/", range_end=b"controller0", start_revision=1) as s:
                history = [value.decode() for _, _, key, value in events_until(s, b"controller/the end") if key == b"controller/state"]
        by_token = _check_book(resource, history)
        print(f"{len(resource.acts)} acts, {len(resource.refused)} refused, {len(history)} states, tokens {by_token}")
        assert len(by_token) == 4, by_token
