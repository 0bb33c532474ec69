"""Which corrections can be taught; the others are set aside with the reason."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from kbqa.cold_start.mining import Bounds, Neighbours, paths_to_answers
from kbqa.corrections.correction import Correction, same_question
from kbqa.kg.actions import GET_TAIL_RELATIONS, RESOLVE_NAMES, Action, ErrorKind, Failure, GraphTools, Success
from kbqa.kg.arguments import TEXT
from kbqa.trajectory import Question

_AT_ONCE = 100  # names of one action
_SEVERAL = 3  # wrong corrections from which on a teacher may be disbelieved


@dataclass(frozen=True, slots=True)
class SetAside:
    """A correction that is not taught, and why."""

    correction: Correction
    reason: str


@dataclass(frozen=True, slots=True)
class Examination:
    """What can be taught, and what cannot; both in the order of the corrections."""

    accepted: tuple[Correction, ...]
    set_aside: tuple[SetAside, ...]


def examine(
    corrections: Sequence[Correction],
    earlier: Iterable[Question],
    tools: GraphTools,
    bounds: Bounds | None = None,
) -> Examination:
    """Examine corrections against the graph, against each other and against questions of earlier training.

    If the graph or earlier questions refute most of what a teacher says, none of it is accepted: some wrong
    answers are at the end of a path by chance.

    Args:
        corrections: of each question at most one by the same teacher (`corrections_of`).
        earlier: questions whose answers are known to be right.
        bounds: how far an answer may be from the topic; default: three hops.

    Raises:
        GraphNotFoundError, GraphUnavailableError: from the tools.
    """
    graph = _Graph(tools, bounds or Bounds())
    said = defaultdict[tuple[str, str, str | None], dict[frozenset[str], str]](dict)
    for one in corrections:
        meant = graph.meant(one.kg, one.graph, one.answers)
        said[one.asked].setdefault(meant, one.teacher or "somebody without a key")
    asked = ((same_question(question.text), question) for question in earlier)
    known = {key: q for text, q in asked if (key := (text, q.kg, q.graph)) in said}
    refuted = {
        one.id: graph.contradiction(one, known.get(one.asked)) or graph.refutation(one) for one in corrections
    }
    reasons = {
        one.id: _uncheckable(one) or _contradiction(said[one.asked]) or refuted[one.id] for one in corrections
    }
    for teacher in {one.teacher for one in corrections}:
        theirs = [one.id for one in corrections if one.teacher == teacher]
        wrong = sum(refuted[id_] is not None for id_ in theirs)
        if wrong >= _SEVERAL and wrong > len(theirs) / 2:
            disbelief = (
                f"{wrong} of these {len(theirs)} corrections are wrong, so the others are not believed"
            )
            reasons |= {id_: reasons[id_] or disbelief for id_ in theirs}
    return Examination(
        tuple(one for one in corrections if reasons[one.id] is None),
        tuple(SetAside(one, reason) for one in corrections if (reason := reasons[one.id]) is not None),
    )


def _contradiction(said: dict[frozenset[str], str]) -> str | None:
    if len(said) == 1:
        return None
    teachers = ", ".join(sorted(set(said.values())))
    return f"corrections of this question contradict each other (by {teachers})"


def _uncheckable(one: Correction) -> str | None:
    count = len(one.topic_entities)
    return None if count == 1 else f"it begins at {count} entities; only a question about one can be checked"


class _Graph:
    """Finds out what answers stand for, and whether the graph can support them."""

    def __init__(self, tools: GraphTools, bounds: Bounds) -> None:
        self._tools, self._bounds = tools, bounds
        self._neighbours = Neighbours(tools, bounds.width)

    def meant(self, kg: str, graph: str | None, answers: Sequence[str]) -> frozenset[str]:
        """Answers by their ids, as far as one entity alone has such an id or label."""
        ids: dict[str, str] = {}
        names = [name for name in answers if TEXT.fits(name)]
        for start in range(0, len(names), _AT_ONCE):
            look = Action(RESOLVE_NAMES, {"names": names[start : start + _AT_ONCE]})
            [result] = self._tools.execute(kg, [look], graph=graph)
            if isinstance(result, Success):
                for name, entities in result.details["entities"].items():
                    if len(entities) == 1:
                        ids[name] = entities[0]["id"]
        return frozenset(ids.get(answer, answer) for answer in answers)

    def contradiction(self, one: Correction, known: Question | None) -> str | None:
        """Whether an earlier question in the same words has other answers; says so, or None."""
        if known is None:
            return None
        meant = self.meant(one.kg, one.graph, one.answers)
        if any(meant == self.meant(known.kg, known.graph, gold) for gold in known.golds):
            return None
        return f"the question {known.id}, whose answers are known, has others"

    def refutation(self, one: Correction) -> str | None:
        """Why the graph does not support a correction; None if it does, or if that cannot be checked."""
        if _uncheckable(one):
            return None
        question = one.question()
        if next(paths_to_answers(question, self._neighbours, self._bounds), None) is not None:
            return None
        for name in (*one.topic_entities, *one.answers):
            if not self._has(question, name):
                return f'the graph has no entity "{name}"'
        [topic] = one.topic_entities
        return (
            f"in at most {self._bounds.hops} hops to at most {self._bounds.width} entities each, nothing "
            f'leads from "{topic}" to exactly these answers'
        )

    def _has(self, question: Question, name: str) -> bool:
        look = Action(GET_TAIL_RELATIONS, {"entity": name, "limit": 1})
        [result] = self._tools.execute(question.kg, [look], graph=question.graph)
        return not (isinstance(result, Failure) and result.kind is ErrorKind.ENTITY_NOT_IN_KG)
