"""What evidence says, held against a graph."""

from __future__ import annotations

from contextlib import closing

import pytest

from kbqa.evidence import Claims, FollowedPath, Query
from kbqa.kg.actions import ErrorCode, ErrorKind, Failure
from kbqa.kg.catalog import FixedGraphs, GraphCatalog
from kbqa.kg.changes.batch import Batch
from kbqa.kg.changes.graph_changes import GraphChanges
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools

TRIPLES = [
    ("Big", "starred", "Tom Hanks"),
    ("Big", "starred", "Elizabeth Perkins"),
    ("Big", "directed by", "Penny Marshall"),
    ("Philadelphia", "starred", "Tom Hanks"),
    ("Tom Hanks", "born in", "Concord"),
]
FILMS = LocalGraphTools(FixedGraphs({"films": OxigraphStore.from_triples(TRIPLES)}))
STARRED = ("Big", "starred", "Tom Hanks")
STARS = "SELECT ?who WHERE { ?film <urn:kbqa:r:starred> ?who }"


@pytest.fixture
def claims():
    return Claims(FILMS, "films")


@pytest.fixture
def labelled(tmp_path):
    """A graph whose entities have labels, two of them the same."""
    label = "<http://www.w3.org/2000/01/rdf-schema#label>"
    lines = [
        f'<http://x/big> {label} "Big" .',
        f'<http://x/a1> {label} "Tom" .',
        f'<http://x/a2> {label} "Tom" .',
        f'<http://x/star> {label} "star" .',
        "<http://x/big> <http://x/star> <http://x/a1> .",
        "<http://x/big> <http://x/star> <http://x/a2> .",
    ]
    file = tmp_path / "graph.nt"
    file.write_text("\n".join(lines) + "\n")
    catalog = GraphCatalog(tmp_path)
    catalog.load("labelled", file)
    yield Claims(LocalGraphTools(catalog), "labelled")
    catalog.close()


def test_evidence_names_the_versions_on_which_it_was_confirmed(tmp_path):
    (tmp_path / "films.txt").write_text("".join("|".join(triple) + "\n" for triple in TRIPLES))
    with closing(GraphCatalog(tmp_path, recheck_s=0)) as catalog:
        loaded = catalog.load("films", tmp_path / "films.txt")
        claims = Claims(LocalGraphTools(catalog), "films")
        assert settled(claims, [STARRED]) == [[STARRED]]
        assert claims.versions == [loaded.version]
        batch = Batch(deleted=frozenset({TRIPLES[1]}))
        changed = GraphChanges(catalog).change("films", lambda shown, store: batch)
        assert settled(claims, [TRIPLES[1]]) == [None]
        assert claims.versions == [loaded.version, changed.version]


def settled(claims, *chains):
    """What the graph makes of chains that were claimed."""
    for chain in chains:
        claims.chain(chain)
    while claims.settle():
        for chain in chains:
            claims.chain(chain)
    return [claims.chain(chain) for chain in chains]


def test_a_triple_of_the_graph_may_be_cited(claims):
    assert settled(claims, [STARRED, ("Tom Hanks", "born in", "Concord")]) == [
        [STARRED, ("Tom Hanks", "born in", "Concord")]
    ]


@pytest.mark.parametrize(
    "triple",
    [
        ("Big", "starred", "Penny Marshall"),
        ("Tom Hanks", "starred", "Big"),
        ("Big", "born in", "Tom Hanks"),
        ("Bog", "starred", "Tom Hanks"),
        ("Big", "sang", "Tom Hanks"),
    ],
)
def test_what_is_not_in_the_graph_may_not_nor_what_it_is_part_of(claims, triple):
    assert settled(claims, [STARRED, triple], [STARRED]) == [None, [STARRED]]


def test_no_triples_are_no_evidence(claims):
    assert claims.chain([]) is None
    assert not claims.settle()


def test_labels_become_ids_where_only_one_thing_is_meant(labelled):
    cited = ("http://x/big", "http://x/star", "http://x/a1")
    assert settled(labelled, [("Big", "star", "http://x/a1")]) == [[cited]]
    assert settled(labelled, [("Big", "star", "Tom")]) == [None]


