"""Policies that know nothing, and requests for them: fixtures for the `conftest.py` of several rooms."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from kbqa.datasets import load_dataset
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.recipes import Recipe, recipe_from
from kbqa.training.small_policy import build_model, save_model, train_tokenizer
from kbqa.trajectory import Question
from kbqa.wire import Purpose, RolloutRequest

Publish = Callable[..., PolicyVersion]


@pytest.fixture
def recipe(tiny_recipe) -> Recipe:
    return recipe_from(tiny_recipe)


@pytest.fixture
def store(home: Path) -> PolicyStore:
    return PolicyStore(home / "policies")


@pytest.fixture(scope="session")
def questions() -> tuple[Question, ...]:
    return load_dataset("world", seed=1).splits.train[:20]


@pytest.fixture
def publish(store: PolicyStore, recipe: Recipe, questions) -> Publish:
    """`publish(run, number)` publishes random weights that differ with the number."""

    def publish(run: str, number: int, vocabulary: int = 400) -> PolicyVersion:
        assert recipe.small_policy is not None
        tokenizer = train_tokenizer([q.text for q in questions], recipe.protocol.build().tags, vocabulary)
        model = build_model(tokenizer, recipe.small_policy.build(), seed=number)
        return store.publish(
            run,
            number,
            lambda directory: save_model(model, tokenizer, directory),
            recipe=recipe.model_dump(mode="json"),
            recipe_digest=recipe.digest(),
            step=number,
            metrics={},
        )

    return publish


@pytest.fixture
def make_request(recipe: Recipe, questions) -> Callable[..., RolloutRequest]:
    def make(run: str, request_id: str, **changes: object) -> RolloutRequest:
        values = {
            "run": run,
            "request_id": request_id,
            "purpose": Purpose.TRAIN,
            "question": questions[0],
            "recipe_digest": recipe.digest(),
            "min_policy_version": 1,
            "n": 3,
            "temperature": 1.0,
            "seed": 7,
            "sent_at": time.time(),
            "deadline_s": 30.0,
        }
        return RolloutRequest(**{**values, **changes})

    return make
