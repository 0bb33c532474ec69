"""Curates LC-QuAD 2.0 like Learning-to-Refine (section 3.2.1): keeps questions with a single answer.

Every gold query is run again on the graph that the policy will use. A question is kept if its
query succeeds and yields exactly one row, with an RDF term in the first column: an entity, a
literal, or the boolean of an ASK. The term becomes the question's answer.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kbqa.datasets.formats import Answers, called
from kbqa.datasets.programs import short_id
from kbqa.errors import GraphUnavailableError
from kbqa.kg.actions import EXECUTE_SPARQL, Action, ActionResult, ErrorKind, Failure, GraphTools
from kbqa.trajectory import Question

_AT_ONCE = 64


class Exclusion(StrEnum):
    """Why a question is left out."""

    NO_QUERY = "no gold query"
    FAILED = "the query failed"
    TIMED_OUT = "the query timed out"
    NO_ROW = "no row"
    SEVERAL_ROWS = "several rows"
    NO_TERM = "no RDF term"


@dataclass(slots=True)
class Curation:
    """The result of curating a data set on a graph.

    Attributes:
        kept: questions, with the one answer that the graph gives.
        excluded: number of excluded questions by reason.
    """

    kept: list[Question] = field(default_factory=list)
    excluded: Counter[Exclusion] = field(default_factory=Counter)


def curate(questions: Sequence[Question], tools: GraphTools, kg: str) -> Curation:
    """Run every gold query on a graph, and keep the questions whose query yields exactly one row.

    Raises:
        GraphUnavailableError: the graph's server does not answer, so that queries cannot be judged.
    """
    curation = Curation()
    for start in range(0, len(questions), _AT_ONCE):
        batch = questions[start : start + _AT_ONCE]
        asked = [question for question in batch if question.sparql]
        curation.excluded[Exclusion.NO_QUERY] += len(batch) - len(asked)
        actions = [Action(EXECUTE_SPARQL, {"query": question.sparql}) for question in asked]
        for question, result in zip(asked, tools.execute(kg, actions), strict=True):
            verdict = _verdict(result)
            if isinstance(verdict, Exclusion):
                curation.excluded[verdict] += 1
            else:
                answer, _ = verdict
                names = called([verdict], Answers.IDS)
                curation.kept.append(replace(question, answers=(answer,), names=names, variants=(), kg=kg))
    curation.excluded = +curation.excluded
    return curation


def _verdict(result: ActionResult) -> tuple[str, str] | Exclusion:
    """The answer and its label, or the reason for excluding the question."""
    if isinstance(result, Failure):
        if result.kind in (ErrorKind.BACKEND_UNAVAILABLE, ErrorKind.OVERLOADED):
            raise GraphUnavailableError(f"a gold query was not executed: {result.message}")
        return Exclusion.TIMED_OUT if result.kind is ErrorKind.QUERY_TIMEOUT else Exclusion.FAILED
    if "boolean" in result.details:
        return str(result.details["boolean"]).lower(), ""
    if result.total != 1:
        return Exclusion.SEVERAL_ROWS if result.total else Exclusion.NO_ROW
    variables, [row] = result.details["variables"], result.items
    term = row.get(variables[0]) if variables else None
    # Wikidata represents an unknown value by a generated IRI.
    if term is None or term["type"] == "bnode" or "/.well-known/genid/" in term["value"]:
        return Exclusion.NO_TERM
    return short_id(term["value"]), term.get("label", "")
