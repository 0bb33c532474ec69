"""What the papers and their released code state, pinned; where a recipe's number comes from, it says."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from importlib import resources
from typing import Any

import pytest

from kbqa.recipes import load_recipe, recipe_names

CHOOSERS = [name for name in recipe_names() if name.endswith("-chooser")]
PAPERS = [
    name
    for name in recipe_names()
    if (recipe := load_recipe(name)).small_policy is None and "chooser" not in recipe.protocol.name
]

KG_R1 = {  # table 8, D.4, 3.3
    "base_model": "Qwen/Qwen2.5-3B-Instruct",
    "rollout.n": 16,
    "rollout.temperature": 1.0,
    "rollout.top_p": 1.0,
    "rollout.top_k": None,
    "rollout.max_turns": 5 + 1,  # H queries, and the answer
    "evaluation.temperature": 0.0,
    "reward.w_format": 0.5,
    "reward.w_query": 0.5,
    "reward.w_answer": 0.5,
    "reward.w_f1": 1.0,
    "reward.w_retrieval": 1.0,
    "reward.unique_queries": False,
    "advantage.kind": "turn",
    "advantage.lam": 1.0,
    "advantage.without_spread": "kept",
    "protocol.strict": True,
    "advantage.deviation": "population",
    "optimisation.learning_rate": 1e-6,
    "optimisation.warm_up_steps": 0,
    "optimisation.warm_up_share": 0.0,
    "optimisation.weight_decay": 0.01,
    "optimisation.clip_norm": 1.0,
    "optimisation.token_budget": 21000,
    "optimisation.mini_batch_questions": 128,
    "optimisation.clip_low": 0.2,
    "optimisation.clip_high": 0.2,
    "optimisation.kl_coefficient": 0.01,
    "optimisation.entropy_coefficient": 0.0,
    "optimisation.aggregation": "token_sum",
    "schedule.steps": 400,
    "schedule.questions_per_step": 128,
    "schedule.checkpoint_every": 50,
    "schedule.max_staleness": 0,
}
KG_R1_AS_RELEASED = KG_R1 | {
    "protocol.relations": "hierarchical",
    "rollout.max_turn_tokens": 256,
    "rollout.max_turns": 7 + 1,
    "reward.w_f1": 0.5,
    "reward.w_retrieval": 0.5,
    "reward.unique_queries": True,
    "advantage.kind": "turn_and_outcome",
    "advantage.turn_weight": 0.5,
    "advantage.outcome_weight": 1.0,
    "advantage.deviation": "sample",
    "optimisation.mini_batch_questions": None,
    "optimisation.mini_batch_samples": 128,
    "optimisation.aggregation": "token_sum_norm",
    "optimisation.horizon": 4500,
}
KBQA_R1 = {  # V-A4, Eq. 2, Eq. 4
    "base_model": "meta-llama/Llama-3.1-8B-Instruct",
    "protocol.actions": ["Find_relation", "Merge", "Order", "Compare", "Time_constraint", "Count"],
    "protocol.tau_high": 0.95,
    "protocol.tau_low": 0.3,
    "protocol.top_k": 5,
    "protocol.strict": True,
    "rollout.n": 5,
    "rollout.temperature": 1.0,
    "rollout.top_p": 0.99,
    "graph.query_timeout_s": 600,
    "graph.encoder": "princeton-nlp/sup-simcse-roberta-large",
    "rollout.max_turns": 6 + 1,
    "rollout.max_tokens": 14336 + 1024,
    "rollout.max_turn_tokens": 1024,
    "rollout.max_observation_tokens": 3072,
    "reward.w_f1": 1.0,
    "reward.w_format": 0.1,
    "reward.partial_format": 0.0,
    "reward.timeouts_score_nothing": False,
    "advantage.kind": "group",
    "advantage.deviation": "none",
    "optimisation.learning_rate": 1e-6,
    "optimisation.decay": "constant",
    "optimisation.warm_up_share": 0.3,
    "optimisation.mini_batch_questions": 128,
    "optimisation.clip_low": 0.2,
    "optimisation.clip_high": 0.28,
    "optimisation.kl_coefficient": 0.001,
    "optimisation.dual_clip": None,
    "cold_start.demonstrations": 29_384,  # table VII
    "cold_start.learning_rate": 5e-6,
    "cold_start.decay": "cosine",
    "cold_start.fresh_names": False,
    "cold_start.lora": None,
    "optimisation.aggregation": "token_mean",
    "schedule.steps": 44_337 // 256,
    "schedule.questions_per_step": 256,
    "schedule.validate_every": 10,
    "schedule.max_staleness": 0,
    "schedule.best_by.metric": "f1",
    "schedule.best_by.split": "train",
    "schedule.best_by.direction": "max",
}
KBQA_R1_AS_RELEASED = KBQA_R1 | {
    "protocol.strict": False,
    "graph.query_timeout_s": 20,
    "evaluation.temperature": 1.0,
    "evaluation.top_p": 0.7,
    "reward.partial_format": 0.3,
    "reward.timeouts_score_nothing": True,
    "advantage.deviation": "sample",
    "optimisation.kl_coefficient": 0.0,
    "optimisation.dual_clip": 10.0,
    "schedule.steps": 3 * 173,
}
KNOWCODER_A1 = {  # A, 4.3
    "base_model": "Qwen/Qwen2.5-Coder-7B",
    "rollout.n": 8,
    "rollout.temperature": 1.0,
    "graph.query_timeout_s": 300,
    "graph.encoder": "BAAI/bge-base-en-v1.5",
    "rollout.max_turns": 10,
    "rollout.max_tokens": 4096 + 8192,
    "evaluation.temperature": 0.0,
    "protocol.by_reference": False,
    "protocol.strict": True,
    "reward.beta": 0.5,
    "reward.format": 0.1,
    "reward.unseen_penalty": 0.0,
    "reward.timeout_penalty": 0.0,
    "advantage.kind": "group",
    "advantage.deviation": "population",
    "optimisation.learning_rate": 1e-6,
    "optimisation.warm_up_steps": 0,
    "optimisation.mini_batch_questions": 64,
    "optimisation.clip_low": 0.2,
    "optimisation.clip_high": 0.2,
    "optimisation.kl_coefficient": 0.001,
    "optimisation.aggregation": "sample_mean",
    "curriculum.balance": "operation",
    "schedule.steps": round(5465 / 64),  # 85
    "schedule.questions_per_step": 64,
    "schedule.max_staleness": 0,
}
KNOWCODER_A1_COLD_START = {  # A, table 8
    "cold_start.demonstrations": 440 + 699 + 563,
    "cold_start.epochs": 8,
    "cold_start.steps": None,
    "cold_start.batch": 8,
    "cold_start.learning_rate": 2e-5,
    "cold_start.decay": "cosine",
    "cold_start.max_length": 4096,
    "cold_start.lora.rank": 8,
    "cold_start.fresh_names": False,
}
ISP_KGR = {  # 5.1, C, F, G
    "base_model": "Qwen/Qwen2.5-3B-Instruct",
    "protocol.top_k": 10,
    "protocol.by_reference": False,
    "protocol.strict": True,
    "rollout.kind": "tree",
    "rollout.k": 16,
    "rollout.pruning": "parent",
    "rollout.beyond": "single",
    "graph.query_timeout_s": 300,
    "graph.encoder": "Qwen/Qwen3-Embedding-0.6B",
    "rollout.filter_errors": False,
    "evaluation.temperature": 1.0,
    "evaluation.top_p": 1.0,
    "evaluation.top_k": None,
    "rollout.temperature": 1.0,
    "rollout.top_p": 1.0,
    "rollout.top_k": None,
    "rollout.max_turns": 6,
    "rollout.max_tokens": 4096 + 1024,
    "rollout.max_turn_tokens": 1024,
    "reward.variant": "algorithm",
    "reward.w_format": 0.1,
    "reward.w_progress": 0.6,
    "reward.w_outcome": 0.3,
    "reward.max_distance": 3,
    "advantage.kind": "state",
    "advantage.deviation": "population",
    "advantage.bound": None,
    "optimisation.learning_rate": 1e-6,
    "optimisation.warm_up_steps": 0,
    "optimisation.mini_batch_samples": 128,
    "optimisation.clip_low": 0.2,
    "optimisation.clip_high": 0.2,
    "optimisation.kl_coefficient": 0.0,
    "optimisation.aggregation": "sample_mean",
    "cold_start.demonstrations": 800,
    "cold_start.epochs": 1,
    "cold_start.learning_rate": 5e-5,
    "cold_start.warm_up_steps": 10,
    "curriculum.representatives": 1,
    "schedule.steps": 168,
    "schedule.questions_per_step": 64,
    "schedule.max_staleness": 0,
}
ISP_KGR_AS_RELEASED = ISP_KGR | {
    "protocol.strict": False,
    "rollout.filter_errors": True,
    "graph.encoder": "Qwen/Qwen3-Embedding-8B",
    "rollout.top_k": 40,
    "reward.variant": "released",
    "reward.w_progress": 0.3,
    "reward.w_outcome": 0.6,
    "advantage.bound": 10.0,
    "optimisation.learning_rate": 5e-7,
    "optimisation.weight_decay": 0.0,
    "optimisation.betas": [0.9, 0.999],
    "optimisation.token_budget": 9216,
    "optimisation.mini_batch_samples": 32,
    "optimisation.clip_high": 0.24,
    "curriculum.representatives": "absent",
    "schedule.steps": 100,
}
LEARNING_TO_REFINE = {  # 3.3, 4.2, 4.3
    "base_model": "Qwen/Qwen2.5-3B-Instruct",
    "rollout.n": 16,
    "graph.query_timeout_s": 3,
    "rollout.max_turns": 10 + 1,
    "reward.correct": 0.5,
    "reward.incorrect": -0.2,
    "reward.error_cost": 0.1,
    "reward.turn_cost": 0.02,
    "reward.invalid": -1.0,
    "judge.model": "gpt-4o-nano",
    "advantage.kind": "group",
    "optimisation.learning_rate": 5e-6,
    "optimisation.clip_low": 0.2,
    "optimisation.clip_high": 0.2,
    "optimisation.kl_coefficient": 0.04,
    "optimisation.importance_cap": 2.0,
    "optimisation.lora.rank": 64,
    "optimisation.lora.alpha": 16.0,
    "optimisation.lora.quantised": True,
    "schedule.steps": math.ceil(24_180 / 128),
    "schedule.questions_per_step": 128,
    "schedule.max_staleness": 0,
}
STATED = {
    "kg-r1": KG_R1,
    "kg-r1-7b": KG_R1
    | {
        "base_model": "Qwen/Qwen2.5-7B-Instruct",
        "rollout.n": 8,
        "optimisation.kl_coefficient": 0.02,
        "optimisation.token_budget": 12_000,
        "schedule.questions_per_step": 256,
        "schedule.checkpoint_every": 25,
    },
    "kg-r1-as-released": KG_R1_AS_RELEASED,
    "kbqa-r1": KBQA_R1,
    "kbqa-r1-as-released": KBQA_R1_AS_RELEASED,
    "knowcoder-a1": KNOWCODER_A1 | KNOWCODER_A1_COLD_START,
    "knowcoder-a1-phase-2": KNOWCODER_A1
    | {
        "base_model": "./phase-1",
        "optimisation.reference": "./cold-start",
        "reward.beta": 1.0,
        "cold_start": None,
        "schedule.steps": round(3509 / 64),  # 55
    },
    "knowcoder-a1-curriculum": KNOWCODER_A1
    | KNOWCODER_A1_COLD_START
    | {"curriculum.balance": "operation", "schedule.steps": 85 + 55},
    "knowcoder-a1-as-released": KNOWCODER_A1
    | KNOWCODER_A1_COLD_START
    | {"rollout.max_turns": 12, "evaluation.temperature": 1.0, "evaluation.top_p": 0.9},
    "isp-kgr": ISP_KGR,
    "isp-kgr-as-released": ISP_KGR_AS_RELEASED,
    "learning-to-refine": LEARNING_TO_REFINE,
}


def test_the_stages_of_the_papers():
    isp = load_recipe("isp-kgr").curriculum
    assert isp is not None
    assert [stage.tiers for stage in isp.stages] == [("easy",), ("medium",), ("hard",)]
    knowcoder = load_recipe("knowcoder-a1-curriculum")
    assert knowcoder.curriculum is not None
    betas = [stage.reward.get("beta", 0.5) for stage in knowcoder.curriculum.stages]
    assert betas == [0.5, 1.0]
    [until, last] = [stage.until for stage in knowcoder.curriculum.stages]
    assert until is not None
    assert (until.metric, until.steps, last) == ("rhits1", 5465 // 64, None)


def values(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from values(value, f"{prefix}{key}.")
        else:
            yield prefix + key, value


@pytest.mark.parametrize("name", PAPERS)
def test_a_recipe_has_the_numbers_of_its_paper(name):
    resolved = dict(values(load_recipe(name).model_dump(mode="json")))
    stated = STATED[name]
    assert {key: resolved.get(key, "absent") for key in stated} == stated


@pytest.mark.parametrize("name", PAPERS)
def test_every_number_says_where_it_comes_from(name):
    """Beside it, above it, or at the section that it stands in."""
    silent, sections = [], {0: False}
    lines = (resources.files("kbqa.recipes") / f"{name}.yaml").read_text(encoding="utf-8").splitlines()
    for before, line in zip(["", *lines], lines, strict=False):
        key = re.match(r"( *)(\w+):(.*)", line)
        if key is None:
            continue
        indent, told = len(key[1]), "#" in line or before.lstrip().startswith("#")
        if key[3].split("#")[0].strip():
            says_itself = key[2] in ("name", "extends")
            if not (told or says_itself or sections[indent]):
                silent.append(line.strip())
        else:
            sections[indent + 2] = told
    assert silent == []


@pytest.mark.parametrize("name", CHOOSERS)
def test_a_policy_that_chooses_learns_by_the_rewards_and_advantages_of_its_paper(name):
    chooser, paper = load_recipe(name), load_recipe(name.removesuffix("-chooser"))
    told = paper.reward.model_dump() | ({"format": 0.0} if paper.reward.name == "knowcoder_a1" else {})
    assert chooser.reward.model_dump() == told
    assert chooser.advantage == paper.advantage.model_copy(update={"without_spread": "dropped"})
    assert chooser.rollout.kind == paper.rollout.kind
    clip = ("clip_low", "clip_high")
    assert [getattr(chooser.optimisation, key) for key in clip] == [
        getattr(paper.optimisation, key) for key in clip
    ]
    assert chooser.cold_start is None
    assert chooser.base_model == "sentence-transformers/all-MiniLM-L6-v2"
    assert chooser.optimisation.entropy_coefficient > 0


def test_a_chooser_of_forms_is_one_of_paths_in_another_dialect():
    forms, paths = load_recipe("kg-r1-forms"), load_recipe("kg-r1-chooser")
    assert (forms.protocol.name, paths.protocol.name) == ("form-chooser", "chooser")
    same = ("reward", "advantage", "optimisation", "schedule", "guards", "base_model", "cold_start")
    assert all(getattr(forms, name) == getattr(paths, name) for name in same)
    assert forms.rollout.n == paths.rollout.n
    assert forms.rollout.max_turns > paths.rollout.max_turns  # an operation takes a turn, as a hop does


def test_a_language_model_without_a_gpu_learns_as_kg_r1_does_in_the_dialect_of_choices():
    small, paper, chooser = map(load_recipe, ("kg-r1-smollm2", "kg-r1", "kg-r1-chooser"))
    assert small.reward == paper.reward
    assert small.advantage == paper.advantage.model_copy(update={"without_spread": "dropped"})
    assert (small.protocol.name, chooser.protocol.name) == ("chooser", "chooser")
    assert small.cold_start is None
    assert small.optimisation.lora is not None
