"""Domains: schemas of everyday fields of knowledge, with the ways in which people ask about them.

Invented schemas (`world.inventing`) teach a policy to read words that it has not seen. They are asked
about by patterns, and nobody talks in patterns. In a domain each relation has names, phrases and questions
that were written for it. A schema that is drawn from a domain has some of its relations, some of the
phrases, and a name and a direction for each relation: one graph says that a doctor works at a hospital,
another that a hospital employs the doctor.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from importlib import resources
from typing import Annotated, Literal, Self, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError, model_validator

from kbqa.datasets.world.grammar import CLAUSE, CLAUSES, HOW_MANY, ONE, RECORDS, SEVERAL, SUPERLATIVES
from kbqa.datasets.world.schema import Decoy, EntityKind, Grammar, Link, Quantity, Schema
from kbqa.datasets.world.styles import STYLES, class_name, relation_name
from kbqa.errors import DatasetError
from kbqa.logical_forms.algebra import Comparator, Extreme

_RELATIONS_KEPT, _PHRASES_KEPT = (0.6, 1.0), (0.4, 1.0)  # shares of them that a schema has
_FEWEST = 2  # phrases of a sort
_REVERSED = 0.3  # share of the relations that are told from tail to head
_RICH = 3  # relations that a kind with many facts has
_SPREAD = (0.6, 1.5)  # of the number of a kind's members

_OF = re.compile(r"the (?P<owned>[a-z]+(?: [a-z]+)?) of \{\}")

_Relation = TypeVar("_Relation", Link, Quantity)

Phrase = Annotated[str, StringConstraints(pattern=r"^[^{}?]*\{\}[^{}?]*$")]
"""A text with one `{}` for its subject."""
Name = Annotated[str, StringConstraints(pattern=r"^[^{}]+$")]
Phrases = Annotated[tuple[Phrase, ...], Field(min_length=_FEWEST)]
Names = Annotated[tuple[Name, ...], Field(min_length=1)]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DomainKind(_Part):
    """A class of entities; `names` says how its members are called (`world.names`)."""

    one: Name
    many: Name
    names: Name
    count: Annotated[int, Field(ge=4)]


class DomainRelation(_Part):
    """A relation between two kinds.

    Attributes:
        names, reversed_names: for the relation from head to tail, and for the same from tail to head.
        per_head: minimum and maximum number of tails of a head.
        share: share of the heads that have the relation.
        tail_of, ask_tail: phrases and questions for the tails of a head.
        head_of, ask_head: for the heads of a tail.
        heads, tails_are: clauses that describe the heads of a tail, and the tails of a head.
    """

    head: str
    tail: str
    names: Names
    reversed_names: Names
    per_head: tuple[int, int] = (1, 1)
    share: Annotated[float, Field(gt=0, le=1)] = 1.0
    tail_of: Phrases
    ask_tail: Phrases
    head_of: Phrases
    ask_head: Phrases
    heads: Phrases
    tails_are: Phrases


class DomainQuantity(_Part):
    """A number or a date that the members of a kind have; see `Quantity`."""

    head: str
    names: Names
    datatype: Literal["integer", "decimal", "date", "gYear"]
    low: int
    high: int
    share: Annotated[float, Field(gt=0, le=1)] = 0.95
    value_of: Phrases
    ask_value: Phrases
    most: Names
    least: Names
    most_records: Names
    least_records: Names
    gt: Phrases
    lt: Phrases
    ge: Phrases
    le: Phrases


class Domain(_Part):
    """The kinds, relations and quantities of a field of knowledge."""

    kinds: Mapping[str, DomainKind]
    relations: tuple[DomainRelation, ...]
    quantities: tuple[DomainQuantity, ...]

    @model_validator(mode="after")
    def _only_known_kinds(self) -> Self:
        used = {kind for relation in self.relations for kind in (relation.head, relation.tail)}
        used |= {quantity.head for quantity in self.quantities}
        if unknown := sorted(used - self.kinds.keys()):
            raise ValueError(f"no such kind: {', '.join(unknown)}")
        return self


@cache
def domains() -> Mapping[str, Domain]:
    """All domains, by name.

    Raises:
        DatasetError: a file is not a domain.
    """
    files = sorted(resources.files(__name__).iterdir(), key=lambda file: file.name)
    names = [file for file in files if file.name.endswith(".yaml")]
    return {
        (name := file.name.removesuffix(".yaml")): read_domain(name, file.read_text("utf-8"))
        for file in names
    }


def read_domain(name: str, text: str) -> Domain:
    """Read a domain from YAML.

    Raises:
        DatasetError: it is not a domain; the message says why.
    """
    try:
        return Domain.model_validate(yaml.safe_load(text))
    except (yaml.YAMLError, ValidationError) as error:
        raise DatasetError(f"domain {name}: {error}") from error


def draw_schema(domain: Domain, seed: int) -> Schema:
    """A schema with some of a domain's relations and phrases; the same seed gives the same schema."""
    return _Drawing(domain, random.Random(f"domain/{seed}")).schema()


