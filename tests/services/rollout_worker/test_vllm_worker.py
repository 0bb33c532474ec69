"""The worker process with a real vLLM: weights that change under it, both ways, and a server that dies."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from pathlib import Path

import httpx
import pytest
import torch

from kbqa.policies.in_process import load_model
from kbqa.policy_store import PolicyVersion
from kbqa.recipes import load_recipe
from kbqa.training.adapters import Adapter, add_adapter
from kbqa.training.likelihood import token_logprobs
from kbqa.training.probing import take_probe
from kbqa.training.small_policy import SmallPolicyConfig, build_model, save_model, train_tokenizer
from kbqa.trajectory import Turn
from kbqa.wire import RolloutReply, encode
from tests.service import Service
from tests.services.queues import wait_until
from tests.services.rollout_worker.test_worker import Queues, metric
from tests.vllm_server import Vllm

pytestmark = [pytest.mark.integration, pytest.mark.timeout(1500)]

TOLERANCE = 1e-3  # of fp32
WAIT_S = 300.0
KINDS = ("lora", "full")  # a server that takes adapters does not take whole weights, and the reverse


@pytest.fixture(scope="module")
def base(questions, tmp_path_factory):
    """A small Qwen2 whose heads are as wide as vLLM's CPU attention wants them, and its directory."""
    tags = load_recipe("kg-r1-small").protocol.build().tags
    tokenizer = train_tokenizer([q.text for q in questions], tags, 400)
    config = SmallPolicyConfig(400, layers=2, width=64, heads=2, feed_forward=128, max_length=256, tied=False)
    model = build_model(tokenizer, config, seed=0)
    directory = tmp_path_factory.mktemp("base")
    save_model(model, tokenizer, directory)
    return config, tokenizer, directory


@pytest.fixture(scope="module", params=KINDS)
def kind(request) -> str:
    """Of every version in a test."""
    return request.param


@pytest.fixture
def publish_probed(store, recipe, base, kind) -> Callable[..., PolicyVersion]:
    """`publish_probed(run, number)`: random weights that differ with the number."""
    config, tokenizer, directory = base

    def publish(run: str, number: int, *, untrue: bool = False) -> PolicyVersion:
        full = build_model(tokenizer, config, seed=number)
        model = _with_adapter(directory, number) if kind == "lora" else full
        judged = build_model(tokenizer, config, seed=99) if untrue else model

        def write(path: Path) -> None:
            model.save_pretrained(path)
            for name in ("tokenizer.json", "tokenizer_config.json"):
                (path / name).write_bytes((directory / name).read_bytes())

        return store.publish(
            run,
            number,
            write,
            recipe=recipe.model_dump(mode="json"),
            recipe_digest=recipe.digest(),
            step=number,
            metrics={},
            kind=kind,
            probe=take_probe(judged, tokenizer.encode("Who is it?").ids),
        )

    return publish


def _with_adapter(directory: Path, number: int):
    model = load_model(directory)
    add_adapter(model, Adapter(rank=8, alpha=16), seed=number)
    torch.manual_seed(number)
    for name, parameter in model.named_parameters():
        if "lora_B" in name:  # zero in a fresh adapter, which would compute nothing
            torch.nn.init.normal_(parameter, std=0.1)
    return model.eval()


@pytest.fixture(scope="module")
def vllm(start_vllm, base, kind) -> Vllm:
    lora = ("--enable-lora", "--max-loras", "4", "--max-lora-rank", "8") if kind == "lora" else ()
    return start_vllm(base[2], options=("--max-num-seqs", "64", *lora))


@pytest.fixture(scope="module")
def worker(start_service, vllm) -> Iterator[Service]:
    worker = start_service(
        "rollout_worker",
        KBQA_ENGINE="vllm",
        KBQA_VLLM_URL=vllm.url,
        KBQA_ROLLOUT_WORKER_VLLM_PRECISION="float32",
        KBQA_ROLLOUT_WORKER_CONCURRENCY="8",
        KBQA_ROLLOUT_WORKER_POLICY_WAIT_S="200",
    )
    yield worker.ready()
    worker.kill()  # the next kind's requests are not for its server


@pytest.fixture
def queues(broker_url) -> Iterator[Queues]:
    queues = Queues(broker_url)
    yield queues
    queues.close()


@pytest.fixture
def ask(queues, make_request) -> Callable[..., None]:
    def ask(run: str, numbers: Iterable[int], **changes: object) -> None:
        for number in numbers:
            values = {"n": 4, "seed": number, "deadline_s": WAIT_S} | changes
            queues.ask(encode(make_request(run, f"t{number}", **values)))

    return ask


def turns_of(replies: Iterable[RolloutReply]) -> list[tuple[tuple[int, ...], Turn]]:
    """Every turn, with the tokens of its trajectory."""
    found = []
    for reply in replies:
        assert reply.group is not None, reply.failure
        for member in reply.group.members:
            found += [(member.trajectory.token_ids, turn) for turn in member.trajectory.turns]
    return found


def gaps(version: PolicyVersion, base: Path, token_ids: tuple[int, ...], turn: Turn) -> torch.Tensor:
    """Of each token of a turn: by how much the engine's log-probability differs from the version's own."""
    if version.manifest.kind == "full":
        model = load_model(version.path)
    else:
        model = load_model(base)
        model.load_adapter(str(version.path))
        model.eval()
    ids = torch.tensor([token_ids[: turn.end]])
    mask = torch.zeros_like(ids, dtype=torch.bool)
    mask[:, turn.start :] = True
    with torch.inference_mode():
        own = token_logprobs(model, ids, mask)[0]
    return (own - torch.tensor(turn.logprobs)).abs()


