"""An action as one value, from which kg_server, MCP, clients, evidence and documentation are derived.

    ACTIONS.register(
        ActionSpec(
            "count_facts",
            "Count the facts of which an entity is the head.",
            _count_facts,
            {"entity": ENTITY},
            item=None,
        )
    )

Each module of `kbqa.kg.retrieval` registers its actions when that package is imported. Another distribution
adds an action by an entry point of the group `kbqa.actions` that refers to an `ActionSpec`. The distribution
must be installed where kg_server runs, and where a client should read its items as more than JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kbqa.errors import ConfigurationError
from kbqa.kg.actions import ActionResult, ErrorKind, Failure, Item, Triple
from kbqa.kg.arguments import PAGING, TERMS, TEXT, Argument
from kbqa.kg.handlers import Surroundings, failure
from kbqa.parts import additions

# Names of arguments in KG-R1's error messages.
_FIELD_NAMES = {"entity": "entity_name", "relation": "relation_name"}

# Errors that every action may return: for its arguments, its subgraph, or a graph that cannot be queried.
COMMON_ERRORS = (
    ErrorKind.MISSING_REQUIRED_FIELDS,
    ErrorKind.WRONG_ARGUMENT_COUNT,
    ErrorKind.SAMPLE_MISSING,
    ErrorKind.QUERY_TIMEOUT,
    ErrorKind.QUERY_FAILED,
    ErrorKind.OVERLOADED,
    ErrorKind.BACKEND_UNAVAILABLE,
)

Run = Callable[[Surroundings, Mapping[str, Any]], ActionResult]
Cites = Callable[[Mapping[str, Any], Sequence[str], Mapping[str, Any]], list[tuple[Triple, ...]]]


class Cost(StrEnum):
    """How expensive an action is; decides how kg_server executes it and what it caches."""

    LOOK_UP = "look-up"
    """In memory, in microseconds: executed at once; the serialised answer is cached."""
    QUERY = "query"
    """One query, whose result is kept in the cache of queries."""
    SEARCH = "search"
    """Several queries, rankings by an encoder, or walks: executed when it is the caller's turn. The answer is
    cached unless its details have `timed_out`, since a later search may find more."""


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """A retrieval action: its arguments, its implementation and its documentation.

    Checks come in this order: the action's name, its arguments, the subgraph, and then the checks
    of the action itself. An argument with a value that is not allowed counts as missing.

    Attributes:
        name: used by agents and in requests.
        description: for agents; its first sentence is also shown to people.
        run: receives checked arguments and returns the result. It may raise a `QueryError` or
            `GraphUnavailableError` of the store, which `store_failure` converts.
        required: name → argument, in the order in which errors list them.
        optional: likewise; `limit` and `offset` are always accepted, and so are `TERMS`.
        accepts: the end of KG-R1's message about other arguments.
        item: type of the items, which reads them by `from_json`; None for JSON objects, including `Row`s.
        answers: describes items and details to people, as Markdown.
        cost: of the action without its `costly` arguments.
        costly: arguments that make the action a search.
        errors: kinds of failures in addition to `COMMON_ERRORS`.
        cites: (arguments, ids of the items, details) → for each item, the triples that lead from the
            requested entity to the item. They are in walking order, and each may be followed in either
            direction. Empty for an item for which the answer does not give them. Arguments and ids are as
            sent and received, so that a triple may contain labels. None for an action without triples.
    """

    name: str
    description: str
    run: Run
    required: Mapping[str, Argument]
    optional: Mapping[str, Argument] = field(default_factory=dict)
    accepts: str = ""
    item: type[Item] | None = Item
    answers: str = ""
    cost: Cost = Cost.SEARCH
    costly: tuple[str, ...] = ()
    errors: tuple[ErrorKind, ...] = ()
    cites: Cites | None = None

    @property
    def arguments(self) -> dict[str, Argument]:
        """All arguments, the required ones first."""
        return {**self.required, **self.optional, **PAGING}

    def check(self, arguments: Mapping[str, Any]) -> Failure | None:
        """The failure for invalid arguments, or None; no graph is queried."""
        missing = []
        for name, argument in self.required.items():
            value, kind = arguments.get(name), argument.kind
            if kind is TEXT and isinstance(value, (list, tuple, dict)):
                return self._wrong_count()
            if not kind.fits(value):
                field_name = _FIELD_NAMES.get(name, name)
                missing.append(f"{field_name} ({kind.says})" if kind.says else field_name)
        if missing:
            return self._missing(", ".join(missing))
        if len(arguments) == len(self.required):
            return None
        for name, value in arguments.items():
            if name in self.required:
                continue
            optional = self.optional.get(name) or PAGING.get(name) or TERMS.get(name)
            if optional is None:
                return self._wrong_count()
            kind = optional.kind
            if not kind.fits(value):
                return self._missing(f"{name} ({kind.says})" if kind.says else name)
        return None

    def cost_of(self, arguments: Mapping[str, Any]) -> Cost:
        """The cost of the action with these arguments, which need not be checked."""
        for name in self.costly:
            if name in arguments:
                return Cost.SEARCH
        return self.cost

    def read_items(self, written: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
        """Read the action's items from JSON."""
        return tuple(written) if self.item is None else tuple(map(self.item.from_json, written))

    def read_arguments(self, written: Mapping[str, str]) -> dict[str, Any]:
        """Read arguments from a trajectory, which writes texts as they are and other values as JSON.

        Raises:
            KeyError: the action does not take one of the arguments.
        """
        arguments = self.arguments
        return {
            name: text if arguments[name].kind.is_text else json.loads(text) for name, text in written.items()
        }

    def _missing(self, fields: str) -> Failure:
        message = f"Missing required fields for {self.name}: {fields}"
        return failure(ErrorKind.MISSING_REQUIRED_FIELDS, message)

    def _wrong_count(self) -> Failure:
        accepts = self.accepts or f"only {', '.join(self.arguments)}"
        return failure(ErrorKind.WRONG_ARGUMENT_COUNT, f"{self.name} accepts {accepts}")


