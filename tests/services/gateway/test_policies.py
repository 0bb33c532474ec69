"""Following the promoted version, with published models of random weights."""

from __future__ import annotations

import threading
import time
from types import SimpleNamespace

import pytest
from prometheus_client import CollectorRegistry

from kbqa.environment import Budget
from kbqa.errors import NoPolicyError, PolicyIntegrityError
from kbqa.policy_store import PolicyStore
from kbqa.protocols.kg_r1 import KgR1
from kbqa.recipes import load_recipe
from kbqa.serving.players import Players
from kbqa.serving.policies import ServedPolicy, check_files
from kbqa.serving.promotion import FollowedPolicies
from kbqa.telemetry.metrics import Metrics
from kbqa.training.small_policy import save_model
from services.gateway.settings import GatewaySettings
from services.gateway.sources import followed
from services.gateway.turns import Turns
from tests.unit.policies_fixtures import make_model, make_tokenizer


@pytest.fixture(scope="module")
def recipe():
    rollout = {"rollout.max_turns": 2, "rollout.max_turn_tokens": 16, "rollout.max_tokens": 1000}
    return load_recipe("kg-r1-small", rollout)


@pytest.fixture
def publish(tmp_path, recipe):
    """Publishes a small model and promotes it."""
    store = PolicyStore(tmp_path / "policies")

    def make(number, seed=0, kind="full"):
        version = store.publish(
            "run",
            number,
            lambda directory: save_model(make_model(seed), make_tokenizer(), directory),
            recipe=recipe.model_dump(mode="json"),
            recipe_digest=recipe.digest(),
            step=0,
            metrics={},
            kind=kind,
        )
        return store.promote("run", version.id)

    make.store = store
    return make


@pytest.fixture
def follow(publish):
    """Follows the pointer with engines that are only names; `closed` lists the closed ones."""
    closed, dead = [], set()

    def load(version):
        if version.number == 13:
            raise PolicyIntegrityError("damaged")
        number = version.number
        return ServedPolicy(
            run="run",
            version=version.id,
            recipe="r",
            players=Players(None, None, KgR1(), Budget(1, 1, 1, 1)),
            close=lambda: closed.append(number),
            alive=lambda: number not in dead,
        )

    policies = FollowedPolicies(publish.store.promoted, load, poll_s=0.01)
    policies.closed, policies.dead = closed, dead
    return policies


def test_the_policy_stays_until_its_last_lease_is_released(publish, follow):
    first = publish(1)
    follow.refresh()
    leases = follow.lease(), follow.lease()
    second = publish(2, seed=1)
    follow.refresh()
    assert [lease.served.version for lease in leases] == [first.id] * 2
    newer = follow.lease()
    assert newer.served.version == second.id
    leases[0].release()
    assert follow.closed == []
    leases[1].release()
    assert follow.closed == [1]
    newer.release()
    assert follow.closed == [1]


def test_a_version_that_cannot_be_loaded_leaves_the_old_one_in_place(publish, follow):
    first = publish(1)
    follow.refresh()
    publish(13)
    follow.refresh()
    assert follow.lease().served.version == first.id
    assert follow.unready() is None


def test_without_any_the_reason_is_told(publish, follow):
    follow.refresh()
    with pytest.raises(NoPolicyError, match="kbqa demo"):
        follow.lease()
    publish(13)
    follow.refresh()
    assert follow.unready() == "damaged"


def test_an_engine_that_failed_is_built_again(publish, follow):
    publish(1)
    follow.refresh()
    assert follow.unready() is None
    follow.dead.add(1)
    assert follow.unready() == "the policy engine failed and is built again"
    follow.refresh()
    assert follow.closed == [1]
    follow.dead.clear()
    assert follow.unready() is None


def test_stopping_closes_the_policy_though_it_is_leased(publish, follow):
    publish(1)
    follow.start()
    deadline = time.monotonic() + 30
    while follow.unready() and time.monotonic() < deadline:
        time.sleep(0.01)
    lease = follow.lease()
    follow.stop()
    lease.release()
    assert follow.closed == [1]


def test_damaged_files_are_not_loaded(publish):
    version = publish(1)
    (version.path / "model.safetensors").write_bytes(b"")
    with pytest.raises(PolicyIntegrityError, match=r"model\.safetensors does not match"):
        check_files(publish.store, version)


def test_an_answer_names_the_version_that_wrote_it_and_a_promotion_switches(publish, gateway):
    first = publish(1)
    client = gateway()

    def version_once(ready):
        deadline = time.monotonic() + 20
        while time.monotonic() < deadline:
            response = client.post("/v1/answer", json={"question": "Big?", "kg": "films", "n_runs": 2})
            if response.status_code == 200 and ready(response.json()):
                return response.json()
            time.sleep(0.05)
        raise AssertionError(response.text)

    body = version_once(lambda _: True)
    assert body["policy_version"] == first.id
    assert body["status"] in ("no_answer", "unsupported")
    assert len(body["runs"]) == 2
    assert body["usage"]["generated_tokens"] > 0
    assert client.get("/readyz").status_code == 200
    second = publish(2, seed=1)
    version_once(lambda body: body["policy_version"] == second.id)


class Host:
    """Makes engines that are only names; `done` lists what was built and closed, in this order."""

    def __init__(self) -> None:
        self.done: list[str] = []

    def build(self, version, codec, *, deterministic):
        self.done.append(f"build {version.number}")
        return SimpleNamespace(
            policy=SimpleNamespace(max_length=4096),
            alive=True,
            available=True,
            close=lambda: self.done.append(f"close {version.number}"),
        )


@pytest.mark.parametrize(
    ("engine", "kind", "expected"),
    [
        pytest.param("vllm", "full", ["close 1", "build 2"], id="vLLM holds one version's whole weights"),
        pytest.param("vllm", "lora", ["build 2", "close 1"], id="and several adapters"),
        pytest.param("transformers", "full", ["build 2", "close 1"], id="this process holds both"),
    ],
)
def test_only_where_an_engine_holds_one_version_the_old_one_is_closed_first(
    publish, tmp_path, engine, kind, expected
):
    settings, host = GatewaySettings.load(home=tmp_path, engine=engine), Host()
    policies = followed(settings, Metrics(CollectorRegistry()), publish.store.promoted, host)
    publish(1, kind=kind)
    policies.refresh()
    second = publish(2, seed=1, kind=kind)
    policies.refresh()
    assert policies.lease().served.version == second.id
    assert host.done == ["build 1", *expected]


def test_gateways_that_share_a_redis_change_whole_weights_in_turn(publish, tmp_path, broker_url):
    settings, host = GatewaySettings.load(home=tmp_path, engine="vllm", redis_url=broker_url), Host()
    policies = followed(settings, Metrics(CollectorRegistry()), publish.store.promoted, host)
    first = publish(1)
    policies.refresh()
    publish(2, seed=1)
    with Turns(broker_url, timeout_s=5.0).turn(threading.Event()):
        changing = threading.Thread(target=policies.refresh)
        changing.start()
        changing.join(0.7)
        assert host.done == ["build 1"]
        lease = policies.lease()
        lease.release()
        assert lease.served.version == first.id
    changing.join(60)
    assert host.done == ["build 1", "close 1", "build 2"]
