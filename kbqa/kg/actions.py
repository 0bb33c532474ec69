"""Retrieval actions as values, and the port through which an agent executes them.

The four one-hop actions and their eight errors are those of KG-R1 (section 3.2,
appendix D.5). An action that fails is a value, since the agent reads and learns
from it; only a graph that is absent or cannot be reached is an exception.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Protocol

GET_TAIL_RELATIONS = "get_tail_relations"
GET_HEAD_RELATIONS = "get_head_relations"
GET_TAIL_ENTITIES = "get_tail_entities"
GET_HEAD_ENTITIES = "get_head_entities"

LINK_ENTITIES = "link_entities"

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
    """KG-R1's eight kinds of error (Figure 5), which share the six codes."""

    INVALID_ACTION = "invalid_action"
    MISSING_REQUIRED_FIELDS = "missing_required_fields"
    WRONG_ARGUMENT_COUNT = "wrong_argument_count"
    SAMPLE_MISSING = "sample_missing"
    ENTITY_NOT_IN_KG = "entity_not_in_kg"
    INVALID_RELATION = "invalid_relation"
    NO_RELATIONS_FOUND = "no_relations_found"
    NO_ENTITIES_FOUND = "no_entities_found"


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


@dataclass(frozen=True, slots=True)
class Mention(Item):
    """An entity that a question names: `question[start:end]` is how it is written there."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Success:
    """What an action found.

    Attributes:
        items: unique, in a stable order, after truncation.
        total: number of items before truncation.
        truncated: whether items were left out.
        cached: whether the answer came from a cache.
        elapsed_ms: time spent on it by the server, in milliseconds.
    """

    items: tuple[Item, ...]
    total: int
    truncated: bool = False
    cached: bool = False
    elapsed_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Failure:
    """Why an action found nothing; `message` is the paper's text, word for word."""

    code: ErrorCode
    kind: ErrorKind
    message: str


ActionResult = Success | Failure


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
