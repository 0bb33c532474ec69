"""Retrieval actions as values, and the port through which an agent executes them.

The four one-hop actions and their eight errors are those of KG-R1 (section 3.2,
appendix D.5); the others come from KBQA-R1, KnowCoder-A1, ISP-KGR and
Learning-to-Refine. A failed action is returned as a value, because the agent reads it and
learns from it. Only a missing or unreachable graph raises an exception.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

GET_TAIL_RELATIONS = "get_tail_relations"
GET_HEAD_RELATIONS = "get_head_relations"
GET_TAIL_ENTITIES = "get_tail_entities"
GET_HEAD_ENTITIES = "get_head_entities"

# KBQA-R1
FIND_RELATION = "find_relation"
EXECUTE_LOGICAL_FORM = "execute_logical_form"
# KnowCoder-A1; Learning-to-Refine also uses EXECUTE_SPARQL
SEARCH_TYPES = "search_types"
SEARCH_GRAPH_PATTERNS = "search_graph_patterns"
EXECUTE_SPARQL = "execute_sparql"
# ISP-KGR
NODE_RELATIONS = "node_relations"
ENTITY_DISTANCE = "entity_distance"
# ours, for users whose questions come without topic entities
LINK_ENTITIES = "link_entities"
DESCRIBE = "describe"
# ours, for people who begin to write a name
COMPLETE_NAME = "complete_name"
# ours, for gold answers, which data sets give by id or by label
RESOLVE_NAMES = "resolve_names"
# ours, for readers of other languages
LABELS = "labels"
# ours, for choosers, which select one of the relations that the graph lists
FOLLOW_PATH = "follow_path"
# ours, for choosers of logical forms
EXPAND = "expand"

# In the order in which KG-R1's error message names them.
ONE_HOP_ACTIONS = (GET_HEAD_RELATIONS, GET_TAIL_RELATIONS, GET_HEAD_ENTITIES, GET_TAIL_ENTITIES)


class ErrorCode(StrEnum):
    """KG-R1's six error codes."""

    SERVER_ERROR = "KG_SERVER_ERROR"
    FORMAT_ERROR = "KG_FORMAT_ERROR"
    SAMPLE_NOT_FOUND = "KG_SAMPLE_NOT_FOUND"
    ENTITY_NOT_FOUND = "KG_ENTITY_NOT_FOUND"
    RELATION_NOT_FOUND = "KG_RELATION_NOT_FOUND"
    NO_RESULTS = "KG_NO_RESULTS"


class ErrorKind(StrEnum):
    """KG-R1's eight kinds of error (Figure 5), plus kinds for the other actions; all map to the six codes."""

    INVALID_ACTION = "invalid_action"
    MISSING_REQUIRED_FIELDS = "missing_required_fields"
    WRONG_ARGUMENT_COUNT = "wrong_argument_count"
    SAMPLE_MISSING = "sample_missing"
    ENTITY_NOT_IN_KG = "entity_not_in_kg"
    INVALID_RELATION = "invalid_relation"
    NO_RELATIONS_FOUND = "no_relations_found"
    NO_ENTITIES_FOUND = "no_entities_found"
    # No neighbouring relation is similar enough to the relation text (KBQA-R1's low tier).
    RELATION_REJECTED = "relation_rejected"
    # Queries and logical forms. The first two are errors of the writer, the others of the server.
    QUERY_SYNTAX = "query_syntax"
    QUERY_REFUSED = "query_refused"
    QUERY_TIMEOUT = "query_timeout"
    QUERY_FAILED = "query_failed"
    OVERLOADED = "overloaded"
    BACKEND_UNAVAILABLE = "backend_unavailable"

    @property
    def is_transient(self) -> bool:
        """Whether the same action may succeed later; transient failures are never cached."""
        return self in _TRANSIENT


