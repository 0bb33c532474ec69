"""Teachers: gold programs, played turn by turn in each dialect.

If a data set gives a logical form or a query, beside or instead of a path, the dialects that can
express it play it. KG-R1's dialect can follow paths, intersect their ends, and read the answers of
questions about times off dated facts.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kbqa.cold_start.gold import gold_form, path_query
from kbqa.errors import LogicalFormError
from kbqa.kg.actions import (
    GET_HEAD_ENTITIES,
    GET_TAIL_ENTITIES,
    Action,
    ActionResult,
    DatedItem,
    Item,
    Success,
    named,
)
from kbqa.logical_forms.actions import Action as FormAction
from kbqa.logical_forms.actions import Compare, FindRelation, Order, TimeConstraint, print_action, to_actions
from kbqa.logical_forms.algebra import (
    Entity,
    Expression,
    Join,
    Relation,
    conjuncts,
    equivalent,
    relations,
)
from kbqa.logical_forms.building import leads_to
from kbqa.logical_forms.decomposition import decompose
from kbqa.logical_forms.s_expression import parse_s_expression
from kbqa.parts import added
from kbqa.protocols import AgentProtocol
from kbqa.protocols import chooser as choices
from kbqa.protocols import interactive_parsing as parsing
from kbqa.protocols import kbqa_r1 as forms
from kbqa.protocols import kg_r1 as one_hop
from kbqa.protocols import knowcoder_a1 as tool_calls
from kbqa.protocols import sparql_refinement as sparql
from kbqa.protocols.references import References
from kbqa.protocols.sparql_terms import VARIABLE
from kbqa.trajectory import Hop, Question

Lesson = Generator[str, Sequence[ActionResult], None]
"""Yields the text of a turn and is sent the results of its actions; ends without an answer if it
cannot continue. If the dialogue executes actions before its first turn, the lesson may first yield
`LISTENING`, which is not a turn, and is sent their results."""

LISTENING = ""

Teacher = Callable[[Question, int], Lesson]
"""Begins a lesson about a question; a result with more items than the given number is not shown."""


_SILENT, _CONCLUDED = "<think></think>", "<think>This answers the question.</think>"

_Branch = tuple[str, tuple[Hop, ...]]
"""An entity, and the path that leads from it to the answers."""

# The form of a number or date shows its type, so the type is not written out.
_TYPED = re.compile(r"\^\^http://www\.w3\.org/2001/XMLSchema#(?:integer|float|date)\b")


def kg_r1(question: Question, max_items: int) -> Lesson:
    """Follow each path node by node, the remaining hops as thoughts; the answer is what all paths lead to."""
    return _node_by_node(question, max_items, None)


def kg_r1_by_reference(question: Question, max_items: int) -> Lesson:
    """As `kg_r1`, writing references; ends if it needs more references than there are."""
    return _node_by_node(question, max_items, References(question.topic_entities))


def _node_by_node(question: Question, max_items: int, references: References | None) -> Lesson:
    """The lesson of `kg_r1`, with names or references.

    Args:
        references: the episode's references, assigned as in its dialogue; None writes names.
    """
    branches = _branches(question)
    reached: list[dict[str, Item]] = []
    times: set[str] = set()
    for number, (topic, path) in enumerate(branches):
        frontier = {topic if references is None else references.of(topic): Item(topic, topic)}
        for position, hop in enumerate(path):
            thought = " and ".join(map(_thought, (path[position:], *(p for _, p in branches[number + 1 :]))))
            found: dict[str | None, Item] = {}
            for entity in frontier:
                name = GET_HEAD_ENTITIES if hop.inverse else GET_TAIL_ENTITIES
                action = Action(name, {"entity": entity, "relation": hop.relation})
                (result,) = yield one_hop.write_query(thought, action)
                # Entities that lack the relation are part of the gold program, and so are their errors.
                if isinstance(result, Success):
                    if not _is_short(result, max_items):
                        return
                    if references is not None:
                        references.add(result.items)
                    for item in result.items:
                        found[item.label if references is None else references.of(item.id)] = item
                    dated = (item for item in result.items if isinstance(item, DatedItem))
                    times.update(time for item in dated for time in item.times)
            # A topic that the path comes back to is not an answer (MetaQA drops it, too).
            frontier = {name: item for name, item in found.items() if topic not in (item.label, item.id)}
            if None in frontier:
                return
        reached.append({name: item for name, item in frontier.items() if name is not None})
    if reached:
        common = {name: item for name, item in reached[0].items() if all(name in names for names in reached)}
        yield one_hop.write_answer("", _read_off(question, common, times) if times else list(common))


def kbqa_r1(question: Question, max_items: int) -> Lesson:
    """The actions of the logical form, one per turn; the graph finds the directions of relations."""
    actions = gold_actions(question)
    if not actions:
        return
    for number, action in enumerate(actions):
        thought = _plan(actions[number:]) if question.form else _thought(question.path[number:])
        (result,) = yield written(thought, [action])
        if not isinstance(result, Success) or not result.items or not _is_short(result, max_items):
            return
    # Unlike those of a query, the results of a logical form never contain an entity that it names.
    yield forms.write_answer("", [f"expression{len(actions)}"])


def chooser(question: Question, max_items: int) -> Lesson:
    """Follow the path hop by hop, from all entities at hand; ends if a hop is not listed."""
    results = yield LISTENING
    for hop in question.path:
        (result,) = results
        if not isinstance(result, Success):
            return
        wanted = {"id": hop.relation, "direction": "in" if hop.inverse else "out"}
        number = next(
            (n for n, step in enumerate(result.details["relations"], 1) if wanted.items() <= step.items()),
            None,
        )
        if number is None:
            return
        results = yield choices.write_choice(number)
    if question.path:
        yield choices.write_choice(choices.ANSWER)


def form_chooser(question: Question, max_items: int) -> Lesson:
    """Choose the first form that leads to the gold form, until it is reached; ends if none is listed."""
    target = gold_form(question)
    if target is None:
        return
    results = yield LISTENING
    form: Expression | None = None
    while form is None or not equivalent(form, target):
        (result,) = results
        if not isinstance(result, Success):
            return
        listed = (parse_s_expression(expansion["form"]) for expansion in result.details["expansions"])
        number, form = next(
            (
                (number, one)
                for number, one in enumerate(listed, start=1)
                if leads_to(one, target) and (form is None or not equivalent(one, form))
            ),
            (0, None),
        )
        if form is None:
            return
        results = yield choices.write_choice(number)
    yield choices.write_choice(choices.ANSWER)


def knowcoder_a1(question: Question, max_items: int, *, by_reference: bool = True) -> Lesson:
    """One query for the whole program, and its variable, or what it found, as the answer."""
    query = _query(question)
    if query is None:
        return
    (result,) = yield tool_calls.write_call(_gist(question), "ExecuteSPARQL", {"sparql": query})
    if isinstance(result, Success) and result.items:
        answers = _answers(result, question, by_reference)
        # Names are copied from the observation; a variable stands for all results, shown or not.
        if answers and (_is_short(result, max_items) or VARIABLE.fullmatch(answers[0])):
            yield tool_calls.write_answer("", answers)


def sparql_refinement(question: Question, max_items: int, *, reasons: bool = True) -> Lesson:
    """One query for the whole program; answers are scalars, so only questions with one answer are played."""
    query = _query(question)
    if query is None or len(question.answers) != 1:
        return
    (result,) = yield sparql.write_query(_gist(question) if reasons else None, query)
    if isinstance(result, Success) and result.items and _is_short(result, max_items):
        answers = _names(named(result.items), question)
        if answers:
            yield sparql.write_answer("" if reasons else None, answers[0])


def interactive_parsing(question: Question, max_items: int, *, by_reference: bool = True) -> Lesson:
    """Step by step (ISP-KGR, E.2): the relations of a node, then a query that goes one hop further."""
    result: ActionResult | None = None
    for node, query, thought in _steps(question):
        if node is not None:
            yield parsing.write_node(thought, node)
        (result,) = yield parsing.write_sparql(thought, query)
        if not isinstance(result, Success) or not result.items or not _is_short(result, max_items):
            return
    if isinstance(result, Success):
        yield parsing.write_answer("", _answers(result, question, by_reference))


def teacher_of(protocol: AgentProtocol) -> Teacher | None:
    """The teacher that plays programs in a dialect, or None.

    A teacher from another distribution is an entry point of the group `kbqa.teachers`, named like its
    protocol.
    """
    teacher = _teacher_of(protocol)
    return _thinking(teacher) if teacher is not None and getattr(protocol, "strict", False) else teacher


def _thinking(teacher: Teacher) -> Teacher:
    """The teacher, with words in the thought before its answer: a strict dialect takes no empty thought."""

    def begin(question: Question, max_items: int) -> Lesson:
        lesson = teacher(question, max_items)
        try:
            text = next(lesson)
            while True:
                text = lesson.send((yield text.replace(_SILENT, _CONCLUDED, 1)))
        except StopIteration:
            return

    return begin


def _teacher_of(protocol: AgentProtocol) -> Teacher | None:
    if isinstance(protocol, one_hop.KgR1) and protocol.entities == "references":
        return kg_r1_by_reference
    if isinstance(protocol, tool_calls.KnowCoderA1):
        return partial(knowcoder_a1, by_reference=protocol.by_reference)
    if isinstance(protocol, parsing.InteractiveParsing):
        return partial(interactive_parsing, by_reference=protocol.by_reference)
    if isinstance(protocol, sparql.SparqlRefinement):
        return partial(sparql_refinement, reasons=protocol.reasons)
    teacher: Teacher | None = TEACHERS.get(protocol.name) or added("teachers", protocol.name)
    return teacher


TEACHERS: Mapping[str, Teacher] = {
    "chooser": chooser,
    "form-chooser": form_chooser,
    "interactive_parsing": interactive_parsing,
    "kbqa_r1": kbqa_r1,
    "kg_r1": kg_r1,
    "knowcoder_a1": knowcoder_a1,
    "sparql_refinement": sparql_refinement,
}


def _branches(question: Question) -> list[_Branch]:
    """The paths whose common ends are the answers; none if the program is more than their intersection."""
    if _is_path(question) or (question.path and not question.form):
        return [(question.topic_entities[0], question.path)]
    form = _form(question)
    parts = [] if form is None else list(conjuncts(form))
    branches = [branch for branch in map(_branch, parts) if branch is not None]
    return branches if len(branches) == len(parts) else []


def _read_off(question: Question, found: Mapping[str, Item], times: Iterable[str]) -> Sequence[str]:
    """The gold answers, if dated facts show them: entities, times, or months or years of these times.

    Args:
        found: entities by their names in the dialect.
    """
    written = {item.label: name for name, item in found.items()}
    shown = all(
        answer in written or any(time.startswith(answer) for time in times) for answer in question.answers
    )
    return [written.get(answer, answer) for answer in question.answers] if shown else ()


def _branch(form: Expression) -> _Branch | None:
    hops: list[Hop] = []
    source: object = form
    while isinstance(source, Join):
        hops.append(Hop(source.relation.name, inverse=not source.relation.inverse))
        source = source.source
    return (source.id, tuple(reversed(hops))) if isinstance(source, Entity) else None


def _form(question: Question) -> Expression | None:
    """The gold form, or that of the path; None if there is neither, or actions cannot express the form."""
    try:
        form = gold_form(question)
        if question.form and form is not None:
            to_actions(form)
    except LogicalFormError:
        return None
    return form


def _query(question: Question) -> str | None:
    """The gold query, or that of the path; None if there is neither."""
    return question.sparql or (path_query(question) if _is_path(question) else None)


def _is_path(question: Question) -> bool:
    return bool(question.path) and len(question.topic_entities) == 1


def _steps(question: Question) -> Iterable[tuple[str | None, str, str]]:
    """Node, query and thought of each step: along the path, or by decomposition of the gold query."""
    if not question.sparql:
        path = question.path if _is_path(question) else ()
        for hops in range(1, len(path) + 1):
            node = question.topic_entities[0] if hops == 1 else "?x"
            yield node, path_query(replace(question, path=path[:hops])), _thought(path[hops - 1 :])
        return
    try:
        steps = decompose(question.sparql)
    except LogicalFormError:
        return
    for step in steps:
        node_term = None if step.node is None else step.node.removeprefix("<").removesuffix(">")
        yield node_term, step.query, _gist(question)


def gold_actions(question: Question) -> list[FormAction]:
    """The actions of the gold form, as a policy writes them; none if no actions express it."""
    form = _form(question)
    return [] if form is None else [_undirected(action) for action in to_actions(form)]


def written(thought: str, actions: Sequence[FormAction]) -> str:
    """A turn of KBQA-R1's dialect."""
    return _TYPED.sub("", forms.write_actions(thought, actions))


