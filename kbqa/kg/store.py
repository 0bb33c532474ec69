"""The ports through which callers use knowledge graphs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol

from kbqa.kg.actions import Item, Mention
from kbqa.kg.sparql.guard import QueryResult, ResultFormat
from kbqa.kg.values import Value
from kbqa.logical_forms.algebra import Entity, Expression, Literal
from kbqa.logical_forms.compiler import INTERVALS

# Bounds of a path: nodes from which a hop continues, end nodes whose relations are read, and
# items for which the way from the start is reported.
MAX_FRONTIER = 20_000
MAX_SURROUNDED = 2_000
MAX_VIAS = 50
# Neighbours after which an endpoint is not asked for more.
MAX_ADJACENT = 200_000


class Page(NamedTuple):
    """One page of a look-up's answer: unique items in a stable order.

    Attributes:
        total: number of items on all pages.
        complete: False if a bound left items out, so that there may be more than `total`.
    """

    items: tuple[Item, ...]
    total: int
    complete: bool = True


class PathStep(NamedTuple):
    """One hop of a path along any of `relations`, given by id; `inverse` means from tail to head."""

    relations: tuple[str, ...]
    inverse: bool = False


@dataclass(frozen=True, slots=True)
class Walk:
    """The result of following a path.

    Attributes:
        ends: the nodes at its end.
        vias: for each of the first `MAX_VIAS` items of the page, the ids from a start to the node
            before the item, one per hop. Empty for a path without steps, and for an item that a
            query to a server cannot name.
        out, into: the relations with one of the ends as head, and as tail; of at most
            `MAX_SURROUNDED` ends.
        complete: False if a hop found more nodes than it may continue from, so that ends may be
            missing.
    """

    ends: Page
    vias: tuple[tuple[str, ...], ...] = ()
    out: tuple[Item, ...] = ()
    into: tuple[Item, ...] = ()
    complete: bool = True


class Attribute(NamedTuple):
    """A path of relations from the members of a set to numbers or dates.

    Attributes:
        datatype: full IRI of the most frequent datatype of the values.
        least, greatest: of the values that are comparable to one of that datatype.
        members: number of members with such a value.
    """

    path: tuple[Item, ...]
    datatype: str
    least: Value
    greatest: Value
    members: int


class Bond(NamedTuple):
    """A path from members of a set to one entity.

    Attributes:
        path: relations, each with whether it is followed from tail to head.
        members: number of members from which it leads there.
    """

    path: tuple[tuple[Item, bool], ...]
    members: int


@dataclass(frozen=True, slots=True)
class Survey:
    """What a set of nodes can be continued by; of at most `MAX_SURROUNDED` of them.

    Attributes:
        out, into: the relations with one of the nodes as head, and as tail, and a node at the other end
            to which a join may lead; without those that give names.
        classes: their classes, each with its number of nodes, most frequent first.
        attributes: paths of one relation, or of two through nodes that are parts of others: nodes without
            a name, and nodes to which one triple alone leads.
        bonds: topic → paths of one or two relations that lead there, shorter ones first.
    """

    out: tuple[Item, ...] = ()
    into: tuple[Item, ...] = ()
    classes: tuple[tuple[Item, int], ...] = ()
    attributes: tuple[Attribute, ...] = ()
    bonds: Mapping[str, tuple[Bond, ...]] = field(default_factory=dict)

    @property
    def intervals(self) -> tuple[Item, ...]:
        """The relations to the begin of an interval, such as `….from`."""
        begins = tuple(f".{begin}" for begin, _ in INTERVALS)
        return tuple(relation for relation in self.out if relation.id.endswith(begins))


class HubLimits(NamedTuple):
    """Bounds of two-hop patterns around a node with many facts.

    Attributes:
        relations: first relations that are followed in each direction; the ones most similar to the question.
        neighbours: nodes behind each of them at which second relations are read.
    """

    relations: int = 64
    neighbours: int = 50


@dataclass(frozen=True, slots=True)
class GraphInfo:
    """An entry in the list of graphs.

    Attributes:
        version: short hash of the content; for an attached graph, of its settings and the time of
            attaching.
        triples, entities: None if an endpoint was too slow to count them.
        lost_relations: relations that facts had when the graph was loaded, and that no fact has any more:
            policies that were trained before may still ask for them.
        query_deadline_s: seconds that a query of an action may run, if the graph has a time of its own.
    """

    name: str
    version: str
    triples: int | None
    entities: int | None
    lost_relations: Sequence[str] = ()
    query_deadline_s: float | None = None


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
        """Whether look-ups query a server: they then block, and may fail like `query`."""
        ...

    @property
    def hub_limits(self) -> HubLimits: ...

    @property
    def query_deadline_s(self) -> float | None:
        """Seconds that a query of an action may run on this graph; None for the caller's own deadline."""
        ...

    def resolve_entity(self, name: str) -> tuple[str, ...]:
        """Ids that `name` stands for: itself if it is an id, else all with that exact label."""
        ...

    def resolve_relation(self, name: str) -> tuple[str, ...]:
        """Like `resolve_entity`, for relations.

        Raises:
            AmbiguousNameError: it is the last part of several relations' ids.
        """
        ...

    def tail_relations(self, entities: Sequence[str], *, limit: int, offset: int = 0) -> Page:
        """Relations that have one of `entities` as head (subject)."""
        ...

    def head_relations(self, entities: Sequence[str], *, limit: int, offset: int = 0) -> Page:
        """Relations that have one of `entities` as tail (object)."""
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
        """Follow a path from a set of nodes; the set after a hop is everything that the hop leads to.

        From the second hop on, `entities` are left out of the set, unless nothing else is in it.

        Args:
            returning: keep `entities` in the sets.
        """
        ...

    def members(self, form: Expression, *, limit: int, offset: int = 0, returning: bool = False) -> Page:
        """The members of a logical form; none if a name in it stands for nothing in the graph.

        A name that several entities share stands for all of them together.

        Args:
            returning: keep the entities that the form names; otherwise no join leads to them
                (`Distinct.ENTITIES`).

        Raises:
            LogicalFormError: the members cannot be listed, see `kbqa.kg.forms.check_members`; or, at an
                endpoint, the form cannot be written in SPARQL.
        """
        ...

    def contains(self, form: Expression, node: Entity | Literal, *, returning: bool = False) -> bool:
        """Whether a node is a member of a logical form; of a name that is shared, any entity that has it.

        Args:
            returning: as for `members`.

        Raises:
            LogicalFormError: as `members`.
        """
        ...

    def survey(
        self, of: Expression | Sequence[str], topics: Sequence[str] = (), *, returning: bool = False
    ) -> Survey:
        """What the members of a form, or the nodes with some ids, can be continued by.

        Args:
            topics: ids or labels of the entities to which bonds from the members of a form are wanted.
            returning: as for `members`; it decides which members and bonds there are. Relations that lead
                only to entities that the form names are listed in any case.

        Raises: as `members`.
        """
        ...

    def relations(self) -> Sequence[Item]:
        """Every relation of the graph."""
        ...

    def holders(self, relation: str, *, inverse: bool = False, limit: int) -> Sequence[str]:
        """Ids of some nodes that have a relation, as head or if `inverse` as tail.

        They are spread evenly over all of them; at an endpoint, they are those that it finds first.
        """
        ...

    def written_as(self, relation: str) -> str | None:
        """How texts that a relation leads to are compared: full IRI of a datatype, if all can be read so.

        Judged by `MAX_SURROUNDED` tails at most. None if they have datatypes, or are no numbers or dates.
        """
        ...

    @property
    def type_relations(self) -> Sequence[str]:
        """Ids of the relations that lead from a node to its types; at an endpoint, some may not occur."""
        ...

    def types(self) -> Sequence[Item]:
        """Every type (class) that an entity of the graph has."""
        ...

    def adjacent(self, nodes: Sequence[str]) -> frozenset[str]:
        """All neighbours of `nodes`; the direction of edges is ignored.

        At an endpoint, if there are more than `MAX_ADJACENT`, at least so many of them.
        """
        ...

    def item(self, id_: str) -> Item | None:
        """An entity, literal or relation with its label."""
        ...

    def items(self, ids: Sequence[str]) -> Mapping[str, Item]:
        """`item` for many ids at once; ids that are not in the graph are left out."""
        ...

    def named(self, names: Sequence[str], *, limit: int) -> Mapping[str, tuple[Item, ...]]:
        """`resolve_entity` for many names at once, with labels; names that stand for nothing are left out.

        Args:
            limit: entities of one name at most.
        """
        ...

    def subgraph(self, graph: str) -> GraphStore | None:
        """The per-question subgraph with that id; None if there is none."""
        ...

    def entity_term(self, id_: str) -> str:
        """An entity or literal as a SPARQL term."""
        ...

    def relation_term(self, id_: str) -> str:
        """A relation as a SPARQL term."""
        ...

    def id_of(self, term: Mapping[str, str]) -> str:
        """The id of a term in SPARQL's JSON results.

        The term may be missing from the graph, since a query can compute terms.
        """
        ...

    def link(self, question: str) -> list[Mention]:
        """The entities that a question names, ordered by position."""
        ...

    def complete(self, text: str, *, limit: int) -> list[Item]:
        """The entities of which a name begins with a text, then those with its words further on in a name.

        The last word of the text may be incomplete. The label of an item is the name that was found. Empty
        for an endpoint, which has no index of names.
        """
        ...

    def query(self, text: str, *, result: ResultFormat | None = None, deadline_s: float = 3.0) -> QueryResult:
        """Execute a SPARQL 1.1 query, read-only.

        Args:
            text: SELECT, ASK, CONSTRUCT or DESCRIBE.
            result: format of the result; if None, JSON, or N-Triples for triples.
            deadline_s: seconds after which the query is killed.

        Raises:
            QuerySyntaxError: the query does not parse; the message says where.
            QueryRefusedError: the query may not be executed, see `check_query`.
            QueryTimeoutError: the query was killed at its deadline.
            QueryError: the query ran out of memory, or the store failed.
        """
        ...


class Graphs(Protocol):
    """The graphs that are loaded."""

    def get(self, name: str) -> GraphStore:
        """The newest version of a graph, opened.

        Raises:
            GraphNotFoundError: no graph of that name is loaded.
        """
        ...

    def list(self) -> list[GraphInfo]: ...
