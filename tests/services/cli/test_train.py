"""`kbqa train`, `kbqa runs` and `kbqa promote` with a trainer that is up: one that plays back a run."""

from __future__ import annotations

import io
import json
import signal
import socket
from contextlib import contextmanager

import pytest
import typer
from fastapi import FastAPI
from rich.console import Console
from rich.progress import Progress, TextColumn

from kbqa.kg.catalog import GraphCatalog
from kbqa.recipes import load_recipe
from kbqa.runs.directory import Runs, SplitLimits, State
from services.cli import following
from services.cli.following import Bars, describe, follow
from services.cli.train import train
from services.http import background, problem

STEP = {
    "seq": 1,
    "kind": "step",
    "phase": "rl",
    "step": 1,
    "of": 2,
    "loss": 0.5,
    "reward": 1.25,
    "skipped": False,
    "seconds": 7.0,
}
TEST = {
    "seq": 2,
    "kind": "evaluation",
    "phase": "rl",
    "step": 2,
    "of": 2,
    "split": "test",
    "f1": 0.875,
    "version": "v000002-00000000",
    "seconds": 9.0,
}


class Trainer:
    """Plays back `views` of its run, the last one for ever, and keeps what it was sent."""

    def __init__(self, *views):
        self.views = [self.view(**view) for view in views]
        self.received = []
        self.app = FastAPI()
        self.app.get("/v1/runs")(lambda: {"runs": self.views[:1]})
        self.app.post("/v1/runs", status_code=201)(self.start)
        self.app.get("/v1/runs/r-1")(self.show)
        self.app.get("/v1/runs/r-1/metrics")(self.metrics)
        for verb in ("stop", "resume", "promote"):
            self.app.post(f"/v1/runs/r-1/{verb}")(self.taker(verb))

    @staticmethod
    def view(state="running", phase="rl", step=1, **values):
        base = {"id": "r-1", "recipe": "kg-r1-small", "dataset": "world", "of": 2, "error": None}
        return (
            base
            | {"split": "test", "f1": {}, "state": state, "phase": phase, "step": step, "seconds": 9.0}
            | values
        )

    def start(self, body: dict):
        self.received.append(("start", body))
        if body["recipe"] == "nope":
            return problem(422, 'no recipe named "nope"')
        return self.view()

    def show(self):
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]

    def metrics(self, since: int):
        records = [record for record in (STEP, TEST) if record["seq"] > since][:1]
        return {"run": "r-1", "last": records[-1]["seq"] if records else since, "records": records}

    def taker(self, verb):
        def take(body: dict | None = None):
            self.received.append((verb, body))
            return {"run": "r-1", "version": "v000002-00000000"}

        return take


@pytest.fixture
def trainer(in_process, monkeypatch):
    """Serves a trainer; the commands find it by themselves."""
    monkeypatch.setattr(following, "_POLL_S", 0.01)
    servers = []

    def make(*views):
        trainer = Trainer(*views)
        server = background(trainer.app)
        trainer.url = server.__enter__()
        monkeypatch.setenv("KBQA_TRAINER_URL", trainer.url)
        servers.append(server)
        return trainer

    yield make
    for server in servers:
        server.__exit__(None, None, None)


DONE = {"state": "done", "phase": "done", "f1": {"base": 0.0, "rl": 0.875}}


def test_a_run_is_submitted_and_followed_to_its_end(trainer, in_process, tmp_path):
    served = trainer({}, {}, DONE)
    code, out, _ = in_process(
        "train", "--dataset", "world", "--set", "schedule.steps=2", "--limit", "test=6", "--seed", "3"
    )
    assert code == 0
    whose, *lines = out.splitlines()
    assert whose == (
        f"a trainer is already running at {served.url}: this command uses it, with its settings and data sets"
    )
    assert lines == [
        "run r-1",
        "rl begins",
        "rl 1/2: loss 0.500  reward 1.250  7 s",
        "rl 2/2: test F1 0.875 (v000002-00000000)  9 s",
        "done",
        "run r-1 is done after 9 s; test F1: base 0.000, rl 0.875",
        "to let it answer users: kbqa promote r-1",
    ]
    assert served.received == [
        (
            "start",
            {
                "recipe": "kg-r1-chooser",
                "dataset": "world",
                "overrides": {"schedule.steps": 2},
                "limits": {"test": 6},
                "seed": 3,
            },
        )
    ]
    # The trainer is on this machine, so the data set's graph was loaded for it.
    assert [graph.name for graph in GraphCatalog(tmp_path / "home").list()] == ["world"]