def _undirected(action: FormAction) -> FormAction:
    """The action as a policy writes it: the relation's name has no direction."""
    if isinstance(action, FindRelation):
        return replace(action, relation=Relation(action.relation.name))
    return action


def _answers(result: Success[Any], question: Question, by_reference: bool) -> Sequence[str]:
    """The query's variable, if that is allowed, it has one and found no topic; else names without topics."""
    found = list(named(result.items))
    names = _names(found, question)
    columns = list(result.items[0])
    is_plain = by_reference and len(names) == len(found) and len(columns) == 1
    return [f"?{columns[0]}"] if is_plain else names


def _names(found: Iterable[Item], question: Question) -> list[str]:
    """Labels, without topics."""
    topics = question.topic_entities
    return [item.label for item in found if item.id not in topics and item.label not in topics]


def _gist(question: Question) -> str:
    """The relations of the program, as a thought."""
    if question.path or not question.form:
        return _thought(question.path)
    form = _form(question)
    return "" if form is None else " then ".join(relations(form))


def _plan(actions: Sequence[FormAction]) -> str:
    """The actions to come, each by the relation that it takes, or by its kind."""
    return " then ".join(_purpose(action) for action in actions)


def _purpose(action: FormAction) -> str:
    kind = print_action(action).partition(" [")[0]
    match action:
        case FindRelation(_, relation):
            return relation.name
        case TimeConstraint(relation, _) | Compare(_, (relation, *_), _) | Order(_, _, (relation, *_)):
            return f"{kind} {relation.name}"
        case _:
            return kind


def _thought(remaining: Sequence[Hop]) -> str:
    return " then ".join(("of " if hop.inverse else "") + hop.relation for hop in remaining)


def _is_short(result: Success[Any], max_items: int) -> bool:
    return not result.truncated and len(result.items) <= max_items
