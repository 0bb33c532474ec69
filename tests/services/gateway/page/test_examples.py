"""Example questions on the empty page."""

from __future__ import annotations

import pytest
from playwright.sync_api import expect

from kbqa.datasets.examples import write_examples
from kbqa.trajectory import Question
from tests.services.gateway.conftest import FixedPolicy
from tests.services.gateway.page.conftest import BUDGET, Deliberate, story

pytestmark = pytest.mark.integration

FORMS = {
    "who starred in Big ?": ("path", "(JOIN (R starred) Big)"),
    "how many films starred Tom Hanks ?": ("count", "(COUNT (JOIN starred `Tom Hanks`))"),
}


def keep(home):
    questions = [
        Question(f"q{n}", text, ("x",), (), "films", form=form, operation=operation)
        for n, (text, (operation, form)) in enumerate(FORMS.items())
    ]
    write_examples(home, "films", questions)


@pytest.mark.parametrize(("width", "scheme"), [(390, "dark"), (1280, "light")])
def test_examples_of_the_chosen_graph_are_asked_by_a_click(open_page, serve, book, tmp_path, width, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright").Axe()
    keep(tmp_path)
    with serve(FixedPolicy(policy=Deliberate(story(book)), budget=BUDGET)) as url:
        page = open_page(url, width=width, height=844, color_scheme=scheme)
        graph, examples = page.get_by_label("Graph", exact=True), page.locator("#examples")
        graph.select_option("world")
        expect(examples).to_be_hidden()
        graph.select_option("films")
        expect(examples.get_by_role("button")).to_have_count(2)
        assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
        assert axe.run(page).response["violations"] == []
        examples.get_by_role("button", name="Who starred in Big?").press("Enter")
        expect(page.get_by_role("textbox", name="Question")).to_have_value("Who starred in Big?")
        expect(examples).to_be_hidden()
        expect(page.locator("#progress")).not_to_have_text(
            "The agent's thoughts, actions and findings appear here."
        )
        # The gateway of this test stops without waiting for questions.
        expect(page.get_by_role("button", name="Cancel")).to_be_hidden()
