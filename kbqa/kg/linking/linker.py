"""Finds topic entities: the names of a graph that a question contains.

Names and questions are compared by tokens: words and single punctuation marks;
spaces and underscores only separate. Case is ignored if there is no exact match.
The longest name wins. A name that is also an everyday word, a number or a single
character counts only where the question marks it as a name. The rest of the question
is searched for misspelt names; if it has capitalised words, only those are searched.
"""

from __future__ import annotations

import re
import threading
import unicodedata
from collections.abc import Iterable
from typing import NamedTuple

from kbqa.kg.actions import Item, Mention
from kbqa.kg.linking.fuzzy_names import FuzzyNames, Resemblance

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

_TOKEN = re.compile(r"(?:[^\W_]|[̀-ͯ])+|[^\w\s]")
# Maximum candidates for one misspelt name, and how far their scores may be below the best.
_MAX_CANDIDATES = 5
_ALMOST = 0.05
_OPENING, _CLOSING = "[\"'“‘«(<", "]\"'”’»)>"


class _Token(NamedTuple):
    start: int
    end: int
    key: str


class EntityLinker:
    """Finds the names of entities in questions.

    Args:
        names: (label, entity) for all labels of all entities. A label shared by several
            entities yields one mention of each.
    """

    def __init__(self, names: Iterable[tuple[str, Item]]) -> None:
        self._entities: dict[str, list[tuple[str, Item]]] = {}
        lengths: dict[str, set[int]] = {}
        for label, entity in names:
            keys = [token.key for token in _tokens(label)]
            if keys:
                self._entities.setdefault(" ".join(keys), []).append((label, entity))
                lengths.setdefault(keys[0], set()).add(len(keys))
        # First token → the token counts of the names that begin with it, longest first.
        self._lengths = {first: tuple(sorted(found, reverse=True)) for first, found in lengths.items()}
        self._fuzzy: FuzzyNames | None = None
        self._fuzzy_lock = threading.Lock()

    def link(self, question: str) -> list[Mention]:
        """Find the entities that a question names, ordered by position, without overlaps.

        Entities with the same name share a position. Offsets count characters. If some
        names are clearly used as names, those that might be ordinary words or years are left
        out: "the director of Heat" is about Heat, even if a film has the tag "director".

        A misspelt name has a score below 1, and may yield several candidate entities.
        """
        tokens = _tokens(question)
        plain = self._scan(question, tokens, plain=True)
        taken = {i for i, token in enumerate(tokens) if any(m.start <= token.start < m.end for m in plain)}
        telling = [i for i, token in enumerate(tokens) if i not in taken and _is_telling(token)]
        capitals = [i for i in telling if _is_capital(question, tokens[i])]
        marked = plain + self._misspelt(tokens, capitals, taken)
        if marked:
            return sorted(marked, key=lambda mention: mention.start)
        # In a question without capitals, any word may be a name.
        anywhere = [] if any(_is_capital(question, token) for token in tokens[1:]) else telling
        misspelt = self._misspelt(tokens, anywhere, taken)
        # Several words that almost match a name are better evidence than a single word that might be one.
        several = [mention for mention in misspelt if len(question[mention.start : mention.end].split()) > 1]
        return several or self._scan(question, tokens, plain=False) or misspelt

    def _misspelt(self, tokens: list[_Token], anchors: list[int], taken: set[int]) -> list[Mention]:
        """Misspelt names among the tokens that are not taken; candidates of a span are sorted best first."""
        if not anchors:
            return []
        found = self._fuzzy_names().find([token.key for token in tokens], anchors)
        found = [f for f in found if taken.isdisjoint(range(f.first, f.last + 1))]
        mentions: list[Mention] = []
        for resemblance in sorted(found, key=lambda f: (f.first - f.last, -f.score, f.name)):
            places = set(range(resemblance.first, resemblance.last + 1))
            if taken.isdisjoint(places):
                taken = taken | places
                mentions += self._candidates(tokens, resemblance, found)
        return mentions

    def _candidates(self, tokens: list[_Token], best: Resemblance, found: list[Resemblance]) -> list[Mention]:
        """The entities whose names match the span of `best` almost as well as `best` does."""
        start, end = tokens[best.first].start, tokens[best.last].end
        alike = [f for f in found if (f.first, f.last) == (best.first, best.last)]
        unique: dict[str, Mention] = {}
        for resemblance in sorted(alike, key=lambda f: (-f.score, f.name)):
            if resemblance.score >= best.score - _ALMOST:
                for _, entity in self._entities[resemblance.name]:
                    mention = Mention(entity.id, entity.label, start, end, resemblance.score)
                    unique.setdefault(entity.id, mention)
        return list(unique.values())[:_MAX_CANDIDATES]

    def _fuzzy_names(self) -> FuzzyNames:
        with self._fuzzy_lock:
            # Built on first use, since many graphs never need it.
            if self._fuzzy is None:
                self._fuzzy = FuzzyNames(self._entities)
            return self._fuzzy

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
        """The longest name that starts at a token: its number of tokens (1 if none), and its mentions."""
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
    """Whether a span is used as a name: clearly (True), perhaps (False), or not at all (None)."""
    start, end = span[0].start, span[-1].end
    before, after = question[start - 1 : start], question[end : end + 1]
    if before and after and before in _OPENING and _OPENING.index(before) == _CLOSING.find(after):
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


def _is_telling(token: _Token) -> bool:
    """Whether a word is distinctive enough to search for names by it."""
    return len(token.key) > 2 and not token.key.isdecimal() and token.key not in _EVERYDAY_WORDS


def _is_capital(question: str, token: _Token) -> bool:
    return question[token.start : token.end][:1].isupper() and not question.isupper()


def _tokens(text: str) -> list[_Token]:
    return [
        _Token(match.start(), match.end(), unicodedata.normalize("NFC", match.group()).casefold())
        for match in _TOKEN.finditer(text)
    ]