_TRANSIENT = frozenset(
    {
        ErrorKind.QUERY_TIMEOUT,
        ErrorKind.QUERY_FAILED,
        ErrorKind.OVERLOADED,
        ErrorKind.BACKEND_UNAVAILABLE,
    }
)


@dataclass(frozen=True, slots=True)
class Action:
    """One retrieval action: a name and its arguments, not validated.

    A policy may name an action that does not exist; it learns from the graph's error.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**self.arguments, "action": self.name}


# Items have no slots, because orjson takes ten times as long to write a dataclass with slots.
@dataclass(frozen=True)
class Item:
    """A relation or entity in a result. Actions accept its `id` as an argument."""

    id: str
    label: str

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Item:
        """Read an item of this type from its JSON fields."""
        return cls(**written)


@dataclass(frozen=True)
class DatedItem(Item):
    """An entity found by dated facts; `times` as the graph writes them, each a point or `start; end`."""

    times: tuple[str, ...]

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Item:
        """Read an item; a plain `Item` if no fact has a date."""
        if "times" not in written:
            return Item(**written)
        return cls(written["id"], written["label"], tuple(written["times"]))


@dataclass(frozen=True)
class Mention(Item):
    """An entity that a question names, written there as `question[start:end]`.

    `score` is 1 for an exact name and less for a similar one.
    """

    start: int
    end: int
    score: float = 1.0


@dataclass(frozen=True)
class ScoredItem(Item):
    """A relation or type with its similarity to the requested text (1 means the same).

    `direction` is `out` if the entity is the relation's head, `in` if the entity is its
    tail, and empty if there is no direction.
    """

    score: float
    direction: str = ""


# A fact (head, relation, tail), by ids or by the names that an action was given.
Triple = tuple[str, str, str]

# One solution of a query: variable → term in the form of SPARQL's JSON results (type, value,
# datatype, xml:lang), with its `label` and the `id` that actions accept.
Row = Mapping[str, Mapping[str, str]]

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Success(Generic[T_co]):
    """The result of an action that succeeded.

    Attributes:
        items: unique, in a stable order, after truncation: `Item`s, or `Row`s of a query.
        total: number of items before truncation.
        truncated: whether items were left out.
        cached: whether the answer came from a cache.
        elapsed_ms: time that the server spent on the action, in milliseconds.
        details: further output as JSON; the action's module documents the keys.
    """

    items: tuple[T_co, ...]
    total: int
    truncated: bool = False
    cached: bool = False
    elapsed_ms: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """The error of an action; `message` is the paper's text, word for word.

    `details` is JSON that helps the agent to continue, such as the candidates for a
    rejected relation.
    """

    code: ErrorCode
    kind: ErrorKind
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)


ActionResult = Success[Any] | Failure


def named(items: Iterable[Any]) -> Iterator[Item]:
    """All entities, relations and terms in a result's items; a row yields each of its terms."""
    for item in items:
        if isinstance(item, Item):
            yield item
        elif isinstance(item, Mapping):
            for term in item.values():
                if isinstance(term, Mapping) and "id" in term:
                    yield Item(term["id"], term.get("label", term["id"]))


class GraphTools(Protocol):
    """The port through which an agent executes actions on a graph."""

    def execute(self, kg: str, actions: Sequence[Action], *, graph: str | None = None) -> list[ActionResult]:
        """Execute actions in order, one result each.

        Args:
            kg: name of the graph.
            actions: any mix, any number.
            graph: id of a per-question subgraph that restricts the actions.

        Raises:
            GraphNotFoundError: no graph named `kg`.
            GraphUnavailableError: the graph cannot be reached.
        """
        ...


@runtime_checkable
class VersionedGraphTools(GraphTools, Protocol):
    """Graph tools that tell which version of a graph answered."""

    def execute_at(
        self, kg: str, actions: Sequence[Action], *, graph: str | None = None
    ) -> tuple[list[ActionResult], str]:
        """Like `execute`, with the version of the graph; the last one, if it changed meanwhile."""
        ...
