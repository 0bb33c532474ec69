"""Gold answers by id and by label: the other name of each is looked up in the graph.

A data set gives ids or labels, and an agent answers by either. `gold_namer` adds to each question the names
that the graph has for its gold answers, so that both are compared as the same answer
(`kbqa.gold.compare`).
"""

from __future__ import annotations

import logging
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from kbqa.datasets.formats import Answers
from kbqa.errors import DatasetError, GraphUnavailableError
from kbqa.kg.actions import RESOLVE_NAMES, Action, ErrorKind, Failure, GraphTools
from kbqa.kg.arguments import TEXT
from kbqa.kg.namespaces import is_wikidata_entity
from kbqa.protocols.base import AgentProtocol, AnswerKind, answers_of
from kbqa.trajectory import Question

logger = logging.getLogger(__name__)

_AT_ONCE = 100  # names of one action; at an endpoint, a few queries
_MOST = 200_000  # names that are looked up in a graph
_CHECKED = 10_000  # names among which at least one has to be in the graph
_EXPECTED = 0.9  # share of the answers that a graph should contain; below it, a warning is logged
_MOST_FAILED = 20  # names at which a graph's queries may fail
_EXAMPLES = 3
# What a query can compute, and a graph need not contain.
_COMPUTED = re.compile(
    r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?|\d{4}(?:-\d\d){1,2}(?:T[\d:.]+Z?)?|true|false", re.I
)
_ID = re.compile(r"[mg]\.\w+|P\d+|\w*:\S+|<\S+>")


Entities = Mapping[str, Sequence[Mapping[str, str]]]
"""Name → what it stands for, each with `id` and `label`."""


def gold_form_of(protocol: AgentProtocol) -> Answers:
    """The form in which an agent's answers are compared, if a data set has both."""
    return Answers.IDS if answers_of(protocol) is AnswerKind.IDS else Answers.LABELS


@dataclass(slots=True)
class Reached:
    """How many distinct gold answers are in a graph, of those looked up that a query cannot compute.

    Attributes:
        missing: some that are not.
    """

    answers: int = 0
    known: int = 0
    missing: list[str] = field(default_factory=list)


def is_computed(answer: str) -> bool:
    """Whether an answer is a number, date or truth value, which a query may compute."""
    return _COMPUTED.fullmatch(answer.strip()) is not None


def is_id(name: str) -> bool:
    """Whether a name looks like an id of Freebase or Wikidata, a prefixed name or an IRI."""
    return _ID.fullmatch(name) is not None or is_wikidata_entity(name)


def nameless_ids(questions: Iterable[Question]) -> list[str]:
    """The gold answers that are ids without a label in the data set, which no answer in words equals."""
    nameless: dict[str, None] = {}
    for question in questions:
        given = {answer for answer, *_ in question.names}
        nameless.update((one, None) for one in _answers(question) if one not in given and is_id(one))
    return list(nameless)


def gold_namer(
    questions: Iterable[Question], tools: GraphTools, dataset: str
) -> Callable[[Question], Question]:
    """A function that adds to one of these questions the names that its graph has for the gold answers.

    An answer whose names are in the data set keeps these. At most 200,000 names of a graph are looked up.

    Raises:
        DatasetError: no question has gold answers, or a graph has none of them.
        GraphNotFoundError, GraphUnavailableError: a graph could not be asked.
    """
    asked: defaultdict[str, dict[str, bool]] = defaultdict(dict)  # graph → answer → has names
    for question in questions:
        given = {answer for answer, *_ in question.names}
        asked[question.kg].update((answer, answer in given) for answer in _answers(question))
    if not any(asked.values()):
        raise DatasetError(
            f"{dataset} has no gold answers: run its gold queries with kbqa data convert --curate GRAPH"
        )
    known = {kg: _names(tools, kg, answers, dataset) for kg, answers in asked.items()}

    def named(question: Question) -> Question:
        given = {answer for answer, *_ in question.names}
        names = known[question.kg]
        added = [(answer, *names[answer]) for answer in _answers(question) if answer in names.keys() - given]
        return replace(question, names=(*question.names, *added)) if added else question

    return named


