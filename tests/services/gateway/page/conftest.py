"""The gateway's page in headless Chromium: a real gateway, a real kg_server, and policies that recite."""

from __future__ import annotations

import threading
import time
from contextlib import contextmanager

import pytest

from kbqa.datasets import load_dataset
from kbqa.environment import Budget
from kbqa.kg.catalog import GraphCatalog
from services.cli.supervisor import Stack
from services.gateway.app import create_app
from services.gateway.settings import GatewaySettings
from services.http import background
from tests.services.gateway.conftest import CODEC, TRIPLES, FixedPolicy, answer, query, recite
from tests.services.trainer.made_runs import HOSTILE
from tests.unit.policies_fixtures import ScriptedPolicy

BUDGET = Budget(max_turns=8, max_tokens=3900, max_turn_tokens=400, max_observation_tokens=900)
BORN, COUNTRY = "people.person.date_of_birth", "location.city.country"
TWINS = """
<http://x/s1> <http://www.w3.org/2000/01/rdf-schema#label> "Springfield" .
<http://x/s2> <http://www.w3.org/2000/01/rdf-schema#label> "Springfield" .
<http://x/s1> <http://x/mayor> <http://x/quimby> .
<http://x/s2> <http://x/mayor> <http://x/langfelder> .
<http://x/quimby> <http://www.w3.org/2000/01/rdf-schema#label> "Joe Quimby" .
<http://x/langfelder> <http://www.w3.org/2000/01/rdf-schema#label> "Jim Langfelder" .
"""


class Deliberate:
    """Recites, and thinks for a while before each turn; all the while if it is `held`."""

    max_length = 4096

    def __init__(self, script, pause_s=0.0):
        self._policy, self._pause_s = ScriptedPolicy(CODEC, script), pause_s
        self.going = threading.Event()
        self.going.set()

    def generate(self, prompts, params, *, deadline=None, cancelled=None):
        time.sleep(self._pause_s)
        assert self.going.wait(60)
        return self._policy.generate(prompts, params)


@pytest.fixture(scope="module")
def world():
    """The triples of the generated world."""
    return [tuple(line.split("\t")) for line in load_dataset("world", seed=1).graph.lines()]


@pytest.fixture(scope="module")
def kg_url(world, tmp_path_factory):
    """A kg_server with the world, `films`, two towns of one name, and names that are markup."""
    home = tmp_path_factory.mktemp("page")
    hostile = [(HOSTILE, "knows", f"<b>{HOSTILE}</b>")]
    files = {"world.txt": world, "films.txt": TRIPLES, "hostile.txt": hostile}
    catalog = GraphCatalog(home)
    for name, triples in files.items():
        (home / name).write_text("".join("\t".join(triple) + "\n" for triple in triples))
        catalog.load(name.removesuffix(".txt"), home / name)
    (home / "twins.nt").write_text(TWINS)
    catalog.load("twins", home / "twins.nt")
    catalog.close()
    with Stack(home, services=["kg_server"], free_ports=True) as stack:
        stack.wait_ready(120)
        yield stack.urls["kg_server"]


@pytest.fixture
def serve(kg_url, tmp_path):
    """`with serve(source) as url`: a gateway that listens."""

    @contextmanager
    def serve_(source=None, home=tmp_path, **settings):
        loaded = GatewaySettings.load(home=home, kg_server_url=kg_url, drain_s=0, **settings)
        with background(create_app(loaded, source or FixedPolicy(budget=BUDGET)), drain_s=0) as url:
            yield url

    return serve_


@pytest.fixture
def book(world):
    """A book, its author, and the year in which that author was born."""
    for work, relation, author in world:
        if relation == "book.book.author":
            for person, of, year in world:
                if (person, of) == (author, BORN):
                    return work, author, year
    raise AssertionError("no author has a birth year")


def story(book):
    """Two hops, a relation list before the first."""
    work, author, year = book
    return recite(
        query("get_tail_relations", work),
        query("get_tail_entities", work, "book.book.author"),
        query("get_tail_entities", author, BORN),
        answer(year),
    )


def ask(page, question, kg="world"):
    page.get_by_label("Graph", exact=True).select_option(kg)
    page.get_by_role("textbox", name="Question").fill(question)
    page.keyboard.press("Enter")


def drawn(page, selector="node.entity"):
    """Labels of what Cytoscape draws."""
    return page.evaluate(
        "s => document.querySelector('.canvas')._cyreg.cy.$(s).map(e => e.data('label'))", selector
    )
