"""Graphs of Freebase's and Wikidata's IRIs by short ids: loaded from files, and behind a served endpoint."""

from __future__ import annotations

import pytest

from kbqa.answers import f1
from kbqa.cold_start.demonstrations import prompt_of
from kbqa.datasets.coverage import coverage
from kbqa.errors import AmbiguousNameError
from kbqa.evaluation.baselines import OneShotSparql
from kbqa.judges.matching import MatchingJudge
from kbqa.kg.actions import Action, ErrorKind, Failure, Item, Success
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.endpoint.record import Endpoint
from kbqa.kg.forms import leaf_of
from kbqa.kg.namespaces import Namespace, NamespaceOptions
from kbqa.kg.store import PathStep
from kbqa.kg.tools import LocalGraphTools
from kbqa.logical_forms.s_expression import parse_s_expression
from kbqa.protocols.interactive_parsing import InteractiveParsing
from kbqa.protocols.knowcoder_a1 import KnowCoderA1
from kbqa.protocols.sparql_refinement import SparqlRefinement
from kbqa.rewards.base import Instruments
from kbqa.rewards.progress import measure
from kbqa.trajectory import ExecutedAction, Hop, Question, Status, Turn
from tests.iri_graphs import DBPEDIA, FREEBASE, WIKIDATA
from tests.sparql_servers import SparqlServer

NS, WD = "http://rdf.freebase.com/ns/", "http://www.wikidata.org/entity/"
GRAPHS = {"freebase": FREEBASE, "wikidata": WIKIDATA, "dbpedia": DBPEDIA}
OBAMA = ["m.02mjmr", "ns:m.02mjmr", f"{NS}m.02mjmr", f"<{NS}m.02mjmr>"]
CHILDREN = ["people.person.children", "ns:people.person.children", f"<{NS}people.person.children>"]