def test_a_run_over_a_mixture_tells_its_parts_apart(trainer, in_process):
    by_part = {"base": {"world": 0.0, "x.jsonl": 0.25}, "rl": {"world": 0.75, "x.jsonl": 1.0}}
    trainer({**DONE, "summary": {"f1_by_part": by_part}})
    code, out, _ = in_process("runs", "follow", "r-1")
    assert code == 0
    assert "  world: base 0.000, rl 0.750\n  x.jsonl: base 0.250, rl 1.000\n" in out


def test_a_run_may_be_given_its_name(trainer, in_process):
    served = trainer(DONE)
    assert in_process("train", "--dataset", "world", "--name", "films")[0] == 0
    ((_, order),) = served.received
    assert order["name"] == "films"


def test_a_run_that_fails_says_why(trainer, in_process):
    trainer({"state": "failed", "error": "no questions"})
    code, _, err = in_process("runs", "follow", "r-1")
    assert (code, err) == (2, "run r-1 failed: no questions\n")


def test_a_stopped_run_is_resumed_and_followed(trainer, in_process):
    served = trainer({"state": "stopped"}, {}, DONE)
    assert in_process("train", "--resume", "r-1")[0] == 0
    assert served.received == [("resume", None)]


def test_resume_goes_on_with_the_run_that_is_named_or_else_with_the_newest_that_waits(trainer, in_process):
    served = trainer({"state": "stopped"}, {}, DONE)
    code, out, _ = in_process("resume", "r-1")
    assert (code, out.splitlines()[1]) == (0, "run r-1")
    served.views = [served.view(state="failed"), served.view(**DONE)]
    assert in_process("resume")[0] == 0
    assert served.received == [("resume", None), ("resume", None)]
    served.views = [served.view(**DONE)]
    assert in_process("resume")[::2] == (
        2,
        "error: there is no stopped or failed run; kbqa runs list shows all runs\n",
    )


def test_status_tells_how_a_run_goes(trainer, in_process):
    alarm = {"name": "kl", "value": 2.0, "bound": 1.0, "since": 7}
    served = trainer(
        {
            "seed": 1,
            "restarts": 2,
            "f1": {"base": 0.25},
            "groups": {"trained": 8, "stale": 1},
            "history": [STEP],
            "alarms": {"kl": alarm},
            "best": {"step": 4, "version": "v000004-00000000", "value": 0.5},
            "ended": None,
        }
    )
    code, out, _ = in_process("status", "r-1")
    assert code == 0
    assert out.splitlines() == [
        "run             r-1: kg-r1-small on world, seed 1",
        "state           running, rl 1/2 after 9 s",
        "restarts        2",
        "test F1         base 0.250",
        "groups          8 trained, 1 stale",
        "newest record   rl 1/2: loss 0.500  reward 1.250  7 s",
        "best            step 4: v000004-00000000, 0.5",
        "alarm           kl 2, bound 1, since step 7",
    ]
    assert json.loads(in_process("status", "r-1", "--json")[1]) == served.view(**served.views[0])


def test_what_the_trainer_refuses_is_told(trainer, in_process):
    trainer({})
    code, _, err = in_process("train", "--dataset", "world", "--recipe", "nope")
    assert (code, err) == (2, 'error: no recipe named "nope"\n')
    code, _, err = in_process("train", "--dataset", "mars")
    assert code == 2
    assert err.startswith('error: no data set named "mars" (known: world, world-all, ')
    assert err.endswith("multitq; or a file of KBQA_DATA, as x.jsonl)\n")
    assert in_process("train")[0] == 2
    assert in_process("train", "--dataset", "world", "--set", "x")[0] == 2


def test_runs_are_listed_and_stopped(trainer, in_process):
    served = trainer({})
    assert in_process("runs", "list")[1] == "r-1  running  rl  kg-r1-small  world\n"
    code, out, _ = in_process("runs", "stop", "r-1")
    assert (code, "kbqa resume r-1" in out) == (0, True)
    assert served.received == [("stop", None)]


def test_the_trainer_chooses_the_version_to_promote(trainer, in_process):
    served = trainer({})
    assert in_process("promote", "r-1") == (0, "promoted v000002-00000000 of run r-1\n", "")
    assert served.received == [("promote", {"version": None})]


