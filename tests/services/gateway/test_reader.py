"""The reader answers for graphs that the promoted policy was not trained on, and while there is none."""

from __future__ import annotations

import time

import pytest

from kbqa.confidence import Calibration
from kbqa.errors import BaseNotFoundError, NoPolicyError, PolicyIntegrityError
from kbqa.policy_store import PolicyStore
from kbqa.recipes import load_recipe
from kbqa.runs.student import Student
from kbqa.serving.policies import PoliciesByGraph, PoliciesInTurn
from kbqa.training.adapters import add_adapter
from services.access.keys import KeyFile
from tests.services.gateway.conftest import FixedPolicy, NoPolicy, answer, query, recite
from tests.unit.encoders import save_encoder

ASK = {"question": "Who starred in Big?", "kg": "films"}
STARRED = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks"))


def first_choice(**options):
    return FixedPolicy(STARRED, run="films-1", version="first", graphs=("films",), **options)


def reader(**options):
    return FixedPolicy(STARRED, run="reader", version="reader", **options)


def test_a_graph_without_a_policy_of_its_own_gets_the_reader():
    first, stands_by = first_choice(), reader()
    both = PoliciesByGraph(first, stands_by)
    served = {kg: both.lease(kg).served.run for kg in ("films", "rdf", None)}
    assert served == {"films": "films-1", "rdf": "reader", None: "films-1"}
    lease = both.lease("rdf")
    assert lease.fallback is None  # nothing is wrong
    before = first.leases, stands_by.leases
    lease.release()
    # The first choice, which was looked at, is not held.
    assert (first.leases, stands_by.leases) == (before[0], before[1] - 1) == (2, 1)


def test_a_policy_of_unknown_graphs_answers_for_every_graph():
    assert PoliciesByGraph(FixedPolicy(version="older"), reader()).lease("rdf").served.version == "older"


def test_while_the_first_choice_is_away_the_reader_answers_and_says_why():
    first, stands_by = first_choice(), reader()
    first.unready = lambda: "the engine failed"
    both = PoliciesByGraph(first, stands_by)
    for kg in ("films", "rdf"):
        lease = both.lease(kg)
        assert (lease.served.run, lease.fallback) == ("reader", "the engine failed")
    assert both.unready() is None
    stands_by.unready = lambda: "so did this"
    assert both.unready() == "the engine failed; so did this"
    with pytest.raises(NoPolicyError, match="the engine failed; so did this"):
        both.lease("films")


def test_without_a_reader_the_first_choice_answers_for_every_graph():
    gone = NoPolicy()
    gone.unready = lambda: None  # it goes as it is asked
    failed = reader()
    failed.unready = lambda: "the engine failed"  # what it would answer fails
    for away in (NoPolicy(), gone, failed):
        both = PoliciesByGraph(first_choice(), away)
        lease = both.lease("rdf")
        assert (lease.served.run, lease.fallback, both.unready()) == ("films-1", None, None)


def test_the_reader_says_that_the_first_choice_is_away_though_the_fallback_is_for_other_graphs():
    first = NoPolicy()
    turn = PoliciesInTurn([first, FixedPolicy(version="second", graphs=("films",))])
    lease = PoliciesByGraph(turn, reader()).lease("rdf")
    assert (lease.served.run, lease.fallback) == ("reader", "no policy is promoted yet")


def test_answers_name_the_policy_of_their_graph_and_those_of_the_reader_are_kept(gateway):
    client = gateway(PoliciesByGraph(first_choice(), reader()))
    own = client.post("/v1/answer", json=ASK).json()
    assert (own["policy"], own["policy_version"]) == ("films-1", "first")
    asked = {"question": "Big?", "kg": "rdf"}
    body = client.post("/v1/answer", json=asked).json()
    assert (body["policy"], "fallback" in body) == ("reader", False)
    assert client.post("/v1/answer", json=asked).json()["cached"]
    serving = {kg: client.get("/v1/policies", params={"kg": kg}).json()["serving"] for kg in ("films", "rdf")}
    assert {kg: policy["policy"] for kg, policy in serving.items()} == {"films": "films-1", "rdf": "reader"}


def test_a_key_of_another_graph_does_not_learn_which_policy_a_graph_has(gateway, tmp_path):
    file = KeyFile(tmp_path / "keys.json")
    _, key = file.create("rdf only", graphs=("rdf",))
    client = gateway(PoliciesByGraph(first_choice(), reader()), keys_file=file.path)
    headers = {"X-API-Key": key}
    asked = {kg: client.get("/v1/policies", params={"kg": kg}, headers=headers) for kg in ("films", "rdf")}
    assert {kg: response.status_code for kg, response in asked.items()} == {"films": 403, "rdf": 200}


