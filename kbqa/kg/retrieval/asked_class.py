"""Of which class a question says that its answers are: "which services run in Dublin" asks for services."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

from kbqa.kg.linking.inflection import inflections
from kbqa.kg.ranking.encoders import words
from kbqa.kg.store import GraphStore, PathStep

T = TypeVar("T")

_SUBCLASS_OF = (
    "http://www.w3.org/2000/01/rdf-schema#subClassOf",
    "http://www.wikidata.org/prop/direct/P279",
)
_DEEPEST, _MOST = 8, 1_000  # steps up a hierarchy, and classes at each
_WHICH = frozenset(("which", "what"))
_REQUESTS = ("list", "show", "name", "find", "give", "tell")
_BETWEEN = frozenset(("me", "us", "all", "of", "the"))  # "list all the", "give me all of the"
_NOTHING_ELSE = frozenset(
    ("", "are there", "there are", "exist", "are known", "do you know", "do you have", "do we have", "please")
)
_LONGEST = 4  # words of a name
_ARTICLES = frozenset(("the", "a", "an"))
_CLOSED = frozenset(
    (
        *("is", "are", "was", "were", "has", "have", "had"),
        *("does", "do", "did", "can", "could", "will", "would"),
        *("that", "which", "who", "whom", "whose", "where", "when", "and", "or"),
        *("in", "on", "at", "by", "with", "from", "to", "for", "under", "into", "about", "as"),
    )
)
"""Words that may follow a noun and belong to no name. A noun before *of* is mostly a relation."""


def asked_class(question: str, classes: Mapping[str, T]) -> T | None:
    """The class that a question asks for by name, or None if it does not.

    After a singular, a word has to follow that belongs to no name: a "service level" is no service.

    Args:
        classes: by name, in lower-case words.
    """
    found = _asked(words(question).split(), classes)
    return None if found is None else found[0]


def whole_class(question: str, classes: Mapping[str, T]) -> T | None:
    """The class of which a question asks for all members and for nothing else, or None if it does not."""
    said = words(question).split()
    found = _asked(said, classes)
    if found is None:
        return None
    asked, last = found
    return asked if " ".join(said[last:]) in _NOTHING_ELSE else None


def _asked(said: Sequence[str], classes: Mapping[str, T]) -> tuple[T, int] | None:
    """The class that is asked for, and the place behind its name."""
    first = _beginning(said)
    for last in () if first is None else range(min(first + _LONGEST, len(said)), first, -1):
        name = said[first:last]
        singulars = (" ".join((*name[:-1], one)) for one in inflections(name[-1]))
        found = next((classes[one] for one in singulars if one in classes), None)
        if found is None and _ends(said[last:]):
            found = classes.get(" ".join(name))
        if found is not None:
            return found, last
    return None


def broader(store: GraphStore, classes: Sequence[str]) -> set[str]:
    """Ids of some classes and of those that they are stated to be subclasses of, directly or not.

    Raises:
        QueryError, GraphUnavailableError: as `GraphStore.follow`.
    """
    up = tuple(id_ for name in _SUBCLASS_OF for id_ in store.resolve_relation(name))
    found, last = set(classes), list(classes)
    for _ in range(_DEEPEST if up else 0):
        ends = store.follow(last, [PathStep(up)], limit=_MOST).ends.items
        last = [item.id for item in ends if item.id not in found]
        if not last:
            break
        found.update(last)
    return found


def _ends(following: Sequence[str]) -> bool:
    """Whether a name is over before some words: "which team has", "team moved", "team owns the"."""
    if not following or following[0] in _CLOSED:
        return True
    is_past = following[0].endswith("ed") and not following[0].endswith("eed")  # and no "service speed"
    return is_past or (following[0].endswith("s") and not _ARTICLES.isdisjoint(following[1:2]))


def _beginning(said: Sequence[str]) -> int | None:
    """The place of the first word that may name a class: behind *which*, or the words of a request."""
    for place, word in enumerate(said):
        if word in _WHICH:
            return place + 1 + 2 * (said[place + 1 : place + 3] == ["of", "the"])
        # "Tell me the studios in X" asks for studios, "tell me the studios' towns" for towns.
        if place == 0 and word in _REQUESTS and "s" not in said:
            return next((i for i, other in enumerate(said) if i and other not in _BETWEEN), None)
    return None
