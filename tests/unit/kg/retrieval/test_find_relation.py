"""KBQA-R1's two actions on a small graph with answers worked out by hand, and on random ones."""

from __future__ import annotations

import random

import pytest

from kbqa.kg.actions import Action, ErrorKind, Failure, Success
from kbqa.kg.catalog import FixedGraphs, GraphCatalog
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.retrieval.grounding import SAMPLE
from kbqa.kg.tools import LocalGraphTools
from kbqa.logical_forms.algebra import And, Count, Entity, Join, Relation
from kbqa.logical_forms.s_expression import parse_s_expression, print_s_expression

NS, XSD = "http://rdf.freebase.com/ns/", "http://www.w3.org/2001/XMLSchema#"
RDFS_LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
# Two terms of office, which have no name; a film's runtime and year; a name that two people share.
TURTLE = """
@prefix ns: <http://rdf.freebase.com/ns/> . @prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
ns:m.obama ns:type.object.name "Barack Obama"@en ; ns:government.politician.positions ns:m.term1, ns:m.term2 ;
  ns:people.person.spouse ns:m.michelle .
ns:m.michelle ns:type.object.name "Michelle Obama"@en ; ns:people.person.spouse ns:m.obama .
ns:m.term1 a ns:government.position ; ns:government.position.title ns:m.senator ;
  ns:government.position.from "2005"^^xsd:gYear ; ns:government.position.to "2008"^^xsd:gYear .
ns:m.term2 a ns:government.position ; ns:government.position.title ns:m.president ;
  ns:government.position.from "2009"^^xsd:gYear .
ns:m.senator ns:type.object.name "Senator"@en . ns:m.president ns:type.object.name "President"@en .
ns:m.heat ns:type.object.name "Heat"@en ; a ns:film.film ; ns:film.film.starring ns:m.pacino ;
  ns:film.film.runtime 170 ; ns:film.film.release_year "1995"^^xsd:gYear .
ns:m.ronin ns:type.object.name "Ronin"@en ; a ns:film.film ; ns:film.film.starring ns:m.smith1 ;
  ns:film.film.runtime 122 ; ns:film.film.release_year "1998"^^xsd:gYear .
ns:m.drop ns:type.object.name "Drop"@en ; a ns:film.film ; ns:film.film.starring ns:m.smith2 ;
  ns:film.film.runtime 106 ; ns:film.film.sequel ns:m.drop .
ns:m.pacino ns:type.object.name "Al Pacino"@en .
ns:m.smith1 ns:type.object.name "John Smith"@en . ns:m.smith2 ns:type.object.name "John Smith"@en .
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    directory = tmp_path_factory.mktemp("graph")
    (directory / "graph.ttl").write_text(TURTLE)
    catalog = GraphCatalog(directory / "home")
    catalog.load("g", directory / "graph.ttl")
    yield LocalGraphTools(catalog, deadline_s=30)
    catalog.close()


@pytest.fixture
def ask(tools):
    def ask(name, **arguments):
        [result] = tools.execute("g", [Action(name, arguments)])
        return result

    return ask


def printed(form):
    """With the types of values."""
    return print_s_expression(parse_s_expression(form))


def ids(result):
    assert isinstance(result, Success), result
    return {item.id for item in result.items}


@pytest.mark.parametrize("entity", ["m.heat", NS + "m.heat", "ns:m.heat", "Heat"])
def test_an_entity_is_named_by_id_or_label(ask, entity):
    result = ask("find_relation", entity=entity, relation="film.film.starring")
    assert ids(result) == {"m.pacino"}
    assert (result.total, result.truncated, result.details["tier"]) == (1, False, "high")
    assert (
        result.details["expression"]
        == f"(JOIN (R film.film.starring) {'Heat' if entity == 'Heat' else 'm.heat'})"
    )
    assert result.details["relation"]["direction"] == "out"
    assert "candidates" not in result.details


def test_the_direction_is_found_and_written_into_the_expression(ask):
    result = ask("find_relation", entity="m.pacino", relation="film.film.starring")
    assert ids(result) == {"m.heat"}
    assert result.details["expression"] == "(JOIN film.film.starring m.pacino)"


def test_a_relation_of_both_directions_is_outgoing_and_the_other_is_named(ask):
    details = ask("find_relation", entity="m.obama", relation="people.person.spouse").details
    assert details["expression"] == "(JOIN (R people.person.spouse) m.obama)"
    assert details["also"]["direction"] == "in"


def test_an_explicit_direction_is_taken(ask):
    result = ask("find_relation", entity="m.pacino", relation="(R film.film.starring)")
    assert isinstance(result, Failure)
    assert result.kind is ErrorKind.RELATION_REJECTED
    assert {c["direction"] for c in result.details["candidates"]} == {"out"}
    explicit = ask("find_relation", entity="m.heat", relation="(R film.film.starring)")
    assert ids(explicit) == {"m.pacino"}


def test_words_for_a_relation_are_executed_with_the_candidates_told(ask):
    result = ask("find_relation", entity="Heat", relation="starring actor", top_k=2)
    assert ids(result) == {"m.pacino"}
    assert result.details["tier"] == "medium"
    assert [c["id"] for c in result.details["candidates"]][0] == "film.film.starring"
    assert len(result.details["candidates"]) == 2


def test_what_resembles_nothing_is_rejected_with_all_neighbours(ask):
    result = ask("find_relation", entity="Heat", relation="favourite colour")
    assert isinstance(result, Failure)
    assert result.kind is ErrorKind.RELATION_REJECTED
    assert {c["id"] for c in result.details["candidates"]} >= {
        "film.film.starring",
        "film.film.runtime",
        "film.film.release_year",
    }


def test_thresholds_belong_to_the_request(ask):
    relation = {"entity": "Heat", "relation": "starring actor"}
    assert ask("find_relation", **relation, tau_high=0.4).details["tier"] == "high"
    assert ask("find_relation", **relation, tau_high=0.94, tau_low=0.9).kind == "relation_rejected"
    assert ask("find_relation", **relation, tau_high=0.1).code == "KG_FORMAT_ERROR"
    assert ask("find_relation", **relation, tau_low="x").code == "KG_FORMAT_ERROR"


@pytest.mark.parametrize(
    "entity", [f'"1995"^^<{XSD}gYear>', f"1995^^{XSD}gYear", '"1995"^^xsd:gYear', f'"1995"^^{XSD}gYear']
)
def test_a_typed_literal_is_asked_for_its_subjects(ask, entity):
    result = ask("find_relation", entity=entity, relation="release year")
    assert ids(result) == {"m.heat"}
    again = ask("execute_logical_form", expression=result.details["expression"])
    assert again.items == result.items


def test_a_shared_label_means_all_whom_it_names(ask):
    result = ask("find_relation", entity="John Smith", relation="film.film.starring")
    assert ids(result) == {"m.ronin", "m.drop"}
    assert result.details["expression"] == "(JOIN film.film.starring `John Smith`)"
    assert ids(ask("execute_logical_form", expression=result.details["expression"])) == {"m.ronin", "m.drop"}
    [count] = ask("execute_logical_form", expression=f"(COUNT {result.details['expression']})").items
    assert count.label == "2"


def test_nobody_is_an_answer_about_himself(ask):
    result = ask("find_relation", entity="m.drop", relation="film.film.sequel")
    assert (result.items, result.total) == ((), 0)
    assert ask("execute_logical_form", expression=result.details["expression"]).total == 0


def test_a_step_from_an_expression(ask):
    terms = "(JOIN (R government.politician.positions) m.obama)"
    result = ask("find_relation", expression=terms, relation="government position title")
    assert ids(result) == {"m.senator", "m.president"}
    assert result.details["expression"] == f"(JOIN (R government.position.title) {terms})"
    assert result.details["tier"] == "high"


def test_nodes_without_a_name_come_with_a_hint_how_to_go_on(ask):
    for result in (
        ask("find_relation", entity="m.obama", relation="government.politician.positions"),
        ask("execute_logical_form", expression="(JOIN (R government.politician.positions) m.obama)"),
    ):
        assert ids(result) == {"m.term1", "m.term2"}
        hint = result.details["cvt"]
        assert hint["entities"] == 2
        assert [t["id"] for t in hint["types"]] == ["government.position"]
        assert [r["id"] for r in hint["relations"]] == [
            "government.position.from",
            "government.position.title",
            "government.position.to",
        ]
    assert "cvt" not in ask("find_relation", entity="m.heat", relation="film.film.starring").details


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({"relation": "r"}, "missing_required_fields"),
        ({"relation": "r", "entity": "Heat", "expression": "(JOIN r Heat)"}, "missing_required_fields"),
        ({"entity": "Heat"}, "missing_required_fields"),
        ({"entity": "nobody", "relation": "r"}, "entity_not_in_kg"),
        ({"entity": " ", "relation": "r"}, "entity_not_in_kg"),
        ({"entity": '"x"^^y z', "relation": "r"}, "entity_not_in_kg"),
        ({"expression": "(JOIN r", "relation": "r"}, "query_syntax"),
        ({"expression": "film.film", "relation": "xyzzy"}, "relation_rejected"),
        ({"expression": "(JOIN film.film.starring nobody)", "relation": "r"}, "entity_not_in_kg"),
        ({"expression": "(JOIN no.such.relation Heat)", "relation": "r"}, "invalid_relation"),
        ({"expression": "(JOIN film.film.runtime Heat)", "relation": "r"}, "no_entities_found"),
        ({"entity": "Heat", "relation": "r", "hop": 2}, "wrong_argument_count"),
    ],
)
def test_failures(ask, arguments, kind):
    assert ask("find_relation", **arguments).kind == kind


@pytest.mark.parametrize(
    ("form", "answers"),
    [
        ("(JOIN film.film.starring m.pacino)", {"m.heat"}),
        ("(AND film.film (JOIN film.film.starring `John Smith`))", {"m.ronin", "m.drop"}),
        ("film.film", {"m.heat", "m.ronin", "m.drop"}),
        ("(ARGMAX film.film film.film.runtime)", {"m.heat"}),
        ("(ARGMIN film.film film.film.runtime)", {"m.drop"}),
        ("(lt film.film.runtime 122)", {"m.drop"}),
        ("(le film.film.runtime 122)", {"m.drop", "m.ronin"}),
        ("(AND film.film (ge film.film.runtime 122))", {"m.heat", "m.ronin"}),
        (f"(JOIN film.film.release_year 1998^^{XSD}gYear)", {"m.ronin"}),
        (f"(JOIN film.film.release_year 2030^^{XSD}gYear)", set()),
        (
            "(TC (JOIN (R government.politician.positions) m.obama) government.position.from 2006)",
            {"m.term1"},
        ),
        (
            "(TC (JOIN (R government.politician.positions) m.obama) government.position.to NOW)",
            {"m.term2"},
        ),
    ],
)
def test_members_of_logical_forms(ask, form, answers):
    result = ask("execute_logical_form", expression=form)
    assert (ids(result), result.total) == (answers, len(answers))
    assert result.details["expression"] == printed(form)


@pytest.mark.parametrize(
    ("form", "readings"),
    [
        ("(AND film.film (JOIN film.film.starring m.pacino))", 1),
        ("(ARGMAX film.film film.film.runtime)", 1),
        ("(JOIN film.film.starring `John Smith`)", 2),  # two of them
        ("(COUNT film.film)", 1),
    ],
)
def test_a_form_is_explained_by_queries_that_have_its_members(ask, form, readings):
    result = ask("execute_logical_form", expression=form, explain=True)
    queries = result.details["sparql"]
    assert len(queries) == readings
    rows = [row for query in queries for row in ask("execute_sparql", query=query).items]
    assert {row["x"]["id"] for row in rows} == {item.id for item in result.items}
    assert "sparql" not in ask("execute_logical_form", expression=form).details


def test_values_are_items_with_typed_ids(ask):
    [year] = ask("execute_logical_form", expression="(JOIN (R film.film.release_year) Heat)").items
    assert (year.id, year.label) == (f'"1995"^^<{XSD}gYear>', "1995")
    [count] = ask("execute_logical_form", expression="(COUNT film.film)").items
    assert (count.id, count.label) == (f'"3"^^<{XSD}integer>', "3")


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        # The direction is as written where there is a choice, and repaired where there is none.
        ("(JOIN people.person.spouse m.obama)", "(JOIN people.person.spouse m.obama)"),
        ("(JOIN film.film.starring m.heat)", "(JOIN (R film.film.starring) m.heat)"),
        ("(ARGMAX film.film `running time`)", "(ARGMAX film.film film.film.runtime)"),
        ("(AND film.film (gt `film runtime` 150))", "(AND film.film (gt film.film.runtime 150))"),
        (
            "(TC (JOIN `politician position` m.obama) `position from` 2006)",
            "(TC (JOIN (R government.politician.positions) m.obama) government.position.from 2006)",
        ),
        (
            "(COUNT (JOIN `position title` (JOIN (R `positions`) m.obama)))",
            "(COUNT (JOIN (R government.position.title) (JOIN (R government.politician.positions) m.obama)))",
        ),
    ],
)
def test_every_relation_of_a_form_is_gated_in_its_place(ask, written, meant):
    result = ask("execute_logical_form", expression=written, gate=True, tau_low=0.2)
    assert isinstance(result, Success), result
    assert result.details["expression"] == printed(meant)
    assert result.items == ask("execute_logical_form", expression=meant).items
    verdicts = result.details["relations"]
    assert len(verdicts) == meant.count("film.film.") + meant.count("person.") + meant.count("position.") + (
        meant.count("politician.")
    )
    assert all(verdict["tier"] in ("high", "medium") for verdict in verdicts)


def test_a_gated_form_is_rejected_where_a_relation_is(ask):
    result = ask("execute_logical_form", expression="(ARGMAX film.film `favourite colour`)", gate=True)
    assert (result.kind, result.code) == ("relation_rejected", "KG_RELATION_NOT_FOUND")
    assert "film.film.runtime" in {c["id"] for c in result.details["candidates"]}
    assert {c["direction"] for c in result.details["candidates"]} == {"out"}


def test_a_bad_form_is_a_syntax_failure_with_its_place(ask):
    result = ask("execute_logical_form", expression="(AND film.film (JOIN film.film.starring))")
    assert (result.kind, result.details) == ("query_syntax", {"position": 40})


def test_pages_and_totals(ask):
    first = ask("execute_logical_form", expression="film.film", limit=2)
    rest = ask("execute_logical_form", expression="film.film", limit=2, offset=2)
    assert (first.total, first.truncated, rest.truncated) == (3, True, False)
    assert [item.label for item in (*first.items, *rest.items)] == ["Drop", "Heat", "Ronin"]


@pytest.mark.parametrize(
    ("action", "entity", "found", "direction"),
    [("get_tail_entities", "Heat", "m.pacino", "out"), ("get_head_entities", "Al Pacino", "m.heat", "in")],
)
def test_one_hop_actions_take_a_gate(ask, action, entity, found, direction):
    result = ask(action, entity=entity, relation="starring", gate=True)
    assert ids(result) == {found}
    assert (result.details["tier"], result.details["relation"]["direction"]) == ("medium", direction)
    assert ask(action, entity=entity, relation="stars").kind == "invalid_relation"
    assert ask(action, entity=entity, relation="xyzzy", gate=True).kind == "relation_rejected"
    assert ask(action, entity=entity, relation="starring", gate=1).code == "KG_FORMAT_ERROR"


def test_a_gate_knows_only_the_side_that_is_asked_for(ask):
    result = ask("get_head_entities", entity=f"{NS}m.heat", relation="starring", gate=True)
    assert (result.kind, result.code) == ("no_relations_found", "KG_NO_RESULTS")


@pytest.mark.parametrize("seed", range(3))
def test_random_forms_have_the_members_that_a_naive_evaluation_finds(seed):
    rng = random.Random(seed)
    nodes, links = [f"n{i}" for i in range(12)], ["likes", "knows", "owns it"]
    triples = {(rng.choice(nodes), rng.choice(links), rng.choice(nodes)) for _ in range(40)}
    tools = LocalGraphTools(FixedGraphs({"g": OxigraphStore.from_triples(triples)}), deadline_s=30)
    known = sorted({end for head, _, tail in triples for end in (head, tail)})

    def draw(depth):
        if depth and rng.random() < 0.3:
            return And(draw(depth - 1), draw(depth - 1))
        source = Entity(rng.choice(known)) if not depth or rng.random() < 0.3 else draw(depth - 1)
        return Join(Relation(rng.choice(links), rng.random() < 0.5), source)

    def named(form):
        if isinstance(form, Entity):
            return {form.id}
        return named(form.left) | named(form.right) if isinstance(form, And) else named(form.source)

    def naive(form):
        if isinstance(form, Entity):
            return {form.id}
        if isinstance(form, And):
            return naive(form.left) & naive(form.right)
        sources, inverse = naive(form.source), form.relation.inverse
        edges = {(t, h) if inverse else (h, t) for h, r, t in triples if r == form.relation.name}
        return {x for x, y in edges if y in sources}

    forms = [draw(2) for _ in range(40)]
    texts = [print_s_expression(form) for form in forms]
    results = tools.execute("g", [Action("execute_logical_form", {"expression": text}) for text in texts])
    counts = tools.execute(
        "g",
        [
            Action("execute_logical_form", {"expression": print_s_expression(Count(form))})
            for form in forms[:10]
        ],
    )
    for form, result in zip(forms, results, strict=True):
        assert {item.id for item in result.items} == naive(form) - named(form)
    for result, count in zip(results, counts, strict=False):
        assert count.items[0].label == str(result.total)
    # A step by find_relation is the form that it says it is.
    steps = [
        Action("find_relation", {"expression": text, "relation": rng.choice(links)}) for text in texts[:15]
    ] + [Action("find_relation", {"entity": entity, "relation": rng.choice(links)}) for entity in known]
    for step, result in zip(steps, tools.execute("g", steps), strict=True):
        if isinstance(result, Success):
            [again] = tools.execute(
                "g", [Action("execute_logical_form", {"expression": result.details["expression"]})]
            )
            assert again.items == result.items, step


# A hub whose relations do not all appear in a sample; names that many share; a node without a name.
CROWD = [
    *(f"<x:hub> <x:knows> <x:p{number}> ." for number in range(SAMPLE + 50)),
    *(f'<x:p{number}> <{RDFS_LABEL}> "Kim" .' for number in range(5)),
    *(f'<x:q{number}> <{RDFS_LABEL}> "Lee" .' for number in range(5)),
    *(f"<x:q{number}> <x:likes> <x:p{number}> ." for number in range(5)),
    f"<x:p{SAMPLE + 40}> <x:collects> <x:stamps> .",
    "<x:stamps> <x:made_of> _:paper .",
    "_:paper <x:colour> <x:white> .",
    '<x:stamps> <x:first_day> "1840-05-06" .',
]


@pytest.fixture(scope="module")
def crowd(tmp_path_factory):
    directory = tmp_path_factory.mktemp("crowd")
    (directory / "graph.nt").write_text("\n".join(CROWD) + "\n")
    catalog = GraphCatalog(directory / "home")
    catalog.load("crowd", directory / "graph.nt")
    yield catalog
    catalog.close()


@pytest.fixture
def meet(crowd):
    def meet(name, *, deadline_s=30.0, max_items=1000, **arguments):
        tools = LocalGraphTools(crowd, deadline_s=deadline_s, max_items=max_items)
        [result] = tools.execute("crowd", [Action(name, arguments)])
        return result

    return meet


def test_a_relation_that_the_sample_misses_is_found_by_its_name(meet):
    people = "(JOIN (R x:knows) x:hub)"
    result = meet("find_relation", expression=people, relation="x:collects")
    assert [item.id for item in result.items] == ["x:stamps"]
    assert result.details["expression"] == f"(JOIN (R x:collects) {people})"
    assert meet("find_relation", expression=people, relation="x:made_of").kind == "relation_rejected"


def test_too_many_readings_of_shared_names_are_refused(meet):
    named = "(AND (JOIN x:likes Kim) (JOIN x:likes Kim))"
    assert meet("execute_logical_form", expression=named).total == 5
    crossed = "(AND (JOIN x:likes Kim) (JOIN (R x:knows) Lee))"
    refused = meet("execute_logical_form", expression=crossed)
    assert refused.kind == "query_refused"
    assert 'more than 16 readings, since several entities are named "Kim", "Lee"' in refused.message


def test_a_node_without_a_name_cannot_be_named_in_a_form(meet):
    [paper] = meet("find_relation", entity="x:stamps", relation="x:made_of").items
    refused = meet("execute_logical_form", expression=f"(JOIN (R x:colour) `{paper.id}`)")
    assert refused.kind == "query_refused"
    assert "has no name that a query can use: use what led to it" in refused.message
    led = meet("execute_logical_form", expression="(JOIN (R x:colour) (JOIN (R x:made_of) x:stamps))")
    assert [item.id for item in led.items] == ["x:white"]


def test_a_literal_means_what_is_written_so_whatever_its_type(meet):
    typed = f"(JOIN x:first_day 1840-05-06^^{XSD}string)"
    assert [item.id for item in meet("execute_logical_form", expression=typed).items] == ["x:stamps"]


def test_an_entity_whose_side_has_no_relation_has_nothing_to_choose_from(meet):
    assert meet("find_relation", expression="(JOIN x:knows x:hub)", relation="x:knows").kind == (
        "no_entities_found"
    )


def test_a_form_is_stopped_at_its_deadline(meet):
    stopped = meet("execute_logical_form", expression="(JOIN (R x:knows) x:hub)", deadline_s=1e-9)
    assert stopped.kind == "query_timeout"
    assert "was not evaluated within 1e-09 s" in stopped.message


@pytest.mark.parametrize("arguments", [{"tau_low": 0.9, "tau_high": 0.1}, {"tau_low": 2}])
def test_thresholds_out_of_order_are_a_format_error(ask, arguments):
    for action in (
        {"name": "find_relation", "entity": "Heat", "relation": "starring"},
        {"name": "execute_logical_form", "expression": "film.film", "gate": True},
        {"name": "get_tail_entities", "entity": "Heat", "relation": "starring", "gate": True},
    ):
        assert ask(**action, **arguments).code == "KG_FORMAT_ERROR"


@pytest.mark.parametrize("now", ["yesterday", "2015-8-1", "2015-13-01"])
def test_now_is_a_day(ask, now):
    assert ask("execute_logical_form", expression="film.film", now=now).code == "KG_FORMAT_ERROR"
