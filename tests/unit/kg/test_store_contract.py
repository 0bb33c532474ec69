"""What every `GraphStore` of RDF does: embedded, after changes, at an endpoint, and at a real Virtuoso."""

from __future__ import annotations

import json
from collections.abc import Callable

import pyoxigraph as ox
import pytest

from kbqa.errors import QueryRefusedError, QuerySyntaxError, QueryTimeoutError
from kbqa.kg.actions import Item
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.changes.batch import Batch, read_triples
from kbqa.kg.changes.graph_changes import GraphChanges
from kbqa.kg.endpoint.record import Endpoint, ServerKind
from kbqa.kg.endpoint.store import EndpointStore
from kbqa.kg.sparql.guard import ResultFormat
from kbqa.kg.store import GraphStore, Page, PathStep
from tests.sparql_servers import SparqlServer

EX = "http://ex.org/"
XSD = "http://www.w3.org/2001/XMLSchema#"
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
LONG = "long " * 3000
WINDOW, HUB_DEGREE = 100, 150  # more than a look-up fetches whole
BOMB = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l FILTER(?c != ?f && ?i != ?l) }"

TURTLE = f"""
@prefix : <{EX}> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> . @prefix xsd: <{XSD}> .
:paris a :City ; rdfs:label "Paris"@fr, "City of Light"@en ; :in :france ; :population 2100000 .
:paris_tx a :City ; rdfs:label "City of Light" ; :in :texas .
:france rdfs:label "République française"@fr , "Француска"@sr .
:in rdfs:label "located in" .
:x :note "Paris"@fr , "Paris" ; :knows [ :note "nobody" ] .
:dated :on "2015-08-10T00:00:00Z"^^xsd:dateTime , "2015-08-10"^^xsd:date , "2015"^^xsd:gYear .
:odd :note "Köln 😀" , "quote \\" back \\\\ line \\n tab \\t" , "e\\u0301" , "é" , "{LONG}" .
:odd :size 1.5 , true .
<{EX}Caf\\u00e9_(x),'y'> :in :france .
<{EX}a%20b?q=1&r=2#f> :in :france ; rdfs:label "a b" .
""" + "".join(f':hub :links :n{n} . :n{n} rdfs:label "node {n:05}"@en .\n' for n in range(HUB_DEGREE))


def e(name: str) -> str:
    return EX + name


def ids(page):
    return [item.id for item in page.items]


@pytest.fixture(scope="module")
def make_store(request, tmp_path_factory) -> Callable[[str], GraphStore]:
    """A store of a kind over `TURTLE`, made once."""
    closing: list[Callable[[], None]] = []
    made: dict[str, GraphStore] = {}

    def embedded() -> GraphStore:
        home = tmp_path_factory.mktemp("home")
        (home / "graph.ttl").write_text(TURTLE)
        catalog = GraphCatalog(home)
        closing.append(catalog.close)
        catalog.load("graph", home / "graph.ttl")
        return catalog.get("graph")

    def changed() -> GraphStore:
        """Loaded from other triples, then changed to those of `TURTLE` in two batches."""
        quads = list(ox.parse(TURTLE, format=ox.RdfFormat.TURTLE))
        held_back = [
            quad
            for number, quad in enumerate(quads)
            if number % 3 == 0
            and not isinstance(quad.subject, ox.BlankNode)
            and quad.subject.value != e("in")
            and not isinstance(quad.object, ox.BlankNode)
        ]
        extra = f'<{e("paris")}> <{e("in")}> <{e("spain")}> .\n<{e("hub")}> <{LABEL}> "a hub" .\n'
        lines = [f"{quad.triple} .\n" for quad in quads if quad not in held_back]
        home = tmp_path_factory.mktemp("home")
        (home / "graph.nt").write_text("".join(lines) + extra)
        catalog = GraphCatalog(home)
        closing.append(catalog.close)
        catalog.load("graph", home / "graph.nt")
        half = len(held_back) // 2
        for inserted, deleted in ((held_back[:half], extra), (held_back[half:], "")):
            text = "".join(f"{quad.triple} .\n" for quad in inserted)
            batch = Batch(*(frozenset(read_triples(t, "", named=False)) for t in (text, deleted)))
            GraphChanges(catalog).change("graph", lambda shown, store, batch=batch: batch)
        store = catalog.get("graph")
        assert "+2-" in store.version
        return store

    def endpoint() -> GraphStore:
        server = SparqlServer(TURTLE)
        closing.append(server.stop)
        return remote(Endpoint(server.url, languages=("en", "fr"), deadline_s=60))

    def virtuoso() -> GraphStore:
        server = request.getfixturevalue("virtuoso")
        file = tmp_path_factory.mktemp("graph") / "graph.ttl"
        file.write_text(TURTLE)
        server.load(file, e("graph"))
        graph = (e("graph"),)
        return remote(Endpoint(server.url, graph, ServerKind.VIRTUOSO, languages=("en", "fr"), deadline_s=60))

    def remote(endpoint: Endpoint) -> GraphStore:
        store = EndpointStore(endpoint, version="v1")
        closing.append(store.close)
        return store

    makers = {"embedded": embedded, "changed": changed, "endpoint": endpoint, "virtuoso": virtuoso}

    def make(kind: str) -> GraphStore:
        if kind not in made:
            made[kind] = makers[kind]()
        return made[kind]

    yield make
    for close in reversed(closing):
        close()


