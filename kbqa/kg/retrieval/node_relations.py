"""`node_relations`: ISP-KGR's `<node>` command, the relations around an entity or variable (section 4.2)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kbqa.kg.actions import NODE_RELATIONS, ActionResult, ErrorKind, Failure, Success
from kbqa.kg.arguments import QUESTION, TEXT, Argument
from kbqa.kg.handlers import Surroundings, failure, paging, quote, resolved_entities
from kbqa.kg.retrieval.graph_patterns import TOP, PatternPath, paths_around, ranked, timing, values_of
from kbqa.kg.sparql.select import ParsedSelect
from kbqa.kg.specs import ACTIONS, ActionSpec

# Prepended to the question, not to the relations (Figure 9, in our words).
INSTRUCTION = (
    "Given a question and relations of a knowledge graph, select the relations that help to answer it."
)


def line(path: PatternPath) -> str:
    """A path as text for an agent: `<node>` is the queried node, `?a` and `?b` are the others."""
    nodes = ("<node>", "?a", "?b")
    hops = [
        (here, relation.id, there) if path.outgoing else (there, relation.id, here)
        for relation, here, there in zip(path.relations, nodes, nodes[1:], strict=False)
    ]
    return " . ".join(" ".join(hop) for hop in hops)


def _node_relations(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    node, question = arguments["node"].strip(), arguments["question"]
    nodes = _nodes(surroundings, node, arguments.get("query"))
    if isinstance(nodes, Failure):
        return nodes
    ranker = surroundings.schema.relations
    paths = paths_around(
        surroundings.store,
        nodes,
        ranker,
        question,
        deadline_s=surroundings.deadline_s,
        instruction=INSTRUCTION,
    )
    if not paths.found:
        return failure(ErrorKind.NO_RELATIONS_FOUND, f"No relations found for node {quote(node)} in KG")
    scored = ranked(ranker, question, paths.found, instruction=INSTRUCTION)
    limit, offset = paging(surroundings, {"limit": TOP, **arguments})
    items = tuple(
        {
            "line": line(path),
            "relations": [{"id": relation.id, "label": relation.label} for relation in path.relations],
            "direction": "out" if path.outgoing else "in",
            "score": score,
        }
        for path, score in scored[offset : offset + limit]
    )
    truncated = not paths.complete or offset + len(items) < len(scored)
    return Success(items, len(scored), truncated=truncated, details=timing(paths))


def _nodes(surroundings: Surroundings, node: str, query: str | None) -> list[str] | Failure:
    """The ids that the argument `node` stands for."""
    if not node.startswith(("?", "$")):
        entities = resolved_entities(surroundings.store, node)
        return list(entities) if isinstance(entities, tuple) else entities
    if query is None:
        message = f"Missing required fields for {NODE_RELATIONS}: query (in which {quote(node)} occurs)"
        return failure(ErrorKind.MISSING_REQUIRED_FIELDS, message)
    parts = ParsedSelect.parse(query)
    variable = node[1:]
    if variable not in parts.matched | (parts.projected or frozenset()):
        message = f"Variable {quote(node)} does not occur in the query"
        return failure(ErrorKind.ENTITY_NOT_IN_KG, message, {"reason": "unused_variable"})
    found = values_of(surroundings, parts, variable)
    if not found:
        message = f"The query finds nothing that {quote(node)} could be"
        return failure(ErrorKind.NO_ENTITIES_FOUND, message, {"reason": "no_values"})
    return found


ACTIONS.register(
    ActionSpec(
        NODE_RELATIONS,
        "List the relations around a node that matter most to a question, with example facts. The node is an "
        "entity's id, or a variable (?x) of the SPARQL query that is sent along.",
        _node_relations,
        {
            "node": Argument(TEXT, "an entity's id or exact label, or a variable of `query` (?x)"),
            "question": QUESTION,
        },
        {"query": Argument(TEXT, "SPARQL in which the variable occurs")},
        item=None,
        answers=f"Items, {TOP} unless `limit` says otherwise: `line`, the facts with `<node>` in them; "
        "`relations` from the node on; `direction` (`out`: the node is the head); `score`. Details: "
        "`timed_out` if there may be more at another time. Those of a failure: `reason`, `unused_variable` "
        "or `no_values`.",
        errors=(
            ErrorKind.QUERY_SYNTAX,
            ErrorKind.QUERY_REFUSED,
            ErrorKind.ENTITY_NOT_IN_KG,
            ErrorKind.NO_RELATIONS_FOUND,
            ErrorKind.NO_ENTITIES_FOUND,
        ),
    )
)