class _Drawing:
    """One schema in the making."""

    def __init__(self, domain: Domain, rng: random.Random) -> None:
        self._domain, self._rng = domain, rng
        self._style = rng.choice(STYLES)
        self._taken: set[str] = set()  # names of relations

    def schema(self) -> Schema:
        rng, domain = self._rng, self._domain
        drawn = rng.sample(domain.relations, round(len(domain.relations) * rng.uniform(*_RELATIONS_KEPT)))
        kinds = {
            key: EntityKind(
                class_name(kind.one), kind.one, kind.many, int(kind.count * rng.uniform(*_SPREAD)), kind.names
            )
            for key, kind in domain.kinds.items()
        }
        links = tuple(map(self._link, drawn))
        facts = Counter(kind for link in links for kind in (link.head, *link.tails))
        rich = [kind for kind, count in facts.items() if count >= _RICH]
        return Schema(
            namespace=f"http://{rng.choice([*domain.kinds])}.example/{rng.choice(('', 'kg/', 'ns#', 'id/'))}",
            kinds=kinds,
            links=links,
            quantities=tuple(map(self._quantity, domain.quantities)),
            grammar=Grammar(
                one=self._some(ONE),
                several=self._some(SEVERAL),
                how_many=self._some(HOW_MANY),
                clause=self._some(CLAUSE),
                clauses=CLAUSES,
                direct=rng.choice((0.5, 0.7, 0.9)),
                superlatives=self._some(SUPERLATIVES),
                records=self._some(RECORDS),
            ),
            rich=tuple(rich or [facts.most_common(1)[0][0]]),
            decoys=self._decoys(links),
            says_class=True,
        )

    def _link(self, relation: DomainRelation) -> Link:
        kinds = self._domain.kinds
        head, tail = kinds[relation.head], kinds[relation.tail]
        ends = {relation.head, relation.tail}
        is_only = sum({other.head, other.tail} == ends for other in self._domain.relations) == 1
        told = Link(
            "",
            relation.head,
            (relation.tail,),
            forward=self._some(_with_genitives(relation.tail_of)),
            heads=self._some(relation.heads),
            tails_are=self._some(relation.tails_are),
            back=self._some(_with_genitives(relation.head_of)),
            asks=self._some(relation.ask_tail),
            asks_back=self._some(relation.ask_head),
            same_tail=(f"the {head.many} with the same {tail.one} as {{}}",) if is_only else (),
            same_head=(f"the {tail.many} with the same {head.one} as {{}}",) if is_only else (),
            count=relation.per_head,
            share=relation.share,
        )
        if self._rng.random() >= _REVERSED:
            return self._named(told, relation.names)
        return self._named(_turned(told), relation.reversed_names)

    def _quantity(self, quantity: DomainQuantity) -> Quantity:
        return self._named(
            Quantity(
                "",
                quantity.head,
                quantity.datatype,
                quantity.low,
                quantity.high,
                self._some(quantity.value_of),
                {Extreme.MAX: quantity.most, Extreme.MIN: quantity.least},
                {one: self._some(getattr(quantity, one.value)) for one in Comparator},
                share=quantity.share,
                records={Extreme.MAX: quantity.most_records, Extreme.MIN: quantity.least_records},
                asks=self._some(quantity.ask_value),
            ),
            quantity.names,
        )

    def _named(self, relation: _Relation, names: Sequence[str]) -> _Relation:
        """The relation with a name that no other one has."""
        words = self._rng.choice(names)
        name = relation_name(self._style, words, relation.head)
        while name in self._taken:
            words = f"{relation.head} {words}"
            name = relation_name(self._style, words, relation.head)
        self._taken.add(name)
        if self._style != "opaque":
            return replace(relation, name=name)
        number = 10 + len(self._taken) * 37 + self._rng.randrange(37)
        return replace(relation, name=f"P{number}", label=words)

    def _decoys(self, links: Sequence[Link]) -> tuple[Decoy, ...]:
        """A relation that states the reverse of another for some entities, or none."""
        link = self._rng.choice(links)
        if self._style == "opaque" or self._rng.random() < 0.5:
            return ()
        name = relation_name(self._style, self._domain.kinds[link.head].many, link.tails[0])
        return () if name in self._taken else (Decoy(name, link.name),)

    def _some(self, phrases: Sequence[str]) -> tuple[str, ...]:
        """Some of the phrases, at least two."""
        kept = round(len(phrases) * self._rng.uniform(*_PHRASES_KEPT))
        return tuple(self._rng.sample(phrases, max(_FEWEST, kept)))


def _with_genitives(phrases: Sequence[str]) -> list[str]:
    """Phrases, and "{} 's maker" for "the maker of {}"."""
    said = (_OF.fullmatch(phrase) for phrase in phrases)
    return [*phrases, *(f"{{}} 's {found['owned']}" for found in said if found is not None)]


def _turned(link: Link) -> Link:
    """The relation that leads from the tails to the heads."""
    (tail,) = link.tails
    return replace(
        link,
        head=tail,
        tails=(link.head,),
        forward=link.back,
        back=link.forward,
        heads=link.tails_are,
        tails_are=link.heads,
        asks=link.asks_back,
        asks_back=link.asks,
        same_tail=link.same_head,
        same_head=link.same_tail,
        count=(1, 4),
    )
