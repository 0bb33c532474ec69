"""Widths, colours, keys, what assistive techniques are told; and the page of reports."""

from __future__ import annotations

import json
import re

import pytest
from playwright.sync_api import expect

from tests.services.gateway.conftest import FixedPolicy, NoPolicy
from tests.services.gateway.page.conftest import BUDGET, Deliberate, ask, story
from tests.services.trainer.made_runs import make_run

pytestmark = pytest.mark.integration


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_no_width_or_scheme_needs_sideways_scrolling(open_page, serve, book, width, scheme):
    with serve(FixedPolicy(policy=Deliberate(story(book), 0.2), budget=BUDGET)) as url:
        page = open_page(url, width=width, height=844, color_scheme=scheme)
        fits = "document.documentElement.scrollWidth <= innerWidth"
        assert page.evaluate(fits)
        ask(page, f"name the birth year of the author of {book[0]} .")
        page.locator(".turn").nth(1).wait_for()
        assert page.evaluate(fits)
        expect(page.locator("li.answer")).to_have_count(1)
        assert page.evaluate(fits)
        dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (dark == "rgb(18, 23, 26)") == (scheme == "dark")
        if width == 390:  # one below the other there
            xs = page.evaluate("""() => document.querySelector('.canvas')._cyreg.cy.nodes()
                .map(n => [n.position('y'), n.position('x') - n.width() / 2])""")
            assert len({y for y, _ in xs}) == len(xs)


def test_the_theme_is_chosen_remembered_and_drawn(open_page, serve, book):
    colour = "document.querySelector('.canvas')._cyreg.cy.nodes('.topic').style('color')"
    with serve(FixedPolicy(policy=Deliberate(story(book)), budget=BUDGET)) as url:
        page = open_page(url, color_scheme="light")
        ask(page, f"name the birth year of the author of {book[0]} .")
        expect(page.locator("li.answer")).to_have_count(1)
        light = page.evaluate(colour)
        page.get_by_role("button", name="Change between light and dark").click()
        assert (
            page.evaluate("getComputedStyle(document.documentElement).backgroundColor") == "rgb(18, 23, 26)"
        )
        assert page.evaluate(colour) != light
        page.reload()
        assert page.evaluate("document.documentElement.dataset.theme") == "dark"


def test_the_keyboard_does_all_of_it(open_page, serve, book):
    with serve(FixedPolicy(policy=Deliberate(story(book)), budget=BUDGET)) as url:
        page = open_page(url)
        expect(page.get_by_role("textbox", name="Question")).to_be_focused()
        page.keyboard.press("Tab")  # the button
        page.keyboard.press("?")
        dialog = page.get_by_role("dialog", name="Keyboard")
        expect(dialog).to_be_visible()
        page.keyboard.press("Escape")
        expect(dialog).to_have_count(0)
        page.get_by_label("Graph", exact=True).press("w")
        page.keyboard.press("Escape")
        page.keyboard.press("/")
        page.keyboard.type(f"name the birth year of the author of {book[0]} .")
        page.keyboard.press("Enter")
        expect(page.locator("li.answer")).to_have_count(1)
        page.keyboard.press("Tab")
        outline = page.evaluate("getComputedStyle(document.activeElement).outlineStyle")
        assert outline == "solid"
        page.keyboard.press("1")
        expect(page.locator("li.answer")).to_be_focused()
        page.keyboard.press("l")
        expect(page.locator(".triples")).to_be_visible()
        assert "author" in page.locator(".triples").inner_text()
        page.keyboard.press("h")
        page.get_by_role("dialog", name="History").get_by_role("button", name=book[0]).press("Enter")
        expect(page.get_by_role("textbox", name="Question")).to_have_value(re.compile(re.escape(book[0])))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing(open_page, serve, book, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()

    def check(page):
        found = axe.run(page).response["violations"]
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []

    with serve(FixedPolicy(policy=Deliberate(story(book)), budget=BUDGET)) as url:
        page = open_page(url, color_scheme=scheme, reduced_motion="reduce")
        check(page)
        ask(page, f"name the birth year of the author of {book[0]} .")
        expect(page.locator("li.answer")).to_have_count(1)
        page.keyboard.press("Escape")
        page.keyboard.press("1")
        check(page)
        page.keyboard.press("?")
        check(page)
        page.keyboard.press("Escape")
        about = page.get_by_role("combobox", name="About")
        about.press_sequentially(book[0][:3])
        page.get_by_role("listbox").wait_for()
        about.press("ArrowDown")
        check(page)
        page.goto(f"{url}/reports")
        page.get_by_role("heading", name="Reports").wait_for()
        check(page)
    with serve(NoPolicy()) as url:
        page = open_page(url, color_scheme=scheme, failing=True)
        ask(page, "Who starred in Big?", "films")
        page.get_by_role("alert").wait_for()
        check(page)


def test_reports_are_listed_and_lead_to_figures_and_trajectories(open_page, serve, tmp_path):
    run = make_run(tmp_path, steps=4)
    summary = {
        "f1": {"base": 0.01, "cold_start": 0.506, "rl": 0.642},
        "f1_by_hops": {
            "base": {"1": 0.0, "2": 0.02},
            "cold_start": {"1": 0.76, "2": 0.41},
            "rl": {"1": 0.8, "2": 0.5},
        },
        "questions": 240,
        "seconds": 815.7,
        "seed": 1,
        "dataset": "world",
        "run": run.id,
        "policy": "v000027-f0a27d00",
        "best": None,
        "ended": None,
    }
    run.summary_path.write_text(json.dumps(summary))
    with serve() as url:
        page = open_page(f"{url}/reports")
        row = page.get_by_role("row").filter(has_text=run.id)
        expect(row).to_contain_text("0.642")
        row.get_by_role("link").click()
        page.wait_for_url(f"**/runs/{run.id}")
        assert "2 hops: base 0.020, cold start 0.410, rl 0.500" in (
            page.locator("svg.bars").get_attribute("aria-label") or ""
        )
        page.get_by_role("link", name="Trajectories (4 steps)").click()
        page.locator("a.group").first.click()
        page.locator("li.turn").first.wait_for()
        assert page.locator(".detail img, .detail script").count() == 0
        page.set_viewport_size({"width": 390, "height": 800})
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
