"""Gold programs as turns of each dialect; what an answer holds is read from the results of the turns.

A script yields the text of a turn and is sent the results of its actions. A `Slip` puts one wrong entity in
place of an answer, or into the program, which is then followed wherever it leads.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from itertools import pairwise

from kbqa.cold_start.teachers import gold_actions, written
from kbqa.errors import LogicalFormError
from kbqa.kg.actions import ActionResult, Success, named
from kbqa.logical_forms.actions import Action as FormAction
from kbqa.logical_forms.actions import FindRelation
from kbqa.logical_forms.algebra import Entity
from kbqa.logical_forms.decomposition import decompose
from kbqa.protocols import interactive_parsing, kbqa_r1, kg_r1, knowcoder_a1, sparql_refinement
from kbqa.protocols.kg_r1 import Action
from kbqa.protocols.sparql_terms import entity_term
from kbqa.trajectory import Question
from tests.gold.forms import form_of
from tests.gold.graphs import WRONG, Case
from tests.witnesses import FREEBASE

_LISTED = 20  # with more answers, the wrong entity is in the program

NOBODY = "m.0nobody"  # an entity that no graph has
NO_ENTITY = "the program names no entity"

_NAMED = re.compile(r"(?P<prefix>(?:\bns:|\bwd:|:))(?P<id>[mg]\.\w+|Q\d+)\b")

Script = Generator[str, Sequence[ActionResult], None]

WIKIDATA = "http://www.wikidata.org/entity/"


class Slip(StrEnum):
    """The one mistake of a play."""

    NONE = "right"
    ANSWER = "a wrong answer"
    PROGRAM = "a wrong entity in the program"


class Unable(Exception):
    """The dialect or its budget cannot express the program."""


@dataclass
class Plan:
    """A script, and what the formula of its reward depends on.

    Attributes:
        turns: how many there are, with the answer.
        given: the answers, unless its last query decides.
        finds: whether a step of it retrieves a gold answer.
        failed: how many of its queries have no result, for want of the entity.
        queries: of SPARQL, in order, with the node that was explored before each.
    """

    script: Script
    turns: int
    given: tuple[str, ...]
    finds: bool = False
    failed: int = 0
    queries: tuple[tuple[str | None, str], ...] = ()


def plan(dialect: str, question: Question, case: Case, most: int, slip: Slip = Slip.NONE) -> Plan:
    """The gold program of a question in a dialect.

    Args:
        most: maximum turns.

    Raises:
        Unable: the dialect or its budget has no program for it, or the program no entity to be mistaken.
    """
    return _PLANS[dialect](question, case, most, slip)


def _kg_r1(question: Question, case: Case, most: int, slip: Slip) -> Plan:
    """Follow relations from the topic entities to an answer, then give all answers."""
    steps: list[tuple[str, str, bool]] = []
    for topic in question.topic_entities:
        walk = _walk(case, iri_of(topic), gold_nodes(question, case))
        if walk and len(steps) + len(walk) < most:
            steps += [step for step in walk if step not in steps]
    # A name with a comma, unless it was seen, would be read as two.
    ids = {name: others[0] for name, *others in question.names}
    given = _replaced(question.answers, slip is Slip.ANSWER)
    answers = [ids.get(name, name) if "," in name else name for name in given]
    if slip is Slip.PROGRAM:
        if not steps:
            raise Unable(NO_ENTITY)
        # Whoever begins elsewhere finds nothing to go on from.
        steps, answers = [(NOBODY, *steps[0][1:])], [WRONG]

    def script() -> Script:
        for node, relation, inverse in steps:
            name = "get_head_entities" if inverse else "get_tail_entities"
            arguments = {"entity": _short(node), "relation": _short(relation)}
            yield kg_r1.write_query("I follow the relation.", Action(name, arguments))
        yield kg_r1.write_answer("These are the answers.", answers)

    if slip is Slip.PROGRAM:
        return Plan(script(), 2, (WRONG,), failed=1)
    return Plan(script(), len(steps) + 1, _answers(question, slip), bool(steps))


def _kbqa_r1(question: Question, case: Case, most: int, slip: Slip) -> Plan:
    """The actions of the logical form, in as many turns as there are."""
    if not question.form:
        question = replace(question, path=(), form=form_of(case.pattern))
    try:
        actions = gold_actions(question)
    except LogicalFormError as error:
        raise Unable(f"no logical form: {error}") from error
    if not actions:
        raise Unable("no actions express the logical form")
    if slip is Slip.ANSWER and len(question.answers) > _LISTED:
        raise Unable("more answers than a turn shows")
    if slip is Slip.PROGRAM:
        actions = _misled(actions)
    turns = min(len(actions), most - 1)
    bounds = [turn * len(actions) // turns for turn in range(turns + 1)]

    def script() -> Script:
        results: Sequence[ActionResult] = ()
        for start, end in pairwise(bounds):
            results = yield written("I follow the program.", actions[start:end])
        final = f"expression{len(actions)}"
        if slip is Slip.ANSWER and isinstance(results[-1], Success):
            ids = [item.label if item.id.startswith('"') else item.id for item in results[-1].items]
            final = " ".join(_replaced(ids, True, NOBODY))
        yield kbqa_r1.write_answer("These are the answers.", [final])

    return Plan(script(), turns + 1, _answers(question, slip))


def _knowcoder_a1(question: Question, case: Case, most: int, slip: Slip) -> Plan:
    """What surrounds a topic, then the gold query, and the answers as a list."""
    topics = [topic for topic in question.topic_entities if not topic.startswith('"')]
    query = _led(question.sparql, slip)

    def script() -> Script:
        for topic in topics[:1]:
            around = f"SELECT DISTINCT ?x WHERE {{ VALUES ?x {{ {entity_term(topic)} }} }}"
            yield knowcoder_a1.write_call("I look around.", "SearchGraphPatterns", {"sparql": around})
        results = yield knowcoder_a1.write_call("I ask.", "ExecuteSPARQL", {"sparql": query})
        yield knowcoder_a1.write_answer("These are the answers.", _given(results, slip))

    return Plan(script(), len(topics[:1]) + 2, _answers(question, slip), queries=((None, query),))


def _interactive_parsing(question: Question, case: Case, most: int, slip: Slip) -> Plan:
    """The gold query step by step (ISP-KGR, E.2); the first steps are left out if the budget is short."""
    steps = _steps(replace(question, sparql=_led(question.sparql, slip)), most)
    commands = sum(1 + (node is not None) for node, _ in steps)

    def script() -> Script:
        results: Sequence[ActionResult] = ()
        for node, query in steps:
            if node is not None:
                yield interactive_parsing.write_node("I look around.", node)
            results = yield interactive_parsing.write_sparql("I ask.", query)
        yield interactive_parsing.write_answer("These are the answers.", _given(results, slip))

    return Plan(script(), commands + 1, _answers(question, slip), queries=tuple(steps))


def _sparql_refinement(question: Question, case: Case, most: int, slip: Slip) -> Plan:
    """The gold query, and the first value that it finds."""
    query = _led(question.sparql, slip)

    def script() -> Script:
        results = yield sparql_refinement.write_query("I ask.", query)
        # Only this value is given, so a wrong one takes its place, whatever else was found.
        [value] = _replaced(_listed(results)[:1] or [WRONG], slip is Slip.ANSWER)
        yield sparql_refinement.write_answer("This is it.", value)

    return Plan(script(), 2, _answers(question, slip), queries=((None, query),))


_PLANS = {
    "kg_r1": _kg_r1,
    "kbqa_r1": _kbqa_r1,
    "knowcoder_a1": _knowcoder_a1,
    "interactive_parsing": _interactive_parsing,
    "sparql_refinement": _sparql_refinement,
}


def _answers(question: Question, slip: Slip) -> tuple[str, ...]:
    return (WRONG,) if slip is Slip.PROGRAM else tuple(_replaced(question.answers, slip is Slip.ANSWER))


def _misled(actions: Sequence[FormAction]) -> list[FormAction]:
    """The actions, the first entity of which is another one."""
    for number, action in enumerate(actions):
        if isinstance(action, FindRelation) and isinstance(action.source, Entity):
            wrong = replace(action, source=Entity(NOBODY))
            return [*actions[:number], wrong, *actions[number + 1 :]]
    raise Unable(NO_ENTITY)


def _led(query: str, slip: Slip) -> str:
    """The query; with a slip in the program, its first entity is another one wherever it occurs."""
    if slip is not Slip.PROGRAM:
        return query
    # An entity that is only excluded leads nowhere.
    entity = next((m for m in _NAMED.finditer(query) if not query[: m.start()].rstrip().endswith("=")), None)
    if entity is None:
        raise Unable(NO_ENTITY)
    nobody = entity["prefix"] + (NOBODY if entity["id"][1] == "." else "Q999999999")
    return re.sub(rf"{re.escape(entity[0])}(?![\w.]*\w)", nobody, query)


def _steps(question: Question, most: int) -> list[tuple[str | None, str]]:
    try:
        steps = [(step.node, step.query) for step in decompose(question.sparql)]
    except LogicalFormError:
        return [(None, question.sparql)]  # not a SELECT query: asked in one step
    steps = [(None if node is None else node.strip("<>"), query) for node, query in steps]
    while sum(1 + (node is not None) for node, _ in steps) > most - 1:
        # A variable that no earlier query selects cannot be explored.
        steps = [(None, query) if node and node[0] == "?" else (node, query) for node, query in steps[1:]]
    return steps


def _listed(results: Sequence[ActionResult]) -> list[str]:
    """The names in a query's result; the yes or no of an ASK."""
    [result] = results
    if not isinstance(result, Success):
        return []
    if "boolean" in result.details:
        return [str(result.details["boolean"]).lower()]
    return list(dict.fromkeys(item.label for item in named(result.items)))


