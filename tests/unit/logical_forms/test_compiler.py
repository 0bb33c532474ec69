"""Compiled queries run on an engine, against hand-worked answers and a naive evaluation of the algebra."""

from __future__ import annotations

from dataclasses import replace

import pyoxigraph
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.errors import LogicalFormError
from kbqa.kg.naming import entity_iri, relation_iri
from kbqa.logical_forms.algebra import (
    XSD,
    And,
    Class,
    Comparator,
    Comparison,
    Count,
    Entity,
    Extreme,
    Join,
    Literal,
    Relation,
    Superlative,
    Timed,
)
from kbqa.logical_forms.compiler import FREEBASE, MAX_NESTED_SUPERLATIVES, Distinct, FormVocabulary, to_sparql
from kbqa.logical_forms.s_expression import parse_s_expression
from tests.unit.logical_forms.forms import patiently

NS = "http://rdf.freebase.com/ns/"
NAMED = FormVocabulary(
    entity=lambda name: f"<{entity_iri(name)}>",
    relation=lambda name: f"<{relation_iri(name)}>",
    ontology_class=lambda name: f"<{entity_iri(name)}>",
    type_predicate=f"<{relation_iri('is a')}>",
    now="2015-08-10",
)


def store(*lines):
    """A store of Freebase triples, each `s p o` with `m.…` entities, or `s p "…"` with its datatype."""
    graph = pyoxigraph.Store()
    for line in lines:
        subject, predicate, obj = line.split(" ", 2)
        term = obj if obj.startswith('"') else f"<{NS}{obj}>"
        triple = f"<{NS}{subject}> <{NS}{predicate}> {term} ."
        graph.load(triple.encode(), format=pyoxigraph.RdfFormat.N_TRIPLES)
    return graph


def answers(graph, query, variable="x"):
    return sorted(solution[variable].value.removeprefix(NS) for solution in graph.query(query))


def run(graph, text, **options):
    return answers(graph, to_sparql(parse_s_expression(text), **options))


def number(value, datatype="integer"):
    return f'"{value}"^^<{XSD}{datatype}>'


FILMS = store(
    "m.big type.object.type film.film",
    "m.cast type.object.type film.film",
    "m.toy type.object.type film.film",
    "m.hanks film.actor.film m.big",
    "m.hanks film.actor.film m.cast",
    "m.hanks film.actor.film m.toy",
    "m.hunt film.actor.film m.cast",
    "m.big film.film.director m.marshall",
    f"m.big film.film.budget {number(18)}",
    f"m.cast film.film.budget {number(90)}",
    f"m.toy film.film.budget {number(90)}",
    f"m.other film.film.budget {number(500)}",
)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(JOIN (R film.actor.film) m.hanks)", ["m.big", "m.cast", "m.toy"]),
        ("(JOIN film.actor.film m.cast)", ["m.hanks", "m.hunt"]),
        ("(AND (JOIN (R film.actor.film) m.hanks) (JOIN (R film.actor.film) m.hunt))", ["m.cast"]),
        ("(AND film.film (JOIN film.film.director m.marshall))", ["m.big"]),
        # Who plays beside Hanks? He is named, so he is no answer.
        ("(JOIN film.actor.film (JOIN (R film.actor.film) m.hanks))", ["m.hunt"]),
        ("(ARGMAX film.film film.film.budget)", ["m.cast", "m.toy"]),
        ("(ARGMIN film.film film.film.budget)", ["m.big"]),
        ("(ARGMAX film.film (JOIN film.film.director film.film.budget))", []),
        (
            "(ARGMAX (JOIN film.actor.film (AND film.film film.film))"
            " (JOIN film.actor.film film.film.budget))",
            ["m.hanks", "m.hunt"],
        ),
        ("(ge film.film.budget 90)", ["m.cast", "m.other", "m.toy"]),
        ("(AND film.film (gt film.film.budget 89.5))", ["m.cast", "m.toy"]),
        ("(lt film.film.budget 90)", ["m.big"]),
        (f"(JOIN film.film.budget 18^^{XSD}integer)", ["m.big"]),
        ("(COUNT (JOIN (R film.actor.film) m.hanks))", ["3"]),
        ("(COUNT (JOIN (R film.actor.film) m.nobody))", ["0"]),
        ("film.film", ["m.big", "m.cast", "m.toy"]),
    ],
)
def test_worked_answers(text, expected):
    assert run(FILMS, text) == expected


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        ("(ASK (JOIN (R film.actor.film) m.hanks) m.cast)", True),
        ("(ASK (JOIN (R film.actor.film) m.hunt) m.big)", False),
        (f"(ASK (JOIN (R film.film.budget) m.big) 18^^{XSD}integer)", True),
        ("(ASK (ARGMAX film.film film.film.budget) m.toy)", True),
        ("(ASK film.film m.hanks)", False),
        # What is asked about is no node that the set names.
        ("(ASK (JOIN film.film.director m.marshall) m.big)", True),
    ],
)
@pytest.mark.parametrize("distinct", Distinct)
def test_worked_yes_no_questions(text, holds, distinct):
    assert bool(FILMS.query(to_sparql(parse_s_expression(text), distinct=distinct))) is holds


