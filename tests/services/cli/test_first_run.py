"""`kbqa runs begin`, with a real kg_server and a trainer that plays back a run."""

from __future__ import annotations

import pytest
from fastapi import FastAPI

from services.cli import first_run
from services.http import background
from services.kg_server.app import create_app
from services.kg_server.settings import KgServerSettings


class Trainer:
    """Has the runs that it is given, and shows the one that is started through `views`, the last for ever."""

    def __init__(self, *views, runs=(), earlier=()):
        self.views, self.runs, self.earlier = list(views), list(runs), list(earlier)
        self.orders, self.promoted = [], []
        self.app = FastAPI()
        self.app.get("/v1/runs")(lambda: {"runs": self.runs})
        self.app.post("/v1/runs", status_code=201)(self.start)
        self.app.get("/v1/runs/r-1")(self.show)
        self.app.post("/v1/runs/r-1/promote")(self.promote)
        self.app.get("/v1/runs/r-1/promotions")(lambda: {"versions": [*self.earlier, *self.promoted]})

    def start(self, body: dict):
        self.orders.append(body)
        return {"id": "r-1"}

    def show(self):
        return self.views.pop(0) if len(self.views) > 1 else self.views[0]

    def promote(self, body: dict):
        self.promoted.append(body["version"])
        return {"version": body["version"]}


@pytest.fixture
def serve(in_process, monkeypatch):
    monkeypatch.setattr(first_run, "_POLL_S", 0.01)
    servers = []

    def start(trainer):
        servers.append(background(trainer.app))
        monkeypatch.setenv("KBQA_TRAINER_URL", servers[-1].__enter__())
        return trainer

    yield start
    for server in servers:
        server.__exit__(None, None, None)


@pytest.fixture
def kg_server(in_process, tmp_path, monkeypatch):
    """URL of a kg_server of the home that the commands load graphs into."""
    with background(create_app(KgServerSettings.load(home=tmp_path / "home"))) as url:
        monkeypatch.setenv("KBQA_KG_SERVER_URL", url)
        yield url


def view(policy=None, state="running", **f1):
    return {"id": "r-1", "policy": policy, "split": "test", "f1": f1, "state": state}


def test_a_run_begins_once_its_graph_is_there_and_what_is_better_is_promoted(serve, kg_server, in_process):
    trainer = serve(
        Trainer(
            view(),
            view("v1", base=0.1),
            view("v1", base=0.1),
            view("v2", base=0.1, cold_start=0.05),
            view("v3", base=0.1, cold_start=0.05, rl=0.6),
            view("v3", state="done", base=0.1, cold_start=0.05, rl=0.6),
        )
    )
    assert in_process("kg", "load-dataset", "world", "--seed", "1")[0] == 0
    code, out, _ = in_process(
        "runs",
        "begin",
        "--recipe",
        "kg-r1-chooser",
        "--set",
        "schedule.steps=2",
        "--limit",
        "test=6",
        "--promote",
    )
    assert code == 0
    assert trainer.orders == [
        {
            "recipe": "kg-r1-chooser",
            "dataset": "world",
            "overrides": {"schedule.steps": 2},
            "limits": {"test": 6},
            "seed": 1,
        }
    ]
    assert trainer.promoted == ["v1", "v3"]
    assert "not promoted: v2, test F1 0.050, below 0.100" in out


def test_no_run_begins_where_there_was_one(serve, in_process):
    trainer = serve(Trainer(view("v3", state="done", rl=0.6), runs=[{"id": "r-1", "state": "done"}]))
    code, out, _ = in_process("runs", "begin", "--promote")
    assert (code, out) == (0, "run r-1 already exists; its state is done\n")
    assert (trainer.orders, trainer.promoted) == ([], [])


def test_a_run_under_way_is_gone_on_with(serve, in_process):
    trainer = serve(Trainer(view("v1", state="done", base=0.0), runs=[{"id": "r-1", "state": "running"}]))
    assert in_process("runs", "begin", "--promote")[0] == 0
    assert (trainer.orders, trainer.promoted) == ([], ["v1"])


def test_what_was_promoted_before_is_not_promoted_again(serve, in_process):
    """The job died, and somebody chose another version; it starts again."""
    trainer = serve(
        Trainer(
            view("v1", base=0.1),
            view("v2", base=0.1, cold_start=0.5),
            view("v3", base=0.1, cold_start=0.5, rl=0.4),
            view("v3", state="done", base=0.1, cold_start=0.5, rl=0.4),
            runs=[{"id": "r-1", "state": "running"}],
            earlier=["v1", "v2"],
        )
    )
    code, out, _ = in_process("runs", "begin", "--promote")
    assert code == 0
    assert trainer.promoted == []
    assert "v2 was promoted before" in out
    assert "not promoted: v3, test F1 0.400, below 0.500" in out


def test_without_its_graph_no_run_begins(serve, kg_server, in_process):
    trainer = serve(Trainer(view()))
    code, _, err = in_process("runs", "begin", "--wait-s", "0.2")
    assert code == 2
    assert "has no graph world" in err
    assert trainer.orders == []


def test_without_all_graphs_of_a_mixture_no_run_begins(serve, kg_server, in_process):
    trainer = serve(Trainer(view()))
    assert in_process("kg", "load-dataset", "world")[0] == 0
    order = ("runs", "begin", "--dataset", "world+temporal-world", "--wait-s", "0.2")
    code, _, err = in_process(*order)
    assert (code, "has no graph temporal-world: load it" in err) == (2, True)
    assert trainer.orders == []
    code, out, _ = in_process("kg", "load-dataset", "world+temporal-world")
    assert (code, out) == (0, "the 2 graphs of world+temporal-world are loaded\n")
    assert in_process(*order)[0] == 0
    assert trainer.orders[0]["dataset"] == "world+temporal-world"