@pytest.fixture(autouse=True)
def small_window(monkeypatch):
    monkeypatch.setattr("kbqa.kg.endpoint.reader.WINDOW", WINDOW)


@pytest.fixture(
    params=["embedded", "changed", "endpoint", pytest.param("virtuoso", marks=pytest.mark.integration)]
)
def store(request, make_store) -> GraphStore:
    return make_store(request.param)


def test_an_id_stands_for_itself_and_a_label_for_all_that_bear_it(store):
    assert store.resolve_entity(e("paris")) == (e("paris"),)
    assert {e("paris"), e("paris_tx")} <= set(store.resolve_entity("City of Light"))
    assert e("paris") in store.resolve_entity("Paris")
    assert store.resolve_relation("located in") == (e("in"),)
    assert store.resolve_relation(e("in")) == (e("in"),)


@pytest.mark.parametrize(
    "name",
    [e("nowhere"), "nobody at all", "", '"', '"x', "_:b0", "c d", "> ?p ?o } #", '"x" . <urn:y', "\x00"],
)
def test_what_is_not_in_the_graph_stands_for_nothing(store, name):
    assert store.resolve_entity(name) == ()
    assert store.resolve_relation(name) == ()
    assert store.items([name]) == {}


def test_an_entity_is_no_relation(store):
    assert store.resolve_relation(e("paris")) == ()
    assert store.resolve_relation("City of Light") == ()


def test_relations_of_an_entity_on_both_sides(store):
    page = store.tail_relations([e("paris")], limit=10)
    assert [(item.id, item.label) for item in page.items] == sorted(
        [
            (
                "http://www.w3.org/1999/02/22-rdf-syntax-ns#type",
                "http://www.w3.org/1999/02/22-rdf-syntax-ns#type",
            ),
            (LABEL, LABEL),
            (e("population"), e("population")),
            (e("in"), "located in"),
        ],
        key=lambda pair: (pair[1], pair[0]),
    )
    assert ids(store.head_relations([e("france")], limit=10)) == [e("in")]
    assert store.tail_relations([e("texas")], limit=10).total == 0


def test_the_best_label_is_untagged_then_english_then_any(store):
    found = store.items([e("paris"), e("paris_tx"), e("france"), e("in"), e("x"), e("nowhere")])
    assert {id_: item.label for id_, item in found.items()} == {
        e("paris"): "City of Light",
        e("paris_tx"): "City of Light",
        e("france"): "République française",
        e("in"): "located in",
        e("x"): e("x"),
    }
    assert store.item(e("paris")) == Item(e("paris"), "City of Light")


