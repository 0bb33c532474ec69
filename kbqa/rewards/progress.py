"""How near each step of an episode came to the answers (ISP-KGR, section 4.3.2 and appendix F.8).

DIST is a score: max(0, (D - d) / D), where d is the smallest number of edges between a query's result
and the answers, regardless of direction; 0 if nothing connects them within D, or if the search for a
connection meets its bound on nodes. A distance that was not measured in time is unknown, not 0.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from kbqa.answers import answer_set, f1, normalise, resolve
from kbqa.errors import GraphUnavailableError, JudgeUnavailableError, QueryError
from kbqa.gold import compare
from kbqa.kg.actions import (
    ENTITY_DISTANCE,
    EXECUTE_SPARQL,
    FOLLOW_PATH,
    NODE_RELATIONS,
    Action,
    ActionResult,
    ErrorKind,
    Failure,
    Success,
)
from kbqa.kg.arguments import MAX_ARGUMENT_TEXTS
from kbqa.kg.namespaces import canonical_id
from kbqa.kg.sparql.guard import check_query
from kbqa.kg.sparql.select import ParsedSelect
from kbqa.rewards.base import Instruments
from kbqa.trajectory import ExecutedAction, Question, Status, Turn

_NUMBER = re.compile(r"\d{1,9}")
# A SELECT clause that is one COUNT and nothing else.
_COUNT = re.compile(
    r"SELECT\s+(?:DISTINCT\s+)?\(?\s*COUNT\s*\(\s*(?P<distinct>DISTINCT\s+)?(?P<counted>[?$]\w+|\*)\s*\)"
    r"\s*(?:AS\s+[?$]\w+\s*)?\)?\s*(?=WHERE\b|\{)",
    re.IGNORECASE,
)
_GROUPED = re.compile(r"\bGROUP\s+BY\b", re.IGNORECASE)
_EXTREME = re.compile(r"\bORDER\s+BY\b.*\bLIMIT\b|\b(?:MAX|MIN)\s*\(", re.IGNORECASE | re.DOTALL)
_LIKE_EXTREME = re.compile(r"\(\s*ARG(?:MAX|MIN)\b", re.IGNORECASE)
# If the graph could not answer, the distance is unknown, not large. The first two may pass by themselves.
_UNREACHED = frozenset({ErrorKind.OVERLOADED, ErrorKind.BACKEND_UNAVAILABLE})
_UNMEASURED = frozenset({ErrorKind.QUERY_TIMEOUT, ErrorKind.QUERY_FAILED})
_LONGER = "; a longer graph.query_timeout_s in the recipe may help, as far as kg_server allows it"


class Command(StrEnum):
    NODE = "node"
    SPARQL = "sparql"
    ANSWER = "answer"
    NONE = "none"
    """Nothing could be executed, or nothing was executed in time."""


@dataclass(frozen=True, slots=True)
class MeasuredStep:
    """A step as Algorithm 2 sees it.

    Attributes:
        subject: the node, or the query in its canonical form.
        score: DIST of what a query found; None if it found nothing or failed.
        variables: variables of the query's SELECT, as a node command writes them.
        counts: whether the query and the gold answer are counts; then a score of 1 means the right
            number, and only that is progress.
        f1: F1 of the query's result as an answer.
    """

    command: Command
    well_formed: bool
    subject: str = ""
    score: float | None = None
    variables: tuple[str, ...] = ()
    counts: bool = False
    f1: float = 0.0


@dataclass(frozen=True, slots=True)
class Measurement:
    """The measured turns of an episode, or of all branches of a tree.

    Attributes:
        steps: one for each turn.
        known: DIST of each topic entity, by its short id, as node commands' subjects are.
    """

    steps: tuple[MeasuredStep, ...]
    known: Mapping[str, float]


def measure(
    question: Question, turns: Sequence[Turn], instruments: Instruments, max_distance: int
) -> Measurement:
    """Measure the turns of an episode, or of all branches of a tree.

    If the question is a superlative, a query that finds the answers among others is one edge away (F.8).
    It is one if its gold program has ORDER BY and LIMIT, MAX or MIN, ARGMAX or ARGMIN; without a gold
    program, if such a query among `turns` finds exactly the answers.

    Raises:
        GraphNotFoundError, GraphUnavailableError: the graph could not be asked.
        JudgeUnavailableError: a distance or a count was not found, for instance not in time.
    """
    queries = [_query(turn) for turn in turns]
    found = [query for query in queries if query is not None and _finds(query)]
    superlative = _is_superlative(question, found)
    counted = {_text(query): without_count(_text(query)) for query in found}
    counting = _is_number(question)
    topics = [(topic,) for topic in question.topic_entities]
    gauge = _Gauge(question, instruments, max_distance)
    rated = [_rating(query, question) for query in queries]
    # An answer needs no distance, and the graph may be unable to tell it: see `score`.
    missed = [query.items for query, rate in zip(queries, rated, strict=True) if query and rate == 0.0]
    gauge.ask(
        [*topics, *filter(None, missed)],
        [stripped for stripped in counted.values() if counting and stripped is not None],
    )

    def score(query: ExecutedAction, found_f1: float) -> tuple[float, bool]:
        stripped = counted[_text(query)]
        if counting and stripped is not None:
            return float(gauge.size(stripped) == int(normalise(question.answers[0]))), True
        if superlative and (covered := _covers(query, question)):
            return (1.0 if covered == "exactly" else (max_distance - 1) / max_distance), False
        # What it found may be an answer and no node of the graph: a year that it computed, or a label. At
        # Virtuoso, it may be a literal that a query cannot name, such as coordinates.
        return 1.0 if found_f1 else gauge.score(query.items), False

    steps = []
    for turn, query, found_f1 in zip(turns, queries, rated, strict=True):
        step = _unmeasured(turn, query)
        if query is not None and found_f1 is not None:
            value, counts = score(query, found_f1)
            step = MeasuredStep(
                step.command,
                step.well_formed,
                step.subject,
                value,
                _variables(_text(query)),
                counts,
                found_f1,
            )
        steps.append(step)
    known = {canonical_id(topic): gauge.score((topic,)) for topic in question.topic_entities}
    return Measurement(tuple(steps), known)


def without_count(query: str) -> str | None:
    """The query for the items that a query counts (F.8); None if it does more than count."""
    if _GROUPED.search(query):
        return None
    stripped, replaced = _COUNT.subn(
        lambda clause: f"SELECT {(clause['distinct'] or '').strip()} {clause['counted']} ", query, count=1
    )
    return stripped if replaced else None


class _Gauge:
    """Asks the graph, in one batch, for all distances and sizes that are needed."""

    def __init__(self, question: Question, instruments: Instruments, max_distance: int) -> None:
        self._question, self._instruments, self._max_distance = question, instruments, max_distance
        # A graph may know an answer by another name than the data set's, such as its id.
        gold = tuple(dict.fromkeys(name for named in (*question.golds, *question.names) for name in named))
        self._gold = [gold[i : i + MAX_ARGUMENT_TEXTS] for i in range(0, len(gold), MAX_ARGUMENT_TEXTS)]
        self._results: dict[tuple[tuple[str, ...], tuple[str, ...]] | str, ActionResult] = {}

    def ask(self, sets: Iterable[tuple[str, ...]], queries: Iterable[str]) -> None:
        """Distances of sets of ids to the answers, and sizes of what queries find."""
        question = self._question
        actions: dict[tuple[tuple[str, ...], tuple[str, ...]] | str, Action] = {}
        for ids, gold in product(sets, self._gold):
            arguments = {"set_a": list(ids), "set_b": list(gold)}
            actions[ids, gold] = Action(ENTITY_DISTANCE, {**arguments, "max_distance": self._max_distance})
        actions |= {query: Action(EXECUTE_SPARQL, {"query": query}) for query in queries}
        if not actions:
            return
        results = self._instruments.tools.execute(question.kg, list(actions.values()), graph=question.graph)
        for result in results:
            if isinstance(result, Failure) and result.kind in _UNREACHED:
                raise GraphUnavailableError(f"{question.kg}: {result.message}")
            if isinstance(result, Failure) and result.kind in _UNMEASURED:
                advice = _LONGER if result.kind is ErrorKind.QUERY_TIMEOUT else ""
                raise JudgeUnavailableError(
                    f"question {question.id}: the progress of a step was not measured: "
                    f"{result.message}{advice}"
                )
        self._results = dict(zip(actions, results, strict=True))

    def score(self, ids: tuple[str, ...]) -> float:
        results = [self._results.get((ids, gold)) for gold in self._gold]
        found = [result.details["distance"] for result in results if isinstance(result, Success)]
        edges = min((edges for edges in found if edges is not None), default=self._max_distance)
        return max(0.0, (self._max_distance - edges) / self._max_distance)

    def size(self, query: str) -> int | None:
        result = self._results.get(query)
        return result.total if isinstance(result, Success) else None


def _query(turn: Turn) -> ExecutedAction | None:
    """The query or followed path of a turn; None if it has neither."""
    return next((action for action in turn.actions if action.name in (EXECUTE_SPARQL, FOLLOW_PATH)), None)


def _text(query: ExecutedAction) -> str:
    """The text of a query; for a path, its start and its steps."""
    arguments = query.arguments
    return (
        arguments["query"] if query.name == EXECUTE_SPARQL else f"{arguments['entity']} {arguments['path']}"
    )


def _finds(query: ExecutedAction) -> bool:
    """Whether a query found something; the yes or no of an ASK counts."""
    return query.code is None and (bool(query.items) or _form(_text(query)) == "ASK")


def _rating(query: ExecutedAction | None, question: Question) -> float | None:
    """F1 of what a query found, as an answer; None if it found nothing."""
    if query is None or not _finds(query):
        return None
    return max(f1(*compare(question, names, ())) for names in (query.labels, query.items))


def _unmeasured(turn: Turn, query: ExecutedAction | None) -> MeasuredStep:
    if turn.status is Status.ANSWERED:
        return MeasuredStep(Command.ANSWER, turn.well_formed)
    if query is not None:
        return MeasuredStep(Command.SPARQL, turn.well_formed, _canonical(_text(query)))
    for action in turn.actions:
        if action.name == NODE_RELATIONS:
            return MeasuredStep(
                Command.NODE, turn.well_formed, canonical_id(action.arguments["node"].strip())
            )
    return MeasuredStep(Command.NONE, turn.well_formed)


def _covers(query: ExecutedAction, question: Question) -> str | None:
    """`exactly` if a query found the answers, `among others` if more than them, else None."""
    extents = [_extent(query, gold, question.names) for gold in map(answer_set, question.golds)]
    return min(filter(None, extents), key=("exactly", "among others").index, default=None)


def _extent(query: ExecutedAction, gold: frozenset[str], names: Sequence[Sequence[str]]) -> str | None:
    """`_covers` for one set of gold answers."""
    covered: frozenset[str] = frozenset()
    others = False
    for found in zip(query.items, query.labels, strict=True):
        hits = gold & answer_set(resolve(found, (), gold, names))
        covered |= hits
        others = others or not hits
    if not gold or covered != gold:
        return None
    return "among others" if others else "exactly"


def _is_superlative(question: Question, found: Sequence[ExecutedAction]) -> bool:
    if question.sparql or question.form:
        return bool(_EXTREME.search(question.sparql) or _LIKE_EXTREME.search(question.form))
    return any(_EXTREME.search(_text(query)) and _covers(query, question) == "exactly" for query in found)


def _is_number(question: Question) -> bool:
    return len(question.answers) == 1 and _NUMBER.fullmatch(normalise(question.answers[0])) is not None


def _variables(query: str) -> tuple[str, ...]:
    try:
        parts = ParsedSelect.parse(query)
    except QueryError:
        return ()
    names = parts.matched if parts.projected is None else parts.projected
    return tuple(f"?{name}" for name in sorted(names))


def _canonical(query: str) -> str:
    try:
        return check_query(query).canonical
    except QueryError:
        return query


def _form(query: str) -> str:
    try:
        return check_query(query).form
    except QueryError:
        return ""
