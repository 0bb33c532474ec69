"""Many worlds, each with a schema, a graph and questions of its own, to train a policy that reads any graph.

Every third world has an invented schema, the others one that is drawn from a domain, from each domain in
turn. What is held out is a schema: the worlds of validation and test questions have no training questions,
nor have other worlds of their domains.
"""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import cycle, zip_longest

from kbqa.datasets.splits import Splits
from kbqa.datasets.world.asking import Asker
from kbqa.datasets.world.domains import Domain, domains, draw_schema
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


def generate_worlds(seed: int, sizes: Sizes | None = None) -> tuple[Splits, dict[str, str]]:
    """Generate worlds and questions about them.

    Returns:
        The questions, in which the worlds take turns, and for each world its name and its graph as N-Triples.

    Raises:
        DatasetError: the lexicon cannot be read.
    """
    sizes = sizes or Sizes()
    inventor = Inventor(Lexicon.load())
    parted = _in_splits(domains(), random.Random(f"domains/{seed}"))
    fields = {split: cycle(some) for split, some in parted.items()}
    graphs: dict[str, str] = {}
    asked: defaultdict[str, list[Sequence[Question]]] = defaultdict(list)
    parts = ["train"] * sizes.worlds + ["validation"] * sizes.held_out + ["test"] * sizes.held_out
    for number, split in enumerate(parts):
        name = f"worlds-{seed}-{number:03}"
        rng = random.Random(f"worlds/{seed}/{number}")
        if number % 3 == 0:
            schema = inventor.schema(rng.getrandbits(48))
        else:
            schema = draw_schema(next(fields[split]), rng.getrandbits(48))
        facts = generate_facts(schema, rng)
        graphs[name] = "".join(f"{line}\n" for line in facts.lines())
        demonstrated = sizes.demonstrated if split == "train" else 0
        questions = _ask(Asker(facts, name, rng, _LIMITS), name, demonstrated + sizes.questions, rng)
        asked["cold_start"].append(questions[:demonstrated])
        asked[split].append(questions[demonstrated:])
    splits = ("cold_start", "train", "validation", "test")
    return Splits(*(_in_turns(asked[split]) for split in splits)), graphs


def _in_splits(known: Mapping[str, Domain], rng: random.Random) -> Mapping[str, Sequence[Domain]]:
    """The domains of each split: a tenth each for validation and test."""
    names = rng.sample(sorted(known), len(known))
    few = max(1, len(names) // 10)
    parts = {"validation": names[:few], "test": names[few : 2 * few], "train": names[2 * few :]}
    return {split: [known[name] for name in names] for split, names in parts.items()}


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
