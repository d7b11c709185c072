"""All libraries at once on one cell, which is started as etcd's manual shows: two of each kind add to the kind's counter under its own lock, through deaths of the leader."""
import contextlib
import pathlib
import re
import tempfile

import cells
from clients import Eye, etcdctl, events_until, go_talk, insist, node_talk, python_talk, watch
from guarded import as_the_manual_shows, each_way
from runner import is_full, test


def kinds(cell, lives):
    """How one of each kind is started, to take turns as NAME at COUNTER with BOOK. Python's clients know one replica each: it is not the one that dies."""
    at = iter(lives * 4)
    return {"go": lambda *args: go_talk(cell, "turns", *args),
            "etcd3": lambda *args: python_talk("etcd3_client.py", next(at).client_port, "turns", *args),
            "etcd3gw": lambda *args: python_talk("etcd3gw_client.py", next(at).client_port, "turns", *args),
            "npm": lambda *args: node_talk(cell, "client.js", "turns", *args),
            "grpc-js": lambda *args: node_talk(cell, "protos.js", cells.TOP / "api" / "proto", "turns", *args)}


def wait_more(talks, n):
    """Everybody has had n more turns."""
    goals = {name: len(numbers(talk, "turn")) + n for name, talk in talks.items()}

    def behind():
        return [f"{name}: {talk.lines()[-3:]}" for name, talk in talks.items() if len(numbers(talk, "turn")) < goals[name]]
    try:
        cells.wait_for("", lambda: not behind(), 40)
    except TimeoutError:
        raise AssertionError(f"no {n} more turns within 40 s for {behind()}") from None


def numbers(talk, word):
    return [int(line.split()[1]) for line in talk.lines() if line.startswith(word + " ")]


def check(counter, names, talks, book, history):
    """Nobody's addition was lost, and never two held."""
    states = [value.decode().split() for _, _, key, value in history if key == counter.encode()]
    assert [int(n) for n, _ in states] == list(range(1, len(states) + 1)), f"{counter} did not go on one by one: {states}"
    by = {name: {int(n) for n, who in states if who == name} for name in names}
    for name in names:
        turns, unsure = set(numbers(talks[name], "turn")), set(numbers(talks[name], "unsure"))
        assert turns <= by[name], f"{name} was told that {sorted(turns - by[name])[:5]} are written"
        assert by[name] <= turns | unsure, f"{name} was never told of {sorted(by[name] - turns - unsure)[:5]}"
    lines = pathlib.Path(book).read_text(encoding="ascii").split("\n")[:-1]
    for i in range(0, len(lines), 2):
        word, name = lines[i].split()
        assert word == "in" and lines[i + 1:i + 2] == [f"out {name}"], f"two held: {lines[max(0, i - 2):i + 4]}"
    return f"{counter}: {len(states)} turns, {sum(len(numbers(talks[n], 'unsure')) for n in names)} unsure"


class Said:
    """A talk that is over."""

    def __init__(self, *lines):
        self.lines = lambda: list(lines)


@test()
def the_judge_knows_what_is_wrong(_server):
    def verdict(history, a, b, book="in a\nout a\nin b\nout b\n"):
        with tempfile.NamedTemporaryFile("w", encoding="ascii") as f:
            f.write(book)
            f.flush()
            try:
                check("c", ["a", "b"], {"a": Said(*a), "b": Said(*b)}, f.name, [(i, 0, b"c", value.encode()) for i, value in enumerate(history)])
            except AssertionError as e:
                return re.search("one by one|are written|never told|two held", str(e))[0]
        return "fine"
    told = ["turn 1"], ["turn 2"]
    assert verdict(["1 a", "2 b"], *told) == "fine"
    assert verdict(["1 a", "2 b"], ["turn 1"], ["unsure 2"]) == verdict(["1 a"], ["turn 1"], ["unsure 2"]) == "fine"
    assert verdict(["1 a"], *told) == "are written"
    assert verdict(["1 a", "2 a"], ["turn 1", "unsure 2"], ["turn 2"]) == "are written"
    assert verdict(["1 a", "1 b"], ["turn 1"], ["turn 1"]) == "one by one"
    assert verdict(["1 a", "2 b"], ["turn 1"], []) == "never told"
    assert verdict(["1 a", "2 b"], *told, "in a\nin b\nout b\nout a\n") == verdict(["1 a", "2 b"], *told, "in a\nout b\n") == "two held"


@each_way(own=True, timeout=300)  # the first test compiles, and installs npm's packages
def everybody_takes_turns_through_the_deaths_of_leaders(way):
    with way.cell(prepare=as_the_manual_shows) as cell, contextlib.ExitStack() as stack:
        victim = cell.leader()
        lives = [r for r in cell.replicas if r is not victim]
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        talks, teams = {}, {}
        with Eye(lives[0]) as eye:
            first = eye.revision()
        for kind, start in kinds(cell, lives).items():
            teams[kind] = [f"{kind}-{i}" for i in range(2)]
            for name in teams[kind]:
                talks[name] = stack.enter_context(start(name, f"counter/{kind}", f"{folder}/{kind}"))
        for turn in range(3 if is_full() else 1):
            wait_more(talks, 3)
            if turn:  # the lead comes back to the one that may die
                etcdctl(cell.leader(), "move-leader", member_id(victim))
            victim.kill()
            wait_more(talks, 3)
            victim.start()
            cell.wait_ready()
        wait_more(talks, 3)
        for kind in teams:
            pathlib.Path(f"{folder}/{kind}.end").touch()
        for talk in talks.values():
            talk.wait(40)
        with Eye(lives[0]) as eye:
            insist(lambda: eye.put(b"counter/the end"))
            with watch(eye, b"counter/", range_end=b"counter0", start_revision=first + 1) as s:
                history = events_until(s, b"counter/the end")
        for kind, names in teams.items():
            print(check(f"counter/{kind}", names, talks, f"{folder}/{kind}", history))


def member_id(replica):
    return next(line.split(",")[0] for line in etcdctl(replica, "member", "list").splitlines() if line.split(", ")[2] == replica.name)
