"""An action as one value: all that kg_server, MCP, clients, evidence and the documentation know of it.

    ACTIONS.register(
        ActionSpec(
            "count_facts",
            "Count the facts of which an entity is the head.",
            _count_facts,
            {"entity": ENTITY},
            item=None,
        )
    )

A module of `kbqa.kg.retrieval` registers what it implements, when that package is imported. An action of
another distribution is an entry point of the group `kbqa.actions` that leads to such a value: it is installed
where kg_server runs, and where a client is to read its items as more than JSON.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kbqa.errors import ConfigurationError
from kbqa.kg.actions import ActionResult, ErrorKind, Failure, Item, Triple
from kbqa.kg.arguments import PAGING, TEXT, Argument
from kbqa.kg.handlers import Surroundings, failure
from kbqa.parts import additions

# As KG-R1 calls them in its errors.
_FIELD_NAMES = {"entity": "entity_name", "relation": "relation_name"}

# What any action may answer, whatever it looks for: for its arguments or its subgraph, and where the graph
# cannot be asked.
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
    """What an action asks of a server; decides where kg_server executes it and what it keeps."""

    LOOK_UP = "look-up"
    """In memory, in microseconds: executed at once, and its answer kept as it was sent."""
    QUERY = "query"
    """One query, whose result the cache of queries keeps."""
    SEARCH = "search"
    """Several queries, rankings by an encoder, or walks: executed in turn, and its answer kept, unless its
    details say `timed_out`: there may be more at another time."""


@dataclass(frozen=True, slots=True)
class ActionSpec:
    """A retrieval action: the arguments that it takes, what answers it, and what is to be said of it.

    Checks come in this order: the action, its arguments, the subgraph, and then what the action
    itself finds. An argument that is there but of no use counts as missing.

    Attributes:
        name: by which agents and requests name it.
        description: for agents; the first sentence is for people, too.
        run: is given arguments that were checked; answers with a value, or raises what the
            store raised, a `QueryError` or `GraphUnavailableError`, for `store_failure`.
        required: argument → what it is; in the order in which errors name them.
        optional: likewise; `limit` and `offset` are always taken.
        accepts: the end of KG-R1's message for other arguments.
        item: type of its items, which reads them by `from_json`; None for JSON objects, `Row`s among them.
        answers: what its items and details hold, for people, as Markdown.
        cost: what it asks of a server.
        costly: arguments with which it is a search whatever it is without.
        errors: kinds of its failures beside `COMMON_ERRORS`.
        cites: (arguments, ids of the items, details) → for each item the triples that lead from the
            entity which was asked about to that item, in the order in which they are walked, each followed
            either way; none for an item of which the answer does not tell. Arguments and ids as they were
            sent and answered, so that a name in a triple may be a label. None for an action that finds no
            triples.
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
        """What is wrong with the arguments, before any graph is asked."""
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
            optional = self.optional.get(name) or PAGING.get(name)
            if optional is None:
                return self._wrong_count()
            kind = optional.kind
            if not kind.fits(value):
                return self._missing(f"{name} ({kind.says})" if kind.says else name)
        return None

    def cost_of(self, arguments: Mapping[str, Any]) -> Cost:
        """What it asks of a server with these arguments, checked or not."""
        for name in self.costly:
            if name in arguments:
                return Cost.SEARCH
        return self.cost

    def read_items(self, written: Sequence[Mapping[str, Any]]) -> tuple[Any, ...]:
        """Its items from their JSON."""
        return tuple(written) if self.item is None else tuple(map(self.item.from_json, written))

    def read_arguments(self, written: Mapping[str, str]) -> dict[str, Any]:
        """Its arguments as they were sent, from how a trajectory writes them: a text as it is, any other
        value as JSON.

        Raises:
            KeyError: it does not take one of them.
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
    """The actions that there are, by name, in the order in which they were registered.

    Those of other distributions come last; they are looked for when actions are first asked for.
    What reads them raises ConfigurationError if one of those is no `ActionSpec`, or has a name that is taken.
    """

    def __init__(self) -> None:
        self._specs: dict[str, ActionSpec] = {}
        self._complete = False

    def register(self, spec: ActionSpec) -> ActionSpec:
        """Add an action.

        Raises:
            ConfigurationError: there is another of that name.
        """
        if self._specs.setdefault(spec.name, spec) is not spec:
            raise ConfigurationError(f'there is an action "{spec.name}" already: give yours another name')
        return spec

    def unregister(self, name: str) -> None:
        """Take an action away again; raises KeyError if it is not there."""
        del self._specs[name]

    def find(self, name: Any) -> ActionSpec | None:
        """The action of that name; None if there is none, whatever a policy wrote for it."""
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
                    raise ConfigurationError(f"the entry point {point.name} ({point.value}) is no ActionSpec")
                self.register(spec)
            self._complete = True
        return self._specs


ACTIONS = Actions()


def one_fact_each(
    entity: str, relation: str, items: Sequence[str], *, forwards: bool
) -> list[tuple[Triple, ...]]:
    """What items cite that a relation leads to from an entity, or from which it leads there."""
    return [((entity, relation, item) if forwards else (item, relation, entity),) for item in items]
