"""The report of training runs: one file, in which text stays text."""

from __future__ import annotations

import json
import re

import pytest

from kbqa.recipes import load_recipe
from kbqa.reports import Findings, build
from kbqa.runs.directory import State
from services.page.report import page
from tests.services.trainer.made_runs import HOSTILE, make_run

FINDINGS = {
    "title": f"Ablations {HOSTILE}",
    "findings": [
        {
            "name": "turn-rewards",
            "claim": f"Turn rewards {HOSTILE}",
            "paper": "KG-R1",
            "reports": f"F1 10.1 {HOSTILE}",
            "has": "kg-r1",
            "lacks": "kg-r1-no-turn-rewards",
            "verdict": verdict,
            "effect": effect,
            "smallest": 0.03,
            "questions": 1000,
            "trials": [{"seed": seed, "has": 0.6, "lacks": 0.58} for seed in (1, 2)] if effect else [],
            "learned": HOSTILE,
        }
        | {"name": verdict}
        for verdict, effect in (
            ("equivalent", {"mean": 0.02, "low": 0.015, "high": 0.025}),
            ("same sign", {"mean": 0.2, "low": 0.1, "high": 0.3}),
            ("not run yet", None),
        )
    ],
}


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    less = load_recipe("kg-r1-small", {"reward.w_retrieval": 0.0})
    runs = [
        make_run(home, recipe, seed=seed, name=f"{name}-{seed}", skills={"base": 0.0, "rl": skill})
        for name, recipe, skill in (("full", None, 0.9), ("less", less, 0.3))
        for seed in (1, 2)
    ]
    runs.append(make_run(home, dataset="metaqa-1hop", name="other", state=State.STOPPED, steps=10))
    findings = [Findings.model_validate(FINDINGS)]
    return page(build(runs, findings=findings, title=f"Runs {HOSTILE}", left_out={"broken": HOSTILE}))


def data_of(text):
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def test_the_report_is_one_file_that_loads_nothing(text):
    head = text.split('id="data"')[0]
    assert not re.search(r"<(?:link|img|iframe)\b|\bsrc=[\"'](?!x)|@import|url\(", head)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1]
    assert policy.startswith("default-src 'none'; script-src 'sha256-")
    assert "unsafe" not in policy
    script = text.split('<script type="module">')[1]
    assert "://" not in (head + script).replace("http://www.w3.org/2000/svg", "")


def test_text_of_questions_models_and_files_never_becomes_markup(text):
    assert HOSTILE not in text
    assert len(re.findall(r"<script\b", text)) == len(re.findall(r"</script>", text)) == 3
    assert "<title>Runs &lt;img" in text
    data = data_of(text)
    assert HOSTILE in data["scenes"][0]["tellings"][0]["questions"][0]["question"]
    assert data["findings"][0]["findings"][0]["learned"] == HOSTILE


def test_the_navigation_names_the_parts_that_are_there(tmp_path):
    parts = re.compile(r'<a href="#(\w+)">')
    assert parts.findall(page(build([make_run(tmp_path)]))) == ["results", "curves", "runs"]
    assert parts.findall(page(build([], findings=[Findings.model_validate(FINDINGS)]))) == ["findings"]


@pytest.fixture
def show(open_page, tmp_path, text):
    """Opens the report in Chromium."""

    def opened(**options):
        file = tmp_path / "report.html"
        file.write_text(text, encoding="utf-8")
        return open_page(f"file://{file}", **options)

    return opened


@pytest.mark.integration
@pytest.mark.parametrize("split", ["test", "validation"])
def test_the_results_name_the_questions_that_were_asked(open_page, tmp_path, text, split):
    file = tmp_path / "report.html"
    changed, count = re.subn(r'("split": ?)"test"', rf'\1"{split}"', text)
    assert count
    file.write_text(changed, encoding="utf-8")
    assert f"F1 on the {split} questions" in open_page(f"file://{file}").locator("#results").inner_text()


@pytest.mark.integration
@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_parts_are_shown_at_every_width_in_both_schemes(show, width, scheme):
    shown = show(width=width, height=844, color_scheme=scheme)
    assert [one.get_attribute("id") for one in shown.locator(".report > section").all()] == [
        "results",
        "curves",
        "differences",
        "runs",
        "findings",
    ]
    assert shown.evaluate("document.documentElement.scrollWidth <= innerWidth")
    dark = shown.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(18, 23, 26)"
    assert dark == (scheme == "dark")
    assert "Compared with kg-r1-small" in shown.locator("#results").inner_text()
    assert "different data sets" in shown.locator(".report header").inner_text()
    assert shown.locator("#curves svg path.line").count() >= 8
    assert shown.locator("#curves svg polygon.band").count() >= 2
    assert shown.locator("#findings article").count() == 3
    assert shown.title() != "taken"


@pytest.mark.integration
def test_curves_are_drawn_over_steps_and_over_time(show):
    shown = show()
    reward = shown.locator("#curves figure", has=shown.get_by_role("heading", name="Reward")).first
    reward.get_by_role("img").focus()
    shown.keyboard.press("End")
    assert reward.locator("output").inner_text().startswith("step 30")
    shown.get_by_role("radio", name="over time").check()
    reward.get_by_role("img").focus()
    shown.keyboard.press("End")
    assert reward.locator("output").inner_text().startswith("2 min")


@pytest.mark.integration
def test_the_turns_of_both_are_read_as_text(show):
    shown = show()
    first = shown.locator("#differences details.card").first
    first.locator("summary").first.click()
    assert first.locator(".versus > section").count() == 2
    assert "<script>" in first.locator("summary .question").inner_text()
    assert "<script>" in first.locator(".turn .thought").first.inner_text()
    assert shown.evaluate("document.querySelectorAll('main script, main img').length") == 0
    assert shown.title() != "taken"


@pytest.mark.integration
def test_the_report_is_accessible(show):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    shown = show()
    shown.locator("#differences details.card summary").first.click()
    found = axe.run(shown).response["violations"]
    assert [
        (one["id"], one["nodes"][0]["html"]) for one in found if one["impact"] in ("serious", "critical")
    ] == []