def test_until_the_graph_is_asked_a_claim_counts_and_afterwards_it_does_not_without_it(claims):
    assert claims.chain([STARRED]) == [STARRED]
    claims.close()
    assert claims.chain([STARRED]) is None
    assert claims.rows(Query("SELECT ?x {}"), "x") is None
    assert claims.verdict(Query("ASK {}"), True) is None


def query_for(store_query):
    """`STARS` in the graph's own names."""
    from kbqa.kg.naming import relation_iri

    return store_query.replace("urn:kbqa:r:starred", relation_iri("starred"))


def test_a_query_is_cited_with_the_rows_that_hold_the_answer(claims):
    query = Query(query_for(STARS))
    claims.rows(query, "Tom Hanks")
    assert claims.settle()
    evidence = claims.rows(query, "Tom Hanks")
    assert evidence.sparql == query.text
    assert [row["who"]["id"] for row in evidence.rows] == ["Tom Hanks", "Tom Hanks"]
    assert claims.rows(query, "Penny Marshall") is None


def test_a_query_that_fails_supports_nothing(claims):
    query = Query("SELECT nonsense")
    claims.rows(query, "Tom Hanks")
    assert claims.settle()
    assert claims.rows(query, "Tom Hanks") is None


def test_an_ask_supports_what_it_says_and_not_the_contrary(claims):
    query = Query(query_for("ASK { ?film <urn:kbqa:r:starred> ?who }"))
    claims.verdict(query, True)
    assert claims.settle()
    evidence = claims.verdict(query, True)
    assert (evidence.sparql, evidence.rows, evidence.boolean) == (query.text, [], True)
    assert claims.verdict(query, False) is None


@pytest.mark.parametrize("count", [False, True])
def test_a_logical_form_is_cited_as_the_query_that_it_is(claims, count):
    form = "(JOIN (R starred) Big)"
    query = Query(f"(COUNT {form})" if count else form, is_form=True)
    answer = '"2"^^<http://www.w3.org/2001/XMLSchema#integer>' if count else "Tom Hanks"
    claims.rows(query, answer)
    assert claims.settle()
    evidence = claims.rows(query, answer)
    assert evidence.sparql.upper().startswith(("SELECT", "PREFIX"))
    assert [row["x"]["id"] for row in evidence.rows] == [answer]
    assert claims.rows(query, "Penny Marshall") is None


def test_everything_that_is_asked_is_counted(claims):
    settled(claims, [STARRED])
    assert claims.kg_calls == 3


def test_a_graph_that_could_not_answer_is_told_from_one_that_denies(claims):
    class Overloaded:
        def execute(self, kg, actions, *, graph=None):
            return [Failure(ErrorCode.SERVER_ERROR, ErrorKind.OVERLOADED, "too much") for _ in actions]

    assert settled(claims, [("Big", "starred", "Nobody")]) == [None]
    assert claims.unreached is None
    silent = Claims(Overloaded(), "films")
    assert settled(silent, [STARRED]) == [None]
    assert silent.unreached == "too much"


def test_what_triples_share_is_looked_at_once(claims):
    other = ("Big", "starred", "Elizabeth Perkins")
    assert settled(claims, [STARRED], [other]) == [[STARRED], [other]]
    assert claims.kg_calls == 4


def test_the_way_to_a_late_end_of_a_path_is_asked_for_and_confirmed():
    triples = [("hub", "links", f"n{n:03}") for n in range(120)]
    triples += [(f"n{n:03}", "on", f"m{n:03}") for n in range(120)]
    tools = LocalGraphTools(FixedGraphs({"hub": OxigraphStore.from_triples(triples)}))
    claims = Claims(tools, "hub")
    walk = FollowedPath("hub", ("links", "on"))
    ends = {"m061": 61, "m099": 99, "m110": 110, "m200": 119}
    while True:
        ways = {end: claims.way(walk, place, end) for end, place in ends.items()}
        if not claims.settle():
            break
    assert ways.pop("m200") is None
    assert ways == {end: [("hub", "links", f"n{end[1:]}"), (f"n{end[1:]}", "on", end)] for end in ways}
    # Two parts of the ends; what the hub has and where it leads, once; and of each of three ways four more.
    assert claims.kg_calls == 2 + 2 + 3 * 4
    claims.close()
    assert claims.way(FollowedPath("hub", ("links",)), 3, "n003") is None
