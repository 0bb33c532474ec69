"""Kinds of the entities of a graph: its classes or, where it declares none, what the ends of relations share.

Two ends of relations (the heads of one, the tails of another) are of one kind if they share most of the
entities of the smaller one, as the heads of `directed_by` and of `release_year` do, or if both are called
people. If no relation says what most facts are about, the name of the graph does: `films` is about films.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple

from kbqa.datasets.from_graph.english import countable, is_person, plural, singular
from kbqa.datasets.from_graph.reading import ReadGraph, ReadRelation
from kbqa.datasets.world.lexicon import NOUN, Inflections, Lexicon
from kbqa.datasets.world.schema import EntityKind

_SHARED = 0.5  # of the smaller end, that makes two ends one kind
_RARE = 0.05  # share of an end below which a class is left unmentioned
_MOST = 0.5  # share of a kind that the ends with its noun have at least: of people, few may be directors
_NAMELESS = "thing"
# Plurals that say that a graph has members, and not what they are.
_ANY_MEMBERS = frozenset(
    {"datum", "entity", "example", "fact", "graph", "item", "record", "sample", "test", "thing", "triple"}
)


class End(NamedTuple):
    """One end of a relation."""

    relation: str
    side: Literal["head", "tail"]


@dataclass(frozen=True, slots=True)
class Kinds:
    """What there is.

    Attributes:
        kinds: key → kind.
        of: entity → key.
        ends: end of a relation → keys of its kinds, the most frequent first; none for values.
        people: keys of the kinds whose members are people.
        are_declared: whether they are the graph's own classes.
        after_graph: an end of the kind that is named after the graph; None if no kind is.
    """

    kinds: Mapping[str, EntityKind]
    of: Mapping[str, str]
    ends: Mapping[End, tuple[str, ...]]
    people: frozenset[str]
    are_declared: bool
    after_graph: End | None = None


def find_kinds(
    graph: ReadGraph,
    nouns: Mapping[End, str],
    lexicon: Lexicon,
    inflections: Inflections,
    given: Collection[End] = (),
    kg: str = "",
) -> Kinds:
    """The kinds of a graph's entities.

    Args:
        nouns: what an end of a relation is called, where its words say so.
        given: ends whose noun is that of their whole kind.
        kg: name of the graph; if it is a noun in the plural, it names the kind that most facts are about,
            unless something else does.
    """
    members = _ends(graph.relations)
    after_graph = None
    if graph.classes:
        of = {entity: graph.classes.get(entity, "") for entity in graph.names}
        called = {"": _NAMELESS} | {
            id_: singular(name, lexicon, inflections) if name else _NAMELESS
            for id_, name in graph.class_names.items()
        }
        ends = {end: _frequent(Counter(of[entity] for entity in inside)) for end, inside in members.items()}
    else:
        groups = _groups(members, nouns, lexicon)
        called = {
            f"kind {number}": _called(group, members, nouns, lexicon, given)
            for number, group in enumerate(groups)
        }
        subject, end = _subject(dict(zip(called, groups, strict=True)), members)
        noun = member_noun(kg, lexicon, inflections)
        if noun and called[subject] == _NAMELESS and noun not in called.values():
            called[subject], after_graph = noun, end
        ends = {end: (key,) for key, group in zip(called, groups, strict=True) for end in group}
        counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for end, inside in members.items():
            for entity in inside:
                counts[entity][ends[end][0]] += 1
        of = {entity: counted.most_common(1)[0][0] for entity, counted in counts.items()}
    people = frozenset(key for key, noun in called.items() if is_person(noun, lexicon))
    kinds = {
        key: EntityKind(
            key if graph.classes else "",
            countable(noun),
            plural(countable(noun), inflections),
            0,
            "",
            is_person=key in people,
        )
        for key, noun in called.items()
    }
    return Kinds(kinds, of, ends, people, bool(graph.classes), after_graph)


def member_noun(kg: str, lexicon: Lexicon, inflections: Inflections) -> str:
    """What the members of a graph are called if its name is a noun in the plural; otherwise "".

    A name in the singular (`world`, `music`) is rather that of a field or of the whole.
    """
    name = kg.lower()
    # Physics is no plural of physic.
    nouns = (
        word
        for word in inflections.lemmas(name, NOUN)
        if word != name and (lexicon.count(word, NOUN) or not lexicon.knows(name, NOUN))
    )
    noun = next(nouns, "") if name.isalpha() else ""
    return "" if noun in _ANY_MEMBERS else noun


def _subject(groups: Mapping[str, Sequence[End]], members: Mapping[End, set[str]]) -> tuple[str, End]:
    """The kind that most facts are about, and the heads of the relation that says something of most of it."""

    def heads(key: str) -> int:
        return sum(len(members[end]) for end in groups[key] if end.side == "head")

    subject = max(groups, key=heads)
    said = [end for end in groups[subject] if end.side == "head"]
    return subject, max(said, key=lambda end: len(members[end]))


def _ends(relations: Sequence[ReadRelation]) -> dict[End, set[str]]:
    """The entities at each end."""
    found = {}
    for relation in relations:
        found[End(relation.id, "head")] = {head for head, _ in relation.pairs}
        if tails := {tail for _, tail in relation.pairs if isinstance(tail, str)}:
            found[End(relation.id, "tail")] = tails
    return found


def _frequent(counts: Counter[str]) -> tuple[str, ...]:
    total = counts.total()
    return tuple(key for key, count in counts.most_common() if count >= _RARE * total)


def _groups(
    members: Mapping[End, set[str]], nouns: Mapping[End, str], lexicon: Lexicon
) -> list[tuple[End, ...]]:
    """Union-find over ends that share most of their entities, or are both called people."""
    parent = {end: end for end in members}

    def root(end: End) -> End:
        while parent[end] != end:
            parent[end] = end = parent[parent[end]]
        return end

    def are_people(end: End) -> bool:
        return end in nouns and is_person(nouns[end], lexicon)

    ends = list(members)
    for number, one in enumerate(ends):
        for other in ends[:number]:
            shared = len(members[one] & members[other])
            is_same = shared > _SHARED * min(len(members[one]), len(members[other]))
            if is_same or (are_people(one) and are_people(other)):
                parent[root(one)] = root(other)
    found: defaultdict[End, list[End]] = defaultdict(list)
    for end in ends:
        found[root(end)].append(end)
    return [tuple(group) for group in found.values()]


def _called(
    group: Sequence[End],
    members: Mapping[End, set[str]],
    nouns: Mapping[End, str],
    lexicon: Lexicon,
    given: Collection[End],
) -> str:
    """The noun of most ends, if it is that of most members.

    If not, or if there are several, it is "person" where all nouns mean people.
    """
    if certain := [nouns[end] for end in group if end in given]:
        return certain[0]
    named = Counter(nouns[end] for end in group if end in nouns)
    if not named:
        return _NAMELESS
    [(noun, _)] = named.most_common(1)
    are_people = all(is_person(noun, lexicon) for noun in named)
    if len(named) > 1 and are_people:
        return "person"
    so_called = set[str]().union(*(members[end] for end in group if nouns.get(end) == noun))
    if len(so_called) >= _MOST * len(set[str]().union(*(members[end] for end in group))):
        return noun
    return "person" if are_people else _NAMELESS
