"""Makes of a graph `Facts` that questions can be asked about: a schema with phrases for its relations."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kbqa.datasets.from_graph.kinds import End, Kinds, find_kinds
from kbqa.datasets.from_graph.reading import ReadGraph, ReadRelation
from kbqa.datasets.from_graph.wording import Reader, Wording, phrases_of, quantity_of
from kbqa.datasets.world.facts import Facts
from kbqa.datasets.world.grammar import whole_grammar
from kbqa.datasets.world.lexicon import Inflections, Lexicon
from kbqa.datasets.world.phrases import Party, Phrasing
from kbqa.datasets.world.schema import EntityKind, Link, Quantity, Schema
from kbqa.errors import DatasetError
from kbqa.kg.sparql.dates import DATE_TYPES
from kbqa.kg.values import VALUE_TYPES
from kbqa.logical_forms.algebra import Literal

T = TypeVar("T")

# Share of the phrases that use the relation's own word. No relative is safe: whoever wrote a film need not
# have dramatized it, and no check would notice.
_FAITHFUL = 1.0
_PATTERNS = 12  # of each sort, that a relation gets at most
_VALUE = Party(EntityKind("", "value", "values", 0, ""), is_person=False)
_ANYTHING = EntityKind("", "thing", "things", 0, "")
_FEWEST = 5  # pairs of a relation to values, so that they can be compared


@dataclass(frozen=True, slots=True)
class Described:
    """A graph that questions can be asked about.

    Attributes:
        wordless: relations whose words say nothing in English.
        after_graph: (relation, noun) if its heads are called after the graph.
    """

    facts: Facts
    wordless: tuple[str, ...]
    after_graph: tuple[str, str] | None = None

    @property
    def relations(self) -> tuple[str, ...]:
        """The relations that questions can be about."""
        schema = self.facts.schema
        return tuple(
            dict.fromkeys([*(link.name for link in schema.links), *(q.name for q in schema.quantities)])
        )


def describe(
    graph: ReadGraph,
    lexicon: Lexicon,
    inflections: Inflections,
    rng: random.Random,
    called: Mapping[str, str] | None = None,
    kg: str = "",
) -> Described:
    """Find words for the relations and kinds of a graph.

    Args:
        kg: name of the graph, which may say what it is about.
        called: relation → noun for its heads, in a graph that declares no classes.

    Raises:
        DatasetError: no relation has words that say something in English.
    """
    reader = Reader(lexicon, inflections)
    read = {relation.id: reader.read(relation.words) for relation in graph.relations}
    wordings = {id_: wording for id_, wording in read.items() if wording is not None}
    if not wordings:
        raise DatasetError(
            "no relation of the graph has words in English: load it with labels of its relations "
            "(kbqa kg load --labels)"
        )
    nouns = dict(_nouns(graph, wordings, reader, called or {}))
    given = {End(relation, "head") for relation in called or {}}
    kinds = find_kinds(graph, nouns, lexicon, inflections, given, kg)
    phrasing = Phrasing(lexicon, inflections, rng, faithful=_FAITHFUL, most=_PATTERNS)
    links: list[Link] = []
    quantities: list[Quantity] = []
    for relation in graph.relations:
        if (wording := wordings.get(relation.id)) is None:
            continue
        heads = kinds.ends[End(relation.id, "head")]
        datatype = relation.written_as or _datatype(relation)
        can_compare = len(heads) == 1 and (kinds.kinds[heads[0]].name or not kinds.are_declared)
        if datatype and can_compare and len(relation.pairs) >= _FEWEST:
            quantities.append(quantity_of(wording, relation.id, heads[0], datatype, reader, inflections, rng))
        # A text is a value, and may be named, too: people ask for the newest film, and for the films of 1995.
        if relation.written_as or relation.id not in {quantity.name for quantity in quantities}:
            links += _links(relation, wording, kinds, phrasing, reader)
    facts = tuple(
        (head, relation.id, tail)
        for relation in graph.relations
        if relation.id in wordings
        for head, tail in relation.pairs
        if isinstance(tail, Literal) != (End(relation.id, "tail") in kinds.ends)
    )
    schema = Schema(
        namespace="",
        kinds=kinds.kinds,
        links=tuple(links),
        quantities=tuple(_unmistakable(quantities)),
        grammar=whole_grammar(),
        rich=_rich(kinds, links),
        says_class=kinds.are_declared,
    )
    mentioned = dict.fromkeys(node for fact in facts for node in (fact[0], fact[2]) if isinstance(node, str))
    names = {entity: graph.names[entity] for entity in mentioned}
    of = {entity: kinds.of[entity] for entity in mentioned}
    wordless = tuple(relation.id for relation in graph.relations if relation.id not in wordings)
    written_as = {relation.id: relation.written_as for relation in graph.relations if relation.written_as}
    after_graph = None
    if (end := kinds.after_graph) is not None:
        after_graph = end.relation, kinds.kinds[kinds.ends[end][0]].singular
    return Described(Facts(schema, facts, names, of, written_as), wordless, after_graph)


def _nouns(
    graph: ReadGraph, wordings: Mapping[str, Wording], reader: Reader, called: Mapping[str, str]
) -> Iterator[tuple[End, str]]:
    """What the ends of relations are called."""
    for relation in graph.relations:
        wording = wordings.get(relation.id)
        heads = called.get(relation.id) or relation.domain
        if heads or (wording and (heads := reader.noun_of_heads(wording))):
            yield End(relation.id, "head"), heads
        if wording and (tails := reader.noun_of_tails(wording)):
            yield End(relation.id, "tail"), tails


def _links(
    relation: ReadRelation, wording: Wording, kinds: Kinds, phrasing: Phrasing, reader: Reader
) -> Iterator[Link]:
    """A link from each kind of heads; one goes back only to heads of a single kind."""
    heads, tails = kinds.ends[End(relation.id, "head")], kinds.ends.get(End(relation.id, "tail"), ())
    held = _party(tails, kinds) if tails else _VALUE
    for head in heads:
        to_tails, to_heads = phrases_of(wording, phrasing, reader, _party((head,), kinds), held)
        goes_back = len(heads) == 1 and bool(tails)
        yield Link(
            relation.id,
            head,
            tails,
            forward=to_tails.named,
            heads=to_heads.clauses if goes_back else (),
            tails_are=to_tails.clauses if tails else (),
            back=to_heads.named if goes_back else (),
            asks=to_tails.asked,
            asks_back=to_heads.asked if goes_back else (),
            same_tail=to_tails.sharing if goes_back else (),
            same_head=to_heads.sharing if goes_back else (),
        )


def _party(keys: tuple[str, ...], kinds: Kinds) -> Party:
    """The entities at an end of a relation; of several kinds, they are things or people."""
    are_people = kinds.people.issuperset(keys)
    return Party(kinds.kinds[keys[0]] if len(keys) == 1 else _ANYTHING, is_person=are_people)


def _unmistakable(quantities: Sequence[Quantity]) -> Iterator[Quantity]:
    """The quantities without words that fit two of one kind: the longest ship, by length or by duration."""
    uses = Counter(
        (quantity.head, word)
        for quantity in quantities
        for words in (*quantity.extremes.values(), *quantity.compared.values())
        for word in words
    )
    for quantity in quantities:

        def clear(said: Mapping[T, tuple[str, ...]], head: str = quantity.head) -> dict[T, tuple[str, ...]]:
            return {of: tuple(word for word in words if uses[head, word] == 1) for of, words in said.items()}

        # Records name the quantity; without any, words that may be misunderstood are all there is.
        if quantity.records:
            quantity = replace(quantity, extremes=clear(quantity.extremes), compared=clear(quantity.compared))
        yield quantity


def _rich(kinds: Kinds, links: list[Link]) -> tuple[str, ...]:
    """The kinds about which at least two things can be said."""
    said: Counter[str] = Counter()
    for link in links:
        said.update([link.head] if link.heads else [])
        said.update(link.tails if len(link.tails) == 1 and link.tails_are else [])
    return tuple(key for key, count in said.items() if count > 1 and key in set(kinds.of.values()))


def _datatype(relation: ReadRelation) -> str:
    """The datatype of a relation to numbers, or to dates of one type; otherwise ""."""
    counts = Counter(tail.datatype if isinstance(tail, Literal) else "" for _, tail in relation.pairs)
    are_comparable = VALUE_TYPES.issuperset(counts) and (len(counts) == 1 or DATE_TYPES.isdisjoint(counts))
    return counts.most_common(1)[0][0] if are_comparable else ""
