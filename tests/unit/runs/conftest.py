"""A queue, an inbox and a schedule of a run's own; policies that know nothing, and requests for them."""

from __future__ import annotations

from pathlib import Path

import pytest

from kbqa.recipes.learning import ScheduleSection
from kbqa.runs.inbox import Inbox
from tests.published import make_request, publish, questions, recipe, store
from tests.unit.runs.exchange import Clock, Queue
from tests.unit.runs.reinforced import begin, begin_judged, graphs, make_run, splits

__all__ = [
    "begin",
    "begin_judged",
    "graphs",
    "make_request",
    "make_run",
    "publish",
    "questions",
    "recipe",
    "splits",
    "store",
]


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def queue() -> Queue:
    return Queue()


@pytest.fixture
def inbox(tmp_path: Path) -> Inbox:
    return Inbox(tmp_path / "inbox")


@pytest.fixture
def schedule() -> ScheduleSection:
    return ScheduleSection(
        steps=4,
        questions_per_step=2,
        max_in_flight=4,
        max_staleness=1,
        request_deadline_s=10.0,
        checkpoint_every=2,
        validate_every=2,
    )
