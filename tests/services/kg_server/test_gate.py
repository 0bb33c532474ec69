"""Turns: few at a time, fair between clients, never for ever."""

from __future__ import annotations

import threading
import time
from contextlib import ExitStack

import pytest

from kbqa.errors import QueryOverloadError
from services.kg_server.gate import AdmissionGate


class Crowd:
    """Threads at a gate; `order` tells in which order they got in."""

    def __init__(self, gate):
        self.gate, self.order, self.refused = gate, [], []
        self.threads = []

    def send(self, client, name, wait_s=60.0):
        """One more thread, which has come as far as it gets when this returns."""
        leave = threading.Event()

        def work():
            try:
                with self.gate.place(client, wait_s=wait_s):
                    self.order.append(name)
                    leave.wait(60)
            except QueryOverloadError:
                self.refused.append(name)

        thread = threading.Thread(target=work)
        thread.start()
        self.threads.append((thread, leave))
        self.settle(len(self.threads))
        return leave

    def settle(self, count):
        """Wait until that many threads are in, were refused, or wait."""
        for _ in range(1000):
            waiting = sum(map(len, self.gate._waiting.values()))
            if len(self.order) + len(self.refused) + waiting >= count:
                return
            time.sleep(0.01)

    def admitted(self, count):
        """Who got in, in order, once there are that many."""
        for _ in range(1000):
            if len(self.order) >= count:
                break
            time.sleep(0.01)
        return self.order

    def turned_away(self, count):
        """Who was refused, in order, once there are that many."""
        for _ in range(1000):
            if len(self.refused) >= count:
                break
            time.sleep(0.01)
        return self.refused

    def end(self):
        for _, leave in self.threads:
            leave.set()
        for thread, _ in self.threads:
            thread.join()


@pytest.fixture
def crowd():
    crowds = []

    def make(places, queue):
        crowds.append(Crowd(AdmissionGate(places, queue)))
        return crowds[-1]

    yield make
    for crowd in crowds:
        crowd.end()


def test_those_who_wait_get_in_by_turns_of_clients_not_of_threads(crowd):
    crowd = crowd(1, 10)
    first = crowd.send("greedy", "g1")
    leaves = {name: crowd.send("greedy", name) for name in ("g2", "g3")}
    leaves["m1"] = crowd.send("modest", "m1")
    assert crowd.order == ["g1"]
    first.set()
    assert crowd.admitted(2) == ["g1", "g2"]  # both hold none: who came first
    crowd.end()
    assert sorted(crowd.order) == ["g1", "g2", "g3", "m1"]


def test_a_client_that_holds_places_yields_to_one_that_holds_none(crowd):
    crowd = crowd(2, 10)
    first = crowd.send("greedy", "g1")
    crowd.send("greedy", "g2")
    for name in ("g3", "g4"):
        crowd.send("greedy", name)
    crowd.send("modest", "m1")
    first.set()
    assert crowd.admitted(3) == ["g1", "g2", "m1"]


def test_when_too_many_wait_the_client_with_most_of_them_loses_its_latest(crowd):
    crowd = crowd(1, 3)
    crowd.send("greedy", "g1")
    for name in ("g2", "g3", "g4"):
        crowd.send("greedy", name)
    crowd.send("greedy", "g5")
    assert crowd.refused == ["g5"]
    crowd.send("modest", "m1")
    assert crowd.turned_away(2) == ["g5", "g4"]
    crowd.send("modest", "m2")
    assert crowd.turned_away(3) == ["g5", "g4", "m2"]


def test_nobody_waits_longer_than_told(crowd):
    crowd = crowd(1, 3)
    leave = crowd.send("a", "a1")
    started = time.monotonic()
    with pytest.raises(QueryOverloadError, match="too many") as caught, crowd.gate.place("b", wait_s=0.2):
        pass
    assert 0.2 <= time.monotonic() - started < 30
    assert caught.value.retry_after_s == 0.2
    leave.set()
    with crowd.gate.place("b", wait_s=60):
        pass


def test_without_a_queue_one_gets_in_or_not(crowd):
    crowd = crowd(1, 0)
    crowd.send("a", "a1")
    with pytest.raises(QueryOverloadError), crowd.gate.place("b", wait_s=5):
        pass


def test_places_are_never_exceeded_nor_lost():
    gate, inside, most, lock, refused = AdmissionGate(3, 5), 0, 0, threading.Lock(), []

    def work(client):
        nonlocal inside, most
        for _ in range(50):
            try:
                with gate.place(client, wait_s=0.005):
                    with lock:
                        inside += 1
                        most = max(most, inside)
                    time.sleep(0.0005)
                    with lock:
                        inside -= 1
            except QueryOverloadError as error:
                refused.append(error)

    threads = [threading.Thread(target=work, args=(f"c{number % 4}",)) for number in range(16)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most == 3
    assert refused
    # All have left, and nobody waits any more: every place is free, and there are no more than that.
    with ExitStack() as places:
        for _ in range(3):
            places.enter_context(gate.place("later", wait_s=0))
        with pytest.raises(QueryOverloadError):
            places.enter_context(gate.place("later", wait_s=0))
