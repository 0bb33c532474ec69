"""A chat model with an adapter goes the whole way: its own template, one base, adapters beside it."""

from __future__ import annotations

import json
import random
from pathlib import Path
from statistics import fmean

import httpx
import pytest
from transformers import AutoTokenizer

from kbqa.bases import KNOWN, find_base, sight
from kbqa.kg.catalog import GraphCatalog
from kbqa.policy_store import PolicyStore
from kbqa.protocols.chooser import write_choice
from kbqa.recipes import load_recipe
from kbqa.runs.directory import RunDirectory
from kbqa.training.small_policy import SmallPolicyConfig, build_model, save_model, train_tokenizer
from tests.service import Service

RECIPE = "kg-r1-smollm2"
TEMPLATE = (
    "{% for m in messages %}<turn>{{ m.role }}: {{ m.content }}</turn>\n{% endfor %}"
    "{% if add_generation_prompt %}<turn>assistant: {% endif %}"
)
SMOLLM2 = KNOWN["HuggingFaceTB/SmolLM2-135M-Instruct"]


@pytest.fixture(scope="module")
def chat_model(tmp_path_factory) -> Path:
    """A tiny Qwen2 with a chat template, as a directory."""
    directory = tmp_path_factory.mktemp("chat") / "model"
    # With the numbers of options as tokens, so that random weights choose some now and then: where every
    # episode earned the same, no step would be taken.
    numbers = [write_choice(number) for number in range(13)]
    tokenizer = train_tokenizer(["who is it ?"], ("<turn>", "</turn>", *numbers), 320)
    config = SmallPolicyConfig(320, layers=2, width=64, heads=2, feed_forward=64, max_length=2048)
    save_model(build_model(tokenizer, config, seed=0), tokenizer, directory)
    (directory / "chat_template.jinja").write_text(TEMPLATE)
    return directory


def first_prompt(run: Path) -> str:
    """What the first group of a run was asked, as its trace has it."""
    traces = RunDirectory(run).traces()
    header = traces.step(1)
    assert header is not None
    group = traces.group(1, header.groups[0].id)
    assert group is not None
    return group.prompt


def test_a_chat_model_trains_an_adapter_in_process(start_service, client, home, chat_model):
    start_service("rollout_worker").ready()
    runs = client(start_service("trainer").ready())
    steps = {"schedule.steps": 2, "schedule.validate_every": 2, "schedule.checkpoint_every": 1}
    recipe = load_recipe(
        RECIPE, {"base_model": str(chat_model), "rollout.max_tokens": 2048, "rollout.n": 4, **steps}
    )
    run = runs.start(recipe.model_dump(mode="json"))
    runs.wait(run, lambda view: view["state"] == "done")
    store = PolicyStore(home / "policies")
    versions = [store.get(run, id_) for id_ in store.ids(run)]
    # From the first one on: an engine that holds the base takes nothing else.
    assert {version.manifest.kind for version in versions} == {"lora"}
    assert {version.manifest.base_model for version in versions} == {str(chat_model)}
    assert all((version.path / "chat_template.jinja").read_text() == TEMPLATE for version in versions)
    prompt = first_prompt(home / "runs" / run)
    assert prompt.startswith("<turn>user: Choose the relation")
    assert prompt.endswith("Reply:</turn>\n<turn>assistant: ")
    records = [json.loads(line) for line in (home / "runs" / run / "metrics.jsonl").read_text().splitlines()]
    # Of samples by the very version that learns from them engine and trainer compute the same.
    fresh = [r for r in records if r["kind"] == "step" and not r["skipped"] and r["staleness"] == 0]
    assert fresh
    assert all(record["logprob_gap"] < 1e-3 for record in fresh)