def test_asking_is_no_part_of_an_expression():
    with pytest.raises(LogicalFormError, match="ASK has no members"):
        to_sparql(parse_s_expression("(COUNT (ASK film.film m.big))"))


def test_all_nodes_differ_where_that_is_asked_for():
    graph = store("m.a knows m.b", "m.b knows m.a", "m.b knows m.b", "m.b knows m.c", "m.c knows m.d")
    text = "(JOIN (R knows) (JOIN (R knows) m.a))"
    assert run(graph, text, distinct=Distinct.NONE) == ["m.a", "m.b", "m.c"]
    assert run(graph, text) == ["m.b", "m.c"]
    assert run(graph, text, distinct=Distinct.NODES) == ["m.c"]
    assert run(graph, text, distinct=Distinct.ENTITIES) == ["m.b", "m.c"]


def test_no_join_leads_to_an_entity_of_the_expression_where_that_is_asked_for():
    graph = store(
        *("m.a knows m.b", "m.b knows m.a", "m.a knows m.c", "m.d knows m.a", "m.a likes m.b"),
        *("m.a type.object.type c", "m.b type.object.type c", "m.b knows m.d"),
        *(f"m.a size {number(9)}", f"m.b size {number(5)}", f"m.d size {number(7)}"),
    )

    def away(text, **options):
        return run(graph, text, distinct=Distinct.ENTITIES, **options)

    # By way of m.a one would come to m.c.
    assert away("(JOIN (R knows) (JOIN (R knows) (JOIN (R knows) m.a)))") == []
    assert run(graph, "(JOIN (R knows) (JOIN (R knows) (JOIN (R knows) m.a)))") == ["m.b", "m.c"]
    # A topic is no candidate of a superlative over a join, wherever it is named; of a class it is one.
    assert away("(ARGMAX (JOIN (R knows) m.b) size)") == ["m.a"]
    assert away("(AND (ARGMAX (JOIN (R knows) m.b) size) (JOIN knows m.a))") == ["m.d"]
    assert away("(ARGMAX c size)") == ["m.a"]
    assert away("(JOIN (R likes) (ARGMAX c size))") == ["m.b"]
    # Further entities can be named apart from the expression.
    assert away("(JOIN (R knows) m.b)") == ["m.a", "m.d"]
    assert away("(JOIN (R knows) m.b)", apart=["m.a", "m.b"]) == ["m.d"]
    assert away("(COUNT (JOIN (R knows) m.b))", apart=["m.d"]) == ["1"]


def test_a_name_may_stand_for_any_of_several_terms():
    both = {"m.hanks": (f"<{NS}m.hanks>", f"<{NS}m.hunt>"), "film.film": (f"<{NS}film.film>", f"<{NS}none>")}
    vocabulary = replace(
        FREEBASE,
        entity=lambda name: both.get(name) or FREEBASE.entity(name),
        ontology_class=lambda name: both.get(name) or FREEBASE.ontology_class(name),
    )

    def found(text, distinct):
        return run(FILMS, text, vocabulary=vocabulary, distinct=distinct)

    assert found("(JOIN (R film.actor.film) m.hanks)", Distinct.ANSWER) == ["m.big", "m.cast", "m.toy"]
    assert found("(AND film.film (JOIN film.film.director m.marshall))", Distinct.NONE) == ["m.big"]
    assert found("(ARGMIN (JOIN (R film.actor.film) m.hanks) film.film.budget)", Distinct.NONE) == ["m.big"]
    back = "(JOIN film.actor.film (JOIN (R film.actor.film) m.hanks))"
    assert found(back, Distinct.NONE) == ["m.hanks", "m.hunt"]
    for distinct in (Distinct.ANSWER, Distinct.ENTITIES, Distinct.NODES):
        assert found(back, distinct) == []


