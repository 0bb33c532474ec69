"""Generates any number of questions of every operation, reproducible by seed.

Each question has a logical form, the query to which the form compiles, and gold answers by id, which
are computed from the form without SPARQL. No form occurs twice. Some relations and shapes of forms
are reserved for testing, by GrailQA's levels (Gu et al. 2021, section 3): a reserved relation makes
a question zero-shot, a reserved shape makes it compositional.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from dataclasses import replace

from kbqa.datasets.generalisation import Level, with_levels
from kbqa.datasets.splits import Splits
from kbqa.datasets.world.facts import Facts, Node, generate_facts
from kbqa.datasets.world.members import members
from kbqa.datasets.world.operations import OPERATIONS, Draft, Drawer
from kbqa.datasets.world.quantities import QUANTITIES
from kbqa.datasets.world.vocabulary import KINDS, LINKS, NAMESPACE, WORLD_TERMS
from kbqa.errors import DatasetError
from kbqa.logical_forms.algebra import Count, Expression, Literal, canonical, entities, relations
from kbqa.logical_forms.compiler import to_sparql
from kbqa.logical_forms.s_expression import print_s_expression
from kbqa.trajectory import Question

# The entities, values and times in the text of a form.
_NAMED = re.compile(r"world:m\.\w+|[^\s()]+\^\^[^\s()]+|(?:NOW|\d{4}(?:-\d\d){0,2})(?=\))")

_TRIES = 4_000  # for a question, before the world counts as too small
_PATIENCE = 200  # tries for a level, before any other level is accepted
# Levels of the test questions, in turn; other splits are i.i.d.
_LEVELS = (Level.IID, Level.COMPOSITIONAL, Level.IID, Level.ZERO_SHOT)
_RESERVED_LINKS, _RESERVED_QUANTITIES = 3, 2
_RESERVED_SHAPES = 0.15

# Questions about one thing, several things, a number, and a clause ("who wrote it").
_ONE = ("what is {} ?", "who or what is {} ?", "name {} .", "i want to know {} .")
_SEVERAL = ("what are {} ?", "which are {} ?", "name {} .", "list {} .")
_HOW_MANY = ("how many {} are there ?", "count the {} .", "what is the number of {} ?", "number of {} ?")
_CLAUSE = ("tell me {} .", "i want to know {} .", "can you tell me {} ?", "find out {} .")
_QUESTION_WORDS = ("how ", "what ", "who ", "those who ")
_PLURALS = (*(kind.plural for kind in KINDS.values()), "parents", "actors", "stars", "notable", "recipients")


def generate_world_all(
    seed: int, sizes: Mapping[str, int], kg: str, size: float = 1.0
) -> tuple[Facts, Splits]:
    """Generate a graph, and questions about it in equal parts of each operation.

    Args:
        sizes: number of questions of each split.
        size: of the graph; 1 is about 2,400 entities.

    Raises:
        DatasetError: the world does not have enough questions.
    """
    facts = generate_facts(seed, size)
    asking = _Asking(facts, seed, kg)
    order = ("cold_start", "train", "validation", "test")
    splits = Splits(*(asking.split(split, sizes[split]) for split in order))
    training = (*splits.cold_start, *splits.train)
    held_out = {split: with_levels(training, getattr(splits, split)) for split in ("validation", "test")}
    return facts, replace(splits, **held_out)


class _Asking:
    def __init__(self, facts: Facts, seed: int, kg: str) -> None:
        self._facts, self._kg, self._seed = facts, kg, seed
        self._rng = random.Random(f"world-all/questions/{seed}")
        self._drawer = Drawer(facts, self._rng)
        self._asked: set[Expression] = set()
        # Links with several kinds of tails are not reserved: they are few, and `type` questions need them.
        single = [link for link in LINKS if len(link.tails) == 1]
        links = [link.name for link in self._rng.sample(single, _RESERVED_LINKS)]
        valued = [quantity.name for quantity in self._rng.sample(QUANTITIES, _RESERVED_QUANTITIES)]
        self._reserved = {NAMESPACE + name for name in (*links, *valued)}

    def split(self, split: str, size: int) -> tuple[Question, ...]:
        questions = []
        for number in range(size):
            operation = list(OPERATIONS)[number % len(OPERATIONS)]
            level = _LEVELS[number // len(OPERATIONS) % len(_LEVELS)] if split == "test" else Level.IID
            draft = self._draw(operation, level)
            questions.append(self._question(f"{split}-{number:05}", operation, draft))
        return tuple(questions)

    def _draw(self, operation: str, level: Level) -> Draft:
        """A draft of that level, or of any level if it is rare; for i.i.d. always of that level."""
        for tries in range(_TRIES):
            draft = self._drawer.draw(operation)
            if draft is None:
                continue
            form = canonical(draft.form)
            wanted = self._set_aside(draft.form) == level or (level != Level.IID and tries > _PATIENCE)
            if wanted and form not in self._asked:
                self._asked.add(form)
                return draft
        raise DatasetError(
            f"the world of seed {self._seed} has no further questions of the operation {operation}: "
            "ask for fewer, or make it larger"
        )

    def _set_aside(self, form: Expression) -> Level:
        """The level for which a form is reserved."""
        if not self._reserved.isdisjoint(relations(form)):
            return Level.ZERO_SHOT
        shape = _NAMED.sub("*", print_s_expression(canonical(form)))
        draw = random.Random(f"{self._seed}/{shape}").random()
        return Level.COMPOSITIONAL if draw < _RESERVED_SHAPES else Level.IID

    def _question(self, id_: str, operation: str, draft: Draft) -> Question:
        found = members(self._facts, draft.form)
        return Question(
            id=id_,
            text=_text(draft, self._rng),
            answers=tuple(sorted(map(_answer, found))),
            topic_entities=self._topics(draft.form),
            kg=self._kg,
            path=draft.path,
            form=print_s_expression(draft.form),
            sparql=" ".join(to_sparql(draft.form, WORLD_TERMS).split()),
            operation=operation,
        )

    def _topics(self, form: Expression) -> tuple[str, ...]:
        """All entities with a name that the question mentions; the agent must choose among namesakes."""
        named = (self._facts.bearers[self._facts.names[entity]] for entity in entities(form))
        return tuple(dict.fromkeys(entity for bearers in named for entity in bearers))


def _text(draft: Draft, rng: random.Random) -> str:
    """The text of a question."""
    phrase = draft.phrase
    if isinstance(draft.form, Count):
        return rng.choice(_HOW_MANY).format(phrase.removeprefix("the "))
    if phrase.startswith(_QUESTION_WORDS):
        return rng.choice(_CLAUSE).format(phrase)
    is_plural = phrase.startswith(tuple(f"the {noun} " for noun in _PLURALS))
    return rng.choice(_SEVERAL if is_plural else _ONE).format(phrase)


def _answer(node: Node) -> str:
    return node.lexical if isinstance(node, Literal) else node
