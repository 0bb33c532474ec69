"""Teachers: gold relation paths, played turn by turn in each dialect."""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from kbqa.kg.actions import (
    GET_HEAD_ENTITIES,
    GET_TAIL_ENTITIES,
    Action,
    ActionResult,
    Success,
    named,
)
from kbqa.kg.naming import relation_iri
from kbqa.logical_forms.actions import Action as FormAction
from kbqa.logical_forms.actions import FindRelation, to_actions
from kbqa.logical_forms.algebra import Entity, Expression, Join, Relation
from kbqa.protocols import interactive_parsing as parsing
from kbqa.protocols import kbqa_r1 as forms
from kbqa.protocols import kg_r1 as one_hop
from kbqa.protocols import knowcoder_a1 as tool_calls
from kbqa.protocols import sparql_refinement as sparql
from kbqa.protocols.sparql_terms import entity_term
from kbqa.trajectory import Hop, Question

Lesson = Generator[str, Sequence[ActionResult], None]
"""Yields the text of a turn and is sent the results of its actions; ends without an answer if it
cannot go on."""

Teacher = Callable[[Question, int], Lesson]
"""Begins a lesson about a question; a result of more than so many items is not shown."""


def kg_r1(question: Question, max_items: int) -> Lesson:
    """Node by node along the path, thinking of the hops that remain."""
    topic = question.topic_entities[0]
    frontier = [topic]
    for position, hop in enumerate(question.path):
        thought = _thought(question.path[position:])
        found: dict[str, None] = {}
        for entity in frontier:
            name = GET_HEAD_ENTITIES if hop.inverse else GET_TAIL_ENTITIES
            action = Action(name, {"entity": entity, "relation": hop.relation})
            (result,) = yield one_hop.write_query(thought, action)
            # An entity that lacks the relation is part of the gold program, its error too.
            if isinstance(result, Success):
                if not _is_short(result, max_items):
                    return
                found.update(dict.fromkeys(item.label for item in result.items))
        # A topic that the path comes back to is not what is asked for (MetaQA drops it too).
        frontier = [name for name in found if name != topic]
    yield one_hop.write_answer("", frontier)


def kbqa_r1(question: Question, max_items: int) -> Lesson:
    """The actions of the path's logical form, one a turn; the graph finds out their directions."""
    actions = [_undirected(action) for action in to_actions(path_expression(question))]
    for number, action in enumerate(actions):
        (result,) = yield forms.write_actions(_thought(question.path[number:]), [action])
        if not isinstance(result, Success) or not result.items or not _is_short(result, max_items):
            return
    # Unlike a query, a logical form has no member that it names itself.
    yield forms.write_answer("", [f"expression{len(actions)}"])


def knowcoder_a1(question: Question, max_items: int) -> Lesson:
    """One query for the whole path, and its variable for an answer."""
    query = path_query(question)
    (result,) = yield tool_calls.write_call(_thought(question.path), "ExecuteSPARQL", {"sparql": query})
    if isinstance(result, Success) and result.items and _is_short(result, max_items):
        found = [item.label for item in named(result.items)]
        yield tool_calls.write_answer("", _variable_or_names(found, question))


def sparql_refinement(question: Question, max_items: int) -> Lesson:
    """One query for the whole path; its answers are scalars, so only a single answer is shown."""
    if len(question.answers) != 1:
        return
    (result,) = yield sparql.write_query(_thought(question.path), path_query(question))
    if isinstance(result, Success) and result.items and _is_short(result, max_items):
        answers = [item.label for item in named(result.items) if item.id not in question.topic_entities]
        if answers:
            yield sparql.write_answer("", answers[0])


def interactive_parsing(question: Question, max_items: int) -> Lesson:
    """Progressively (ISP-KGR, E.2): what surrounds a node, then a query that goes one hop further."""
    node, found = question.topic_entities[0], list[str]()
    for hops in range(1, len(question.path) + 1):
        thought = _thought(question.path[hops - 1 :])
        yield parsing.write_node(thought, node)
        query = path_query(replace(question, path=question.path[:hops]))
        (result,) = yield parsing.write_sparql(thought, query)
        if not isinstance(result, Success) or not result.items or not _is_short(result, max_items):
            return
        node, found = "?x", [item.label for item in named(result.items)]
    yield parsing.write_answer("", _variable_or_names(found, question))


TEACHERS: Mapping[str, Teacher] = {
    "interactive_parsing": interactive_parsing,
    "kbqa_r1": kbqa_r1,
    "kg_r1": kg_r1,
    "knowcoder_a1": knowcoder_a1,
    "sparql_refinement": sparql_refinement,
}


def path_query(question: Question) -> str:
    """SPARQL for a gold path over a graph of plain names."""
    node, pattern = entity_term(question.topic_entities[0]), []
    for position, hop in enumerate(question.path):
        following = "?x" if position + 1 == len(question.path) else f"?e{position}"
        subject, object_ = (following, node) if hop.inverse else (node, following)
        pattern.append(f"{subject} <{relation_iri(hop.relation)}> {object_}")
        node = following
    return f"SELECT DISTINCT ?x WHERE {{ {' . '.join(pattern)} }}"


def path_expression(question: Question) -> Expression:
    """The logical form of a gold path.

    Raises:
        ValueError: the path has no hop.
    """
    if not question.path:
        raise ValueError(f"question {question.id} has no gold path")
    reached: Entity | Expression = Entity(question.topic_entities[0])
    for hop in question.path:
        # A relation is read from what is described to what is known: a tail's is inverse.
        expression = Join(Relation(hop.relation, inverse=not hop.inverse), reached)
        reached = expression
    return expression


def _undirected(action: FormAction) -> FormAction:
    """What a policy writes of it: a relation's name, which carries no direction."""
    if isinstance(action, FindRelation):
        return replace(action, relation=Relation(action.relation.name))
    return action


def _variable_or_names(found: Sequence[str], question: Question) -> Sequence[str]:
    """By reference, unless the path comes back to its topic, which is not what is asked for."""
    topic = question.topic_entities[0]
    return ["?x"] if topic not in found else [name for name in found if name != topic]


def _thought(remaining: Sequence[Hop]) -> str:
    return " then ".join(("of " if hop.inverse else "") + hop.relation for hop in remaining)


def _is_short(result: Success[Any], max_items: int) -> bool:
    return not result.truncated and len(result.items) <= max_items
