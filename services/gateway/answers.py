"""Builds the document of `POST /v1/answer` from the runs and the evidence that `kbqa.evidence` cites."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from kbqa.client.models import (
    Answer,
    AnswerKind,
    AnswerResponse,
    AnswerStatus,
    Evidence,
    QueryEvidence,
    Run,
    TripleEvidence,
    TurnRecord,
    Usage,
)
from kbqa.confidence import Calibration, choices_of, is_withheld
from kbqa.evidence import CitedAnswer, CitedQuery, Claims, boolean_of, cited
from kbqa.kg.actions import EXPAND, FOLLOW_PATH, Action
from kbqa.kg.retrieval import ACTIONS
from kbqa.trajectory import DECLINED, ExecutedAction, Status, Trajectory, Turn, declines

_XSD = "http://www.w3.org/2001/XMLSchema#"
_DATE_TYPES = {f"{_XSD}{name}" for name in ("date", "dateTime", "gYear", "gYearMonth")}
_DATATYPE = re.compile(r'"\^\^<([^<>]+)>$')
_DATE = re.compile(r"-?\d{4}-\d\d(-\d\d)?(T.*)?")
_COUNT = re.compile(r"\d{1,18}")
_COUNTS = re.compile(r"\bCOUNT\s*\(", re.IGNORECASE)


def answers_of(runs: Sequence[Trajectory], topics: frozenset[str], claims: Claims) -> list[Answer]:
    """The answers of runs with their evidence, as `kbqa.evidence.cited` finds them."""
    return [_told(answer) for answer in cited(runs, topics, claims)]


def status_of(runs: Sequence[Trajectory], answers: Sequence[Answer]) -> AnswerStatus:
    """The status of a question for which topic entities were found."""
    if answers:
        return "answered" if not all(answer.unsupported for answer in answers) else "unsupported"
    broken_off = not runs or any(run.status in (Status.TIMED_OUT, Status.LOST) for run in runs)
    return "partial" if broken_off else "no_answer"


def confidence_of(run: Trajectory, calibration: Calibration | None) -> float | None:
    """The probability that a first run's answers are right; None if it has none, or if nobody knows."""
    if calibration is None or not run.answers or (choices := choices_of(run)) is None:
        return None
    return round(calibration.confidence(choices), 3)


def presence_of(run: Trajectory, calibration: Calibration | None) -> float | None:
    """How likely it is that the graph has the fact, in the policy's view; None if nobody knows."""
    if calibration is None or not run.answers or (choices := choices_of(run)) is None:
        return None
    presence = calibration.presence(choices)
    return None if presence is None else round(presence, 3)


def withheld(document: AnswerResponse, min_confidence: float) -> AnswerResponse:
    """A document whose answers are only candidates if its policy is not sure enough of them.

    If there are none, and the policy has said what the graph lacks, the document says so, too.

    Args:
        min_confidence: see `is_withheld`.
    """
    confidence, presence = document.confidence, document.presence
    declined = [
        turn.thought for run in document.runs[:1] for turn in run.trajectory if declines(turn.thought)
    ]
    lacks = [f"the graph seems to have no such fact{thought.removeprefix(DECLINED)}" for thought in declined]
    if lacks and document.status == "no_answer":
        return document.model_copy(update={"reason": lacks[0]})
    if confidence is None or not document.answers or not is_withheld(confidence, presence, min_confidence):
        return document
    reason = f"the policy is not sure enough ({confidence:g}; at least {min_confidence:g} is wanted)"
    if lacks:
        reason = lacks[0]
    elif confidence >= min_confidence:
        reason = f"the graph may not have such a fact ({presence:g}; at least {min_confidence:g} is wanted)"
    names_nothing = document.linking is not None and not document.linking.topic_entities
    status = "no_topic_entity" if names_nothing else "no_answer"
    return document.model_copy(
        update={"status": status, "answers": [], "candidates": document.answers, "reason": reason}
    )


def record(run: Trajectory) -> Run:
    """A run as the document reports it."""
    return Run(
        status=run.status, trajectory=[_turn_record(number, turn) for number, turn in enumerate(run.turns, 1)]
    )


def told_action(action: Action | ExecutedAction) -> dict[str, Any]:
    """An action in the format of kg_server, with its error code if it failed."""
    arguments: dict[str, Any] = dict(action.arguments)
    if isinstance(action, Action):
        return {"action": action.name, **arguments}
    if action.name in (EXPAND, FOLLOW_PATH):
        arguments = ACTIONS[action.name].read_arguments(action.arguments)
    code = {"code": action.code} if action.code else {}
    return {"action": action.name, **arguments, **code}


def usage_of(runs: Sequence[Trajectory], kg_calls: int, elapsed_ms: float) -> Usage:
    """The usage of the runs.

    Args:
        kg_calls: actions that were executed before the first turn.
    """
    turns = [turn for run in runs for turn in run.turns]
    searches = [run.search for run in runs if run.search is not None]
    return Usage(
        llm_calls=len(turns) + sum(search.turns for search in searches),
        prompt_tokens=sum(turn.start for turn in turns) + sum(search.prompt_tokens for search in searches),
        generated_tokens=sum(turn.end - turn.start for turn in turns),
        kg_calls=kg_calls
        + sum(len(turn.actions) for turn in turns)
        + sum(search.actions for search in searches),
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


def _told(answer: CitedAnswer) -> Answer:
    kind, datatype = _kind_of_text(answer.given.text) if answer.id is None else _kind_of(answer.id)
    if _is_counted(answer):
        kind = "count"
    return Answer(
        value=answer.given.text,
        kind=kind,
        id=answer.id,
        label=answer.label,
        datatype=datatype,
        support=answer.given.support,
        unsupported=answer.evidence is None,
        evidence=_evidence(answer),
    )


def _evidence(answer: CitedAnswer) -> Evidence:
    found = answer.evidence
    if isinstance(found, CitedQuery):
        return QueryEvidence(sparql=found.sparql, rows=found.rows, boolean=found.boolean)
    return TripleEvidence(triples=found or [])


def _is_counted(answer: CitedAnswer) -> bool:
    """Whether the answer is a number that a query counted."""
    found, label = answer.evidence, answer.label or ""
    return isinstance(found, CitedQuery) and bool(_COUNT.fullmatch(label) and _COUNTS.search(found.sparql))


def _kind_of_text(value: str) -> tuple[AnswerKind, None]:
    """Kind of an answer that no action retrieved; it has no datatype."""
    if boolean_of(value) is not None:
        return "boolean", None
    if _DATE.fullmatch(value):
        return "date", None
    # A number that no action retrieved can only be a count.
    return ("count" if _COUNT.fullmatch(value) else "literal"), None


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
