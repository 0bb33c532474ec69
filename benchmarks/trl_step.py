"""Our loss and optimiser step beside TRL's GRPOTrainer, on the same prepared batch and model.

Loss and step alone: rollouts, rewards and advantages are given, and each side may split the
batch as it is fastest. Both minimise the same number, which is checked before it is timed.
The two take turns, so that what else the machine does hits both. Measured twice: by the clock
with all cores, and in processor time of one thread, which a busy machine hardly changes.
"""

from __future__ import annotations

import logging
import os
import random
import time
import warnings
from collections.abc import Callable, Sequence
from functools import partial
from statistics import median
from string import ascii_lowercase
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import PreTrainedTokenizerFast

from kbqa.objectives import SurrogateConfig
from kbqa.protocols.kg_r1 import KgR1
from kbqa.training.grpo import GrpoConfig, grpo_step, make_optimiser
from kbqa.training.small_policy import END, PAD, SmallPolicyConfig, build_model, train_tokenizer
from kbqa.trajectory import TrainingSample

Clock = Callable[[], float]

# 2.6 million parameters.
_SIZE = SmallPolicyConfig(vocabulary=2048, layers=4, width=192, heads=4, feed_forward=704, max_length=1024)
_SHAPES = {"prompts 320, completions 96": (320, 96), "prompts 32, completions 384": (32, 384)}
_GROUPS, _MEMBERS = 2, 8
_ROUNDS = 5
_BUDGETS = (1024, 2048, 4096)  # tokens of a row
_SPLITS = (2, 8, 16)  # samples of TRL's batch on a device


def measure() -> list[str]:
    """Lines of a report.

    Raises:
        AssertionError: the two sides do not minimise the same.
    """
    rng = random.Random(0)
    words = ["".join(rng.choices(ascii_lowercase, k=4)) for _ in range(4000)]
    tokenizer = train_tokenizer([" ".join(words)], KgR1().tags, _SIZE.vocabulary)
    lines = []
    for name, (prompt, completion) in _SHAPES.items():
        samples = _batch(prompt, completion, tokenizer.get_vocab_size())
        tokens = len(samples) * (prompt + completion)
        ours = [_Ours(build_model(tokenizer, _SIZE, 0), samples, budget) for budget in _BUDGETS]
        with TemporaryDirectory() as directory:
            theirs = [
                _Trl(build_model(tokenizer, _SIZE, 0), tokenizer, samples, prompt, split, directory)
                for split in _SPLITS
            ]
            sides: list[_Ours | _Trl] = [*ours, *theirs]
            losses = [side.step() for side in sides]
            if max(losses) - min(losses) > 1e-4 * abs(losses[0]):
                raise AssertionError(f"the sides do not minimise the same: {losses}")
            for what, threads, clock in (
                ("by the clock", os.cpu_count() or 1, time.perf_counter),
                ("in processor time of one thread", 1, time.process_time),
            ):
                torch.set_num_threads(threads)
                our_s, their_s = _take_turns([_fastest(side, clock) for side in (ours, theirs)], clock)
                lines.append(
                    f"training step, {_GROUPS} groups of {_MEMBERS}, {name}, {what}: "
                    f"{tokens / our_s:,.0f} prompt and completion tokens/s, TRL {tokens / their_s:,.0f}, "
                    f"ratio {their_s / our_s:.2f}"
                )
    return lines


def _fastest(ways: Sequence[_Ours] | Sequence[_Trl], clock: Clock) -> Callable[[], float]:
    return min((way.step for way in ways), key=partial(_seconds, clock))


def _take_turns(steps: Sequence[Callable[[], float]], clock: Clock) -> list[float]:
    """Median seconds of each."""
    rounds = [[_seconds(clock, step) for step in steps] for _ in range(_ROUNDS)]
    return [median(column) for column in zip(*rounds, strict=True)]


def _seconds(clock: Clock, step: Callable[[], float]) -> float:
    began = clock()
    step()
    return clock() - began


