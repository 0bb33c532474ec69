"""Gold programs of questions as logical forms and as SPARQL."""

from __future__ import annotations

from kbqa.kg.naming import relation_iri
from kbqa.logical_forms.algebra import Entity, Expression, Join, Relation
from kbqa.logical_forms.s_expression import parse_s_expression
from kbqa.protocols.sparql_terms import entity_term
from kbqa.trajectory import Question


def gold_form(question: Question) -> Expression | None:
    """The gold form of a question, or that of its gold path; None if it has neither.

    Raises:
        LogicalFormError: the form is not well-formed.
    """
    if question.form:
        return parse_s_expression(question.form)
    return path_expression(question) if question.path else None


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
        # A join's relation points from the members to the known entity, so a forward hop is inverse.
        expression = Join(Relation(hop.relation, inverse=not hop.inverse), reached)
        reached = expression
    return expression