def test_a_named_trainer_that_is_not_there_is_an_error_and_none_is_started(in_process):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    code, out, err = in_process("train", "--dataset", "world", "--trainer", url)
    assert (code, out, f"no trainer answers at {url}" in err) == (2, "", True)


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("train", "--dataset", "world", "--set", "schedule.stepz=5"), "stepz"),
        (("train", "--dataset", "mars"), 'no data set named "mars"'),
        (("resume", "none"), "none"),
        (("resume", "r-1"), "run r-1 is done"),
        (("resume",), "there is no stopped or failed run"),
        (("train", "--dataset", "world", "--set", "base_model=no/such"), "no/such is not on this machine"),
    ],
)
def test_what_a_trainer_of_our_own_would_refuse_is_refused_before_it_is_started(
    arguments, told, in_process, monkeypatch, tmp_path
):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
    monkeypatch.setattr("services.cli.training.DEFAULT_TRAINER", url)
    monkeypatch.setattr("services.cli.training.Stack", lambda *_, **__: pytest.fail("a stack was started"))
    done = Runs(tmp_path / "runs").create(load_recipe("kg-r1-small"), "world", SplitLimits(), seed=1)
    done.write(done.read().model_copy(update={"state": State.DONE}))
    done.path.rename(done.path.with_name("r-1"))
    code, _, err = in_process(*arguments, "--trainer", url, "--home", str(tmp_path))
    assert (code, told in err) == (2, True), err


def test_ctrl_c_only_ends_the_following(trainer, kbqa):
    served = trainer({})
    process = kbqa("runs", "follow", "r-1", KBQA_TRAINER_URL=served.url)
    assert process.stdout.readline() == "rl begins\n"
    process.send_signal(signal.SIGINT)
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    assert "the run continues" in output
    assert "kbqa runs stop r-1" in output
    assert served.received == []


def test_ctrl_c_stops_the_run_of_a_trainer_of_our_own(trainer, monkeypatch, capsys):
    served = trainer({})

    @contextmanager
    def ours(url, home, check):
        from services.cli.training import trainer_api

        yield trainer_api(served.url), True

    def interrupted(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("services.cli.train.open_trainer", ours)
    monkeypatch.setattr("services.cli.training.follow", interrupted)
    with pytest.raises(typer.Exit) as ended:
        train(resume="r-1")
    assert ended.value.exit_code == 130
    assert served.received == [("stop", None)]
    assert "kbqa resume r-1" in capsys.readouterr().out


def test_on_a_terminal_each_phase_is_a_bar():
    screen = io.StringIO()
    with Progress(
        TextColumn("{task.description} {task.completed}/{task.total} {task.fields[numbers]}"),
        console=Console(file=screen, force_terminal=True, width=80),
    ) as progress:
        bars = Bars(progress)
        bars.phase("rl", 1, 2)
        bars.record(STEP)
        bars.record(TEST)
        bars.phase("done", 0, 0)
    shown = screen.getvalue()
    assert "rl 1/2 loss 0.500  reward 1.250" in shown
    assert describe(TEST) in shown


def test_alarms_and_early_ends_are_lines():
    head = {"phase": "rl", "step": 3, "of": 9, "seconds": 5.0}
    alarm = {"kind": "alarm", "alarm": "entropy", "value": 0.012345, "bound": 0.05, **head}
    assert describe(alarm) == "rl 3/9: alarm: entropy is 0.01235, its bound 0.05  5 s"
    assert describe({"kind": "ended", "reason": "why", **head}) == "rl 3/9: ended: why  5 s"


def test_a_trainer_that_is_away_for_a_moment_is_waited_for(monkeypatch):
    monkeypatch.setattr(following, "_POLL_S", 0.01)
    monkeypatch.setattr(following, "_PATIENCE_S", 0.1)
    trainer = Trainer(DONE)
    from services.cli.api import Api, UnreachableError

    with background(trainer.app) as url:
        api = Api("trainer", url, "--trainer")
        answers = iter([UnreachableError(0, "gone"), None])
        get = api.get

        def sometimes(path):
            if error := next(answers, None):
                raise error
            return get(path)

        monkeypatch.setattr(api, "get", sometimes)
        assert follow(api, "r-1")["state"] == "done"
    monkeypatch.setattr(api, "get", get)
    with pytest.raises(UnreachableError):
        follow(api, "r-1")
