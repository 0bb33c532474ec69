"""Logical forms of Freebase queries without one, from what the query asks.

The tree is built by rules of its own, and not by the parsers of `kbqa`.
"""

from __future__ import annotations

import re

from tests.witnesses import Pattern, Triple

_SIGNS = {"<": "lt", "<=": "le", ">": "gt", ">=": "ge"}
_XSD = "http://www.w3.org/2001/XMLSchema#"


class NoFormError(Exception):
    """S-expressions have no operator for the query."""


def form_of(pattern: Pattern | None) -> str:
    """The S-expression of a pattern whose triples are a tree.

    Raises:
        NoFormError: it has none.
    """
    if pattern is None:
        raise NoFormError("the query is more than triples")
    if pattern.smaller or pattern.texts or pattern.optional_bounds:
        raise NoFormError("S-expressions compare a value with a constant")
    form = _Tree(pattern).node(pattern.answer)
    return f"(COUNT {form})" if pattern.counts else form


class _Tree:
    def __init__(self, pattern: Pattern) -> None:
        self._pattern = pattern
        self._left: list[Triple] = list(pattern.triples)
        self._bounds = {variable: (sign, limit) for variable, sign, limit in pattern.bounds}

    def node(self, variable: str) -> str:
        parts: list[str] = []
        ordered: list[str] = []
        while triple := next((t for t in self._left if variable in (t[0], t[2])), None):
            self._left.remove(triple)
            forward = triple[0] == variable
            relation = _id(triple[1]) if forward else f"(R {_id(triple[1])})"
            other = self._pattern.fixed.get(other := triple[2] if forward else triple[0], other)
            if self._pattern.order is not None and other == self._pattern.order[0]:
                ordered.append(relation)
            elif other in self._bounds:
                sign, limit = self._bounds[other]
                parts.append(f"({_SIGNS[sign]} {relation} {_literal(limit)})")
            elif other[0] == "?":
                parts.append(f"(JOIN {relation} {self.node(other)})")
            elif relation == "type.object.type":
                parts.append(_id(other))
            else:
                parts.append(f"(JOIN {relation} {_id(other)})")
        if not parts:
            raise NoFormError("a variable is bound by nothing but values")
        form = parts[0]
        for part in parts[1:]:
            form = f"(AND {part} {form})"
        for relation in ordered:
            assert self._pattern.order is not None
            form = f"({'ARGMAX' if self._pattern.order[2] else 'ARGMIN'} {form} {relation})"
        return form


def _id(term: str) -> str:
    if term[0] in "\"'<":
        raise NoFormError("a value in place of an entity")
    prefix, _, local = term.partition(":")
    return term if prefix in ("p", "ps", "pq", "rdfs") else local


def _literal(limit: str) -> str:
    found = re.fullmatch(r'"(.*)"\^\^(?:xsd:|<' + _XSD + r")(\w+)>?", limit)
    if found is None:
        return f"{limit}^^{_XSD}integer"
    return f"{found[1]}^^{_XSD}{found[2]}"
