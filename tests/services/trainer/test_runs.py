"""Whole runs through real processes: trainer, training process, rollout worker, kg_server, Redis.

THE invariant: in the history of the surviving weights every group asked for occurs
once, trained or dropped with a reason, whatever dies when.
"""

from __future__ import annotations

import copy
import json
import time

import psutil
import pytest

from kbqa.policy_store import PolicyStore
from kbqa.trajectory import Group, Question, RewardedTrajectory, Status, Trajectory
from kbqa.wire import DELIVER_TASK, TRAJECTORIES, Purpose, RolloutReply, encode
from services.broker import create_celery, send
from services.dead_letters import DeadLetters
from tests.ledgers import read_ledger
from tests.services.invariant import assert_every_group_occurs_once


@pytest.fixture(scope="module")
def worker(start_service):
    return start_service("rollout_worker").ready()


@pytest.fixture(scope="module")
def trainer(start_service, worker):
    # A busy machine takes its time over the checkpoint at the end.
    return start_service("trainer", KBQA_TRAINER_DRAIN_S="120").ready()


@pytest.fixture
def runs(trainer, client):
    """Runs of the trainer; whatever is still going on after a test is stopped."""
    runs = client(trainer)
    yield runs
    if trainer.process.poll() is not None:
        return
    for run in runs.http.get("/v1/runs").json()["runs"]:
        if run["state"] == "running":
            runs.http.post(f"/v1/runs/{run['id']}/stop")


@pytest.fixture
def long_recipe(tiny_recipe):
    recipe = copy.deepcopy(tiny_recipe)
    recipe["schedule"].update(steps=28, checkpoint_every=4, validate_every=1000)
    return recipe


def in_rl(step: int):
    return lambda view: view["phase"] == "rl" and view["step"] >= step


def is_done(view: dict) -> bool:
    return view["state"] == "done"


def training_process(trainer) -> psutil.Process:
    (child,) = psutil.Process(trainer.process.pid).children()
    return child


def test_a_run_from_nothing_to_its_summary(runs, trainer, tiny_recipe, home):
    run = runs.start(tiny_recipe, seed=1, name="first")
    assert run == "first"
    second = runs.http.post("/v1/runs", json={"dataset": "world"})
    assert second.status_code == 409
    assert run in second.json()["detail"]

    view = runs.wait(run, is_done)
    summary = json.loads((home / "runs" / run / "summary.json").read_text())
    assert view["summary"] == summary
    assert summary["f1"].keys() == {"base", "cold_start", "rl"}
    assert summary["f1_by_hops"]["rl"].keys() == {"1", "2", "3"}
    assert (summary["run"], summary["dataset"], summary["seed"]) == (run, "world", 1)
    assert summary["questions"] == 3

    outcomes = assert_every_group_occurs_once(home / "runs" / run, view, questions_per_step=4)
    assert outcomes["trained"] > 0
    assert outcomes["run_ended"] <= 8

    store = PolicyStore(home / "policies")
    final = store.get(run, summary["policy"])
    store.verify(final)
    assert final.manifest.step > 0
    assert final.recipe() == final.recipe() | {"name": "tiny"}
    assert runs.http.post(f"/v1/runs/{run}/promote").json() == {"run": run, "version": final.id}
    assert store.promoted() == final


def test_metrics_can_be_followed(runs, home):
    (run,) = [run["id"] for run in runs.http.get("/v1/runs").json()["runs"]]
    page = runs.http.get(f"/v1/runs/{run}/metrics").json()
    assert [record["seq"] for record in page["records"]] == list(range(1, page["last"] + 1))
    phases = {record["phase"] for record in page["records"]}
    assert phases == {"warm_up", "cold_start", "rl"}
    rest = runs.http.get(f"/v1/runs/{run}/metrics", params={"since": page["last"] - 2}).json()
    assert rest["records"] == page["records"][-2:]
    step = next(r for r in page["records"] if r["phase"] == "rl" and r["kind"] == "step")
    assert step.keys() >= {"step", "of", "reward", "f1", "turns", "invalid_actions", "seconds", "groups"}
    evaluations = [r for r in page["records"] if r["kind"] == "evaluation"]
    assert [(r["phase"], r["split"]) for r in evaluations] == [
        ("warm_up", "test"),
        ("cold_start", "validation"),
        ("cold_start", "validation"),
        ("cold_start", "test"),
        ("rl", "validation"),
        ("rl", "test"),
    ]
    exposed = runs.http.get("/metrics").text
    assert 'kbqa_trainer_step{phase="rl"} 8.0' in exposed
    assert 'kbqa_trainer_messages_total{outcome="accepted"}' in exposed