def test_entities_come_in_the_order_of_labels_and_in_pages(store):
    odd = [e("Café_(x),'y'"), e("a%20b?q=1&r=2#f")]
    everyone = store.head_entities([e("france")], [e("in")], limit=10)
    assert [(item.id, item.label) for item in everyone.items] == [
        (e("paris"), "City of Light"),
        (odd[1], "a b"),
        (odd[0], odd[0]),
    ]
    assert everyone.total == 3
    part = store.head_entities([e("france")], [e("in")], limit=1, offset=1)
    assert (ids(part), part.total) == ([odd[1]], 3)


def test_iris_with_odd_characters_are_accepted_back(store):
    for odd in (e("Café_(x),'y'"), e("a%20b?q=1&r=2#f")):
        assert store.resolve_entity(odd) == (odd,)
        assert ids(store.tail_entities([odd], [e("in")], limit=10)) == [e("france")]


def test_several_entities_and_relations_mean_their_union(store):
    both = store.tail_entities([e("paris"), e("paris_tx")], [e("in"), e("population")], limit=10)
    assert set(ids(both)) == {e("france"), e("texas"), f'"2100000"^^<{XSD}integer>'}
    assert both.total == 3


def test_a_literal_s_id_tells_language_and_type_and_is_accepted_back(store):
    page = store.tail_entities([e("x")], [e("note")], limit=10)
    assert page.items == (Item('"Paris"', "Paris"), Item('"Paris"@fr', "Paris"))
    assert ids(store.head_entities(['"Paris"'], [e("note")], limit=10)) == [e("x")]
    assert ids(store.head_entities(['"Paris"@fr'], [e("note")], limit=10)) == [e("x")]
    assert store.resolve_entity('"Paris"@fr') == ('"Paris"@fr',)
    assert store.item('"Paris"@fr') == Item('"Paris"@fr', "Paris")


def test_dates_and_numbers_are_accepted_back(store):
    for relation in ("on", "size"):
        for item in store.tail_entities([e("dated"), e("odd")], [e(relation)], limit=10).items:
            assert store.resolve_entity(item.id) == (item.id,), item
            assert store.head_entities([item.id], [e(relation)], limit=10).total == 1, item
    [number] = store.tail_entities([e("paris")], [e("population")], limit=10).items
    assert number == Item(f'"2100000"^^<{XSD}integer>', "2100000")
    assert store.resolve_entity("2100000") == (number.id,)


def test_texts_come_back_as_they_are(store):
    notes = store.tail_entities([e("odd")], [e("note")], limit=10).items
    expected = {"Köln 😀", 'quote " back \\ line \n tab \t', "e\u0301", "é", LONG}
    assert {item.label for item in notes} == expected
    for item in notes:
        assert ids(store.head_entities([item.id], [e("note")], limit=10)) == [e("odd")]
    result = store.query(f"SELECT ?t {{ <{e('odd')}> <{e('note')}> ?t }}")
    rows = json.loads(result.body)["results"]["bindings"]
    assert {row["t"]["value"] for row in rows} == expected
    assert {row["t"]["type"] for row in rows} == {"literal"}


def test_a_blank_node_is_an_entity(store):
    [node] = store.tail_entities([e("x")], [e("knows")], limit=10).items
    assert node.label == node.id
    result = store.query(f"SELECT ?b {{ <{e('x')}> <{e('knows')}> ?b }}")
    [row] = json.loads(result.body)["results"]["bindings"]
    assert row["b"]["type"] == "bnode"
    if store.resolve_entity(node.id):  # a server may have no way to be asked for it again
        assert store.id_of(row["b"]) == node.id
        assert ids(store.tail_entities([node.id], [e("note")], limit=10)) == ['"nobody"']
        assert ids(store.head_entities([node.id], [e("knows")], limit=10)) == [e("x")]