def test_weights_change_during_a_run_and_every_turn_says_whose_it_is(
    kind, vllm, worker, queues, publish_probed, ask, base
) -> None:
    run = f"changing-{kind}"
    versions = {v.id: v for v in (publish_probed(run, 1),)}
    ask(run, range(16))
    replies = queues.replies(4, WAIT_S)
    for number in (2, 3):
        version = publish_probed(run, number)
        versions[version.id] = version
        ask(run, range(16 * (number - 1), 16 * number), min_policy_version=number)
        replies |= queues.replies(12, WAIT_S)
    replies |= queues.replies(48 - len(replies), WAIT_S)
    assert sorted(replies) == sorted(f"t{number}" for number in range(48))
    turns = turns_of(replies.values())
    assert {turn.policy_version for _, turn in turns} == set(versions)
    newest = {turn.policy_version for _, turn in turns_of(replies[f"t{n}"] for n in range(32, 48))}
    assert newest == {max(versions)}
    for token_ids, turn in turns[:: max(1, len(turns) // 60)]:
        own = gaps(versions[turn.policy_version], base[2], token_ids, turn)
        # Whole weights may change within a turn: it counts as the older ones', the rest is the next ones'.
        right = (own < TOLERANCE).int().cumprod(0).sum()
        if right < len(own):
            assert kind == "full"
            later = [gaps(v, base[2], token_ids, turn)[right:] for v in versions.values()]
            assert min(gap.mean() for gap in later) < TOLERANCE
    assert metric(worker, "kbqa_engine_logprob_gap") < TOLERANCE
    assert metric(worker, f'kbqa_engine_update_seconds_count{{kind="{kind}"}}') >= 3
    assert vllm.metric("vllm:prefix_cache_hits_total") > 0
    if kind == "lora":
        served = [model["id"] for model in httpx.get(f"{vllm.url}/v1/models", timeout=WAIT_S).json()["data"]]
        assert served[1:] == [f"{run}/{max(versions)}"]


def test_what_computes_something_else_than_its_trainer_is_not_served_and_readiness_says_so(
    kind, worker, queues, publish_probed, ask
) -> None:
    publish_probed(f"untrue-{kind}", 1, untrue=True)
    ask(f"untrue-{kind}", [1])
    failure = queues.replies(1, WAIT_S)["t1"].failure
    assert failure.reason == "version_refused"
    assert "differ from the trainer's" in failure.detail
    assert "differ from the trainer's" in worker.unready().text
    publish_probed(f"untrue-{kind}", 2)
    ask(f"untrue-{kind}", [2], min_policy_version=2)
    assert queues.replies(1, WAIT_S)["t2"].group is not None
    worker.ready()


def test_a_server_that_dies_fails_its_requests_and_gets_the_newest_version_when_it_is_back(
    kind, vllm, worker, queues, publish_probed, ask
) -> None:
    publish_probed(f"death-{kind}", 1)
    ask(f"death-{kind}", range(8), n=16)
    deadline = time.monotonic() + WAIT_S
    while not metric(worker, "kbqa_engine_requests_running"):
        assert time.monotonic() < deadline
        time.sleep(0.02)
    vllm.kill()
    newest = publish_probed(f"death-{kind}", 2)
    vllm.start()
    replies = queues.replies(8, WAIT_S)
    lost = [reply for reply in replies.values() if reply.failure is not None]
    assert lost
    assert {reply.failure.reason for reply in lost} == {"policy_unavailable"}
    ask(f"death-{kind}", range(8, 12))  # the trainer asks again
    again = turns_of(queues.replies(4, WAIT_S).values())
    assert {turn.policy_version for _, turn in again} == {newest.id}
    assert httpx.get(f"{worker.url}/readyz", timeout=WAIT_S).status_code == 200


def test_what_nobody_waits_for_is_not_computed(vllm, base) -> None:
    """A connection that is closed ends its request in the engine."""
    # However quick the engine is: of ever more requests it does not finish all before their askers leave.
    assert any(computed_for_nobody(vllm, requests) < requests * 230 for requests in (6, 60, 600))


def computed_for_nobody(vllm: Vllm, requests: int) -> float:
    """Tokens that the engine writes for askers who leave once it has begun; each wants 230."""

    def written() -> float:
        return vllm.metric("vllm:generation_tokens_total")

    def idle() -> bool:
        return not vllm.metric("vllm:num_requests_running") + vllm.metric("vllm:num_requests_waiting")

    wanted = {"token_ids": [5] * 20, "sampling_params": {"max_tokens": 230, "ignore_eos": True}}
    body = json.dumps(wanted).encode()
    head = (
        f"POST /inference/v1/generate HTTP/1.1\r\nHost: 127.0.0.1:{vllm.port}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    before = written()
    with ExitStack() as connections:
        for _ in range(requests):
            asker = connections.enter_context(socket.create_connection(("127.0.0.1", vllm.port), WAIT_S))
            asker.sendall(head.encode() + body)
        wait_until(lambda: written() > before, WAIT_S)
    wait_until(idle, WAIT_S)
    return written() - before
