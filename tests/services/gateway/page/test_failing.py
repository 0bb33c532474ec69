"""What the page says where a question cannot be answered, and what can be done there."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import expect

from kbqa.serving.policies import PoliciesInTurn
from services.access.keys import KeyFile
from tests.services.gateway.conftest import FixedPolicy, NoPolicy, answer, query, recite
from tests.services.gateway.page.conftest import BUDGET, Deliberate, ask, story

pytestmark = pytest.mark.integration


def test_no_policy_is_said_with_what_to_do(open_page, serve):
    with serve(NoPolicy()) as url:
        page = open_page(url, failing=True)
        ask(page, "Who starred in Big?", "films")
        alert = page.get_by_role("alert")
        expect(alert).to_contain_text("no policy is promoted yet")
        expect(alert.get_by_role("button", name="Try again")).to_be_enabled()


@pytest.mark.parametrize(
    ("run", "named"), [("reader", "The reader that comes with kbqa"), ("films-1", "films-1")]
)
def test_who_answers_instead_of_the_first_choice_is_said_with_the_reason(open_page, serve, run, named, book):
    stands_by = FixedPolicy(policy=Deliberate(story(book)), budget=BUDGET, run=run)
    with serve(PoliciesInTurn([NoPolicy(), stands_by])) as url:
        page = open_page(url)
        ask(page, f"name the birth year of the author of {book[0]} .")
        expect(page.locator(".alarm")).to_have_text(
            f"{named} answers this question, because no policy is promoted yet"
        )
        expect(page.locator("li.answer")).to_have_count(1)


def test_a_graph_that_is_gone_is_said(open_page, serve):
    with serve() as url:
        page = open_page(url, failing=True)
        page.get_by_label("Graph", exact=True).select_option("films")
        page.evaluate("document.querySelector('[name=kg]').selectedOptions[0].value = 'gone'")
        page.get_by_role("textbox", name="Question").fill("Who starred in Big?")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("gone")


def test_too_many_questions_count_down_to_another_try(open_page, serve, book):
    policy = Deliberate(story(book))
    policy.going.clear()
    question = f"name the birth year of the author of {book[0]} ."
    with serve(FixedPolicy(policy=policy, budget=BUDGET), concurrency=1, queue=0) as url:
        page, other = open_page(url), open_page(url, failing=True)
        ask(page, question)
        page.locator(".topics li").wait_for()
        ask(other, question)
        again = other.get_by_role("alert").get_by_role("button", name=re.compile("Try again in"))
        expect(again).to_be_disabled()
        policy.going.set()
        expect(page.locator("li.answer")).to_have_count(1)
        other.get_by_role("button", name="Try again", exact=True).click()
        expect(other.locator("li.answer")).to_have_count(1)


def test_a_connection_that_breaks_off_leaves_what_had_come(open_page, serve, book):
    policy = Deliberate(story(book), 0.5)
    with serve(FixedPolicy(policy=policy, budget=BUDGET)) as url:
        page = open_page(url, failing=True)
        ask(page, f"name the birth year of the author of {book[0]} .")
        page.locator(".turn").first.wait_for()
    expect(page.get_by_role("alert")).to_contain_text("cannot be reached")
    assert page.locator(".turn").count() >= 1
    page.get_by_role("button", name="Try again").click()
    expect(page.get_by_role("alert")).to_contain_text("does not answer")


def test_a_question_about_nothing_says_how_to_ask(open_page, serve):
    with serve() as url:
        page = open_page(url)
        ask(page, "qqq zzz ?", "films")
        expect(page.locator("#progress")).to_have_text("no topic entity")
        expect(page.locator(".alarm")).to_contain_text("add a topic entity")


def test_a_key_is_asked_for_and_kept_by_the_tab_alone(open_page, serve, tmp_path):
    _, key = KeyFile(tmp_path / "gateway" / "keys.json").create("page", graphs=("films",))
    script = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks"))
    with serve(FixedPolicy(policy=Deliberate(script), budget=BUDGET), open_page=True) as url:
        page = open_page(url, failing=True)
        expect(page.get_by_role("alert")).to_contain_text("requires an API key")
        page.get_by_role("button", name="Enter an API key").click()
        page.locator("#api-key").fill("not a key")
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_contain_text("requires an API key")
        page.get_by_role("button", name="API key", exact=True).click()
        page.locator("#api-key").fill(key)
        page.keyboard.press("Enter")
        expect(page.get_by_role("alert")).to_have_count(0)
        ask(page, "Who starred in Big?", "films")
        page.get_by_role("button", name="Right").click()
        expect(page.get_by_text("Thank you.", exact=True)).to_be_visible()
        page.reload()
        expect(page.locator("#kg option")).to_have_count(1)
        assert key not in page.evaluate("JSON.stringify(localStorage)")
        # What was asked before is read again under the same key.
        page.get_by_role("button", name="Who starred in Big?").click()
        expect(page.locator("li.answer strong")).to_have_text("Tom Hanks")
        page.goto(f"{url}/reports")
        expect(page.get_by_role("alert")).to_be_visible()  # they are of every graph, this key is not


def test_a_browser_that_was_let_in_by_password_needs_no_key(open_page, serve, tmp_path):
    _, key = KeyFile(tmp_path / "gateway" / "keys.json").create("page")
    script = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks"))
    with serve(FixedPolicy(policy=Deliberate(script), budget=BUDGET)) as url:
        page = open_page(url, failing=True, http_credentials={"username": "me", "password": key})
        ask(page, "Who starred in Big?", "films")
        expect(page.locator("li.answer strong")).to_have_text("Tom Hanks")
