"""A key that may ask a view learns nothing of the rest of the graph, on any route."""

from __future__ import annotations

import pytest

from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.loading.views import ViewLimits
from services.access.keys import KeyFile

FACTS = [
    ("Ann", "knows", "Bob"),
    ("Bob", "knows", "Eve"),
    ("Ann", "zyx", "zyx flu"),
    ("zyx doctor", "knows zyx", "Ann"),
]
QUERY = "SELECT * { ?s ?p ?o }"


@pytest.fixture
def home(tmp_path):
    """A home with the graph `people` and its view, `people@public`."""
    path = tmp_path / "people.txt"
    path.write_text("".join("\t".join(fact) + "\n" for fact in FACTS))
    catalog = GraphCatalog(tmp_path / "home")
    catalog.load("people", path)
    catalog.make_view("people", "public", ViewLimits(relations=("knows",)))
    catalog.close()
    return tmp_path / "home"


@pytest.fixture
def guest(client, tmp_path):
    """`guest(method, path, …)` asks with a key for the view, after the whole graph was asked the same."""
    file = KeyFile(tmp_path / "keys.json")
    _, whole = file.create("owner")
    _, limited = file.create("guest", graphs=("people@public",))
    server = client(keys_file=file.path)

    def ask(method, path, **request):
        # The caches are warm from somebody who may know everything.
        server.request(method, path.replace("@public", ""), headers={"X-API-Key": whole}, **request)
        headers = {"X-API-Key": limited, "Accept": "application/json, text/event-stream"}
        return [server.request(method, path, headers=headers, **request) for _ in range(2)]

    return ask


@pytest.mark.parametrize(
    ("method", "path", "request_"),
    [
        ("GET", "/v1/kg", {}),
        ("GET", "/v1/kg/people@public/sparql", {"params": {"query": QUERY}}),
        ("POST", "/v1/kg/people@public/sparql", {"data": {"query": QUERY}}),
        *(
            ("POST", "/v1/kg/people@public/actions", {"json": {"actions": [action]}})
            for action in (
                {"action": "get_tail_relations", "entity": "Ann"},
                {"action": "get_head_relations", "entity": "Ann"},
                {"action": "execute_sparql", "query": QUERY},
                {"action": "node_relations", "node": "Ann", "question": "which flu"},
                {"action": "link_entities", "question": "Has Ann seen the doctor about a flu?"},
                {"action": "describe", "entity": "Ann"},
                {"action": "expand", "question": "flu", "topics": ["Ann"], "ahead": True},
            )
        ),
    ],
)
def test_no_answer_names_what_the_view_leaves_out(guest, method, path, request_):
    for answer in guest(method, path, **request_):
        assert answer.status_code == 200, answer.text
        assert "zyx" not in answer.text
        assert '"triples":4' not in answer.text


@pytest.mark.parametrize("tool", ["list_graphs", "get_tail_relations"])
def test_neither_does_a_tool(guest, tool):
    arguments = {} if tool == "list_graphs" else {"kg": "people@public", "entity": "Ann"}
    call = {
        "jsonrpc": "2.0",
        "id": 1,
        "method": "tools/call",
        "params": {"name": tool, "arguments": arguments},
    }
    for answer in guest("POST", "/mcp", json=call):
        assert answer.status_code == 200
        assert "zyx" not in answer.text
        assert "knows" in answer.text or "people@public" in answer.text
        assert '"people"' not in answer.text


def test_the_whole_graph_is_refused(guest):
    asks = (("actions", {"json": {"actions": []}}), ("sparql", {"data": {"query": QUERY}}))
    for route, asked in asks:
        for answer in guest("POST", f"/v1/kg/people/{route}", **asked):
            assert answer.status_code == 403
    call = {"name": "get_tail_relations", "arguments": {"kg": "people", "entity": "Ann"}}
    for answer in guest(
        "POST", "/mcp", json={"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    ):
        assert "use a key for that graph" in answer.text
