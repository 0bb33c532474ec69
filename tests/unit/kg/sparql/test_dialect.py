"""Queries written for another engine mean the same on ours; what is rewritten, and what is not."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

import pyoxigraph as ox
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.errors import QueryOverloadError, QueryRefusedError, QuerySyntaxError, QueryTimeoutError
from kbqa.kg.sparql.dialect import PREFIXES, lenient, standard
from kbqa.kg.sparql.functions import FUNCTIONS
from kbqa.kg.sparql.guard import MAX_QUERY_CHARS, ResultFormat, check_query
from kbqa.kg.sparql.pool import QueryPool
from tests.dialects import DATA, ROWS, as_asked


@pytest.fixture(scope="module")
def ask(tmp_path_factory):
    """`ask(query)`: bindings, by the processes that serve queries, over the data of the table."""
    directory = tmp_path_factory.mktemp("dialects")
    ox.Store(str(directory)).load(DATA, format=ox.RdfFormat.TURTLE)
    pool = QueryPool(size=1)

    def ask(query, deadline_s=30.0):
        result = pool.run(directory, check_query(query), ResultFormat.JSON, deadline_s=deadline_s)
        return json.loads(result.body)["results"]["bindings"]

    yield ask
    pool.close()


@pytest.fixture(scope="module")
def in_memory():
    """`in_memory(turtle)`: a function that asks those triples."""

    def load(turtle):
        store = ox.Store()
        store.load(turtle, format=ox.RdfFormat.TURTLE)
        return lambda query: store.query(lenient(check_query(query)).text, custom_functions=FUNCTIONS)

    return load


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.name.replace(" ", "-"))
def test_a_query_of_the_table_means_what_it_says(ask, row):
    found = [next(iter(binding.values()))["value"].rpartition("/")[2] for binding in ask(as_asked(row))]
    assert (found if "ORDER" in row.query else sorted(found)) == row.expected


def test_variables_of_ours_are_not_shown(ask):
    [binding] = ask('SELECT * { ?x <http://example.org/d> "1899"^^xsd:gYear }')
    assert list(binding) == ["x"]


def test_what_is_standard_is_left_as_it_is():
    query = (
        "PREFIX ex: <http://ex.org/> # AND xsd:datetime(?x)\n"
        "SELECT ?x (COUNT(?y) AS ?n) { ?x ex:a 'ns:a.b.c OR' ; <http://ex.org/OR.AND> ?y FILTER(?y != 'x') }"
        " GROUP BY ?x HAVING (COUNT(?y) > 1) LIMIT 5"
    )
    assert standard(check_query(query)).text == lenient(check_query(query)).text == query


def test_dots_are_written_out_only_where_an_iri_can_hold_the_name():
    text = standard(check_query(r"SELECT * { ?x ns:a\(b.c ns:d%20e.f, ns:g\>.h, none:i.j.k, _:l.m }")).text
    assert "<http://rdf.freebase.com/ns/a(b.c> <http://rdf.freebase.com/ns/d%20e.f>" in text
    assert r"ns:g\>.h, none:i.j.k, _:l.m" in text


def test_known_prefixes_are_declared_when_they_are_used_and_not_declared():
    assert standard(check_query("ASK { ?x rdfs:label ?y ; foo:bar wd:Q1 }")).text == (
        f"PREFIX rdfs: <{PREFIXES['rdfs']}> PREFIX wd: <{PREFIXES['wd']}> "
        "ASK { ?x rdfs:label ?y ; foo:bar wd:Q1 }"
    )


def test_xsd_of_another_namespace_is_not_touched():
    query = "PREFIX xsd: <http://ex.org/> ASK { FILTER(xsd:datetime(1) = xsd:int(2)) }"
    assert standard(check_query(query)).text == query


XSD = "http://www.w3.org/2001/XMLSchema#"
INTEGERS = (
    *("int", "long", "short", "byte", "nonNegativeInteger"),
    *("unsignedInt", "unsignedLong", "unsignedShort", "unsignedByte"),
)


@pytest.mark.parametrize("name", INTEGERS)
def test_all_types_of_integers_are_numbers(ask, name):
    has = "<http://example.org/n>"

    def numbers(where):
        bindings = ask(f"SELECT ?x {{ ?x {has} ?n . {where} }}")
        return sorted(binding["x"]["value"].rpartition("/")[2] for binding in bindings)

    for cast in (f"xsd:{name}", f"<{XSD}{name}>"):
        assert numbers(f"FILTER({cast}(?n) = 24)") == ["double", "padded", "whole"]
    assert numbers(f'FILTER(?n < "25"^^xsd:{name})') == ["double", "whole"]
    assert numbers(f'?x {has} "24"^^xsd:{name}') == ["double", "whole"]
    assert numbers(f'VALUES ?n {{ "24"^^xsd:{name} 24 }}') == ["double", "whole", "whole"]


def test_casts_to_integers_are_standard_for_any_endpoint():
    query = f"ASK {{ FILTER(xsd:unsignedInt(1) = <{XSD}long>(1)) }}"
    assert standard(check_query(query)).text == (
        f"PREFIX xsd: <{XSD}> ASK {{ FILTER(xsd:integer(1) = <{XSD}integer>(1)) }}"
    )


@pytest.mark.parametrize(
    ("written", "told"),
    [
        ("sameTerm(?x, <http://ex.org/a>)", "(?x = <http://ex.org/a>)"),
        ("!SAMETERM(wd:Q1,?x) || ?x = 1", "!(wd:Q1 =?x) || ?x = 1"),
        ("sameTerm(?x, ?y)", "sameTerm(?x, ?y)"),
        ("sameTerm(?x, 1)", "sameTerm(?x, 1)"),
        ("sameTerm(STR(?x), wd:Q1)", "sameTerm(STR(?x), wd:Q1)"),
    ],
)
def test_the_same_term_as_an_iri_equals_it(written, told):
    """A number does not: 1.0 equals 1, but is another term."""
    query = f"PREFIX wd: <http://www.wikidata.org/entity/> ASK {{ ?x ?p ?y FILTER({written}) }}"
    assert standard(check_query(query)).text == query.replace(written, told)


def test_a_value_that_stands_for_itself_is_not_multiplied(in_memory):
    ask = in_memory("<http://ex.org/a> <http://ex.org/p> 1 .")
    assert len(list(ask("SELECT ?n { VALUES ?n { 1 2 } }"))) == 2
    assert len(list(ask("SELECT * { VALUES ?n { 1 2 } OPTIONAL { ?s <http://ex.org/p> ?n } }"))) == 2
    assert len(list(ask("SELECT * { VALUES ?n { 1 1.0 } ?s <http://ex.org/p> ?n }"))) == 1


def test_a_template_holds_the_literal_that_was_written(in_memory):
    ask = in_memory('<http://ex.org/a> <http://ex.org/d> "1899"^^<http://www.w3.org/2001/XMLSchema#gYear> .')
    [triple] = ask('CONSTRUCT { ?x <http://ex.org/d> 5 } WHERE { ?x <http://ex.org/d> "1899"^^xsd:dateTime }')
    assert str(triple.object) == '"5"^^<http://www.w3.org/2001/XMLSchema#integer>'


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        ('"2011-02-14-08:00"^^xsd:date = "2011-02-14"^^xsd:date', "true"),  # a zone of a day is noise
        ('"2010-01-01T01:00:00+01:00"^^xsd:dateTime = "2010"^^xsd:gYear', "true"),
        ('"-0044-03-15"^^xsd:dateTime < "0014"^^xsd:dateTime', "true"),
        ('"-13798000000-00-00T00:00:00Z"^^xsd:dateTime < "2010"^^xsd:gYear', "true"),
        ('"1900-03-01"^^xsd:date > "1900-02-28T23:59:59.5"^^xsd:dateTime', "true"),
        ('"2010-13-01"^^xsd:dateTime < "2011"^^xsd:gYear', None),
        ('"a" < 5', None),
        ("<http://ex.org/a> < 5", None),
        ('"2010" < "9"', "true"),  # texts are texts
        ("5 < 10.5", "true"),
        ('YEAR("1967"^^xsd:dateTime) = 1967', "true"),
        ('YEAR("x")', None),
        ('xsd:date("2015-08-10T10:00:00Z"^^xsd:dateTime) = "2015-08-10"^^xsd:dateTime', "true"),
        ("BOUND(?nothing) || ?nothing < 5", None),
        ("!true = false", "true"),
        ('IF("1967"^^xsd:gYear < "1967-02"^^xsd:gYearMonth, 1, 2)', "1"),
    ],
)
def test_dates_compare_by_when_they_begin_and_all_else_as_the_engine_does(in_memory, expression, expected):
    [solution] = in_memory("")(f"SELECT ({expression} AS ?x) {{}}")
    assert (solution["x"] and solution["x"].value) == expected


def test_nested_comparisons_do_not_double_the_query_at_each_level():
    query = "ASK { FILTER(" + "(" * 60 + "?a" + " < ?b)" * 60 + ") }"
    assert len(lenient(check_query(query)).text) < 5 * len(query)


@pytest.mark.parametrize(
    "query",
    [
        "SELECT * { VALUES ?x { " + "1 " * 10_000 + "} ?s ?p ?x }",
        "SELECT * { " + "VALUES ?x { 1 } " * 1_000 + "?s ?p ?x }",
        "SELECT * { ?s ?p ?o } ORDER BY " + "?o " * 5_000,
        "SELECT * { ?s ?p ?o FILTER(?o < " + "- 1 " * 1_900 + ") }",
        "SELECT * { ?s ?p " + '"1899"^^xsd:date, ' * 480 + "?o }",
        "SELECT * { ?s ?p ?o FILTER(?o IN (" + "1 , " * 5_000 + "1)) }",
        "SELECT * { ?s ?p '" + "x" * 90_000 + "' }",
        "SELECT * { ?s ?p ?o FILTER(" + " && ".join(["?o < ?s"] * 400) + ") }",
        "SELECT * { ?s ?p ?o FILTER(" + " || ".join(["YEAR(?o) = 1899"] * 300) + ") }",
        "SELECT * { ?s " + "<a:>|" * 1_900 + "<a:> ?o }",
        "SELECT * {" + "OPTIONAL { ?s <a:> ?o }" * 900 + "}",
        "SELECT * {" + "{} UNION " * 1_900 + "{} }",
    ],
    ids=lambda query: query[:40],
)
def test_what_is_as_long_as_it_may_be_does_not_crash_the_engine(ask, query):
    """It is answered, or takes too long; a process that crashes is another error."""
    assert len(lenient(check_query(query)).text) < 5 * MAX_QUERY_CHARS
    with contextlib.suppress(QueryTimeoutError, QueryOverloadError):
        ask(query, deadline_s=5.0)


@pytest.mark.parametrize(
    ("query", "place"),
    [
        ("SELECT * {\n  ?x ns:a.b.c ?y ; ?z }", "2:24"),
        ('SELECT * {\n ?x ns:a "1899"^^xsd:date .\n FILTER(?x < ?y AND ?y < ?z) ! }', "3:33"),
        ("SELECT * { ?x rdfs:label ?y ", "1:29"),
        ("SELECT COUNT(?x) {\n ?x unknown:y.z ?z }", "2:1[0-9]"),
    ],
)
def test_an_error_tells_its_place_in_the_text_as_written(ask, query, place):
    with pytest.raises(QuerySyntaxError, match=f"error at {place}:"):
        ask(query)


PIECES = [
    *"{}()[]<>=!?*+-/|&;,.^#\\\n",
    *(
        "SELECT",
        "WHERE",
        "ORDER",
        "BY",
        "DESC",
        "VALUES",
        "FILTER",
        "COUNT",
        "YEAR",
        "AS",
        "IN",
        "PREFIX",
        "CONSTRUCT",
    ),
    *("?x", "$y", "5", "1.5e3", "2010", "'2010'", '"1899"^^xsd:date', '"x"^^<a:b>', "@en", "a", "OR", "and"),
    *(
        "ns:a.b.c",
        "ns:",
        "xsd:datetime",
        "xsd:dateTime(",
        "wd:Q1",
        "<http://ex.org/>",
        "_:b",
        "rdfs:label",
        "é",
    ),
]


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=40), st.sampled_from(["", " "]))
def test_any_text_that_is_let_through_is_rewritten_and_has_places(pieces, gap):
    text = "ASK " + gap.join(pieces)
    try:
        query = check_query(text)
    except (QuerySyntaxError, QueryRefusedError):
        return
    for rewriting in (standard(query), lenient(query)):
        for column in (1, len(rewriting.text) // 2, len(rewriting.text), 10_000):
            line, place = map(int, rewriting.in_source(f"error at 1:{column}").split()[-1].split(":"))
            assert 1 <= line <= text.count("\n") + 1
            assert place >= 1


def _gold_queries():
    if "KBQA_DATA" not in os.environ:
        pytest.skip("KBQA_DATA is not set")
    data = Path(os.environ["KBQA_DATA"])
    cwq = json.loads((data / "cwq" / "cwq_test_sample.json").read_text())
    grailqa = json.loads((data / "grailqa" / "grailqa_dev_sample.json").read_text())
    qald = json.loads((data / "qald10" / "qald_10.json").read_text())["questions"]
    return (
        [record["sparql"] for record in cwq]
        + [record["sparql_query"] for record in grailqa]
        + [record["query"]["sparql"] for record in qald]
    )


def test_every_gold_query_parses_in_both_forms():
    queries = _gold_queries()
    assert len(queries) == 2500 + 700 + 394
    store = ox.Store()
    for text in queries:
        query = check_query(text)
        store.query(lenient(query).text, custom_functions=FUNCTIONS)
        store.query(standard(query).text)
