"""The page of reviews in headless Chromium: by mouse and by keyboard, light and dark, wide and narrow."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from kbqa.datasets.reviews import Review
from tests.services.review.conftest import MARKUP, QUESTIONS

pytestmark = pytest.mark.integration


def heading(page):
    return page.locator("#question h2")


def verdicts(file):
    return {question.id: decision and decision.verdict for question, decision in Review(file).sample(9)}


def test_the_keyboard_does_all_of_it(open_page, serve, file):
    with serve() as url:
        page = open_page(url)
        expect(heading(page)).to_be_visible()
        order = [question for question, _ in Review(file).sample(9)]
        page.keyboard.press("a")
        expect(heading(page)).to_have_text(order[1].text)
        expect(heading(page)).to_be_focused()
        page.keyboard.press("r")
        expect(heading(page)).to_have_text(order[2].text)
        page.keyboard.press("e")
        field = page.get_by_role("textbox", name="Wording")
        expect(field).to_be_focused()
        page.keyboard.press("ControlOrMeta+a")
        page.keyboard.type("A rare and raj-like question?")  # letters of shortcuts are text here
        page.keyboard.press("Enter")
        expect(heading(page)).to_have_text(order[3].text)
        page.keyboard.press("k")
        expect(heading(page)).to_have_text("A rare and raj-like question?")
        expect(page.locator("#question del")).to_have_text(order[2].text)
        page.keyboard.press("k")
        page.keyboard.press("u")
        expect(page.locator("#question .chip")).to_have_text("not decided")
        page.keyboard.press("e")
        page.keyboard.press("Escape")
        expect(heading(page)).to_have_text(order[1].text)
        assert verdicts(file) == dict(
            zip([one.id for one in order], ["accepted", None, "accepted", None], strict=True)
        )


def test_a_key_that_is_held_decides_once(open_page, serve, file):
    with serve() as url:
        page = open_page(url)
        expect(heading(page)).to_be_visible()
        for _ in range(4):
            page.keyboard.down("a")  # the second and later ones are repeats
            expect(page.locator("#progress")).to_contain_text("1 of 4 shown here are decided")
        page.keyboard.up("a")
    assert Review(file).progress().accepted == 1


def test_while_a_decision_is_being_saved_no_other_question_is_shown(open_page, serve, file):
    with serve() as url:
        page = open_page(url)
        order = [question for question, _ in Review(file).sample(9)]
        expect(heading(page)).to_have_text(order[0].text)
        sent = []
        page.route("**/v1/decisions", lambda route: sent.append(route))
        page.get_by_role("button", name="Accept", exact=True).click()
        page.get_by_role("button", name=order[3].text).click()
        expect(heading(page)).to_have_text(order[0].text)
        sent[0].continue_()
        expect(heading(page)).to_have_text(order[1].text)


def test_the_mouse_does_it_too_and_the_end_is_told(open_page, serve, file):
    with serve() as url:
        page = open_page(url)
        page.get_by_role("button", name=QUESTIONS[2].text).click()
        page.get_by_role("button", name="Reject", exact=True).click()
        expect(page.locator("#progress")).to_contain_text("1 of 4 shown here are decided")
        for number in range(2, 5):
            page.get_by_role("button", name="Accept", exact=True).click()
            expect(page.locator("#progress")).to_contain_text(f"{number} of 4 shown")
        expect(page.locator("#progress")).to_contain_text("kbqa questions accept")
        expect(page.locator("#status")).to_contain_text("all questions of the sample are decided")
        page.reload()
        expect(page.locator("#sample .verdict-accepted")).to_have_count(3)
    assert Review(file).progress().rejected == 1


def test_what_is_refused_or_not_saved_is_told(open_page, serve, file):
    with serve() as url:
        page = open_page(url, failing=True)
        page.get_by_role("button", name="Edit", exact=True).click()
        page.get_by_role("textbox", name="Wording").fill(" ")
        page.get_by_role("button", name="Save and accept").click()
        expect(page.get_by_role("alert")).to_contain_text("write the question on one line")
        expect(page.get_by_role("textbox", name="Wording")).to_be_visible()
        page.keyboard.press("Escape")
        file.write_text(file.read_text().replace(" ?", " !"))
        page.get_by_role("button", name="Accept", exact=True).click()
        expect(page.get_by_role("alert")).to_contain_text("load the page again")
        page.get_by_role("button", name="Load again").click()
        expect(heading(page)).to_contain_text(" !")
        page.get_by_role("button", name="Accept", exact=True).click()
        expect(page.get_by_role("alert")).to_have_count(0)
        expect(page.locator("#progress")).to_contain_text("1 of 4 shown")


@pytest.mark.parametrize("width", [390, 1280])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_axe_finds_nothing(open_page, serve, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()

    def check():
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        found = axe.run(page).response["violations"]
        assert [(one["id"], [node["html"] for node in one["nodes"]]) for one in found] == []

    with serve() as url:
        page = open_page(url, width=width, height=844, color_scheme=scheme, reduced_motion="reduce")
        page.get_by_role("button", name=QUESTIONS[0].text).click()
        expect(page.locator("#question")).to_contain_text(MARKUP)
        assert page.locator("main img").count() == 0
        dark = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        assert (dark == "rgb(18, 23, 26)") == (scheme == "dark")
        check()
        page.get_by_role("button", name="Accept", exact=True).click()
        page.get_by_role("button", name="Reject", exact=True).click()
        check()
        page.get_by_role("button", name="Edit", exact=True).click()
        check()
