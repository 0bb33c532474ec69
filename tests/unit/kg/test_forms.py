"""Members and surveys of logical forms: worked by hand, and the same embedded and at an endpoint."""

from __future__ import annotations

from contextlib import ExitStack

import pytest

from kbqa.errors import LogicalFormError, QueryTimeoutError
from kbqa.kg.endpoint.record import FREEBASE_NAME, RDFS_LABEL, Endpoint, ServerKind
from kbqa.kg.endpoint.store import EndpointStore
from kbqa.kg.store import GraphStore, Page
from kbqa.logical_forms.algebra import Entity
from kbqa.logical_forms.s_expression import parse_s_expression
from tests.opened_graphs import attached, loaded, served

EX = "http://ex.org/"
XSD = "http://www.w3.org/2001/XMLSchema#"
TURTLE = f"""
@prefix : <{EX}> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix xsd: <{XSD}> .
:heat a :Film ; rdfs:label "Heat"@en ; :director :mann ; :star :pacino , :deniro ;
    :minutes 170 ; :released "1995-12-15"^^xsd:date ; :gross [ :dollars 187.4 ] .
:ali a :Film ; rdfs:label "Ali"@en ; :director :mann ; :star :smith , :foxx ;
    :minutes 157 ; :released "2001-12-25"^^xsd:date ; :gross [ :dollars 87.7 ] .
:collateral a :Film ; rdfs:label "Collateral"@en ; :director :mann ; :star :foxx , :cruise ;
    :minutes 120 ; :released "2004-08-06"^^xsd:date .
:miami a :Film , :Remake ; rdfs:label "Miami Vice"@en ; :director :mann ; :star :foxx ; :minutes 170 .
:heat72 a :Film ; rdfs:label "Heat"@en ; :director :morrissey .
:mann a :Person ; rdfs:label "Michael Mann"@en ; :likes :heat , :mann .
:morrissey a :Person ; rdfs:label "Paul Morrissey"@en .
:pacino a :Person ; rdfs:label "Al Pacino"@en ; :role :stint1 , :stint2 .
:deniro a :Person ; rdfs:label "Robert De Niro"@en .
:smith a :Person ; rdfs:label "Will Smith"@en .
:foxx a :Person ; rdfs:label "Jamie Foxx"@en .
:cruise a :Person ; rdfs:label "Tom Cruise"@en .
:stint1 :at :studio ; :stint.from "1990"^^xsd:gYear ; :stint.to "1999"^^xsd:gYear .
:stint2 :at :theatre ; :stint.from "2003-04-01"^^xsd:date .
:lux :town :paris ; :seats "1000" ; :opened "1912-05-01" ; :hall [ :rows "9.5" ] ; :code "12" .
:max :town :paris ; :seats "80" ; :opened "1921-01-31" ; :hall [ :rows "-3" ] ; :code "7b" .
:rex :town :paris ; :seats "999" ; :opened "1932-12-08" ; :hall [ :rows "10" ] ; :code "9" .
:plaza :town :nice ; :fee :fee1 ; :tariff :high . :fee1 rdfs:label "5 EUR" ; :amount 5 .
:strand :town :nice ; :fee :fee2 ; :tariff :high . :fee2 rdfs:label "7 EUR" ; :amount 7 .
:high rdfs:label "high tariff"@en ; :share 0.3 .
:studio rdfs:label "Actors Studio"@en . :theatre rdfs:label "Circle Theatre"@en .
:director rdfs:label "directed by"@en . :star rdfs:label "starring"@en .
"""


@pytest.fixture(scope="module")
def stores(tmp_path_factory, request):
    """The same graph in both stores."""
    with ExitStack() as opened:
        catalog = loaded(opened, tmp_path_factory.mktemp("home"), "films", TURTLE)
        endpoint, server = served(opened, TURTLE)
        yield {"embedded": catalog.get("films"), "endpoint": endpoint, "server": server}


