"""Rewrites queries, as data sets and models write them, into SPARQL that all engines accept.

Most of these queries were written for Virtuoso. `standard` makes them SPARQL 1.1 for any
endpoint: it writes names with dots as IRIs, declares well-known prefixes, turns `OR` and
`AND` into operators, `xsd:datetime` into `xsd:dateTime` and `SAMETERM` of an IRI into `=`,
and gives `SELECT COUNT(?x)` a variable. For the embedded engine, `lenient` also makes dates
and numbers match in any spelling (`dates`), as in Virtuoso. Where a literal is matched,
VALUES lists its spellings; where dates are compared, ordered, cast or split, the query calls
our own functions (`functions`). Whatever the engine can do natively is left to it, since a
function in Python costs microseconds per row.

Both work on tokens, not on a parse tree: an invalid query passes through, and the
position of an error refers to the user's text. Not rewritten: joins of two variables
over dates with different spellings, `!=` between two variables, MIN and MAX.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterator
from itertools import accumulate, islice

from kbqa.kg.namespaces import Namespaces
from kbqa.kg.sparql.dates import DATE_TYPES, XSD, parse_date
from kbqa.kg.sparql.guard import CheckedQuery
from kbqa.kg.sparql.layout import Layout
from kbqa.kg.sparql.prefixes import PREFIXES
from kbqa.kg.values import INTEGER_TYPES, NUMBER_TYPES
from kbqa.logical_forms.sparql_tokens import position

FUNCTION_NAMESPACE = "urn:kbqa:f:"
# Prefix of the variables that a rewriting adds; `SELECT *` does not show them.
HIDDEN_VARIABLE = "__kbqa"

_OPERATORS = {"OR": "||", "AND": "&&"}
_AGGREGATES = ("COUNT", "SUM", "MIN", "MAX", "AVG", "SAMPLE")
_XSD_NAMES = {
    name.lower(): name
    for name in ("dateTime", "gYear", "gYearMonth", "integer", "decimal", "float", "double", "string")
}
# Many engines have casts to the types derived from xsd:integer; SPARQL 1.1 only casts to xsd:integer.
_INTEGER_NAMES = frozenset(iri.removeprefix(XSD).lower() for iri in INTEGER_TYPES)
_INTEGER = f"{XSD}integer"
_CASTS = {XSD + name: f"<{FUNCTION_NAMESPACE}{name}>" for name in ("dateTime", "date")}
_PARTS = ("YEAR", "MONTH", "DAY")
# Maximum rewritten literals and order keys; further ones stay as they are, to bound the text.
_MAX_LENIENT = 1_000
# Calls that may return a date; no other call does.
_CALLS_OF_ANYTHING = ("MIN", "MAX", "SAMPLE", "IF", "COALESCE", "NOW")
_IS_DATE = f"IN ({', '.join(f'<{iri}>' for iri in sorted(DATE_TYPES))})"

_ESCAPE = re.compile(r"\\(.)")
_NOT_IN_IRI = re.compile(r'[<>"{}|^`\\\x00-\x20]')
_NUMBER = re.compile(
    r"(?P<integer>[+-]?\d{0,18})(?:\.(?P<fraction>\d{0,18}))?(?P<exponent>[eE][+-]?\d{1,3})?"
)
_YEAR = re.compile(r"[12]\d{3}")
_PLACE = re.compile(r"(?<=error at )(\d+):(\d+)")


class Rewriting:
    """A query rewritten for an engine.

    Attributes:
        text: the query for the engine.
    """

    def __init__(self, layout: Layout) -> None:
        self.text = layout.text()
        self._layout = layout

    def in_source(self, message: str) -> str:
        """An engine's message, with positions (`error at 1:8`) converted to those in the user's text."""
        return _PLACE.sub(lambda found: self._place(int(found[1]), int(found[2])), message)

    def _place(self, line: int, column: int) -> str:
        offset = sum(len(text) + 1 for text in self.text.split("\n")[: line - 1]) + column - 1
        pieces = self._layout.pieces()
        ends = list(accumulate(len(text) for _, text in pieces))
        piece = bisect_right(ends, offset)
        if piece == len(pieces):
            return position(self._layout.source, len(self._layout.source))
        start, text = pieces[piece]
        inside = offset - (ends[piece] - len(text))
        # Rewritten text has the position of the text that it replaces.
        is_source = self._layout.source.startswith(text, start)
        return position(self._layout.source, start + (inside if is_source else 0))


def with_iris(query: CheckedQuery, namespaces: Namespaces) -> Rewriting | None:
    """The query with IRIs for a graph's short ids in angle brackets and for prefixes that only it declares.

    Returns:
        None if there are none. Prefixes that every query may use are left to the other rewritings.
    """
    layout = Layout(query.text, query.tokens)
    declared = _declarations(layout)
    changed = False
    for i, token in enumerate(layout.tokens):
        iri = token.text
        if token.kind == "iri" and layout.upper(i - 2) != "PREFIX" and layout.upper(i - 1) != "BASE":
            # Agents also write a prefixed name in angle brackets.
            iri = f"<{namespaces.iri(namespaces.iri(token.text))}>"
        elif token.kind == "name" and layout.upper(i - 1) != "PREFIX":
            prefix, _, local = token.text.partition(":")
            namespace = None if prefix in declared else namespaces.prefixes.get(prefix)
            if namespace is not None and namespace != PREFIXES.get(prefix):
                iri = "<" + namespace + _ESCAPE.sub(r"\1", local) + ">"
        if iri != token.text:
            layout.write(i, iri)
            changed = True
    return Rewriting(layout) if changed else None


def standard(query: CheckedQuery) -> Rewriting:
    """The query in SPARQL 1.1, for any endpoint."""
    return Rewriting(_standardised(query))


def lenient(query: CheckedQuery) -> Rewriting:
    """The query for an engine with the custom functions `functions.FUNCTIONS`."""
    layout = _standardised(query)
    _cast(layout)
    _compare(layout)
    _order(layout)
    _match_literals(layout)
    _widen_values(layout)
    return Rewriting(layout)


def _standardised(query: CheckedQuery) -> Layout:
    layout = Layout(query.text, query.tokens)
    declared = _declarations(layout)
    undeclared: dict[str, str] = {}
    for i, token in enumerate(layout.tokens):
        if token.kind == "name" and layout.upper(i - 1) != "PREFIX":
            prefix, _, local = token.text.partition(":")
            namespace = declared.get(prefix) or PREFIXES.get(prefix)
            if namespace is None:
                continue
            iri = layout.iris[i] = namespace + _ESCAPE.sub(r"\1", local)
            if namespace == XSD:
                _name_xsd(layout, i, prefix, local)
            if "." in local and not _NOT_IN_IRI.search(iri):
                layout.write(i, f"<{iri}>")
            elif prefix not in declared:
                undeclared[prefix] = namespace
        elif token.kind == "iri":
            iri = layout.iris[i] = token.text[1:-1]
            if layout.next_is(i, "(") and iri in INTEGER_TYPES:
                layout.write(i, f"<{_INTEGER}>")
        elif token.kind == "word":
            word = token.text.upper()
            if word in _OPERATORS and layout.bracket(i) == "(":
                layout.write(i, _OPERATORS[word])
            elif word in _AGGREGATES and layout.in_projection[i] and layout.next_is(i, "("):
                _name_aggregate(layout, i)
            elif word == "SAMETERM":
                _equate(layout, i)
    layout.head = "".join(f"PREFIX {prefix}: <{iri}> " for prefix, iri in undeclared.items())
    return layout


def _declarations(layout: Layout) -> dict[str, str]:
    return {
        layout.tokens[i + 1].text[:-1]: layout.tokens[i + 2].text[1:-1]
        for i in range(len(layout.tokens) - 2)
        if layout.upper(i) == "PREFIX"
        and layout.tokens[i + 1].kind == "name"
        and layout.tokens[i + 2].kind == "iri"
    }


def _name_xsd(layout: Layout, i: int, prefix: str, local: str) -> None:
    name = _XSD_NAMES.get(local.lower(), local)
    if layout.next_is(i, "(") and local.lower() in _INTEGER_NAMES:
        name = "integer"
    if name != local:
        layout.write(i, f"{prefix}:{name}")
        layout.iris[i] = XSD + name


def _name_aggregate(layout: Layout, i: int) -> None:
    """Complete `COUNT(?x)` and `COUNT(?x) AS ?n` in a SELECT clause, which lack the brackets around."""
    close = layout.partner[i + 1]
    if close is None:
        return
    if layout.upper(close + 1) == "AS":
        layout.wrap(i, min(close + 2, len(layout.tokens) - 1), "(", ")")
    else:
        layout.wrap(i, close, "(", f" AS ?callret{i})")


def _equate(layout: Layout, i: int) -> None:
    """Write `SAMETERM(?x, <iri>)` as the equation that it is; Virtuoso refuses some of them."""
    operands = [layout.tokens[at] for at in (i + 2, i + 4) if at < len(layout.tokens)]
    is_call = layout.next_is(i, "(") and layout.next_is(i + 2, ",") and layout.partner[i + 1] == i + 5
    if is_call and {token.kind for token in operands} in ({"variable", "name"}, {"variable", "iri"}):
        layout.write(i, "")
        layout.write(i + 3, " =")


def _cast(layout: Layout) -> None:
    for i, token in enumerate(layout.tokens):
        if not layout.next_is(i, "("):
            continue
        iri = layout.iris[i]
        if iri in _CASTS:
            layout.write(i, _CASTS[iri])
        elif token.kind == "word" and token.text.upper() in _PARTS:
            function = f"<{FUNCTION_NAMESPACE}{token.text.lower()}>"
            if layout.partner[i + 1] == i + 3 and layout.kind(i + 2) == "variable":
                call = f"({layout.tokens[i + 2].text})"
                layout.wrap(i, i + 3, "COALESCE(", f", {function}{call})")
            else:
                layout.write(i, function)


def _compare(layout: Layout) -> None:
    for left, sign, right in layout.comparisons():
        kinds = _kind(layout, *left), _kind(layout, *right)
        first, last = left[0], right[1]
        equality = sign in ("=", "!=")
        if not (_may_be_equal(sign, *kinds) if equality else _may_be_ordered(*kinds)):
            continue
        if not layout.grows(first, last):
            continue
        a, b = layout.copy(*left), layout.copy(*right)
        call = f'<{FUNCTION_NAMESPACE}compare>({a}, "{sign}", {b})'
        if equality:
            # Dates only. Our function comes first, since for the engine a day never equals a midnight.
            tested = a if kinds[0] == "variable" else b if kinds[1] == "variable" else None
            guarded = f"IF(DATATYPE({tested}) {_IS_DATE}, {call}, 1/0)" if tested else call
            layout.wrap(first, last, f"COALESCE({guarded}, ", ")")
        else:
            layout.wrap(first, last, "COALESCE(", f", {call})")


def _may_be_ordered(*kinds: str) -> bool:
    return "other" not in kinds or set(kinds) == {"difference", "other"}


def _may_be_equal(sign: str, *kinds: str) -> bool:
    if not {"variable", "date", "text"}.intersection(kinds) or {"other", "year"}.intersection(kinds):
        return False
    # Two variables that differ are two nodes in the queries of CWQ and GrailQA.
    return sign == "=" or set(kinds) != {"variable"}


def _kind(layout: Layout, first: int, last: int) -> str:
    """The kind of an operand: date, text (of a date), year, variable, difference, any, or other."""
    kind, text = layout.kind(first), layout.tokens[first].text
    if first == last:
        if kind == "variable":
            return "variable"
        if kind == "number":
            return "year" if _YEAR.fullmatch(text) else "other"
        if kind == "string":
            return "text" if parse_date(text.strip("\"'"), typed=False) else "other"
        return "other"
    if kind == "string":
        return "date" if layout.iris[last] in DATE_TYPES else "other"
    if any(layout.kind(i) == "open" and layout.tokens[i].text == "{" for i in range(first, last)):
        return "other"
    if layout.partner[first + 1] == last:
        if kind == "word":
            return "any" if text.upper() in _CALLS_OF_ANYTHING else "other"
        return "date" if layout.iris[first] in _CASTS else "other"
    minus = any(layout.tokens[i].text == "-" for i in range(first + 1, last))
    return "difference" if minus else "any"


def _order(layout: Layout) -> None:
    for i in islice(layout.order_keys(), _MAX_LENIENT):
        variable = layout.tokens[i].text
        layout.write(
            i,
            f"COALESCE(IF(DATATYPE({variable}) {_IS_DATE}, <{FUNCTION_NAMESPACE}instant>({variable}), 1/0),"
            f" {variable})",
        )


def _match_literals(layout: Layout) -> None:
    """Replace literals that are objects of triples by variables, with VALUES for their spellings."""
    for number, (first, last) in enumerate(islice(layout.objects(), _MAX_LENIENT)):
        group = layout.group(first)
        spellings = _spellings(layout, first, last)
        if spellings and group is not None:
            variable = f"?{HIDDEN_VARIABLE}{number}"
            literals = " ".join([layout.copy(first, last), *map(_literal, spellings)])
            layout.replace(first, last, variable)
            layout.append(group, f" VALUES {variable} {{ {literals} }} ")


def _widen_values(layout: Layout) -> None:
    """Add spellings to the literals in VALUES of one variable that is an object in the same group."""
    literals = list(islice(layout.joined_values(), _MAX_LENIENT))
    # Every value in VALUES yields a solution, so no value may be listed twice.
    given = {(layout.enclosing[first], _value(layout, first, last)) for first, last in literals}
    for first, last in literals:
        for spelling in _spellings(layout, first, last):
            if (layout.enclosing[first], spelling) not in given:
                given.add((layout.enclosing[first], spelling))
                layout.append(last, " " + _literal(spelling))


def _literal(value: tuple[str, str]) -> str:
    return f'"{value[0]}"^^<{value[1]}>'


def _value(layout: Layout, first: int, last: int) -> tuple[str, str]:
    """Lexical form and datatype; to the embedded engine, all types of integers are one."""
    text = layout.tokens[first].text
    if layout.kind(first) == "number":
        return text, XSD + ("double" if "e" in text.lower() else "decimal" if "." in text else "integer")
    datatype = layout.iris[last] or ""
    return text[1:-1], _INTEGER if datatype in INTEGER_TYPES else datatype


def _spellings(layout: Layout, first: int, last: int) -> list[tuple[str, str]]:
    """Other literals with the same meaning that the engine does not consider equal."""
    lexical, datatype = _value(layout, first, last)
    if datatype in NUMBER_TYPES:
        return [(text, iri) for text, iri in _number_spellings(lexical) if iri != datatype]
    date = parse_date(lexical) if datatype in DATE_TYPES else None
    if date is None:
        return []
    return [(text, iri) for text, iri in date.spellings() if iri != datatype or parse_date(text) != date]


def _number_spellings(lexical: str) -> Iterator[tuple[str, str]]:
    number = _NUMBER.fullmatch(lexical)
    if number is None:
        return
    yield from ((lexical, XSD + "float"), (lexical, XSD + "double"))
    if number["exponent"] is None:
        yield lexical, XSD + "decimal"
        if not (number["fraction"] or "").strip("0"):
            yield number["integer"] or "0", XSD + "integer"
