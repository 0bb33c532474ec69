"""The dashboards that are checked in: current, explained, and about metrics that exist."""

from __future__ import annotations

import json
import os
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import yaml

from deploy.dashboards.__main__ import rendered
from deploy.dashboards.alerts import ALERTS
from deploy.dashboards.live import boards, expand
from deploy.dashboards.promql import (
    CONTAINER_METRICS,
    GPU_METRICS,
    PROCESS_METRICS,
    VLLM_METRICS,
    gauge,
    rate,
)
from kbqa.telemetry.table import METRICS
from services.trainer.exposition import DISTRIBUTIONS, RL_GAUGES, STEP_GAUGES
from tests.deploy.helm import CHART
from tests.deploy.prometheus import promtool

BOARDS = {board.name: board for board in boards()}
PANELS = [(name, panel) for name, board in BOARDS.items() for panel in board.panels if panel.kind != "row"]
DOCUMENTS = {path.stem: json.loads(path.read_text()) for path in sorted(CHART.glob("dashboards/*.json"))}
# What is marked on all panels of a dashboard.
MARKS = {
    (name, mark["name"]): mark["expr"]
    for name, document in DOCUMENTS.items()
    for mark in document["annotations"].get("list", ())
}
EXPRESSIONS = [
    *((f"{name}: {panel.title}", target.expr) for name, panel in PANELS for target in panel.targets),
    *((f"{name}: {mark}", expr) for (name, mark), expr in MARKS.items()),
    *((alert.name, alert.expr) for alert in ALERTS),
]
# What Prometheus itself adds to every series.
TARGET_LABELS = {"namespace", "instance", "job", "pod", "le"}
# By metric of others.
FOREIGN = {
    **dict.fromkeys(VLLM_METRICS, {"model_name", "engine", "finished_reason"}),
    **dict.fromkeys(GPU_METRICS, {"gpu", "Hostname"}),
    **dict.fromkeys(PROCESS_METRICS, set()),
    **dict.fromkeys(CONTAINER_METRICS, {"container"}),
}
# On no panel, for a reason.
NOT_SHOWN = {
    "kbqa_engine_requests_running": "vLLM itself tells how many sequences it computes",
    "kbqa_gateway_key_calls_total": "tokens and seconds by key say what a caller costs",
    "kbqa_trainer_checkpoint_step": "checkpoints are marked on every panel",
}
# Panels on which a limit is drawn or coloured, and the alert that fires beyond the second one.
LIMITS = {
    ("training", "Fall of the reward"): ("KbqaRewardCollapsed", "high is bad"),
    ("training", "Entropy"): ("KbqaPolicyCollapsed", "low is bad"),
    ("graph", "Killed queries"): ("KbqaQueriesKilled", "high is bad"),
    ("gateway", "Failed requests"): ("KbqaGatewayErrors", "high is bad"),
    ("queues", "Age of a request"): ("KbqaQueueWaits", "high is bad"),
    ("queues", "Free space"): ("KbqaDiskFills", "low is bad"),
}
each_expression = pytest.mark.parametrize(
    ("where", "expr"), EXPRESSIONS, ids=[f"{where} {n}" for n, (where, _) in enumerate(EXPRESSIONS)]
)


def test_files_are_current():
    for path, text in rendered().items():
        assert path.read_text(encoding="utf-8") == text, "run python -m deploy.dashboards"


def test_there_is_a_dashboard_for_each_part():
    assert BOARDS.keys() == {"training", "rollouts", "graph", "gateway", "queues", "machines"}
    assert len({board.title for board in BOARDS.values()}) == len(BOARDS)


