"""Graph actions executed in this process, with KG-R1's errors word for word (Figure 5).

The messages that the figure lacks are made by analogy: "head" for "tail", "tail" for
"head". Checks come in this order: the action, its arguments, the subgraph, the
entity, the relation. An argument that is there but of no use counts as missing.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from kbqa.kg.actions import (
    GET_HEAD_ENTITIES,
    GET_HEAD_RELATIONS,
    GET_TAIL_ENTITIES,
    GET_TAIL_RELATIONS,
    LINK_ENTITIES,
    ONE_HOP_ACTIONS,
    Action,
    ActionResult,
    ErrorCode,
    ErrorKind,
    Failure,
    Success,
)
from kbqa.kg.store import GraphInfo, Graphs, GraphStore, Page

MAX_ITEMS = 1000
MAX_ARGUMENT_CHARS = 32_768
# What a message repeats of an argument.
_ECHO_CHARS = 200

_PAGING = ("limit", "offset")
_ARGUMENTS: dict[str, tuple[str, ...]] = {
    GET_TAIL_RELATIONS: ("entity",),
    GET_HEAD_RELATIONS: ("entity",),
    GET_TAIL_ENTITIES: ("entity", "relation"),
    GET_HEAD_ENTITIES: ("entity", "relation"),
    LINK_ENTITIES: ("question",),
}
# The side that is looked for, and the side that the entity is on.
_SIDES = {
    GET_TAIL_RELATIONS: ("tail", "head"),
    GET_HEAD_RELATIONS: ("head", "tail"),
    GET_TAIL_ENTITIES: ("tail", "head"),
    GET_HEAD_ENTITIES: ("head", "tail"),
}
# As KG-R1 calls them in its errors.
_FIELD_NAMES = {"entity": "entity_name", "relation": "relation_name", "question": "question"}
_ACCEPTS = {
    GET_TAIL_RELATIONS: "only one entity argument",
    GET_HEAD_RELATIONS: "only one entity argument",
    GET_TAIL_ENTITIES: "only one entity and one relation argument",
    GET_HEAD_ENTITIES: "only one entity and one relation argument",
    LINK_ENTITIES: "only one question argument",
}
_CODES = {
    ErrorKind.INVALID_ACTION: ErrorCode.SERVER_ERROR,
    ErrorKind.MISSING_REQUIRED_FIELDS: ErrorCode.FORMAT_ERROR,
    ErrorKind.WRONG_ARGUMENT_COUNT: ErrorCode.FORMAT_ERROR,
    ErrorKind.SAMPLE_MISSING: ErrorCode.SAMPLE_NOT_FOUND,
    ErrorKind.ENTITY_NOT_IN_KG: ErrorCode.ENTITY_NOT_FOUND,
    ErrorKind.INVALID_RELATION: ErrorCode.RELATION_NOT_FOUND,
    ErrorKind.NO_RELATIONS_FOUND: ErrorCode.NO_RESULTS,
    ErrorKind.NO_ENTITIES_FOUND: ErrorCode.NO_RESULTS,
}


class LocalGraphTools:
    """`GraphTools` over graphs in this process.

    Args:
        graphs: where they are: a `GraphCatalog`, or `FixedGraphs`.
        max_items: items of a result at most, and without a `limit` argument.
    """

    def __init__(self, graphs: Graphs, *, max_items: int = MAX_ITEMS) -> None:
        self._graphs, self._max_items = graphs, max_items

    def execute(self, kg: str, actions: Sequence[Action], *, graph: str | None = None) -> list[ActionResult]:
        return execute(self._graphs.get(kg), actions, graph=graph, max_items=self._max_items)

    def graphs(self) -> list[GraphInfo]:
        """What is loaded."""
        return self._graphs.list()


def execute(
    store: GraphStore, actions: Sequence[Action], *, graph: str | None = None, max_items: int = MAX_ITEMS
) -> list[ActionResult]:
    """Execute actions over one graph, in order, one result each; raises nothing of its own.

    Args:
        graph: id of a per-question subgraph; there are none yet, so any is not found.
        max_items: items of a result at most, and without a `limit` argument.
    """
    return [_execute(store, action, graph, max_items) for action in actions]


def _execute(store: GraphStore, action: Action, graph: str | None, max_items: int) -> ActionResult:
    started = time.perf_counter()
    name, arguments = action.name, action.arguments
    failure = _check(name, arguments)
    if failure is not None:
        return failure
    if graph is not None:
        return _failure(ErrorKind.SAMPLE_MISSING, f"Sample {_quote(graph)} not found in KG")
    limit, offset = min(arguments.get("limit", max_items), max_items), arguments.get("offset", 0)
    if name == LINK_ENTITIES:
        mentions = tuple(store.link(arguments["question"]))
        page = Page(mentions[offset : offset + limit], len(mentions))
    else:
        found = _one_hop(store, name, arguments, limit, offset)
        if isinstance(found, Failure):
            return found
        page = found
    items, total = page
    elapsed_ms = (time.perf_counter() - started) * 1000
    return Success(items, total, truncated=offset + len(items) < total, elapsed_ms=elapsed_ms)


def _one_hop(
    store: GraphStore, name: str, arguments: Mapping[str, Any], limit: int, offset: int
) -> Page | Failure:
    entity = arguments["entity"]
    entities = store.resolve_entity(entity)
    if not entities:
        return _failure(ErrorKind.ENTITY_NOT_IN_KG, f"Entity {_quote(entity)} not found in KG")
    side, other = _SIDES[name]
    if "relation" not in _ARGUMENTS[name]:
        look_up_relations = store.tail_relations if side == "tail" else store.head_relations
        page = look_up_relations(entities, limit=limit, offset=offset)
        if page.total == 0:
            message = f"No {side} relations found for entity {_quote(entity)} in knowledge graph"
            return _failure(ErrorKind.NO_RELATIONS_FOUND, message)
        return page
    relation = arguments["relation"]
    relations = store.resolve_relation(relation)
    if not relations:
        return _failure(ErrorKind.INVALID_RELATION, f"Relation {_quote(relation)} not found in KG")
    look_up_entities = store.tail_entities if side == "tail" else store.head_entities
    page = look_up_entities(entities, relations, limit=limit, offset=offset)
    if page.total == 0:
        where = f"for relation {_quote(relation)} with {other} {_quote(entity)}"
        return _failure(ErrorKind.NO_ENTITIES_FOUND, f"No {side} entities found {where} in knowledge graph")
    return page


def _check(name: Any, arguments: Mapping[str, Any]) -> Failure | None:
    """What is wrong with an action before any graph is asked."""
    expected = _ARGUMENTS.get(name) if isinstance(name, str) else None
    if expected is None:
        return _failure(
            ErrorKind.INVALID_ACTION,
            f"Action {_quote(name)} not available (use: {', '.join(ONE_HOP_ACTIONS)})",
        )
    missing = []
    for argument in expected:
        value = arguments.get(argument)
        if isinstance(value, (list, tuple, dict)):
            return _wrong_count(name)
        if not isinstance(value, str) or not value or len(value) > MAX_ARGUMENT_CHARS:
            missing.append(_FIELD_NAMES[argument])
    if missing:
        return _failure(
            ErrorKind.MISSING_REQUIRED_FIELDS, f"Missing required fields for {name}: {', '.join(missing)}"
        )
    if len(arguments) == len(expected):
        return None
    if any(argument not in expected and argument not in _PAGING for argument in arguments):
        return _wrong_count(name)
    for argument, least in (("limit", 1), ("offset", 0)):
        value = arguments.get(argument, least)
        if type(value) is not int or value < least:
            return _failure(
                ErrorKind.MISSING_REQUIRED_FIELDS,
                f"Missing required fields for {name}: {argument} (a whole number, at least {least})",
            )
    return None


def _wrong_count(name: str) -> Failure:
    return _failure(ErrorKind.WRONG_ARGUMENT_COUNT, f"{name} accepts {_ACCEPTS[name]}")


def _failure(kind: ErrorKind, message: str) -> Failure:
    return Failure(_CODES[kind], kind, message)


def _quote(value: Any) -> str:
    text = value if isinstance(value, str) else str(value)
    return f'"{text}"' if len(text) <= _ECHO_CHARS else f'"{text[:_ECHO_CHARS]}…"'
