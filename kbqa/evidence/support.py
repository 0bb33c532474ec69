"""The merged answers of runs, each with its evidence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbqa.answers import normalise
from kbqa.evidence.claims import CitedQuery, Claims
from kbqa.evidence.retrieved import Retrieved
from kbqa.evidence.union import UnitedAnswer, unite
from kbqa.kg.actions import Triple
from kbqa.trajectory import Trajectory

Evidence = list[Triple] | CitedQuery
"""Triples that lead from a topic entity to the answer, in that order; or the query that found it."""

_BOOLEANS = {"yes": True, "true": True, "no": False, "false": False}


@dataclass(frozen=True, slots=True)
class CitedAnswer:
    """An answer and its evidence.

    Attributes:
        given: the answer as the runs gave it.
        id: of the entity or literal that it stands for; None if no action retrieved one.
        label: with which the entity was retrieved; None likewise.
        evidence: None if nothing supports the answer.
    """

    given: UnitedAnswer
    id: str | None
    label: str | None
    evidence: Evidence | None


def cited(runs: Sequence[Trajectory], topics: frozenset[str], claims: Claims) -> list[CitedAnswer]:
    """The merged answers of the runs (`unite`), the most frequent first, with evidence.

    A text that stands for several retrieved entities yields one answer for each of them; a text
    that stands for none yields a single answer.

    Args:
        topics: ids of the entities where the runs began.
        claims: check the evidence. Unchecked claims count as true and are noted, see `confirmed`.
    """
    retrieved = [Retrieved(run.actions) for run in runs]
    answers: list[CitedAnswer] = []
    for given in unite(runs):
        shown = [a for id_ in given.ids if (a := _shown(given, id_, retrieved, topics, claims))]
        answers.extend(shown or [_unseen(given, [retrieved[run] for run in given.runs], claims)])
    return answers


def confirmed(runs: Sequence[Trajectory], topics: frozenset[str], claims: Claims) -> list[CitedAnswer]:
    """Like `cited`, but only with evidence that the graph confirms.

    All cited claims are checked at once, and again if an answer falls back on other evidence.

    Raises:
        GraphNotFoundError, GraphUnavailableError: as `GraphTools.execute`.
    """
    while True:
        answers = cited(runs, topics, claims)
        if not claims.settle():
            return answers


def supported_share(answers: Sequence[CitedAnswer]) -> float | None:
    """The share of answers that have evidence; None if there are no answers."""
    if not answers:
        return None
    return sum(answer.evidence is not None for answer in answers) / len(answers)


def boolean_of(text: str) -> bool | None:
    """The truth value of a yes/no answer; None for any other answer."""
    return _BOOLEANS.get(normalise(text))


def _shown(
    given: UnitedAnswer,
    id_: str,
    retrieved: Sequence[Retrieved],
    topics: frozenset[str],
    claims: Claims,
) -> CitedAnswer | None:
    """The answer as an entity or literal that a run retrieved; None if no run did."""
    label = next((label for run in retrieved if (label := run.label(id_)) is not None), None)
    if label is None:
        return None
    return CitedAnswer(given, id_, label, _evidence(id_, retrieved, topics, claims))


def _evidence(
    id_: str, retrieved: Sequence[Retrieved], topics: frozenset[str], claims: Claims
) -> Evidence | None:
    """The first evidence of any run that holds.

    In this order: a chain from a topic entity, a query, a path whose way must still be requested,
    a chain from elsewhere.
    """
    chains = [chain for run in retrieved if (chain := run.chain(id_, topics))]
    for chain in chains:
        if topics & {chain[0][0], chain[0][2]} and (triples := claims.chain(chain)):
            return triples
    for run in retrieved:
        query = run.query(id_)
        if query is not None and (rows := claims.rows(query, id_)):
            return rows
    for run in retrieved:
        # The action reported the ways to its first ends; these are among the chains already.
        if (walked := run.walk(id_)) is not None and not run.chain(id_, topics):
            way = claims.way(*walked, id_)
            if way is not None:
                return way
    for chain in chains:
        if triples := claims.chain(chain):
            return triples
    return None


def _unseen(given: UnitedAnswer, runs: Sequence[Retrieved], claims: Claims) -> CitedAnswer:
    """The answer as mere text; the evidence for a yes or no may be an ASK."""
    evidence = None
    if (boolean := boolean_of(given.text)) is not None:
        asked = next((run.asked for run in runs if run.asked is not None), None)
        evidence = claims.verdict(asked, boolean) if asked is not None else None
    return CitedAnswer(given, None, None, evidence)
