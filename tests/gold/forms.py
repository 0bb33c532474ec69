"""Logical forms of Freebase queries without one, from what the query asks.

The tree is built by rules of its own, and not by the parsers of `kbqa`.
"""

from __future__ import annotations

import re

from tests.witnesses import Pattern, Triple, as_dumped

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
    if pattern.smaller:
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
        order = self._order(variable)
        while triple := next((t for t in self._left if variable in (t[0], t[2])), None):
            self._left.remove(triple)
            forward = triple[0] == variable
            relation = _id(triple[1]) if forward else f"(R {_id(triple[1])})"
            other = self._pattern.fixed.get(other := triple[2] if forward else triple[0], other)
            if other in self._bounds:
                sign, limit = self._bounds[other]
                parts.append(f"({_SIGNS[sign]} {relation} {_literal(limit)})")
            elif other in self._pattern.texts:
                parts.append(f"(JOIN {relation} {self._pattern.texts[other]}@en)")
            elif other[0] == "?":
                parts.append(f"(JOIN {relation} {self.node(other)})")
            elif other[0] == '"':
                parts.append(f"(JOIN {relation} {as_dumped(other).replace('^^<', '^^').removesuffix('>')})")
            elif relation == "type.object.type":
                parts.append(_id(other))
            else:
                parts.append(f"(JOIN {relation} {_id(other)})")
        if not parts:
            raise NoFormError("a variable is bound by nothing but values")
        form = parts[0]
        if variable != self._pattern.answer and form[0] != "(" and len(parts) == 1:
            form = f"(AND {form} {form})"  # JOIN takes no bare class
        for part in parts[1:]:
            form = f"(AND {part} {form})"
        form = self._timed(variable, form)
        return f"({order[0]} {form} {order[1]})" if order is not None else form

    def _order(self, variable: str) -> tuple[str, str] | None:
        """The operator that orders a variable, and the path to the value, of one relation or two."""
        if self._pattern.order is None:
            return None
        value, _, greatest = self._pattern.order
        operator = "ARGMAX" if greatest else "ARGMIN"
        for first in [triple for triple in self._left if triple[0] == variable]:
            if first[2] == value:
                self._left.remove(first)
                return operator, _id(first[1])
            beyond = [triple for triple in self._left if first[2] in (triple[0], triple[2])]
            if len(beyond) == 2 and (last := next((t for t in beyond if t[2] == value), None)) is not None:
                self._left.remove(first)
                self._left.remove(last)
                return operator, f"(JOIN {_id(first[1])} {_id(last[1])})"
        return None

    def _timed(self, variable: str, form: str) -> str:
        """The form, of what held at a time. In the queries, a fact without a date has always held."""
        bounds = [bound for bound in self._pattern.optional_bounds if bound[0][0] == variable]
        if not bounds:
            return form
        times = {limit.split('"')[1].removesuffix("-01-01").removesuffix("-12-31") for _, _, limit in bounds}
        if len(times) > 1:
            raise NoFormError("TC has one time")
        return f"(TC {form} {_id(bounds[0][0][1])} {times.pop()})"


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