@pytest.fixture(params=["embedded", "endpoint", pytest.param("virtuoso", marks=pytest.mark.integration)])
def store(request, stores, tmp_path_factory) -> GraphStore:
    if request.param == "virtuoso" and "virtuoso" not in stores:
        server = request.getfixturevalue("virtuoso")
        file = tmp_path_factory.mktemp("graph") / "graph.ttl"
        file.write_text(TURTLE)
        server.load(file, f"{EX}films")
        at = Endpoint(server.url, (f"{EX}films",), ServerKind.VIRTUOSO, deadline_s=60)
        stores["virtuoso"] = EndpointStore(at, version="v1")
    return stores[request.param]


def form(text):
    """A form in which `:name` stands for an IRI."""
    return parse_s_expression(text.replace(":", EX).replace(f"^^{EX}", "^^xsd:"))


def short(id_):
    return "_" if id_.startswith(("_:", "nodeID:")) else id_.removeprefix(EX)


def members(store, text, **options):
    page = store.members(form(text), limit=99, **options)
    assert page.total == len(page.items)
    return [short(item.id) for item in page.items]


MANNS = "(JOIN :director :mann)"
FORMS = {
    "(JOIN (R :director) :heat)": ["mann"],
    MANNS: ["ali", "collateral", "heat", "miami"],
    ":Film": ["ali", "collateral", "heat", "heat72", "miami"],
    "(JOIN (R :star) (JOIN :director :mann))": ["pacino", "foxx", "deniro", "cruise", "smith"],
    # Back to the topic, which is left out on the way, too.
    "(JOIN :director (JOIN (R :director) :heat))": ["ali", "collateral", "miami"],
    "(JOIN (R :star) (JOIN :director (JOIN (R :director) :heat)))": ["foxx", "cruise", "smith"],
    "(JOIN :director (JOIN (R :director) (JOIN :director (JOIN (R :director) :heat))))": [
        *("ali", "collateral", "miami"),
    ],
    "(JOIN (R :likes) :mann)": ["heat"],
    f"(AND {MANNS} (JOIN :star :foxx))": ["ali", "collateral", "miami"],
    f"(AND (JOIN :star :foxx) (AND {MANNS} (JOIN :star :smith)))": ["ali"],
    f"(AND {MANNS} (JOIN :star (JOIN :role (JOIN :at :studio))))": ["heat"],
    f"(AND :Remake {MANNS})": ["miami"],
    "(AND :Remake :Film)": ["miami"],
    f"(AND {MANNS} (gt :minutes 120))": ["ali", "heat", "miami"],
    f"(AND {MANNS} (le :minutes 157))": ["ali", "collateral"],
    f"(AND (lt :released 2001-12-25^^:date) {MANNS})": ["heat"],
    f"(AND {MANNS} (ge :released 2001-12-25^^:date))": ["ali", "collateral"],
    f"(AND {MANNS} (gt (JOIN :gross :dollars) 100))": ["heat"],
    f"(AND {MANNS} (gt :minutes long))": [],
    f"(ARGMAX {MANNS} :minutes)": ["heat", "miami"],
    f"(ARGMIN {MANNS} :minutes)": ["collateral"],
    f"(ARGMAX {MANNS} :released)": ["collateral"],
    f"(ARGMIN {MANNS} (JOIN :gross :dollars))": ["ali"],
    "(ARGMAX :Person :minutes)": [],
    # The topic is no candidate where a join would lead to it, and is one as a member of a class.
    "(ARGMIN (JOIN :director (JOIN (R :director) :heat)) :released)": ["ali"],
    "(AND (ARGMAX :Film :minutes) (JOIN :star :foxx))": ["miami"],
    "(JOIN (R :star) (ARGMAX (JOIN :director (JOIN (R :director) :heat)) :minutes))": ["foxx"],
    "(JOIN (R :at) (TC (JOIN (R :role) :pacino) :stint.from 1995))": ["studio"],
    "(TC (JOIN (R :role) :pacino) :stint.to 1999)": ["stint1"],
    "(TC (JOIN (R :role) :pacino) :stint.from 2003)": ["stint2"],
    "(TC (JOIN (R :role) :pacino) :stint.from NOW)": ["stint2"],
    f"(TC {MANNS} :stint.from 1995)": ["ali", "collateral", "heat", "miami"],
    # Nodes without a name on the way.
    f"(JOIN (R :dollars) (JOIN (R :gross) {MANNS}))": [
        f'"187.4"^^<{XSD}decimal>',
        f'"87.7"^^<{XSD}decimal>',
    ],
    "(JOIN :gross (JOIN :dollars 87.7^^:decimal))": ["ali"],
    "(JOIN (R :gross) :heat)": ["_"],
    # Names: shared by two entities, a relation's label, a literal's text, unknown ones.
    "(JOIN (R :director) Heat)": ["mann", "morrissey"],
    "(JOIN :director (JOIN (R :director) Heat))": ["ali", "collateral", "miami"],
    "(AND (JOIN (R :likes) `Michael Mann`) (JOIN `directed by` :mann))": ["heat"],
    "(JOIN :minutes 170)": ["heat", "miami"],
    # Texts that are written like numbers or dates, if all of a relation's are.
    "(ARGMAX (JOIN :town :paris) :seats)": ["lux"],
    "(ARGMIN (JOIN :town :paris) :seats)": ["max"],
    "(ARGMAX (JOIN :town :paris) (JOIN :hall :rows))": ["rex"],
    "(ARGMIN (JOIN :town :paris) :opened)": ["lux"],
    "(ARGMAX (ARGMAX (JOIN :town :paris) :seats) :opened)": ["lux"],
    "(AND (JOIN :town :paris) (gt :seats 99))": ["lux", "rex"],
    "(AND (JOIN :town :paris) (le (JOIN :hall :rows) 9.5^^:decimal))": ["lux", "max"],
    "(AND (JOIN :town :paris) (lt :opened 1921-01-31^^:date))": ["lux"],
    "(JOIN (R :director) :nothing)": [],
    "(JOIN (R :director) `no such film`)": [],
    f"(AND {MANNS} (JOIN :star nobody))": [],
    ":Nothing": [],
    "(JOIN :nothing :heat)": [],
    "(JOIN `no such relation` :heat)": [],
    f"(ARGMAX {MANNS} `no such relation`)": [],
    f"(AND {MANNS} (gt :nothing 1))": [],
    f"(TC {MANNS} `no such.from` 1995)": ["ali", "collateral", "heat", "miami"],
}


