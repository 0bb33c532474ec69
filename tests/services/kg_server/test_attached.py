"""A graph behind an endpoint, served beside loaded ones; and the command that attaches it."""

from __future__ import annotations

import json
import time

import pytest

from kbqa.errors import GraphUnavailableError
from kbqa.kg.actions import Action, Success
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.client import HttpGraphTools
from kbqa.kg.endpoint.client import EndpointClient
from kbqa.kg.endpoint.record import Endpoint
from services.cli.__main__ import main
from services.http import background
from services.kg_server.app import create_app
from services.kg_server.settings import KgServerSettings
from tests.sparql_servers import SparqlServer, free_port

TURTLE = """
@prefix : <http://ex.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:big :starred :hanks ; rdfs:label "Big" . :hanks rdfs:label "Tom Hanks" .
"""
STARRED = {"action": "get_tail_entities", "entity": "Big", "relation": "http://ex.org/starred"}
SPARQL = {"action": "execute_sparql", "query": "SELECT ?o { ?s <http://ex.org/starred> ?o }"}


@pytest.fixture
def server():
    server = SparqlServer(TURTLE)
    yield server
    server.stop()


@pytest.fixture
def home(tmp_path, server):
    catalog = GraphCatalog(tmp_path)
    catalog.attach("films", Endpoint(server.url))
    catalog.close()
    return tmp_path


def execute(client, *actions):
    response = client.post("/v1/kg/films/actions", json={"actions": list(actions)})
    assert response.status_code == 200, response.text
    return response.json()["results"]


def test_an_attached_graph_is_served(client, home):
    client = client()
    [graph] = client.get("/v1/kg").json()["graphs"]
    assert (graph["name"], graph["triples"], graph["entities"]) == ("films", 3, 2)
    one_hop, sparql = execute(client, STARRED, SPARQL)
    assert one_hop["items"] == [{"id": "http://ex.org/hanks", "label": "Tom Hanks"}]
    assert sparql["items"][0]["o"]["label"] == "Tom Hanks"
    assert execute(client, STARRED)[0]["status"] == "ok"
    answer = client.get("/v1/kg/films/sparql", params={"query": SPARQL["query"]})
    assert answer.json()["results"]["bindings"][0]["o"]["value"] == "http://ex.org/hanks"


def test_failures_of_an_endpoint_are_items_and_pass(client, home, server):
    client = client(query_deadline_s=10)
    server.answer_with(lambda request: request.reply(500, b"broken"))
    for result in execute(client, STARRED, SPARQL):
        assert (result["code"], result["kind"]) == ("KG_SERVER_ERROR", "query_failed")
    server.answer_with(lambda request: request.reply(404, b""))
    for result in execute(client, STARRED, SPARQL):
        assert (result["code"], result["kind"]) == ("KG_SERVER_ERROR", "backend_unavailable")
    assert client.get("/v1/kg/films/sparql", params={"query": SPARQL["query"]}).status_code == 503
    server.answer_with(server.execute)
    assert [result["status"] for result in execute(client, STARRED, SPARQL)] == ["ok", "ok"]


@pytest.fixture
def deadlines(server, monkeypatch):
    """Seconds that each look-up was given."""
    found: list[float] = []
    ask, listing_s = EndpointClient.ask, Endpoint(server.url).schema_deadline_s

    def recorded(self, query, accept, *, deadline_s, max_bytes):
        if deadline_s != listing_s:  # the server lists the schema on its own
            found.append(deadline_s)
        return ask(self, query, accept, deadline_s=deadline_s, max_bytes=max_bytes)

    monkeypatch.setattr(EndpointClient, "ask", recorded)
    return found


def test_look_ups_have_the_time_that_their_action_asks_for(client, home, deadlines):
    client = client(query_deadline_max_s=600)
    # The store remembers what it was asked: other names make it ask again.
    terms = [("Big", {}, 3, 3), ("http://ex.org/big", {"timeout_s": 900}, 500, 600)]
    for name, asks, least_s, most_s in terms:
        [result] = execute(
            client, {"action": "entity_distance", "set_a": [name], "set_b": ["Tom Hanks"], **asks}
        )
        assert result["details"]["distance"] == 1
        assert least_s <= min(deadlines) <= max(deadlines) <= most_s
        deadlines.clear()


def test_look_ups_end_with_their_batch(client, home, server, deadlines):
    client = client(batch_deadline_s=1.0, query_deadline_s=0.5)
    assert execute(client, STARRED)[0]["status"] == "ok"  # the schema has been listed
    deadlines.clear()

    def answer(request):
        time.sleep(0.7)
        server.execute(request)

    server.answer_with(answer)
    path = ["^http://ex.org/starred", "http://ex.org/starred"] * 2
    [late, never] = execute(
        client,
        {"action": "follow_path", "entity": "Tom Hanks", "path": path, "return": True},
        {**STARRED, "entity": "Tom Hanks"},
    )
    assert deadlines
    assert max(deadlines) <= 1.0
    for result in (late, never):
        assert (result["status"], result["kind"]) == ("error", "query_timeout")
    assert "send fewer actions" in never["message"]


@pytest.mark.parametrize("allowed_s", [60.0, None])
def test_a_client_waits_as_long_as_the_endpoint_may_take(tmp_path, server, allowed_s):
    slow = "SELECT ?o { ?s <http://ex.org/starred> ?o } LIMIT 7"

    def answer(request):
        if "LIMIT 7" in request.form["query"]:
            time.sleep(3.0)
        server.execute(request)

    catalog = GraphCatalog(tmp_path)
    endpoint = Endpoint(server.url, deadline_s=60, query_deadline_s=allowed_s, check_syntax=False)
    catalog.attach("films", endpoint)
    catalog.close()
    server.answer_with(answer)
    settings = KgServerSettings.load(home=tmp_path, redis_url=None, query_deadline_s=50.0)
    query = [Action("execute_sparql", {"query": slow})]
    with background(create_app(settings)) as url, HttpGraphTools(url, timeout_s=1.5) as tools:
        if allowed_s is None:
            with pytest.raises(GraphUnavailableError, match="does not answer"):
                tools.execute("films", query)
        else:
            [result] = tools.execute("films", query)
            assert isinstance(result, Success)
            assert sum("LIMIT 7" in request["query"] for request in server.requests) == 1


def test_the_command_attaches_and_lists(tmp_path, server, capsys):
    home = ["--home", str(tmp_path)]
    assert main(["kg", "attach", "films", server.url, "--language", "de", "--language", "en", *home]) == 0
    assert "attached films: 3 triples" in capsys.readouterr().out
    assert main(["kg", "list", "--json", *home]) == 0
    assert json.loads(capsys.readouterr().out)[0]["triples"] == 3


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["ftp://ex.org/"], "http://"),
        (["URL", "--auth", "bearer", "--secret-env", "KBQA_SECRET"], "KBQA_"),
        (["URL", "--auth", "basic", "--secret-env", "SECRET"], "user"),
        ([f"http://127.0.0.1:{free_port()}/sparql"], "cannot be reached"),
    ],
)
def test_what_cannot_be_attached_is_said_in_one_line(tmp_path, server, capsys, arguments, says):
    arguments = [server.url if argument == "URL" else argument for argument in arguments]
    assert main(["kg", "attach", "films", *arguments, "--home", str(tmp_path)]) == 2
    error = capsys.readouterr().err
    assert says in error
    assert error.count("\n") == 1
