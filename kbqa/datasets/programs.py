"""Derives topics, path and operation of a question from its gold program.

An operation is one of

    path  intersection  superlative  comparison  count  time  boolean

If a program has several, the rarest counts: a count of an intersection is a count. A path
is given only if the program is a chain of relations from one entity to the answers, apart
from classes and a filter that excludes the topic.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kbqa.errors import LogicalFormError
from kbqa.logical_forms.algebra import (
    And,
    Ask,
    Class,
    Comparison,
    Count,
    Entity,
    Expression,
    Join,
    Literal,
    Relation,
    Superlative,
    Timed,
    entities,
)
from kbqa.logical_forms.decomposition import CLASS_PREDICATE
from kbqa.logical_forms.graph_pattern import SelectQuery, Triple, is_entity, is_variable, parse_select
from kbqa.logical_forms.s_expression import parse_s_expression, print_s_expression
from kbqa.trajectory import Hop

# Endpoints such as Wikidata's declare these prefixes themselves, so that queries omit them.
_PREFIXES = {
    "ns": "http://rdf.freebase.com/ns/",
    "wd": "http://www.wikidata.org/entity/",
    "wdt": "http://www.wikidata.org/prop/direct/",
}
_ASK = re.compile(r"\bASK\b(\s*WHERE\b)?", re.IGNORECASE)
_COUNT = re.compile(r"\bCOUNT\b", re.IGNORECASE)
_ORDERED = re.compile(r"\bORDER\s+BY\b.*\bLIMIT\b", re.IGNORECASE | re.DOTALL)
_COMPARED = re.compile(r"(?<![<>=!])[<>]=?(?=\s)")
_TIME = re.compile(r"\b(YEAR|MONTH|DAY)\s*\(|\^\^\s*\S*(date|gYear)", re.IGNORECASE)
# FILTERs that do not change the path: exclusion of the topic, and English labels.
_HARMLESS = re.compile(
    r"FILTER \( (\?\w+ != \S+( && \?\w+ != \S+)*|! ?isLiteral .*langMatches .*) \)", re.DOTALL
)
_PLAIN = re.compile(r"[^\s/|^*+!?()]+|<[^>]*>")


@dataclass(frozen=True, slots=True)
class Gold:
    """What a gold program reveals about its question.

    Attributes:
        topics: entities that the program names.
        path: from the only topic to the answers; empty if the program is not a chain.
    """

    topics: tuple[str, ...] = ()
    path: tuple[Hop, ...] = ()
    operation: str = ""


def of_form(form: str) -> Gold:
    """Read an S-expression; all fields are empty if it is invalid."""
    try:
        expression = parse_s_expression(form)
    except LogicalFormError:
        return Gold()
    parts = tuple(_parts(expression))
    if isinstance(expression, Ask):
        operation = "boolean"
    elif isinstance(expression, Count) or any(isinstance(part, Count) for part in parts):
        operation = "count"
    elif any(isinstance(part, Superlative) for part in parts):
        operation = "superlative"
    elif any(isinstance(part, Comparison) for part in parts):
        operation = "comparison"
    elif any(isinstance(part, Timed) for part in parts):
        operation = "time"
    elif any(isinstance(part, And) and len(_conjuncts(part)) > 1 for part in parts):
        operation = "intersection"
    else:
        operation = "path"
    return Gold(entities(expression), _chain(expression), operation)


def of_query(sparql: str) -> Gold:
    """Read a SPARQL query; all fields are empty if it cannot be parsed."""
    select, asks = _ASK.subn("SELECT * WHERE", sparql, count=1) if _is_ask(sparql) else (sparql, 0)
    try:
        core = parse_select(select)
    except LogicalFormError:
        return Gold()
    aggregate, modifiers = core.aggregate, core.modifiers
    while core.inner is not None:
        core = core.inner
        aggregate, modifiers = aggregate or core.aggregate, modifiers or core.modifiers
    pattern = _Pattern(core)
    filters = [constraint.text for constraint in core.constraints if not _HARMLESS.fullmatch(constraint.text)]
    if asks:
        operation = "boolean"
    elif aggregate:
        operation = "count" if _COUNT.search(sparql) else "superlative"
    elif _ORDERED.search(modifiers):
        operation = "superlative"
    elif any(map(_compares, filters)):
        operation = "comparison"
    elif any(map(_TIME.search, filters)):
        operation = "time"
    else:
        operation = "intersection" if pattern.anchors > 1 else "path"
    is_chain = operation == "path" and all(re.match("FILTER|VALUES", c.text) for c in core.constraints)
    path = pattern.chain() if is_chain and not [text for text in filters if text.startswith("FILTER")] else ()
    return Gold(pattern.topics, path, operation)


def of_program(form: str, sparql: str) -> Gold:
    """Read the form, or the query if the form cannot be read."""
    by_form = of_form(form)
    return by_form if by_form.operation else of_query(sparql)


def path_from(gold: Gold, topics: Sequence[str]) -> tuple[Hop, ...]:
    """The gold path, if it starts at the question's only topic entity; else empty."""
    return gold.path if tuple(topics) == gold.topics[:1] and len(gold.topics) == 1 else ()


