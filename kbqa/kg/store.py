"""The ports behind which a knowledge graph is kept, written from what callers need."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol

from kbqa.kg.actions import Item, Mention
from kbqa.kg.sparql.guard import QueryResult, ResultFormat

# What bounds a path: nodes that a hop goes on from, nodes whose relations are looked at, and
# items that are told how they were reached.
MAX_FRONTIER = 20_000
MAX_SURROUNDED = 2_000
MAX_VIAS = 50


class Page(NamedTuple):
    """Part of a look-up's answer: unique items in a stable order, and how many there are in all."""

    items: tuple[Item, ...]
    total: int


class PathStep(NamedTuple):
    """One hop of a path: along one of `relations`, by id; `inverse` from tail to head."""

    relations: tuple[str, ...]
    inverse: bool = False


@dataclass(frozen=True, slots=True)
class Walk:
    """Where a path leads.

    Attributes:
        ends: the nodes at its end.
        vias: for each of the first `MAX_VIAS` items of the page, the ids from a start to that which comes
            before the item, one a hop. Empty for the path without steps, and for an item that a
            server cannot be asked for again.
        out, into: the relations of which one of the ends is the head, the tail; of `MAX_SURROUNDED`
            of the ends, if there are more.
        complete: False if a hop found more than it could go on from, so that there may be other ends.
    """

    ends: Page
    vias: tuple[tuple[str, ...], ...] = ()
    out: tuple[Item, ...] = ()
    into: tuple[Item, ...] = ()
    complete: bool = True


@dataclass(frozen=True, slots=True)
class GraphInfo:
    """A graph as it is listed.

    Attributes:
        version: short hash of its content; of a graph at an endpoint, of when it was attached.
        triples, entities: None where an endpoint was too slow to count them.
    """

    name: str
    version: str
    triples: int | None
    entities: int | None


class GraphStore(Protocol):
    """One version of one graph.

    Look-ups take ids and answer in the order of labels, then ids. They take several
    ids because an ambiguous label means all of its entities; the answer is the union.
    An id that is not in the graph contributes nothing.
    """

    @property
    def version(self) -> str: ...

    @property
    def triples(self) -> int | None: ...

    @property
    def entities(self) -> int | None: ...

    @property
    def is_remote(self) -> bool:
        """Whether its look-ups wait for a server: they block, and they may fail as `query` may."""
        ...

    def resolve_entity(self, name: str) -> tuple[str, ...]:
        """Ids that `name` stands for: itself if it is an id, else all with that exact label."""
        ...

    def resolve_relation(self, name: str) -> tuple[str, ...]:
        """As `resolve_entity`, for relations."""
        ...

    def tail_relations(self, entities: Sequence[str], *, limit: int, offset: int = 0) -> Page:
        """Relations of which one of `entities` is the head (subject)."""
        ...

    def head_relations(self, entities: Sequence[str], *, limit: int, offset: int = 0) -> Page:
        """Relations of which one of `entities` is the tail (object)."""
        ...

    def tail_entities(
        self, entities: Sequence[str], relations: Sequence[str], *, limit: int, offset: int = 0
    ) -> Page:
        """Objects o of triples (e, r, o)."""
        ...

    def head_entities(
        self, entities: Sequence[str], relations: Sequence[str], *, limit: int, offset: int = 0
    ) -> Page:
        """Subjects s of triples (s, r, e)."""
        ...

    def follow(
        self,
        entities: Sequence[str],
        steps: Sequence[PathStep],
        *,
        limit: int,
        offset: int = 0,
        returning: bool = False,
    ) -> Walk:
        """Follow a path from a set of nodes, hop by hop; the set after a hop is all that it leads to.

        From the second hop on, `entities` are left out of the set, unless nothing else is in it.

        Args:
            returning: keep them.
        """
        ...

    def relations(self) -> Sequence[Item]:
        """Every relation of the graph."""
        ...

    def types(self) -> Sequence[Item]:
        """Every type (class) that an entity of the graph has."""
        ...

    def adjacent(self, nodes: Sequence[str]) -> frozenset[str]:
        """Heads and tails of all triples that one of `nodes` is part of; the edges have no direction."""
        ...

    def item(self, id_: str) -> Item | None:
        """An entity, literal or relation with its label."""
        ...

    def items(self, ids: Sequence[str]) -> Mapping[str, Item]:
        """`item` of many at once, by id; those that are not in the graph are left out."""
        ...

    def subgraph(self, graph: str) -> GraphStore | None:
        """The per-question subgraph of that id; None if there is none."""
        ...

    def entity_term(self, id_: str) -> str:
        """An entity or literal as SPARQL writes it."""
        ...

    def relation_term(self, id_: str) -> str:
        """A relation as SPARQL writes it."""
        ...

    def id_of(self, term: Mapping[str, str]) -> str:
        """The id of a term of a query's solution, as SPARQL's JSON results write it.

        It need not be in the graph: a query may compute its terms.
        """
        ...

    def link(self, question: str) -> list[Mention]:
        """The entities that a question names, in the order of their places."""
        ...

    def query(self, text: str, *, result: ResultFormat | None = None, deadline_s: float = 3.0) -> QueryResult:
        """Execute a SPARQL 1.1 query, read-only.

        Args:
            text: SELECT, ASK, CONSTRUCT or DESCRIBE.
            result: how to serialise; None for JSON or, of a graph, N-Triples.
            deadline_s: seconds after which it is killed.

        Raises:
            QuerySyntaxError: it does not parse; says where.
            QueryRefusedError: it asks for an update, SERVICE, LOAD or FROM, or nests too deep.
            QueryTimeoutError: it was killed at its deadline.
            QueryError: it ran out of memory, or the store failed.
        """
        ...


class Graphs(Protocol):
    """The graphs that are loaded."""

    def get(self, name: str) -> GraphStore:
        """The newest version of a graph, opened.

        Raises:
            GraphNotFoundError: none of that name is loaded.
        """
        ...

    def list(self) -> list[GraphInfo]: ...
