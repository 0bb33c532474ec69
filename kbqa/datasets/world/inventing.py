"""Invents schemas: classes and relations that are drawn from a lexicon, with phrases of their own.

No two of them share more than chance: not what there is, not how it is called, not how one asks for it. A
policy that is trained on many of them has to read, since it cannot remember.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from kbqa.datasets.world.grammar import CLAUSE, CLAUSES, HOW_MANY, ONE, RECORDS, SEVERAL, SUPERLATIVES
from kbqa.datasets.world.lexicon import Inflections, Lexicon
from kbqa.datasets.world.measures import MEASURES, day, number
from kbqa.datasets.world.phrases import Party, Phrases, Phrasing, plural
from kbqa.datasets.world.schema import Decoy, EntityKind, Grammar, Link, Quantity, Schema, Tenure
from kbqa.datasets.world.styles import STYLES, class_name, relation_name

_FIELDS: Mapping[str, tuple[str, ...]] = {
    "person": ("person",),
    "thing": ("artifact", "object", "food", "plant", "substance"),
    "place": ("location",),
    "group": ("group",),
    "event": ("event", "act"),
    "idea": ("communication", "cognition", "attribute", "state", "possession"),
    "amount": ("attribute", "possession", "quantity"),
}
"""Sort of a class → semantic fields of its name."""
_ROLES = (
    *("person", "communication", "attribute", "location", "group", "cognition", "possession"),
    *("relation", "state", "artifact", "event", "act", "feeling", "substance"),
)
# How the members of a class are called, by its sort; see `world.names`.
_LIKE = {
    "person": ("person",),
    "thing": ("film", "book", "thing"),
    "place": ("city", "country"),
    "group": ("company", "university"),
    "event": ("event", "award"),
    "idea": ("genre", "language", "profession", "religion", "thing"),
}
_ADJECTIVES = ("main", "first", "former", "official", "primary", "current", "original", "local", "old", "new")
_TERSE = 0.3  # share of the worlds
_CLOSE = (0.0, 0.2, 0.6)  # shares of the relations of a kind to itself; each world has one of them
_COMPOUND = 0.12  # share of the classes whose name has two words
_FREQUENCY = 5  # occurrences that a word must have in WordNet's texts

_TERMS = (
    *("the {N} of {{}} {{when}}", "{{}} 's {N} {{when}}", "who was the {N} of {{}} {{when}}"),
    *("who was {{}} 's {N} {{when}}", "the one who was {N} of {{}} {{when}}"),
)
_TERMS_BACK = (
    *("the {Hs} with {{}} as {N} {{when}}", "the {Hs} of which {{}} was {N} {{when}}"),
    *("the {H} that had {{}} as {N} {{when}}", "whose {N} was {{}} {{when}}"),
)
_INTERVALS = (("from", "to"), ("from_date", "to_date"), ("start_date", "end_date"))
_NODES = ("term", "period", "tenure", "service", "engagement", "stint", "entry", "record")


@dataclass(frozen=True, slots=True)
class _Named:
    """A relation's words, from its holder or turned round ("has author", "author of")."""

    words: str
    is_reversed: bool


class Inventor:
    """Draws schemas from a lexicon; the same seed gives the same schema."""

    def __init__(self, lexicon: Lexicon, inflections: Inflections | None = None) -> None:
        self._lexicon, self._inflections = lexicon, inflections or Inflections()
        self._names = {sort: lexicon.nouns(*fields, frequency=_FREQUENCY) for sort, fields in _FIELDS.items()}
        self._roles = lexicon.nouns(*_ROLES, frequency=_FREQUENCY)
        self._verbs = lexicon.transitive_verbs(_FREQUENCY)
        self._relatives = lexicon.below("relative", _FREQUENCY)

    def schema(self, seed: int) -> Schema:
        """A schema of five to twelve classes and six to thirty relations."""
        return _Invention(self, random.Random(f"schema/{seed}")).schema()