def chain_form(topic: str, path: Sequence[Hop]) -> str:
    """The S-expression of a chain of relations from an entity.

    >>> chain_form("Heat", [Hop("directed_by"), Hop("directed_by", inverse=True)])
    '(JOIN directed_by (JOIN (R directed_by) Heat))'

    Raises:
        ValueError: the path is empty.
    """
    form: Entity | Join = Entity(topic)
    for hop in path:
        form = Join(Relation(hop.relation, inverse=not hop.inverse), form)
    if isinstance(form, Entity):
        raise ValueError("a path without relations has no form")
    return print_s_expression(form)


def short_id(iri: str) -> str:
    """Shorten the IRIs of Freebase (`m.0abc`) and Wikidata (`Q42`, `P31`); other IRIs are unchanged."""
    for namespace in _PREFIXES.values():
        if iri.startswith(namespace):
            return iri.removeprefix(namespace)
    return iri


def _parts(expression: Expression) -> Iterator[Expression]:
    yield expression
    match expression:
        case And(left, right):
            yield from _parts(left)
            yield from _parts(right)
        case Join(_, source) if not isinstance(source, Entity | Literal):
            yield from _parts(source)
        case Superlative() | Timed() | Count() | Ask():
            yield from _parts(expression.source)


def _conjuncts(expression: Expression) -> list[Expression]:
    """The operands of nested ANDs, without classes."""
    if isinstance(expression, And):
        return _conjuncts(expression.left) + _conjuncts(expression.right)
    return [] if isinstance(expression, Class) else [expression]


def _chain(expression: Expression) -> tuple[Hop, ...]:
    match _conjuncts(expression):
        case [Join(relation, Entity())]:
            return (Hop(relation.name, inverse=not relation.inverse),)
        case [Join(relation, source)] if not isinstance(source, Entity | Literal):
            before = _chain(source)
            return (*before, Hop(relation.name, inverse=not relation.inverse)) if before else ()
        case _:
            return ()


def _compares(constraint: str) -> bool:
    """Whether a FILTER compares values; one with EXISTS tests an interval that may be open."""
    is_open = not constraint.startswith("FILTER") or "EXISTS" in constraint
    return not is_open and _COMPARED.search(constraint) is not None


def _is_ask(sparql: str) -> bool:
    found = re.search(r"\b(ASK|SELECT)\b", sparql, re.IGNORECASE)
    return found is not None and found[0].upper() == "ASK"


def _is_class(triple: Triple) -> bool:
    return CLASS_PREDICATE.fullmatch(triple.predicate) is not None and not is_variable(triple.object)


class _Pattern:
    """The basic graph pattern of a query."""

    def __init__(self, query: SelectQuery) -> None:
        self._query = query
        triples = [self._bound(triple) for triple in query.triples]
        self._links = [triple for triple in triples if not _is_class(triple)]
        named = [term for triple in self._links or triples for term in (triple.subject, triple.object)]
        constants = [term for term in dict.fromkeys(named) if not is_variable(term)]
        self.anchors = len(constants)
        self.topics = tuple(self._id(term) for term in constants if is_entity(term))

    def chain(self) -> tuple[Hop, ...]:
        """The relations from the only topic to the answer; empty if the pattern has anything else."""
        ends = [term for triple in self._links for term in (triple.subject, triple.object)]
        here = next((term for term in ends if not is_variable(term)), "")
        if self.anchors != 1 or not is_entity(here or "?"):
            return ()
        hops, links = [], list(self._links)
        while links:
            leading = [link for link in links if here in (link.subject, link.object)]
            steps = leading[0].predicate.split(" / ") if len(leading) == 1 else []
            if not steps or not all(map(_PLAIN.fullmatch, steps)):
                return ()
            [link] = leading
            links.remove(link)
            inverse = link.object == here
            hops += [Hop(self._id(step), inverse) for step in (reversed(steps) if inverse else steps)]
            here = link.subject if inverse else link.object
        return tuple(hops) if here == self._query.answer else ()

    def _bound(self, triple: Triple) -> Triple:
        values = self._query.values
        subject, object_ = (values.get(term, term) for term in (triple.subject, triple.object))
        return Triple(subject, triple.predicate, object_)

    def _id(self, term: str) -> str:
        iri = self._query.iri(term)
        prefix, colon, local = iri.partition(":")
        known = _PREFIXES.get(prefix) if colon else None
        return short_id(iri if known is None else known + local)
