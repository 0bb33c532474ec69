"""Decomposes a gold query into the sub-queries that lead to it (ISP-KGR, section E.2).

Progressive: along a path from a topic entity, each step adds one relation. Compositional:
branches from several entities are followed separately first, then merged. An example with
topic entities `m.1` and `m.2` and relations a, b and c:

    m.1 -a-> ?y -b-> ?x <-c- m.2

    explore m.1    SELECT ?y  m.1 a ?y                       progressive
    explore ?y     SELECT ?x  m.1 a ?y . ?y b ?x             progressive
    explore m.2    SELECT ?x  m.2 c ?x                       progressive
    explore ?x     SELECT ?x  all three                      compositional

Triples that do not lead to an entity, such as the value that orders the answers, are added
once their variable has candidates. FILTER, VALUES and classes are added as soon as their
variables are bound. The last step is the gold query itself. COUNT, and an order that needs
no further triple, are separate steps (section F.8).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from enum import StrEnum

from kbqa.errors import LogicalFormError
from kbqa.logical_forms.graph_pattern import (
    Constraint,
    SelectQuery,
    Triple,
    is_entity,
    is_variable,
    parse_select,
    variables_of,
)

MAX_TRIPLES = 64

# Freebase's, RDF's and Wikidata's predicate from a member to its class, without namespace.
CLASS_PREDICATE = re.compile(r"a|.*[:/#](type\.object\.type|22-rdf-syntax-ns#type|P31)>?|rdf:type")


class Mode(StrEnum):
    PROGRESSIVE = "progressive"
    COMPOSITIONAL = "compositional"


@dataclass(frozen=True, slots=True)
class FormStep:
    """One turn of a demonstration: explore `node`, then send `query`.

    Attributes:
        node: the entity's IRI, or a variable that an earlier step selects; None if the query
            has no start.
    """

    mode: Mode
    node: str | None
    query: str


def decompose(sparql: str) -> tuple[FormStep, ...]:
    """The steps that lead to `sparql`; the last step is `sparql` itself.

    Raises:
        LogicalFormError: the text is not a SELECT query that can be decomposed.
    """
    core = parse_select(sparql)
    aggregate, ordered = core.aggregate, core.modifiers != ""
    while core.inner is not None:
        core = core.inner
        aggregate, ordered = aggregate or core.aggregate, ordered or core.modifiers != ""
    if len(core.triples) > MAX_TRIPLES:
        raise LogicalFormError(f"a query to be decomposed has at most {MAX_TRIPLES} triples")
    pattern = _Pattern(core)
    parts = pattern.parts()
    if not parts:
        return (FormStep(Mode.PROGRESSIVE, None, sparql),)
    *steps, last = (FormStep(part.mode, part.node, pattern.query(part)) for part in parts)
    if aggregate or (ordered and not parts[-1].adds_value):
        node = core.answer if core.answer in {part.selects for part in parts} else None
        return (*steps, last, FormStep(Mode.PROGRESSIVE, node, sparql))
    return (*steps, replace(last, query=sparql))


@dataclass(frozen=True, slots=True)
class _Part:
    """A step before its query is written.

    Attributes:
        selects: the variable that the query selects.
        adds_value: whether the last triple leads away from the entities.
    """

    mode: Mode
    node: str | None
    selects: str
    triples: tuple[Triple, ...]
    adds_value: bool = False


@dataclass(slots=True)
class _Growth:
    """The triples around a variable: steps that reach it from entities, or a tail that leads away."""

    parts: list[_Part] = field(default_factory=list)
    triples: tuple[Triple, ...] = ()
    tail: list[tuple[str, Triple]] = field(default_factory=list)  # (variable, triple that leads away from it)


class _Pattern:
    """The basic graph pattern of a query as a graph, walked from its answer."""

    def __init__(self, query: SelectQuery) -> None:
        self._query = query
        classes = [triple for triple in query.triples if CLASS_PREDICATE.fullmatch(triple.predicate)]
        links = [triple for triple in query.triples if triple not in classes]
        if not any(self._is_anchor(term) for triple in links for term in (triple.subject, triple.object)):
            # Without entities, the answer's class is the start.
            start = [triple for triple in classes if triple.subject == query.answer]
            classes = [triple for triple in classes if triple not in start]
            links = start + links
        self._links = links
        self._constraints = [
            *(Constraint(str(triple), triple.variables) for triple in classes),
            *query.constraints,
        ]
        self._unused = list(dict.fromkeys(links))
        self._reached: set[str] = set()

    def parts(self) -> list[_Part]:
        """All steps, the answer's connected component first."""
        growths = [self._grow(self._query.answer)]
        while self._unused:
            loose = self._unused[0]
            variable = min(loose.variables, default="")
            if not variable:
                self._unused.remove(loose)  # a triple of constants is no step
                continue
            growths.append(self._grow(variable))
        parts, selected = [], set()
        for part in self._joined(self._query.answer, growths):
            known = part.node is None or not is_variable(part.node) or part.node in selected
            parts.append(part if known else replace(part, node=None))
            selected.add(part.selects)
        return parts

    def query(self, part: _Part) -> str:
        """The part as a query, with all constraints whose variables it binds."""
        bound, linked = variables_of(part.triples), variables_of(self._links)
        elements = [str(triple) for triple in part.triples]
        for constraint in self._constraints:
            needed = constraint.variables & linked
            if needed and needed <= bound:
                elements.append(constraint.text)
        select = f"SELECT DISTINCT {part.selects} WHERE {{ {' '.join(elements)} }}"
        return f"{self._query.prologue} {select}".strip()

    def _is_anchor(self, term: str) -> bool:
        return is_entity(self._query.values.get(term, term))

    def _grow(self, root: str) -> _Growth:
        """All unused triples that are connected to `root`."""
        self._reached.add(root)
        branches, tail = [], []
        while link := next((link for link in self._unused if root in link.variables), None):
            self._unused.remove(link)
            other = link.object if link.subject == root else link.subject
            if self._is_anchor(other):
                node = self._query.iri(self._query.values.get(other, other))
                branches.append(_Growth([_Part(Mode.PROGRESSIVE, node, root, (link,))], (link,)))
            elif is_variable(other) and other not in self._reached and other not in self._query.values:
                beyond = self._grow(other)
                if beyond.parts:
                    triples = (*beyond.triples, link)
                    step = _Part(Mode.PROGRESSIVE, other, root, triples)
                    branches.append(_Growth([*beyond.parts, step], triples))
                else:
                    tail += [(root, link), *beyond.tail]
            else:
                tail.append((root, link))
        if not branches:
            return _Growth(tail=tail)
        parts = list(self._joined(root, [*branches, _Growth(tail=tail)]))
        return _Growth(parts, parts[-1].triples)

    def _joined(self, root: str, growths: list[_Growth]) -> Iterator[_Part]:
        """Yield each branch, then their merge, then their tails."""
        branches = [growth for growth in growths if growth.parts]
        for branch in branches:
            yield from branch.parts
        triples = tuple(dict.fromkeys(triple for branch in branches for triple in branch.triples))
        if len(branches) > 1:
            yield _Part(Mode.COMPOSITIONAL, root, root, triples)
        for node, link in (hanging for growth in growths for hanging in growth.tail):
            triples = (*triples, link)
            other = link.object if link.subject == node else link.subject
            selects = other if is_variable(other) and other not in self._query.values else node
            yield _Part(Mode.PROGRESSIVE, node, selects, triples, adds_value=True)