@pytest.mark.parametrize("text", FORMS)
def test_worked_members(store, text):
    assert members(store, text) == FORMS[text]


@pytest.mark.parametrize("name", ["embedded", "endpoint"])  # Virtuoso orders days and years
def test_a_day_is_neither_before_nor_after_a_year(stores, name):
    assert members(stores[name], f"(AND {MANNS} (gt :released 1990^^:gYear))") == []


@pytest.mark.parametrize("name", ["embedded", "endpoint"])  # Virtuoso compares anything
def test_a_number_is_not_compared_with_texts_of_which_only_some_are_numbers(stores, name):
    assert members(stores[name], "(AND (JOIN :town :paris) (gt :code 8))") == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("(JOIN :director (JOIN (R :director) :heat))", ["ali", "collateral", "heat", "miami"]),
        ("(JOIN (R :likes) :mann)", ["heat", "mann"]),
        ("(ARGMAX (JOIN :director (JOIN (R :director) :heat)) :minutes)", ["heat", "miami"]),
        ("(JOIN :director (JOIN (R :director) Heat))", ["ali", "collateral", "heat", "heat72", "miami"]),
    ],
)
def test_a_form_may_come_back_to_its_topics(store, text, expected):
    assert members(store, text, returning=True) == expected


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("(gt :minutes 120)", "a comparison selects from a set"),
        ("(AND (gt :minutes 120) (lt :minutes 160))", "a comparison selects from a set"),
        ("(JOIN (R :star) (gt :minutes 120))", "a comparison selects from a set"),
        ("(AND :Film (JOIN :star (le :minutes 1)))", "a comparison selects from a set"),
        ("(COUNT :Film)", "COUNT has no members"),
        ("(AND :Film (COUNT :Film))", "COUNT has no members"),
        ("(ASK :Film :heat)", "ASK has no members"),
        ("(AND :Film (ASK :Film :heat))", "ASK has no members"),
        ("(TC :Film :stint.at 1995)", "begins or ends no interval"),
    ],
)
def test_what_has_no_members_to_list(store, text, message):
    with pytest.raises(LogicalFormError, match=message):
        store.members(form(text), limit=9)
    with pytest.raises(LogicalFormError, match=message):
        store.survey(form(text))


