"""Every group occurs once, and staleness is counted in surviving versions."""

from __future__ import annotations

import json

import pytest

from kbqa.runs.ledger import GroupOutcome, History, Ledger


def test_a_group_is_asked_for_once_and_settled_once() -> None:
    ledger = Ledger()
    ledger.ask("t1")
    ledger.ask("t2")
    assert ledger.in_flight == ["t1", "t2"]
    ledger.settle("t1", GroupOutcome.TRAINED, 3)
    assert (ledger.in_flight, ledger.outcome("t1"), ledger.outcome("t2")) == (
        ["t2"],
        GroupOutcome.TRAINED,
        None,
    )
    with pytest.raises(ValueError, match="t1 is not in flight"):
        ledger.settle("t1", GroupOutcome.STALE, 4)
    with pytest.raises(ValueError, match="t1 was asked for before"):
        ledger.ask("t1")
    with pytest.raises(ValueError, match="t2 was asked for before"):
        ledger.ask("t2")
    with pytest.raises(ValueError, match="t9 is not in flight"):
        ledger.settle("t9", GroupOutcome.FAILED, 1)


def test_a_ledger_survives_json() -> None:
    ledger = Ledger()
    for name, outcome in (
        ("t1", GroupOutcome.TRAINED),
        ("t2", GroupOutcome.STALE),
        ("t3", GroupOutcome.TRAINED),
    ):
        ledger.ask(name)
        ledger.settle(name, outcome, 1)
    ledger.ask("t4")
    again = Ledger.from_json(json.loads(json.dumps(ledger.to_json())))
    assert again.to_json() == ledger.to_json()
    assert again.counts() == {"trained": 2, "stale": 1}
    assert again.in_flight == ["t4"]


def test_staleness_is_that_of_the_oldest_turn() -> None:
    history = History()
    for version in ("a", "b", "c"):
        history.advance(version)
    assert history.staleness(["c"]) == 0
    assert history.staleness(["c", "a", "b"]) == 2
    assert history.staleness([]) == 0


def test_weights_that_did_not_survive_are_told_apart() -> None:
    history = History()
    history.advance("a")
    assert history.staleness(["a", "undone"]) is None


def test_a_republished_version_is_as_old_as_its_weights() -> None:
    history = History()
    history.advance("a")
    history.advance("b")
    history = History(json.loads(json.dumps(history.to_json())))
    history.republish("b-again")
    assert history.staleness(["b"]) == history.staleness(["b-again"]) == 0
    history.advance("c")
    assert history.staleness(["b"]) == history.staleness(["b-again"]) == 1
    assert history.staleness(["a"]) == 2
