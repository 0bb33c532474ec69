"""The document of `POST /v1/answer`, from what the runs did; nothing is asked or computed here."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from kbqa.answers import normalise
from kbqa.rollouts.union import unite
from kbqa.trajectory import Status, Trajectory, Turn
from services.gateway.evidence import Retrieved
from services.gateway.schemas import (
    Answer,
    AnswerKind,
    AnswerStatus,
    Evidence,
    Run,
    TurnRecord,
    Usage,
)

_XSD = "http://www.w3.org/2001/XMLSchema#"
_DATE_TYPES = {f"{_XSD}{name}" for name in ("date", "dateTime", "gYear", "gYearMonth")}
_DATATYPE = re.compile(r'"\^\^<([^<>]+)>$')
_DATE = re.compile(r"-?\d{4}-\d\d(-\d\d)?(T.*)?")
_COUNT = re.compile(r"\d{1,18}")
_BOOLEANS = frozenset({"yes", "no", "true", "false"})


def answers_of(runs: Sequence[Trajectory], topics: Collection[str]) -> list[Answer]:
    """The union of the runs' answers (`kbqa.rollouts.union`), those that most runs gave first.

    A text that stands for several entities which the runs retrieved yields an answer for each
    of them; one that stands for none, a single answer without evidence.

    Args:
        topics: ids of the entities where the runs began.
    """
    retrieved = [Retrieved(run.actions) for run in runs]
    answers = []
    for united in unite(runs):
        text, support = united.text, united.support
        shown = [a for id_ in united.ids if (a := _shown(text, id_, support, retrieved, topics))]
        answers.extend(shown or [_unseen(text, support)])
    return answers


def status_of(runs: Sequence[Trajectory], answers: Sequence[Answer]) -> AnswerStatus:
    """What came of a question that named something in the graph."""
    if answers:
        return "answered" if any(answer.evidence.triples for answer in answers) else "unsupported"
    timed_out = not runs or any(run.status is Status.TIMED_OUT for run in runs)
    return "partial" if timed_out else "no_answer"


def record(run: Trajectory) -> Run:
    """A run as it is told to the user."""
    return Run(
        status=run.status, trajectory=[_turn_record(number, turn) for number, turn in enumerate(run.turns, 1)]
    )


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
        actions=[
            {"action": action.name, **action.arguments, **({"code": action.code} if action.code else {})}
            for action in turn.actions
        ],
        observations=[turn.observation] if turn.observation else [],
        elapsed_ms=round(turn.elapsed_ms, 3),
    )


def _shown(
    value: str, id_: str, support: str, retrieved: Sequence[Retrieved], topics: Collection[str]
) -> Answer | None:
    """The answer as an entity or literal that a run retrieved, None if none did."""
    for run in retrieved:
        chain = run.chain(id_, topics)
        if chain:
            kind, datatype = _kind_of(id_)
            return Answer(
                value=value,
                kind=kind,
                id=id_,
                label=run.label(id_),
                datatype=datatype,
                support=support,
                evidence=Evidence(triples=list(chain)),
            )
    return None


def _unseen(value: str, support: str) -> Answer:
    kind: AnswerKind = "literal"
    if normalise(value) in _BOOLEANS:
        kind = "boolean"
    elif _DATE.fullmatch(value):
        kind = "date"
    elif _COUNT.fullmatch(value):
        # A number that the graph did not show can only have been counted.
        kind = "count"
    return Answer(value=value, kind=kind, support=support, evidence=Evidence(triples=[]))


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
