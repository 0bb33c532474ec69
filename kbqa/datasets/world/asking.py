"""Asks questions about the facts of a world: a text, the logical form, its query, and the gold answers.

Gold answers are ids or values, computed from the form without SPARQL. No form is asked for twice.
"""

from __future__ import annotations

import random
from collections.abc import Callable

from kbqa.datasets.world.facts import Facts, Node
from kbqa.datasets.world.members import members
from kbqa.datasets.world.operations import Draft, Drawer
from kbqa.datasets.world.schema import RDF_TERMS, Grammar, Schema
from kbqa.datasets.world.walks import Limits
from kbqa.datasets.world.yes_no import yes_no
from kbqa.errors import DatasetError
from kbqa.logical_forms.algebra import Ask, Count, Expression, Literal, canonical, described, entities
from kbqa.logical_forms.compiler import Distinct, FormVocabulary, to_sparql
from kbqa.logical_forms.s_expression import print_s_expression
from kbqa.trajectory import Question

_WITH_MARK = 0.5  # share of the questions that end with a question mark
_TRIES = 4_000  # for a question, before the world counts as too small

Accepts = Callable[[Expression, int], bool]
"""Whether a form is wanted, at a given number of tries."""


def _any(_: Expression, __: int) -> bool:
    return True


class Asker:
    """Asks questions about one world.

    Args:
        kg: name of its graph.
        terms: how its ids are written in SPARQL.
    """

    def __init__(
        self,
        facts: Facts,
        kg: str,
        rng: random.Random,
        limits: Limits | None = None,
        terms: FormVocabulary = RDF_TERMS,
    ) -> None:
        self._facts, self._kg, self._rng, self._terms = facts, kg, rng, terms
        self._limits = limits or Limits()
        self._drawer = Drawer(facts, rng, self._limits)
        self._asked: set[Expression] = set()

    def ask(self, id_: str, operation: str, accepts: Accepts = _any) -> Question:
        """A question of an operation (a key of `OPERATIONS`) that was not asked before.

        Raises:
            DatasetError: the world has no further question of that operation.
        """
        draft = self._draw(operation, accepts)
        returns = self._limits.returns
        apart = entities(described(draft.form)) if returns else ()
        found = members(self._facts, draft.form, apart=apart)
        distinct = Distinct.ENTITIES if returns else Distinct.ANSWER
        return Question(
            id=id_,
            text=_text(draft, self._facts.schema, self._rng),
            answers=tuple(sorted(map(_answer, found))),
            topic_entities=self._topics(draft.form),
            kg=self._kg,
            path=draft.path,
            form=print_s_expression(draft.form),
            sparql=" ".join(to_sparql(draft.form, self._terms, distinct=distinct).split()),
            operation=operation,
        )

    def _draw(self, operation: str, accepts: Accepts) -> Draft:
        for tries in range(_TRIES):
            draft = self._drawer.draw(operation)
            if draft is None:
                continue
            form = canonical(draft.form)
            if accepts(draft.form, tries) and form not in self._asked:
                self._asked.add(form)
                return draft
        raise DatasetError(
            f"the world {self._kg} has no further questions of the operation {operation}: "
            "ask for fewer, or make it larger"
        )

    def _topics(self, form: Expression) -> tuple[str, ...]:
        """All entities with a name that the question mentions; the agent must choose among namesakes."""
        named = (self._facts.bearers[self._facts.names[entity]] for entity in entities(form))
        return tuple(dict.fromkeys(entity for bearers in named for entity in bearers))


def _text(draft: Draft, schema: Schema, rng: random.Random) -> str:
    """The text of a question."""
    phrase, grammar = draft.phrase, schema.grammar
    is_plural = draft.is_plural if draft.is_plural is not None else _is_plural(phrase, schema, grammar)
    if isinstance(draft.form, Ask):
        if draft.whether:
            return f"{rng.choice(draft.whether)} ?"
        patterns = grammar.whether_several if is_plural else grammar.whether_one
        if patterns:
            return rng.choice(patterns).format(draft.asked, phrase)
        return yes_no(rng, draft.asked, phrase, draft.question, is_plural=is_plural)
    if draft.question:
        return f"{draft.question} ?" if rng.random() < _WITH_MARK else draft.question
    if isinstance(draft.form, Count):
        return rng.choice(grammar.how_many).format(phrase.removeprefix("the "))
    if phrase.startswith(grammar.clauses):
        return rng.choice(grammar.clause).format(phrase)
    one, several = grammar.one, grammar.several
    if draft.is_person:
        one, several = grammar.people_one or one, grammar.people_several or several
    return rng.choice(several if is_plural else one).format(phrase)


def _is_plural(phrase: str, schema: Schema, grammar: Grammar) -> bool:
    plurals = (*(kind.plural for kind in schema.kinds.values()), *grammar.plurals)
    return phrase.startswith(tuple(f"the {noun} " for noun in plurals))


def _answer(node: Node) -> str:
    return node.lexical if isinstance(node, Literal) else node
