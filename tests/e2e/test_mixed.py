"""Contenders of every kind for one name: the Lock and Election services, over gRPC and JSON, and the recipes that clients bring along, queue
together. Each holds when it is first by creation, never with another, and the next one follows when it goes, however it goes."""
import random

import cells
from clients import (Eye, b64, call, curl_talk, electionpb, etcdctl_talk, go_talk, insist, lockpb, node_talk, unb64)
from runner import test

BUILD = 240
NAME = "election/mixed"  # npm's client puts 'election/' before its names


class Talking:
    """A contender that is a process, which says a line when it holds and lets go on a word or a signal."""

    def __init__(self, talk, holds, let_go):
        self.talk, self.holds, self._let_go = talk, holds, let_go

    def held(self):
        return any(self.holds in line for line in self.talk.lines())

    def release(self):
        self._let_go(self.talk)

    def close(self):
        self.talk.kill()


class Calling:
    """A contender that is a gRPC call of ours."""

    def __init__(self, eye, ask, let_go):
        self.eye, self.lease = eye, eye.grant(60)
        self._future = ask(self.lease)
        self._let_go = let_go

    def held(self):
        return self._future.done() and self._future.result() is not None

    def release(self):
        insist(lambda: self._let_go(self._future.result()))

    def close(self):
        self._future.cancel()
        self.eye.channel.close()


class Curling:
    """A contender that is a curl, which ends when it holds."""

    def __init__(self, replica, path, answer, let_go):
        self.replica, self._let_go = replica, let_go
        lease = call(replica, "/lease/grant", {"TTL": 60})["ID"]
        self.talk = curl_talk(replica, path, {"name": b64(NAME), "lease": lease, "value": b64("curl")})
        self._answer = answer

    def held(self):
        return any(self._answer in line for line in self.talk.lines())

    def release(self):
        import json
        self._let_go(self.replica, json.loads("".join(self.talk.lines())))

    def close(self):
        self.talk.kill()


def _say(word):
    return lambda talk: talk.say(word)


def _interrupt(talk):
    talk.interrupt()


def _kinds(cell):
    """Functions that start a contender at replicas of their own choice."""
    def any_replica():
        return random.choice(cell.running())

    def lock_service():
        eye = Eye(any_replica())
        return Calling(eye, lambda lease: eye.ask_lock(NAME.encode(), lease),
                       lambda held: eye.lock.Unlock(lockpb.UnlockRequest(key=held.key, fencing_token=held.fencing_token), timeout=10))

    def election_service():
        eye = Eye(any_replica())
        return Calling(eye, lambda lease: eye.campaign(NAME.encode(), lease, b"grpc"),
                       lambda held: eye.election.Resign(electionpb.ResignRequest(leader=held.leader), timeout=10))

    def ends_with_its_lease():
        eye = Eye(any_replica())
        c = Calling(eye, lambda lease: eye.ask_lock(NAME.encode(), lease), lambda held: eye.revoke(held.lease))
        return c

    return {
        "Lock over gRPC": lock_service,
        "Campaign over gRPC": election_service,
        "Lock over gRPC, whose lease ends": ends_with_its_lease,
        "Lock by curl": lambda: Curling(any_replica(), "/lock/lock", '"key"', lambda r, held: call(r, "/lock/unlock", {"key": held["key"]})),
        "Campaign by curl": lambda: Curling(any_replica(), "/election/campaign", '"leader"',
                                            lambda r, held: call(r, "/election/resign", {"leader": held["leader"]})),
        "etcdctl lock": lambda: Talking(etcdctl_talk(cell, "lock", NAME), NAME + "/", _interrupt),
        "etcdctl elect": lambda: Talking(etcdctl_talk(cell, "elect", NAME, "etcdctl"), NAME + "/", _interrupt),
        "Go's mutex": lambda: Talking(go_talk(cell, "mutex", NAME), "held", _say("unlock")),
        "Go's election": lambda: Talking(go_talk(cell, "elect", NAME, "go"), "held", _say("resign")),
        "Node's election": lambda: Talking(node_talk(cell, "client.js", "elect", NAME.split("/")[1], "node"), "held", _say("resign")),
    }


