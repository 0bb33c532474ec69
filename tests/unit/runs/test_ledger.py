"""Every group occurs once, and staleness is counted in surviving versions."""

from __future__ import annotations

import json
import time
from pathlib import Path

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


def settle(ledger: Ledger, *numbers: int, step: int) -> None:
    for number in numbers:
        ledger.ask(f"t{number:07d}")
        ledger.settle(f"t{number:07d}", GroupOutcome.TRAINED, step)


def test_what_was_settled_before_the_oldest_group_in_flight_is_archived(tmp_path: Path) -> None:
    archive, ledger = tmp_path / "settled.jsonl", Ledger()
    settle(ledger, 0, 1, step=1)
    ledger.ask("t0000002")
    settle(ledger, 3, step=2)
    ledger.archive(archive)
    assert [json.loads(line) for line in archive.read_text().splitlines()] == [
        ["t0000000", "trained", 1],
        ["t0000001", "trained", 1],
    ]
    ledger = Ledger.from_json(json.loads(json.dumps(ledger.to_json())))
    assert ledger.to_json()["settled"] == {"t0000003": ["trained", 2]}
    assert [ledger.is_settled(f"t{number:07d}") for number in range(5)] == [True, True, False, True, False]
    assert ledger.counts() == {"trained": 3}
    for asked in ("t0000001", "t0000002", "t0000003"):
        with pytest.raises(ValueError, match="was asked for before"):
            ledger.ask(asked)
    with pytest.raises(ValueError, match="not in flight"):
        ledger.settle("t0000000", GroupOutcome.STALE, 3)


def test_a_ledger_does_not_grow_with_its_run(tmp_path: Path) -> None:
    ledger, sizes = Ledger(), []
    for step in range(1, 6):
        settle(ledger, *range(100 * step, 100 * step + 100), step=step)
        ledger.archive(tmp_path / "settled.jsonl")
        sizes.append(len(json.dumps(ledger.to_json())))
    assert max(sizes) - min(sizes) < 10  # digits
    assert len((tmp_path / "settled.jsonl").read_text().splitlines()) == 500


def test_what_a_restore_has_undone_is_replaced_in_the_archive(tmp_path: Path) -> None:
    archive, ledger = tmp_path / "settled.jsonl", Ledger()
    settle(ledger, 0, step=1)
    ledger.archive(archive)
    checkpoint = json.dumps(ledger.to_json())
    settle(ledger, 1, 2, step=2)
    ledger.archive(archive)
    again = Ledger.from_json(json.loads(checkpoint))
    settle(again, 1, step=7)
    again.archive(archive)
    assert [json.loads(line)[2] for line in archive.read_text().splitlines()] == [1, 7]


def test_a_checkpoint_of_an_earlier_release_is_read() -> None:
    ledger = Ledger.from_json({"in_flight": ["t2"], "settled": {"t1": ["stale", 1]}})
    assert (ledger.is_settled("t1"), ledger.in_flight, ledger.counts()) == (True, ["t2"], {"stale": 1})


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


def test_staleness_in_a_long_run_takes_no_longer_than_in_a_short_one() -> None:
    def seconds(versions: int) -> float:
        history = History({f"v{number}": number for number in range(versions)})
        began = time.process_time()
        for _ in range(2000):
            history.staleness([f"v{versions - 1}"])
        return time.process_time() - began

    seconds(10)
    assert seconds(100_000) < 20 * seconds(10) + 0.05
