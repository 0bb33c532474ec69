"""Finds topic entities: the names of a graph that a question contains.

Names and questions are compared by tokens: words and single punctuation marks;
spaces and underscores only separate. Case is ignored if there is no exact match, and so
is whether the last word is singular or plural. The longest name wins. A name that is also
an everyday word, a number or a single character counts only where the question marks it as
a name. The rest of the question is searched for misspelt names and for parts of names
("Ms. Brant"); if it has capitalised words, only those are searched.

What a name stands for decides whether it is a topic:

    entity    always
    class     an entity of which others are instances, such as a piano: where no other entity has the
              name and the question writes it as a name, or names nothing else
    schema    what only serves to describe entities, such as the class Department or the relation price:
              never; nothing else is searched where the question says its name
    value     a text that is no name of an entity, such as the country of an address: where the question
              writes it as a name
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Iterable, MutableMapping, Sequence
from copy import copy
from typing import NamedTuple, Protocol

from kbqa.kg.actions import Item, Mention
from kbqa.kg.linking.fuzzy_names import MAX_MEANINGS, FuzzyNames, Resemblance
from kbqa.kg.linking.inflection import inflections
from kbqa.kg.linking.names_by_word import LookUp, NamesByWord, overlaid
from kbqa.kg.linking.tokens import (
    Token,
    is_alone,
    is_capital,
    is_plain,
    is_quoted,
    is_telling,
    key_of,
    keys_of,
    parts_of_run,
    runs,
    tokens_of,
)

# Maximum candidates for one misspelt name, and how far their scores may be below the best.
_MAX_CANDIDATES = 5
_ALMOST = 0.05
_Named = Sequence[tuple[str, Item]]
_Names = MutableMapping[str, _Named]


class _Match(NamedTuple):
    """What a span may stand for.

    Attributes:
        entities: empty if it is the name of a part of the schema.
        exact: whether it is written as the graph writes it.
        is_class: whether all of them are classes.
        is_common: whether they are values of common words, such as "open", which are named in quotes only.
    """

    entities: Sequence[Item]
    exact: bool
    is_class: bool = False
    is_common: bool = False
    score: float = 1.0


class _Found(NamedTuple):
    """Mentions, and the indices of the tokens that name something."""

    mentions: list[Mention]
    taken: set[int]


class Difference(NamedTuple):
    """Names, or values, that a linker has less, and more, than another."""

    gone: Sequence[tuple[str, Item]]
    new: Sequence[tuple[str, Item]]


class _Once:
    """Makes the fuzzy names of a linker at first use, since many graphs never need them.

    Args:
        make: is given the linker and should not hold it: a reference cycle would keep an unused graph open.
    """

    def __init__(self, make: Callable[[EntityLinker], FuzzyNames]) -> None:
        self._make: Callable[[EntityLinker], FuzzyNames] | None = make
        self._lock = threading.Lock()

    def of(self, linker: EntityLinker) -> FuzzyNames:
        with self._lock:
            if self._make is not None:
                self._made, self._make = self._make(linker), None
            return self._made


class NameIndex(Protocol):
    """The names of a graph as an `EntityLinker` looks them up, by key (`key_of`).

    Attributes:
        entities, values: key → (text, what it stands for), as the linker's constructor takes them.
        lengths: first token → the token counts of the names that begin with it, longest first; there may be
            further counts.
        words: the names of entities that are no part of the schema.
    """

    @property
    def entities(self) -> LookUp[str, _Named]: ...

    @property
    def values(self) -> LookUp[str, _Named]: ...

    @property
    def lengths(self) -> LookUp[str, tuple[int, ...]]: ...

    @property
    def words(self) -> NamesByWord: ...


class EntityLinker:
    """Finds the names of entities in questions.

    Args:
        names: (label, entity) for all labels of all entities. A label shared by several
            entities yields one mention of each.
        classes: ids of entities of which others are instances.
        schema: ids of what only serves to describe entities.
        values: (text, what it stands for), a literal or an entity with a lesser name; those that are
            also the name of an entity are left out.
    """

    def __init__(
        self,
        names: Iterable[tuple[str, Item]],
        *,
        classes: Collection[str] = frozenset(),
        schema: Collection[str] = frozenset(),
        values: Iterable[tuple[str, Item]] = (),
    ) -> None:
        self._classes, self._schema = classes, schema
        entities: dict[str, list[tuple[str, Item]]] = {}
        others: dict[str, list[tuple[str, Item]]] = {}
        lengths: dict[str, set[int]] = {}
        for label, entity in names:
            _add(entities, lengths, label, entity)
        for text, item in values:
            if key_of(text) not in entities and may_be_topic(text):
                _add(others, lengths, text, item)
        self._entities: LookUp[str, _Named] = entities
        self._values: LookUp[str, _Named] = others
        # First token → the token counts of the names that begin with it, longest first.
        self._lengths: LookUp[str, tuple[int, ...]] = {
            first: tuple(sorted(found, reverse=True)) for first, found in lengths.items()
        }
        self._fuzzy = _Once(lambda linker: FuzzyNames.of(key for key in entities if linker._topics(key)))

    @classmethod
    def of_index(
        cls,
        index: NameIndex,
        *,
        classes: Collection[str] = frozenset(),
        schema: Collection[str] = frozenset(),
    ) -> EntityLinker:
        """A linker that looks names up in an index, instead of holding them."""
        linker = cls((), classes=classes, schema=schema)
        linker._entities, linker._values, linker._lengths = index.entities, index.values, index.lengths
        linker._fuzzy = _Once(lambda _: FuzzyNames(index.words))
        return linker

    def changed(
        self,
        names: Difference,
        values: Difference,
        *,
        classes: Collection[str],
        schema: Collection[str],
        judged: Iterable[str] = (),
    ) -> EntityLinker:
        """A linker of the same graph after a change; shares whatever did not change.

        Args:
            names, values: as the constructor takes them: what is gone, and what is new.
            classes, schema: as the constructor takes them.
            judged: names of entities that became part of the schema, or are that no more.
        """
        changed = copy(self)
        changed._classes, changed._schema = classes, schema
        changed._entities = entities = overlaid(self._entities)
        changed._values = others = overlaid(self._values)
        changed._lengths = lengths = overlaid(self._lengths)
        keys = {*map(key_of, judged), *_exchange(entities, lengths, names)} - {""}
        values = values._replace(new=[one for one in values.new if may_be_topic(one[0])])
        _exchange(others, lengths, values)

        def fuzzy_names(linker: EntityLinker) -> FuzzyNames:
            was = {key for key in keys if self._topics(key)}
            now = {key for key in keys if linker._topics(key)}
            return self._fuzzy_names().changed(sorted(was - now), sorted(now - was))

        changed._fuzzy = _Once(fuzzy_names)
        return changed

    def link(self, question: str) -> list[Mention]:
        """Find the topics that a question names, ordered by position, without overlaps.

        Entities with the same name share a position. Offsets count characters. If some
        names are clearly used as names, those that might be ordinary words or years are left
        out: "the director of Heat" is about Heat, even if a film has the tag "director".

        A name that is misspelt, in part or in another number has a score below 1, and may yield several
        candidate entities.
        """
        tokens = tokens_of(question)
        plain = self._with_longer(question, tokens, self._scan(question, tokens, plain=True))
        telling = [i for i, token in enumerate(tokens) if i not in plain.taken and is_telling(token)]
        capitals = [i for i in telling if is_capital(question, tokens[i])]
        alone = [i for i in capitals if i and is_alone(question, tokens, i, plain.taken)]
        marked = plain.mentions + self._resembling(tokens, capitals, plain.taken, alone)
        if marked:
            return sorted(marked, key=lambda mention: mention.start)
        # In a question without capitals, any word may be a name.
        anywhere = [] if any(is_capital(question, token) for token in tokens[1:]) else telling
        misspelt = self._resembling(tokens, anywhere, plain.taken)
        # Several words that almost match a name are better evidence than a single word that might be one.
        several = [mention for mention in misspelt if len(question[mention.start : mention.end].split()) > 1]
        return several or self._scan(question, tokens, plain=False).mentions or misspelt

    def complete(self, text: str, limit: int) -> list[Item]:
        """The entities of which a name begins with a text, or else has its words further on.

        The last word of the text may be incomplete. The label of an item is the name that was found.
        """
        words = keys_of(text)
        found: dict[str, Item] = {}
        for key in self._fuzzy_names().beginning(words) if words else ():
            for name, entity in self._entities[key]:
                if entity.id not in self._schema:
                    found.setdefault(entity.id, Item(entity.id, name))
            if len(found) >= limit:
                break
        return list(found.values())[:limit]

    def _with_longer(self, question: str, tokens: list[Token], plain: _Found) -> _Found:
        """The names found, but a run of capitalised words that is part of a longer name wins over those in
        it: "U990 LCD Inductor" over "LCD" and "Inductor" if there is a "U990-523 - LCD Inductor"."""
        mentions, taken = plain
        for first, last in runs(question, tokens):
            for begin, end in parts_of_run(first, last):
                places = set(range(begin, end + 1))
                inside = [m for m in mentions if tokens[begin].start <= m.start < tokens[end].end]
                cut = any(m.end > tokens[end].end for m in inside) or any(
                    m.start < tokens[begin].start < m.end for m in mentions
                )
                if cut or places <= taken:
                    continue
                longer = self._part_of_names(tokens, begin, end)
                if longer:
                    mentions = [m for m in mentions if m not in inside] + longer
                    taken = taken | places
                    break
        return _Found(mentions, taken)

    def _resembling(
        self, tokens: list[Token], anchors: list[int], taken: set[int], alone: Iterable[int] = ()
    ) -> list[Mention]:
        """Misspelt names among the tokens that are not taken, and entities of whose name the words `alone`
        are a part; candidates of a span are sorted best first."""
        # A word of a name is better evidence than one that resembles another name.
        parts = {i: of for i in alone if (of := self._part_of_names(tokens, i, i))}
        anchors = [i for i in anchors if i not in parts]
        found = self._fuzzy_names().find([token.key for token in tokens], anchors) if anchors else []
        found = [f for f in found if taken.isdisjoint(range(f.first, f.last + 1))]
        mentions: list[Mention] = []
        for resemblance in sorted(found, key=lambda f: (f.first - f.last, -f.score, f.name)):
            places = set(range(resemblance.first, resemblance.last + 1))
            if taken.isdisjoint(places):
                taken = taken | places
                mentions += self._candidates(tokens, resemblance, found)
        return mentions + [mention for i, of in parts.items() if i not in taken for mention in of]

    def _candidates(self, tokens: list[Token], best: Resemblance, found: list[Resemblance]) -> list[Mention]:
        """The entities whose names match the span of `best` almost as well as `best` does."""
        start, end = tokens[best.first].start, tokens[best.last].end
        alike = [f for f in found if (f.first, f.last) == (best.first, best.last)]
        unique: dict[str, Mention] = {}
        for resemblance in sorted(alike, key=lambda f: (-f.score, f.name)):
            if resemblance.score >= best.score - _ALMOST:
                for entity in self._topics(resemblance.name):
                    mention = Mention(entity.id, entity.label, start, end, resemblance.score)
                    unique.setdefault(entity.id, mention)
        return list(unique.values())[:_MAX_CANDIDATES]

    def _part_of_names(self, tokens: list[Token], first: int, last: int) -> list[Mention]:
        """The entities of whose names some words are a part, if these are few; best first."""
        words = [token.key for token in tokens[first : last + 1]]
        start, end = tokens[first].start, tokens[last].end
        unique: dict[str, Mention] = {}
        for name in self._fuzzy_names().containing(words):
            share = round(len(" ".join(words)) / len(name), 4)
            for entity in self._topics(name):
                unique.setdefault(entity.id, Mention(entity.id, entity.label, start, end, share))
        if len(unique) > MAX_MEANINGS:
            return []
        return sorted(unique.values(), key=lambda mention: (-mention.score, mention.label, mention.id))

    def _topics(self, key: str) -> list[Item]:
        """The entities with a name that are not parts of the schema."""
        return [entity for _, entity in self._entities.get(key, ()) if entity.id not in self._schema]

    def _fuzzy_names(self) -> FuzzyNames:
        return self._fuzzy.of(self)

    def _scan(self, question: str, tokens: list[Token], *, plain: bool) -> _Found:
        found: list[tuple[_Match, list[Mention]]] = []
        taken: set[int] = set()
        position = 0
        while position < len(tokens):
            length, match = self._longest_at(question, tokens, position, plain)
            if match is not None:
                start, end = tokens[position].start, tokens[position + length - 1].end
                taken.update(range(position, position + length))
                unique = {e.id: Mention(e.id, e.label, start, end, match.score) for e in match.entities}
                found.append((match, list(unique.values())))
            position += length
        if not plain and any(mentions and not match.is_class for match, mentions in found):
            found = [(match, mentions) for match, mentions in found if not match.is_class]
        return _Found([mention for _, mentions in found for mention in mentions], taken)

    def _longest_at(
        self, question: str, tokens: list[Token], position: int, plain: bool
    ) -> tuple[int, _Match | None]:
        """The longest name that starts at a token: its number of tokens (1 if none), and what it means."""
        lengths = self._lengths.get(tokens[position].key, ())
        for length in lengths if 1 in lengths else (*lengths, 1):
            span = tokens[position : position + length]
            match = self._match(question, span) if len(span) == length else None
            if match is None:
                continue
            if match.entities:
                used = is_plain(question, span, position, match.exact)
                if used is not plain or (match.is_common and not is_quoted(question, span)):
                    continue
            return length, match
        return 1, None

    def _match(self, question: str, span: list[Token]) -> _Match | None:
        """What is named exactly by a span, apart from case, or else in another number."""
        text = question[span[0].start : span[-1].end]
        before, last = [token.key for token in span[:-1]], span[-1]
        key = " ".join((*before, last.key))
        if named := self._entities.get(key, ()):
            return self._meaning(named, [label == text for label, _ in named])
        if named := self._values.get(key, ()):
            match = self._meaning(named, [label == text for label, _ in named])
            return match._replace(is_common=all(_is_common(label) for label, _ in named))
        if not is_telling(last):
            return None
        for other in inflections(last.key):
            named = self._entities.get(" ".join((*before, other)), [])
            # The plural of a name that many share means all of them, which are no topic.
            if 0 < len({entity.id for _, entity in named}) <= MAX_MEANINGS:
                written = last.start - span[0].start + 1  # up to the first letter of the last word
                alike = [label[:written] == text[:written] for label, _ in named]
                match = self._meaning(named, alike)
                changed = abs(len(other) - len(last.key)) or 1
                return match._replace(score=round(1 - changed / (len(text) + changed), 4))
        return None

    def _meaning(self, named: Sequence[tuple[str, Item]], alike: Sequence[bool]) -> _Match:
        """What entities or values with one name mean.

        Args:
            alike: whether the question writes each of them as the graph does.
        """
        linked = [(e, same) for (_, e), same in zip(named, alike, strict=True) if e.id not in self._schema]
        exact = [entity for entity, same in linked if same]
        entities = exact or [entity for entity, _ in linked]
        others = [entity for entity in entities if entity.id not in self._classes]
        return _Match(others or entities, bool(exact), is_class=not others)


def _add(
    index: dict[str, list[tuple[str, Item]]], lengths: dict[str, set[int]], label: str, item: Item
) -> None:
    keys = keys_of(label)
    if keys:
        index.setdefault(" ".join(keys), []).append((label, item))
        lengths.setdefault(keys[0], set()).add(len(keys))


def _exchange(
    named: _Names, lengths: MutableMapping[str, tuple[int, ...]], difference: Difference
) -> set[str]:
    """Apply a difference; returns the keys of the names in it."""
    keys = set()
    for text, item in difference.gone:
        key = key_of(text)
        keys.add(key)
        found = list(named.get(key, ()))
        if (text, item) in found:
            found.remove((text, item))
            named[key] = found
    for text, item in difference.new:
        key = key_of(text)
        keys.add(key)
        if key:
            named[key] = [*named.get(key, ()), (text, item)]
            first, length = key.partition(" ")[0], key.count(" ") + 1
            lengths[first] = tuple(sorted({*lengths.get(first, ()), length}, reverse=True))
    return keys


def may_be_topic(text: str) -> bool:
    """Whether a text that is no name of an entity may be named by a question: a number may not."""
    return any(map(str.isalpha, text))


def _is_common(text: str) -> bool:
    """Whether a text consists of words in lower case."""
    return text.islower() and all(map(str.isalpha, text.split()))