def test_a_hub_is_paged_in_the_order_of_labels(store):
    assert ids(store.tail_relations([e("hub")], limit=10)) == [e("links")]
    for offset in (0, 70, HUB_DEGREE - 2):
        page = store.tail_entities([e("hub")], [e("links")], limit=3, offset=offset)
        numbers = range(offset, min(offset + 3, HUB_DEGREE))
        assert page.items == tuple(Item(e(f"n{n}"), f"node {n:05}") for n in numbers)
        assert page.total == HUB_DEGREE
    assert store.tail_entities([e("hub")], [e("links")], limit=3, offset=HUB_DEGREE).items == ()


IN, BACK = PathStep((e("in"),)), PathStep((e("in"),), inverse=True)


def test_a_path_is_followed_over_sets(store):
    odd = [e("a%20b?q=1&r=2#f"), e("Café_(x),'y'")]
    walk = store.follow([e("paris")], [IN, BACK], limit=10)
    assert [item.label for item in walk.ends.items] == ["a b", odd[1]]
    assert (ids(walk.ends), walk.ends.total, walk.complete) == (odd, 2, True)
    assert walk.vias == ((e("paris"), e("france")),) * 2
    assert {item.id: item.label for item in walk.out} == {e("in"): "located in", LABEL: LABEL}
    assert walk.into == ()
    again = store.follow([e("paris")], [IN, BACK], limit=1, offset=1, returning=True)
    assert (ids(again.ends), again.ends.total) == ([odd[0]], 3)
    assert again.vias == ((e("paris"), e("france")),)


def test_a_path_without_steps_stays_where_it_is(store):
    walk = store.follow([e("paris_tx"), e("france"), e("nowhere")], [], limit=1, offset=1)
    assert (ids(walk.ends), walk.ends.total, walk.vias) == ([e("france")], 2, ((),))
    assert [item.id for item in walk.into] == [e("in")]
    assert {item.id for item in walk.out} >= {LABEL, e("in")}
    at_literal = store.follow(['"Paris"@fr'], [], limit=9)
    assert (ids(at_literal.ends), at_literal.out) == (['"Paris"@fr'], ())
    assert {item.id for item in at_literal.into} == {LABEL, e("note")}


def test_a_path_that_only_comes_back_ends_at_its_start(store):
    assert ids(store.follow([e("paris_tx")], [IN, BACK], limit=9).ends) == [e("paris_tx")]
    walk = store.follow([e("paris_tx")], [IN, BACK, IN], limit=9)
    assert (ids(walk.ends), walk.vias) == ([e("texas")], ((e("paris_tx"), e("texas"), e("paris_tx")),))
    both = store.follow([e("paris_tx"), e("paris")], [IN, BACK, IN], limit=9)
    assert ids(both.ends) == [e("france")]


def test_a_path_goes_through_literals_and_by_several_relations(store):
    noted = PathStep((e("note"), LABEL))
    walk = store.follow([e("x")], [noted, PathStep((e("note"), LABEL), inverse=True)], limit=9)
    assert (ids(walk.ends), walk.vias) == ([e("paris")], ((e("x"), '"Paris"@fr'),))
    start = store.follow(['"Paris"@fr'], [PathStep((e("note"), LABEL), inverse=True)], limit=9)
    assert ids(start.ends) == [e("paris"), e("x")]
    assert start.vias == (('"Paris"@fr',),) * 2
    assert store.follow(['"Paris"'], [PathStep((e("note"),), inverse=True)], limit=9).vias == (('"Paris"',),)


def test_a_path_from_several_starts_tells_from_which(store):
    walk = store.follow([e("paris"), e("paris_tx")], [IN], limit=9)
    assert dict(zip(ids(walk.ends), walk.vias, strict=True)) == {
        e("france"): (e("paris"),),
        e("texas"): (e("paris_tx"),),
    }