def test_time_constraints_cover_open_and_half_open_intervals():
    def stint(name, begin=None, end=None):
        yield f"m.{name} roster.player m.kaka"
        if begin:
            yield f"m.{name} roster.from {begin}"
        if end:
            yield f"m.{name} roster.to {end}"

    graph = store(
        *stint("milan", number("2003", "gYear"), number("2009-06-30-08:00", "date")),
        *stint("madrid", number("2009-07-01", "date"), number("2013-08-31T00:00:00", "dateTime")),
        *stint("orlando", number("2014-07", "gYearMonth")),
        *stint("youth", None, number("2001-01-01", "date")),
        *stint("always"),
    )

    def at(time, relation="roster.from"):
        return run(graph, f"(TC (JOIN roster.player m.kaka) {relation} {time})")

    assert at("2009") == ["m.always", "m.madrid", "m.milan"]
    assert at("2009", "roster.to") == at("2009")
    assert at("2009-06-30") == ["m.always", "m.milan"]
    assert at("2009-07-01") == ["m.always", "m.madrid"]
    assert at("2014") == ["m.always", "m.orlando"]
    assert at("2001") == ["m.always", "m.youth"]
    assert at("NOW") == ["m.always", "m.orlando"]


def test_the_interval_s_relations_are_found_from_either_end():
    query = to_sparql(parse_s_expression("(TC (JOIN a.b m.1) x.y.end_date 2009)"))
    assert "x.y.start_date> ?x1" in query
    assert "x.y.end_date> ?x2" in query
    with pytest.raises(
        LogicalFormError, match=r"x.y.date begins or ends no interval; known endings: from/to"
    ):
        to_sparql(parse_s_expression("(TC (JOIN a.b m.1) x.y.date 2009)"))


def test_dates_of_freebase_carry_its_time_zone_once():
    for written in ("2009-03-29", "2009-03-29-08:00"):
        query = to_sparql(parse_s_expression(f"(le a.date {written})"))
        assert f'<= "2009-03-29-08:00"^^<{XSD}date>' in query
    assert f'"2009"^^<{XSD}integer>' in to_sparql(parse_s_expression("(le a.year 2009)"))


def test_the_answer_s_variable_can_be_named():
    query = to_sparql(parse_s_expression("(JOIN (R film.actor.film) m.hunt)"), answer="film")
    assert answers(FILMS, query, "film") == ["m.cast"]
    with pytest.raises(LogicalFormError, match="not a variable name"):
        to_sparql(Class("c"), answer="x }")


def test_superlatives_nest_so_deep_and_no_deeper():
    expression = parse_s_expression("(JOIN r m.1)")
    for _ in range(MAX_NESTED_SUPERLATIVES):
        expression = Superlative(Extreme.MAX, expression, (Relation("v"),))
    assert answers(FILMS, to_sparql(expression)) == []
    with pytest.raises(LogicalFormError, match="nest at most"):
        to_sparql(Superlative(Extreme.MIN, expression, (Relation("v"),)))


@given(st.text(min_size=1).filter(str.strip), st.text())
@patiently
def test_names_and_literals_cannot_leave_their_place(name, lexical):
    expression = And(
        Join(Relation(name, inverse=True), Entity(name)),
        And(Class(name), Comparison(Comparator.LE, (Relation(name),), Literal(lexical))),
    )
    for vocabulary in (FREEBASE, NAMED):
        query = to_sparql(expression, vocabulary)
        assert list(pyoxigraph.Store().query(query)) == []
        assert query.count("\n") == to_sparql(expression.right, vocabulary).count("\n") + 2


# A naive evaluation over sets of triples, in a graph of named triples.

ENTITIES, RELATIONS, CLASSES = ("Ann Lee", "b", "c", "d"), ("r", "s"), ("C", "D")
relation_names = st.sampled_from(RELATIONS)
members = st.sampled_from(ENTITIES)
edges = st.tuples(members, relation_names, members)
typing = st.tuples(members, st.just("is a"), st.sampled_from(CLASSES))
measures = st.tuples(members, st.just("v"), st.integers(0, 3))
spans = st.tuples(members, st.sampled_from(["from", "to"]), st.sampled_from(["2001", "2002", "2003"]))
graphs = st.sets(edges | typing | measures | spans, min_size=3, max_size=24)

