"""A running server while versions of its graph, with and without subgraphs, come and go."""

from __future__ import annotations

import threading
import time

import httpx
import pytest

from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.subgraphs import Seed, SubgraphWriter
from tests.service import Service


@pytest.fixture
def server(tmp_path):
    service = None

    def start():
        nonlocal service
        service = Service("kg_server", tmp_path, {})
        return service.ready()

    yield start
    if service is not None:
        service.kill()


def test_each_request_sees_one_version(server, tmp_path):
    catalog = GraphCatalog(tmp_path)
    file = tmp_path / "graph.txt"

    def load(number):
        """In version n everything is called after n, and only even ones have the subgraph `q`."""
        file.write_text("".join(f"hub\tr\tt{number}-{place}\n" for place in range(20)))
        version = catalog.load("g", file).version
        if number % 2:
            return version

        def write(store, directory):
            with SubgraphWriter(store, directory, source="x", seed=Seed.TOPICS, hops=1) as writer:
                writer.add_search("q", [f"t{number}-3"])
                return writer.finish()

        catalog.add_subgraphs("g", write)
        return catalog.get("g").version

    last = load(0)
    service = server()
    stop, answers, errors = threading.Event(), [], []
    action = {"action": "get_tail_entities", "entity": "hub", "relation": "r"}

    def ask():
        with httpx.Client(base_url=service.url, trust_env=False) as client:
            while not stop.is_set():
                for body in ({"actions": [action] * 3}, {"actions": [action] * 3, "graph": "q"}):
                    response = client.post("/v1/kg/g/actions", json=body)
                    if response.status_code != 200:
                        errors.append(response.text)
                    answers.append(("graph" in body, response.json()))

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for number in range(1, 5):
        time.sleep(1.2)  # the server looks for a new version once a second
        last = load(number)
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline and answers[-1][1]["version"] != last:
        time.sleep(0.1)
    stop.set()
    for thread in threads:
        thread.join()
    catalog.close()
    assert errors == []
    assert len({answer["version"] for _, answer in answers}) > 2
    for restricted, answer in answers:
        assert answer["results"][0].get("code") in (None, "KG_SAMPLE_NOT_FOUND" if restricted else None)
        seen = [tuple(item["id"] for item in result.get("items", ())) for result in answer["results"]]
        assert len(set(seen)) == 1
        assert len({id_.partition("-")[0] for id_ in seen[0]}) <= 1
        assert len(seen[0]) in ((0, 1) if restricted else (20,))
    with_subgraph = [answer for restricted, answer in answers if restricted and answer["version"] == last]
    assert with_subgraph
    assert with_subgraph[-1]["results"][0]["items"] == [{"id": "t4-3", "label": "t4-3"}]
