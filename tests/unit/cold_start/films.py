"""A graph of films, questions about it, and episodes of them."""

from __future__ import annotations

from functools import cache

from kbqa.cold_start.demonstrations import Played, play, recite
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.protocols import AgentProtocol
from kbqa.trajectory import Hop, Question

TRIPLES = [
    ("Heat", "starred_actors", "Al P"),
    ("Heat", "starred_actors", "Val K"),
    ("Ronin", "starred_actors", "Val K"),
    ("Ronin", "starred_actors", "Jean R"),
    ("Al P", "born", "1940"),
    ("Val K", "born", "1959"),
    ("Jean R", "born", "1948"),
]

BORN = Question(
    "born",
    "when were the actors of Heat born ?",
    ("1940", "1959"),
    ("Heat",),
    "films",
    path=(Hop("starred_actors"), Hop("born")),
    form="(JOIN (R born) (JOIN (R starred_actors) Heat))",
)
BOTH = Question(
    "both",
    "who played in Heat and in Ronin ?",
    ("Val K",),
    ("Heat", "Ronin"),
    "films",
    form="(AND (JOIN (R starred_actors) Heat) (JOIN (R starred_actors) Ronin))",
    sparql="SELECT ?x WHERE { <urn:kbqa:e:Heat> <urn:kbqa:r:starred_actors> ?x . "
    "<urn:kbqa:e:Ronin> <urn:kbqa:r:starred_actors> ?x }",
    operation="intersection",
)


@cache
def make_tools() -> LocalGraphTools:
    """The same for all tests; nothing here may hang on how busy the machine is."""
    return LocalGraphTools(FixedGraphs({"films": OxigraphStore.from_triples(TRIPLES)}), deadline_s=300)


def played(question: Question, protocol: AgentProtocol, *turns: str, max_turns: int = 8) -> Played:
    """An episode in which these turns are said."""
    return play(question, protocol, make_tools(), recite(turns), max_turns)


def turn(thought: str, command: str) -> str:
    return f"<think>{thought}</think>{command}"


def action(*lines: str) -> str:
    return "<action>" + "\n".join(lines) + "</action>"


STARRING = action("Find_relation [ Heat | starred_actors ]")
THEN_BORN = action("Find_relation [ expression1 | born ]")
ANSWER = "<answer>expression2</answer>"
