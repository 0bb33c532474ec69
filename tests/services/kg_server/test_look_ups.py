"""One-hop answers as JSON: the same whether they are made or kept."""

from __future__ import annotations

import threading

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from prometheus_client import CollectorRegistry

from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.handlers import Surroundings
from kbqa.kg.ranking.encoders import NgramEncoder
from kbqa.kg.ranking.ranker import Schemas
from kbqa.kg.tools import LocalGraphTools
from kbqa.telemetry.metrics import Metrics
from services.kg_server.look_ups import LookUps, to_action
from services.kg_server.meter import ActionMeter
from services.kg_server.schemas import dump_result

TRIPLES = [
    ("Big", "starred", "Tom Hanks"),
    ('"cached":false,"elapsed_ms":', "starred", 'é 😀 \\ "'),
    *[("hub", "links", f"{number:02}") for number in range(30)],
]
NAMES = ["get_tail_relations", "get_head_relations", "get_tail_entities", "get_head_entities"]
VALUES = st.one_of(
    st.sampled_from([part for triple in TRIPLES[:3] for part in triple]),
    st.sampled_from([None, 1, 1.0, True, [], {}, "", "none"]),
)
PAGES = st.sampled_from([1, 1.0, True, 0, -1, 2, "1", None])
ACTIONS = st.builds(
    lambda name, *pairs: (
        {"action": name} | {key: value for key, value in zip(KEYS, pairs, strict=True) if value != ""}
    ),
    st.sampled_from(NAMES),
    VALUES,
    VALUES,
    PAGES | st.just(""),
    PAGES | st.just(""),
)
KEYS = ["entity", "relation", "limit", "offset"]


@pytest.fixture(scope="module")
def store():
    return OxigraphStore.from_triples(TRIPLES)


@pytest.fixture
def registry():
    return CollectorRegistry()


@pytest.fixture
def look_ups(registry):
    return make(registry)


def make(registry=None, max_bytes=1 << 20):
    return LookUps(ActionMeter(Metrics(registry or CollectorRegistry())), max_bytes=max_bytes)


def answers(look_ups, store, *batch, **options):
    found = look_ups.answer(surroundings(store), list(batch), **options)
    return None if found is None else [orjson.loads(result) for result in found]


def surroundings(store):
    return Surroundings(store, Schemas(NgramEncoder()).of(store))


@settings(max_examples=60, deadline=None)
@given(st.lists(ACTIONS, max_size=8))
def test_what_is_kept_says_what_executing_says(store, batch):
    look_ups = make()
    tools = LocalGraphTools(FixedGraphs({"g": store}))
    expected = [
        orjson.loads(orjson.dumps(dump_result(r))) for r in tools.execute("g", list(map(to_action, batch)))
    ]
    for _ in range(3):
        found = answers(look_ups, store, *batch)
        for result in (*found, *expected):
            result.pop("elapsed_ms", None)
            result.pop("cached", None)
        assert found == expected


BIG = {"action": "get_tail_entities", "entity": "Big", "relation": "starred"}


def test_an_answer_says_whether_it_was_kept_and_how_long_it_took(look_ups, store):
    [first], [second] = answers(look_ups, store, BIG), answers(look_ups, store, BIG)
    assert (first["cached"], second["cached"]) == (False, True)
    assert 0 <= second["elapsed_ms"] < 1000
    # The same action in other words.
    [third] = answers(look_ups, store, dict(reversed(BIG.items())))
    assert third["cached"]


def test_made_and_kept_answers_of_a_batch_stand_in_its_order(look_ups, store):
    entities = [f"{number:02}" for number in range(20)]
    batch = [{"action": "get_head_entities", "entity": entity, "relation": "links"} for entity in entities]
    answers(look_ups, store, *batch[::3])
    mixed = [*batch, {"action": "get_tail_relations", "entity": "none"}, *batch]
    found = answers(look_ups, store, *mixed)
    assert [result["status"] for result in found] == ["ok"] * 20 + ["error"] + ["ok"] * 20
    assert [result["cached"] for result in found[:20]] == [place % 3 == 0 for place in range(20)]


