"""The tokens of a question, and which of them it writes as names.

Words in quotation marks are names, and so are words with a capital that means something. A number, a single
character or an everyday word is no name by itself.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterator, Sequence
from typing import NamedTuple

# Common words of questions that are also names of films, bands and tags.
_EVERYDAY_WORDS = frozenset(
    re.findall(
        r"\w+",
        """
    a about above act acted acting actor actors actress after all also am an and any are around as
    at be because been before being between both but by can could day did do does done down during
    each ever few film films find first for from get give had has have he her here him his how i if
    in into is it its just kind last like list made make many may me might more most movie movies
    much must my name named no not now of off on once one only or other our out over own people
    person same she should so some star starred starring such tell than that the their them then
    there these they thing things this those through time title to too two under until up us use
    used was we were what when where which while who whom whose why will with would write writer
    writers written wrote year years you your
    """,
    )
)
# Words before a name that are no part of it.
_FORMS_OF_ADDRESS = frozenset(
    re.findall(r"\w+", "dame dr herr lady lord madam miss mr mrs ms mx prof professor sir")
)

_TOKEN = re.compile(r"(?:[^\W_]|[̀-ͯ])+|[^\w\s]")
_MAX_RUN = 6  # words of a run that is searched as part of a name
_OPENING, _CLOSING = "[\"'“‘«(<", "]\"'”’»)>"


class Token(NamedTuple):
    """A word or a punctuation mark.

    Attributes:
        start, end: half-open range of characters.
        key: its text without case, by which names and questions are compared.
    """

    start: int
    end: int
    key: str


def tokens_of(text: str) -> list[Token]:
    """The tokens of a text, in order; spaces and underscores only separate."""
    return [
        Token(match.start(), match.end(), unicodedata.normalize("NFC", match.group()).casefold())
        for match in _TOKEN.finditer(text)
    ]


def keys_of(text: str) -> list[str]:
    """The keys of a text's tokens, in order; takes half as long as to make the tokens."""
    if text.isascii():
        return _TOKEN.findall(text.lower())
    return [unicodedata.normalize("NFC", token).casefold() for token in _TOKEN.findall(text)]


def key_of(label: str) -> str:
    """The keys of a label's tokens, with single spaces; equal for labels that differ in case or spacing."""
    return " ".join(keys_of(label))


def is_plain(question: str, span: list[Token], position: int, exact: bool) -> bool | None:
    """Whether a span is used as a name: clearly (True), perhaps (False), or not at all (None)."""
    start, end = span[0].start, span[-1].end
    if is_quoted(question, span):
        return True
    if all(token.key.isdecimal() for token in span):
        return False
    telling = [token.key for token in span if len(token.key) > 1 and token.key not in _EVERYDAY_WORDS]
    # A capital means nothing at the start of the question, or if the question is all capitals.
    capital = any(c.isupper() for c in question[start:end]) and not question.isupper()
    capital = exact and capital and (position > 0 or len(span) > 1)
    if capital or len(telling) > 1:
        return True
    # A word such as "her", "it" or "m" is not a name, but several of them may be if they match exactly.
    return False if telling or (exact and len(span) > 1) else None


def is_quoted(question: str, span: Sequence[Token]) -> bool:
    """Whether a span stands in quotation marks or brackets."""
    start, end = span[0].start, span[-1].end
    before, after = question[start - 1 : start], question[end : end + 1]
    return bool(before and after) and before in _OPENING and _OPENING.index(before) == _CLOSING.find(after)


def is_telling(token: Token) -> bool:
    """Whether a word is distinctive enough to search for names by it."""
    return len(token.key) > 2 and not token.key.isdecimal() and token.key not in _EVERYDAY_WORDS


def is_capital(question: str, token: Token) -> bool:
    """Whether a token begins with a capital, in a question that is not all capitals."""
    return question[token.start : token.end][:1].isupper() and not question.isupper()


def runs(question: str, tokens: Sequence[Token]) -> Iterator[tuple[int, int]]:
    """The first and last token of each run of adjacent words that are written as names are."""
    first = 0
    for i in range(len(tokens)):
        if not _is_name_like(question, tokens[i]):
            first = i + 1
        elif i + 1 == len(tokens) or not (
            _are_adjacent(question, tokens[i], tokens[i + 1]) and _is_name_like(question, tokens[i + 1])
        ):
            yield first, i
            first = i + 1


def parts_of_run(first: int, last: int) -> Iterator[tuple[int, int]]:
    """The parts of a run, of two words at least, longer ones first."""
    for length in range(min(last - first + 1, _MAX_RUN), 1, -1):
        for begin in range(first, last - length + 2):
            yield begin, begin + length - 1


def is_alone(question: str, tokens: Sequence[Token], place: int, taken: Collection[int]) -> bool:
    """Whether no other word that is written as a name stands beside one, except at the question's start.

    "Angela Merkel" is not Angela Smith.
    """
    for i in (place - 1, place + 1):
        if 0 < i < len(tokens) and i not in taken and _is_name_like(question, tokens[i]):
            one, other = sorted((tokens[i], tokens[place]))
            if _are_adjacent(question, one, other):
                return False
    return True


def _are_adjacent(question: str, one: Token, other: Token) -> bool:
    return question[one.end : other.start].isspace()


def _is_name_like(question: str, token: Token) -> bool:
    """Whether a word is written as parts of names are: with a capital, or with digits and letters."""
    key = token.key
    if key in _EVERYDAY_WORDS or key in _FORMS_OF_ADDRESS:
        return False
    return is_capital(question, token) or (any(map(str.isdigit, key)) and any(map(str.isalpha, key)))
