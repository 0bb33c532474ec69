"""POST /v1/kg/{kg}/actions and GET /v1/kg."""

from __future__ import annotations

import time

import pytest

from kbqa.kg.catalog import GraphCatalog

URL = "/v1/kg/films/actions"


def is_problem(response, status):
    assert response.status_code == status
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["status"] == status
    return document["detail"]


def test_a_mixed_batch_is_answered_in_order(client):
    response = client().post(
        URL,
        json={
            "actions": [
                {"action": "get_tail_entities", "entity": "Big", "relation": "starred"},
                {"action": "get_tail_relations", "entity": "Bigg"},
                {"action": "get_head_entities", "entity": "Tom Hanks", "relation": "starred", "limit": 1},
                {"action": "link_entities", "question": "who starred in Philadelphia?"},
                {},
            ]
        },
    )
    assert response.status_code == 200
    answer = response.json()
    assert (answer["kg"], len(answer["version"])) == ("films", 12)
    cast, unknown, films, linked, nothing = answer["results"]
    assert cast.pop("elapsed_ms") >= 0
    names = ("Elizabeth Perkins", "Tom Hanks")
    assert cast == {
        "status": "ok",
        "items": [{"id": name, "label": name} for name in names],
        "total": 2,
        "truncated": False,
        "cached": False,
    }
    assert unknown == {
        "status": "error",
        "code": "KG_ENTITY_NOT_FOUND",
        "kind": "entity_not_in_kg",
        "message": 'Entity "Bigg" not found in KG',
    }
    assert ([item["id"] for item in films["items"]], films["total"], films["truncated"]) == (["Big"], 2, True)
    assert linked["items"] == [
        {"id": "Philadelphia", "label": "Philadelphia", "start": 15, "end": 27, "score": 1.0}
    ]
    assert nothing["code"] == "KG_SERVER_ERROR"


def test_every_result_of_a_batch_for_a_missing_subgraph_says_so(client):
    actions = [{"action": "get_tail_relations", "entity": entity} for entity in ("Big", "none")]
    results = client().post(URL, json={"actions": actions, "graph": "q1"}).json()["results"]
    assert [result["code"] for result in results] == ["KG_SAMPLE_NOT_FOUND"] * 2


def test_large_batches_are_taken_up_to_the_maximum(client):
    server = client(max_batch=256)
    action = {"action": "get_tail_relations", "entity": "Big"}
    results = server.post(URL, json={"actions": [action] * 256}).json()["results"]
    assert [result["total"] for result in results] == [2] * 256
    assert "at most 256" in is_problem(server.post(URL, json={"actions": [action] * 257}), 422)


def test_an_empty_batch_has_no_results(client):
    assert client().post(URL, json={"actions": []}).json()["results"] == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"{", 400),
        (b'{"actions": [{"action": "\xff"}]}', 400),
        (b"[" * 100_000, 400),
        (b"[]", 422),
        (b"7", 422),
        (b"{}", 422),
        (b'{"actions": null}', 422),
        (b'{"actions": {}}', 422),
        (b'{"actions": ["get_tail_relations"]}', 422),
        (b'{"actions": [], "graph": 7}', 422),
        (b'{"actions": [], "sample": "x"}', 422),
    ],
)
def test_a_body_that_is_not_the_envelope_is_a_problem(client, body, status):
    assert is_problem(client().post(URL, content=body), status)


def test_a_body_that_is_too_large_is_a_problem_however_it_is_sent(client):
    server = client(max_body_bytes=2000)
    assert "2000 bytes" in is_problem(server.post(URL, content=b" " * 2001), 413)
    chunks = (b" " * 100 for _ in range(30))
    assert "2000 bytes" in is_problem(server.post(URL, content=chunks), 413)


@pytest.mark.parametrize("name", ["none", "..", "%2e%2e", "..%2f..", "%00", "films%20"])
def test_an_unknown_graph_is_not_found(client, name):
    is_problem(client().post(f"/v1/kg/{name}/actions", json={"actions": []}), 404)


def test_names_of_any_kind_are_accepted_and_returned(client):
    name = 'Müller, "K." & Söhne/(GmbH) 100%'
    action = {"action": "get_tail_entities", "entity": name, "relation": "located in"}
    [result] = client().post(URL, json={"actions": [action]}).json()["results"]
    assert result["items"] == [{"id": "Köln 😀", "label": "Köln 😀"}]