@pytest.mark.parametrize("name", BOARDS)
def test_data_source_and_namespace_can_be_chosen(name):
    document = DOCUMENTS[name]
    variables = [variable["name"] for variable in document["templating"]["list"]]
    own = {"rollouts": ["vllm"], "training": ["recipe", "run"]}
    assert variables == ["datasource", "namespace", *own.get(name, [])]
    assert document["uid"] == f"kbqa-{name}"
    assert not document["editable"]
    ids = [panel["id"] for panel in document["panels"]]
    assert len(set(ids)) == len(ids)
    for panel in document["panels"]:
        if panel["type"] != "row":
            assert panel["datasource"]["uid"] == "$datasource"


@pytest.mark.parametrize("name", BOARDS)
def test_rows_ask_and_no_panels_overlap(name):
    panels = BOARDS[name].panels
    assert panels[0].kind == "row"
    for row in (panel for panel in panels if panel.kind == "row"):
        assert row.title.endswith("?")
    cells = [
        (x, y)
        for left, top, width, height in (panel.place for panel in panels)
        for x in range(left, left + width)
        for y in range(top, top + height)
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) == 23


@pytest.mark.parametrize(("name", "panel"), PANELS, ids=[f"{n}: {p.title}" for n, p in PANELS])
def test_a_panel_says_what_it_shows(name, panel):
    assert panel.title
    assert panel.title[0].isupper()
    assert len(panel.description) > len(panel.title)
    assert panel.description.endswith(".")
    assert panel.unit
    assert panel.targets
    assert all(target.legend for target in panel.targets)