def test_other_actions_are_left_to_others(look_ups, store):
    assert answers(look_ups, store, BIG, {"action": "link_entities", "question": "Big?"}) is None
    for name in (None, 7, [], "", "secret"):
        assert answers(look_ups, store, {"action": name}) is None
    assert answers(look_ups, store, {}) is None
    assert answers(look_ups, store) == []


def test_who_wants_fresh_answers_gets_them_and_private_ones_are_not_kept(look_ups, store):
    for _ in range(2):
        assert not answers(look_ups, store, BIG, fresh=True, private=True)[0]["cached"]
    assert not answers(look_ups, store, BIG)[0]["cached"]
    assert not answers(look_ups, store, BIG, fresh=True)[0]["cached"]
    assert answers(look_ups, store, BIG)[0]["cached"]


def test_graphs_and_their_versions_do_not_share_answers(look_ups, store):
    answers(look_ups, store, BIG)
    other = OxigraphStore.from_triples([("Big", "starred", "Elizabeth Perkins")])
    [found] = answers(look_ups, other, BIG)
    assert [item["id"] for item in found["items"]] == ["Elizabeth Perkins"]


def test_a_subgraph_has_answers_of_its_own(look_ups, store):
    answers(look_ups, store, BIG)
    for _ in range(2):
        assert answers(look_ups, store, BIG, graph="q")[0]["code"] == "KG_SAMPLE_NOT_FOUND"
    assert answers(look_ups, store, BIG)[0]["status"] == "ok"


def test_an_argument_that_is_nested_deeper_than_can_be_written_is_an_error_like_others(look_ups, store):
    nested: list = []
    for _ in range(300):
        nested = [nested]
    [found] = answers(look_ups, store, {"action": "get_tail_relations", "entity": nested})
    assert found["code"] == "KG_FORMAT_ERROR"


def test_no_more_is_kept_than_fits_and_what_was_used_last_stays(store, registry):
    look_ups = make(registry, max_bytes=1 << 18)
    actions = [{"action": "get_tail_relations", "entity": f"none {number}"} for number in range(2000)]
    answers(look_ups, store, BIG)
    for action in actions:
        answers(look_ups, store, action)
        assert answers(look_ups, store, BIG)[0]["cached"]
    labels = {"tier": "memory", "action": "get_tail_relations", "outcome": "hit"}
    before = registry.get_sample_value("kbqa_kg_cache_requests_total", labels) or 0
    # From the latest on, since asking for one that is gone keeps it again.
    for action in reversed(actions):
        answers(look_ups, store, action)
    kept = registry.get_sample_value("kbqa_kg_cache_requests_total", labels) - before
    assert 100 < kept < 1000


def test_one_huge_answer_drives_out_no_others(store):
    look_ups = make(max_bytes=1 << 18)
    hub = {"action": "get_tail_entities", "entity": "hub", "relation": "links"}
    answers(look_ups, store, BIG)
    for _ in range(2):
        assert not answers(look_ups, store, hub)[0]["cached"]
    assert answers(look_ups, store, BIG)[0]["cached"]


def test_hits_and_misses_are_counted_by_action_and_answers_by_outcome(look_ups, store, registry):
    none = {"action": "get_tail_relations", "entity": "none"}
    for _ in range(3):
        answers(look_ups, store, BIG, none)

    def value(name, **labels):
        return registry.get_sample_value(name, labels)

    for action in (BIG["action"], none["action"]):
        tier = {"tier": "memory", "action": action}
        assert value("kbqa_kg_cache_requests_total", **tier, outcome="hit") == 2
        assert value("kbqa_kg_cache_requests_total", **tier, outcome="miss") == 1
    assert value("kbqa_kg_actions_total", action=BIG["action"], outcome="ok") == 3
    assert value("kbqa_kg_actions_total", action=none["action"], outcome="KG_ENTITY_NOT_FOUND") == 3
    assert value("kbqa_kg_action_seconds_count", action=BIG["action"]) == 3


def test_many_threads_share_what_is_kept(store):
    look_ups, wrong = make(max_bytes=1 << 18), []

    def work(seed):
        for number in range(300):
            entity = f"{(number * seed) % 40:02}"
            [found] = answers(
                look_ups, store, {"action": "get_head_entities", "entity": entity, "relation": "links"}
            )
            if (found["status"] == "ok") != (int(entity) < 30):
                wrong.append(entity)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in (1, 3, 7, 11)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == []
