"""The trainer's page and the routes behind it, without a browser; `test_browser` opens it in one."""

from __future__ import annotations

import json
import re

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry

from kbqa.policy_store import PolicyStore
from kbqa.recipes import load_recipe
from kbqa.runs.directory import Runs
from kbqa.telemetry.metrics import Metrics
from services.http import install
from services.trainer.errors import STATUS
from services.trainer.page import page_router
from services.trainer.routes import view
from tests.services.trainer.made_runs import HOSTILE, make_run


@pytest.fixture(scope="module")
def home(tmp_path_factory):
    return tmp_path_factory.mktemp("home")


@pytest.fixture(scope="module")
def run(home):
    return make_run(home, steps=6).id


@pytest.fixture(scope="module")
def http(home, run):
    app = FastAPI(title="trainer")
    metrics = Metrics(CollectorRegistry())
    install(app, service="trainer", metrics=metrics, readiness=lambda: None, errors=STATUS)
    app.include_router(page_router(Runs(home / "runs"), PolicyStore(home / "policies")))
    return TestClient(app)


def pages(http, run, **filters):
    """All groups, a few at a time."""
    found, cursor = [], None
    while True:
        parameters = {"limit": 5, **filters, **({"cursor": cursor} if cursor else {})}
        page = http.get(f"/v1/runs/{run}/groups", params=parameters).json()
        assert len(page["groups"]) <= 5
        found += page["groups"]
        cursor = page["next"]
        if cursor is None:
            return found


def test_the_page_is_one_for_all_addresses_and_loads_nothing_from_elsewhere(http, run):
    page = http.get("/")
    assert page.headers["content-type"].startswith("text/html")
    assert http.get(f"/runs/{run}").text == page.text
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|\sstyle=|\son\w+=", page.text)  # nothing inline
    for address in re.findall(r"(?:src|href)=\"([^\"#]+)\"", page.text):
        assert address.startswith("/")


def test_every_file_that_the_page_names_is_there(http):
    names = set(re.findall(r"/static/([\w.]+)", http.get("/").text))
    waiting = set(names)
    while waiting:
        answer = http.get(f"/static/{waiting.pop()}")
        assert answer.status_code == 200
        assert answer.headers["x-content-type-options"] == "nosniff"
        imported = set(re.findall(r'from "\./([\w.]+)"', answer.text))
        waiting |= imported - names
        names |= imported
        assert "://" not in answer.text.replace("http://www.w3.org/2000/svg", "")
    assert names >= {"page.js", "page.css", "chart.js", "trajectories.js"}
    for absent in ("index.html", "..%2findex.html", "nothing.js"):
        assert http.get(f"/static/{absent}").status_code == 404


def test_steps_tell_what_became_of_their_groups(http, run):
    steps = http.get(f"/v1/runs/{run}/steps").json()["steps"]
    assert [step["step"] for step in steps] == [1, 2, 3, 4, 5, 6]
    assert all(step["outcomes"] == {"trained": 3, "no_spread": 1} for step in steps)
    assert all(sum(step["statuses"].values()) == 16 for step in steps)


def test_groups_come_newest_first_and_each_once(http, run):
    found = pages(http, run)
    assert [group["step"] for group in found] == sorted((group["step"] for group in found), reverse=True)
    assert len({group["id"] for group in found}) == len(found) == 24


@pytest.mark.parametrize(
    ("filters", "fits"),
    [
        ({"step": 3}, lambda group: group["step"] == 3),
        ({"outcome": "no_spread"}, lambda group: group["outcome"] == "no_spread"),
        ({"status": "out_of_turns"}, lambda group: "out_of_turns" in group["statuses"]),
        ({"step": 2, "outcome": "trained"}, lambda g: g["step"] == 2 and g["outcome"] == "trained"),
        ({"question": "ONERROR"}, lambda group: True),
        ({"question": "q7"}, lambda group: True),
        ({"question": "nobody"}, lambda group: False),
        ({"step": 99}, lambda group: False),
    ],
)
def test_filters(http, run, filters, fits):
    expected = [group for group in pages(http, run) if fits(group)]
    assert pages(http, run, **filters) == expected


def test_a_group_holds_what_was_said_as_it_was_said(http, run):
    (summary, *_) = pages(http, run, step=2)
    group = http.get(f"/v1/runs/{run}/groups/2/{summary['id']}").json()
    assert group["summary"] == summary
    assert HOSTILE in group["summary"]["question"]
    assert HOSTILE in group["turns"][0]["thought"]
    assert len(group["episodes"]) == 4
    assert any(turn["advantage"] for turn in group["turns"])


def test_the_figures_are_those_of_the_recipes_paper(home, http):
    run = make_run(home, load_recipe("knowcoder-a1"), steps=1).id
    recipe = http.get(f"/v1/runs/{run}/recipe").json()
    assert recipe["name"] == "knowcoder-a1"
    assert recipe["values"]["reward"]["name"] == "knowcoder_a1"
    assert [figure["source"] for figure in recipe["figures"]][:4] == [f"Figure 3{panel}" for panel in "abcd"]


def test_what_a_figure_plots_stands_in_the_records(home):
    """Of the fields that rollouts of the recipe have; the others need queries, gates or trees."""
    directory = make_run(home, load_recipe("knowcoder-a1"), steps=1)
    (record,) = directory.records()
    wanted = {
        "reward",
        "generated_tokens",
        "turns",
        "invalid_calls",
        "direct",
        "unique_queries",
        "error_reward",
    }
    assert wanted <= record.keys()


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("nothing/steps", 404),
        ("nothing/groups", 404),
        ("nothing/recipe", 404),
        ("nothing/versions", 404),
        ("nothing/groups/1/t0000004", 404),
        ("{run}/groups/1/t9999999", 404),
        ("{run}/groups/77/t0000004", 404),
        ("{run}/groups/1/..%2f..%2frun.json", 404),
        ("{run}/groups/-1/t0000004", 422),
        ("{run}/groups?limit=1000", 422),
        ("{run}/groups?cursor=1", 422),
        ("{run}/groups?question=" + "x" * 300, 422),
    ],
)
def test_what_is_not_there_or_not_allowed_is_a_problem(http, run, path, status):
    response = http.get(f"/v1/runs/{path.format(run=run)}")
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"


def test_a_run_without_traces_or_versions_is_empty(home, http):
    run = make_run(home, steps=0).id
    assert http.get(f"/v1/runs/{run}/steps").json()["steps"] == []
    assert http.get(f"/v1/runs/{run}/groups").json() == {"run": run, "groups": [], "next": None}
    assert http.get(f"/v1/runs/{run}/versions").json()["versions"] == []


def test_records_are_read_from_a_number_on(home):
    directory = make_run(home, steps=12)
    with directory.metrics_path.open("a") as file:
        file.write('{"time": 1, "seq": 14}\n{"seq": 15, "ti')  # another order of keys; half a line
    assert [record["seq"] for record in directory.records()] == list(range(1, 15))
    assert [record["seq"] for record in directory.records(11)] == [12, 13, 14]
    assert [record["seq"] for record in directory.newest_records(2)] == [13, 14]


def test_of_a_long_run_a_view_reads_the_newest_records_only(home):
    directory = make_run(home, steps=3)
    (*_, last) = directory.records()
    with directory.metrics_path.open("w") as file:
        file.write("no record\n")
        file.writelines(json.dumps({**last, "seq": number}) + "\n" for number in range(2, 1001))
    shown = view(directory)
    assert [record["seq"] for record in shown.history] == list(range(951, 1001))
    assert shown.latest["seq"] == 1000
