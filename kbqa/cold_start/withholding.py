"""Demonstrations of declining: an episode about a fact that the graph lacks.

Gold programs always lead to an answer, so a policy that imitates them alone takes the option that comes
nearest when there is none. Here everything that leads to the answer is withheld from some turn on, as if
the graph did not have it, and only the turn that declines is imitated.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from kbqa.cold_start.demonstrations import Demonstration, play
from kbqa.cold_start.gold import gold_form
from kbqa.cold_start.teachers import LISTENING, Lesson
from kbqa.kg.actions import Action, ActionResult, GraphTools, Success
from kbqa.logical_forms.algebra import Ask, Expression
from kbqa.logical_forms.building import leads_to
from kbqa.logical_forms.s_expression import parse_s_expression
from kbqa.protocols.chooser import write_choice
from kbqa.protocols.form_chooser import FormChoosingProtocol


@dataclass
class _Withholding:
    """Tools that list no form that leads to `target`, after `shown` calls of `expand`."""

    tools: GraphTools
    target: Expression
    shown: int

    def execute(self, kg: str, actions: Sequence[Action], *, graph: str | None = None) -> list[ActionResult]:
        results = self.tools.execute(kg, actions, graph=graph)
        self.shown -= len(results)
        return results if self.shown >= 0 else [self._without(result) for result in results]

    def _without(self, result: ActionResult) -> ActionResult:
        if not isinstance(result, Success):
            return result
        listed: list[dict[str, Any]] = result.details["expansions"]
        kept = [one for one in listed if not leads_to(parse_s_expression(one["form"]), self.target)]
        return replace(result, details={**result.details, "expansions": kept})


def withheld(
    demonstration: Demonstration,
    protocol: FormChoosingProtocol,
    tools: GraphTools,
    max_turns: int,
    rng: random.Random,
) -> Demonstration | None:
    """The same question, of a graph that lacks what one of the turns has chosen, which is then declined.

    Returns:
        None if nothing is left to choose from at that turn, and for yes/no questions.

    Raises:
        GraphNotFoundError, GraphUnavailableError: from the tools.
    """
    question, turns = demonstration.question, demonstration.turns[:-1]  # the last one answers
    target = gold_form(question)
    # What ASK finds out can be found out from the other end, too, which is not withheld.
    if target is None or isinstance(target, Ask) or not turns:
        return None
    kept = turns[: rng.randrange(len(turns))]
    lacking = _Withholding(tools, target, shown=len(kept))
    played = play(question, protocol, lacking, _declining(kept), max_turns)
    passages = played.demonstration.passages[: 2 * len(kept) + 2]
    if len(passages) < 2 * len(kept) + 2:
        return None
    before = [replace(passage, imitated=False) for passage in passages[:-1]]
    return replace(played.demonstration, passages=(*before, passages[-1]))


def _declining(turns: Sequence[str]) -> Lesson:
    """Turns that were played before; then the last option of those listed, which declines the others."""
    results = yield LISTENING
    for text in turns:
        results = yield text
    (result,) = results
    if isinstance(result, Success) and result.details["expansions"]:
        yield write_choice(len(result.details["expansions"]) + len(result.details.get("missing", ())) + 1)