class _Invention:
    """One schema in the making."""

    def __init__(self, inventor: Inventor, rng: random.Random) -> None:
        self._lexicon, self._inflect, self._rng = inventor._lexicon, inventor._inflections, rng
        self._nouns, self._roles, self._verbs = inventor._names, inventor._roles, inventor._verbs
        self._relatives = inventor._relatives
        self._style = rng.choice(STYLES)
        faithful = rng.choice((0.3, 0.5, 0.7))
        self._terse = rng.random() < _TERSE
        self._phrasing = Phrasing(self._lexicon, self._inflect, rng, faithful=faithful, terse=self._terse)
        self._kinds: dict[str, EntityKind] = {}
        self._sorts: dict[str, str] = {}
        self._links: dict[str, Link] = {}
        self._taken: set[str] = set()  # names of relations

    def schema(self) -> Schema:
        rng = self._rng
        self._populate(rng.randint(5, 12))
        # A few kinds have most of the relations.
        hubs = rng.sample(list(self._kinds), rng.randint(1, 3))
        makers: Sequence[Callable[[str, str], None]] = (
            *(self._verb, self._verb, self._role, self._role, self._role, self._sort),
            *(self._circumstance, self._kinship),
        )
        wanted = rng.randint(6, 30)
        # Where a kind is related to itself, as people are, only the words say which relation comes first.
        close = rng.choice(_CLOSE)
        while len(self._links) < wanted:
            one = rng.choice(hubs if rng.random() < 0.6 else list(self._kinds))
            rng.choice(makers)(one, one if rng.random() < close else rng.choice(list(self._kinds)))
        self._mix()
        quantities = self._quantities(rng.randint(3, 8), hubs)
        tenures = tuple(self._tenure(rng.choice(list(self._sorts))) for _ in range(rng.randint(1, 2)))
        if self._style == "opaque":
            self._links = dict(self._hidden())
        decoys = self._decoys(rng.randint(1, 3))
        return Schema(
            namespace=f"http://{self._noun('thing')}.example/{rng.choice(('', 'kg/', 'ns#', 'id/'))}",
            kinds=self._kinds,
            links=tuple(self._links.values()),
            quantities=quantities,
            grammar=Grammar(
                one=self._few(ONE),
                several=self._few(SEVERAL),
                how_many=self._few(HOW_MANY),
                clause=self._few(CLAUSE),
                clauses=CLAUSES,
                direct=0.2 if self._terse else rng.choice((0.3, 0.5, 0.8)),
                superlatives=tuple(rng.sample(SUPERLATIVES, 4)),
                records=tuple(rng.sample(RECORDS, 3)),
            ),
            rich=tuple(hubs),
            tenures=tenures,
            decoys=decoys,
            namesakes=self._namesakes(),
            says_class=True,
        )

    def _populate(self, count: int) -> None:
        """Draw the classes; the first is one of people, and years are there for dates."""
        while len(self._kinds) < count:
            is_first = not self._kinds
            sort = "person" if is_first else self._rng.choice([*_LIKE, "person", "thing", "idea"])
            name = "person" if is_first and self._rng.random() < 0.5 else self._noun(sort)
            if self._rng.random() < _COMPOUND:
                name = f"{self._noun('thing')} {name}"
            if name not in self._kinds:
                like = self._rng.choice(_LIKE[sort])
                self._kinds[name] = EntityKind(
                    class_name(name), name, self._plural(name), self._rng.randint(12, 60), like
                )
                self._sorts[name] = sort
        self._kinds["year"] = EntityKind(class_name("year"), "year", "years", 40, "year")
        self._sorts["year"] = "time"

    def _verb(self, agent: str, patient: str) -> None:
        """A relation named after what its head does to its tail (directs), or the other way (directed by)."""
        verb = self._rng.choice(self._verbs)
        named = self._named_after_verb(verb)
        head, tail = (patient, agent) if named.is_reversed else (agent, patient)
        patients, agents = self._phrasing.of_verb(verb, self._party(agent), self._party(patient))
        to_tails, to_heads = (agents, patients) if named.is_reversed else (patients, agents)
        self._add(named.words, head, tail, to_tails, to_heads)

    def _role(self, holder: str, held: str) -> None:
        """A relation named after what its tail is for its head (author)."""
        is_person = self._sorts[held] == "person" and self._rng.random() < 0.7
        self._of_noun(self._rng.choice(self._nouns["person"] if is_person else self._roles), holder, held)

    def _kinship(self, *_: str) -> None:
        """A role between people."""
        people = [kind for kind, sort in self._sorts.items() if sort == "person"]
        noun = self._rng.choice(self._relatives) if self._rng.random() < 0.5 else self._noun("person")
        self._of_noun(noun, self._rng.choice(people), self._rng.choice(people))

    def _of_noun(self, noun: str, holder: str, held: str) -> None:
        noun = f"{self._rng.choice(_ADJECTIVES)} {noun}" if self._rng.random() < 0.1 else noun
        named = self._named_after_noun(noun, holder)
        to_held, to_holders = self._phrasing.of_role(noun, self._party(holder), self._party(held))
        self._add_role(named, holder, held, to_held, to_holders)

    def _sort(self, holder: str, held: str) -> None:
        """A relation named after the kind of its tails (genre)."""
        if holder != held:
            named = self._named_after_noun(held, holder)
            to_held, to_holders = self._phrasing.of_sort(held, self._party(holder), self._party(held))
            self._add_role(named, holder, held, to_held, to_holders)

    def _circumstance(self, holder: str, _: str) -> None:
        """The place or year in which something was done with the head (place of birth)."""
        places = [kind for kind, sort in self._sorts.items() if sort == "place"]
        is_time = not places or self._rng.random() < 0.5
        tail = "year" if is_time else self._rng.choice(places)
        noun = self._rng.choice(("year", "date", "time") if is_time else ("place", "location", tail))
        verb = self._rng.choice(self._verbs)
        done = self._inflect.of(verb, "VBN")
        base = self._lexicon.act(verb) or self._inflect.of(verb, "VBG")
        words = self._rng.choice(
            (f"{noun} of {base}", f"{done} {'on' if is_time else 'in'}", f"{noun} {done}", f"{base} {noun}")
        )
        adverb = "when" if is_time else "where"
        phrases = self._phrasing.of_circumstance(verb, base, self._party(holder), noun=noun, adverb=adverb)
        self._add(words, holder, tail, *phrases)

    def _mix(self) -> None:
        """Give some links a second kind of tails, so that a class can tell them apart."""
        names = [name for name, link in self._links.items() if link.tails_are and link.tails != ("year",)]
        for name in self._rng.sample(names, min(len(names), self._rng.randint(1, 3))):
            link = self._links[name]
            others = [kind for kind in self._kinds if kind not in (*link.tails, "year", link.head)]
            self._links[name] = replace(link, tails=(*link.tails, self._rng.choice(others)), count=(2, 4))

    def _quantities(self, count: int, hubs: Sequence[str]) -> tuple[Quantity, ...]:
        found: dict[str, Quantity] = {}
        while len(found) < count:
            head = self._rng.choice([*hubs, *hubs, *(kind for kind in self._kinds if kind != "year")])
            if self._rng.random() < 0.35:
                made = self._day(head)
            else:
                words = self._rng.choice([*MEASURES, self._noun("amount")])
                made = number(self._relation_name(words, head), words, head, self._rng)
            if made.name not in self._taken:
                self._taken.add(made.name)
                found[made.name] = made
        if self._style != "opaque":
            return tuple(found.values())
        numbers = self._rng.sample(range(2_000, 4_000), len(found))
        return tuple(
            replace(made, name=f"P{at}", label=made.name.replace("_", " "))
            for at, made in zip(numbers, found.values(), strict=True)
        )

    def _day(self, head: str) -> Quantity:
        verb, noun = self._rng.choice(self._verbs), self._rng.choice(("date", "day", "year"))
        done = self._inflect.of(verb, "VBN")
        base = self._lexicon.act(verb) or self._inflect.of(verb, "VBG")
        words = self._rng.choice(
            (f"{noun} of {base}", f"{base} {noun}", f"{done} on", f"{noun} {done}", done)
        )
        return day(
            self._relation_name(words, head), base=base, done=done, noun=noun, head=head, rng=self._rng
        )

    def _tenure(self, head: str) -> Tenure:
        """What somebody was for something, for a time."""
        people = [kind for kind, sort in self._sorts.items() if sort == "person"]
        noun, tail = self._noun("person"), self._rng.choice(people)
        node = f"{noun} {self._rng.choice(_NODES)}"
        self._kinds[node] = EntityKind(class_name(node), node, plural(node, self._inflect), 0, "")
        begins, _ = self._rng.choice(_INTERVALS)
        words = {"N": noun, "H": self._kinds[head].singular, "Hs": self._kinds[head].plural}
        held = self._rng.choice((noun, "holder", f"is {noun}", "who", "person"))
        return Tenure(
            node,
            self._own_name(node if self._rng.random() < 0.5 else f"{noun}s", head),
            head,
            self._own_name(held, node),
            tail,
            f"{'_'.join(node.split())}.{begins}",
            of_holder=tuple(pattern.format(**words) for pattern in self._rng.sample(_TERMS, 3)),
            of_held=tuple(pattern.format(**words) for pattern in self._rng.sample(_TERMS_BACK, 2)),
        )

    def _decoys(self, count: int) -> tuple[Decoy, ...]:
        links = [link for link in self._links.values() if len(link.tails) == 1 and link.heads]
        return tuple(
            Decoy(self._own_name(self._kinds[link.head].plural, link.tails[0]), link.name)
            for link in self._rng.sample(links, min(count, len(links)))
        )

    def _namesakes(self) -> Mapping[str, str]:
        """A kind or two with the names of an earlier one."""
        kinds = [kind for kind in self._sorts if kind != "year"]
        later = self._rng.sample(range(1, len(kinds)), min(2, len(kinds) - 1))
        return {kinds[at]: self._rng.choice(kinds[:at]) for at in later}

    def _named_after_verb(self, verb: str) -> _Named:
        inflect = self._inflect.of
        if self._rng.random() < 0.55:
            shapes = (inflect(verb, "VBZ"), verb, inflect(verb, "VBD"), f"has {inflect(verb, 'VBN')}")
            return _Named(self._rng.choice(shapes), is_reversed=False)
        done = inflect(verb, "VBN")
        agent = self._lexicon.agent(verb)
        shapes = (f"{done} by", f"is {done} by", done, *((agent, agent) if agent else ()))
        return _Named(self._rng.choice(shapes), is_reversed=True)

    def _named_after_noun(self, noun: str, holder: str) -> _Named:
        shape = self._rng.choice(
            ("{0}", "{0}", "{0}", "has {0}", "{0} of", "{1} {0}", "in {0}", "{0} name", "{0}")
        )
        return _Named(shape.format(noun, holder.split()[-1]), is_reversed=shape.endswith(" of"))

    def _add_role(self, named: _Named, holder: str, held: str, to_held: Phrases, to_holders: Phrases) -> None:
        if named.is_reversed:
            self._add(named.words, held, holder, to_holders, to_held)
        else:
            self._add(named.words, holder, held, to_held, to_holders)

    def _add(self, words: str, head: str, tail: str, to_tails: Phrases, to_heads: Phrases) -> None:
        """Add a link, unless there is a relation of that name."""
        name = self._relation_name(words, head)
        if name not in self._taken:
            self._taken.add(name)
            self._links[name] = Link(
                name,
                head,
                (tail,),
                forward=to_tails.named,
                heads=to_heads.clauses,
                tails_are=to_tails.clauses,
                back=to_heads.named,
                asks=to_tails.asked,
                asks_back=to_heads.asked,
                same_tail=to_tails.sharing,
                same_head=to_heads.sharing,
                count=(1, self._rng.choice((1, 1, 1, 2, 3, 4))),
                share=self._rng.choice((1.0, 1.0, 0.9, 0.7)),
                label=words if self._style == "opaque" else "",
            )

    def _hidden(self) -> Sequence[tuple[str, Link]]:
        """The links under numbers, as Wikidata's P57; only their labels say what they mean."""
        numbers = self._rng.sample(range(10, 2_000), len(self._links))
        named = zip(numbers, self._links.values(), strict=True)
        return [(f"P{at}", replace(link, name=f"P{at}")) for at, link in named]

    def _relation_name(self, words: str, head: str) -> str:
        return relation_name(self._style, words, head)

    def _own_name(self, words: str, head: str) -> str:
        """A name that no other relation has."""
        while (name := self._relation_name(words, head)) in self._taken:
            words = f"{self._rng.choice(_ADJECTIVES)} {words}"
        self._taken.add(name)
        return name

    def _party(self, kind: str) -> Party:
        return Party(self._kinds[kind], is_person=self._sorts[kind] == "person")

    def _noun(self, sort: str) -> str:
        return self._rng.choice(self._nouns[sort])

    def _plural(self, noun: str) -> str:
        return plural(noun, self._inflect)

    def _few(self, patterns: Sequence[str]) -> tuple[str, ...]:
        return tuple(self._rng.sample(patterns, self._rng.randint(4, max(4, len(patterns) * 2 // 3))))
