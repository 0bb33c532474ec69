"""Builds the SPARQL queries behind look-ups at an endpoint.

The queries work on all common servers, including Virtuoso with its limits. A single term is
written in place, because VALUES does not find Virtuoso's blank nodes. Names are cut before
sorting, because Virtuoso bounds the size of a row that it sorts. Rows are sorted in a subquery
and cut outside, because Virtuoso sorts at most 10,000 rows if only a part is returned.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

import pyoxigraph as ox

from kbqa.kg import languages
from kbqa.kg.actions import Item
from kbqa.kg.embedded.names import LABEL_RELATIONS
from kbqa.kg.embedded.vocabulary import CLASS_KINDS, PROPERTY_KINDS
from kbqa.kg.endpoint.record import TYPE_PROPERTIES, Endpoint, is_iri
from kbqa.kg.endpoint.results import BLANK_IRI, Binding, id_of

_XSD = "http://www.w3.org/2001/XMLSchema#"
# The types that a number or date may have if it is given as plain text.
_TYPED = (
    (re.compile(r"[+-]?\d+"), ("integer",)),
    (re.compile(r"-?\d{4}"), ("gYear",)),
    (re.compile(r"[+-]?\d*\.\d+"), ("decimal", "double")),
    (re.compile(r"-?\d{4}-\d\d"), ("gYearMonth",)),
    (re.compile(r"-?\d{4}-\d\d-\d\d"), ("date",)),
    (re.compile(r"-?\d{4}-\d\d-\d\dT\S+"), ("dateTime",)),
)
COUNT_TRIPLES = "SELECT (COUNT(*) AS ?n) WHERE { ?s ?p ?o }"
# Every head and tail except literals, as ?x.
ENTITIES = "{ ?x ?p ?o } UNION { ?s ?q ?x FILTER(!ISLITERAL(?x)) }"

NODES_AT_ONCE = 200
"""Nodes per query where a list is split into several queries."""

T = TypeVar("T")

_MAX_NAME_CHARS = 1000
_MAX_KEY_CHARS = 200
# Each name is prefixed with the rank of its language as a letter, so that MIN selects the best one; a name by
# a better property has a capital, which goes first.
_RANKS = "abcdefghijklmnopqrstuvwxyz"


def node_terms(id_: str) -> tuple[str, ...]:
    """The SPARQL terms of an entity or literal; empty if the id cannot be either.

    A plain literal yields two terms, for servers that still distinguish it from xsd:string (RDF 1.0).
    """
    if is_iri(id_):
        return (f"<{id_}>",)
    if not id_.startswith('"'):
        return ()
    try:
        [quad] = ox.parse(f"<urn:x> <urn:x> {id_} .", format=ox.RdfFormat.N_TRIPLES, lenient=True)
    except (SyntaxError, ValueError):
        return ()
    term = str(quad.object)
    return (term, f"{term}^^<{_XSD}string>") if term.endswith('"') else (term,)


def terms_of(ids: Iterable[str]) -> list[str]:
    """The SPARQL terms of ids."""
    return [term for id_ in dict.fromkeys(ids) for term in node_terms(id_)]


def subjects(ids: Iterable[str]) -> list[str]:
    """Terms of the ids that may be subjects or predicates, which excludes literals."""
    return [f"<{id_}>" for id_ in dict.fromkeys(ids) if is_iri(id_)]


def chunks(values: Sequence[T], size: int) -> Iterator[Sequence[T]]:
    """Parts of a list that is too long for one query."""
    return (values[start : start + size] for start in range(0, len(values), size))


def texts(name: str, tags: Sequence[str]) -> list[str]:
    """The literals that may represent a name."""
    plain = _plain(name)
    return [plain, f"{plain}^^<{_XSD}string>", *(f"{plain}@{tag}" for tag in tags)]


def _plain(text: str) -> str:
    # Text that UTF-8 cannot encode occurs in no graph.
    return str(ox.Literal(text.encode("utf-8", "replace").decode()))


def values_named(name: str, tags: Sequence[str]) -> list[str]:
    """The literals, including typed ones, whose text equals `name`."""
    plain = _plain(name)
    types = [type_ for shape, types in _TYPED if shape.fullmatch(name) for type_ in types]
    return [*texts(name, tags), *(f"{plain}^^<{_XSD}{type_}>" for type_ in types)]


def each(variable: str, terms: Sequence[str], pattern: str) -> str:
    """The union of a pattern with each of several terms in place of a variable."""
    return union(before + pattern.replace(variable, place) for before, place in places(variable, terms))


def places(variable: str, terms: Sequence[str]) -> list[tuple[str, str]]:
    """Ways to match any of several terms: (text before the pattern, replacement for the variable)."""
    placed = [term for term in terms if len(terms) == 1 or term.startswith(f"<{BLANK_IRI}")]
    rest = [term for term in terms if term not in placed]
    values = f"VALUES {variable} {{ {' '.join(rest)} }} "
    return [*(("", term) for term in placed), *([(values, variable)] if rest else ())]


def union(patterns: Iterable[str]) -> str:
    parts = list(patterns)
    return parts[0] if len(parts) == 1 else " UNION ".join(f"{{ {part} }}" for part in parts)


def occurs(terms: Iterable[str], *, as_relation: bool = False) -> str:
    """A pattern for the `terms` that are in the graph, as ?x."""
    tests = ["EXISTS { ?x ?p1 ?o1 }", "EXISTS { ?s2 ?p2 ?x }"]
    if as_relation:
        tests.append("EXISTS { ?s3 ?x ?o3 }")
    nodes: list[str] = []
    literals: list[str] = []
    for term in terms:
        (literals if term.startswith('"') else nodes).append(term)
    among = [f"VALUES ?x {{ {' '.join(nodes)} }} FILTER({' || '.join(tests)})"] if nodes else []
    # Virtuoso 7 finds none of several literals in one VALUES that EXISTS tests.
    alone = (f"VALUES ?x {{ {literal} }} FILTER(EXISTS {{ ?s2 ?p2 ?x }})" for literal in literals)
    return union([*among, *alone])


def type_pattern() -> str:
    """A pattern for all types, as ?x."""
    relations = (f"<{iri}>" for iri in TYPE_PROPERTIES)
    return f"VALUES ?type {{ {' '.join(relations)} }} ?entity ?type ?x"


class Naming:
    """Builds queries for items with their labels at one endpoint."""

    def __init__(self, endpoint: Endpoint) -> None:
        self._languages = languages.ranges(endpoint.languages)
        properties = [f"<{iri}>" for iri in endpoint.labels]
        named = "?x ?name ?text"
        self._names = (
            named.replace("?name", properties[0])
            if len(properties) == 1
            else f"VALUES ?name {{ {' '.join(properties)} }} {named}"
        )
        rank = _by_language(endpoint.languages)
        first = [f"<{iri}>" for iri in endpoint.labels if iri in LABEL_RELATIONS]
        if 0 < len(first) < len(endpoint.labels):
            rank = f"IF(?name IN ({', '.join(first)}), UCASE({rank}), {rank})"
        self._best = f"(MIN(CONCAT({rank}, SUBSTR(STR(?text), 1, {_MAX_NAME_CHARS}))) AS ?label)"

    def labelled(self, pattern: str) -> str:
        """A query for the distinct ?x of a pattern, with the best name as ?label (read by `label_of`)."""
        return (
            f"SELECT ?x {self._best} WHERE {{ {{ SELECT DISTINCT ?x WHERE {{ {pattern} }} }} "
            f"OPTIONAL {{ {self._names} FILTER(ISLITERAL(?text)) }} }} GROUP BY ?x"
        )

    def first(self, pattern: str, limit: int) -> str:
        """Like `labelled`, for at most `limit` arbitrary ?x."""
        return self.labelled(f"SELECT DISTINCT ?x WHERE {{ {pattern} }} LIMIT {limit}")

    def page(self, pattern: str, limit: int, offset: int, *, sorted_inside: bool) -> str:
        """Like `labelled`, for one page of the ?x in the order of labels."""
        key = f"COALESCE(IF(STRLEN(?label) > 1, SUBSTR(?label, 2, {_MAX_KEY_CHARS}), ?none), "
        key += f"SUBSTR(STR(?x), 1, {_MAX_KEY_CHARS}))"
        rows = f"SELECT ?x ?label WHERE {{ {{ {self.labelled(pattern)} }} }} ORDER BY ({key}) ?x"
        return _cut(rows, limit, offset, sorted_inside=sorted_inside)

    def around(self, sides: Mapping[str, str], limit: int) -> str:
        """Like `labelled`, for at most `limit` arbitrary ?x of several patterns, with the key as ?way."""
        pattern = union(f'{pattern} BIND("{way}" AS ?way)' for way, pattern in sides.items())
        found = f"SELECT DISTINCT ?x ?way WHERE {{ {pattern} }} LIMIT {limit}"
        return (
            f"SELECT ?x ?way {self._best} WHERE {{ {{ {found} }} "
            f"OPTIONAL {{ {self._names} FILTER(ISLITERAL(?text)) }} }} GROUP BY ?x ?way"
        )

    def bearers(self, name: str, limit: int) -> str:
        """A query for everything with that name, as ?x."""
        values = " ".join(texts(name, self._languages))
        return f"SELECT DISTINCT ?x WHERE {{ VALUES ?text {{ {values} }} {self._names} }} LIMIT {limit}"

    def bearers_among(self, names: Iterable[str], limit: int) -> str:
        """A query for everything with one of those names, as ?x, with the name as ?text."""
        values = " ".join(
            f"{name}{tag}"
            for name in map(_plain, names)
            for tag in ("", *(f"@{language}" for language in self._languages))
        )
        return f"SELECT DISTINCT ?x ?text WHERE {{ VALUES ?text {{ {values} }} {self._names} }} LIMIT {limit}"


def occurring(terms: Iterable[str]) -> str:
    """A query for the `terms` that are in the graph, as ?x."""
    return f"SELECT DISTINCT ?x WHERE {{ {occurs(terms)} }}"


def _by_language(preferred: Sequence[str]) -> str:
    """An expression for the rank of the language of ?text."""
    untagged = languages.untagged_rank(preferred)
    rank = f'IF(LANG(?text) = "", "{_RANKS[untagged]}", "{_RANKS[untagged + 1]}")'
    for language, place in reversed(list(languages.ranks(preferred))):
        same = f'IF(LCASE(LANG(?text)) = "{language}", "{_RANKS[place]}", "{_RANKS[place + 1]}")'
        rank = f'IF(LANGMATCHES(LANG(?text), "{language}"), {same}, {rank})'
    return rank


def parts_of_schema(terms: Iterable[str]) -> str:
    """A query for the parts of the schema among some terms, as ?x; one may have several kinds.

    ?kind is `property` for what is declared or used as one, `declared` for what is declared as a class, and
    `class` for what has instances.
    """
    nodes = f"VALUES ?x {{ {' '.join(terms)} }}"
    types = "|".join(f"<{id_}>" for id_ in TYPE_PROPERTIES)
    properties, classes = (
        f"?x {types} ?type FILTER(?type IN ({', '.join(f'<{id_}>' for id_ in kinds)}))"
        for kinds in (PROPERTY_KINDS, CLASS_KINDS)
    )
    tests = (
        ("property", properties),
        ("property", "FILTER(EXISTS { ?head ?x ?tail })"),
        ("declared", classes),
        ("class", f"FILTER(EXISTS {{ ?instance {types} ?x }})"),
    )
    branches = union(f'{nodes} {test} BIND("{kind}" AS ?kind)' for kind, test in tests)
    return f"SELECT DISTINCT ?x ?kind WHERE {{ {branches} }}"


def label_of(ranked: str) -> str | None:
    """A name without its rank; None if there is no name, for which Virtuoso returns the rank alone."""
    return ranked[1:] or None


def item_of(row: Binding) -> Item:
    """The ?x of a row, with its name in ?label."""
    term, id_ = row["x"], id_of(row["x"])
    label = label_of(row["label"]["value"]) if "label" in row else None
    return Item(id_, term["value"] if term["type"] == "literal" else label or id_)


def count(pattern: str) -> str:
    return f"SELECT (COUNT(DISTINCT ?x) AS ?n) WHERE {{ {pattern} }}"


def distinct(pattern: str, limit: int, offset: int, *, sorted_inside: bool) -> str:
    """A query for one page of the ?x in the order of their terms."""
    rows = f"SELECT DISTINCT ?x WHERE {{ {pattern} }} ORDER BY ?x"
    return _cut(rows, limit, offset, sorted_inside=sorted_inside)


def _cut(rows: str, limit: int, offset: int, *, sorted_inside: bool) -> str:
    window = f"LIMIT {limit} OFFSET {offset}"
    # By the standard, a subquery has no order. Virtuoso keeps its order, and refuses the other form.
    return f"SELECT * WHERE {{ {{ {rows} }} }} {window}" if sorted_inside else f"{rows} {window}"