def test_arguments_of_any_type_are_item_errors(client):
    values = [None, 7, 1.5, True, [], {}, [["x"]], "x" * 100_000]
    actions = [{"action": "get_tail_relations", "entity": value} for value in values]
    actions += [{"action": value, "entity": "Big"} for value in values]
    results = client().post(URL, json={"actions": actions}).json()["results"]
    assert [result["code"] for result in results] == ["KG_FORMAT_ERROR"] * 8 + ["KG_SERVER_ERROR"] * 8


def test_results_of_hubs_are_capped(client):
    action = {"action": "get_tail_entities", "entity": "hub", "relation": "links", "limit": 5000}
    [result] = client().post(URL, json={"actions": [action]}).json()["results"]
    assert (len(result["items"]), result["total"], result["truncated"]) == (1000, 1500, True)


def test_graphs_are_listed_and_new_ones_served_without_a_restart(client, tmp_path):
    server = client(home=tmp_path)
    assert server.get("/v1/kg").json() == {"graphs": []}
    is_problem(server.post("/v1/kg/toy/actions", json={"actions": []}), 404)
    (tmp_path / "toy").write_text("a|r|b\n")
    catalog = GraphCatalog(tmp_path)
    info = catalog.load("toy", tmp_path / "toy")
    listed = {"name": "toy", "version": info.version, "triples": 1, "entities": 2, "lost_relations": []}
    listed["query_deadline_s"] = None
    assert server.get("/v1/kg").json() == {"graphs": [listed]}
    assert server.post("/v1/kg/toy/actions", json={"actions": []}).json()["version"] == info.version
    catalog.close()


def test_metrics_count_actions_by_outcome_and_never_by_what_a_policy_wrote(client):
    server = client()
    actions = [{"action": "get_tail_relations", "entity": e} for e in ("Big", "x")] + [{"action": "secret"}]
    server.post(URL, json={"actions": actions})
    text = server.get("/metrics").text
    assert 'kbqa_kg_actions_total{action="get_tail_relations",outcome="ok"} 1.0' in text
    assert 'kbqa_kg_actions_total{action="get_tail_relations",outcome="KG_ENTITY_NOT_FOUND"} 1.0' in text
    assert 'kbqa_kg_actions_total{action="unknown",outcome="KG_SERVER_ERROR"} 1.0' in text
    assert 'kbqa_http_request_seconds_count{route="/v1/kg/{kg}/actions",service="kg_server"} 1.0' in text
    assert "secret" not in text


def test_the_api_is_documented(client):
    paths = client().get("/openapi.json").json()["paths"]
    body = paths["/v1/kg/{kg}/actions"]["post"]["requestBody"]["content"]["application/json"]
    assert set(body["schema"]["properties"]) == {"actions", "graph"}
    assert {"get", "post"} <= set(paths["/v1/kg/{kg}/sparql"])


def test_actions_are_posted(client):
    response = client().get(URL)
    is_problem(response, 405)
    assert "POST" in response.headers["allow"]


def test_a_kept_answer_says_so_unless_fresh_ones_are_asked_for(client):
    server, body = client(), {"actions": [{"action": "get_tail_relations", "entity": "Big"}] * 2}

    def cached(**headers):
        return [result["cached"] for result in server.post(URL, json=body, headers=headers).json()["results"]]

    assert cached(**{"Cache-Control": "no-store"}) == [False, False]
    assert cached() == [False, False]
    assert cached() == [True, True]
    assert cached(**{"Cache-Control": "no-cache"}) == [False, False]


def test_a_new_version_has_new_answers(client, tmp_path):
    server, catalog = client(home=tmp_path), GraphCatalog(tmp_path)
    body = {"actions": [{"action": "get_tail_entities", "entity": "a", "relation": "r"}]}
    for tail in ("b", "c"):
        (tmp_path / "toy").write_text(f"a|r|{tail}\n")
        version = catalog.load("toy", tmp_path / "toy").version
        deadline = time.monotonic() + 30
        while (answer := server.post("/v1/kg/toy/actions", json=body).json())["version"] != version:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        assert [item["id"] for item in answer["results"][0]["items"]] == [tail]
    catalog.close()
