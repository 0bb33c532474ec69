"""The time that an action leaves for its look-ups at an endpoint."""

from __future__ import annotations

import threading
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

from kbqa.kg.actions import Action, Success
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.endpoint.client import EndpointClient
from kbqa.kg.namespaced import with_namespaces
from kbqa.kg.namespaces import Namespaces
from kbqa.kg.retrieval.distance import Distance, distance
from kbqa.kg.tools import LocalGraphTools
from tests.unit.kg.endpoint.starred import EX, STARRED


@pytest.fixture
def asked(monkeypatch):
    """(thread, deadline) of each request to an endpoint."""
    requests: list[tuple[int, float]] = []
    ask = EndpointClient.ask

    def recorded(self, query, accept, *, deadline_s, max_bytes):
        requests.append((threading.get_ident(), deadline_s))
        return ask(self, query, accept, deadline_s=deadline_s, max_bytes=max_bytes)

    monkeypatch.setattr(EndpointClient, "ask", recorded)
    return requests


DISTANCE = Action("entity_distance", {"set_a": ["Big"], "set_b": ["Tom Hanks"]})


@pytest.mark.parametrize("namespaces", [Namespaces(), Namespaces((("ex", EX),))], ids=["iris", "short ids"])
@pytest.mark.parametrize(
    "action",
    [
        DISTANCE,
        Action("find_relation", {"entity": "Big", "relation": "starred"}),
        Action("node_relations", {"node": "Big", "question": "who starred in Big?"}),
        Action("search_graph_patterns", {"sparql": f"SELECT DISTINCT ?x {{ ?x <{EX}starred> ?y }}"}),
        STARRED,
    ],
    ids=lambda action: action.name,
)
def test_look_ups_have_the_time_that_their_action_asks_for(server, connect, asked, action, namespaces):
    for asks, least_s, most_s in (({}, 10, 10), ({"timeout_s": 400}, 300, 400), ({"timeout_s": 7}, 10, 10)):
        store = with_namespaces(connect(server.url, check_syntax=False), namespaces)
        store.relations()
        tools = LocalGraphTools(FixedGraphs({"films": store}), deadline_s=10, longest_s=600)
        asked.clear()
        [result] = tools.execute("films", [Action(action.name, {**action.arguments, **asks})])
        assert isinstance(result, Success)
        is_query = action.name == "search_graph_patterns"  # its first request is the query itself
        deadlines = [deadline_s for _, deadline_s in asked][is_query:]
        assert least_s <= min(deadlines) <= max(deadlines) <= most_s
        asked.clear()
        store.resolve_entity("nobody")  # the time ends with the action
        assert {deadline_s for _, deadline_s in asked} == {10}


def test_an_action_does_not_lend_its_time_to_another_at_once(server, connect, asked):
    store = connect(server.url)
    tools = LocalGraphTools(FixedGraphs({"films": store}), longest_s=600)
    both = threading.Barrier(2, timeout=30)

    def slow(request):
        if "Tom Hanks" in request.form["query"]:
            both.wait()
        server.execute(request)

    server.answer_with(slow)

    def threads_deadlines(**asks):
        [result] = tools.execute("films", [Action(DISTANCE.name, {**DISTANCE.arguments, **asks})])
        assert result.details["distance"] == 1
        return [deadline_s for thread, deadline_s in asked if thread == threading.get_ident()]

    with ThreadPoolExecutor(2) as executor:
        usual, longer = executor.submit(threads_deadlines), executor.submit(threads_deadlines, timeout_s=400)
        assert set(usual.result()) == {10}
        assert min(longer.result()) > 300


def test_an_action_s_look_ups_share_its_time(server, connect, asked):
    def slow(request):
        time.sleep(0.3)
        server.execute(request)

    server.answer_with(slow)
    tools = LocalGraphTools(FixedGraphs({"films": connect(server.url)}), longest_s=600)
    tools.execute("films", [Action(DISTANCE.name, {**DISTANCE.arguments, "timeout_s": 400})])
    deadlines = [deadline_s for _, deadline_s in asked]
    assert len(deadlines) > 1
    assert all(later < earlier - 0.25 for earlier, later in zip(deadlines, deadlines[1:], strict=False))


@pytest.mark.parametrize("most", [200, 300])
def test_a_hub_s_neighbours_are_cut_and_a_search_that_lacks_some_is_given_up(
    server, connect, monkeypatch, most
):
    monkeypatch.setattr("kbqa.kg.endpoint.store.MAX_ADJACENT", most)
    monkeypatch.setattr("kbqa.kg.endpoint.reader.WINDOW", 70)
    store = connect(server.url)
    numbers = [f'"{n}"^^<http://www.w3.org/2001/XMLSchema#integer>' for n in range(300)]
    near = store.adjacent([f"{EX}numbers"])
    assert len(near) == most
    assert near <= set(numbers)
    given_up = Distance(None, 1, complete=False)
    assert distance(store, [f"{EX}numbers"], [f"{EX}big"], max_nodes=most) == given_up
    # From the other side, even a neighbour that was cut is near.
    for number in numbers[::50]:
        assert distance(store, [f"{EX}numbers"], [number], max_nodes=most) == Distance(1, 1)
