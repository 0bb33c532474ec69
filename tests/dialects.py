"""What a query written for Virtuoso means: what `kbqa.kg.sparql.dialect` makes up for, as a table.

Each row holds whatever the engine. `test_dialect` asks the embedded engine; another
store asks the same rows of its own by `dialect.standard`, but for those of which
`only_embedded` says why not. All others hold on Virtuoso 7.2.5.
"""

from __future__ import annotations

from dataclasses import dataclass

# Everything that the rows ask, as Turtle.
DATA = """
@prefix : <http://example.org/> .
@prefix ns: <http://rdf.freebase.com/ns/> .
@prefix xsd: <http://www.w3.org/2001/XMLSchema#> .
@prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
@prefix wd: <http://www.wikidata.org/entity/> .
@prefix wdt: <http://www.wikidata.org/prop/direct/> .

:ann ns:people.person.parents :bea .
:ann ns:people.person.place.of.birth :rome .
:ann rdfs:label "Ann" .
wd:Q1 wdt:P31 wd:Q2 .

:day :d "1899-11-29"^^xsd:date .
:untimed :d "1899-11-29"^^xsd:dateTime .
:midnight :d "1899-11-29T00:00:00"^^xsd:dateTime .
:year :d "1899"^^xsd:gYear .
:month :d "1899-11"^^xsd:gYearMonth .
:next :d "1900-01-01"^^xsd:date .

:whole :n 24 .
:double :n "24.0"^^xsd:double .
:padded :n "024" .
:tagged :n "x"@en .
"""


@dataclass(frozen=True)
class Row:
    """A query and what it binds: local names or lexical forms, sorted unless it orders.

    Attributes:
        only_embedded: why an endpoint may answer otherwise; empty where it may not.
    """

    name: str
    query: str
    expected: list[str]
    only_embedded: str = ""


_PREFIX = "PREFIX : <http://example.org/> "
_BY_TYPE = "Virtuoso orders a date and a text or number by their types"

