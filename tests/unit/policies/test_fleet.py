"""Several vLLM servers as one policy: routing, servers that fail, and servers that come back."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from prometheus_client import CollectorRegistry

from kbqa.errors import PolicyUnavailableError
from kbqa.policies.base import FinishReason, SamplingParams
from kbqa.policies.vllm import Fleet, VllmPolicy, VllmServer, Weights
from kbqa.telemetry.metrics import Metrics
from kbqa.training.probing import take_probe
from kbqa.training.small_policy import save_model
from tests.services.queues import wait_until
from tests.unit.policies.fake_vllm import FakeVllm
from tests.unit.policies_fixtures import make_codec, make_model, make_tokenizer

CODEC = make_codec()
GENERATE = "/inference/v1/generate"
PROMPT = [30, 31, 32]
WAIT_S = 60.0


@pytest.fixture(autouse=True)
def quick_trials(monkeypatch) -> None:
    monkeypatch.setattr("kbqa.policies.vllm.replica._FIRST_PAUSE_S", 0.05)
    monkeypatch.setattr("kbqa.policies.vllm.replica._LONGEST_PAUSE_S", 0.05)


@pytest.fixture
def fakes() -> Iterator[list[FakeVllm]]:
    fakes = [FakeVllm(make_model(), CODEC) for _ in range(2)]
    yield fakes
    for fake in fakes:
        fake.stop()


@pytest.fixture
def make_fleet(fakes) -> Iterator[Callable[..., Fleet]]:
    opened: list[Fleet | VllmServer] = []

    def make(servers: int = 2, patience_s: float = WAIT_S) -> Fleet:
        metrics = Metrics(CollectorRegistry())
        policies = []
        for fake in fakes[:servers]:
            opened.append(VllmServer(fake.url))
            policies.append(VllmPolicy(opened[-1], CODEC, metrics, precision="float32", timeout_s=WAIT_S))
        opened.append(Fleet(policies, metrics, patience_s=patience_s))
        return opened[-1]

    yield make
    for each in reversed(opened):
        each.close()


@pytest.fixture
def weights(tmp_path) -> Weights:
    save_model(make_model(seed=1), make_tokenizer(), tmp_path)
    return Weights("run/v1", "v1", "full", tmp_path, take_probe(make_model(seed=1), PROMPT))


def write(fleet: Fleet, question: str = "q", count: int = 1, seed: int | None = 1):
    return fleet.generate([PROMPT] * count, SamplingParams(4, 100, seed=seed, affinity=question))


def failing(fake: FakeVllm) -> Callable[..., tuple[int, object]]:
    """What answers completions of episodes with 500, and all else as before."""

    def answer(path, body):
        if path == GENERATE and "stop" in body["sampling_params"]:
            return 500, {"error": {"message": "EngineCore encountered an issue"}}
        return fake.execute(path, body)

    return answer


def asked(fake: FakeVllm) -> int:
    return fake.asked.count(GENERATE)


def test_all_turns_of_a_question_go_to_one_server_and_questions_to_all(make_fleet, fakes, weights) -> None:
    fleet = make_fleet()
    fleet.hold(weights)
    served = Counter()
    for question in range(12):
        before = [asked(fake) for fake in fakes]
        for _ in range(3):
            write(fleet, f"q{question}")
        mine = [asked(fake) - was for fake, was in zip(fakes, before, strict=True)]
        assert sorted(mine) == [0, 3]
        served[mine.index(3)] += 1
    assert set(served) == {0, 1}


def test_what_one_server_loses_another_one_writes_with_other_streams(make_fleet, fakes, weights) -> None:
    fleet = make_fleet()
    fleet.hold(weights)
    before = [asked(fake) for fake in fakes]
    write(fleet)
    first = fakes[[asked(fake) - was for fake, was in zip(fakes, before, strict=True)].index(1)]
    lost = []

    def answer(path, body):
        if path == GENERATE and not lost:
            lost.append(body)
            return 500, {}
        return first.execute(path, body)

    first.answer = answer
    written = write(fleet, count=4)
    assert {c.finish_reason for c in written} <= {FinishReason.STOP, FinishReason.LENGTH}
    assert len({c.token_ids for c in written}) == 4


def test_a_server_that_fails_is_left_out_until_its_probe_succeeds(make_fleet, fakes, weights) -> None:
    fleet = make_fleet()
    fleet.hold(weights)
    ill, well = fakes
    ill.answer = lambda path, body: (503, {})
    for question in range(40):
        assert write(fleet, f"q{question}", seed=None)[0].finish_reason is not FinishReason.LOST
    assert fleet.available
    before, loads = asked(well), ill.asked.count("/collective_rpc")
    for question in range(40, 60):
        write(fleet, f"q{question}", seed=None)
    assert asked(well) == before + 20
    ill.answer = ill.execute
    wait_until(lambda: (write(fleet, "a"), write(fleet, "b"), asked(well))[2] and _both(fleet), WAIT_S)
    assert ill.asked.count("/collective_rpc") == loads  # it still had its weights


def _both(fleet: Fleet) -> bool:
    return len(fleet._usable()) == 2


def test_a_server_that_was_started_anew_gets_its_weights_back(make_fleet, fakes, weights) -> None:
    fleet = make_fleet(servers=1)
    fleet.hold(weights)
    [only, _] = fakes
    only.label = "default"
    assert write(fleet)[0].finish_reason is FinishReason.LOST
    assert write(fleet)[0].policy_version == "v1"  # it waits for the server
    assert only.label == weights.label


def test_no_failure_of_a_completion_loads_weights_again(make_fleet, fakes, weights) -> None:
    fleet = make_fleet(servers=1)
    fleet.hold(weights)
    only = fakes[0]
    only.answer = failing(only)
    assert {c.finish_reason for c in write(fleet, count=20)} == {FinishReason.LOST}
    assert fleet.alive
    only.answer = only.execute
    assert write(fleet)[0].policy_version == "v1"
    assert only.asked.count("/collective_rpc") == 1


def test_calls_wait_for_a_server_no_longer_than_they_may(make_fleet, fakes, weights) -> None:
    fleet = make_fleet(servers=1, patience_s=0.3)
    fleet.hold(weights)
    fakes[0].answer = lambda path, body: (500, {})
    write(fleet, count=20)
    assert not fleet.available
    [completion] = write(fleet)
    assert completion.finish_reason is FinishReason.LOST
    assert "no vLLM server works" in completion.detail


def test_one_server_that_cannot_load_weights_does_not_stop_the_others(make_fleet, fakes, weights) -> None:
    fleet = make_fleet()
    fakes[0].answer = lambda path, body: (500, {"error": {"message": "out of memory"}})
    fleet.hold(weights)
    assert write(fleet)[0].policy_version == "v1"
    fakes[0].answer = fakes[0].execute
    wait_until(lambda: _both(fleet), WAIT_S)
    assert fakes[0].label == weights.label


def test_weights_that_no_server_loads_are_refused(make_fleet, fakes, weights) -> None:
    fleet = make_fleet()
    for fake in fakes:
        fake.answer = lambda path, body: (500, {"error": {"message": "out of memory"}})
    with pytest.raises(PolicyUnavailableError, match="out of memory"):
        fleet.hold(weights)


def test_a_fleet_whose_weights_were_replaced_leaves_the_new_ones_alone(make_fleet, fakes, weights) -> None:
    """As a gateway does when another version is promoted: both policies share the server."""
    metrics = Metrics(CollectorRegistry())
    server = VllmServer(fakes[0].url)
    older, newer = (
        Fleet([VllmPolicy(server, CODEC, metrics, precision="float32")], metrics, patience_s=1)
        for _ in range(2)
    )
    older.hold(weights)
    newer.hold(Weights("run/v2", "v2", "full", weights.path, weights.probe))
    assert not older.alive
    with pytest.raises(PolicyUnavailableError, match="taken its place"):
        write(older)
    assert write(newer)[0].policy_version == "v2"
    assert fakes[0].label == "run/v2"
    for fleet in (older, newer):
        fleet.close()
    server.close()
