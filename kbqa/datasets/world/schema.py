"""What a generated world is made of: classes, relations, quantities, and phrases for all of them.

A phrase has one `{}` for its subject, and may agree with it in number (`world.agreement`). Names of classes
and relations are without the schema's namespace.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

from kbqa.logical_forms.algebra import Comparator, Extreme
from kbqa.logical_forms.compiler import FormVocabulary, interval

TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
LABEL = "http://www.w3.org/2000/01/rdf-schema#label"

RDF_TERMS = FormVocabulary(
    entity=lambda id_: f"<{id_}>",
    relation=lambda id_: f"<{id_}>",
    ontology_class=lambda id_: f"<{id_}>",
    type_predicate=f"<{TYPE}>",
)
"""How the ids of a generated world, which are IRIs, are written in SPARQL."""


@dataclass(frozen=True, slots=True)
class EntityKind:
    """A class of entities.

    Attributes:
        name: id of the class; "" if the graph declares none.
        count: number of members in a world of size 1.
        like: kind of its members' names (`world.names.draw_names`); "" if they have none.
        is_topic: whether questions begin at its members.
        is_person: whether its members are asked for by "who".
    """

    name: str
    singular: str
    plural: str
    count: int
    like: str
    is_topic: bool = True
    is_person: bool = False


@dataclass(frozen=True, slots=True)
class Link:
    """A relation between entities.

    Attributes:
        tails: kinds of the tails; if there are several, a head may have tails of each.
        forward: phrases for the tails of a head.
        heads, tails_are: clauses that describe the heads of a tail, and the tails of a head.
        back: further phrases for the heads of a tail.
        asks, asks_back: questions for the tails of a head, and for the heads of a tail.
        same_tail, same_head: phrases for the heads that share a tail with a head, and for the tails that
            share a head with a tail.
        whether, whether_back: yes/no questions whether `{e}` is a tail of a head, or a head of a tail.
        several, several_back: whether a head usually has several tails, and a tail several heads.
        count: minimum and maximum number of tails per head.
        share: share of the heads that have the relation; for the others the fact is missing.
        label: of the relation, where its name says nothing.
    """

    name: str
    head: str
    tails: tuple[str, ...]
    forward: tuple[str, ...] = ()
    heads: tuple[str, ...] = ()
    tails_are: tuple[str, ...] = ()
    back: tuple[str, ...] = ()
    asks: tuple[str, ...] = ()
    asks_back: tuple[str, ...] = ()
    same_tail: tuple[str, ...] = ()
    same_head: tuple[str, ...] = ()
    whether: tuple[str, ...] = ()
    whether_back: tuple[str, ...] = ()
    several: bool = False
    several_back: bool = False
    count: tuple[int, int] = (1, 1)
    share: float = 1.0
    label: str = ""


@dataclass(frozen=True, slots=True)
class Quantity:
    """A relation to numbers or dates.

    Attributes:
        datatype: name of the type in XSD.
        low, high: bounds of the number, or of a date's year; for a float or a decimal in hundredths.
        forward: phrases for the value.
        asks: questions for the value.
        extremes: adjectives for the entities with the greatest and the smallest value ("tallest").
        records: what these entities have ("greatest height").
        compared: phrases for the entities whose value satisfies a comparison with a literal.
        share: share of the heads that have a value.
        whether: yes/no questions whether `{e}` is the value.
    """

    name: str
    head: str
    datatype: str
    low: int
    high: int
    forward: tuple[str, ...]
    extremes: Mapping[Extreme, tuple[str, ...]]
    compared: Mapping[Comparator, tuple[str, ...]]
    share: float = 0.95
    records: Mapping[Extreme, tuple[str, ...]] = field(default_factory=dict)
    label: str = ""
    asks: tuple[str, ...] = ()
    whether: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Tenure:
    """A fact with a begin and an end, represented by a node without a name (a CVT).

    Attributes:
        kind: of the nodes.
        holder: relation from the holder (an employee, a city) to the nodes.
        held: relation from the nodes to the other party (an employer, a mayor).
        begins: relation to the begin, one of a pair such as `….from` and `….to`.
        of_holder, of_held: phrases with `{when}` for the other party of a holder, and for the holders.
        also: further relation of the nodes, and the kind of its tails; None if there is none.
    """

    kind: str
    holder: str
    head: str
    held: str
    tail: str
    begins: str
    of_holder: tuple[str, ...]
    of_held: tuple[str, ...]
    also: tuple[str, str] | None = None

    @property
    def ends(self) -> str:
        return interval(self.begins)[1]


@dataclass(frozen=True, slots=True)
class Decoy:
    """A relation that states the reverse of a link, but only for a part of the entities.

    For the others it is a dead end: it sounds right, but finds nothing.
    """

    name: str
    reverse_of: str
    share: float = 0.5


@dataclass(frozen=True, slots=True)
class Grammar:
    """How a phrase becomes a question.

    Attributes:
        one, several, how_many, clause: patterns for questions about one thing, several things, a number,
            and a clause ("who wrote it").
        clauses: how phrases begin that are clauses.
        plurals: nouns in the plural that are no class, with which a phrase may begin.
        direct: share of the paths that end with a question of their own ("who wrote {}"), if there is one.
        superlatives, records: patterns of an adjective or a record, the kind in the singular and in the
            plural, and a clause for each of these.
        agrees: whether phrases agree in number. Phrases are then all noun phrases, "which" begins a
            superlative that is a question, clauses that are joined are of one sort, and what is counted may
            be asked for by the relation's own questions.
        people_one, people_several: as `one` and `several`, for people; the same if there are none.
        whether_one, whether_several: patterns of yes/no questions for an entity and a phrase, instead of
            those in `world.yes_no`.
    """

    one: tuple[str, ...]
    several: tuple[str, ...]
    how_many: tuple[str, ...]
    clause: tuple[str, ...]
    clauses: tuple[str, ...] = ("how ", "what ", "who ", "those who ")
    plurals: tuple[str, ...] = ()
    direct: float = 0.5
    superlatives: tuple[str, ...] = ("the {0} {1} {3}", "the {0} of the {2} {3}")
    records: tuple[str, ...] = ("the {1} {3} with the {0}", "the {1} with the {0} among the {2} {3}")
    agrees: bool = False
    people_one: tuple[str, ...] = ()
    people_several: tuple[str, ...] = ()
    whether_one: tuple[str, ...] = ()
    whether_several: tuple[str, ...] = ()


@dataclass(frozen=True)
class Schema:
    """The classes and relations of a world.

    Attributes:
        kinds: key → class; relations refer to classes by key.
        rich: kinds with many facts.
        namesakes: kind → the kind from which some of its members take their names.
        says_class: whether a comparison without anything else is one of the members of a class.
    """

    namespace: str
    kinds: Mapping[str, EntityKind]
    links: tuple[Link, ...]
    quantities: tuple[Quantity, ...]
    grammar: Grammar
    rich: tuple[str, ...]
    tenures: tuple[Tenure, ...] = ()
    decoys: tuple[Decoy, ...] = ()
    namesakes: Mapping[str, str] = field(default_factory=dict)
    says_class: bool = False

    def iri(self, name: str) -> str:
        return self.namespace + name

    def class_of(self, kind: str) -> str:
        """The id of a kind's class."""
        return self.iri(self.kinds[kind].name)

    @cached_property
    def kind_of(self) -> Mapping[str, str]:
        """Id of a class → its key."""
        return {self.class_of(key): key for key, kind in self.kinds.items() if kind.name}
