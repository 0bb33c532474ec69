"""Types by what they are called."""

from __future__ import annotations

from kbqa.kg.actions import Action, Failure, ScoredItem
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools

TYPES = ["education.university", "education.school", "location.city", "film.film", "people.person"]


def search(triples, **arguments):
    tools = LocalGraphTools(FixedGraphs({"toy": OxigraphStore.from_triples(triples)}))
    [result] = tools.execute("toy", [Action("search_types", arguments)])
    return result


def typed(types):
    return [(f"thing {n}", "type.object.type", type_) for n, type_ in enumerate(types)]


def test_types_are_ranked_by_the_query():
    result = search(typed(TYPES), query="College/University")
    assert isinstance(result.items[0], ScoredItem)
    assert result.items[0].id == "education.university"
    assert [item.score for item in result.items] == sorted((i.score for i in result.items), reverse=True)
    assert (result.total, result.truncated) == (5, False)


def test_a_type_that_is_named_scores_one():
    best, *_ = search(typed(TYPES), query="film.film").items
    assert (best.id, best.score) == ("film.film", 1.0)


def test_ten_types_unless_more_are_asked_for():
    types = typed(f"domain.type {n:02}" for n in range(30))
    first = search(types, query="type")
    assert (len(first.items), first.total, first.truncated) == (10, 30, True)
    rest = search(types, query="type", offset=10, limit=50)
    assert (len(rest.items), rest.total, rest.truncated) == (20, 30, False)
    assert not {item.id for item in first.items} & {item.id for item in rest.items}


def test_a_graph_without_types_has_no_results():
    result = search([("a", "r", "b")], query="person")
    assert isinstance(result, Failure)
    assert (result.code, result.message) == ("KG_NO_RESULTS", "No types found in knowledge graph")
