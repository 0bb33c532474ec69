"""The SPARQL query behind a question's answers, for callers that want a query instead of answers."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kbqa.errors import LogicalFormError
from kbqa.evidence.claims import CitedQuery
from kbqa.evidence.support import Evidence
from kbqa.kg.actions import EXECUTE_LOGICAL_FORM, Action, GraphTools, Success, Triple
from kbqa.kg.sparql.dialect import standard
from kbqa.kg.sparql.guard import check_query
from kbqa.logical_forms.algebra import Entity, Expression, Join, Literal, Relation, entities
from kbqa.logical_forms.s_expression import parse_literal, print_s_expression


def query_behind(
    answers: Iterable[tuple[str | None, Evidence | None]],
    tools: GraphTools,
    kg: str,
    graph: str | None = None,
) -> str | None:
    """The query that supports the most of the answers, in SPARQL 1.1; None if none of them has evidence.

    If a chain of triples is the evidence, the query asks for everything to which the chain's relations
    lead from where it starts.

    Args:
        answers: the id and the evidence of each.
        tools: write a chain's relations as SPARQL.
        kg: name of the graph.
        graph: id of the per-question subgraph to which the runs were restricted.

    Raises:
        GraphNotFoundError, GraphUnavailableError: as `GraphTools.execute`.
    """
    counts: Counter[str | Expression] = Counter()
    returning = False
    for id_, evidence in answers:
        found = evidence.sparql if isinstance(evidence, CitedQuery) else _form(evidence or (), id_)
        if found is not None:
            counts[found] += 1
            returning |= not isinstance(found, str) and id_ in entities(found)
    if not counts:
        return None
    [(query, _)] = counts.most_common(1)
    text = query if isinstance(query, str) else _in_sparql(query, tools, kg, graph, returning)
    # The graph understands more than other engines, such as prefixes that are not declared.
    return None if text is None else standard(check_query(text)).text


def _form(chain: Sequence[Triple], answer: str | None) -> Expression | None:
    """What the relations of a chain lead to; None if the triples do not lead to the answer."""
    steps: list[Relation] = []
    here = answer
    for subject, relation, object_ in reversed(chain):
        if here not in (subject, object_):
            return None
        steps.append(Relation(relation, inverse=here == object_))
        here = subject if here == object_ else object_
    if here is None or not steps:
        return None
    try:
        form: Entity | Literal | Expression = parse_literal(here) if here.startswith('"') else Entity(here)
    except LogicalFormError:
        return None
    for step in reversed(steps):
        form = Join(step, form)
    assert isinstance(form, Join)
    return form


def _in_sparql(
    form: Expression, tools: GraphTools, kg: str, graph: str | None, returning: bool
) -> str | None:
    arguments = {"expression": print_s_expression(form), "return": returning, "explain": True, "limit": 1}
    [result] = tools.execute(kg, [Action(EXECUTE_LOGICAL_FORM, arguments)], graph=graph)
    queries = result.details.get("sparql", ()) if isinstance(result, Success) else ()
    return next(iter(queries), None)