@pytest.fixture(
    scope="module", params=["embedded", "endpoint", pytest.param("virtuoso", marks=pytest.mark.integration)]
)
def catalog(request, tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    catalog = GraphCatalog(home)
    servers = []
    for name, turtle in GRAPHS.items():
        file = home / f"{name}.ttl"
        file.write_text(turtle)
        if request.param == "embedded":
            catalog.load(name, file)
        elif request.param == "virtuoso":
            virtuoso = request.getfixturevalue("virtuoso")
            virtuoso.load(file, f"http://ex.org/{name}")
            at = Endpoint(virtuoso.url, (f"http://ex.org/{name}",), deadline_s=60, query_deadline_s=60)
            catalog.attach(name, at)
        else:
            servers.append(SparqlServer(turtle))
            catalog.attach(name, Endpoint(servers[-1].url, deadline_s=60, query_deadline_s=60))
    yield catalog
    catalog.close()
    for server in servers:
        server.stop()


@pytest.fixture(scope="module")
def freebase(catalog):
    return catalog.get("freebase")


@pytest.fixture(scope="module")
def wikidata(catalog):
    return catalog.get("wikidata")


@pytest.fixture(scope="module")
def execute(catalog):
    tools = LocalGraphTools(catalog, deadline_s=30)

    def execute(kg: str, name: str, **arguments):
        [result] = tools.execute(kg, [Action(name, arguments)])
        assert isinstance(result, Success), result
        return result

    return execute


@pytest.fixture(scope="module")
def refused(catalog):
    tools = LocalGraphTools(catalog, deadline_s=30)

    def refused(kg: str, name: str, **arguments):
        [result] = tools.execute(kg, [Action(name, arguments)])
        assert isinstance(result, Failure), result
        return result

    return refused


def ids(result):
    return [item.id for item in result.items]


@pytest.mark.parametrize("entity", OBAMA)
def test_one_hop_actions_take_every_spelling_of_an_entity(execute, entity):
    relations = execute("freebase", "get_tail_relations", entity=entity)
    assert Item("people.person.children", "Children") in relations.items
    assert "type.object.type" in ids(relations)
    assert ids(execute("freebase", "get_head_relations", entity=entity)) == ["people.person.parents"]


@pytest.mark.parametrize("relation", [*CHILDREN, "Children"])
def test_and_of_a_relation(execute, relation):
    found = execute("freebase", "get_tail_entities", entity="m.02mjmr", relation=relation)
    assert found.items == (Item("m.0malia", "Malia Obama"), Item("m.0sasha", "Sasha Obama"))


def test_a_local_name_is_a_relation_unless_several_have_it(execute, refused):
    born = execute("freebase", "get_tail_entities", entity="Barack Obama", relation="place_of_birth")
    assert ids(born) == ["m.02hrh0_"]
    many = refused("freebase", "get_tail_entities", entity="m.02mjmr", relation="children")
    assert many.kind is ErrorKind.INVALID_RELATION
    assert "fictional_universe.fictional_character.children, people.person.children" in many.message


def test_a_gated_relation_is_shown_short(execute):
    found = execute(
        "freebase",
        "find_relation",
        entity="ns:m.02mjmr",
        relation="place of birth",
        tau_high=0.9,
        tau_low=0.1,
    )
    assert found.details["relation"]["id"] == "people.person.place_of_birth"
    assert found.details["expression"] == "(JOIN (R people.person.place_of_birth) m.02mjmr)"
    assert ids(found) == ["m.02hrh0_"]


@pytest.mark.parametrize(
    ("form", "members"),
    [
        ("(JOIN (R people.person.children) m.02mjmr)", ["m.0malia", "m.0sasha"]),
        (f"(JOIN (R ns:people.person.children) {NS}m.02mjmr)", ["m.0malia", "m.0sasha"]),
        ("(AND people.person (JOIN people.person.parents m.02mjmr))", ["m.0malia", "m.0sasha"]),
        ("(ARGMAX (JOIN people.person.parents m.02mjmr) people.person.date_of_birth)", ["m.0sasha"]),
        (
            "(COUNT (JOIN people.person.parents m.02mjmr))",
            ['"2"^^<http://www.w3.org/2001/XMLSchema#integer>'],
        ),
    ],
)
def test_logical_forms_answer_by_short_ids(execute, freebase, form, members):
    found = execute("freebase", "execute_logical_form", expression=form)
    assert ids(found) == members
    if not form.startswith("(COUNT"):
        page = freebase.members(parse_s_expression(form), limit=10)
        assert [item.id for item in page.items] == members
        assert f1(ids(found), [f"{NS}{id_}" for id_ in members]) == 1.0


def test_a_form_is_expanded_to_short_ids(execute):
    found = execute("freebase", "expand", topics=["ns:m.02mjmr"], question="who are the children of obama?")
    forms = [one["form"] for one in found.details["expansions"]]
    assert "(JOIN (R people.person.children) m.02mjmr)" in forms


@pytest.mark.parametrize("entity", ["ns:m.02mjmr", f"<{NS}m.02mjmr>", "<m.02mjmr>"])
def test_sparql_takes_every_spelling_and_shows_short_ids(execute, entity):
    query = f"SELECT ?x WHERE {{ {entity} ns:people.person.children ?x }} ORDER BY ?x"
    first = execute("freebase", "execute_sparql", query=query).items[0]["x"]
    assert first == {"type": "uri", "value": f"{NS}m.0malia", "id": "m.0malia", "label": "Malia Obama"}


def test_an_error_in_sparql_keeps_its_place(refused):
    wrong = refused("freebase", "execute_sparql", query="SELECT ?x WHERE { <m.02mjmr> ?p ?x ")
    assert wrong.details == {"line": 1, "column": 36}


def test_paths_patterns_and_descriptions_are_short(execute):
    followed = execute("freebase", "follow_path", entity="ns:m.0malia", path=["parents", "^parents"])
    assert ids(followed) == ["m.0sasha"]
    assert followed.details["via"] == [["m.0malia", "m.02mjmr"]]
    query = "SELECT DISTINCT ?x WHERE { VALUES ?x { ns:m.07g8r3 } }"
    patterns = execute("freebase", "search_graph_patterns", sparql=query, semantic="tv actor")
    assert ["tv.tv_character.appeared_in_tv_program", "tv.regular_tv_appearance.actor"] in [
        [relation["id"] for relation in item["relations"]] for item in patterns.items
    ]
    described = execute("freebase", "describe", entity="m.02mjmr").items[0]
    assert (described["id"], described["label"]) == ("m.02mjmr", "Barack Obama")
    assert {"id": "people.person", "label": "Person"} in described["types"]
    assert "type.object.type" not in {fact[1]["id"] for fact in described["tail"]["facts"]}


@pytest.mark.parametrize("node", ["m.07g8r3", "ns:m.07g8r3", f"<{NS}m.07g8r3>"])
def test_the_relations_of_a_node_are_printed_short(execute, node):
    found = execute("freebase", "node_relations", node=node, question="who plays the character?")
    lines = [item["line"] for item in found.items]
    assert "<node> tv.tv_character.appeared_in_tv_program ?a" in lines


def test_a_compound_value_is_told_by_short_types(execute):
    found = execute(
        "freebase", "find_relation", entity="m.07g8r3", relation="appeared in tv program", tau_low=0.0
    )
    assert found.details["cvt"]["types"] == [
        {"id": "tv.regular_tv_appearance", "label": "tv.regular_tv_appearance"}
    ]
    assert "type.object.type" not in {relation["id"] for relation in found.details["cvt"]["relations"]}


def test_types_and_mentions_are_short(execute):
    assert ids(execute("freebase", "search_types", query="person", limit=1)) == ["people.person"]
    [mention] = execute("freebase", "link_entities", question="who plays London Tipton?").items
    assert (mention.id, mention.label) == ("m.07g8r3", "London Tipton")


@pytest.mark.parametrize("written", ["m.02mjmr", "ns:m.02mjmr", f"{NS}m.02mjmr"])
def test_an_id_in_a_question_is_linked(execute, written):
    question = f"who are the children of {written}, and where was Brenda Song born?"
    first, second = execute("freebase", "link_entities", question=question).items
    assert (first.id, first.label, question[first.start : first.end]) == ("m.02mjmr", "Barack Obama", written)
    assert second.id == "m.03qmbj"


@pytest.mark.parametrize("other", ["m.0sasha", "ns:m.0sasha", f"{NS}m.0sasha", "Sasha Obama"])
def test_distances_take_every_spelling(execute, other):
    found = execute("freebase", "entity_distance", set_a=["ns:m.0malia"], set_b=[other])
    assert (found.details["distance"], found.details["unknown"]) == (2, [])


def test_a_graph_covers_gold_data_of_short_ids(freebase):
    question = Question(
        "q", "?", ("m.0malia",), ("m.02mjmr",), "freebase", path=(Hop("people.person.children"),)
    )
    assert coverage(freebase, [question]).share == 1.0


def test_the_topics_of_isp_kgr_count(catalog):
    question = Question("q", "who plays her?", ("m.03qmbj",), ("m.07g8r3",), "freebase")
    instruments = Instruments(LocalGraphTools(catalog, deadline_s=30), MatchingJudge())

    def node(written: str) -> Turn:
        return turn(ExecutedAction("node_relations", {"node": written, "question": "?"}))

    query = f"SELECT ?x {{ <{NS}m.0cvt1> ?p ?x }}"
    sparql = ExecutedAction("execute_sparql", {"query": query}, None, ("m.03qmbj",), ("Brenda Song",))

    def turn(action: ExecutedAction) -> Turn:
        return Turn(0, 0, (), "", Status.OK, well_formed=True, actions=(action,))

    turns = [*map(node, ("ns:m.07g8r3", f"<{NS}m.07g8r3>")), turn(sparql)]
    measured = measure(question, turns, instruments, 3)
    assert measured.known == {"m.07g8r3": pytest.approx(1 / 3)}
    assert [step.subject for step in measured.steps[:2]] == ["m.07g8r3"] * 2
    assert measured.steps[2].score == 1.0


@pytest.mark.parametrize(
    ("kg", "topic", "protocol", "shown"),
    [
        ("freebase", "m.07g8r3", InteractiveParsing("brief"), "Entities: London Tipton(m.07g8r3)"),
        ("freebase", f"{NS}m.07g8r3", KnowCoderA1("brief"), "Entities: London Tipton(ns:m.07g8r3)"),
        ("wikidata", "Q12418", SparqlRefinement("brief"), "Entities: Mona Lisa (wd:Q12418)"),
        ("wikidata", "Q12418", OneShotSparql(), "Entities: Mona Lisa (wd:Q12418)"),
    ],
)
def test_prompts_show_topics_with_their_labels(catalog, kg, topic, protocol, shown):
    question = Question("q", "?", (), (topic,), kg)
    prompt = prompt_of(question, protocol, LocalGraphTools(catalog, deadline_s=30), 5)
    assert shown in "".join(segment.text for segment in prompt.segments)


@pytest.mark.parametrize("entity", ["Q762", "wd:Q762", f"{WD}Q762", f"<{WD}Q762>", "Leonardo da Vinci"])
def test_the_forms_of_a_wikidata_property_are_told_apart(execute, entity):
    relations = execute("wikidata", "get_tail_relations", entity=entity).items
    assert {item.id: item.label for item in relations} == {
        "P31": "P31",
        "P19": "place of birth",
        "P40": "child",
        "p:P26": "spouse",
        "rdfs:label": "rdfs:label",
        "schema:description": "schema:description",
    }


@pytest.mark.parametrize(
    ("entity", "relation", "found"),
    [
        ("Q762", "P40", Item("Q1", "a child")),
        ("Q762", "wdt:P40", Item("Q1", "a child")),
        ("Q762", "child", Item("Q1", "a child")),
        ("Q762", "p:P26", Item("wds:Q762-ABC", "wds:Q762-ABC")),
        ("wds:Q762-ABC", "ps:P26", Item("Q2", "a spouse")),
        ("Q12418", "creator", Item("Q762", "Leonardo da Vinci")),
        ("Q154184", "P17", Item("Q38", "Italy")),
    ],
)
def test_each_form_is_followed_by_its_id_or_label(execute, entity, relation, found):
    assert execute("wikidata", "get_tail_entities", entity=entity, relation=relation).items == (found,)


def test_a_local_name_of_several_forms_is_ambiguous(wikidata):
    with pytest.raises(AmbiguousNameError, match="p:P26, ps:P26"):
        wikidata.resolve_relation("P26")


def test_labels_go_by_language(wikidata):
    labels = {id_: item.label for id_, item in wikidata.items(["Q12418", "Q762", "Q38", "Q154184"]).items()}
    assert labels == {"Q12418": "Mona Lisa", "Q762": "Leonardo da Vinci", "Q38": "Italy", "Q154184": "Vinci"}


def test_relations_are_ranked_by_the_labels_of_their_properties(execute):
    found = execute("wikidata", "find_relation", entity="Q762", relation="child", tau_high=0.9, tau_low=0.5)
    assert (found.details["relation"]["id"], found.details["relation"]["score"]) == ("P40", 1.0)


def test_ids_of_answers_are_compared_canonically():
    for written in ("Q38", "wd:Q38", f"{WD}Q38", f"<{WD}Q38>"):
        assert f1([written], ["Q38"]) == f1(["Q38"], [written]) == 1.0
    assert f1(["wd:Q38"], ["wd:Q39"]) == 0.0


def test_dbpedia_s_names_are_prefixed_and_others_stay_iris(execute):
    found = execute("dbpedia", "get_tail_entities", entity="Berlin", relation="dbo:leader")
    assert ids(found) == ["http://dbpedia.org/resource/A_(b)"]
    assert execute("dbpedia", "get_tail_entities", entity="dbr:Berlin", relation="country").items == (
        Item("dbr:Germany", "Germany"),
    )
    assert ids(execute("dbpedia", "get_head_entities", entity="dbr:A_(b)", relation="dbo:leader")) == [
        "dbr:Berlin"
    ]


def test_what_a_node_is_called_in_a_form_is_its_short_id(freebase):
    assert leaf_of(freebase, "m.02mjmr").id == "m.02mjmr"
    walk = freebase.follow(["m.02mjmr"], [PathStep(("people.person.children",))], limit=1)
    assert "people.person.parents" in {item.id for item in walk.out}


@pytest.fixture
def home(tmp_path):
    catalog = GraphCatalog(tmp_path, recheck_s=0)
    (tmp_path / "own.nt").write_text("<http://ex.org/Ada> <http://ex.org/r/parent> <http://ex.org/Byron> .\n")
    (tmp_path / "fb.ttl").write_text(FREEBASE)
    yield catalog, tmp_path
    catalog.close()


def test_a_user_declares_namespaces(home):
    catalog, path = home
    own = NamespaceOptions((Namespace("", "http://ex.org/"), Namespace("r", "http://ex.org/r/")))
    catalog.load("own", path / "own.nt", naming=own)
    store = catalog.get("own")
    assert store.tail_entities(["Ada"], ["r:parent"], limit=9).items == (Item("Byron", "Byron"),)
    found = store.query("SELECT ?x { :Ada r:parent ?x }")
    assert b"http://ex.org/Byron" in found.body
    assert store.query("SELECT ?x { <Ada> <r:parent> ?x }").rows == 1
    assert store.query("PREFIX r: <http://other.org/> SELECT ?x { <Ada> r:parent ?x }").rows == 0
    assert store.query("SELECT ?x { <Ada> <urn:kbqa:r:r%3Aparent> ?x }").rows == 1


def test_recognition_can_be_switched_off_and_is_part_of_the_version(home):
    catalog, path = home
    short = catalog.load("fb", path / "fb.ttl")
    full = catalog.load("fb", path / "fb.ttl", naming=NamespaceOptions(recognise=False))
    assert full.version != short.version
    assert catalog.get("fb").resolve_entity(f"{NS}m.02mjmr") == (f"{NS}m.02mjmr",)
    assert catalog.get("fb").resolve_entity("m.02mjmr") == ()


def test_subgraphs_are_found_by_short_ids(home):
    from kbqa.kg.namespaced import ids_below
    from kbqa.kg.subgraphs import Seed, SubgraphWriter

    catalog, path = home
    catalog.load("fb", path / "fb.ttl")
    seeds = ids_below(catalog.get("fb"), "ns:m.02mjmr")

    def write(store, directory):
        with SubgraphWriter(store, directory, source="s", seed=Seed.TOPICS, hops=1) as writer:
            writer.add_search("q", seeds)
            return writer.finish()

    catalog.add_subgraphs("fb", write)
    subgraph = catalog.get("fb").subgraph("q")
    assert subgraph.resolve_entity("m.02mjmr") == ("m.02mjmr",)
    assert subgraph.resolve_entity("m.03qmbj") == ()