@each_expression
def test_every_metric_and_label_exists(where, expr):
    known = {metric.name: set(metric.labels) for metric in METRICS} | FOREIGN
    named = _metrics(expr)
    assert named
    for name in named:
        base = re.sub(r"_(bucket|sum|count)$", "", name)
        histogram = base in _histograms() and name != base
        assert name in known or histogram or name == "up", name
    for name, matchers in re.findall(r"([A-Za-z_:]+)\{([^}]*)\}", expr):
        base = name if name in known else re.sub(r"_(bucket|sum|count)$", "", name)
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", re.sub(r'"[^"]*"', "", matchers)):
            assert label in known.get(base, set()) | TARGET_LABELS, (name, label)


@each_expression
def test_what_is_grouped_by_is_a_label_of_what_is_grouped(where, expr):
    known = {metric.name: set(metric.labels) for metric in METRICS} | FOREIGN
    labels = TARGET_LABELS.union(
        *(known.get(re.sub(r"_(bucket|sum|count)$", "", n), known.get(n, set())) for n in _metrics(expr))
    )
    labels = labels.union(*(known.get(name, set()) for name in _metrics(expr)))
    for group in re.findall(r"\bby \(([^)]*)\)", expr):
        assert {label.strip() for label in group.split(",")} <= labels


def test_panels_about_a_run_can_be_limited_to_some_runs():
    of_the_run = set(STEP_GAUGES | RL_GAUGES | DISTRIBUTIONS)
    for panel in BOARDS["training"].panels:
        for target in panel.targets:
            if _metrics(target.expr) & of_the_run:
                assert 'run=~"$run"' in target.expr, panel.title


def test_every_metric_is_on_a_panel():
    shown = set().union(*(_metrics(target.expr) for _, panel in PANELS for target in panel.targets))
    shown |= {re.sub(r"_(bucket|sum|count)$", "", name) for name in shown}
    exported = {metric.name for metric in METRICS} | FOREIGN.keys()
    assert exported - shown == NOT_SHOWN.keys()


def test_validation_is_shown_by_exact_match_hits_and_f1():
    [panel] = [panel for name, panel in PANELS if (name, panel.title) == ("training", "Validation")]
    [target] = panel.targets
    [named] = re.findall(r'measure=~"([^"]*)"', target.expr)
    assert named.split("|") == ["em", "hit", "f1"]


def test_checkpoints_and_promotions_are_marked():
    assert {place: _metrics(expr) for place, expr in MARKS.items()} == {
        ("training", "Checkpoints"): {"kbqa_trainer_checkpoint_step"},
        ("training", "Promotions"): {"kbqa_gateway_policy_info"},
    }


def test_runs_are_compared_by_their_steps():
    charts = [panel for panel in DOCUMENTS["training"]["panels"] if panel["type"] == "xychart"]
    assert len(charts) == 2
    for panel in charts:
        assert panel["repeat"] == "run"
        step, value = ({*_metrics(target["expr"])} - {"kbqa_trainer_run_info"} for target in panel["targets"])
        assert step == {"kbqa_trainer_step"}
        assert value in ({"kbqa_trainer_reward"}, {"kbqa_trainer_f1"})


@pytest.mark.parametrize("place", LIMITS, ids=": ".join)
def test_limits_are_drawn_and_what_fires_is_beyond_the_second(place):
    alert, order = LIMITS[place]
    [panel] = [panel for name, panel in PANELS if (name, panel.title) == place]
    steps = panel.options["thresholds"]["steps"]
    bounds, colours = [step["value"] for step in steps[1:]], ["green", "orange", "red"]
    assert [step["color"] for step in steps] == (colours if order == "high is bad" else colours[::-1])
    assert bounds == sorted(bounds)
    [expr] = [rule.expr for rule in ALERTS if rule.name == alert]
    sign, worst = (">", bounds[1]) if order == "high is bad" else ("<", bounds[0])
    assert re.search(rf"{sign} {worst:g}\b", expr)
    if panel.kind == "timeseries":
        assert panel.options["custom"]["thresholdsStyle"] == {"mode": "dashed"}


def test_every_expression_parses(tmp_path):
    rules = [
        {"record": f"expression:{number}", "expr": expand(expr)}
        for number, (_, expr) in enumerate(EXPRESSIONS)
    ]
    path = tmp_path / "expressions.yaml"
    path.write_text(yaml.safe_dump({"groups": [{"name": "all", "rules": rules}]}))
    assert promtool("check", "rules", path) == ""


def test_every_span_of_time_has_ticks():
    pytest.importorskip("matplotlib", reason="no matplotlib here: pip install 'kbqa[pictures]'")
    from deploy.dashboards.contact_sheet import ticks

    begins = datetime(2026, 1, 1, 12, tzinfo=UTC)
    for seconds in (*range(10, 600), *range(600, 40_000, 60)):
        assert 2 <= len(ticks().tick_values(begins, begins + timedelta(seconds=seconds))) <= 9


def test_vllm_has_the_metrics_that_are_listed():
    vllm = Path(os.environ.get("KBQA_VLLM", ".venv-vllm/bin/vllm")).parents[1]
    sources = list(vllm.glob("lib/python3*/site-packages/vllm/v1/metrics/loggers.py"))
    if not sources:
        pytest.skip("no vLLM here: run make test-integration, or name one by KBQA_VLLM")
    text = sources[0].read_text(encoding="utf-8")
    for name, kind in VLLM_METRICS.items():
        told = name.removesuffix("_total") if kind == "counter" else name  # prometheus_client adds it
        assert f'name="{told}"' in text, name


def test_a_metric_that_is_not_there_cannot_be_asked_for():
    with pytest.raises(KeyError, match="no gauge named kbqa_trainer_rewards"):
        gauge("kbqa_trainer_rewards")
    with pytest.raises(KeyError, match="no counter named kbqa_trainer_reward"):
        rate("kbqa_trainer_reward")


def _metrics(expr: str) -> set[str]:
    """Names of metrics in an expression."""
    bare = re.sub(r'"[^"]*"', '""', expr)
    return set(re.findall(r"\b(?:kbqa_\w+|vllm:\w+|process_\w+|container_\w+|DCGM_\w+|up)\b", bare))


def _histograms() -> set[str]:
    ours = {metric.name for metric in METRICS if metric.kind == "histogram"}
    return ours | {name for name, kind in VLLM_METRICS.items() if kind == "histogram"}
