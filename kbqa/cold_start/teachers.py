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
from kbqa.protocols import interactive_parsing as parsing
from kbqa.protocols import kg_r1 as one_hop
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
    topic = question.topic_entities[0]
    node, found = topic, list[str]()
    for hops in range(1, len(question.path) + 1):
        thought = _thought(question.path[hops - 1 :])
        yield parsing.write_node(thought, node)
        query = path_query(replace(question, path=question.path[:hops]))
        (result,) = yield parsing.write_sparql(thought, query)
        if not isinstance(result, Success) or not result.items or not _is_short(result, max_items):
            return
        node, found = "?x", [item.label for item in named(result.items)]
    # By reference, unless the path comes back to the topic, which is not what is asked for.
    yield parsing.write_answer(
        "", ["?x"] if topic not in found else [name for name in found if name != topic]
    )


TEACHERS: Mapping[str, Teacher] = {
    "interactive_parsing": interactive_parsing,
    "kg_r1": kg_r1,
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


def _thought(remaining: Sequence[Hop]) -> str:
    return " then ".join(("of " if hop.inverse else "") + hop.relation for hop in remaining)


def _is_short(result: Success[Any], max_items: int) -> bool:
    return not result.truncated and len(result.items) <= max_items
