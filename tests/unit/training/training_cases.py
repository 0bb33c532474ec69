"""Models, configurations and batches that a test and the processes it starts build alike."""

import random

import torch

from kbqa.objectives import SurrogateConfig
from kbqa.training.adapters import Adapter
from kbqa.training.grpo import GrpoConfig
from kbqa.training.sft import Example, SftConfig
from kbqa.trajectory import TrainingSample
from tests.unit.policies_fixtures import make_model

STEPS = 3
CASES = {
    "grpo": {"budget": 30},
    "grpo-lora": {"lora": True, "checkpointing": True},
    "grpo-capped": {"cap": 1.05, "budget": 20},
    "sft": {"sft": True, "budget": 80},
    "sft-lora": {"sft": True, "lora": True, "checkpointing": True, "budget": 80},
}
# Each of their steps has one or two rows, whose sum does not depend on the order; the others have more.
TWO_ROWS = {"grpo", "grpo-lora", "sft", "sft-lora"}


def build(case):
    return make_model(case.get("model", 0))


def reference(case):
    """Another model than the one that is trained, as in a phase that keeps an earlier reference."""
    return make_model(case.get("model", 0) + 1)


def config(case):
    adapter = Adapter(rank=4, alpha=8) if case.get("lora") else None
    checkpointing = case.get("checkpointing", False)
    if case.get("sft"):
        return SftConfig(
            token_budget=case.get("budget", 60), gradient_checkpointing=checkpointing, adapter=adapter
        )
    return GrpoConfig(
        learning_rate=1e-3,
        token_budget=case.get("budget", 60),
        surrogate=SurrogateConfig(
            kl_coefficient=0.05, aggregation="sample_mean", importance_cap=case.get("cap")
        ),
        mini_batch_questions=2,
        gradient_checkpointing=checkpointing,
        adapter=adapter,
    )


def train(learner, case, step):
    """Takes a step; returns its loss."""
    rate = 1e-3 * (step + 1)
    if not case.get("sft"):
        return learner.update(questions(step), rate).metrics["loss"]
    samples = [sample for question in questions(step) for sample in question]
    return learner.imitate([Example(sample.token_ids, sample.mask) for sample in samples], rate)


def questions(step):
    """Three questions, the second without samples, in rows of unequal number and length."""
    rng = random.Random(step)
    return [_group(rng, count) for count in (4, 0, 3)]


def _group(rng, count):
    prompt = [rng.randrange(20, 260) for _ in range(rng.randrange(8, 20))]
    samples = []
    for _ in range(count):
        ids = [*prompt, *(rng.randrange(20, 260) for _ in range(rng.randrange(2, 12)))]
        mask = tuple(at >= len(prompt) for at in range(len(ids)))
        logprobs = tuple(-5.6 + rng.random() if masked else 0.0 for masked in mask)
        advantage = rng.uniform(-1, 1)
        samples.append(TrainingSample(tuple(ids), mask, logprobs, tuple(advantage * m for m in mask)))
    return samples


def flat(model):
    return torch.cat([p.detach().flatten() for p in model.parameters() if p.requires_grad])
