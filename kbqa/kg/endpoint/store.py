"""A graph behind any SPARQL 1.1 endpoint: look-ups become queries, SPARQL is passed on.

Ids are as in a graph loaded from RDF: IRIs, and the N-Triples form of literals. The id of a
blank node is accepted as an argument only at Virtuoso (`nodeID://b10`). A name is accepted if
it is exact and in one of the endpoint's languages. A name that no resource has may still
match a literal with that text.

The content at an endpoint cannot be hashed, so `version` stands for the time at which the
graph was attached. After the data changes, the graph must be attached again; until then,
answers may come from caches.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence

from kbqa.errors import QueryError
from kbqa.kg.actions import Item, Mention
from kbqa.kg.endpoint import lookups
from kbqa.kg.endpoint.client import EndpointClient
from kbqa.kg.endpoint.forms import FormQueries
from kbqa.kg.endpoint.names import MAX_NODES, EndpointNames
from kbqa.kg.endpoint.paths import EndpointPath, PathHop
from kbqa.kg.endpoint.reader import EndpointReader, RecentAnswers, by_label
from kbqa.kg.endpoint.record import TYPE_PROPERTIES, Endpoint
from kbqa.kg.endpoint.results import (
    GRAPH,
    ROWS,
    id_of,
    read_result,
    readable,
)
from kbqa.kg.endpoint.schema import RELATIONS, TYPES, SchemaListing
from kbqa.kg.endpoint.syntax_check import SyntaxCheck
from kbqa.kg.sparql.dialect import standard
from kbqa.kg.sparql.guard import QueryResult, ResultFormat, check_query
from kbqa.kg.sparql.pool import QueryPool
from kbqa.kg.store import (
    MAX_ADJACENT,
    MAX_SURROUNDED,
    MAX_VIAS,
    GraphStore,
    HubLimits,
    Page,
    PathStep,
    Survey,
    Walk,
)
from kbqa.kg.values import written_as
from kbqa.logical_forms.algebra import Entity, Expression, Literal

_OUT, _IN = "out", "in"
_RECENT_BYTES = 64 * 2**20


class EndpointStore:
    """A `GraphStore` over one endpoint. Look-ups raise the same errors as `query`.

    Args:
        version: of the graph, for the keys of caches.
        triples, entities: counts from the time of attaching, if known.
        queries: checks syntax; if None, the store starts its own pool of one process.
        max_rows: maximum rows (or triples) of a result; a larger result is cut and flagged.
        max_bytes: maximum size of an answer, likewise.
    """

    def __init__(
        self,
        endpoint: Endpoint,
        *,
        version: str,
        triples: int | None = None,
        entities: int | None = None,
        queries: QueryPool | None = None,
        max_rows: int = 10_000,
        max_bytes: int = 16 * 2**20,
    ) -> None:
        self._endpoint, self._version = endpoint, version
        self._triples, self._entities = triples, entities
        self._max_rows, self._max_bytes = max_rows, max_bytes
        self._client = EndpointClient(endpoint)
        self._syntax = SyntaxCheck(queries) if endpoint.check_syntax else None
        self._recent = RecentAnswers(_RECENT_BYTES)
        self._reader = EndpointReader(endpoint, self._client, self._recent, max_bytes=max_bytes)
        self._naming = self._reader.naming
        self._names = EndpointNames(endpoint, self._reader)
        self._schema = SchemaListing(triples)

    def close(self) -> None:
        """Close the connections now instead of when the store is garbage-collected."""
        self._client.close()

    @property
    def version(self) -> str:
        return self._version

    @property
    def triples(self) -> int | None:
        return self._triples

    @property
    def entities(self) -> int | None:
        return self._entities

    @property
    def is_remote(self) -> bool:
        return True

    @property
    def hub_limits(self) -> HubLimits:
        return HubLimits(self._endpoint.hub_relations, self._endpoint.hub_neighbours)

    @property
    def query_deadline_s(self) -> float | None:
        return self._endpoint.query_deadline_s

    # Names

    def resolve_entity(self, name: str) -> tuple[str, ...]:
        return self._names.entities(name)

    def resolve_relation(self, name: str) -> tuple[str, ...]:
        return self._names.relations(name)

    def item(self, id_: str) -> Item | None:
        return self.items([id_]).get(id_)

    def items(self, ids: Sequence[str]) -> Mapping[str, Item]:
        return self._names.items(ids)

    def named(self, names: Sequence[str], *, limit: int) -> Mapping[str, tuple[Item, ...]]:
        return self._names.named(names, limit=limit)

    def complete(self, text: str, *, limit: int) -> list[Item]:
        return []

    def link(self, question: str) -> list[Mention]:
        return self._names.link(question)

    # One hop

    def tail_relations(self, entities: Sequence[str], *, limit: int, offset: int = 0) -> Page:
        return self._page(lookups.subjects(entities), "?node ?x ?other", limit, offset)

    def head_relations(self, entities: Sequence[str], *, limit: int, offset: int = 0) -> Page:
        return self._page(lookups.terms_of(entities), "?other ?x ?node", limit, offset)

    def tail_entities(
        self, entities: Sequence[str], relations: Sequence[str], *, limit: int, offset: int = 0
    ) -> Page:
        return self._page(
            lookups.subjects(entities), "?node ?relation ?x", limit, offset, lookups.subjects(relations)
        )

    def head_entities(
        self, entities: Sequence[str], relations: Sequence[str], *, limit: int, offset: int = 0
    ) -> Page:
        return self._page(
            lookups.terms_of(entities), "?x ?relation ?node", limit, offset, lookups.subjects(relations)
        )

    def adjacent(self, nodes: Sequence[str]) -> frozenset[str]:
        found: set[str] = set()
        for some in lookups.chunks(list(dict.fromkeys(nodes)), lookups.NODES_AT_ONCE):
            sides = []
            if subjects := lookups.subjects(some):
                sides.append(lookups.each("?node", subjects, "?node ?p ?x"))
            if terms := lookups.terms_of(some):
                sides.append(lookups.each("?node", terms, "?x ?p ?node"))
            if sides:
                pattern = " UNION ".join(f"{{ {side} }}" for side in sides)
                # Cut before the server sorts: behind a hub there may be millions.
                some_of_them = f"{{ SELECT DISTINCT ?x WHERE {{ {pattern} }} LIMIT {MAX_ADJACENT} }}"
                for row in self._reader.every(some_of_them):
                    found.add(id_of(row["x"]))
                    if len(found) >= MAX_ADJACENT:
                        return frozenset(found)
        return frozenset(found)

    # Paths

    def follow(
        self,
        entities: Sequence[str],
        steps: Sequence[PathStep],
        *,
        limit: int,
        offset: int = 0,
        returning: bool = False,
    ) -> Walk:
        """Query the whole path as one pattern, bounded only by the deadline.

        One query fetches the ends, one their relations, and one how the first ends were reached.
        """
        if not steps:
            found = sorted(self.items(entities).values(), key=by_label)
            ends, nodes = tuple(found[offset : offset + limit]), [item.id for item in found]
            sides = {
                way: lookups.each("?end", terms, triple)
                for way, terms, triple in (
                    (_OUT, lookups.subjects(nodes), "?end ?x ?other"),
                    (_IN, lookups.terms_of(nodes), "?other ?x ?end"),
                )
                if terms
            }
            return self._walk(Page(ends, len(found)), sides, ((),) * len(ends[:MAX_VIAS]))
        path = _path(entities, steps, returning=returning)
        if path is None:
            return Walk(Page((), 0))
        page = self._reader.page(path.pattern(), limit, offset)
        if not page.total:
            path = path.leading(
                lambda pattern: bool(self._reader.rows(f"SELECT * WHERE {{ {pattern} }} LIMIT 1"))
            )
            if path is None:
                return Walk(Page((), 0))
            page = self._reader.page(path.pattern(), limit, offset)
        among = f"{{ SELECT DISTINCT ?end WHERE {{ {path.pattern('?end')} }} LIMIT {MAX_SURROUNDED} }}"
        sides = {_OUT: f"{among} ?end ?x ?other", _IN: f"{among} ?other ?x ?end"}
        return self._walk(page, sides, self._vias(entities, path, page.items[:MAX_VIAS]))

    def _walk(self, ends: Page, sides: Mapping[str, str], vias: tuple[tuple[str, ...], ...]) -> Walk:
        rows = self._reader.rows(self._naming.around(sides, self._reader.max_rows)) if sides else []
        found: dict[str, list[Item]] = {_OUT: [], _IN: []}
        for row in rows:
            found[row["way"]["value"]].append(lookups.item_of(row))
        out, into = (tuple(sorted(found[way], key=by_label)) for way in (_OUT, _IN))
        return Walk(ends, vias, out, into)

    def _vias(
        self, starts: Sequence[str], path: EndpointPath, items: Sequence[Item]
    ) -> tuple[tuple[str, ...], ...]:
        """The nodes by which each item is reached; empty for an item that a query cannot name."""
        only = [id_ for id_ in starts if path.starts[0] in lookups.node_terms(id_)]
        if len(path.starts) == len(path.hops) == 1:
            return (tuple(only),) * len(items)
        ends = [(place, terms) for place, item in enumerate(items) if (terms := lookups.node_terms(item.id))]
        vias: list[tuple[str, ...]] = [()] * len(items)
        if ends:
            for row in self._reader.rows(path.one_each([terms for _, terms in ends])):
                first = [id_of(row["n0"])] if "n0" in row else only if len(path.starts) == 1 else []
                between = [id_of(row[f"n{number}"]) for number in range(1, len(path.hops))]
                vias[ends[int(row["end"]["value"])][0]] = (*first, *between) if first else ()
        return tuple(vias)

    # Logical forms

    def members(self, form: Expression, *, limit: int, offset: int = 0, returning: bool = False) -> Page:
        return self._reader.page(f"{{ {self._forms().members(form, returning=returning)} }}", limit, offset)

    def contains(self, form: Expression, node: Entity | Literal, *, returning: bool = False) -> bool:
        return bool(self._reader.rows(self._forms().holds(form, node, returning=returning)))

    def survey(
        self, of: Expression | Sequence[str], topics: Sequence[str] = (), *, returning: bool = False
    ) -> Survey:
        if isinstance(of, Sequence):
            return self._forms().survey_nodes(of)
        return self._forms().survey(of, topics, returning=returning)

    def _forms(self) -> FormQueries:
        return FormQueries(self, self._endpoint.labels, self._reader)

    # The schema

    def relations(self) -> Sequence[Item]:
        return self._schema.get(RELATIONS, self._every_id, self._known)

    @property
    def type_relations(self) -> Sequence[str]:
        return TYPE_PROPERTIES

    def types(self) -> Sequence[Item]:
        return self._schema.get(TYPES, self._every_id, self._known)

    def holders(self, relation: str, *, inverse: bool = False, limit: int) -> Sequence[str]:
        term = self.relation_term(relation)
        triple = f"?other {term} ?x" if inverse else f"?x {term} ?other"
        # To find distinct nodes first would take long where a relation has millions of triples.
        some = f"{{ SELECT ?x WHERE {{ {triple} }} LIMIT {limit} }}"
        return self._reader.ids(f"SELECT DISTINCT ?x WHERE {{ {some} }}")

    def written_as(self, relation: str) -> str | None:
        return written_as(self.holders(relation, inverse=True, limit=MAX_SURROUNDED))

    def subgraph(self, graph: str) -> GraphStore | None:
        return None

    # Terms and queries

    def entity_term(self, id_: str) -> str:
        terms = lookups.node_terms(id_)
        if not terms:
            raise QueryError(f'"{id_[:200]}" cannot be written in SPARQL')
        return terms[0]

    def relation_term(self, id_: str) -> str:
        return self.entity_term(id_)

    def id_of(self, term: Mapping[str, str]) -> str:
        return id_of(term)

    def query(self, text: str, *, result: ResultFormat | None = None, deadline_s: float = 3.0) -> QueryResult:
        started = time.monotonic()
        query = check_query(text)
        result = result or query.default_format
        key = (query.canonical, result)
        known = None if query.volatile else self._recent.get(key)
        if known is not None:
            assert isinstance(known, QueryResult)
            return known
        if self._syntax is not None:
            self._syntax.check(query, deadline_s=deadline_s)
        rewriting = standard(query)
        answer = self._client.ask(
            rewriting.text,
            GRAPH if query.returns_graph else ROWS,
            deadline_s=deadline_s - (time.monotonic() - started),
            max_bytes=self._max_bytes,
        )
        with readable(self._endpoint.url):
            found = read_result(answer, query.form, result, max_rows=self._max_rows)
        if not query.volatile:
            self._recent.put(key, found, len(found.body))
        return found

    def count_triples(self, *, deadline_s: float) -> int:
        return self._reader.number(lookups.COUNT_TRIPLES, deadline_s)

    def count_entities(self, *, deadline_s: float) -> int:
        """The number of heads and tails, without literals."""
        return self._reader.number(lookups.count(lookups.ENTITIES), deadline_s)

    def _page(
        self,
        terms: Sequence[str],
        triple: str,
        limit: int,
        offset: int,
        relations: Sequence[str] | None = None,
    ) -> Page:
        if not terms or relations == []:
            return Page((), 0)
        if len(terms) > 2 * MAX_NODES:
            raise QueryError(f"the name stands for more than {MAX_NODES} nodes: give the id of one")
        pattern = lookups.each("?node", terms, triple)
        if relations is not None:
            one = relations[0] if len(relations) == 1 else None
            values = f"VALUES ?relation {{ {' '.join(relations)} }} "
            pattern = pattern.replace("?relation", one) if one else values + f"{{ {pattern} }}"
        return self._reader.page(pattern, limit, offset)

    def _every_id(self, pattern: str) -> Iterator[str]:
        return (id_of(row["x"]) for row in self._reader.every(pattern, self._endpoint.schema_deadline_s))

    def _known(self, ids: Sequence[str]) -> Iterable[Item]:
        return self.items([id_ for id_ in ids if lookups.node_terms(id_)]).values()


def _path(entities: Sequence[str], steps: Sequence[PathStep], *, returning: bool) -> EndpointPath | None:
    """The path in SPARQL terms; None if it cannot have results, for lack of usable starts or relations."""
    starts = lookups.terms_of(entities) if steps[0].inverse else lookups.subjects(entities)
    hops = tuple(PathHop(lookups.subjects(step.relations), step.inverse) for step in steps)
    if not starts or not all(hop.relations for hop in hops):
        return None
    apart = range(0) if returning else range(2, len(hops) + 1)
    return EndpointPath(tuple(starts), hops, frozenset(apart))
