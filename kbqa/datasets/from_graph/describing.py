"""Makes of a graph `Facts` that questions can be asked about: a schema with phrases for its relations."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeVar

from kbqa.datasets.from_graph.english import MAKING
from kbqa.datasets.from_graph.grammar import GRAMMAR
from kbqa.datasets.from_graph.kinds import End, Kinds, find_kinds
from kbqa.datasets.from_graph.phrases import Speaker
from kbqa.datasets.from_graph.quantities import describe_quantity
from kbqa.datasets.from_graph.reading import ReadGraph, ReadRelation
from kbqa.datasets.from_graph.wording import LeadsTo, Reader, Wording
from kbqa.datasets.world.facts import Facts
from kbqa.datasets.world.lexicon import Inflections, Lexicon
from kbqa.datasets.world.phrases import Party
from kbqa.datasets.world.schema import EntityKind, Link, Quantity, Schema
from kbqa.errors import DatasetError
from kbqa.kg.sparql.dates import DATE_TYPES
from kbqa.kg.values import VALUE_TYPES
from kbqa.logical_forms.algebra import Literal

T = TypeVar("T")

_VALUE = Party(EntityKind("", "value", "values", 0, ""), is_person=False)
_ANYTHING = EntityKind("", "thing", "things", 0, "")
_SEVERAL = 1.5  # mean number of pairs, from which there usually are several
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
    datatypes = {relation.id: relation.written_as or _datatype(relation) for relation in graph.relations}
    read = {one.id: reader.read(one.words, _leads_to(datatypes[one.id])) for one in graph.relations}
    wordings = {id_: wording for id_, wording in read.items() if wording is not None}
    if not wordings:
        raise DatasetError(
            "no relation of the graph has words in English: load it with labels of its relations "
            "(kbqa kg load --labels)"
        )
    nouns = dict(_nouns(graph, wordings, reader, called or {}))
    given = {End(relation, "head") for relation in called or {}}
    kinds = find_kinds(graph, nouns, lexicon, inflections, given, kg)
    speaker = Speaker(reader, inflections)
    links: list[Link] = []
    quantities: list[Quantity] = []
    for relation in graph.relations:
        if (wording := wordings.get(relation.id)) is None:
            continue
        heads, datatype = kinds.ends[End(relation.id, "head")], datatypes[relation.id]
        can_compare = len(heads) == 1 and (kinds.kinds[heads[0]].name or not kinds.are_declared)
        if datatype and can_compare and len(relation.pairs) >= _FEWEST:
            party = _party(heads, kinds)
            quantities.append(
                describe_quantity(wording, relation.id, heads[0], party, datatype, reader, inflections)
            )
        # A text is a value, and may be named, too: people ask for the newest film, and for the films of 1995.
        if relation.written_as or relation.id not in {quantity.name for quantity in quantities}:
            links += _links(relation, wording, kinds, speaker)
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
        grammar=GRAMMAR,
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
    made = {
        head
        for relation in graph.relations
        if _is_made(wordings.get(relation.id))
        for head, _ in relation.pairs
    }
    for relation in graph.relations:
        wording = wordings.get(relation.id)
        heads = called.get(relation.id) or relation.domain
        # A dish that uses butter is no user.
        if wording is not None and not (
            _is_active(wording) and any(head in made for head, _ in relation.pairs)
        ):
            heads = heads or reader.noun_of_heads(wording)
        if heads:
            yield End(relation.id, "head"), heads
        if wording and (tails := reader.noun_of_tails(wording)):
            yield End(relation.id, "tail"), tails


def _is_made(wording: Wording | None) -> bool:
    return wording is not None and wording.shape == "verb" and wording.is_reversed and wording.word in MAKING


def _is_active(wording: Wording) -> bool:
    return wording.shape == "verb" and not wording.is_reversed


def _links(relation: ReadRelation, wording: Wording, kinds: Kinds, speaker: Speaker) -> Iterator[Link]:
    """A link from each kind of heads; one goes back only to heads of a single kind."""
    heads, tails = kinds.ends[End(relation.id, "head")], kinds.ends.get(End(relation.id, "tail"), ())
    held = _party(tails, kinds) if tails else _VALUE
    pairs = len(relation.pairs)
    per_head = pairs / len({head for head, _ in relation.pairs})
    per_tail = pairs / len({tail for _, tail in relation.pairs})
    for head in heads:
        to_tails, to_heads = speaker.link(wording, _party((head,), kinds), held, several=per_head >= _SEVERAL)
        goes_back = len(heads) == 1 and bool(tails)
        yield Link(
            relation.id,
            head,
            tails,
            forward=to_tails.named,
            heads=to_heads.clauses if goes_back else (),
            # What is the only tail of something is not described by that.
            tails_are=to_tails.clauses if tails and per_head > 1 else (),
            back=to_heads.named if goes_back else (),
            asks=to_tails.asked,
            asks_back=to_heads.asked if goes_back else (),
            same_tail=to_tails.sharing if goes_back else (),
            same_head=to_heads.sharing if goes_back else (),
            whether=to_tails.whether,
            whether_back=to_heads.whether,
            several=per_head >= _SEVERAL,
            several_back=per_tail >= _SEVERAL,
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
        for words in (*quantity.extremes.values(), *quantity.compared.values(), quantity.asks)
        for word in words
    )
    for quantity in quantities:

        def clear(said: Mapping[T, tuple[str, ...]], head: str = quantity.head) -> dict[T, tuple[str, ...]]:
            return {of: tuple(word for word in words if uses[head, word] == 1) for of, words in said.items()}

        # Records name the quantity; without any, words that may be misunderstood are all there is.
        if quantity.records:
            asks = clear({"": quantity.asks})[""]
            quantity = replace(
                quantity, extremes=clear(quantity.extremes), compared=clear(quantity.compared), asks=asks
            )
        yield quantity


def _rich(kinds: Kinds, links: list[Link]) -> tuple[str, ...]:
    """The kinds about which at least two things can be said."""
    said: Counter[str] = Counter()
    for link in links:
        said.update([link.head] if link.heads else [])
        said.update(link.tails if len(link.tails) == 1 and link.tails_are else [])
    return tuple(key for key, count in said.items() if count > 1 and key in set(kinds.of.values()))


def _leads_to(datatype: str) -> LeadsTo:
    if not datatype:
        return ""
    return "dates" if datatype in DATE_TYPES else "numbers"


def _datatype(relation: ReadRelation) -> str:
    """The datatype of a relation to numbers, or to dates of one type; otherwise ""."""
    counts = Counter(tail.datatype if isinstance(tail, Literal) else "" for _, tail in relation.pairs)
    are_comparable = VALUE_TYPES.issuperset(counts) and (len(counts) == 1 or DATE_TYPES.isdisjoint(counts))
    return counts.most_common(1)[0][0] if are_comparable else ""
