"""What the fleet simulates: an engine that answers after a random time, a graph that always finds something.

An episode asks a fixed number of times and then answers. Its texts are as long as those of a language model:
random words, and log-probabilities in single precision, so that messages are as large as real ones.
"""

from __future__ import annotations

import json
import random
import threading
import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from multiprocessing.sharedctypes import Synchronized, SynchronizedArray
from pathlib import Path

from tokenizers import Tokenizer

from benchmarks.scripted_gateway import told
from kbqa.kg.actions import GET_TAIL_ENTITIES, Action, ActionResult, Item, Success
from kbqa.kg.store import GraphInfo
from kbqa.policies.base import Codec, Completion, FinishReason, SamplingParams
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.policy_store.shelves import LocalShelf
from kbqa.protocols.kg_r1 import write_query
from kbqa.recipes import Recipe
from kbqa.training.small_policy import train_tokenizer
from kbqa.trajectory import Segment

GRAPH = "graph"
TURNS = 4
_MARK = "Zweitausendeins"  # begins every turn, and occurs nowhere else
_WORDS, _SCRIPTS, _THOUGHT_WORDS = 3000, 32, 75
_FOUND = 40  # entities of an observation
_SIGMA = 0.47  # of the logarithm of a service time
_VOCABULARY = 4000
_WEIGHTS_BYTES = 2**16


class Graph:
    """Finds the same entities everywhere, at once."""

    def __init__(self) -> None:
        words = Words(7)
        self._found = tuple(Item(name, name) for name in (words.text(2) for _ in range(_FOUND)))

    def graphs(self) -> list[GraphInfo]:
        return [GraphInfo(GRAPH, "1", 1, 2)]

    def execute(self, kg: str, actions: Sequence[Action], *, graph: str | None = None) -> list[ActionResult]:
        return [
            Success(self._found, _FOUND)
            if len(actions) == 1 and action.name == GET_TAIL_ENTITIES
            else told(action)
            for action in actions
        ]


class Words:
    """Random words by a seed."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        syllables = [c + v for c in "bdfgklmnprstvz" for v in "aeiou"]
        self._words = ["".join(self._random.choices(syllables, k=3)) for _ in range(_WORDS)]

    def text(self, count: int) -> str:
        return " ".join(self._random.choices(self._words, k=count))


class Engine:
    """The port `Policy`: each call takes a log-normal time of a mean that the fleet shares, in seconds."""

    max_length = 1 << 15

    def __init__(self, codec: Codec, label: str, mean_s: Synchronized[float]) -> None:
        self.label = label
        self._mean_s = mean_s
        (self._mark, *_) = codec.encode([Segment(_MARK)])
        words = Words(1)
        asks = [
            write_query(
                f"{_MARK} {words.text(_THOUGHT_WORDS)}",
                Action(GET_TAIL_ENTITIES, {"entity": "Topic", "relation": f"relation {number % 5}"}),
            )
            for number in range(_SCRIPTS)
        ]
        answers = [
            f"<think>{_MARK} {words.text(_THOUGHT_WORDS)}</think><answer>found {number}</answer>"
            for number in range(_SCRIPTS)
        ]
        self._asks = [tuple(codec.encode([Segment(text)])) for text in asks]
        self._answers = [tuple(codec.encode([Segment(text)])) for text in answers]

    def generate(
        self,
        prompts: Sequence[Sequence[int]],
        params: SamplingParams,
        *,
        deadline: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> list[Completion]:
        pause_s = self._mean_s.value * random.lognormvariate(-(_SIGMA**2) / 2, _SIGMA)
        (cancelled or threading.Event()).wait(pause_s)
        turn = prompts[0].count(self._mark)
        scripts = self._asks if turn < TURNS - 1 else self._answers
        return [self._completion(random.choice(scripts)) for _ in prompts]

    def _completion(self, tokens: tuple[int, ...]) -> Completion:
        logprobs = tuple(array("f", (-random.expovariate(3.0) for _ in tokens)))
        return Completion(tokens, logprobs, FinishReason.STOP, self.label)


class Hosted:
    """An engine that takes as long for a new version as for a completion."""

    alive = available = True

    def __init__(self, engine: Engine, mean_s: Synchronized[float]) -> None:
        self.policy, self._mean_s = engine, mean_s

    def swap(self, version: PolicyVersion) -> None:
        time.sleep(self._mean_s.value)
        self.policy.label = version.id

    def close(self) -> None:
        pass


class Host:
    """Makes engines."""

    def __init__(self, mean_s: Synchronized[float]) -> None:
        self._mean_s = mean_s

    def build(self, version: PolicyVersion, codec: TokenizerCodec, *, deterministic: bool) -> Hosted:
        return Hosted(Engine(codec, version.id, self._mean_s), self._mean_s)

    def unready(self) -> str | None:
        return None

    def reads(self, version: PolicyVersion) -> bool:
        return True


def make_tokenizer(recipe: Recipe) -> Tokenizer:
    """A tokenizer that knows the words, and the tags of the recipe's dialect."""
    corpus = [_MARK, *(Words(seed).text(_WORDS) for seed in (1, 7))]
    return train_tokenizer(corpus, [_MARK, *recipe.protocol.build().tags], _VOCABULARY)


def publish(store: PolicyStore, run: str, number: int, recipe: Recipe, tokenizer: Tokenizer) -> PolicyVersion:
    """Publish a version with next to no weights."""

    def write(directory: Path) -> None:
        (directory / "config.json").write_text(json.dumps({"model_type": "simulated"}))
        tokenizer.save(str(directory / "tokenizer.json"))
        (directory / "model.safetensors").write_bytes(random.randbytes(_WEIGHTS_BYTES))

    return store.publish(
        run,
        number,
        write,
        recipe=recipe.model_dump(mode="json"),
        recipe_digest=recipe.digest(),
        step=number,
        metrics={},
        graphs=(GRAPH,),
    )


OPERATIONS = ("names", "exists", "read", "write", "remove", "publish", "bring")
"""Of a policy store's shelf, in the order of `count_operations`."""


def count_operations(counts: SynchronizedArray[int]) -> None:
    """Count what is done to directories of policies, in this process and in those that it forks."""

    def counted(index: int, method: Callable[..., object]) -> Callable[..., object]:
        @wraps(method)
        def call(*arguments: object) -> object:
            with counts.get_lock():
                counts[index] += 1
            return method(*arguments)

        return call

    for index, name in enumerate(OPERATIONS):
        setattr(LocalShelf, name, counted(index, getattr(LocalShelf, name)))


def operations(counts: SynchronizedArray[int]) -> Mapping[str, int]:
    return {name: counts[index] for index, name in enumerate(OPERATIONS)}
