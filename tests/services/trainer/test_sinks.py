"""Records go where the settings say, and a run does not end because a sink does."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from kbqa.errors import ConfigurationError
from kbqa.runs.directory import RunDirectory
from kbqa.runs.journal import Journal
from services.trainer.settings import TrainerSettings
from services.trainer.sinks import Forgiving, TensorBoard, open_sinks, require_sinks, scalars


@pytest.fixture
def directory(tmp_path: Path) -> RunDirectory:
    (tmp_path / "r1").mkdir()
    return RunDirectory(tmp_path / "r1")


def test_none_is_on_unless_it_is_named(monkeypatch, directory) -> None:
    assert TrainerSettings.load().sinks == ()
    assert open_sinks((), directory) == []
    monkeypatch.setenv("KBQA_TRAINER_SINKS", "tensorboard, wandb")
    assert TrainerSettings.load().sinks == ("tensorboard", "wandb")
    monkeypatch.setenv("KBQA_TRAINER_SINKS", "mlflow")
    with pytest.raises(ConfigurationError, match="KBQA_TRAINER_SINKS"):
        TrainerSettings.load()


def test_one_that_is_not_installed_says_how_to_install_it(monkeypatch) -> None:
    monkeypatch.setattr("services.trainer.sinks.find_spec", lambda name: None)
    with pytest.raises(ConfigurationError, match=r"pip install 'kbqa\[wandb\]'"):
        require_sinks(["wandb"])
    require_sinks([])


def test_numbers_have_names_and_all_else_is_left_out() -> None:
    record = {
        "seq": 3,
        "time": 1.5,
        "kind": "evaluation",
        "phase": "rl",
        "step": 2,
        "of": 4,
        "split": "test",
        "f1": 0.5,
        "skipped": False,
        "f1_by_hops": {"1": 1.0, "2": 0.25},
        "version": "v1",
        "error_reward": [[1, 2]],
    }
    assert dict(scalars(record)) == {
        "evaluation/test/f1": 0.5,
        "evaluation/test/skipped": 0.0,
        "evaluation/test/f1_by_hops/1": 1.0,
        "evaluation/test/f1_by_hops/2": 0.25,
    }


class Flaky:
    """Takes one record, and fails from then on."""

    def __init__(self) -> None:
        self.records: list[dict] = []

    def write(self, record) -> None:
        if self.records:
            raise ConnectionError("gone")
        self.records.append(record)

    def forget_after(self, phase, step) -> None: ...

    def close(self) -> None:
        raise ConnectionError("gone")


def test_one_that_fails_is_given_up_and_the_run_goes_on(directory, caplog) -> None:
    flaky = Flaky()
    journal = Journal(directory, [Forgiving("flaky", flaky)])
    for step in (1, 2, 3):
        journal.record("step", {"loss": 0.5}, step)
    assert [record["step"] for record in flaky.records] == [1]
    assert [record["step"] for record in directory.records()] == [1, 2, 3]
    assert [record.message for record in caplog.records] == ["a sink failed and is no longer used"]


def test_tensorboard_shows_every_step_once_though_some_were_undone(directory) -> None:
    pytest.importorskip("tensorboard", reason="the extra tensorboard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    first = Journal(directory, [TensorBoard(directory)])
    first.enter("rl", of=4)
    for step, loss in ((1, 4.0), (2, 3.0), (3, math.pi)):
        first.record("step", {"loss": loss, "groups": {"trained": step}}, step)
    again = Journal(directory, [TensorBoard(directory)])  # the process died
    again.forget_after(2)
    for step, loss in ((3, 2.0), (4, 1.0)):
        again.record("step", {"loss": loss}, step)
    events = EventAccumulator(str(directory.path / "tensorboard" / "rl"))
    events.Reload()
    assert [(e.step, e.value) for e in events.Scalars("step/loss")] == [
        (1, 4.0),
        (2, 3.0),
        (3, 2.0),
        (4, 1.0),
    ]
    assert [e.value for e in events.Scalars("step/groups/trained")][:2] == [1.0, 2.0]