@pytest.mark.parametrize("text", FORMS)
def test_a_form_contains_its_members_and_nothing_else(store, text):
    described = form(text)
    found = {item.id for item in store.members(described, limit=99).items}
    for name in ("heat", "heat72", "miami", "mann", "pacino", "lux", "stint2"):
        assert store.contains(described, Entity(EX + name)) is (EX + name in found)


@pytest.mark.parametrize(
    ("text", "holds"),
    [
        # A label that two entities share stands for both.
        (f"(ASK {MANNS} Heat)", True),
        ("(ASK (JOIN :director :morrissey) Heat)", True),
        ("(ASK (JOIN :star :foxx) Heat)", False),
        ("(ASK (JOIN (R :minutes) :heat) 170)", True),
        ("(ASK (JOIN (R :minutes) :heat) 170^^:integer)", True),
        ("(ASK (JOIN (R :minutes) :heat) 171^^:integer)", False),
        (f"(ASK {MANNS} `no such film`)", False),
        ("(ASK (JOIN :director `no such person`) :heat)", False),
        # The set comes back to its topic only if that is wanted.
        ("(ASK (JOIN :director (JOIN (R :director) :heat)) :heat)", False),
    ],
)
def test_worked_questions_of_membership(store, text, holds):
    asked = form(text)
    assert store.contains(asked.source, asked.node) is holds


def test_a_set_that_comes_back_to_its_topic_contains_it(store):
    asked = form("(ASK (JOIN :director (JOIN (R :director) :heat)) :heat)")
    assert store.contains(asked.source, asked.node, returning=True)


def test_members_are_paged_in_the_order_of_labels(store):
    page = store.members(form(":Person"), limit=2, offset=1)
    assert ([item.label for item in page.items], page.total) == (["Jamie Foxx", "Michael Mann"], 7)
    assert store.members(form(":Person"), limit=0) == Page((), 7)


def told(survey):
    """A survey without namespaces and blank nodes' names."""

    def path(items):
        return tuple(short(item.id) for item in items)

    return {
        "out": path(survey.out),
        "into": path(survey.into),
        "intervals": path(survey.intervals),
        "classes": [(short(kind.id), count) for kind, count in survey.classes],
        "attributes": [
            (path(one.path), one.datatype.removeprefix(XSD), one.least.key, one.greatest.key, one.members)
            for one in survey.attributes
        ],
        "bonds": {
            short(topic): [
                (
                    tuple(("^" if inverse else "") + short(item.id) for item, inverse in bond.path),
                    bond.members,
                )
                for bond in bonds
            ]
            for topic, bonds in survey.bonds.items()
        },
    }


TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"


