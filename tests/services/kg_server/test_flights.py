"""One computation for all who ask at the same time."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from services.kg_server.flights import Flights


def test_those_who_ask_together_share_one_outcome_and_the_next_asks_anew():
    flights, calls, release, ready = Flights(), [], threading.Event(), threading.Barrier(9)

    def compute():
        calls.append(1)
        release.wait(30)
        return len(calls)

    def ask():
        ready.wait(30)
        return flights.run("key", compute)

    with ThreadPoolExecutor(8) as threads:
        asked = [threads.submit(ask) for _ in range(8)]
        ready.wait(30)
        time.sleep(0.5)
        release.set()
        assert [outcome.result() for outcome in asked] == [1] * 8
    assert flights.run("key", compute) == 2
    assert flights.running("key") is None


def test_other_keys_do_not_wait():
    flights, release = Flights(), threading.Event()
    with ThreadPoolExecutor(1) as threads:
        slow = threads.submit(flights.run, "slow", lambda: release.wait(10))
        while flights.running("slow") is None:
            time.sleep(0.01)
        assert flights.run("fast", lambda: 7) == 7
        assert not flights.running("slow").cancel()
        release.set()
        assert slow.result() is True


def test_an_error_is_shared_and_not_remembered():
    flights, started = Flights(), threading.Event()

    def fail():
        started.set()
        time.sleep(0.2)
        raise ValueError("no")

    with ThreadPoolExecutor(2) as threads:
        first = threads.submit(flights.run, "key", fail)
        started.wait()
        second = threads.submit(flights.run, "key", lambda: "never")
        for outcome in (first, second):
            with pytest.raises(ValueError, match="no"):
                outcome.result()
    assert flights.run("key", lambda: "now") == "now"
