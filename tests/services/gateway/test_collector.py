"""Nothing of a question is left to the garbage collector."""

from __future__ import annotations

import gc
import math
import time

import pytest

from services.gateway.collector import look_seldom
from services.gateway.work import Work
from tests.services.gateway.conftest import FixedPolicy, answer, query, recite

STARRED = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks"))


@pytest.fixture
def no_collector():
    gc.collect()
    gc.disable()
    yield
    gc.enable()


@pytest.mark.parametrize("stream", [False, True])
def test_what_a_question_took_is_free_when_it_has_ended(gateway, stream, no_collector):
    client = gateway(FixedPolicy(STARRED))
    before = {id(work): work for work in works()}
    for _ in range(3):
        asked = {"question": "Who starred in Big?", "kg": "films", "stream": stream}
        headers = {"Cache-Control": "no-cache"}
        assert client.post("/v1/answer", json=asked, headers=headers).status_code == 200

    def left():
        return [work for work in works() if id(work) not in before]

    # A thread that has sent the last of an answer may hold its frame for a moment longer.
    deadline = time.monotonic() + 30
    while left() and time.monotonic() < deadline:
        time.sleep(0.01)
    assert left() == []


def test_what_was_imported_is_not_looked_at_again():
    before, thresholds = gc.get_freeze_count(), gc.get_threshold()
    try:
        look_seldom()
        assert gc.get_freeze_count() > before + 10_000
        assert math.prod(gc.get_threshold()[:2]) > 10 * math.prod(thresholds[:2])
    finally:
        gc.unfreeze()
        gc.set_threshold(*thresholds)


def works():
    return [found for found in gc.get_objects() if type(found) is Work]