def test_a_literal_among_the_starts_of_a_path_has_no_relation_to_follow(store):
    walk = store.follow(['"Paris"@fr', e("paris")], [IN], limit=9)
    assert (ids(walk.ends), walk.vias) == ([e("france")], ((e("paris"),),))


def test_a_path_goes_through_blank_nodes(store):
    walk = store.follow([e("x")], [PathStep((e("knows"),)), PathStep((e("note"),))], limit=9)
    [[start, between]] = walk.vias
    assert (ids(walk.ends), start, between.startswith(("_:", "nodeID:"))) == (['"nobody"'], e("x"), True)


def test_a_path_to_nowhere_finds_nothing(store):
    assert store.follow([e("paris")], [IN, IN], limit=9).ends == Page((), 0)
    assert store.follow([e("nowhere")], [IN], limit=9).ends == Page((), 0)
    assert store.follow(['"Paris"@fr'], [IN], limit=9).ends == Page((), 0)
    assert store.follow([e("paris")], [PathStep((e("paris"),))], limit=9).ends == Page((), 0)
    assert store.follow([e("paris")], [], limit=0).ends == Page((), 1)


def test_a_path_to_a_hub_is_paged(store):
    walk = store.follow(
        [e("n7")], [PathStep((e("links"),), inverse=True), PathStep((e("links"),))], limit=3, offset=6
    )
    assert [item.label for item in walk.ends.items] == ["node 00006", "node 00008", "node 00009"]
    assert (walk.ends.total, walk.vias) == (HUB_DEGREE - 1, ((e("n7"), e("hub")),) * 3)


def test_the_schema_is_listed(store):
    relations = {item.id: item.label for item in store.relations()}
    assert relations[e("in")] == "located in"
    assert set(relations) == {
        "http://www.w3.org/1999/02/22-rdf-syntax-ns#type",
        LABEL,
        *map(e, ("in", "population", "note", "knows", "on", "size", "links")),
    }
    assert store.types() == [Item(e("City"), e("City"))]
    assert "http://www.w3.org/1999/02/22-rdf-syntax-ns#type" in store.type_relations


def test_some_nodes_that_have_a_relation(store):
    assert set(store.holders(e("population"), limit=9)) == {e("paris")}
    assert set(store.holders(e("in"), inverse=True, limit=9)) == {e("france"), e("texas")}
    tails = store.holders(e("links"), inverse=True, limit=9)
    assert 1 < len(set(tails)) == len(tails) <= 9
    assert set(tails) <= {e(f"n{number}") for number in range(HUB_DEGREE)}
    assert not store.holders(e("links_to_nothing"), limit=9)


def test_neighbours_on_both_sides(store):
    near = store.adjacent([e("france"), e("texas")])
    assert {e("paris"), e("paris_tx")} <= near
    assert '"République française"@fr' in near
    assert len(store.adjacent([e("hub")])) == HUB_DEGREE
    assert store.adjacent([e("nowhere"), "nobody"]) == frozenset()


def test_a_question_names_its_entities(store):
    question = "Is the City of Light, or Node 00042, in France?"
    mentions = store.link(question)
    assert {(m.id, question[m.start : m.end]) for m in mentions} >= {
        (e("paris"), "City of Light"),
        (e("paris_tx"), "City of Light"),
        (e("n42"), "Node 00042"),
    }
    assert store.link("who is that?") == []


def test_a_name_is_completed_unless_the_graph_is_at_an_endpoint(store):
    found = [(item.id, item.label) for item in store.complete("City of L", limit=9)]
    expected = [(e("paris"), "City of Light"), (e("paris_tx"), "City of Light")]
    assert sorted(found) == ([] if store.is_remote else expected)
    assert len(store.complete("node", limit=3)) == (0 if store.is_remote else 3)
    assert store.complete("nowhere to be", limit=9) == []