class Actions(Mapping[str, ActionSpec]):
    """All actions by name, in the order of registration.

    Actions of other distributions come last and are loaded at the first access. Any access raises
    ConfigurationError if one of them is not an `ActionSpec`, or has a name that is taken.
    """

    def __init__(self) -> None:
        self._specs: dict[str, ActionSpec] = {}
        self._complete = False

    def register(self, spec: ActionSpec) -> ActionSpec:
        """Add an action.

        Raises:
            ConfigurationError: another action has that name.
        """
        if self._specs.setdefault(spec.name, spec) is not spec:
            raise ConfigurationError(f'there is an action "{spec.name}" already: give yours another name')
        return spec

    def unregister(self, name: str) -> None:
        """Remove an action; raises KeyError if there is none of that name."""
        del self._specs[name]

    def find(self, name: Any) -> ActionSpec | None:
        """The action of that name, or None; `name` may be any value that a policy wrote."""
        return self._all().get(name) if isinstance(name, str) else None

    def __getitem__(self, name: str) -> ActionSpec:
        return self._all()[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._all())

    def __len__(self) -> int:
        return len(self._all())

    def _all(self) -> dict[str, ActionSpec]:
        if not self._complete:
            for point in additions("actions"):
                spec = point.load()
                if not isinstance(spec, ActionSpec):
                    raise ConfigurationError(
                        f"the entry point {point.name} ({point.value}) is not an ActionSpec"
                    )
                self.register(spec)
            self._complete = True
        return self._specs


ACTIONS = Actions()


def one_fact_each(
    entity: str, relation: str, items: Sequence[str], *, forwards: bool
) -> list[tuple[Triple, ...]]:
    """One triple per item: from the entity to the item, or from the item to the entity."""
    return [((entity, relation, item) if forwards else (item, relation, entity),) for item in items]
