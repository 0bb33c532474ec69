"""The document of `POST /v1/answer`, from what the runs did; the graph is asked by `claims` alone."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kbqa.answers import normalise
from kbqa.client.models import (
    Answer,
    AnswerKind,
    AnswerStatus,
    Evidence,
    QueryEvidence,
    Run,
    TripleEvidence,
    TurnRecord,
    Usage,
)
from kbqa.kg.actions import FOLLOW_PATH, Action
from kbqa.rollouts.union import UnitedAnswer, unite
from kbqa.trajectory import ExecutedAction, Status, Trajectory, Turn
from services.gateway.claims import Claims
from services.gateway.evidence import Details, Retrieved

_XSD = "http://www.w3.org/2001/XMLSchema#"
_DATE_TYPES = {f"{_XSD}{name}" for name in ("date", "dateTime", "gYear", "gYearMonth")}
_DATATYPE = re.compile(r'"\^\^<([^<>]+)>$')
_DATE = re.compile(r"-?\d{4}-\d\d(-\d\d)?(T.*)?")
_COUNT = re.compile(r"\d{1,18}")
_BOOLEANS = {"yes": True, "true": True, "no": False, "false": False}
_TEXTS = ("entity", "question")  # arguments of `FOLLOW_PATH`
_COUNTS = re.compile(r"\bCOUNT\s*\(", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Played:
    """A run so far.

    Attributes:
        details: what else the result of each of its actions said.
    """

    trajectory: Trajectory
    details: tuple[Details, ...] = ()


def answers_of(runs: Sequence[Played], topics: frozenset[str], claims: Claims) -> list[Answer]:
    """The union of the runs' answers (`kbqa.rollouts.union`), those that most runs gave first.

    A text that stands for several entities which the runs retrieved yields an answer for each
    of them; one that stands for none, a single answer.

    Args:
        topics: ids of the entities where the runs began.
        claims: what there is to cite; see there how it is settled.
    """
    retrieved = [Retrieved(run.trajectory.actions, run.details) for run in runs]
    answers = []
    for united in unite([run.trajectory for run in runs]):
        shown = [a for id_ in united.ids if (a := _shown(united, id_, retrieved, topics, claims))]
        answers.extend(shown or [_unseen(united, [retrieved[run] for run in united.runs], claims)])
    return answers


def status_of(runs: Sequence[Trajectory], answers: Sequence[Answer]) -> AnswerStatus:
    """What came of a question that named something in the graph."""
    if answers:
        return "answered" if not all(answer.unsupported for answer in answers) else "unsupported"
    timed_out = not runs or any(run.status is Status.TIMED_OUT for run in runs)
    return "partial" if timed_out else "no_answer"


def record(run: Trajectory) -> Run:
    """A run as it is told to the user."""
    return Run(
        status=run.status, trajectory=[_turn_record(number, turn) for number, turn in enumerate(run.turns, 1)]
    )


def told_action(action: Action | ExecutedAction) -> dict[str, Any]:
    """An action as kg_server takes it, with the code of one that failed."""
    arguments: dict[str, Any] = dict(action.arguments)
    if isinstance(action, Action):
        return {"action": action.name, **arguments}
    if action.name == FOLLOW_PATH:
        # What was no text was executed as it is, and is written as JSON.
        arguments |= {name: json.loads(text) for name, text in arguments.items() if name not in _TEXTS}
    code = {"code": action.code} if action.code else {}
    return {"action": action.name, **arguments, **code}


def usage_of(runs: Sequence[Trajectory], kg_calls: int, elapsed_ms: float) -> Usage:
    """What the runs cost.

    Args:
        kg_calls: actions that were executed before the first turn.
    """
    turns = [turn for run in runs for turn in run.turns]
    return Usage(
        llm_calls=len(turns),
        prompt_tokens=sum(turn.start for turn in turns),
        generated_tokens=sum(turn.end - turn.start for turn in turns),
        kg_calls=kg_calls + sum(len(turn.actions) for turn in turns),
        elapsed_ms=round(elapsed_ms, 3),
    )


def _turn_record(number: int, turn: Turn) -> TurnRecord:
    return TurnRecord(
        turn=number,
        thought=turn.thought,
        actions=[told_action(action) for action in turn.actions],
        observations=[turn.observation] if turn.observation else [],
        elapsed_ms=round(turn.elapsed_ms, 3),
    )


def _shown(
    united: UnitedAnswer,
    id_: str,
    retrieved: Sequence[Retrieved],
    topics: frozenset[str],
    claims: Claims,
) -> Answer | None:
    """The answer as an entity or literal that a run retrieved, None if none did."""
    label = next((label for run in retrieved if (label := run.label(id_)) is not None), None)
    if label is None:
        return None
    evidence = _evidence(id_, retrieved, topics, claims)
    kind, datatype = _kind_of(id_)
    if isinstance(evidence, QueryEvidence) and _COUNT.fullmatch(label) and _COUNTS.search(evidence.sparql):
        kind = "count"
    return Answer(
        value=united.text,
        kind=kind,
        id=id_,
        label=label,
        datatype=datatype,
        support=united.support,
        unsupported=evidence is None,
        evidence=evidence or TripleEvidence(triples=[]),
    )


def _evidence(
    id_: str, retrieved: Sequence[Retrieved], topics: frozenset[str], claims: Claims
) -> Evidence | None:
    """What holds of: a chain from a topic entity, a query, a path whose way is still to be asked for, and a
    chain from elsewhere; of any run."""
    chains = [chain for run in retrieved if (chain := run.chain(id_, topics))]
    for chain in chains:
        if topics & {chain[0][0], chain[0][2]} and (triples := claims.chain(chain)):
            return TripleEvidence(triples=triples)
    for run in retrieved:
        query = run.query(id_)
        if query is not None and (rows := claims.rows(query, id_)):
            return rows
    for run in retrieved:
        # Its first ends came with their ways, which are among the chains.
        if (walked := run.walk(id_)) is not None and not run.chain(id_, topics):
            way = claims.way(*walked, id_)
            if way is not None:
                return TripleEvidence(triples=way)
    for chain in chains:
        if triples := claims.chain(chain):
            return TripleEvidence(triples=triples)
    return None


def _unseen(united: UnitedAnswer, runs: Sequence[Retrieved], claims: Claims) -> Answer:
    """The answer as a text; a yes or no may be what the graph said when it was asked."""
    value, evidence = united.text, None
    kind: AnswerKind = "literal"
    if (boolean := _BOOLEANS.get(normalise(value))) is not None:
        kind = "boolean"
        asked = next((run.asked for run in runs if run.asked is not None), None)
        evidence = claims.verdict(asked, boolean) if asked is not None else None
    elif _DATE.fullmatch(value):
        kind = "date"
    elif _COUNT.fullmatch(value):
        # A number that the graph did not show can only have been counted.
        kind = "count"
    return Answer(
        value=value,
        kind=kind,
        support=united.support,
        unsupported=evidence is None,
        evidence=evidence or TripleEvidence(triples=[]),
    )


def _kind_of(id_: str) -> tuple[AnswerKind, str | None]:
    """Kind and datatype; the id of an RDF literal is its N-Triples form, which begins with a quote."""
    typed = _DATATYPE.search(id_) if id_.startswith('"') else None
    if typed is None:
        plain = id_.startswith('"') and re.search(r'"(@[A-Za-z0-9-]+)?$', id_[1:])
        return ("literal" if plain else "entity"), None
    datatype = typed.group(1)
    if datatype in _DATE_TYPES:
        return "date", datatype
    return ("boolean" if datatype == f"{_XSD}boolean" else "literal"), datatype
