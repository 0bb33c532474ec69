"""The metrics of a vLLM server, passed on by the service beside it."""

from __future__ import annotations

from fastapi import FastAPI
from fastapi.responses import PlainTextResponse
from fastapi.testclient import TestClient

from services.engine_metrics import relay_engine_metrics
from services.http import background

EXPOSED = 'vllm:num_requests_running{engine="0"} 3.0\n'


def relaying(url):
    app = FastAPI()
    relay_engine_metrics(app, [url])
    return TestClient(app)


def test_metrics_arrive_as_the_engine_tells_them():
    engine = FastAPI()
    engine.get("/metrics", response_class=PlainTextResponse)(lambda: EXPOSED)
    with background(engine) as url:
        answer = relaying(f"{url}/").get("/engine/metrics")
    assert (answer.status_code, answer.text) == (200, EXPOSED)
    assert answer.headers["content-type"].startswith("text/plain")


def test_an_engine_that_is_away_or_confused_is_503():
    with background(FastAPI()) as url:
        confused = relaying(url).get("/engine/metrics")
    away = relaying(url).get("/engine/metrics")
    for answer in (confused, away):
        assert answer.status_code == 503
        assert answer.json()["type"] == "urn:kbqa:problem:engine-unavailable"
        assert url in answer.json()["detail"]