def _batch(prompt: int, completion: int, vocabulary: int) -> list[TrainingSample]:
    """Groups of random tokens as if drawn by a policy that is about as sure of each."""
    rng = random.Random(0)
    draw = partial(rng.randrange, 20, vocabulary)
    samples = []
    for _ in range(_GROUPS):
        head = [draw() for _ in range(prompt)]
        for _ in range(_MEMBERS):
            ids = (*head, *(draw() for _ in range(completion)))
            mask = (False,) * prompt + (True,) * completion
            logprobs = (0.0,) * prompt + tuple(-5.7 + 0.1 * rng.random() for _ in range(completion))
            advantage = rng.gauss(0, 1)
            samples.append(TrainingSample(ids, mask, logprobs, tuple(advantage * one for one in mask)))
    return samples


class _Ours:
    def __init__(self, model: Any, samples: list[TrainingSample], token_budget: int) -> None:
        self._config = GrpoConfig(
            learning_rate=0.0,
            weight_decay=0.0,
            token_budget=token_budget,
            surrogate=SurrogateConfig(aggregation="token_mean"),
        )
        self._model, self._samples = model, samples
        self._optimiser = make_optimiser(model, self._config)

    def step(self) -> float:
        return grpo_step(self._model, self._optimiser, self._samples, self._config).metrics["loss"]


class _Trl:
    """GRPOTrainer's own loss, backward pass, clipping and optimiser; nothing of its rollouts."""

    def __init__(
        self,
        model: Any,
        tokenizer: Any,
        samples: list[TrainingSample],
        prompt: int,
        split: int,
        directory: str,
    ) -> None:
        from datasets import Dataset  # not in every environment: pip install 'kbqa[bench]'
        from trl import GRPOConfig, GRPOTrainer

        logging.getLogger("trl").setLevel(logging.ERROR)
        parts = len(samples) // split
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self._trainer = GRPOTrainer(
                model,
                lambda completions, **_: [0.0] * len(completions),
                GRPOConfig(
                    directory,
                    per_device_train_batch_size=split,
                    gradient_accumulation_steps=parts,
                    num_generations=_MEMBERS,
                    max_completion_length=len(samples[0].token_ids) - prompt,
                    learning_rate=0.0,
                    beta=0.0,
                    loss_type="dapo",
                    gradient_checkpointing=False,
                    bf16=False,
                    use_cpu=True,
                    report_to="none",
                    disable_tqdm=True,
                ),
                Dataset.from_list([{"prompt": "?"}] * len(samples)),
                processing_class=PreTrainedTokenizerFast(
                    tokenizer_object=tokenizer, pad_token=PAD, eos_token=END
                ),
            )
        self._trainer.current_gradient_accumulation_steps = parts
        self._trainer.create_optimizer()
        self._trainer.model.train()
        self._inputs = [
            _trl_inputs(samples[start : start + split], prompt, sum(sum(s.mask) for s in samples))
            for start in range(0, len(samples), split)
        ]

    def step(self) -> float:
        trainer, optimiser = self._trainer, self._trainer.optimizer
        loss_sum = 0.0
        optimiser.zero_grad()
        for inputs in self._inputs:
            loss = trainer.compute_loss(trainer.model, inputs)
            loss.backward()
            loss_sum += loss.item()
        torch.nn.utils.clip_grad_norm_(trainer.model.parameters(), 1.0)
        optimiser.step()
        return loss_sum


def _trl_inputs(samples: list[TrainingSample], prompt: int, items: int) -> dict[str, torch.Tensor]:
    ids = torch.tensor([sample.token_ids for sample in samples])
    return {
        "prompt_ids": ids[:, :prompt],
        "prompt_mask": torch.ones_like(ids[:, :prompt]),
        "completion_ids": ids[:, prompt:],
        "completion_mask": torch.ones_like(ids[:, prompt:]),
        "advantages": torch.tensor([sample.advantages[-1] for sample in samples]),
        "old_per_token_logps": torch.tensor([sample.logprobs[prompt:] for sample in samples]),
        "num_items_in_batch": torch.tensor(float(items)),
    }