def test_terms_are_written_so_that_queries_find_them(store):
    for id_ in (e("paris"), '"Paris"@fr', '"quote \\" back \\\\ line \\n tab \\t"', f'"2015"^^<{XSD}gYear>'):
        asked = store.query(
            f"ASK {{ {{ ?s ?p {store.entity_term(id_)} }} UNION {{ <{e('paris')}> ?p ?o }} }}"
        )
        assert json.loads(asked.body)["boolean"] is True
    assert store.relation_term(e("in")) == f"<{e('in')}>"


def test_ask_select_construct_and_describe(store):
    assert json.loads(store.query("ASK { ?s <urn:no> ?o }").body)["boolean"] is False
    none = store.query("SELECT ?s { ?s <urn:no> ?o }")
    assert json.loads(none.body) == {"head": {"vars": ["s"]}, "results": {"bindings": []}}
    assert (none.rows, none.truncated) == (0, False)
    graph = store.query(f"CONSTRUCT WHERE {{ ?s <{e('population')}> ?o }}")
    assert graph.format is ResultFormat.NTRIPLES
    [quad] = ox.parse(graph.body, format=ox.RdfFormat.N_TRIPLES)
    assert str(quad.object) == f'"2100000"^^<{XSD}integer>'
    assert store.query("CONSTRUCT WHERE { ?s <urn:no> ?o }").rows == 0
    assert store.query(f"DESCRIBE <{e('paris_tx')}>").rows == 3


@pytest.mark.parametrize(
    ("format", "expected"),
    [
        (ResultFormat.CSV, b"n\r\n1\r\n"),
        (ResultFormat.TSV, b"?n\n1\n"),
        (
            ResultFormat.XML,
            b'<binding name="n"><literal datatype="http://www.w3.org/2001/XMLSchema#integer">1<',
        ),
    ],
)
def test_results_in_every_format(store, format, expected):
    result = store.query(f"SELECT (COUNT(*) AS ?n) {{ <{e('paris_tx')}> <{e('in')}> ?o }}", result=format)
    assert expected in result.body.replace(b'datatype="http://www.w3.org/2001/XMLSchema#int"', b"")
    assert result.format is format


def test_queries_are_judged_before_they_are_executed(store):
    for refused in ("DELETE WHERE { ?s ?p ?o }", "SELECT * { SERVICE <http://x/> { ?s ?p ?o } }"):
        with pytest.raises(QueryRefusedError):
            store.query(refused)
    with pytest.raises(QuerySyntaxError, match=r"2:\d+"):
        store.query("SELECT *\nWHERE { ?s ?p }")


def test_a_result_is_cut_and_says_so(store):
    result = store.query(f"SELECT * {{ <{e('hub')}> ?b ?c ; ?e ?f }}", deadline_s=60)
    assert (result.rows, result.truncated) == (10_000, True)
    assert len(json.loads(result.body)["results"]["bindings"]) == 10_000
    graph = store.query(f"CONSTRUCT {{ ?c ?e ?f }} WHERE {{ <{e('hub')}> ?b ?c ; ?e ?f }}", deadline_s=60)
    assert (graph.rows, graph.truncated) == (10_000, True)
    assert len(list(ox.parse(graph.body, format=ox.RdfFormat.N_TRIPLES))) == 10_000


def test_a_query_ends_at_its_deadline_and_is_no_result(store):
    with pytest.raises(QueryTimeoutError):
        store.query(BOMB, deadline_s=1)
    assert json.loads(store.query("ASK { ?s ?p ?o }", deadline_s=60).body)["boolean"] is True


def test_many_names_are_resolved_at_once_as_each_alone(store):
    names = ["City of Light", e("france"), "République française", "2015", "é", "nobody", "no", "", e("no")]
    found = store.named(names, limit=5)
    alone = {name: set(ids_) for name in names if (ids_ := store.resolve_entity(name))}
    assert {name: {item.id for item in items} for name, items in found.items()} == alone
    assert len(store.named(["City of Light"], limit=1)["City of Light"]) == 1
