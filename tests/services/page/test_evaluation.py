"""The report of an evaluation: one file, in which text stays text."""

from __future__ import annotations

import json
import re
from dataclasses import replace

import pytest

from kbqa.evaluation import compare, evaluate
from kbqa.judges import MatchingJudge
from kbqa.trajectory import Hop, Question
from services.page.evaluation import page
from tests.services.trainer.made_runs import HOSTILE
from tests.unit.evaluation.cases import EMPTY, FAILED, FOUND, episode

ABOUT = {
    "policy": f"tiny{HOSTILE}",
    "version": "v000001-00000000",
    "recipe": "kg-r1-small",
    "baseline": None,
    "dataset": "world",
    "split": "test",
    "graphs": {"world": "abc"},
    "seed": 1,
    "left_out": 0,
    "leaking": False,
    "created_at": "2026-01-01T00:00:00+00:00",
    "seconds": 75.0,
    "questions_per_second": 1.5,
}


def said(run, text):
    """A run in which the policy and the graph say the text."""
    turns = tuple(replace(turn, text=text, thought=text, observation=text) for turn in run.turns)
    return replace(run, turns=turns)


def report(runs=1, number=30):
    played = [
        episode("Byron", queries=[FOUND]),
        episode("Byron", queries=[EMPTY, FOUND]),
        episode("Eve", queries=[FAILED]),
        said(episode(HOSTILE, queries=[FOUND]), HOSTILE),
        episode("Eve"),
    ]
    cases = []
    for index in range(number):
        text = f"who is {HOSTILE} ?" if index % 5 == 3 else f"question {index} ?"
        path = (Hop("parent"),) * (index % 3 + 1)
        asked = Question(f"q{index}", text, ("Byron",), ("Ada",), "world", path=path, level="iid")
        cases.append((asked, [played[index % 5]] * runs))
    evaluation = evaluate(cases, MatchingJudge(), ABOUT)
    earlier = {f"q{index}": {"hits@1": 0.0, "f1": 0.5} for index in range(number)}
    comparison = compare(evaluation.records, "before", earlier).to_json()
    return page({**evaluation.to_json(), "comparison": comparison}, evaluation.examples)


def test_the_report_is_one_file_that_loads_nothing():
    text = report()
    assert not re.search(r"<(?:link|img|iframe)\b|\bsrc=[\"'](?!x)|@import|url\(", text.split('id="data"')[0])
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    assert "://" not in text.split('id="data"')[0].replace("http://www.w3.org/2000/svg", "")


def test_text_of_models_and_graphs_never_becomes_markup():
    text = report()
    assert HOSTILE not in text
    assert len(re.findall(r"<script\b", text)) == len(re.findall(r"</script>", text)) == 3
    assert "<title>tiny&lt;img" in text
    data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert data["policy"] == ABOUT["policy"]
    assert any(one["question"] == f"who is {HOSTILE} ?" for one in data["examples"])


def test_half_a_character_of_a_model_can_be_written():
    asked = Question("q", "\ud83d ?", ("Byron",), ("Ada",), "world")
    evaluation = evaluate([(asked, [episode("\ud83d")])], MatchingJudge(), ABOUT)
    page({**evaluation.to_json(), "comparison": None}, evaluation.examples).encode(errors="replace")


@pytest.fixture
def show(open_page, tmp_path):
    """Opens a report in Chromium."""

    def opened(text, **options):
        file = tmp_path / "report.html"
        file.write_text(text, encoding="utf-8")
        return open_page(f"file://{file}", **options)

    return opened


@pytest.mark.integration
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_are_shown_at_every_width_in_both_schemes(show, width, scheme):
    shown = show(report(runs=2), width=width, height=844, color_scheme=scheme)
    assert shown.locator(".tile.first strong").inner_text() == "0.400"
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    dark = shown.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(18, 23, 26)"
    assert dark == (scheme == "dark")
    assert shown.title() != "taken"
    assert shown.locator("svg.track").count() > 10
    assert "Compared with before" in shown.locator("#comparison").inner_text()


@pytest.mark.integration
def test_trajectories_are_filtered_and_read(show):
    from playwright.sync_api import expect

    shown = show(report())
    expect(shown.locator("#count")).to_have_text("30 of 30 shown here")
    shown.get_by_role("combobox", name="Failure").select_option("refused")
    expect(shown.locator("#count")).to_have_text("6 of 30 shown here")
    shown.get_by_role("combobox", name="Hops").select_option("2")
    expect(shown.locator("#count")).to_have_text("2 of 30 shown here")
    shown.get_by_role("button", name="Clear").click()
    shown.get_by_role("button", name=re.compile("^recovered")).click()
    expect(shown.locator("#count")).to_have_text("6 of 30 shown here")
    shown.get_by_role("button", name="Clear").click()
    shown.get_by_role("searchbox", name="Text").fill("question 17 ?")
    expect(shown.locator("#count")).to_have_text("1 of 30 shown here")
    shown.locator("a.group").click()
    expect(shown.locator(".detail h2")).to_have_text("question 17 ?")
    expect(shown.locator(".detail .action.error")).to_have_count(1)
    shown.get_by_role("searchbox", name="Text").fill("nothing is like that")
    expect(shown.locator("#count")).to_have_text("0 of 30 shown here")
    expect(shown.locator(".detail")).to_contain_text("Choose a question")


@pytest.mark.integration
def test_scripts_of_a_model_stay_text(show):
    shown = show(report())
    shown.get_by_role("searchbox", name="Text").fill("<script>")
    shown.locator("a.group").first.click()
    assert "<script>" in shown.locator(".detail h2").inner_text()
    assert "<script>" in shown.locator(".detail .thought").first.inner_text()
    assert shown.evaluate("document.querySelectorAll('main script, main img').length") == 0
    assert shown.title() != "taken"


@pytest.mark.integration
def test_a_narrow_screen_shows_one_trajectory_at_a_time(show):
    shown = show(report(), width=390, height=844)
    shown.locator("a.group").first.click()
    assert shown.locator(".detail").is_visible()
    assert not shown.locator("a.group").first.is_visible()
    shown.get_by_role("button", name="All trajectories").click()
    assert shown.locator("a.group").first.is_visible()


@pytest.mark.integration
def test_the_report_is_accessible(show):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    shown = show(report())
    shown.locator("a.group").first.click()
    found = axe.run(shown).response["violations"]
    assert [
        (one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")
    ] == []
