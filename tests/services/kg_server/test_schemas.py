"""What the OpenAPI says of actions is what there is."""

from __future__ import annotations

from dataclasses import replace

import orjson
import pytest

from kbqa.kg.actions import Action, ErrorKind, Failure, Success
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.client import parse_result
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.retrieval import ACTIONS
from kbqa.kg.tools import LocalGraphTools
from services.kg_server.schemas import AnswerModel, batch_schema, dump_batch, dump_result

TRIPLES = [
    ("Big", "starred", "Tom Hanks"),
    ("Tom Hanks", "born in", "Concord"),
    ("Tom Hanks", "type.object.type", "people.person"),
]
SPARQL = "SELECT ?x WHERE { ?x <urn:kbqa:r:starred> ?y }"
EXAMPLES = {
    "get_tail_relations": {"entity": "Big"},
    "get_head_relations": {"entity": "Concord"},
    "get_tail_entities": {"entity": "Big", "relation": "starred"},
    "get_head_entities": {"entity": "Tom Hanks", "relation": "starred"},
    "find_relation": {"entity": "Big", "relation": "starred"},
    "execute_logical_form": {"expression": "(JOIN starred Tom_Hanks)"},
    "search_types": {"query": "person"},
    "search_graph_patterns": {"sparql": SPARQL, "semantic": "born"},
    "execute_sparql": {"query": SPARQL, "timeout_s": 30},
    "node_relations": {"node": "?x", "query": SPARQL, "question": "who starred?"},
    "entity_distance": {"set_a": ["Big"], "set_b": ["Concord"], "max_distance": 3},
    "describe": {"entity": "Tom Hanks"},
    "resolve_names": {"names": ["Big", "Tom Hanks"]},
    "labels": {"entities": ["Big", "Tom Hanks"], "languages": ["de-CH", "en"]},
    "link_entities": {"question": "who starred in Big"},
    "complete_name": {"text": "tom h"},
    "follow_path": {
        "entity": "Concord",
        "path": ["^born in", "^starred"],
        "question": "which films?",
        "relations": 0,
        "return": True,
    },
    "expand": {
        "question": "how many films of Tom Hanks since 1988?",
        "form": "(JOIN starred `Tom Hanks`)",
        "topics": ["Big"],
        "operations": ["join", "keep", "count"],
        "expansions": 5,
        "return": True,
    },
}


def test_every_action_and_argument_is_documented():
    documented = batch_schema()["properties"]["actions"]["items"]["properties"]
    assert set(documented["action"]["enum"]) == set(ACTIONS) == set(EXAMPLES)
    taken = {name for spec in ACTIONS.values() for name in spec.arguments}
    assert taken | {"action"} == set(documented)


def test_an_argument_of_several_actions_says_what_each_makes_of_it():
    documented = batch_schema()["properties"]["actions"]["items"]["properties"]
    assert documented["query"] == {
        "type": "string",
        "description": "execute_sparql: the query. search_types: a phrase for the type. "
        "node_relations: SPARQL in which the variable occurs",
    }
    assert documented["question"]["anyOf"] == [{"type": "string"}, {"type": "string", "maxLength": 8000}]
    assert documented["limit"]["minimum"] == 1


@pytest.fixture(scope="module")
def results():
    tools = LocalGraphTools(FixedGraphs({"toy": OxigraphStore.from_triples(TRIPLES)}), deadline_s=30)
    actions = [Action(name, arguments) for name, arguments in EXAMPLES.items()]
    return dict(zip(EXAMPLES, tools.execute("toy", actions), strict=True))


def test_answers_are_as_they_are_documented(results):
    dumped = [orjson.dumps(dump_result(result)) for result in results.values()]
    answer = AnswerModel.model_validate(orjson.loads(dump_batch("toy", "v1", dumped)))
    assert len(answer.results) == len(EXAMPLES)


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_example_is_understood(results, name):
    result = results[name]
    wrong = (ErrorKind.INVALID_ACTION, ErrorKind.MISSING_REQUIRED_FIELDS, ErrorKind.WRONG_ARGUMENT_COUNT)
    assert not (isinstance(result, Failure) and result.kind in wrong), result


@pytest.mark.parametrize("name", EXAMPLES)
def test_a_client_reads_what_was_answered(results, name):
    written = orjson.loads(orjson.dumps(dump_result(results[name])))
    read = parse_result(Action(name, EXAMPLES[name]), written)
    if isinstance(read, Success):
        read = replace(read, elapsed_ms=results[name].elapsed_ms)
    assert read == results[name]