ROWS = [
    Row("interior dots", "SELECT ?x { ?x ns:people.person.parents :bea }", ["ann"]),
    Row("many dots", "SELECT ?x { :ann ns:people.person.place.of.birth ?x }", ["rome"]),
    Row("escaped dots", r"SELECT ?x { ?x ns:people\.person\.parents :bea }", ["ann"]),
    Row("a dot at the end", "SELECT ?x { :ann ns:people.person.parents ?x. :ann rdfs:label ?l. }", ["bea"]),
    Row("own prefix", "PREFIX ns: <http://www.wikidata.org/entity/> SELECT ?x { ns:Q1 ?p ?x }", ["Q2"]),
    Row("prefixes of Wikidata", "SELECT ?x { ?x wdt:P31 wd:Q2 }", ["Q1"]),
    Row("OR", "SELECT ?x { ?s rdfs:label ?x FILTER(!isLiteral(?x) OR lang(?x) = '') }", ["Ann"]),
    Row("and", "SELECT ?x { ?x :n ?n FILTER(isNumeric(?n) and ?n = 24) }", ["double", "whole"]),
    Row("OR in a string", "SELECT ?x { ?x rdfs:label 'Ann' FILTER('a OR b' = 'a OR b') }", ["ann"]),
    Row("bare aggregate", "SELECT COUNT(DISTINCT ?s) { ?s :d ?d }", ["6"]),
    Row("bare aggregate with a name", "SELECT MAX(?n) AS ?x { :whole :n ?n }", ["24"]),
    Row("a number of any type", "SELECT ?x { ?x :n 24 }", ["double", "whole"]),
    Row("a number in VALUES", "SELECT ?x { VALUES ?n { 24.0 } ?x :n ?n }", ["double", "whole"]),
    Row("a string is no number", "SELECT ?x { ?x :n '024' }", ["padded"]),
    Row("a tag matters", "SELECT ?x { ?x :n 'x' }", []),
    Row(
        "cast of text", "SELECT ?x { ?x :n ?n FILTER(xsd:integer(?n) > 008) }", ["double", "padded", "whole"]
    ),
    Row("cast to int", "SELECT ?x { ?x :n ?n FILTER(xsd:int(?n) = 24) }", ["double", "padded", "whole"]),
    Row(
        "an ill-typed day matches a day",
        'SELECT ?x { ?x :d "1899-11-29"^^xsd:dateTime }',
        ["day", "midnight", "untimed"],
    ),
    Row("so does a day", 'SELECT ?x { ?x :d "1899-11-29"^^xsd:date }', ["day", "midnight", "untimed"]),
    Row("a year matches a year", 'SELECT ?x { ?x :d "1899"^^xsd:dateTime }', ["year"]),
    Row("a month matches a month", 'SELECT ?x { ?x :d "1899-11"^^xsd:dateTime }', ["month"]),
    Row(
        "a date in VALUES",
        'SELECT ?x { VALUES ?d { "1899-11-29"^^xsd:dateTime } ?x :d ?d }',
        ["day", "midnight", "untimed"],
    ),
    Row(
        "dates of any type are equal",
        'SELECT ?x { ?x :d ?d FILTER(?d = "1899-11-29"^^xsd:dateTime) }',
        ["day", "midnight", "untimed"],
    ),
    Row(
        "dates of any type differ",
        'SELECT ?x { ?x :d ?d FILTER(?d != "1899-11-29"^^xsd:dateTime) }',
        ["month", "next", "year"],
    ),
    Row(
        "two variables are the same date",
        "SELECT ?x { :day :d ?a . ?x :d ?b FILTER(?a = ?b) }",
        ["day", "midnight", "untimed"],
    ),
    Row(
        "dates of any precision are ordered",
        'SELECT ?x { ?x :d ?d FILTER(?d < "1899-11-29"^^xsd:dateTime) }',
        ["month", "year"],
    ),
    Row(
        "by a year, ill-typed",
        'SELECT ?x { ?x :d ?d FILTER(?d >= "1900"^^xsd:dateTime) }',
        ["next"],
    ),
    Row(
        "two variables are ordered",
        "SELECT ?x { :day :d ?a . ?x :d ?b FILTER(?b > ?a) }",
        ["next"],
    ),
    Row(
        "xsd:datetime is a cast",
        'SELECT ?x { ?x :d ?d FILTER(xsd:datetime(?d) <= "1899-11-28"^^xsd:dateTime) }',
        ["month", "year"],
    ),
    Row(
        "the cast takes text",
        'SELECT ?x { ?x :d ?d FILTER(xsd:datetime(?d) < xsd:datetime("1899-11-02")) }',
        ["month", "year"],
    ),
    Row(
        "a difference is less than nothing",
        "SELECT ?x { :day :d ?a . ?x :d ?b FILTER(xsd:datetime(?b) - xsd:datetime(?a) < 0) }",
        ["month", "year"],
    ),
    Row(
        "text that looks like a date", "SELECT ?x { ?x :d ?d FILTER(?d > '1899-11-30') }", ["next"], _BY_TYPE
    ),
    Row("a number that looks like a year", "SELECT ?x { ?x :d ?d FILTER(?d >= 1900) }", ["next"], _BY_TYPE),
    Row(
        "dates of any precision in order",
        "SELECT ?x { ?x :d ?d FILTER(?x != :untimed && ?x != :midnight) } ORDER BY DESC(?d)",
        ["next", "day", "month", "year"],
    ),
    Row(
        "the parts of a day",
        "SELECT ?x { ?x :d ?d FILTER(MONTH(?d) = 11 && DAY(?d) = 29) }",
        ["day", "midnight", "untimed"],
    ),
    Row("the year of a year", "SELECT (YEAR(?d) AS ?x) { :year :d ?d }", ["1899"]),
]


def as_asked(row: Row) -> str:
    return _PREFIX + row.query
