"""A training process that keeps dying is not started for ever, and one run is held at a time."""

from __future__ import annotations

import sys
import threading
import time

import pytest
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry

from kbqa.errors import MachineTooSmallError, RunConflictError
from kbqa.recipes import recipe_from
from kbqa.runs.directory import Runs, SplitLimits, State
from kbqa.runs.lease import Lease
from kbqa.telemetry.metrics import Metrics
from services import processes
from services.trainer import app as trainer
from services.trainer import supervisor as supervising
from services.trainer.claim import QueueClaim
from services.trainer.intake import Intake
from services.trainer.settings import TrainerSettings
from services.trainer.supervisor import Exit, Supervisor
from tests.services.queues import wait_until

NO_CLAIM = QueueClaim("amqp://127.0.0.1:1", "", print)


@pytest.fixture
def runs(tmp_path) -> Runs:
    return Runs(tmp_path / "runs")


@pytest.fixture
def create(runs, tiny_recipe):
    return lambda: runs.create(recipe_from(tiny_recipe), "world", SplitLimits(), seed=1)


@pytest.fixture
def make_supervisor(runs, tmp_path):
    supervisors = []

    def make(fit=lambda recipe: recipe, runs=runs, claim=NO_CLAIM, **settings) -> Supervisor:
        settings = TrainerSettings(home=tmp_path, **settings)
        # Python without its library dies at once.
        environment = {"PYTHONHOME": "/nonexistent"}
        metrics = Metrics(CollectorRegistry())
        supervisors.append(Supervisor(runs, settings, metrics, environment, claim, fit))
        return supervisors[-1]

    yield make
    for supervisor in supervisors:
        supervisor.close()


