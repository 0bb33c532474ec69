"""`GET /text2sparql`: the query behind an answer, for clients that execute it themselves."""

from __future__ import annotations

import base64

import httpx
import pytest

from kbqa.errors import ConfigurationError
from kbqa.protocols.sparql_refinement import SparqlRefinement
from services.access.keys import KeyFile
from services.gateway.settings import GatewaySettings
from tests.service import Service
from tests.services.gateway.conftest import FixedPolicy, answer, query, recite, think
from tests.services.gateway.test_confidence import sure

URI = "https://text2sparql.aksw.org/2025/films/?v=1"
STARRED = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks"))
FOR_URI = {"datasets": {URI: "films"}}


def get(client, dataset=URI, question="Who starred in Big?", **options):
    return client.get("/text2sparql", params={"dataset": dataset, "question": question}, **options)


def executed(kg_server_url, kg, sparql):
    """The last parts of the values that a query finds in a graph."""
    response = httpx.get(f"{kg_server_url}/v1/kg/{kg}/sparql", params={"query": sparql})
    assert response.status_code == 200, response.text
    bindings = response.json()["results"]["bindings"]
    return {term["value"].rpartition(":")[2] for row in bindings for term in row.values()}


def test_the_query_finds_what_the_chains_of_the_answers_lead_to(gateway, kg_server_url):
    response = get(gateway(FixedPolicy(STARRED), **FOR_URI))
    body = response.json()
    assert (response.status_code, set(body)) == (200, {"dataset", "question", "query"})
    assert (body["dataset"], body["question"]) == (URI, "Who starred in Big?")
    assert executed(kg_server_url, "films", body["query"]) == {"Tom%20Hanks", "Elizabeth%20Perkins"}


def test_a_chain_is_followed_from_where_it_starts(gateway, kg_server_url):
    script = recite(
        query("get_tail_entities", "Big", "starred"),
        query("get_head_entities", "Tom Hanks", "starred"),
        answer("Philadelphia"),
    )
    sparql = get(gateway(FixedPolicy(script)), "films").json()["query"]
    assert executed(kg_server_url, "films", sparql) == {"Philadelphia"}


def test_the_query_that_a_policy_wrote_is_given_as_it_is(gateway):
    written = "SELECT ?y WHERE { <http://x/big> <http://x/year> ?y }"
    turns = {False: f"<query>{written}</query>", True: "<answer>1988</answer>"}
    policy = FixedPolicy(
        lambda prompt: think(turns["<query_result>" in prompt]), protocol=SparqlRefinement("brief")
    )
    assert get(gateway(policy), "rdf", "When was Big made?").json()["query"] == written


def test_without_an_answer_the_query_is_empty(gateway):
    script = recite(query("get_tail_entities", "Big", "starred"), answer("nobody"))
    response = get(gateway(FixedPolicy(script), **FOR_URI))
    assert (response.status_code, response.json()["query"]) == (200, "")
    assert get(gateway(FixedPolicy(recite(answer(""))), **FOR_URI)).json()["query"] == ""


def test_an_answer_of_which_the_policy_is_not_sure_has_its_query_too(gateway):
    assert "starred" in get(gateway(sure(0.01), **FOR_URI)).json()["query"]


def test_an_unknown_data_set_is_told_the_known_ones(gateway):
    response = get(gateway(FixedPolicy(STARRED), **FOR_URI), "https://elsewhere/")
    assert response.status_code == 404
    detail = response.json()["detail"]
    assert f"(known: {URI}, films, rdf)" in detail
    assert "KBQA_GATEWAY_DATASETS" in detail


def test_a_key_is_told_about_its_own_graphs_only(gateway, tmp_path):
    file = KeyFile(tmp_path / "keys.json")
    _, key = file.create("rdf only", graphs=("rdf",))
    client = gateway(FixedPolicy(STARRED), keys_file=file.path, **FOR_URI)
    headers = {"X-API-Key": key}
    assert get(client).status_code == 401
    for forbidden in (URI, "films", "none"):
        response = get(client, forbidden, headers=headers)
        assert (response.status_code, "(known: rdf)" in response.json()["detail"]) == (404, True)
    # The client of the protocol can only send a key as the password in the gateway's URL.
    basic = {"Authorization": f"Basic {base64.b64encode(f'any:{key}'.encode()).decode()}"}
    assert get(client, "rdf", "Big?", headers=basic).status_code == 200
    elsewhere = basic | {"Sec-Fetch-Site": "cross-site"}  # a page that would spend the key's quota
    assert get(client, "rdf", "Big?", headers=elsewhere).status_code == 403


@pytest.mark.parametrize("params", [{}, {"dataset": "films"}, {"dataset": "films", "question": " "}])
def test_a_request_without_a_question_is_refused(gateway, params):
    response = gateway(FixedPolicy(STARRED)).get("/text2sparql", params=params)
    assert (response.status_code, response.headers["content-type"]) == (422, "application/problem+json")


def test_data_sets_are_read_from_the_environment(monkeypatch):
    monkeypatch.setenv("KBQA_GATEWAY_DATASETS", f"{URI}=films, https://x/=rdf")
    assert GatewaySettings.load().datasets == {URI: "films", "https://x/": "rdf"}
    for wrong in ("films", "=films", "https://x/="):
        monkeypatch.setenv("KBQA_GATEWAY_DATASETS", wrong)
        with pytest.raises(ConfigurationError, match="KBQA_GATEWAY_DATASETS: write URI=GRAPH"):
            GatewaySettings.load()


@pytest.mark.timeout(300)
def test_a_gateway_with_the_reader_writes_a_query_for_a_graph_that_it_was_not_trained_on(
    kg_server_url, tmp_path
):
    environment = {"KBQA_KG_SERVER_URL": kg_server_url, "KBQA_GATEWAY_DATASETS": f"{URI}=films"}
    service = Service("gateway", tmp_path, environment)
    try:
        with httpx.Client(base_url=service.ready().url, timeout=60) as client:
            sparql = get(client).json()["query"]
            assert executed(kg_server_url, "films", sparql) == {"Tom%20Hanks", "Elizabeth%20Perkins"}
            assert get(client, "https://elsewhere/").status_code == 404
    finally:
        service.kill()