@pytest.mark.parametrize(
    ("body", "status", "word"),
    [
        ({"dataset": "world", "recipe": "kg-r2"}, 422, "kg-r2"),
        ({"dataset": "world", "recipe": {"name": "x"}}, 422, "protocol"),
        ({"dataset": "world", "overrides": {"schedule.stepz": 5}}, 422, "stepz"),
        ({"dataset": "world", "recipe": "../../etc/passwd"}, 422, "recipe"),
        ({"dataset": "world", "surplus": 1}, 422, "surplus"),
        ({"dataset": "world", "name": "../elsewhere"}, 422, "name"),
        ({"dataset": "moon"}, 422, "moon"),
        ({"dataset": "metaqa-2hop"}, 422, "KBQA_DATA"),
        ({}, 422, "dataset"),
    ],
)
def test_what_cannot_be_started_says_why(runs, body, status, word):
    response = runs.http.post("/v1/runs", json=body)
    assert response.status_code == status
    assert word in response.json()["detail"]


def test_what_is_not_there_is_404_and_what_does_not_go_is_409(runs):
    for path in ("", "/metrics"):
        assert runs.http.get(f"/v1/runs/nothing{path}").status_code == 404
    for action in ("stop", "resume", "promote"):
        assert runs.http.post(f"/v1/runs/nothing/{action}").status_code == 404
        assert runs.http.post(f"/v1/runs/..%2f..%2fetc/{action}").status_code == 404
    (run,) = [run["id"] for run in runs.http.get("/v1/runs").json()["runs"]]
    for action in ("stop", "resume"):
        assert runs.http.post(f"/v1/runs/{run}/{action}").status_code == 409
    absent = runs.http.post(f"/v1/runs/{run}/promote", json={"version": "v000099-00000000"})
    assert absent.status_code == 409
    taken = runs.http.post("/v1/runs", json={"dataset": "world", "name": run})
    assert taken.status_code == 409
    assert f"kbqa resume {run}" in taken.json()["detail"]


def test_a_killed_rollout_worker_loses_nothing(runs, worker, long_recipe, home):
    """kill -9 in mid-run, with requests in its hands; training goes on long before Redis gives them away."""
    run = runs.start(long_recipe)
    step = runs.wait(run, in_rl(4))["step"]
    worker.kill()
    time.sleep(0.5)
    worker.start_again()
    worker.ready()
    began = time.monotonic()
    runs.wait(run, in_rl(step + 4))
    assert time.monotonic() - began < 450  # half of the visibility timeout
    view = runs.wait(run, is_done)
    assert_every_group_occurs_once(home / "runs" / run, view, questions_per_step=4)
    # What it had taken was asked for again under the same ids.
    assert view["latest"]["resent"] > 0


def test_a_training_process_is_killed_then_stopped_then_resumed(runs, trainer, long_recipe, home):
    run = runs.start(long_recipe)
    runs.wait(run, in_rl(6))
    training_process(trainer).kill()
    runs.wait(run, lambda view: view["restarts"] == 1 and view["step"] > 8)

    view = runs.http.post(f"/v1/runs/{run}/stop").json()
    assert view["state"] == "stopped"
    assert psutil.Process(trainer.process.pid).children() == []
    stopped_at = view["step"]
    assert runs.http.post(f"/v1/runs/{run}/resume").json()["state"] == "running"

    view = runs.wait(run, is_done)
    assert view["restarts"] == 1
    outcomes = assert_every_group_occurs_once(home / "runs" / run, view, questions_per_step=4)
    assert outcomes["trained"] > 0
    records = runs.http.get(f"/v1/runs/{run}/metrics").json()["records"]
    killed, stopped = (r["step"] for r in records if r["kind"] == "resumed")
    assert killed % 4 == 0  # the last checkpoint
    assert killed > 0
    assert stopped == stopped_at  # stopping loses no step