steps = st.builds(Relation, relation_names, st.booleans())
value_paths = st.lists(steps, max_size=1).map(lambda path: (*path, Relation("v")))
leaves = (
    st.builds(Class, st.sampled_from(CLASSES))
    | st.builds(Join, steps, st.builds(Entity, members))
    | st.builds(
        Comparison,
        st.sampled_from(Comparator),
        value_paths,
        st.integers(0, 3).map(lambda value: Literal(str(value), XSD + "integer")),
    )
)


def _larger(smaller):
    sets = smaller.filter(lambda expression: not isinstance(expression, Class))
    return st.one_of(
        st.builds(Join, steps, sets),
        st.builds(And, smaller, smaller),
        st.builds(Superlative, st.sampled_from(Extreme), smaller, value_paths),
        st.builds(Timed, smaller, st.just(Relation("from")), st.sampled_from(["2001", "2002", "NOW"])),
    )


forms = st.recursive(leaves, _larger, max_leaves=4)


class Naive:
    """Members of an expression, by looking at every triple; `answer` for what describes the answer itself."""

    def __init__(self, triples, exclude):
        self.triples, self.exclude = triples, exclude

    def follow(self, subject, relation):
        if relation.inverse:
            return {s for s, p, o in self.triples if p == relation.name and o == subject}
        return {o for s, p, o in self.triples if p == relation.name and s == subject}

    def values(self, member, path):
        ends = {member}
        for relation in path:
            ends = {following for end in ends for following in self.follow(end, relation)}
        return ends

    def answers(self, expression):
        return self.members(expression, answer=True) - self.named(expression)

    def named(self, expression):
        match expression:
            case Join(_, Entity(name)):
                return {name} if self.exclude else set()
            case And(left, right):
                return self.named(left) | self.named(right)
            case Join() | Superlative() | Timed():
                return self.named(expression.source)
        return set()

    def members(self, expression, answer):
        match expression:
            case Class(name):
                return {s for s, p, o in self.triples if p == "is a" and o == name}
            case Join(relation, Entity(name)):
                return self.follow(name, Relation(relation.name, not relation.inverse))
            case Join(relation, source):
                sources = self.members(source, answer=False)
                return {s for s in ENTITIES if self.follow(s, relation) & sources}
            case And(left, right):
                return self.members(left, answer) & self.members(right, answer)
            case Comparison(comparator, path, value):
                compare = {"<=": int.__le__, "<": int.__lt__, ">=": int.__ge__, ">": int.__gt__}
                holds = compare[comparator.symbol]
                return {
                    s for s in ENTITIES if any(holds(v, int(value.lexical)) for v in self.values(s, path))
                }
            case Superlative(extreme, source, path):
                candidates = self.members(source, answer)
                counted = candidates - self.named(source) if answer else candidates
                values = [value for member in counted for value in self.values(member, path)]
                best = (max if extreme is Extreme.MAX else min)(values, default=None)
                return {member for member in candidates if best in self.values(member, path)}
            case Timed(source, _, time):
                return {m for m in self.members(source, answer) if self.holds(m, time.replace("NOW", "2015"))}

    def holds(self, member, year):
        begins, ends = self.follow(member, Relation("from")), self.follow(member, Relation("to"))
        return (not begins or min(begins) <= year) and (not ends or max(ends) >= year)


def named_store(triples):
    graph = pyoxigraph.Store()
    for s, p, o in triples:
        value = pyoxigraph.NamedNode(entity_iri(o)) if o in (*ENTITIES, *CLASSES) else pyoxigraph.Literal(o)
        subject, predicate = pyoxigraph.NamedNode(entity_iri(s)), pyoxigraph.NamedNode(relation_iri(p))
        graph.add(pyoxigraph.Quad(subject, predicate, value))
    return graph


@given(graphs, forms, st.sampled_from([Distinct.NONE, Distinct.ANSWER]))
@settings(patiently, max_examples=150)
def test_compiled_queries_agree_with_a_naive_evaluation(triples, expression, distinct):
    expected = Naive(triples, distinct is Distinct.ANSWER).answers(expression)
    graph = named_store(triples)
    query = to_sparql(expression, NAMED, distinct=distinct)
    assert {solution["x"] for solution in graph.query(query)} == {
        pyoxigraph.NamedNode(entity_iri(name)) for name in expected
    }
    (count,) = graph.query(to_sparql(Count(expression), NAMED, distinct=distinct))
    assert int(count["x"].value) == len(expected)