@pytest.fixture
def child(tmp_path, monkeypatch):
    """`child("exit 4")` runs a shell script as training process; the result says whether it has begun."""

    def make(script: str):
        program, begun = tmp_path / "python", tmp_path / "begun"
        program.write_text(f"#!/bin/sh\n: > {begun}\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(sys, "executable", str(program))
        return begun.exists

    return make


def wait_until_idle(supervisor: Supervisor) -> None:
    deadline = time.monotonic() + 20
    while supervisor.active is not None:
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_a_process_that_keeps_dying_fails_the_run_with_the_reason(make_supervisor, create) -> None:
    supervisor = make_supervisor(max_restarts=2)
    directory = supervisor.begin(create)
    wait_until_idle(supervisor)
    record = directory.read()
    assert (record.state, record.restarts) == (State.FAILED, 2)
    assert record.error is not None
    assert "died 3 times in a row" in record.error
    assert "train.log" in record.error


def test_a_second_run_is_refused_and_leaves_no_trace(make_supervisor, create, runs) -> None:
    supervisor = make_supervisor(max_restarts=100)
    first = supervisor.begin(create)
    with pytest.raises(RunConflictError, match=first.id):
        supervisor.begin(create)
    assert [directory.id for directory in runs.all()] == [first.id]


def test_a_run_is_stopped_even_between_two_attempts(make_supervisor, create) -> None:
    supervisor = make_supervisor(max_restarts=100)
    directory = supervisor.begin(create)
    while directory.read().restarts < 3:
        time.sleep(0.02)
    supervisor.stop(directory)
    assert directory.read().state is State.STOPPED
    with pytest.raises(RunConflictError, match="it is stopped"):
        supervisor.stop(directory)
    supervisor.resume(directory)
    assert directory.read().state is State.RUNNING


def test_a_run_that_was_going_on_is_taken_up_again_unless_told_otherwise(make_supervisor, create) -> None:
    directory = create()  # state running, and no trainer
    make_supervisor(auto_resume=False).resume_interrupted()
    assert directory.read().state is State.STOPPED

    directory = create()
    supervisor = make_supervisor(max_restarts=100)
    supervisor.resume_interrupted()
    assert supervisor.active == directory.id
    supervisor.close()
    assert directory.read().state is State.RUNNING  # to be taken up by the next trainer


def test_a_run_that_is_done_is_not_resumed(make_supervisor, create) -> None:
    directory = create()
    directory.write(directory.read().model_copy(update={"state": State.DONE}))
    with pytest.raises(RunConflictError, match="is done"):
        make_supervisor().resume(directory)


def test_a_second_trainer_of_the_home_stands_by_until_the_first_has_ended(make_supervisor, create) -> None:
    first, second = make_supervisor(), make_supervisor()
    assert first.take_over() is None
    assert "trains the runs under" in second.take_over()
    with pytest.raises(RunConflictError, match="stands by"):
        second.begin(create)
    first.close()
    assert second.take_over() is None


def test_a_second_trainer_takes_no_replies_until_the_first_has_ended(tmp_path, broker_url, monkeypatch):
    done, stopped = [], threading.Event()

    def consume(*_: object, **__: object) -> None:
        done.append("consume")
        stopped.wait()

    monkeypatch.setattr(trainer, "consume", consume)
    monkeypatch.setattr(trainer, "stop_consuming", stopped.set)
    monkeypatch.setattr(trainer, "_STAND_BY_S", 0.05)
    monkeypatch.setattr(Intake, "sweep", lambda intake: done.append("sweep"))
    first = Lease.take(tmp_path / "runs", "trainer a-1")
    second = trainer.create_app(TrainerSettings.load(home=tmp_path, broker_url=broker_url))
    with TestClient(second, "http://127.0.0.1:8003") as client:
        refused = client.get("/readyz")
        assert (refused.status_code, done) == (503, [])
        assert "trainer a-1 trains the runs under" in refused.json()["detail"]
        first.release()
        wait_until(lambda: client.get("/readyz").status_code == 200)
    assert done == ["sweep", "consume"]


def test_a_trainer_whose_queues_another_home_uses_lets_its_own_home_go(
    make_supervisor, tmp_path, broker_url
) -> None:
    others = Runs(tmp_path / "other" / "runs")
    first = make_supervisor(claim=QueueClaim(broker_url, "", print))
    second = make_supervisor(runs=others, claim=QueueClaim(broker_url, "", print))
    assert first.take_over() is None
    assert "uses the queues of this Redis for another KBQA_HOME" in second.take_over()
    Lease.take(others.root, "anybody").release()
    first.close()
    assert second.take_over() is None


def test_the_training_process_holds_the_home_after_its_trainer_has_died(
    make_supervisor, create, runs, child
) -> None:
    begun = child("read line")
    supervisor = make_supervisor()
    supervisor.begin(create)
    wait_until(begun)
    supervisor._lease.release()  # as the kernel does for a trainer that is killed
    supervisor._lease = None
    with pytest.raises(RunConflictError, match="stands by until that one has ended"):
        Lease.take(runs.root, "trainer b-2")
    supervisor.close()
    Lease.take(runs.root, "trainer b-2").release()


def test_the_log_of_a_training_process_is_kept_short_while_it_runs(
    make_supervisor, create, child, monkeypatch
) -> None:
    monkeypatch.setattr(supervising, "_LOG_S", 0.05)
    monkeypatch.setattr(processes, "_LONGEST_LOG", 10)
    child("echo more than ten characters\nread line")
    log = make_supervisor().begin(create).log_path
    before = log.with_name(f"{log.name}.1")
    wait_until(lambda: before.exists() and log.read_text() == "")
    assert before.read_text() == "more than ten characters\n"


def test_a_training_process_that_lost_the_lease_ends_its_trainer_and_not_the_run(
    make_supervisor, create, child, monkeypatch
) -> None:
    told = []
    monkeypatch.setattr(supervising, "abandon", told.append)
    child(f"exit {Exit.ABANDONED:d}")
    supervisor = make_supervisor()
    directory = supervisor.begin(create)
    wait_until_idle(supervisor)
    assert told == ["the lease was lost"]
    record = directory.read()
    assert (record.state, record.restarts, record.error) == (State.RUNNING, 0, None)


def test_a_stop_waits_for_the_checkpoint_and_an_end_as_long_as_services_have(
    make_supervisor, create, monkeypatch
) -> None:
    ended, end = [], supervising._Watch.end

    def recorded(watch, state, patience_s) -> None:
        ended.append((state, patience_s))
        end(watch, state, patience_s)

    monkeypatch.setattr(supervising._Watch, "end", recorded)
    supervisor = make_supervisor(max_restarts=100, stop_wait_s=321, drain_s=123)
    directory = supervisor.begin(create)
    supervisor.stop(directory)
    supervisor.resume(directory)
    supervisor.close()
    assert ended == [(State.STOPPED, 321), (None, 123)]


def test_intake_and_training_process_end_at_the_same_time(tmp_path, broker_url, monkeypatch):
    """One grace period covers both."""
    stopped, periods = threading.Event(), []

    def taking(what: str) -> None:
        began = time.monotonic()
        time.sleep(0.5)
        periods.append((what, began, time.monotonic()))

    def consume(*_: object, **__: object) -> None:
        stopped.wait()
        taking("intake")

    monkeypatch.setattr(trainer, "consume", consume)
    monkeypatch.setattr(trainer, "stop_consuming", stopped.set)
    close = Supervisor.close

    def close_slowly(supervisor: Supervisor) -> None:
        taking("training process")
        close(supervisor)

    monkeypatch.setattr(Supervisor, "close", close_slowly)
    with TestClient(trainer.create_app(TrainerSettings.load(home=tmp_path, broker_url=broker_url))):
        pass
    assert {what for what, _, _ in periods} == {"intake", "training process"}
    assert max(began for _, began, _ in periods) < min(ended for _, _, ended in periods)


def refusing(recipe):
    raise MachineTooSmallError("too large for this machine")


def test_a_run_that_does_not_fit_this_machine_is_not_resumed(make_supervisor, create) -> None:
    directory = create()
    directory.write(directory.read().model_copy(update={"state": State.STOPPED}))
    supervisor = make_supervisor(refusing)
    with pytest.raises(MachineTooSmallError):
        supervisor.resume(directory)
    assert directory.read().state is State.STOPPED
    assert supervisor.active is None


def test_a_run_that_was_interrupted_and_does_not_fit_any_more_fails_with_the_reason(
    make_supervisor, create
) -> None:
    directory = create()
    make_supervisor(refusing).resume_interrupted()
    assert (directory.read().state, directory.read().error) == (State.FAILED, "too large for this machine")


def test_a_run_goes_on_with_rows_that_fit_the_machine_on_which_it_is_resumed(make_supervisor, create) -> None:
    directory = create()
    directory.write(directory.read().model_copy(update={"state": State.STOPPED}))

    def fit(recipe):
        shorter = recipe.optimisation.model_copy(update={"token_budget": 77})
        return recipe.model_copy(update={"optimisation": shorter})

    make_supervisor(fit, max_restarts=0).resume(directory)
    assert directory.read().resolved_recipe().optimisation.token_budget == 77
