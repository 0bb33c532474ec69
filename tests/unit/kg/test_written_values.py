"""Numbers and dates that a graph holds as texts or as names: forms, their queries and what is offered."""

from __future__ import annotations

from contextlib import closing

import pytest

from kbqa.kg.actions import EXECUTE_LOGICAL_FORM, EXPAND, Action
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.logical_forms.s_expression import parse_s_expression

FACTS = [
    *(("Heat", "runtime", "170"), ("Ali", "runtime", "1570"), ("The Insider", "runtime", "99.5")),
    *(
        ("Heat", "released", "1995-12-15"),
        ("Ali", "released", "2001-12-25"),
        ("The Insider", "released", "1999-11-05"),
    ),
    *(("Heat", "sequel to", "48"), ("48", "runtime", "96"), ("Ali", "sequel to", "Heat")),
    *((film, "director", "Michael Mann") for film in ("Heat", "Ali", "The Insider")),
]
MANNS = "(JOIN director `Michael Mann`)"


def as_names(facts):
    return "films.tsv", "".join("\t".join(fact) + "\n" for fact in facts)


def as_texts(facts):
    """Values are literals without a datatype."""

    def iri(name):
        return f"<http://ex.org/{name.replace(' ', '_')}>"

    triples = "".join(
        f"{iri(head)} {iri(link)} "
        + (f'"{tail}" .\n' if link in ("runtime", "released") else f"{iri(tail)} .\n")
        for head, link, tail in facts
    )
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    named = {
        name
        for fact in facts
        for name in (fact[0], fact[1], *(() if fact[1] in ("runtime", "released") else fact[2:]))
    }
    return "films.nt", triples + "".join(f'{iri(name)} {label} "{name}" .\n' for name in sorted(named))


@pytest.fixture(scope="module", params=[as_names, as_texts])
def graph(request, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    name, text = request.param(FACTS)
    (home / name).write_text(text)
    with closing(GraphCatalog(home)) as catalog:
        catalog.load("films", home / name)
        yield LocalGraphTools(catalog, deadline_s=60), catalog.get("films")


def execute(graph, name, **arguments):
    tools, _ = graph
    [result] = tools.execute("films", [Action(name, arguments)])
    return result


@pytest.mark.parametrize(
    ("form", "found"),
    [
        (f"(ARGMAX {MANNS} runtime)", ["Ali"]),
        (f"(ARGMIN {MANNS} runtime)", ["The Insider"]),
        (f"(ARGMAX {MANNS} released)", ["Ali"]),
        (f"(ARGMIN {MANNS} released)", ["Heat"]),
        (f"(AND {MANNS} (gt runtime 150))", ["Ali", "Heat"]),
        (f"(AND {MANNS} (le runtime 99.5^^http://www.w3.org/2001/XMLSchema#decimal))", ["The Insider"]),
        (f"(AND {MANNS} (gt released 1999-11-05^^http://www.w3.org/2001/XMLSchema#date))", ["Ali"]),
    ],
)
def test_members_and_the_query_agree(graph, form, found):
    _, store = graph
    members = store.members(parse_s_expression(form), limit=9)
    assert [item.label for item in members.items] == found
    assert sorted(item.label for item in execute(graph, EXECUTE_LOGICAL_FORM, expression=form).items) == found


def test_they_are_offered_as_values_and_a_film_called_48_is_none(graph):
    begun = execute(graph, EXPAND, question="films longer than 100", topics=["Michael Mann"], form=MANNS)
    offered = {
        (one["operation"], one["path"][-1]["label"])
        for one in begun.details["expansions"]
        if one["operation"] in ("max", "min", "gt")
    }
    assert offered >= {("max", "runtime"), ("min", "runtime"), ("gt", "runtime"), ("max", "released")}
    assert "sequel to" not in {relation for _, relation in offered}


def test_a_relation_to_them_is_a_candidate_for_a_superlative(graph):
    found = execute(
        graph,
        EXECUTE_LOGICAL_FORM,
        expression=f"(ARGMAX {MANNS} `runtimes`)",
        gate=True,
    )
    assert [item.label for item in found.items] == ["Ali"]
