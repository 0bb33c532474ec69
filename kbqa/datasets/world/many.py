"""Many worlds, each with a schema, a graph and questions of its own, to train a policy that reads any graph.

Every third world has an invented schema, the others one that is drawn from a domain, from each domain in
turn. What is held out is a schema: the worlds of validation and test questions have no training questions,
nor have other worlds of their domains.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, zip_longest
from typing import NamedTuple

from kbqa.datasets.splits import Splits
from kbqa.datasets.world.asking import Asker
from kbqa.datasets.world.domains import domains, draw_schema
from kbqa.datasets.world.facts import generate_facts
from kbqa.datasets.world.inventing import Inventor
from kbqa.datasets.world.lexicon import Lexicon
from kbqa.datasets.world.operations import OPERATIONS
from kbqa.datasets.world.walks import Limits
from kbqa.errors import DatasetError
from kbqa.trajectory import Question

# Sets are as large as a graph gives them, but few enough that a question is not about everything.
# Long paths fail more often to be drawn.
_LIMITS = Limits(answers=40, members=60, lookups=80, returns=True, hops=(1, 1, 2, 2, 2, 3, 3, 3), within=0.25)
# Paths are what most people ask for, and what stopping has to be learned from.
_SHARES: Mapping[str, int] = {"path": 8} | {name: 1 for name in OPERATIONS if name != "path"}


@dataclass(frozen=True, slots=True)
class Sizes:
    """How many worlds and questions there are.

    Attributes:
        worlds: with questions to learn from.
        held_out: with validation questions; as many others have test questions.
        demonstrated, questions: of each world, for the cold start and for all else.
    """

    worlds: int = 60
    held_out: int = 12
    demonstrated: int = 150
    questions: int = 50


class Planned(NamedTuple):
    """A world before it is generated.

    Attributes:
        split: that of its questions.
        domain: name of the domain that its schema is drawn from; None if the schema is invented.
    """

    name: str
    split: str
    domain: str | None


def planned(seed: int, sizes: Sizes | None = None) -> list[Planned]:
    """The worlds of a seed."""
    sizes = sizes or Sizes()
    fields = {
        split: cycle(some) for split, some in _in_splits(domains(), random.Random(f"domains/{seed}")).items()
    }
    parts = ["train"] * sizes.worlds + ["validation"] * sizes.held_out + ["test"] * sizes.held_out
    return [
        Planned(f"worlds-{seed}-{number:03}", split, next(fields[split]) if number % 3 else None)
        for number, split in enumerate(parts)
    ]


def generate_worlds(seed: int, sizes: Sizes | None = None) -> tuple[Splits, dict[str, str]]:
    """Generate worlds and questions about them.

    Returns:
        The questions, in which the worlds take turns, and for each world its name and its graph as N-Triples.

    Raises:
        DatasetError: the lexicon cannot be read.
    """
    sizes = sizes or Sizes()
    inventor, known = Inventor(Lexicon.load()), domains()
    graphs: dict[str, str] = {}
    asked: defaultdict[str, list[Sequence[Question]]] = defaultdict(list)
    for number, (name, split, domain) in enumerate(planned(seed, sizes)):
        rng = random.Random(f"worlds/{seed}/{number}")
        if domain is None:
            schema = inventor.schema(rng.getrandbits(48))
        else:
            schema = draw_schema(known[domain], rng.getrandbits(48))
        facts = generate_facts(schema, rng)
        graphs[name] = "".join(f"{line}\n" for line in facts.lines())
        demonstrated = sizes.demonstrated if split == "train" else 0
        questions = _ask(Asker(facts, name, rng, _LIMITS), name, demonstrated + sizes.questions, rng)
        asked["cold_start"].append(questions[:demonstrated])
        asked[split].append(questions[demonstrated:])
    splits = ("cold_start", "train", "validation", "test")
    return Splits(*(_in_turns(asked[split]) for split in splits)), graphs


def _in_splits(known: Iterable[str], rng: random.Random) -> Mapping[str, Sequence[str]]:
    """The names of the domains of each split: a tenth each for validation and test."""
    names = sorted(known)
    names = rng.sample(names, len(names))
    few = max(1, len(names) // 10)
    return {"validation": names[:few], "test": names[few : 2 * few], "train": names[2 * few :]}


def _in_turns(lists: Sequence[Sequence[Question]]) -> tuple[Question, ...]:
    """The questions of all worlds, the first of each before the second of any."""
    turns = zip_longest(*lists)
    return tuple(question for turn in turns for question in turn if question is not None)


def _ask(asker: Asker, name: str, count: int, rng: random.Random) -> Sequence[Question]:
    """Questions in the shares of the operations; the others share that of an operation that is used up."""
    shares = dict(_SHARES)
    asked: list[Question] = []
    while len(asked) < count and shares:
        operation = rng.choices(list(shares), list(shares.values()))[0]
        try:
            asked.append(asker.ask(f"{name}-{len(asked):04}", operation))
        except DatasetError:
            del shares[operation]
    return asked
