"""Retrieval actions as values, and the port through which an agent executes them.

The four one-hop actions and their eight errors are those of KG-R1 (section 3.2,
appendix D.5); the others come from KBQA-R1, KnowCoder-A1, ISP-KGR and
Learning-to-Refine. An action that fails is a value, since the agent reads and learns
from it; only a graph that is absent or cannot be reached is an exception.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Generic, Protocol, TypeVar

GET_TAIL_RELATIONS = "get_tail_relations"
GET_HEAD_RELATIONS = "get_head_relations"
GET_TAIL_ENTITIES = "get_tail_entities"
GET_HEAD_ENTITIES = "get_head_entities"

# KBQA-R1
FIND_RELATION = "find_relation"
EXECUTE_LOGICAL_FORM = "execute_logical_form"
# KnowCoder-A1; EXECUTE_SPARQL is Learning-to-Refine's too
SEARCH_TYPES = "search_types"
SEARCH_GRAPH_PATTERNS = "search_graph_patterns"
EXECUTE_SPARQL = "execute_sparql"
# ISP-KGR
NODE_RELATIONS = "node_relations"
ENTITY_DISTANCE = "entity_distance"
# ours, for users whose questions come without topic entities
LINK_ENTITIES = "link_entities"
DESCRIBE = "describe"
# ours, for policies that choose among what the graph lists
FOLLOW_PATH = "follow_path"

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
    """KG-R1's eight kinds of error (Figure 5), and those of the other actions; they share the six codes."""

    INVALID_ACTION = "invalid_action"
    MISSING_REQUIRED_FIELDS = "missing_required_fields"
    WRONG_ARGUMENT_COUNT = "wrong_argument_count"
    SAMPLE_MISSING = "sample_missing"
    ENTITY_NOT_IN_KG = "entity_not_in_kg"
    INVALID_RELATION = "invalid_relation"
    NO_RELATIONS_FOUND = "no_relations_found"
    NO_ENTITIES_FOUND = "no_entities_found"
    # A relation text that resembles no neighbouring relation enough (KBQA-R1's low tier).
    RELATION_REJECTED = "relation_rejected"
    # A query or logical form: the first two are the writer's, the others the server's.
    QUERY_SYNTAX = "query_syntax"
    QUERY_REFUSED = "query_refused"
    QUERY_TIMEOUT = "query_timeout"
    QUERY_FAILED = "query_failed"
    OVERLOADED = "overloaded"
    BACKEND_UNAVAILABLE = "backend_unavailable"

    @property
    def is_transient(self) -> bool:
        """Whether the same action may do better at another time: such a failure is never cached."""
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
    """One retrieval action: a name and its arguments, as yet unchecked.

    Unchecked on purpose: a policy may name an action that does not exist, and
    the graph's error for it is what the policy learns from.
    """

    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        return {**self.arguments, "action": self.name}


@dataclass(frozen=True, slots=True)
class Item:
    """A relation or entity in a result. `id` is what an action accepts back."""

    id: str
    label: str

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Item:
        """An item of an action whose items are of this type, from its fields."""
        return cls(**written)


@dataclass(frozen=True, slots=True)
class DatedItem(Item):
    """An entity of a dated fact: when it held, as the graph writes it, a point or `start; end` each."""

    times: tuple[str, ...]

    @classmethod
    def from_json(cls, written: Mapping[str, Any]) -> Item:
        """As for `Item`, which it is where no fact has a date."""
        if "times" not in written:
            return Item(**written)
        return cls(written["id"], written["label"], tuple(written["times"]))


@dataclass(frozen=True, slots=True)
class Mention(Item):
    """An entity that a question names: `question[start:end]` is how it is written there.

    `score` is 1 for the name itself, less for what only resembles it.
    """

    start: int
    end: int
    score: float = 1.0


@dataclass(frozen=True, slots=True)
class ScoredItem(Item):
    """A relation or type, and how much it resembles what was asked for (1 is the same).

    `direction` is `out` for a relation of which the entity is the head, `in` for one of
    which it is the tail, and empty where there is none.
    """

    score: float
    direction: str = ""


# A fact, as (head, relation, tail): ids, or names as an action was sent them.
Triple = tuple[str, str, str]

# A solution of a query: variable → its term as SPARQL's JSON results write it (type, value,
# datatype, xml:lang), with the `id` that an action accepts and its `label`.
Row = Mapping[str, Mapping[str, str]]

T_co = TypeVar("T_co", covariant=True)


@dataclass(frozen=True, slots=True)
class Success(Generic[T_co]):
    """What an action found.

    Attributes:
        items: unique, in a stable order, after truncation: `Item`s, or `Row`s of a query.
        total: number of items before truncation.
        truncated: whether items were left out.
        cached: whether the answer came from a cache.
        elapsed_ms: time spent on it by the server, in milliseconds.
        details: what else the action says, as JSON; its module documents the keys.
    """

    items: tuple[T_co, ...]
    total: int
    truncated: bool = False
    cached: bool = False
    elapsed_ms: float = 0.0
    details: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an action found nothing; `message` is the paper's text, word for word.

    `details` is what an agent may go on with, as JSON, for instance the candidates of a
    relation that was rejected.
    """

    code: ErrorCode
    kind: ErrorKind
    message: str
    details: Mapping[str, Any] = field(default_factory=dict)


ActionResult = Success[Any] | Failure


def named(items: Iterable[Any]) -> Iterator[Item]:
    """The entities, relations and terms in the items of any result; those of a row one by one."""
    for item in items:
        if isinstance(item, Item):
            yield item
        elif isinstance(item, Mapping):
            for term in item.values():
                if isinstance(term, Mapping) and "id" in term:
                    yield Item(term["id"], term.get("label", term["id"]))


class GraphTools(Protocol):
    """What an agent may do to a graph: execute a batch of actions."""

    def execute(self, kg: str, actions: Sequence[Action], *, graph: str | None = None) -> list[ActionResult]:
        """Execute actions in order, one result each.

        Args:
            kg: name of the graph.
            actions: any mix, any number.
            graph: id of a per-question subgraph that restricts them.

        Raises:
            GraphNotFoundError: no graph named `kg`.
            GraphUnavailableError: the graph cannot be reached.
        """
        ...
