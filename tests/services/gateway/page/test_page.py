"""The gateway's pages and the reports behind one of them, without a browser; the tests beside open one."""

from __future__ import annotations

import json
import re

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry

from kbqa.telemetry.metrics import Metrics
from services.gateway.errors import STATUS
from services.gateway.page import page_router, records_router
from services.http import install
from tests.services.trainer.made_runs import make_run

SUMMARY = {
    "f1": {"base": 0.0, "rl": 0.5},
    "f1_by_hops": {"base": {"1": 0.0}, "rl": {"1": 0.5}},
    "questions": 240,
    "seconds": 815.7,
    "seed": 1,
    "dataset": "world",
    "policy": "v000027-f0a27d00",
    "best": None,
    "something": "of a later version",
}


@pytest.fixture
def http(tmp_path):
    app = FastAPI(title="gateway")
    install(
        app, service="gateway", metrics=Metrics(CollectorRegistry()), readiness=lambda: None, errors=STATUS
    )
    app.include_router(page_router())
    app.include_router(records_router(tmp_path))
    return TestClient(app)


@pytest.mark.parametrize("address", ["/", "/reports", "/runs/some-run"])
def test_pages_hold_nothing_inline_and_load_nothing_from_elsewhere(http, address):
    page = http.get(address)
    assert page.headers["content-type"].startswith("text/html")
    policy = page.headers["content-security-policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert not re.search(r"<script(?![^>]*\bsrc=)|<style|\sstyle=|\son\w+=", page.text)
    for loaded in re.findall(r"(?:src|href)=\"([^\"#]+)\"", page.text):
        assert loaded.startswith("/")


def test_every_file_that_the_pages_name_is_there(http):
    names = {
        name
        for address in ("/", "/reports")
        for name in re.findall(r"/static/([\w.-]+)", http.get(address).text)
    }
    waiting = set(names)
    while waiting:
        name = waiting.pop()
        answer = http.get(f"/static/{name}")
        assert answer.status_code == 200, name
        assert answer.headers["x-content-type-options"] == "nosniff"
        if not name.startswith("cytoscape"):
            imported = set(re.findall(r'from "\./([\w.-]+)"', answer.text))
            waiting |= imported - names
            names |= imported
            assert "://" not in answer.text.replace("http://www.w3.org/2000/svg", "")
    assert {"ask.js", "graph.js", "reports.js", "dom.js", "trajectories.js"} <= names
    (library,) = (name for name in names if name.startswith("cytoscape"))
    licence = http.get(f"/static/{library.removesuffix('.esm.min.mjs')}.LICENSE.txt")
    assert "The Cytoscape Consortium" in licence.text
    version = library.removeprefix("cytoscape-").removesuffix(".esm.min.mjs")
    assert f'.version="{version}"' in http.get(f"/static/{library}").text


def test_reports_are_of_runs_that_left_something(http, tmp_path):
    assert http.get("/v1/reports").json() == {"reports": []}
    done, going, bare = (make_run(tmp_path, steps=steps, seed=steps) for steps in (2, 3, 1))
    done.summary_path.write_text(json.dumps(SUMMARY))
    going.summary_path.unlink(missing_ok=True)
    bare.summary_path.unlink(missing_ok=True)
    for file in (bare.path / "groups").iterdir():
        file.unlink()
    (bare.path / "groups").rmdir()
    reports = {report["id"]: report for report in http.get("/v1/reports").json()["reports"]}
    assert set(reports) == {done.id, going.id}
    assert reports[done.id]["summary"]["f1"] == SUMMARY["f1"]
    assert (reports[going.id]["summary"], reports[going.id]["steps"]) == (None, 3)
    assert http.get(f"/v1/reports/{done.id}").json() == reports[done.id]
    assert [step["step"] for step in http.get(f"/v1/runs/{going.id}/steps").json()["steps"]] == [1, 2, 3]


def test_a_damaged_summary_is_said_and_hides_no_other(http, tmp_path):
    damaged, sound = make_run(tmp_path, steps=1, seed=1), make_run(tmp_path, steps=1, seed=2)
    damaged.summary_path.write_text('{"f1": ')
    sound.summary_path.write_text(json.dumps(SUMMARY))
    reports = {report["id"]: report for report in http.get("/v1/reports").json()["reports"]}
    assert "summary.json" in reports[damaged.id]["problem"]
    assert reports[sound.id]["problem"] is None


@pytest.mark.parametrize(
    "path",
    ["/v1/reports/nothing-here", "/v1/reports/..", "/v1/runs/nothing-here/steps", "/v1/runs/%2e%2e/groups"],
)
def test_what_is_not_there_is_not_found(http, path):
    assert http.get(path).status_code == 404
