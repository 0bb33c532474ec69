"""The tokens of a query with their structure, and the text that replaces them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbqa.logical_forms.sparql_tokens import Token, TokenKind

_SIGNS = ("<", "<=", ">", ">=", "=", "!=")
# Words that end an operand of a comparison. IN does not compare two operands.
_LIMITS = ("OR", "AND", "AS", "DISTINCT", "SEPARATOR", "IN", "NOT")
_Range = tuple[int, int]  # the first and the last token


class Layout:
    """The tokens of a query; spaces and comments belong to the token before them.

    Lists have one entry per token; other tokens are given by index.

    Attributes:
        source: the query as written.
        tokens: its tokens without the spaces.
        head: text to be written before the first token.
        partner: for a bracket, the matching one; None for other tokens and unmatched brackets.
        enclosing: the innermost opening bracket around a token, or None.
        in_projection: whether a token is in a SELECT clause, outside of that clause's brackets.
        iris: the IRI of a prefixed name or IRI, or None; names with unknown prefixes have none.
    """

    def __init__(self, source: str, tokens: Sequence[Token]) -> None:
        self.source = source
        self.head = ""
        self.tokens: list[Token] = []
        self._gaps: list[str] = []
        self._lead = ""
        for token in tokens:
            if token.kind != "space":
                self.tokens.append(token)
                self._gaps.append("")
            elif self._gaps:
                self._gaps[-1] = token.text
            else:
                self._lead = token.text
        count = len(self.tokens)
        self._before, self._after = [""] * count, [""] * count
        self._own = [token.text for token in self.tokens]
        self._copied = [False] * count
        self.iris: list[str | None] = [None] * count
        self.partner: list[int | None] = [None] * count
        self.enclosing: list[int | None] = [None] * count
        self.in_projection = [False] * count
        self._place()

    def _place(self) -> None:
        stack: list[int] = []
        projecting: list[int | None] = []  # brackets around the open SELECT clauses
        for i, token in enumerate(self.tokens):
            if token.kind == "close" and stack:
                opening = stack.pop()
                self.partner[i], self.partner[opening] = opening, i
            around = stack[-1] if stack else None
            self.enclosing[i] = around
            word = self.upper(i)
            if word == "SELECT":
                projecting.append(around)
            elif projecting and projecting[-1] == around and (word == "WHERE" or token.text == "{"):
                projecting.pop()
            self.in_projection[i] = bool(projecting) and projecting[-1] == around
            if token.kind == "open":
                stack.append(i)

    # Reading

    def kind(self, i: int) -> TokenKind | None:
        return self.tokens[i].kind if 0 <= i < len(self.tokens) else None

    def upper(self, i: int) -> str:
        """A word in upper case; empty for other tokens."""
        return self.tokens[i].text.upper() if self.kind(i) == "word" else ""

    def next_is(self, i: int, text: str) -> bool:
        return i + 1 < len(self.tokens) and self.tokens[i + 1].text == text

    def bracket(self, i: int) -> str:
        """The innermost bracket around a token."""
        opening = self.enclosing[i]
        return "" if opening is None else self.tokens[opening].text

    def group(self, i: int) -> int | None:
        """The brace of the graph pattern around a token; None outside, and in CONSTRUCT templates."""
        opening = self.enclosing[i]
        while opening is not None and self.tokens[opening].text != "{":
            opening = self.enclosing[opening]
        if opening is None or "CONSTRUCT" in (self.upper(opening - 1), self.upper(opening - 2)):
            return None
        return opening

    def comparisons(self) -> Iterator[tuple[_Range, str, _Range]]:
        """Comparisons of two operands in expressions, inner ones first."""
        found: list[tuple[int, tuple[_Range, str, _Range]]] = []
        for first, last in self._signs():
            left, right = self._left_operand(first - 1), self._right_operand(last + 1)
            if left is not None and right is not None:
                sign = "".join(token.text for token in self.tokens[first : last + 1])
                found.append((right[1] - left[0], (left, sign, right)))
        return (comparison for _, comparison in sorted(found))

    def _signs(self) -> Iterator[_Range]:
        i = 0
        while i < len(self.tokens):
            last = i
            while self.kind(last) == "other" and self.tokens[last].text in "<>=!" and self._adjoins(last):
                last += 1
            if self.kind(last) != "other" or self.tokens[last].text not in "<>=!":
                last -= 1
            text = "".join(token.text for token in self.tokens[i : last + 1])
            if text in _SIGNS and self.bracket(i) == "(":
                yield i, last
            i = max(i, last) + 1

    def _adjoins(self, i: int) -> bool:
        return i + 1 < len(self.tokens) and not self._gaps[i] and self.kind(i + 1) == "other"

    def _left_operand(self, i: int) -> _Range | None:
        last = i
        while i >= 0 and not self._limits(i, "open"):
            opening = self.partner[i] if self.kind(i) == "close" else i
            if opening is None:
                return None
            i = opening - 1
        return None if i == last or self._spoils(i) else (i + 1, last)

    def _right_operand(self, i: int) -> _Range | None:
        first = i
        while i < len(self.tokens) and not self._limits(i, "close"):
            close = self.partner[i] if self.kind(i) == "open" else i
            if close is None:
                return None
            i = close + 1
        return None if i == first or self._spoils(i) else (first, i - 1)

    def _limits(self, i: int, bracket: TokenKind) -> bool:
        text = self.tokens[i].text
        return self.kind(i) == bracket or text in ",;&|<>=" or self.upper(i) in _LIMITS

    def _spoils(self, i: int) -> bool:
        at = self.tokens[i].text if 0 <= i < len(self.tokens) else ""
        return at in ("<", ">", "=") or self.upper(i) in ("IN", "NOT", "SEPARATOR")

    def order_keys(self) -> Iterator[int]:
        """The variables by which results are ordered."""
        for i in range(len(self.tokens)):
            if self.upper(i) != "ORDER" or self.upper(i + 1) != "BY":
                continue
            at = i + 2
            while at < len(self.tokens):
                if self.kind(at) == "variable":
                    yield at
                elif self.next_is(at, "("):
                    at += 1
                elif self.tokens[at].text != "(":
                    break
                close = self.partner[at]
                if close is not None:
                    alone = close == at + 2 and self.kind(at + 1) == "variable"
                    if alone and self.upper(at - 1) in ("ASC", "DESC", "BY"):
                        yield at + 1
                    at = close
                at += 1

    def objects(self) -> Iterator[_Range]:
        """Typed literals and numbers that are objects of triples, without the data of VALUES."""
        data = {i for first, last in self._values() for i in range(first, last)}
        for first, last in self._literals():
            if first not in data and self._is_object(first):
                yield first, last

    def joined_values(self) -> Iterator[_Range]:
        """Typed literals and numbers in VALUES of a variable that is an object in the same group."""
        objects = {
            (self.enclosing[i], token.text[1:])
            for i, token in enumerate(self.tokens)
            if token.kind == "variable" and self._is_object(i)
        }
        blocks = {
            opening
            for opening, _ in self._values()
            if (self.enclosing[opening], self.tokens[opening - 1].text[1:]) in objects
        }
        for first, last in self._literals():
            if self.enclosing[first] in blocks:
                yield first, last

    def _values(self) -> Iterator[_Range]:
        for i in range(len(self.tokens)):
            if self.upper(i) != "VALUES":
                continue
            header = self.partner[i + 1] if self.kind(i + 1) == "open" else i + 1
            if header is None or not self.next_is(header, "{"):
                continue
            if (close := self.partner[header + 1]) is not None:
                yield header + 1, close

    def _literals(self) -> Iterator[_Range]:
        for i in range(len(self.tokens)):
            if self.bracket(i) not in ("{", "["):
                continue
            if self.kind(i) == "number" and self.tokens[i - 1].text not in "+-":
                yield i, i
            elif self.kind(i) == "string" and self.next_is(i, "^") and self.kind(i + 3) in ("name", "iri"):
                yield i, i + 3

    def _is_object(self, i: int) -> bool:
        before = self.tokens[i - 1] if i else None
        return (
            before is not None
            and (before.kind in ("variable", "name", "iri") or before.text in ("a", ",", ")", "*", "+", "?"))
            and not self.in_projection[i]
        )

    # Writing

    def grows(self, first: int, last: int) -> bool:
        """Whether the tokens may be copied: only once each, so that nesting cannot explode the text."""
        if any(self._copied[first : last + 1]):
            return False
        self._copied[first : last + 1] = [True] * (last + 1 - first)
        return True

    def copy(self, first: int, last: int) -> str:
        """The current text of a range of tokens, on one line."""
        texts = []
        for i in range(first, last + 1):
            texts += [
                self._before[i],
                self._own[i],
                self._after[i],
                " " if self._gaps[i] and i < last else "",
            ]
        return "".join(texts)

    def write(self, i: int, text: str) -> None:
        self._own[i] = text

    def replace(self, first: int, last: int, text: str) -> None:
        """Replace a range of tokens by `text`; nothing may have been written around them."""
        self._own[first : last + 1] = [text] + [""] * (last - first)

    def wrap(self, first: int, last: int, before: str, after: str) -> None:
        self._before[first] = before + self._before[first]
        self._after[last] += after

    def append(self, i: int, text: str) -> None:
        self._after[i] += text

    def pieces(self) -> list[tuple[int, str]]:
        """The written text in pieces: (offset in the source that the piece stands for, text)."""
        pieces = [(0, self.head), (0, self._lead)]
        for i, token in enumerate(self.tokens):
            start, end = token.start, token.start + len(token.text)
            pieces += [
                (start, self._before[i]),
                (start, self._own[i]),
                (end, self._after[i]),
                (end, self._gaps[i]),
            ]
        return [(start, text) for start, text in pieces if text]

    def text(self) -> str:
        return "".join(text for _, text in self.pieces())
