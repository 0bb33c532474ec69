"""Which way a question asks to go along a relation that leads both ways from its topic.

"Who reports to Helen" and "who does Helen report to" ask about one relation, in two directions. Their words
are the same, so a sentence encoder hardly tells them apart. Their order does, in English. The name of a
relation says what its head and its tail are:

    active     reports to, cites, influenced    the head does it to the tail
    passive    influenced by, owner             the tail does it to the head
    of-noun    parent of, owner of              the head is one of the tail's, or does it to the tail
    noun       capital                          the tail is one of the head's

The question says what the topic T is, by what stands beside a word with the same root:

    does         what T cites, who was influenced by T; with the name's preposition: who does T report to
    undergoes    who reports to T, who influenced T, who was T influenced by
    has          the capital of T, T's capital; likewise undergoes: the owner of T
    is           T is the capital of; likewise does: T is the owner of
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum, auto
from os.path import commonprefix
from typing import NamedTuple

from kbqa.kg.ranking.encoders import words

_TOPIC = "<topic>"
_SHORTEST = 3  # letters that words with the same root begin with
_ENDINGS = frozenset(
    (
        *("", "s", "es", "e", "d", "ed", "ing", "y", "ies", "ied", "ying"),
        *("r", "rs", "er", "ers", "or", "ors", "ier", "iers"),
    )
)
_AGENTS = ("er", "ers", "or", "ors")
_PREPOSITIONS = frozenset(("to", "on", "in", "at", "for", "with", "from", "under", "into", "as"))
# A border has no direction, although a fact about it names one country first.
_SYMMETRIC = (
    "border",
    "marry",
    "neighbour",
    "neighbor",
    "adjoin",
    "connect",
    "link",
    "relate",
    "meet",
    "touch",
    "equal",
)
_ARTICLES = frozenset(("the", "a", "an"))
# Words that may follow an object: "who covers T and ...", but not "how many pages T has".
_ENDING = _PREPOSITIONS | {"and", "or", "but", "by", "who", "whom", "whose", "that", "which", "when", "where"}
_BE = frozenset(("is", "are", "was", "were", "be", "been", "being"))
_LEADING = _BE | {"has", "have"}


class _Voice(Enum):
    """What the name of a relation says of its head and tail."""

    ACTIVE = auto()
    PASSIVE = auto()
    OF_NOUN = auto()
    NOUN = auto()


class _Role(Enum):
    """What a question says of its topic."""

    DOES = auto()
    UNDERGOES = auto()
    HAS = auto()
    IS = auto()


# Whether the relation is followed from tail to head.
_INVERSE = {
    (_Voice.ACTIVE, _Role.DOES): False,
    (_Voice.ACTIVE, _Role.UNDERGOES): True,
    (_Voice.PASSIVE, _Role.DOES): True,
    (_Voice.PASSIVE, _Role.UNDERGOES): False,
    (_Voice.OF_NOUN, _Role.HAS): True,
    (_Voice.OF_NOUN, _Role.IS): False,
    (_Voice.OF_NOUN, _Role.DOES): False,
    (_Voice.OF_NOUN, _Role.UNDERGOES): True,
    (_Voice.NOUN, _Role.HAS): False,
    (_Voice.NOUN, _Role.IS): True,
}


def asked_direction(question: str, topic: str, relation: str, *, strictly: bool = False) -> bool | None:
    """Whether a question asks to follow a relation of its topic from tail to head.

    Args:
        topic: its name.
        relation: its name.
        strictly: whether only verbs count. A noun may describe something else ("the style of jazz"), and a
            participle without *by* may be active or passive.

    Returns:
        None if the question does not say it, or if it says both.
    """
    called = _read(words(relation).split())
    if called is None or called.is_symmetric or (strictly and (called.is_noun or called.is_participle)):
        return None
    said = f" {words(question)} ".replace(f" {words(topic)} ", f" {_TOPIC} ").split()
    found = {
        _INVERSE.get((called.voice, role))
        for place, word in enumerate(said)
        if _same_root(word, called.root) and not (strictly and word.endswith(_AGENTS))
        for role in _roles(said, place, called)
    }
    return found.pop() if len(found) == 1 else None


class _Called(NamedTuple):
    """How a relation is called.

    Attributes:
        root: the word that says what it is about.
        preposition: that of `reports to`; a question has to use it, too. Empty if there is none.
    """

    root: str
    voice: _Voice
    preposition: str = ""

    @property
    def is_noun(self) -> bool:
        return self.voice in (_Voice.NOUN, _Voice.OF_NOUN)

    @property
    def is_symmetric(self) -> bool:
        """Whether what its head is to its tail, its tail is to its head: `borders`, `works with`."""
        return self.preposition == "with" or any(_same_root(self.root, word) for word in _SYMMETRIC)

    @property
    def is_participle(self) -> bool:
        """Whether it may be active or passive, such as `influenced`."""
        return self.voice is _Voice.ACTIVE and not self.preposition and self.root.endswith("ed")


def _read(name: Sequence[str]) -> _Called | None:
    """How a relation is called; None if its name says nothing of head and tail."""
    while len(name) > 1 and name[0] in _LEADING:
        name = name[1:]
    *before, last = name or ("",)
    if before and last == "by":
        return _Called(before[-1], _Voice.PASSIVE)
    if before and last == "of":
        return _Called(before[-1], _Voice.OF_NOUN)
    if before and last in _PREPOSITIONS:
        return _Called(before[-1], _Voice.ACTIVE, last)
    if before or len(last) < _SHORTEST:
        return None
    if last.endswith(_AGENTS):
        return _Called(last, _Voice.PASSIVE)
    is_verb = last.endswith("ed") or (last.endswith("s") and not last.endswith("ss"))
    return _Called(last, _Voice.ACTIVE if is_verb else _Voice.NOUN)


def _roles(said: Sequence[str], place: int, called: _Called) -> Iterator[_Role]:
    """What a question says of its topic beside one of its words: nothing, one or two things."""
    word, before, after = said[place], list(said[:place]), list(said[place + 1 :])
    next_ = after[0] if after and after[0] in _PREPOSITIONS | {"by", "of"} else ""
    if called.preposition and next_ != called.preposition:
        return
    is_agent = word.endswith(_AGENTS)
    # "The owner of T" owns it; if the relation is called by a noun, this may be another one.
    has, is_ = (_Role.HAS, _Role.IS) if called.is_noun else (_Role.UNDERGOES, _Role.DOES)
    is_noun = called.is_noun or is_agent
    is_the_noun = called.is_noun and word == called.root
    is_verb = not is_agent and not is_the_noun and _ARTICLES.isdisjoint(before[-1:])
    further = _behind_topic(after[bool(next_) :])
    if further is not None:
        if next_ == "by":
            yield _Role.DOES
        elif next_ == "of" and is_noun:
            yield has
        elif next_ == called.preposition and is_verb and _ENDING.issuperset(further):
            yield _Role.UNDERGOES
    if before[-2:] == [_TOPIC, "s"]:
        if is_noun:
            yield has
        return
    passed = len(before)
    while before and before[-1] in _ARTICLES | _BE:
        before.pop()
    if before[-1:] != [_TOPIC]:
        return
    # "T was cited" and "by whom was T cited", but not "is T cited years later".
    is_passive = len(before) < passed or ("by" in before and not _BE.isdisjoint(before[-2:]))
    if next_ == "by" or (is_passive and word.endswith("ed") and not called.preposition):
        yield _Role.UNDERGOES
    elif next_ == "of" and is_noun:
        yield is_
    elif next_ != "of" and is_verb:
        yield _Role.DOES


def _behind_topic(after: Sequence[str]) -> Sequence[str] | None:
    """The word behind the topic, if the topic comes next, perhaps after an article; empty if it is the last.

    Returns:
        None if another word comes next, or something of the topic's: "T's director", "the T director".
    """
    rest = [word for word in after[:3] if word not in _ARTICLES]
    if rest[:1] != [_TOPIC] or any(word == "s" or word.endswith(_AGENTS) for word in rest[1:2]):
        return None
    return rest[1:2]


def _same_root(one: str, other: str) -> bool:
    shared = len(commonprefix((one, other)))
    # The last letters of a root may change: supply, supplies.
    return any(
        one[n:] in _ENDINGS and other[n:] in _ENDINGS for n in range(max(_SHORTEST, shared - 2), shared + 1)
    )
