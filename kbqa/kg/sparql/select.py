"""Splits a SELECT query by its tokens, so that the values of one of its variables can be queried."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from kbqa.errors import QuerySyntaxError
from kbqa.kg.sparql.guard import check_query
from kbqa.logical_forms.sparql_tokens import Token, tokenize


@dataclass(frozen=True, slots=True)
class ParsedSelect:
    """The parts of a SELECT query as text.

    Attributes:
        prologue: PREFIX and BASE declarations.
        body: from SELECT on.
        pattern: its WHERE group, including braces.
        projected: variables of its SELECT clause, without `?`; None for `*`.
        matched: variables that occur in the WHERE group, including subqueries.
    """

    prologue: str
    body: str
    pattern: str
    projected: frozenset[str] | None
    matched: frozenset[str]

    @classmethod
    def parse(cls, text: str) -> ParsedSelect:
        """Split a query.

        Raises:
            QuerySyntaxError: the query is not a SELECT, or its WHERE group is missing or does not end.
            QueryRefusedError: as `check_query`.
        """
        if check_query(text).form != "SELECT":
            raise QuerySyntaxError("a SELECT query is required")
        tokens = [token for token in tokenize(text) if token.kind != "space"]
        select = next(i for i, token in enumerate(tokens) if _is_select(token))
        opening = next((i for i, token in enumerate(tokens) if i > select and token.text == "{"), None)
        if opening is None:
            raise QuerySyntaxError("the query has no WHERE { … }")
        closing = _partner(tokens, opening)
        if closing is None:
            raise QuerySyntaxError("the query's WHERE { … } does not end")
        group = tokens[opening : closing + 1]
        start, end = tokens[opening].start, tokens[closing].start + 1
        return cls(
            prologue=text[: tokens[select].start],
            body=text[tokens[select].start :],
            pattern=text[start:end],
            projected=_projected(tokens[select + 1 : opening]),
            matched=frozenset(token.text[1:] for token in group if token.kind == "variable"),
        )

    def values_of(self, variable: str, limit: int) -> str:
        """A query for the distinct values of a variable.

        These are the values that this query returns if it selects the variable, else all values
        that its WHERE group matches.
        """
        if self.projected is None or variable in self.projected:
            inner = f"{{ {self.body}\n}}"
        else:
            inner = self.pattern
        return f"{self.prologue}SELECT DISTINCT ?{variable} WHERE {{ {inner} }} LIMIT {limit}"


def _is_select(token: Token) -> bool:
    # As `check_query` reads it: a parser may not insist on a space after the keyword.
    return token.kind == "word" and token.text.upper().startswith("SELECT")


def _partner(tokens: Sequence[Token], opening: int) -> int | None:
    depth = 0
    for i in range(opening, len(tokens)):
        depth += {"open": 1, "close": -1}.get(tokens[i].kind, 0)
        if depth == 0:
            return i
    return None


def _projected(clause: Sequence[Token]) -> frozenset[str] | None:
    """Variables of a SELECT clause: outside of brackets, and after AS; None for `*`."""
    found: set[str] = set()
    depth, previous = 0, ""
    for token in clause:
        depth += {"open": 1, "close": -1}.get(token.kind, 0)
        if token.kind == "variable" and (depth == 0 or previous.upper() == "AS"):
            found.add(token.text[1:])
        elif token.text == "*" and depth == 0:
            return None
        previous = token.text
    return frozenset(found)
