"""Topic entities: the names of a graph that a question contains.

Names and questions are compared by tokens: words, and single punctuation marks;
spaces and underscores only separate. Case is ignored where the exact name is not
there. The longest name wins. A name that is also an everyday word, a number or a
single character is taken only where the question marks it as a name.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from kbqa.kg.actions import Item, Mention

# Words of questions that are names of films, bands and tags too.
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

_TOKEN = re.compile(r"(?:[^\W_]|[̀-ͯ])+|[^\w\s]")
_OPENING, _CLOSING = "[\"'“‘«(<", "]\"'”’»)>"


class _Token(NamedTuple):
    start: int
    end: int
    key: str


class EntityLinker:
    """Finds the names of entities in questions.

    Args:
        names: (label, entity), all labels of all entities. A label that several
            entities share yields a mention of each.
    """

    def __init__(self, names: Iterable[tuple[str, Item]]) -> None:
        self._entities: dict[str, list[tuple[str, Item]]] = {}
        lengths: dict[str, set[int]] = {}
        for label, entity in names:
            keys = [token.key for token in _tokens(label)]
            if keys:
                self._entities.setdefault(" ".join(keys), []).append((label, entity))
                lengths.setdefault(keys[0], set()).add(len(keys))
        # First token of a name → how many tokens names with it have, longest first.
        self._lengths = {first: tuple(sorted(found, reverse=True)) for first, found in lengths.items()}

    def link(self, question: str) -> list[Mention]:
        """The entities that a question names, in the order of their places; none overlap.

        Entities with the same name share a place. Offsets count characters. Where some
        names are plain to see, those that might be ordinary words or years are left out:
        "the director of Heat" is about Heat, though a film may have the tag "director".
        """
        tokens = _tokens(question)
        return self._scan(question, tokens, plain=True) or self._scan(question, tokens, plain=False)

    def _scan(self, question: str, tokens: list[_Token], *, plain: bool) -> list[Mention]:
        mentions: list[Mention] = []
        position = 0
        while position < len(tokens):
            length, named = self._longest_at(question, tokens, position, plain)
            mentions.extend(named)
            position += length
        return mentions

    def _longest_at(
        self, question: str, tokens: list[_Token], position: int, plain: bool
    ) -> tuple[int, list[Mention]]:
        """The longest name that starts at a token: how many tokens to go on by, and whom it names."""
        for length in self._lengths.get(tokens[position].key, ()):
            span = tokens[position : position + length]
            named = self._entities.get(" ".join(token.key for token in span))
            if named is None:
                continue
            start, end = span[0].start, span[-1].end
            exact = [entity for label, entity in named if label == question[start:end]]
            if _is_plain(question, span, position, bool(exact)) is not plain:
                continue
            entities = exact or [entity for _, entity in named]
            unique = {entity.id: Mention(entity.id, entity.label, start, end) for entity in entities}
            return length, list(unique.values())
        return 1, []


def _is_plain(question: str, span: list[_Token], position: int, exact: bool) -> bool | None:
    """Whether the words of a name stand there as a name: plainly, perhaps (False), or not (None)."""
    start, end = span[0].start, span[-1].end
    before, after = question[start - 1 : start], question[end : end + 1]
    if before and after and before in _OPENING and _OPENING.index(before) == _CLOSING.find(after):
        return True
    if all(token.key.isdecimal() for token in span):
        return False
    telling = [token.key for token in span if len(token.key) > 1 and token.key not in _EVERYDAY_WORDS]
    # A capital says nothing at the head of a sentence, nor in a question that is all capitals.
    capital = any(c.isupper() for c in question[start:end]) and not question.isupper()
    capital = exact and capital and (position > 0 or len(span) > 1)
    if capital or len(telling) > 1:
        return True
    # "her", "it", "m" are no names, unless several of them are written just as the name is.
    return False if telling or (exact and len(span) > 1) else None


def _tokens(text: str) -> list[_Token]:
    return [
        _Token(match.start(), match.end(), unicodedata.normalize("NFC", match.group()).casefold())
        for match in _TOKEN.finditer(text)
    ]
