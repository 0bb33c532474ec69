"""The trainer's page in headless Chromium: over runs made by hand, and over one that goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from fastapi import FastAPI
from playwright.sync_api import expect
from prometheus_client import CollectorRegistry

from kbqa.policy_store import PolicyStore
from kbqa.recipes import load_recipe
from kbqa.recipes.reach import Reach
from kbqa.runs.directory import Runs, State
from kbqa.telemetry.metrics import Metrics
from services.http import background, install
from services.trainer.claim import QueueClaim
from services.trainer.errors import STATUS
from services.trainer.page import page_router
from services.trainer.routes import runs_router
from services.trainer.settings import TrainerSettings
from services.trainer.supervisor import Supervisor
from tests.services.trainer.made_runs import HOSTILE, make_run

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def made_home(tmp_path_factory):
    return tmp_path_factory.mktemp("made")


@pytest.fixture(scope="module")
def url(made_home) -> Iterator[str]:
    """What shows runs, without what trains them."""
    settings, metrics = TrainerSettings(home=made_home), Metrics(CollectorRegistry())
    runs, store = Runs(made_home / "runs"), PolicyStore(made_home / "policies")
    app = FastAPI(title="trainer")
    install(app, service="trainer", metrics=metrics, readiness=lambda: None, errors=STATUS)
    claim = QueueClaim("amqp://127.0.0.1:1", "", print)
    supervisor = Supervisor(runs, settings, metrics, {}, claim, lambda recipe: recipe)
    app.include_router(runs_router(runs, supervisor, store, None, Reach(), lambda recipe: recipe))
    app.include_router(page_router(runs, store))
    with background(app) as url:
        yield url


@pytest.fixture(scope="module")
def linear(made_home):
    return make_run(made_home, steps=30).id


@pytest.fixture(scope="module")
def tree(made_home):
    return make_run(made_home, load_recipe("isp-kgr"), steps=12, state=State.STOPPED).id


def test_runs_are_listed_and_lead_to_their_curves(open_page, url, linear, tree):
    page = open_page(url)
    row = page.get_by_role("row").filter(has_text=linear)
    assert "done" in row.inner_text()
    row.get_by_role("link").click()
    page.wait_for_url(f"**/runs/{linear}")
    reward = page.locator("figure", has=page.get_by_role("heading", name="Reward", exact=True))
    reward.locator("svg path.line").first.wait_for(state="attached")
    label = reward.get_by_role("img").get_attribute("aria-label")
    assert re.search(r"Reward: from [\d.]+ to [\d.]+ over 30 records", label)
    assert page.get_by_role("heading", name="As KG-R1 plots it").is_visible()
    drawn = page.locator("figure.chart svg path.line, figure.chart svg polygon.area")
    assert drawn.count() >= page.locator("figure.chart").count()
    page.go_back()
    page.get_by_role("heading", name="Runs").wait_for()


def test_a_chart_is_read_by_keyboard(open_page, url, linear):
    page = open_page(f"{url}/runs/{linear}")
    turns = page.locator("figure", has=page.get_by_role("heading", name="Turns", exact=True)).first
    turns.get_by_role("img").focus()
    page.keyboard.press("Home")
    assert turns.locator("output").inner_text().startswith("step 1")
    page.keyboard.press("ArrowRight")
    assert turns.locator("output").inner_text().startswith("step 2")
    page.get_by_role("tab", name="Curves").focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_url("**view=trajectories")


def test_values_that_differ_only_by_rounding_have_a_chart(open_page, url, linear):
    page = open_page(f"{url}/runs/{linear}")
    page.locator("figure.chart svg path.line").first.wait_for(state="attached")
    page.evaluate(
        """async () => {
            const { chart } = await import("/static/chart.js");
            const points = [[1, 0.3], [2, 0.1 + 0.2]];
            const card = chart({ title: "Level", kind: "line" }, () => [{ name: "level", points }]);
            document.querySelector("figure.chart").before(card);
        }"""
    )
    level = page.locator("figure", has=page.get_by_role("heading", name="Level", exact=True))
    level.locator("svg path.line").wait_for(state="attached")
    assert 2 <= level.locator("svg line.gridline").count() <= 8


def test_a_trajectory_unfolds_and_its_text_is_text(open_page, url, linear):
    page = open_page(f"{url}/runs/{linear}?view=trajectories")
    page.locator("a.group").first.click()
    page.locator("li.turn").first.wait_for()
    shown = HOSTILE.replace("\u202e", "⟨U+202E⟩")  # what would turn the text around is seen
    assert shown in page.locator("li.turn .thought").first.inner_text()
    assert shown in page.locator(".detail h2").inner_text()
    assert "parent <i>of</i>" in page.locator("li.turn .action code").first.inner_text()
    assert page.locator(".detail img, .detail script, .detail i:not(.swatch)").count() == 0
    assert "taken" not in page.title()
    assert re.search(r"advantage\s+([+−][\d.]+|none)", page.locator("li.turn header").first.inner_text())
    # Another turn of the drawing: its path is shown, and the address leads there.
    nodes = page.locator("svg.forest g.node")
    nodes.nth(0).click()
    page.wait_for_url("**turn=0")
    assert page.locator("li.turn.chosen").get_attribute("data-card") == "0"
    again = open_page(page.url)
    again.locator("svg.forest g.node.chosen").wait_for()
    assert again.locator("li.turn").count() == page.locator("li.turn").count()


def test_the_filters_filter(open_page, url, linear):
    page = open_page(f"{url}/runs/{linear}?view=trajectories")
    page.locator("a.group").first.wait_for()
    page.locator("select[name=outcome]").select_option("no_spread")
    page.locator(".outcome-trained").first.wait_for(state="detached")
    assert page.locator("a.group .outcome-no_spread").count() == 30
    page.locator("select[name=step]").select_option("7")
    expect(page.locator("a.group")).to_have_count(1)
    assert "step=7" in page.url
    assert "outcome=no_spread" in page.url
    page.get_by_role("searchbox").fill("nobody asks that")
    page.get_by_text("No group matches.").first.wait_for()
    page.get_by_role("button", name="Clear").click()
    expect(page.locator("a.group")).to_have_count(40)
    page.get_by_role("button", name="More groups").click()
    expect(page.locator("a.group")).to_have_count(80)


def test_a_tree_is_drawn_and_walked_by_keyboard(open_page, url, tree):
    page = open_page(f"{url}/runs/{tree}?view=trajectories")
    page.locator("a.group").first.click()
    forest = page.get_by_role("tree")
    forest.wait_for()
    nodes, edges = forest.get_by_role("treeitem").count(), forest.locator("path.edge").count()
    assert nodes == edges >= 3
    page.locator('g.node[data-turn="0"]').click()
    assert page.locator("li.turn").count() == 1
    page.keyboard.press("ArrowDown")
    page.locator('g.node.chosen:not([data-turn="0"])').wait_for()
    page.keyboard.press("Enter")
    assert "branches kept" in page.locator(".detail").inner_text()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_one_thing_at_a_time(open_page, url, linear, scheme):
    page = open_page(f"{url}/runs/{linear}?view=trajectories", width=390, height=800, color_scheme=scheme)
    page.locator("a.group").first.click()
    page.locator("li.turn").first.wait_for()
    assert not page.locator("a.group").first.is_visible()
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    page.get_by_role("button", name="All groups").click()
    assert page.locator("a.group").first.is_visible()
    page.get_by_role("tab", name="Curves").click()
    page.locator("figure.chart svg path.line").first.wait_for(state="attached")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
    assert (dark == "rgb(18, 23, 26)") == (scheme == "dark")


def test_recipe_and_versions_are_shown(open_page, url, linear):
    page = open_page(f"{url}/runs/{linear}?view=recipe")
    page.get_by_role("heading", name="optimisation").wait_for()
    page.get_by_role("tab", name="Versions").click()
    page.get_by_text("None yet.").wait_for()


def test_a_run_that_goes_on_is_followed(open_page, start_service, client, tiny_recipe):
    start_service("rollout_worker").ready()
    trainer = start_service("trainer").ready()
    runs = client(trainer)
    run = runs.start(tiny_recipe)
    page = open_page(f"{trainer.url}/runs/{run}")
    page.locator(".phases .now").wait_for()
    page.locator(".title .state-done").wait_for(timeout=240_000)
    assert runs.view(run)["state"] == "done"
    page.locator("figure.chart svg path.line").first.wait_for(state="attached")
    page.get_by_role("tab", name="Trajectories").click()
    page.locator("a.group").first.click()
    page.locator("li.turn").first.wait_for()
    page.get_by_role("tab", name="Versions").click()
    page.get_by_role("rowheader").filter(has_text="v0000").first.wait_for()
