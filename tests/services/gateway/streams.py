"""Event streams as tests read them, and a gateway that a client can walk away from."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import httpx

from kbqa.client.events import EVENT, Event, EventOrder
from services.gateway.app import create_app
from services.gateway.settings import GatewaySettings
from services.http import background
from tests.services.gateway.conftest import CODEC


def events_of(lines: Iterable[str]) -> list[Event]:
    """The events of a `text/event-stream`, whose order is checked."""
    order, events = EventOrder(), list[Event]()
    for line in lines:
        if line.startswith("data: "):
            events.append(EVENT.validate_json(line.removeprefix("data: ")))
            order.accept(events[-1])
    return events


def names(events: Iterable[Event]) -> list[str]:
    return [event.event for event in events]


@contextmanager
def serving(home, kg_server_url, policies, **settings) -> Iterator[httpx.Client]:
    """A client of a gateway that listens on a port: what it does when a client leaves is seen there alone."""
    made = GatewaySettings.load(home=home, kg_server_url=kg_server_url, **settings)
    with background(create_app(made, policies)) as url, httpx.Client(base_url=url, timeout=60) as client:
        yield client


class Patient:
    """A policy that writes the first `turns` of an episode and then ponders until nobody waits for it.

    Attributes:
        pondering: set once it does; `ponderers` says how often it did.
        stopped: set when it was told to stop.
        go_on: a test sets it to have it write again.
    """

    max_length = 4096

    def __init__(self, scripted, turns: int, most_s: float = 20.0) -> None:
        self._scripted, self._turns, self._most_s = scripted, turns, most_s
        self.ponderers = 0
        self.pondering, self.stopped, self.go_on = threading.Event(), threading.Event(), threading.Event()

    def generate(self, prompts, params, *, deadline=None, cancelled=None):
        if CODEC.decode(prompts[0]).count("<information>") < self._turns:
            return self._scripted.generate(prompts, params)
        self.ponderers += 1
        self.pondering.set()
        until = time.monotonic() + self._most_s
        while not self.go_on.is_set() and time.monotonic() < until:
            if cancelled.wait(0.01):
                self.stopped.set()
                break
        return self._scripted.generate(prompts, params)