def test_duplicates_and_poison_do_no_harm(runs, trainer, long_recipe, home, broker_url):
    run = runs.start(long_recipe)
    runs.wait(run, in_rl(1))

    def metric(outcome: str) -> float:
        line = next(
            (
                ln
                for ln in runs.http.get("/metrics").text.splitlines()
                if f'outcome="{outcome}"' in ln and "messages" in ln
            ),
            "0",
        )
        return float(line.split()[-1])

    celery = create_celery("test", broker_url)
    poison = metric("dead_letter")
    question = Question("q", "Who?", ("A",), ("B",), "world")
    episode = Trajectory((1,), (), Status.OUT_OF_TOKENS)
    stray = RolloutReply(
        run=run,
        request_id="t0000000",
        purpose=Purpose.TRAIN,
        group=Group("t0000000", question, (RewardedTrajectory(episode, (), 0.0, {"f1": 0.0}),)),
        worker="intruder",
    )
    for message in (
        "rubbish",
        "{}",
        '{"run": "../../x"}',
        encode(stray.model_copy(update={"run": "no-such-run"})),
    ):
        send(celery, TRAJECTORIES, DELIVER_TASK, message)
    for _ in range(3):
        send(celery, TRAJECTORIES, DELIVER_TASK, encode(stray))  # consumed long ago, or in the inbox
    send(celery, TRAJECTORIES, "kbqa.no.such.task", "x")
    with celery.connection_for_write() as connection:
        connection.default_channel.client.lpush(TRAJECTORIES, "not even an envelope")
    celery.close()
    view = runs.wait(run, is_done)
    assert_every_group_occurs_once(home / "runs" / run, view, questions_per_step=4)
    assert metric("dead_letter") - poison == 4
    letters = DeadLetters(create_celery("test", broker_url, consumes=TRAJECTORIES), TRAJECTORIES).read()
    assert len(letters) == 6
    # In no certain order: what cannot be read is put aside by whichever thread has tried to.
    assert {"rubbish", "{}"} <= {letter.message for letter in letters}
    reasons = " ".join(letter.reason for letter in letters)
    assert all(word in reasons for word in ("run", "no-such-run", "kbqa.no.such.task", "not a queue message"))


def test_a_run_whose_rollouts_are_trees(runs, tiny_recipe, home):
    recipe = copy.deepcopy(tiny_recipe)
    recipe["protocol"] = {"name": "interactive_parsing", "prompt": "brief", "top_k": 3}
    del recipe["rollout"]["n"]
    recipe["rollout"] |= {"kind": "tree", "k": 3, "max_active": 2, "max_nodes": 30}
    recipe["rollout"]["max_turn_tokens"] = 80
    recipe["reward"], recipe["advantage"] = {"name": "isp_kgr"}, {"kind": "state"}
    recipe["schedule"].update(steps=3, validate_every=1000)
    run = runs.start(recipe, seed=1)
    view = runs.wait(run, is_done)
    assert_every_group_occurs_once(home / "runs" / run, view, questions_per_step=4)
    records = [json.loads(line) for line in (home / "runs" / run / "metrics.jsonl").read_text().splitlines()]
    steps = [r for r in records if r["phase"] == "rl" and r["kind"] == "step"]
    assert len(steps) == 3
    assert all(1 <= record["branches"] <= 3 for record in steps)
    assert view["summary"]["f1"].keys() == {"base", "cold_start", "rl"}


def test_a_trainer_that_dies_takes_its_training_process_along_and_goes_on(runs, trainer, long_recipe, home):
    run = runs.start(long_recipe)
    runs.wait(run, in_rl(5))
    child = training_process(trainer)
    trainer.kill()
    child.wait(timeout=30)
    trainer.start_again()
    trainer.ready()
    view = runs.wait(run, lambda view: view["history"][-1]["kind"] != "resumed" and view["step"] > 6)
    assert view["restarts"] == 0

    # Told to end, it ends in order, and the run waits to be continued.
    child = training_process(trainer)
    assert trainer.terminate(150) == 0
    assert not child.is_running()
    assert json.loads((home / "runs" / run / "run.json").read_text())["state"] == "running"
    newest = max(path.name for path in (home / "runs" / run / "checkpoints").glob("step-*"))
    progress = json.loads((home / "runs" / run / "progress.json").read_text())
    assert newest == f"step-{progress['step']:06d}"  # no step was lost
    ledger = read_ledger(home / "runs" / run)
    ids = sorted([*ledger["settled"], *ledger["in_flight"]])
    assert ids == [f"t{number:07d}" for number in range(len(ids))]