def test_a_key_sees_the_policies_of_its_graphs_alone(gateway, tmp_path):
    store = PolicyStore(tmp_path / "policies")

    def write(directory):
        (directory / "config.json").write_text("{}")

    about = {"recipe": {"name": "x"}, "recipe_digest": "0" * 64, "step": 0, "metrics": {}}
    for run, graphs in (("of-films", ("films",)), ("of-rdf", ("rdf", "films")), ("of-any", ())):
        store.publish(run, 1, write, graphs=graphs, **about)
    file = KeyFile(tmp_path / "keys.json")
    client = gateway(PoliciesByGraph(first_choice(), reader()), keys_file=file.path, require_keys=True)

    def seen(name, *graphs):
        _, key = file.create(name, graphs=graphs)
        time.sleep(0.6)  # the gateway looks at the file so often
        found = client.get("/v1/policies", headers={"X-API-Key": key}).json()["policies"]
        return sorted(policy["run"] for policy in found)

    assert seen("rdf", "rdf") == ["of-any", "of-rdf"]
    assert seen("view", "films@public") == ["of-any", "of-films", "of-rdf"]
    assert seen("all", "*") == ["of-any", "of-films", "of-rdf"]


@pytest.fixture(scope="module")
def shipped(tmp_path_factory):
    """A version such as the one that ships with kbqa: an adapter of an encoder, which has learned nothing."""
    encoder = save_encoder(tmp_path_factory.mktemp("encoder"), words=("that", "this", "those"))
    recipe = load_recipe("kg-r1-forms", {"base_model": str(encoder)})
    student = Student.pretrained(str(encoder), recipe.protocol.build().tags, seed=1)
    add_adapter(student.model, recipe.optimisation.lora.build(), seed=1)
    return PolicyStore(tmp_path_factory.mktemp("shipped")).publish(
        "worlds-1",
        1,
        student.save,
        recipe=recipe.model_dump(mode="json"),
        recipe_digest=recipe.digest(),
        step=0,
        metrics={},
        base_model=str(encoder),
        kind="lora",
        probe=student.probe(),
        calibration=Calibration(intercept=2.0, slope=0.0, questions=20),
        graphs=("world-1",),
    )


def ready(client):
    deadline = time.monotonic() + 60
    while (response := client.get("/readyz")).status_code != 200 and time.monotonic() < deadline:
        time.sleep(0.05)
    return response


def test_the_reader_that_kbqa_brings_along_answers_without_any_promoted_policy(gateway, monkeypatch, shipped):
    monkeypatch.setattr("services.gateway.sources.shipped_reader", lambda: shipped)
    client = gateway(reader=True)
    assert ready(client).status_code == 200
    body = client.post("/v1/answer", json={**ASK, "min_confidence": 0.0}).json()
    assert (body["policy"], body["policy_version"], body["recipe"]) == ("reader", shipped.id, "kg-r1-forms")
    assert "kbqa demo" in body["fallback"] or "being loaded" in body["fallback"]
    assert body["runs"][0]["trajectory"][0]["actions"][0]["action"] == "expand"


@pytest.mark.parametrize("error", [BaseNotFoundError, PolicyIntegrityError])
def test_a_reader_that_is_not_there_is_a_reason_and_breaks_nothing(gateway, monkeypatch, error):
    def missing():
        raise error("no reader is here")

    monkeypatch.setattr("services.gateway.sources.shipped_reader", missing)
    client = gateway(reader=True)
    deadline = time.monotonic() + 20
    while "kbqa demo" not in (detail := client.get("/readyz").json()["detail"]):
        assert time.monotonic() < deadline, detail
        time.sleep(0.05)
    while "no reader is here" not in (response := client.post("/v1/answer", json=ASK)).json()["detail"]:
        assert time.monotonic() < deadline, response.text
        time.sleep(0.05)
    assert response.status_code == 503
    assert "kbqa demo" in response.json()["detail"]


def test_without_the_setting_nobody_looks_for_the_reader(gateway, monkeypatch, shipped):
    monkeypatch.setattr("services.gateway.sources.shipped_reader", lambda: shipped)
    client = gateway(reader=False)
    deadline = time.monotonic() + 20
    while "kbqa demo" not in (response := client.post("/v1/answer", json=ASK)).json()["detail"]:
        assert time.monotonic() < deadline, response.text
        time.sleep(0.05)
    assert response.status_code == 503