def _queue_up(cell, names):
    """Starts the contenders one after the other, each when the one before it is in the queue; [(name, contender)]."""
    kinds = _kinds(cell)
    contenders = []
    with Eye(cell) as eye:
        for i, name in enumerate(names):
            contenders.append((name, kinds[name]()))
            keys = eye.wait_queue(NAME.encode(), i + 1, 15)
    return contenders, keys


def _work_off(cell, contenders, keys, at=None, do=None):
    tokens = []
    for i, (name, c) in enumerate(contenders):
        cells.wait_for(f"number {i}, {name}, holds", c.held, 15)
        late = [n for n, other in contenders[i + 1:] if other.held()]
        assert not late, f"{name} holds, and {late} too"
        with Eye(cell.running()[0]) as eye:
            assert insist(lambda: eye.queue(NAME.encode()))[0] == keys[i], f"{name} holds, but is not first"
            tokens.append(insist(lambda: eye.get(keys[i])).create_revision)
        if at == i:
            do()
            late = [n for n, other in contenders[i + 1:] if other.held()]
            assert not late, f"{name} holds, and {late} too, after the leader's death"
        c.release()
    assert tokens == sorted(set(tokens)), f"tokens do not rise: {tokens}"
    with Eye(cell.running()[0]) as eye:
        eye.wait_queue(NAME.encode(), 0, 15)
    for _, c in contenders:
        c.close()


@test(timeout=BUILD)
def contenders_of_every_kind_hold_in_the_order_of_creation(server):
    with cells.Cell(server, 1) as cell:
        names = list(_kinds(cell))
        random.shuffle(names)
        print("order:", names)
        _work_off(cell, *_queue_up(cell, names))


@test(timeout=BUILD)
def contenders_of_every_kind_keep_their_order_through_the_death_of_the_leader(server):
    """The calls at the replica that dies end with it; so those that are one connection to one replica ask at another."""
    with cells.Cell(server, 5) as cell:
        leader = cell.leader()
        lives = [r for r in cell.replicas if r is not leader]
        names = list(_kinds(cell))
        random.shuffle(names)
        print("order:", names)

        class Lives:
            """The same cell, as seen by who keeps to those that live on."""
            endpoints = cell.endpoints
            replicas = lives

            @staticmethod
            def running():
                return [r for r in lives if r.running()]

        contenders, keys = _queue_up(Lives, names)

        def kill():
            leader.kill()
            with Eye(lives[0]) as eye:
                insist(lambda: eye.put(b"alive"))
                assert insist(lambda: eye.queue(NAME.encode())) == keys[2:], "the queue changed with the leader"

        _work_off(Lives, contenders, keys, at=2, do=kill)


@test(timeout=BUILD)
def who_observes_sees_every_kind_lead(server):
    """Go's observer, npm's, curl's and etcdctl's see leaders of each other's kinds, in order."""
    import json
    with cells.Cell(server, 3) as cell:
        observers = [go_talk(cell, "observe", NAME), etcdctl_talk(cell, "elect", "-l", NAME),
                     curl_talk(cell.replicas[1], "/election/observe", {"name": b64(NAME)}),
                     node_talk(cell, "client.js", "observe", NAME.split("/")[1])]
        observers[0].expect("observing")
        observers[3].expect("observing")
        kinds = _kinds(cell)
        # An observer may pass over a leader who leads only for a moment, so each leads until all have seen it.
        for name, value in (("Go's election", "go"), ("Campaign by curl", "curl"), ("Node's election", "node"), ("Campaign over gRPC", "grpc"),
                            ("etcdctl elect", "etcdctl")):
            c = kinds[name]()
            cells.wait_for(f"{name} leads", c.held, 15)
            for o in observers[:2] + observers[3:]:
                o.expect(rf"\b{value}$")
            told = json.loads(observers[2].expect('"kv"').string)["result"]["kv"]
            assert unb64(told["value"]) == value and unb64(told["key"]).startswith(NAME + "/"), told
            c.release()
            with Eye(cell) as eye:
                eye.wait_queue(NAME.encode(), 0, 15)
            c.close()