def test_a_survey_tells_what_the_members_can_be_continued_by(store):
    found = told(store.survey(form(MANNS), [f"{EX}foxx", "Heat", "Al Pacino", "nobody"]))
    # Labels are no joins.
    assert found["out"] == ("director", "gross", "minutes", "released", TYPE, "star")
    assert found["into"] == ("likes",)
    assert found["classes"] == [("Film", 4), ("Remake", 1)]
    assert [one[:2] + one[4:] for one in found["attributes"]] == [
        (("gross", "dollars"), "decimal", 2),
        (("minutes",), "integer", 4),
        (("released",), "date", 3),
    ]
    assert [one[2:4] for one in found["attributes"]][:2] == [(87.7, 187.4), (120, 170)]
    assert found["bonds"]["foxx"] == [(("star",), 3)]
    assert found["bonds"]["Al Pacino"] == [(("star",), 1)]
    assert found["bonds"]["nobody"] == []
    # The two films of that name are not members themselves, and share values with those that are.
    assert found["bonds"]["Heat"] == [(("minutes", "^minutes"), 1)]


def test_a_survey_of_entities(store):
    found = told(store.survey([f"{EX}mann"]))
    assert (found["out"], found["into"]) == (("likes", TYPE), ("director", "likes"))
    assert (found["classes"], found["bonds"]) == ([("Person", 1)], {})
    both = told(store.survey([f"{EX}pacino", f"{EX}nothing"]))
    assert (both["out"], both["intervals"]) == (("role", TYPE), ())
    assert [one[0] for one in both["attributes"]] == [("role", "stint.from"), ("role", "stint.to")]
    assert told(store.survey([f"{EX}nothing"])) == told(store.survey([]))


def test_values_of_a_part_are_those_of_what_it_belongs_to_though_it_has_a_name(store):
    found = told(store.survey(form("(JOIN :town :nice)")))["attributes"]
    assert found == [(("fee", "amount"), "integer", 5, 7, 2)]  # both have the same tariff


def test_texts_that_are_written_like_numbers_or_dates_are_values(store):
    found = told(store.survey(form("(JOIN :town :paris)")))["attributes"]
    assert [(path, datatype, members) for path, datatype, _, _, members in found] == [
        (("hall", "rows"), "decimal", 3),
        (("opened",), "date", 3),
        (("seats",), "decimal", 3),
    ]
    assert [(least, greatest) for _, datatype, least, greatest, _ in found if datatype == "decimal"] == [
        (-3, 10),
        (80, 1000),
    ]
    of = {
        name: store.written_as(f"{EX}{name}") for name in ("seats", "opened", "code", "minutes", "star", "no")
    }
    assert of == dict.fromkeys(of) | {"seats": f"{XSD}decimal", "opened": f"{XSD}date"}


def test_intervals_are_the_relations_that_begin_them(store):
    found = told(store.survey(form("(JOIN (R :role) :pacino)"), [f"{EX}studio"]))
    assert found["intervals"] == ("stint.from",)
    assert found["bonds"]["studio"] == [(("at",), 1)]


SURVEYED = [text for text, found in FORMS.items() if found]


@pytest.mark.parametrize("text", SURVEYED)
@pytest.mark.parametrize("returning", [False, True])
def test_both_stores_tell_the_same(stores, text, returning):
    topics = [f"{EX}foxx", "Heat", f"{EX}mann"]
    one, other = (
        told(stores[name].survey(form(text), topics, returning=returning))
        for name in ("embedded", "endpoint")
    )
    assert one == other
    assert members(stores["embedded"], text, returning=returning) == members(
        stores["endpoint"], text, returning=returning
    )


def test_an_endpoint_is_asked_a_few_short_questions(stores):
    requests = stores["server"].requests
    with ExitStack() as opened:
        labels = (RDFS_LABEL, FREEBASE_NAME)  # attaching keeps those that the graph has
        store = attached(opened, Endpoint(stores["server"].url, labels=labels, deadline_s=60))
        before = len(requests)
        store.survey(form("(JOIN (R :star) (JOIN :director :mann))"), [f"{EX}heat"])
        assert len(requests) - before <= 14
        assert max(len(request["query"]) for request in requests[before:]) < 5000


def test_a_query_that_takes_too_long_is_given_up(stores):
    with ExitStack() as opened:
        store, slow = served(opened, "", deadline_s=0.3)
        slow.answer_with(lambda request: None)
        with pytest.raises(QueryTimeoutError):
            store.members(form(":Film"), limit=9)
