"""Checks a data set's logical forms: parsing, printing, compiling, and conversion to actions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from kbqa.errors import DatasetError, LogicalFormError
from kbqa.logical_forms.actions import build, to_actions
from kbqa.logical_forms.algebra import Expression, equivalent
from kbqa.logical_forms.compiler import to_sparql
from kbqa.logical_forms.s_expression import parse_s_expression, print_s_expression


class CheckStage(StrEnum):
    PARSED = "parsed"
    ROUND_TRIPPED = "round_tripped"
    COMPILED = "compiled"
    ACTIONS = "actions"


@dataclass(frozen=True, slots=True)
class FormFailure:
    """A stage that a record did not pass.

    Attributes:
        record: number of the record in the file, from 1.
        id: the record's `qid`; empty if it has none.
    """

    record: int
    id: str
    stage: CheckStage
    reason: str


@dataclass(slots=True)
class FormsReport:
    """How many of `records` forms passed each stage.

    Attributes:
        round_tripped: forms that give the same expression when printed and parsed again.
        actions: forms that become actions, from which an equivalent expression is built.
    """

    records: int = 0
    parsed: int = 0
    round_tripped: int = 0
    compiled: int = 0
    actions: int = 0
    failures: list[FormFailure] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        """Whether all forms are parsed, round-tripped and compiled; some forms have no actions."""
        return self.parsed == self.round_tripped == self.compiled == self.records


def read_records(path: Path) -> list[Any]:
    """The records of a JSON file as GrailQA publishes it.

    Raises:
        DatasetError: the file is missing, is not JSON, or is not a list of records.
    """
    try:
        records = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise DatasetError(f"{path}: {error.strerror}; name a JSON file of GrailQA records") from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{path} is not JSON ({error}); name a JSON file of GrailQA records") from error
    if not isinstance(records, list) or not records:
        raise DatasetError(f'{path} is not a list of records, [{{"qid": …, "s_expression": "(AND …)"}}, …]')
    return records


def check_forms(records: Iterable[Any]) -> FormsReport:
    """Take the `s_expression` of every record through all stages."""
    report = FormsReport()
    for number, record in enumerate(records, 1):
        report.records += 1
        identity = str(record.get("qid", "")) if isinstance(record, dict) else ""
        text = record.get("s_expression") if isinstance(record, dict) else None
        for stage, reason in _failures(text, report):
            report.failures.append(FormFailure(number, identity, stage, reason))
    return report


def _failures(text: Any, report: FormsReport) -> Iterable[tuple[CheckStage, str]]:
    """Yield the stages that a form fails, and count in `report` the stages that it passes."""
    if not isinstance(text, str):
        yield CheckStage.PARSED, "the record has no s_expression"
        return
    try:
        expression = parse_s_expression(text)
    except LogicalFormError as error:
        yield CheckStage.PARSED, str(error)
        return
    report.parsed += 1
    for stage, check in _CHECKS.items():
        try:
            check(expression)
        except LogicalFormError as error:
            yield stage, str(error)
        else:
            setattr(report, stage, getattr(report, stage) + 1)


def _round_trip(expression: Expression) -> None:
    if parse_s_expression(print_s_expression(expression)) != expression:
        raise LogicalFormError("it reads back as another expression")


def _act(expression: Expression) -> None:
    if not equivalent(build(to_actions(expression)), expression):
        raise LogicalFormError("its actions build another expression")


_CHECKS: dict[CheckStage, Callable[[Expression], object]] = {
    CheckStage.ROUND_TRIPPED: _round_trip,
    CheckStage.COMPILED: to_sparql,
    CheckStage.ACTIONS: _act,
}
