"""What gold programs say of their questions."""

from __future__ import annotations

import pytest

from kbqa.datasets.programs import Gold, chain_form, of_form, of_program, of_query, path_from
from kbqa.trajectory import Hop

_FB = "PREFIX ns: <http://rdf.freebase.com/ns/> SELECT DISTINCT ?x WHERE {{ {} }}{}"


def freebase(pattern, modifiers=""):
    return of_query(_FB.format(pattern, modifiers))


@pytest.mark.parametrize(
    ("form", "operation", "path"),
    [
        ("(JOIN (R film.actor.film) m.0a)", "path", (Hop("film.actor.film"),)),
        ("(AND film.film (JOIN film.film.actor m.0a))", "path", (Hop("film.film.actor", inverse=True),)),
        (
            "(AND a.a (JOIN r.r (AND b.b (JOIN (R s.s) m.0a))))",
            "path",
            (Hop("s.s"), Hop("r.r", inverse=True)),
        ),
        ("(AND (JOIN r.r m.0a) (JOIN s.s m.0b))", "intersection", ()),
        ("(JOIN t.t (AND (JOIN r.r m.0a) (JOIN s.s m.0b)))", "intersection", ()),
        ("(ARGMAX (JOIN r.r m.0a) v.v)", "superlative", ()),
        ("(COUNT (AND a.a (JOIN r.r m.0a)))", "count", ()),
        ("(AND a.a (le v.v 3^^http://www.w3.org/2001/XMLSchema#integer))", "comparison", ()),
        ("(TC (JOIN r.r m.0a) r.from NOW)", "time", ()),
        ("(COUNT (ARGMIN a.a v.v))", "count", ()),
        ("(JOIN r.r 39^^http://www.w3.org/2001/XMLSchema#integer)", "path", ()),
    ],
)
def test_a_form_tells_operation_and_path(form, operation, path):
    found = of_form(form)
    assert (found.operation, found.path) == (operation, path)


@pytest.mark.parametrize(
    ("pattern", "modifiers", "operation", "path"),
    [
        ("ns:m.0a ns:r ?y . ?y ns:s ?x .", "", "path", ("r", "s")),
        ("?y ns:r ns:m.0a . ?y ns:s ?x . FILTER (?x != ns:m.0a)", "", "path", ("^r", "s")),
        ("VALUES ?e { ns:m.0a } ?x ns:r ?e . ?x ns:type.object.type ns:film.film .", "", "path", ("^r",)),
        ("ns:m.0a ns:r ?x . FILTER (str(?x) = 'State')", "", "path", ()),
        ("ns:m.0a ns:r ?x . ?x ns:s ?y .", "", "path", ()),
        ("ns:m.0a ns:r ?x . OPTIONAL { ?x ns:s ?y }", "", "path", ()),
        ("ns:m.0a ns:r+ ?x .", "", "path", ()),
        ("ns:m.0a ns:r ?x . ns:m.0b ns:s ?x .", "", "intersection", ()),
        ("ns:m.0a ns:r ?x . ?x ns:s ?n .", " ORDER BY DESC(?n) LIMIT 1", "superlative", ()),
        ('ns:m.0a ns:r ?x . ?x ns:s ?n . FILTER (?n < "3"^^xsd:dateTime)', "", "comparison", ()),
        (
            "ns:m.0a ns:r ?x . FILTER(NOT EXISTS {?x ns:from ?f} || EXISTS {?x ns:from ?g . "
            'FILTER(xsd:datetime(?g) <= "2010-12-31"^^xsd:dateTime) })',
            "",
            "time",
            (),
        ),
    ],
)
def test_a_query_tells_operation_and_path(pattern, modifiers, operation, path):
    found = freebase(pattern, modifiers)
    assert found.operation == operation
    assert tuple("^" * hop.inverse + hop.relation for hop in found.path) == path


def test_wikidata_needs_no_prefixes_and_a_sequence_is_a_path():
    found = of_query("SELECT ?x WHERE { wd:Q1 wdt:P19/wdt:P17 ?x }")
    assert found == Gold(("Q1",), (Hop("P19"), Hop("P17")), "path")
    turned = of_query("SELECT ?x { ?x wdt:P19/wdt:P17 wd:Q1 }")
    assert turned.path == (Hop("P17", inverse=True), Hop("P19", inverse=True))
    assert of_query("SELECT ?x { wd:Q1 wdt:P31 ?x }").path == (Hop("P31"),)  # asks for the class
    assert of_query("SELECT ?x { ?x wdt:P31 wd:Q5 }").topics == ("Q5",)  # there is nothing else to begin at


def test_counts_and_questions_of_yes_or_no():
    assert of_query("SELECT (COUNT(DISTINCT ?x) AS ?n) { wd:Q1 wdt:P40 ?x }").operation == "count"
    assert of_query("SELECT (MAX(?x) AS ?n) { wd:Q1 wdt:P40 ?x }").operation == "superlative"
    asked = of_query("PREFIX wd: <http://www.wikidata.org/entity/> ask where { wd:Q1 wdt:P40 wd:Q2 }")
    assert (asked.operation, asked.topics) == ("boolean", ("Q1", "Q2"))


@pytest.mark.parametrize("text", ["", "#MANUAL SPARQL", "DELETE { ?s ?p ?o }", "((("])
def test_what_cannot_be_read_says_nothing(text):
    assert of_query(text) == of_form(text) == Gold()


def test_the_form_goes_first_and_a_path_begins_at_the_topic():
    gold = of_program("(COUNT (JOIN r.r m.0a))", _FB.format("ns:m.0a ns:r.r ?x", ""))
    assert (gold.topics, gold.operation) == (("m.0a",), "count")
    chain = freebase("ns:m.0a ns:r ?x .")
    assert path_from(chain, ["m.0a"]) == (Hop("r"),)
    assert path_from(chain, ["m.0b"]) == path_from(chain, ["m.0a", "m.0b"]) == path_from(chain, []) == ()


@pytest.mark.parametrize("path", [(Hop("r"),), (Hop("r.s", inverse=True), Hop("t")), (Hop("r"),) * 3])
def test_the_form_of_a_chain_has_its_path(path):
    found = of_form(chain_form("Mel Gibson", path))
    assert (found.topics, found.path) == (("Mel Gibson",), path)


def test_a_chain_without_relations_has_no_form():
    with pytest.raises(ValueError, match="without relations"):
        chain_form("Heat", ())
