"""A conversation on the page: its thread, how a question was understood, and its correction.

And what can be taken away: the walk as a file, a link to an answer, a verdict with the right answer.
"""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from xml.etree import ElementTree

import pytest
from playwright.sync_api import expect

from tests.services.gateway.conftest import FixedPolicy, answer, query
from tests.services.gateway.page.conftest import BUDGET, Deliberate, ask

pytestmark = pytest.mark.integration


def film(prompt):
    """Who starred in the film that the question names."""
    name = "Philadelphia" if "in Philadelphia" in prompt else "Big"
    if "<information>" not in prompt:
        return query("get_tail_entities", name, "starred")
    return answer("Tom Hanks")


@pytest.fixture
def url(serve):
    with serve(FixedPolicy(policy=Deliberate(film), budget=BUDGET)) as url_:
        yield url_


def asked(page, question):
    """Ask, and wait for the answer."""
    ask(page, question, "films")
    expect(page.locator(".state .chip")).to_be_visible()


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (390, "dark")])
def test_a_thread_shows_what_was_understood_and_lets_it_be_corrected(open_page, url, width, scheme):
    page = open_page(url, width=width, height=844, color_scheme=scheme, failing=True)
    asked(page, "Who starred in Philadelphia?")
    expect(page.locator("#thread .understood")).to_have_count(0)

    asked(page, "And Big?")
    understood = page.locator("#thread .understood")
    expect(understood).to_contain_text("Understood as: Who starred in Big?")
    expect(page.locator("#thread li")).to_have_text(["Who starred in Philadelphia? Tom Hanks"])
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")

    understood.get_by_role("button", name="Correct").press("Enter")
    complete = page.get_by_label("The complete question")
    expect(complete).to_be_focused()
    complete.fill("Who starred in Philadelphia?")
    complete.press("Enter")
    expect(understood).to_contain_text("Understood as: Who starred in Philadelphia?")
    expect(page.locator("#thread li")).to_have_count(1)

    page.get_by_role("button", name="New conversation").press("Enter")
    expect(page.locator("#thread")).to_be_hidden()
    asked(page, "Where was he born?")
    expect(page.locator(".problem")).to_contain_text("was not mentioned")


def test_an_expired_session_is_followed_by_another(open_page, serve):
    with serve(FixedPolicy(policy=Deliberate(film), budget=BUDGET), answers_ttl_s=1) as url:
        page = open_page(url, failing=True)
        asked(page, "Who starred in Philadelphia?")
        page.wait_for_timeout(1200)
        asked(page, "And Big?")
        expect(page.locator(".problem")).to_contain_text("no session")
        asked(page, "Who starred in Big?")
        expect(page.locator("li.answer")).to_have_count(1)


def test_the_walk_is_saved_as_drawing_table_and_query(open_page, url):
    page = open_page(url)
    asked(page, "Who starred in Big?")

    def saved(kind):
        page.get_by_text("Export", exact=True).press("Enter")
        with page.expect_download() as coming:
            page.get_by_role("button", name=kind).press("Enter")
        return coming.value.suggested_filename, Path(coming.value.path()).read_text(encoding="utf-8")

    name, drawing = saved("Drawing")
    assert name == "walk.svg"
    texts = [node.text for node in ElementTree.fromstring(drawing).iter("{http://www.w3.org/2000/svg}text")]
    assert {"Big", "starred", "Tom Hanks", "Elizabeth Perkins"} <= set(texts)

    _, table = saved("Triples")
    rows = list(csv.DictReader(io.StringIO(table)))
    assert {(row["subject"], row["relation"], row["object label"]) for row in rows} == {
        ("Big", "starred", "Tom Hanks"),
        ("Big", "starred", "Elizabeth Perkins"),
    }

    _, sparql = saved("Query")
    assert "<urn:kbqa:e:Big> <urn:kbqa:r:starred> <urn:kbqa:e:Tom%20Hanks> ." in sparql


def test_a_link_opens_the_answer_again_or_its_question(open_page, url):
    page = open_page(url)
    asked(page, "Who starred in Big?")
    page.evaluate("() => { navigator.clipboard.writeText = async (text) => { window.copied = text; }; }")
    page.get_by_role("button", name="Copy link").press("Enter")
    link = page.evaluate("window.copied")

    other = open_page(link)
    expect(other.locator("li.answer")).to_contain_text("Tom Hanks")
    expect(other.locator("li.answer .chain li")).to_have_count(1)

    gone = open_page(link.replace("answer=", "answer=0"), failing=True)
    expect(gone.get_by_role("textbox", name="Question")).to_have_value("Who starred in Big?")
    expect(gone.locator("li.answer")).to_have_count(0)


def test_a_wrong_answer_is_corrected_in_two_clicks(open_page, url, tmp_path):
    page = open_page(url)
    asked(page, "Who starred in Big?")
    page.get_by_role("button", name="Wrong").press("Enter")
    page.get_by_label("The right answer").fill("Elizabeth Perkins")
    page.get_by_label("The right answer").press("Enter")
    expect(page.locator(".thumbs")).to_have_text("Thank you.")
    (said,) = map(json.loads, (tmp_path / "gateway/feedback.jsonl").read_text().splitlines())
    assert (said["verdict"], said["gold"]) == ("wrong", ["Elizabeth Perkins"])