def _answers(question: Question) -> list[str]:
    """The gold answers of all sets."""
    return list(dict.fromkeys(answer for gold in question.golds for answer in gold))


def _names(
    tools: GraphTools, kg: str, answers: Mapping[str, bool], dataset: str
) -> dict[str, tuple[str, ...]]:
    """Answer → its other names in a graph, of answers that have any.

    Raises:
        DatasetError: the graph has none of the answers.
    """
    nameless = [answer for answer, has_names in answers.items() if not has_names]
    if len(nameless) > _MOST:
        logger.warning("not all gold answers are looked up", extra={"kg": kg, "answers": len(nameless)})
    reached = Reached()
    names: dict[str, tuple[str, ...]] = {}
    for answer, entities in _looked_up(tools, kg, nameless[:_MOST], reached):
        others = dict.fromkeys(name for entity in entities for name in (entity["id"], entity["label"]))
        if found := tuple(name for name in others if name != answer):
            names[answer] = found
    if not reached.known:
        having = [answer for answer, has_names in answers.items() if has_names]
        # One hit is enough: the data set gives the names of these answers itself.
        next(_looked_up(tools, kg, having[:_CHECKED], reached), None)
    if reached.answers and not reached.known:
        raise DatasetError(
            f'{dataset}: the graph "{kg}" has none of its gold answers ({reached.answers} were looked up, '
            f"such as {', '.join(reached.missing)}), so no answer could ever be right: "
            f"kbqa kg check {kg} {dataset} says why"
        )
    level = logging.WARNING if reached.known < _EXPECTED * reached.answers else logging.INFO
    counts = {"kg": kg, "answers": reached.answers, "known": reached.known}
    logger.log(level, "gold answers that the graph contains", extra=counts)
    return names


def _looked_up(
    tools: GraphTools, kg: str, answers: Sequence[str], reached: Reached
) -> Iterator[tuple[str, Sequence[Mapping[str, str]]]]:
    """The answers that the graph has, with what they stand for."""
    failed: list[str] = []
    for start in range(0, len(answers), _AT_ONCE):
        some = [answer for answer in answers[start : start + _AT_ONCE] if TEXT.fits(answer)]
        entities = _look_up(tools, kg, some, failed) if some else {}
        certain = [answer for answer in some if not is_computed(answer)]
        reached.answers += len(certain)
        reached.known += sum(answer in entities for answer in certain)
        missing = [answer for answer in certain if answer not in entities]
        reached.missing += missing[: _EXAMPLES - len(reached.missing)]
        yield from entities.items()


def _look_up(tools: GraphTools, kg: str, names: Sequence[str], failed: list[str]) -> Entities:
    """What the names stand for; a name at which the store's query fails stands for nothing.

    Virtuoso fails at single values, such as dates thousands of years ago. They are found by halves, so that
    one does not take the other names with it.

    Args:
        failed: the names at which a query has failed; some more are added.

    Raises:
        GraphUnavailableError: the graph cannot be asked, or queries fail at too many names.
    """
    [result] = tools.execute(kg, [Action(RESOLVE_NAMES, {"names": list(names)})])
    if not isinstance(result, Failure):
        found: Entities = result.details["entities"]
        return found
    if result.kind is not ErrorKind.QUERY_FAILED or len(failed) == _MOST_FAILED:
        raise GraphUnavailableError(f"{kg}: gold answers could not be looked up: {result.message}")
    if len(names) > 1:
        half = len(names) // 2
        halves = names[:half], names[half:]
        return {name: found for some in halves for name, found in _look_up(tools, kg, some, failed).items()}
    failed.append(names[0])
    reason = {"kg": kg, "answer": names[0], "reason": result.message}
    logger.warning("the graph cannot look up a gold answer", extra=reason)
    return {}
