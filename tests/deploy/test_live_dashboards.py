"""Every expression of dashboards and alerts, asked of a real Prometheus that watches a real training run."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path

import httpx
import pytest

from deploy.dashboards.alerts import ALERTS
from deploy.dashboards.live import Prometheus, boards
from kbqa.client import Gateway
from kbqa.client.batches import BatchLine
from kbqa.datasets import load_dataset
from services.cli.graphs import load_graphs
from services.cli.supervisor import Stack
from tests.deploy.prometheus import program, scraping

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3000)]

RULES = Path(__file__).resolve().parents[2] / "deploy" / "helm" / "alerts" / "kbqa.yaml"
WINDOW = "1m"
# The smallest policy that learns to answer at all, and the shortest phases that have a step of everything.
OVERRIDES = {
    "small_policy.vocabulary": 500,
    "small_policy.layers": 1,
    "small_policy.width": 32,
    "small_policy.heads": 2,
    "small_policy.feed_forward": 64,
    "cold_start.demonstrations": 30,
    "cold_start.steps": 60,
    "cold_start.batch": 8,
    "cold_start.token_budget": 1024,
    "cold_start.learning_rate": 1e-2,
    "cold_start.validate_every": 30,
    "rollout.n": 6,
    "rollout.max_turns": 3,
    "rollout.max_tokens": 224,
    "rollout.max_turn_tokens": 40,
    "rollout.max_observation_tokens": 48,
    # Turn rewards give the groups of a policy that knows next to nothing some spread.
    "advantage.kind": "turn",
    "reward.w_format": 0.5,
    "reward.w_query": 0.5,
    "reward.w_answer": 0.5,
    "optimisation.learning_rate": 1e-3,
    "schedule.steps": 30,
    "schedule.questions_per_step": 4,
    "schedule.max_in_flight": 8,
    "schedule.validate_every": 10,
}
LIMITS = {"validation": 4, "test": 4}
BOMB = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"
# Panels without data here, by what is needed for it; the expressions of vLLM are told by their metrics.
NEEDS = {
    ("graph", "Rejected requests"): "a client without a key, or with too many requests",
    ("graph", "Failures of Redis"): "a Redis for cached answers, which services on one machine do without",
    ("graph", "Look-ups in Redis"): "the same",
    ("graph", "Writes to Redis"): "the same",
    ("graph", "Changed triples"): "a client that changes a graph",
    ("graph", "Time of a change"): "the same",
    ("gateway", "Supported answers"): "a policy that knows answers",
    ("gateway", "Support rate"): "the same",
    ("gateway", "Confidence"): "a policy that chooses",
    ("gateway", "Keys, rates and quotas"): "a client without a key, or with too many requests",
    ("gateway", "Aborted answers"): "an asker that leaves, or a Redis that fails",
    ("gateway", "Feedback"): "an asker that has something to say",
    ("training", "Stage of the curriculum"): "a recipe with a curriculum",
    ("training", "Capped tokens"): "a recipe with an importance cap",
    ("training", "Use of the GPUs (MFU)"): "a GPU",
    ("machines", "Processors of containers"): "a cluster",
    ("machines", "Memory of containers"): "the same",
    ("machines", "Utilisation of GPUs"): "a GPU and NVIDIA's exporter",
    ("machines", "Memory of GPUs"): "the same",
    ("machines", "Power of GPUs"): "the same",
}
VLLM = ("vllm:", "kbqa_engine_")


@pytest.fixture(scope="module")
def watched(tmp_path_factory):
    """A Prometheus behind which a run was trained, and how long it has watched."""
    program("prometheus")
    home, folder = tmp_path_factory.mktemp("home"), tmp_path_factory.mktemp("prometheus")
    ours = [name for name in os.environ if name.startswith(("KBQA_", "REDIS_URL"))]
    with pytest.MonkeyPatch.context() as environment:
        for name in ours:
            environment.delenv(name)
        load_graphs(home, "world", 1)
        with Stack(home, free_ports=True, on_event=lambda _: None) as stack:
            stack.wait_ready(600)
            with socket.create_server(("127.0.0.1", 0)) as probe:
                port = probe.getsockname()[1]
            jobs = {service: f"{url}/metrics" for service, url in stack.urls.items()}
            began = time.monotonic()
            with scraping(folder, jobs, RULES, port) as url:
                live(stack.urls)
                time.sleep(5)  # what happened last is scraped, too
                yield Prometheus(url, window=WINDOW), time.monotonic() - began


def live(urls: dict[str, str]) -> None:
    """A run from nothing to its end, promoted, asked; and a graph that is asked right and wrong things."""
    order = {"recipe": "kg-r1-small", "dataset": "world", "seed": 1, "overrides": OVERRIDES, "limits": LIMITS}
    with httpx.Client(timeout=120, trust_env=False) as http:
        begun = http.post(f"{urls['trainer']}/v1/runs", json=order)
        assert begun.status_code == 201, begun.text
        run = begun.json()["id"]
        ask_graph(http, urls["kg_server"], BOMB)
        while (view := http.get(f"{urls['trainer']}/v1/runs/{run}").json())["state"] == "running":
            ask_graph(http, urls["kg_server"], f"SELECT ?p {{ ?s ?p ?o }} LIMIT {view['step'] + 1}")
            time.sleep(2)
        assert view["state"] == "done", view["error"]
        http.post(f"{urls['trainer']}/v1/runs/{run}/promote").raise_for_status()
        deadline = time.monotonic() + 600
        while http.get(f"{urls['gateway']}/readyz").status_code != httpx.codes.OK:
            assert time.monotonic() < deadline, "the gateway does not take up the promoted policy"
            time.sleep(1)
        http.post(f"{urls['gateway']}/v1/answer", json={"quest": "misspelt"})
        for question in load_dataset("world", seed=1).splits.test[:10]:
            body = {"question": question.text, "kg": "world"}
            http.post(f"{urls['gateway']}/v1/answer", json=body).raise_for_status()
            time.sleep(0.5)  # a counter has a rate only if it grows after it was scraped first
        for question in load_dataset("world", seed=1).splits.test[:3]:
            line = BatchLine(id="q", question=question.text, kg="world")
            with Gateway(urls["gateway"]) as client:
                client.send_batch([line])
            time.sleep(2)


def ask_graph(http: httpx.Client, url: str, query: str) -> None:
    http.get(f"{url}/v1/kg/world/sparql", params={"query": query})
    action = {"action": "get_tail_relations", "entity": "nobody of that name"}
    http.post(f"{url}/v1/kg/world/actions", json={"actions": [action]})


def test_every_panel_has_data(watched):
    prometheus, seconds = watched
    empty = [
        (board.name, panel.title, target.expr)
        for board in boards()
        for panel in board.panels
        for target in panel.targets
        if (board.name, panel.title) not in NEEDS
        and not any(name in target.expr for name in VLLM)
        and not prometheus.over(target.expr, seconds)
    ]
    assert empty == []


def test_expressions_that_need_something_else_are_understood(watched):
    prometheus, seconds = watched
    for board in boards():
        for panel in board.panels:
            for target in panel.targets:
                prometheus.over(target.expr, seconds)  # raises unless it is PromQL


def test_nothing_is_alarming_about_a_good_run(watched):
    prometheus, seconds = watched
    for alert in ALERTS:
        prometheus.over(alert.expr, seconds)
    firing = prometheus.over('ALERTS{alertstate="firing"}', seconds)
    assert {series.labels["alertname"] for series in firing} == set()


def test_every_dashboard_can_be_drawn(watched, tmp_path):
    pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'kbqa[pictures]'")
    from deploy.dashboards.contact_sheet import draw

    prometheus, seconds = watched
    for board in boards():
        draw(board, prometheus, seconds, tmp_path / f"{board.name}.png")
        assert (tmp_path / f"{board.name}.png").stat().st_size > 20_000