def _given(results: Sequence[ActionResult], slip: Slip) -> list[str]:
    """The names that a query found, as answers; a wrong name if it found nothing."""
    return _replaced(_listed(results), slip is Slip.ANSWER) or [WRONG]


def _replaced(answers: Sequence[str], wrong: bool, by: str = WRONG) -> list[str]:
    """The answers, in any order; if they are to be wrong, the first by name is replaced.

    One that another spells alike is not replaced, since the other stands for it.
    """
    folded = [answer.casefold() for answer in answers]
    single = [answer for answer, key in zip(answers, folded, strict=True) if folded.count(key) == 1]
    replaced = min(single or answers[:1], default=None)
    return [by if wrong and answer == replaced else answer for answer in answers]


def gold_nodes(question: Question, case: Case) -> set[str]:
    """The gold answers as they stand in the facts."""
    labelled = {label: iri for iri, label in case.names.items()}
    nodes = {labelled.get(answer, iri_of(answer)) for answer in question.answers}
    written = {answer.removeprefix("+") for answer in question.answers}
    values = {line.removesuffix(" .").split(" ", 2)[2] for line in case.triples}
    return nodes | {value for value in values if _lexical(value) in written}


def _walk(case: Case, start: str, ends: set[str]) -> list[tuple[str, str, bool]]:
    """The fewest steps from an entity to any of `ends`: (node, relation, whether against its direction)."""
    found: dict[str, list[tuple[str, str, bool]]] = {start: []}
    waiting = deque([start])
    around: dict[str, list[tuple[str, str, bool]]] = {}
    for line in sorted(case.triples):
        subject, relation, value = line.removesuffix(" .").split(" ", 2)
        around.setdefault(subject, []).append((relation, value, False))
        around.setdefault(value, []).append((relation, subject, True))
    while waiting:
        node = waiting.popleft()
        if node in ends and node != start:
            return found[node]
        if node.startswith('"'):
            continue
        for relation, other, inverse in around.get(node, ()):
            if other not in found:
                found[other] = [*found[node], (node, relation, inverse)]
                waiting.append(other)
    return []


def _lexical(value: str) -> str:
    literal = re.match(r'"(.*)"', value)
    return literal[1] if literal else ""


def iri_of(name: str) -> str:
    """The IRI of an id of Freebase or Wikidata, in angle brackets."""
    if re.fullmatch(r"[QP]\d+", name):
        return f"<{WIKIDATA}{name}>"
    return f"<{FREEBASE}{name}>"


def _short(iri: str) -> str:
    inner = iri.strip("<>")
    for beginning in (FREEBASE, WIKIDATA, "http://www.wikidata.org/prop/direct/"):
        if inner.startswith(beginning):
            return inner.removeprefix(beginning)
    return inner
