"""Questions asked in a browser, watched, cancelled and looked at again."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import time
from collections import Counter

import httpx
import pytest
from playwright.sync_api import expect

from kbqa.confidence import Calibration
from tests.services.gateway.conftest import FixedPolicy, answer, query, recite
from tests.services.gateway.page.conftest import BUDGET, COUNTRY, Deliberate, ask, drawn, story
from tests.services.trainer.made_runs import HOSTILE

pytestmark = pytest.mark.integration


def test_a_question_is_watched_from_its_topic_to_its_evidence(open_page, serve, book):
    work, author, year = book
    policy = Deliberate(story(book))
    with serve(FixedPolicy(policy=policy, budget=BUDGET)) as url:
        page = open_page(url)
        expect(page.get_by_text("The part of the graph that the agent walks")).to_be_visible()
        policy.going.clear()
        ask(page, f"name the birth year of the author of {work} .")
        # Linked, and drawn as the only thing that is known.
        expect(page.locator(".topics li")).to_have_text([re.compile(re.escape(work))])
        page.wait_for_function("document.querySelector('.canvas')._cyreg.cy.nodes().length === 1")
        assert drawn(page, "node.topic") == [work]
        expect(page.get_by_role("button", name="Cancel")).to_be_visible()
        policy.going.set()
        result = page.locator("li.answer")
        expect(result).to_have_count(1)
        expect(result.locator("strong")).to_have_text(year)
        assert [text.strip() for text in page.locator(".turn .number").all_inner_texts()] == list("1234")
        actions = page.locator(".turn .action").all_inner_texts()
        assert actions[1] == f"get tail entities {work} author"
        assert set(drawn(page)) == {work, author, year}
        assert Counter(drawn(page, "node.way")) == {"author": 1, "date of birth": 1}
        assert drawn(page, "node.answer") == [year]
        expect(page.locator("#progress")).to_have_text("answered")
        expect(page.locator("#status")).to_have_text(f"The answer is {year}")
        # The evidence lights up under the pointer and under the keyboard's focus.
        assert drawn(page, ".lit") == []
        result.hover()
        assert {*drawn(page, "node.lit")} == {work, "author", author, "date of birth", year}
        assert drawn(page, ".dim") == []
        page.mouse.move(2, 2)
        assert drawn(page, ".lit") == []
        page.keyboard.press("Escape")  # out of the question's field
        page.keyboard.press("1")
        expect(result).to_be_focused()
        assert {*drawn(page, "node.lit")} == {work, "author", author, "date of birth", year}
        assert page.locator(".triples li.lit").count() == 2


def test_what_is_no_evidence_steps_back(open_page, serve, world):
    country, cities = Counter(o for _, r, o in world if r == COUNTRY).most_common(1)[0]
    found = sorted(s for s, r, o in world if (r, o) == (COUNTRY, country))
    script = recite(query("get_head_entities", country, COUNTRY), answer(found[0]))
    with serve(FixedPolicy(policy=Deliberate(script), budget=BUDGET)) as url:
        page = open_page(url)
        ask(page, f"name the cities of {country} .")
        expect(page.locator("li.answer")).to_have_count(1)
        page.locator("li.answer").hover()
        lit = drawn(page, "node.lit")
        assert {*lit} == {country, "country", found[0]}
        assert len(drawn(page, "node.entity.dim")) >= min(cities, 12) - 2
        if cities > 13:  # more than are drawn at first
            assert any(label.startswith("+ ") for label in drawn(page, "node.more"))


def test_nothing_jumps_while_events_arrive(open_page, serve, book):
    with serve(FixedPolicy(policy=Deliberate(story(book), 0.7), budget=BUDGET)) as url:
        page = open_page(url)
        page.evaluate("""() => {
          window.shift = 0;
          const add = (list) => list.getEntries().forEach((entry) => { window.shift += entry.value; });
          new PerformanceObserver(add).observe({ type: "layout-shift", buffered: false });
        }""")
        height = "document.documentElement.scrollHeight"
        ask(page, f"name the birth year of the author of {book[0]} .")
        page.locator(".turn").first.wait_for()
        before = page.evaluate(height)
        expect(page.locator("li.answer")).to_have_count(1)
        assert page.evaluate(height) == before
        assert page.evaluate("window.shift") < 0.02


def test_runs_are_told_apart(open_page, serve, book):
    with serve(FixedPolicy(policy=Deliberate(story(book)), budget=BUDGET)) as url:
        page = open_page(url)
        page.get_by_text("Options").click()
        page.get_by_role("spinbutton", name="Runs").fill("3")
        page.keyboard.press("Escape")
        ask(page, f"name the birth year of the author of {book[0]} .")
        expect(page.locator("li.answer .chip", has_text="3 of 3 runs")).to_be_visible()
        tabs = page.get_by_role("group", name="Runs").get_by_role("button")
        expect(tabs).to_have_count(3)
        tabs.nth(2).click()
        expect(tabs.nth(2)).to_have_attribute("aria-pressed", "true")
        expect(page.locator(".turn")).to_have_count(4)


def test_escape_cancels_and_the_work_stops(open_page, serve, book):
    source = FixedPolicy(policy=Deliberate(story(book), 0.4), budget=BUDGET)
    with serve(source) as url:
        page = open_page(url)
        ask(page, f"name the birth year of the author of {book[0]} .")
        page.locator(".turn").first.wait_for()
        page.keyboard.press("Escape")
        expect(page.locator("#progress")).to_have_text("cancelled")
        expect(page.get_by_role("button", name="Ask", exact=True)).to_be_visible()
        assert source.is_free()
        turns = page.locator(".turn").count()
        time.sleep(1)
        assert page.locator(".turn").count() == turns < 4
        # What was asked can be asked again, with the button this time.
        page.get_by_role("button", name="Ask", exact=True).click()
        page.get_by_role("button", name="Cancel").click()
        expect(page.locator("#progress")).to_have_text("cancelled")


def test_another_meaning_of_a_name_is_chosen_and_asked_about(open_page, serve):
    def script(prompt):
        if "<information>" in prompt:
            return answer("Jim Langfelder" if "Langfelder" in prompt else "Joe Quimby")
        town = max(("http://x/s1", "http://x/s2"), key=prompt.rfind)
        return query("get_tail_entities", town, "http://x/mayor")

    with serve(FixedPolicy(policy=Deliberate(script), budget=BUDGET)) as url:
        page = open_page(url)
        ask(page, "Who is the mayor of Springfield?", "twins")
        expect(page.locator("li.answer")).not_to_have_count(0)
        meaning = page.get_by_label("What “Springfield” stands for").first
        assert len(meaning.locator("option").all()) == 2
        other = "http://x/s2" if meaning.input_value() == "http://x/s1" else "http://x/s1"
        meaning.select_option(other)
        with page.expect_request("**/v1/answer") as request:
            page.get_by_role("button", name="Ask", exact=True).click()
        assert other in request.value.post_data_json["topic_entities"]
        expect(page.locator("#progress")).to_have_text("answered")


def test_a_topic_is_picked_by_hand_and_from_the_drawing(open_page, serve):
    script = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks"))
    with serve(FixedPolicy(policy=Deliberate(script), budget=BUDGET)) as url:
        page = open_page(url)
        page.get_by_label("Graph", exact=True).select_option("films")
        page.get_by_role("combobox", name="About").fill("Big")
        page.keyboard.press("Enter")
        expect(page.locator(".topics .chosen")).to_have_count(1)
        with page.expect_request("**/v1/answer") as request:
            ask(page, "Who starred?", "films")
        assert request.value.post_data_json["topic_entities"] == ["Big"]
        expect(page.locator("li.answer")).to_have_count(1)
        page.wait_for_timeout(400)  # until the drawing is at rest
        where = page.evaluate("""() => {
          const cy = document.querySelector('.canvas')._cyreg.cy;
          return cy.nodes('.entity').filter(n => n.data('label') === 'Tom Hanks')[0].renderedPosition();
        }""")
        box = page.locator(".canvas").bounding_box()
        page.mouse.click(box["x"] + where["x"], box["y"] + where["y"])
        page.get_by_role("button", name="Ask about it").click()
        expect(page.locator(".topics .chosen")).to_have_count(2)


def test_a_topic_s_name_is_completed_from_the_keyboard(open_page, serve):
    with serve(FixedPolicy(policy=Deliberate(recite(answer("x"))), budget=BUDGET)) as url:
        page = open_page(url)
        page.get_by_label("Graph", exact=True).select_option("films")
        about = page.get_by_role("combobox", name="About")
        about.press_sequentially("hank")
        options = page.get_by_role("listbox").get_by_role("option")
        expect(options).to_have_text(["Tom Hanks"])
        expect(about).to_have_attribute("aria-expanded", "true")
        about.press("ArrowDown")
        expect(options).to_have_attribute("aria-selected", "true")
        about.press("Enter")
        expect(page.locator(".topics .chosen")).to_have_text("Tom Hanks✕")
        expect(about).to_have_value("")
        expect(about).to_have_attribute("aria-expanded", "false")


def test_namesakes_are_told_apart_by_their_ids_and_chosen_with_the_pointer(open_page, serve):
    with serve(FixedPolicy(policy=Deliberate(recite(answer("x"))), budget=BUDGET)) as url:
        page = open_page(url)
        page.get_by_label("Graph", exact=True).select_option("twins")
        about = page.get_by_role("combobox", name="About")
        about.press_sequentially("spri")
        options = page.get_by_role("listbox").get_by_role("option")
        expect(options).to_have_text(["Springfieldhttp://x/s1", "Springfieldhttp://x/s2"])
        page.keyboard.press("Escape")
        expect(options).to_have_count(0)
        about.press_sequentially("ng")
        options.nth(1).click()
        with page.expect_request("**/v1/answer") as request:
            ask(page, "Who is the mayor?", "twins")
        assert request.value.post_data_json["topic_entities"] == ["http://x/s2"]


def test_a_name_can_be_written_where_names_cannot_be_completed(open_page, serve):
    with serve(FixedPolicy(policy=Deliberate(recite(answer("x"))), budget=BUDGET)) as url:
        page = open_page(url, failing=True)
        page.route("**/names*", lambda route: route.fulfill(status=503, body="{}"))
        page.get_by_label("Graph", exact=True).select_option("films")
        about = page.get_by_role("combobox", name="About")
        with page.expect_response("**/names*"):
            about.press_sequentially("Big")
        about.press("Enter")
        expect(page.locator(".topics .chosen")).to_have_text("Big✕")


def test_text_from_model_and_graph_stays_text(open_page, serve):
    script = recite(query("get_tail_entities", "x", "knows"), answer(f"<b>{HOSTILE}</b>"))
    with serve(FixedPolicy(policy=Deliberate(script), budget=BUDGET)) as url:
        page = open_page(url)
        page.get_by_label("Graph", exact=True).select_option("hostile")
        page.get_by_role("combobox", name="About").fill(HOSTILE)
        page.keyboard.press("Enter")
        ask(page, HOSTILE, "hostile")
        page.locator(".turn").first.wait_for()
        page.locator(".usage, .problem").first.wait_for()
        page.keyboard.press("Tab")
        page.get_by_role("button", name="List").click()
        assert page.locator("main img, main script, main b:has(img)").count() == 0
        assert "taken" not in page.title()


def test_a_candidate_is_shown_as_such_with_the_reason(open_page, serve):
    script = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks"))
    unsure = FixedPolicy(script, budget=BUDGET, calibration=Calibration(-1.0, 0.0, 20), run="reader")
    with serve(unsure) as url:
        page = open_page(url)
        ask(page, "Who starred in Big?", "films")
        card = page.locator("li.answer")
        expect(card.locator(".chip")).to_have_text("candidate")
        expect(card.locator("strong")).to_have_text("Tom Hanks")
        expect(page.locator(".alarm")).to_contain_text("not sure enough (0.269; at least 0.5 is wanted)")
        expect(page.locator(".usage")).to_contain_text("how sure: 0.269 · ")
        expect(page.locator(".usage")).to_contain_text("policy reader/v000001-scripted")
        expect(page.get_by_text("The reader was asked, which was not trained on this graph.")).to_be_visible()


def test_the_past_is_kept_bounded_and_cleared(open_page, serve):
    with serve() as url:
        page = open_page(url)
        entry = {"at": "2026-01-01T00:00:00Z", "kg": "films", "status": "answered", "answers": []}
        entries = json.dumps([{**entry, "question": f"question {i}"} for i in range(50)])
        page.evaluate("entries => localStorage.setItem('kbqa.history', entries)", entries)
        page.reload()
        expect(page.get_by_text("question 0", exact=True)).to_be_visible()
        ask(page, "Who starred in Big?", "films")
        page.locator(".usage").wait_for()
        kept = page.evaluate("JSON.parse(localStorage.getItem('kbqa.history'))")
        assert len(kept) == 50
        assert (kept[0]["question"], kept[0]["kg"]) == ("Who starred in Big?", "films")
        page.get_by_role("button", name="History").click()
        page.get_by_role("button", name="Clear the history").click()
        assert page.evaluate("localStorage.getItem('kbqa.history')") is None


def test_what_is_copied_works_elsewhere(open_page, serve, book, kg_url):
    work, _, year = book
    with serve(FixedPolicy(policy=Deliberate(story(book)), budget=BUDGET)) as url:
        page = open_page(url)
        page.context.grant_permissions(["clipboard-read", "clipboard-write"], origin=url)
        ask(page, f"name the birth year of the author of {work} .")
        expect(page.locator("li.answer")).to_have_count(1)
        clipboard = "navigator.clipboard.readText()"
        page.get_by_role("button", name="Copy as curl").click()
        page.get_by_text("curl command copied").last.wait_for()
        command = page.evaluate(clipboard)
        assert shutil.which("curl") is None or _run(command)["answers"][0]["value"] == year
        page.get_by_role("button", name="Copy SPARQL").click()
        page.get_by_text("SPARQL copied").last.wait_for()
        sparql = page.evaluate(clipboard)
        assert f"<urn:kbqa:e:{work.replace(' ', '%20')}>" in sparql
        rows = httpx.post(f"{kg_url}/v1/kg/world/sparql", data={"query": sparql}).json()["results"][
            "bindings"
        ]
        assert [row["answer"]["value"].rpartition(":")[2] for row in rows] == [year]


def _run(command):
    done = subprocess.run(["sh", "-c", command], capture_output=True, check=True, timeout=30)
    return json.loads(done.stdout)
