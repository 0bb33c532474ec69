"""Gold programs as turns of each dialect; what an answer holds is read from the results of the turns.

A script yields the text of a turn and is sent the results of its actions. With `wrong`, one of the answers is
replaced by an entity that is none.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Generator, Sequence
from dataclasses import dataclass, replace
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

Script = Generator[str, Sequence[ActionResult], None]

WIKIDATA = "http://www.wikidata.org/entity/"


class Unable(Exception):
    """The dialect or its budget cannot express the program."""


@dataclass
class Plan:
    """A script, and what the formula of its reward depends on.

    Attributes:
        turns: how many there are, with the answer.
        kept: how many of the gold answers are given.
        finds: whether a step of it retrieves a gold answer.
        queries: of SPARQL, in order, with the node that was explored before each.
    """

    script: Script
    turns: int
    kept: int
    finds: bool = False
    queries: tuple[tuple[str | None, str], ...] = ()


def plan(dialect: str, question: Question, case: Case, most: int, *, wrong: bool) -> Plan:
    """The gold program of a question in a dialect.

    Args:
        most: maximum turns.

    Raises:
        Unable: the dialect or its budget has no program for it.
    """
    return _PLANS[dialect](question, case, most, wrong)


def _kg_r1(question: Question, case: Case, most: int, wrong: bool) -> Plan:
    """Follow relations from the topic entities to an answer, then give all answers."""
    steps: list[tuple[str, str, bool]] = []
    for topic in question.topic_entities:
        walk = _walk(case, iri_of(topic), gold_nodes(question, case))
        if walk and len(steps) + len(walk) < most:
            steps += [step for step in walk if step not in steps]
    # A name with a comma, unless it was seen, would be read as two.
    ids = {name: others[0] for name, *others in question.names}
    answers = [ids.get(name, name) if "," in name else name for name in question.answers]
    answers = _replaced(answers, wrong)

    def script() -> Script:
        for node, relation, inverse in steps:
            name = "get_head_entities" if inverse else "get_tail_entities"
            arguments = {"entity": _short(node), "relation": _short(relation)}
            yield kg_r1.write_query("I follow the relation.", Action(name, arguments))
        yield kg_r1.write_answer("These are the answers.", answers)

    return Plan(script(), len(steps) + 1, len(answers) - wrong, bool(steps))


def _kbqa_r1(question: Question, case: Case, most: int, wrong: bool) -> Plan:
    """The actions of the logical form, in as many turns as there are."""
    if not question.form:
        question = replace(question, path=(), form=form_of(case.pattern))
    try:
        actions = gold_actions(question)
    except LogicalFormError as error:
        raise Unable(f"no logical form: {error}") from error
    if not actions:
        raise Unable("no actions express the logical form")
    misled = [_misled(action) for action in actions]
    in_program = wrong and len(question.answers) > _LISTED and misled != actions
    if in_program:
        actions = misled
    turns = min(len(actions), most - 1)
    bounds = [turn * len(actions) // turns for turn in range(turns + 1)]

    def script() -> Script:
        results: Sequence[ActionResult] = ()
        for start, end in pairwise(bounds):
            results = yield written("I follow the program.", actions[start:end])
        final = f"expression{len(actions)}"
        if wrong and not in_program and isinstance(results[-1], Success):
            ids = [item.label if item.id.startswith('"') else item.id for item in results[-1].items]
            final = " ".join([NOBODY, *ids[1:]])
        yield kbqa_r1.write_answer("These are the answers.", [final])

    return Plan(script(), turns + 1, 0 if in_program else len(question.answers) - wrong)


def _knowcoder_a1(question: Question, case: Case, most: int, wrong: bool) -> Plan:
    """What surrounds a topic, then the gold query, and the answers as a list."""
    topics = [topic for topic in question.topic_entities if not topic.startswith('"')]

    def script() -> Script:
        for topic in topics[:1]:
            around = f"SELECT DISTINCT ?x WHERE {{ VALUES ?x {{ {entity_term(topic)} }} }}"
            yield knowcoder_a1.write_call("I look around.", "SearchGraphPatterns", {"sparql": around})
        results = yield knowcoder_a1.write_call("I ask.", "ExecuteSPARQL", {"sparql": question.sparql})
        yield knowcoder_a1.write_answer("These are the answers.", _replaced(_listed(results), wrong))

    return Plan(script(), len(topics[:1]) + 2, len(question.answers) - wrong)


def _interactive_parsing(question: Question, case: Case, most: int, wrong: bool) -> Plan:
    """The gold query step by step (ISP-KGR, E.2); the first steps are left out if the budget is short."""
    steps = _steps(question, most)
    commands = sum(1 + (node is not None) for node, _ in steps)

    def script() -> Script:
        results: Sequence[ActionResult] = ()
        for node, query in steps:
            if node is not None:
                yield interactive_parsing.write_node("I look around.", node)
            results = yield interactive_parsing.write_sparql("I ask.", query)
        yield interactive_parsing.write_answer("These are the answers.", _replaced(_listed(results), wrong))

    return Plan(script(), commands + 1, len(question.answers) - wrong, queries=tuple(steps))


def _sparql_refinement(question: Question, case: Case, most: int, wrong: bool) -> Plan:
    """The gold query, and its only value."""
    if len(question.answers) != 1:
        raise Unable("more than one answer: the dialect gives a single value (questions.max_answers)")

    def script() -> Script:
        results = yield sparql_refinement.write_query("I ask.", question.sparql)
        answers = _replaced(_listed(results), wrong)
        yield sparql_refinement.write_answer("This is it.", answers[0] if answers else "nothing")

    return Plan(script(), 2, 1 - wrong)


_PLANS = {
    "kg_r1": _kg_r1,
    "kbqa_r1": _kbqa_r1,
    "knowcoder_a1": _knowcoder_a1,
    "interactive_parsing": _interactive_parsing,
    "sparql_refinement": _sparql_refinement,
}


def _misled(action: FormAction) -> FormAction:
    """The action, from another entity."""
    if isinstance(action, FindRelation) and isinstance(action.source, Entity):
        return replace(action, source=Entity(NOBODY))
    return action


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


def _replaced(answers: Sequence[str], wrong: bool) -> list[str]:
    """The answers, one of them replaced if they are to be wrong; not one that another spells alike."""
    folded = [answer.casefold() for answer in answers]
    at = next((i for i, answer in enumerate(folded) if folded.count(answer) == 1), 0)
    return [*answers[:at], WRONG, *answers[at + 1 :]] if wrong else list(answers)


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