def toy_country(directory: Path) -> Path:
    """Thirty countries with three facts each; a graph file, and questions about single facts beside it."""
    rng = random.Random(1)
    asked = {
        "capital": "what is the capital of {} ?",
        "language": "which language is spoken in {} ?",
        "currency": "which currency do people pay with in {} ?",
    }
    facts: list[str] = []
    questions: list[dict[str, object]] = []
    for number in range(30):
        country = f"Land {number}"
        for relation, text in asked.items():
            value = f"{relation.capitalize()} {rng.randrange(1000)}"
            facts.append(f"{country}\t{relation}\t{value}\n")
            questions.append(
                {
                    "id": f"{relation}-{number}",
                    "question": text.format(country),
                    "answers": [value],
                    "topic_entities": [country],
                    "kg": "toy",
                }
            )
    rng.shuffle(questions)
    (directory / "toy.tsv").write_text("".join(facts))
    data = directory / "data" / "toy"
    data.mkdir(parents=True)
    for part, some in (("train", questions[20:]), ("validation", questions[:10]), ("test", questions[10:20])):
        (data / f"{part}.jsonl").write_text("".join(json.dumps(one) + "\n" for one in some))
    return directory


@pytest.mark.integration
@pytest.mark.timeout(3600)
def test_twenty_steps_of_smollm2_on_real_vllm_raise_the_reward(
    start_service, client, home, start_vllm, tmp_path
):
    if sight(SMOLLM2.name) is None:
        pytest.skip(f"not installed: {SMOLLM2.package.how_to_install}")
    toy = toy_country(tmp_path)
    catalog = GraphCatalog(toy)
    catalog.load("toy", toy / "toy.tsv")
    catalog.close()
    graphs = Service("kg_server", toy, {})
    base = find_base(SMOLLM2.name).directory
    adapters = (
        "--enable-lora",
        "--max-loras",
        "2",
        "--max-lora-rank",
        "8",
        "--lora-target-modules",
        "qkv_proj",
    )
    vllm = start_vllm(base, options=("--max-num-seqs", "64", "--max-model-len", "1024", *adapters))
    try:
        reached = {"KBQA_KG_SERVER_URL": graphs.ready().url, "KBQA_DATA": str(toy / "data")}
        on_vllm = {
            "KBQA_ENGINE": "vllm",
            "KBQA_VLLM_URL": vllm.url,
            "KBQA_ROLLOUT_WORKER_VLLM_PRECISION": "float32",
        }
        worker = start_service("rollout_worker", **reached, **on_vllm).ready()
        runs = client(start_service("trainer", **reached).ready())
        recipe = load_recipe(RECIPE, {"rollout.max_turns": 2})
        run = runs.start(recipe.model_dump(mode="json"), dataset="toy", limits={})
        runs.wait(run, lambda view: view["state"] == "done", timeout_s=3300)

        lines = (home / "runs" / run / "metrics.jsonl").read_text().splitlines()
        steps = [record for line in lines if (record := json.loads(line))["kind"] == "step"]
        rewards = [step["reward"] for step in steps]
        assert len(steps) == 20
        assert fmean(rewards[-5:]) > fmean(rewards[:5]) + 0.5, rewards
        # Both compute the same of the same tokens: template, adapter and end of a turn are one for both.
        assert (steps[0]["staleness"], steps[0]["skipped"]) == (0, False)
        assert steps[0]["logprob_gap"] < 1e-3
        newest = PolicyStore(home / "policies").newest(run)
        served = {model["id"] for model in httpx.get(f"{vllm.url}/v1/models").json()["data"]}
        assert any(newest.id in label for label in served), served
        assert 'kbqa_rollout_policy_loads_total{kind="swap"}' in httpx.get(f"{worker.url}/metrics").text
        prompt = first_prompt(home / "runs" / run)
        tokenizer = AutoTokenizer.from_pretrained(base)
        asked = prompt.partition("<|im_start|>user\n")[2].partition("<|im_end|>")[0]
        messages = [{"role": "user", "content": asked}]
        assert prompt == tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    finally:
        graphs.kill()
