"""`kbqa eval` of policies on a vLLM server."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import pytest

from kbqa.policies.in_process import load_model
from kbqa.recipes import recipe_from
from kbqa.training.probing import take_probe
from kbqa.training.small_policy import save_model
from tests.unit.policies.fake_vllm import FakeVllm
from tests.unit.policies_fixtures import make_codec, make_tokenizer


@pytest.fixture
def fake_vllm(store, model):
    """A server for the version `served`, whose weights a probe verifies."""
    tiny = load_model(model)
    recipe = store.newest("tiny").recipe()
    store.publish(
        "served",
        1,
        lambda directory: save_model(tiny, make_tokenizer(), directory),
        recipe=recipe,
        recipe_digest=recipe_from(recipe, "tiny").digest(),
        step=0,
        metrics={},
        probe=take_probe(tiny, [30, 31, 32]),
    )
    fake = FakeVllm(tiny, make_codec())
    yield fake
    fake.stop()


def test_a_vllm_server_computes_the_same_greedy_figures(in_process, fake_vllm, model, data, tmp_path):
    asked = ("eval", "served", "metaqa-1hop", "--data", str(data), "--json", str(tmp_path / "x.json"))
    assert in_process(*asked)[0] == 0
    here = json.loads((tmp_path / "x.json").read_text())["metrics"]
    code, _, err = in_process(*asked, "--vllm", fake_vllm.url)
    assert (code, err) == (0, "")
    assert "/inference/v1/generate" in [urlsplit(path).path for path in fake_vllm.asked]
    assert json.loads((tmp_path / "x.json").read_text())["metrics"] == here
    code, _, err = in_process("eval", str(model), "world", "--recipe", "kg-r1-small", "--vllm", fake_vllm.url)
    assert (code, "name a version of the policy store" in err) == (2, True)
    fake_vllm.stop()
    code, _, err = in_process(*asked, "--vllm", fake_vllm.url)
    assert (code, f"--vllm {fake_vllm.url}: " in err, err.count("\n")) == (2, True, 1)


def test_a_teacher_of_ones_own_computes_on_a_vllm_server_within_the_recipes_budget(in_process, fake_vllm):
    written = []

    def listen(path, body):
        if (
            urlsplit(path).path == "/inference/v1/generate"
            and "prompt_logprobs" not in body["sampling_params"]
        ):
            written.append(body["sampling_params"]["max_tokens"])
        return fake_vllm.execute(path, body)

    fake_vllm.answer = listen
    asked = ("cold-start", "world", "--recipe", "kg-r1-small", "--limit", "2", "--candidates", "2")
    settings = (
        "protocol.entities=names",
        "rollout.max_turns=2",
        "rollout.max_turn_tokens=8",
        "rollout.max_tokens=200",
    )
    budget = (*(word for setting in settings for word in ("--set", setting)), "--json")
    teacher = ("--method", "outcome", "--teacher", "served", "--vllm", fake_vllm.url)
    code, out, err = in_process(*asked, *budget, *teacher)
    # It has learned nothing, so nothing of it is accepted.
    assert (code, "no candidate was accepted" in err) == (2, True), err
    report = json.loads(out)
    assert (report["questions"], report["total"], report["accepted"]) == (2, 4, 0)
    assert len(written) >= report["total"]
    assert max(written) <= 8
    code, _, err = in_process(*asked, "--method", "gold", "--vllm", fake_vllm.url)
    assert (code, "--vllm: gold paths need no teacher" in err, err.count("\n")) == (2, True, 1)
    fake_vllm.stop()
    code, _, err = in_process(*asked, *budget, *teacher, "--name", "again")
    assert (code, f"--vllm {fake_vllm.url}: " in err, err.count("\n")) == (2, True, 1)
