"""Draws questions of each operation about a world: a logical form, and a phrase for what it denotes.

The intermediate sets of a form have few members, so that an agent can read them. They contain none of
the entities that the form names, so that it does not matter whether these count as members.
"""

from __future__ import annotations

import random
from calendar import month_name
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace

from kbqa.datasets.world.agreement import fill, fits, with_entity
from kbqa.datasets.world.facts import Facts, Node, comparable
from kbqa.datasets.world.members import members
from kbqa.datasets.world.schema import Link, Tenure
from kbqa.datasets.world.walks import Limits, Reached, Walker
from kbqa.logical_forms.algebra import (
    NOW,
    And,
    Ask,
    Class,
    Comparator,
    Comparison,
    Count,
    Entity,
    Expression,
    Extreme,
    Join,
    Literal,
    Relation,
    Superlative,
    Timed,
    described,
    entities,
)
from kbqa.trajectory import Hop


@dataclass(frozen=True, slots=True)
class Draft:
    """A question before it is written.

    Attributes:
        phrase: describes what the form denotes; for COUNT, what is counted.
        path: the hops, if the form is a path from one entity.
        question: the text, if it is no pattern around the phrase; for ASK, it asks for the set.
        asked: mentions the node of ASK.
        is_plural: whether the phrase is about several things; None if only its words say so.
        is_person: whether it is about people.
        whether: yes/no questions of ASK, if the relation has some.
    """

    form: Expression
    phrase: str
    path: tuple[Hop, ...] = ()
    question: str = ""
    asked: str = ""
    is_plural: bool | None = None
    is_person: bool = False
    whether: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Constraint:
    """A statement about an entity: a set that contains it, and a clause for that set.

    Attributes:
        patterns: all clauses, of which `pattern` is one.
        subject: mentions what a clause is about.
        asks: questions for the set.
    """

    form: Expression
    pattern: str
    patterns: tuple[str, ...]
    subject: str
    asks: tuple[str, ...] = ()

    def clause(self, *, is_plural: bool = True) -> str:
        """The clause, after a noun in the singular or plural."""
        return fill(self.pattern, self.subject, answers=is_plural)


class Drawer:
    """Draws drafts; each operation's method returns None if its attempt gives no question."""

    def __init__(self, facts: Facts, rng: random.Random, limits: Limits | None = None) -> None:
        self._facts, self._rng, self._schema = facts, rng, facts.schema
        self._limits = limits or Limits()
        self._walker = Walker(facts, rng, self._limits)
        self._mixed = tuple(link for link in facts.schema.links if len(link.tails) > 1 and link.tails_are)
        self._named = [entity for entity in facts.names if facts.schema.kinds[facts.kinds[entity]].is_topic]
        shared = (bearers for bearers in facts.bearers.values() if len(bearers) > 1)
        self._namesakes = [entity for bearers in shared for entity in bearers]
        self._dead_ends = list(_dead_ends(facts))
        self._known: dict[Expression, set[Node]] = {}

    def draw(self, operation: str) -> Draft | None:
        """A draft that fits the limits, or None."""
        draft = OPERATIONS[operation](self)
        return draft if draft is not None and self._is_fit(draft.form) else None

    def path(self) -> Draft | None:
        return self._path(
            self._walker.start(self._rng.choice(self._named)), self._rng.choice(self._limits.hops)
        )

    def namesake(self) -> Draft | None:
        """A path from an entity that shares its name with another."""
        if not self._namesakes:
            return None
        return self._path(self._walker.start(self._rng.choice(self._namesakes)), self._rng.randint(1, 2))

    def dead_end(self) -> Draft | None:
        """A path that begins with a relation whose reverse sounds just as right, but finds nothing here."""
        if not self._dead_ends:
            return None
        entity, link = self._rng.choice(self._dead_ends)
        reached = self._walker.step_back(self._walker.start(entity), link)
        return self._path(reached, self._rng.randint(0, 1))

    def intersection(self) -> Draft | None:
        if not self._schema.rich:
            return None
        kind = self._rng.choice(self._schema.rich)
        constraints = self._constraints(self._rng.choice(self._facts.members[kind]), 2)
        if constraints is None:
            return None
        one, other = constraints
        both = And(one.form, other.form)
        if len(self._members(both)) == min(len(self._members(one.form)), len(self._members(other.form))):
            return None  # one of the constraints would be enough
        return self._several(both, kind, self._joined(one, other))

    def superlative(self) -> Draft | None:
        if not self._schema.quantities:
            return None
        quantity, extreme = self._rng.choice(self._schema.quantities), self._rng.choice(tuple(Extreme))
        kind = self._schema.kinds[quantity.head]
        patterns, words = self._schema.grammar.superlatives, quantity.extremes.get(extreme, ())
        if quantity.records and (not words or self._coin()):
            patterns, words = self._schema.grammar.records, quantity.records[extreme]
        most = self._rng.choice(words)
        path = (Relation(self._schema.iri(quantity.name)),)
        if self._rng.random() < 0.1 and kind.name:
            everything = Superlative(extreme, Class(self._schema.iri(kind.name)), path)
            if words is quantity.records.get(extreme):
                return self._one(everything, quantity.head, f"the {kind.singular} with the {most} of all")
            return self._one(everything, quantity.head, f"the {most} {kind.singular} of all")
        constraints = self._constraints(self._rng.choice(self._facts.members[quantity.head]), 1)
        if constraints is None:
            return None
        (constraint,) = constraints
        if len(self._members(constraint.form)) < 2:
            return None
        form = Superlative(extreme, constraint.form, path)
        if len(self._members(form)) == len(self._members(constraint.form)):
            return None
        clauses = constraint.clause(is_plural=False), constraint.clause()
        phrase = self._rng.choice(patterns).format(most, kind.singular, kind.plural, *clauses)
        return self._one(form, quantity.head, phrase)

    def comparison(self) -> Draft | None:
        if not self._schema.quantities:
            return None
        quantity = self._rng.choice(self._schema.quantities)
        phrases = {comparator: said for comparator, said in quantity.compared.items() if said}
        if not phrases:
            return None
        compared, entity = self._compared(quantity.name, phrases)
        if self._rng.random() < 0.3:
            form = compared.form
            if self._schema.says_class:
                form = And(Class(self._schema.class_of(quantity.head)), form)
            return self._several(form, quantity.head, compared.clause())
        constraints = self._constraints(entity, 1)
        if constraints is None:
            return None
        (constraint,) = constraints
        both = And(constraint.form, compared.form)
        if len(self._members(both)) == len(self._members(constraint.form)):
            return None
        return self._several(both, quantity.head, self._joined(constraint, compared))

    def count(self) -> Draft | None:
        if self._rng.random() < 0.4:
            draft = self._rng.choice((self.intersection, self.comparison))()
            return None if draft is None else Draft(Count(draft.form), draft.phrase)
        if not self._schema.rich:
            return None
        kind = self._rng.choice(self._schema.rich)
        constraints = self._constraints(self._rng.choice(self._facts.members[kind]), 1)
        if constraints is None:
            return None
        (constraint,) = constraints
        if len(self._members(constraint.form)) == 1 and self._rng.random() < 0.7:
            return None
        phrase = f"the {self._schema.kinds[kind].plural} {constraint.clause()}"
        return Draft(Count(constraint.form), phrase, question=self._how_many(kind, constraint))

    def time(self) -> Draft | None:
        """What was held, or who held it, at a time; the answer differs at other times."""
        if not self._schema.tenures:
            return None
        tenure = self._rng.choice(self._schema.tenures)
        holder = self._rng.choice(self._facts.members[tenure.head])
        node = self._rng.choice(self._facts.tails[holder, self._schema.iri(tenure.holder)])
        assert isinstance(node, str)
        holds, held = Relation(self._schema.iri(tenure.holder)), Relation(self._schema.iri(tenure.held))
        begins = Relation(self._schema.iri(tenure.begins))
        moment, when = self._moment(node, tenure)
        if self._rng.random() < 0.5:
            whole: Expression = Join(Relation(holds.name, inverse=True), Entity(holder))
            form = Join(Relation(held.name, inverse=True), Timed(whole, begins, moment))
            known, phrases = holder, tenure.of_holder
        else:
            (known,) = (str(node) for node in self._facts.tails[node, held.name])
            whole = Join(held, Entity(known))
            form, phrases = Join(holds, Timed(whole, begins, moment)), tenure.of_held
        if len(self._members(Timed(whole, begins, moment))) == len(self._members(whole)):
            return None
        return Draft(form, self._rng.choice(phrases).format(self._walker.mention(known), when=when))

    def type(self) -> Draft | None:
        """The members of a class within a set that has other members, too."""
        if not self._mixed:
            return None
        link = self._rng.choice(self._mixed)
        onward = [step for step in self._schema.links if step.tails == (link.head,) and step.forward]
        step = self._rng.choice(onward) if onward and self._coin() else None
        start = self._walker.some(link.head if step is None else step.head)
        reached = start if step is None else self._walker.step(start, step)
        if reached is None:
            return None
        nodes = {tail for node in reached.nodes for tail in self._walker.tails(node, link.name)}
        kind = self._rng.choice(link.tails)
        some = {node for node in nodes if self._facts.kinds[str(node)] == kind}
        if not some or some == nodes:
            return None
        mixed = Join(Relation(self._schema.iri(link.name), inverse=True), reached.form)
        is_name = not reached.path
        pattern = self._rng.choice([one for one in link.tails_are if fits(one, is_name=is_name)])
        clause = fill(pattern, reached.phrase, is_plural=reached.is_plural, answers=True)
        return self._several(And(Class(self._schema.class_of(kind)), mixed), kind, clause)

    def boolean(self) -> Draft | None:
        """Whether an entity is where a path leads; in half of the questions it is not."""
        reached = self._path(self._walker.start(self._rng.choice(self._named)), self._rng.choice((1, 1, 2)))
        if reached is None:
            return None
        source = reached.form
        found = sorted(str(node) for node in self._members(source) if node in self._facts.names)
        if not found:
            return None
        node = self._rng.choice(found)
        if self._coin():
            apart = {*found, *entities(source)}
            others = [one for one in self._facts.members[self._facts.kinds[node]] if one not in apart]
            if not others:
                return None
            node = self._rng.choice(others)
        mention = self._walker.mention(node)
        whether = tuple(with_entity(one, mention) for one in reached.whether)
        return replace(reached, form=Ask(source, Entity(node)), path=(), asked=mention, whether=whether)

    # Building blocks of the operations

    def _path(self, reached: Reached | None, hops: int) -> Draft | None:
        """The set to which a walk leads that goes on for a number of hops."""
        reached = self._walker.walk(reached, hops)
        if reached is None or isinstance(reached.form, Entity):
            return None
        kinds = {self._facts.kinds[node] for node in reached.nodes if isinstance(node, str)}
        return Draft(
            reached.form,
            reached.phrase,
            reached.path,
            reached.question,
            is_plural=reached.is_plural if self._schema.grammar.agrees else None,
            is_person=bool(kinds) and all(self._schema.kinds[kind].is_person for kind in kinds),
            whether=reached.whether,
        )

    def _several(self, form: Expression, kind: str, clause: str) -> Draft:
        """The members of a kind that a clause describes."""
        described = self._schema.kinds[kind]
        is_plural = True if self._schema.grammar.agrees else None
        return Draft(
            form, f"the {described.plural} {clause}", is_plural=is_plural, is_person=described.is_person
        )

    def _one(self, form: Expression, kind: str, phrase: str) -> Draft:
        """A member of a kind; the phrase may be a question of its own."""
        if not self._schema.grammar.agrees:
            return Draft(form, phrase)
        question = phrase if phrase.startswith("which ") else ""
        is_person = self._schema.kinds[kind].is_person
        return Draft(form, phrase, question=question, is_plural=False, is_person=is_person)

    def _joined(self, one: _Constraint, other: _Constraint) -> str:
        """Both clauses after one noun in the plural, of one sort if clauses of one sort can be had."""
        if not self._schema.grammar.agrees:
            return f"{one.clause()} and {other.clause()}"
        pairs = [
            (left, right)
            for left in one.patterns
            for right in other.patterns
            if _sort_of(left) == _sort_of(right)
        ]
        left, right = self._rng.choice(pairs or [(one.pattern, other.pattern)])
        return f"{fill(left, one.subject, answers=True)} and {fill(right, other.subject, answers=True)}"

    def _how_many(self, kind: str, constraint: _Constraint) -> str:
        """A question for a number, made from one for the set; "" if it shall be a pattern around a phrase."""
        which = f"which {self._schema.kinds[kind].plural} "
        asks = [one for one in constraint.asks if one.startswith(which)]
        if not self._schema.grammar.agrees or not asks or self._coin():
            return ""
        asked = fill(self._rng.choice(asks), constraint.subject, answers=True)
        return f"how many {asked.removeprefix('which ')}"

    def _constraints(self, entity: str, count: int) -> list[_Constraint] | None:
        """Different statements about an entity whose sets hold only its kind; None if there are too few."""
        kind, found = self._facts.kinds[entity], []
        for link in self._schema.links:
            name = self._schema.iri(link.name)
            heads, tails_are = _of_names(link.heads), _of_names(link.tails_are)
            if link.head == kind and heads:
                for tail in self._walker.tails(entity, link.name):
                    found.append(
                        _Constraint(
                            Join(Relation(name), Entity(str(tail))),
                            self._rng.choice(heads),
                            heads,
                            self._walker.mention(str(tail)),
                            _of_names(link.asks_back),
                        )
                    )
            if link.tails == (kind,) and tails_are:
                for head in self._facts.heads.get((entity, name), ()):
                    found.append(
                        _Constraint(
                            Join(Relation(name, inverse=True), Entity(head)),
                            self._rng.choice(tails_are),
                            tails_are,
                            self._walker.mention(head),
                            _of_names(link.asks),
                        )
                    )
        return self._rng.sample(found, count) if len(found) >= count else None

    def _compared(self, name: str, phrases: Mapping[Comparator, tuple[str, ...]]) -> tuple[_Constraint, str]:
        """A comparison that only a few extreme values satisfy, and an entity with one of these values."""
        relation = self._schema.iri(name)
        valued = self._facts.ordered(relation)
        comparator = self._rng.choice([one for one in Comparator if one in phrases])
        if comparator in (Comparator.GE, Comparator.GT):
            valued = valued[::-1]
        few = self._rng.randint(1, min(self._limits.members, len(valued) - 1))
        # The bound is the last of these values, or for a strict comparison the next one.
        bound = valued[few if comparator in (Comparator.GT, Comparator.LT) else few - 1].value
        assert isinstance(bound, Literal)
        pattern = self._rng.choice(phrases[comparator])
        form = Comparison(comparator, (Relation(relation),), bound)
        constraint = _Constraint(form, pattern, phrases[comparator], bound.lexical)
        return constraint, self._rng.choice(valued[:few]).head

    def _moment(self, node: str, tenure: Tenure) -> tuple[str, str]:
        """A time during a tenure, and a phrase for it."""
        (begin,) = self._walker.tails(node, tenure.begins)
        end = self._walker.tails(node, tenure.ends)
        if not end and self._coin():
            return NOW, self._rng.choice(("now", "at present", "today"))
        first = str(comparable(begin))
        last = str(comparable(end[0])) if end else "2014-12-31"
        year = self._rng.randint(int(first[:4]), int(last[:4]))
        month = self._rng.randint(1, 12)
        exactness = self._rng.random()
        if exactness < 0.6:
            return str(year), self._rng.choice(("in {}", "during {}")).format(year)
        if exactness < 0.8:
            return f"{year}-{month:02}", f"in {month_name[month]} {year}"
        day = f"{year}-{month:02}-{self._rng.randint(1, 28):02}"
        return day, f"on {day}"

    def _members(self, form: Expression) -> set[Node]:
        found = self._known.get(form)
        if found is None:
            apart = entities(form) if self._limits.returns else ()
            found = self._known[form] = members(self._facts, form, apart=apart)
        return found

    def _coin(self) -> bool:
        return self._rng.random() < 0.5

    def _is_fit(self, form: Expression) -> bool:
        """Whether a form has few answers, and intermediate sets with few members and no named entity."""
        form = described(form)
        named = set(entities(form))
        sets = (self._members(part) for part in _sets(form))
        limits = self._limits
        fits = all(0 < len(found) <= limits.members and named.isdisjoint(found) for found in sets)
        return fits and len(self._members(form)) <= limits.answers


OPERATIONS: dict[str, Callable[[Drawer], Draft | None]] = {
    "path": Drawer.path,
    "intersection": Drawer.intersection,
    "superlative": Drawer.superlative,
    "comparison": Drawer.comparison,
    "count": Drawer.count,
    "time": Drawer.time,
    "type": Drawer.type,
    "namesake": Drawer.namesake,
    "dead end": Drawer.dead_end,
    "boolean": Drawer.boolean,
}
"""Operation, as in `Question.operation` → the method that draws a question of it."""


def _of_names(patterns: tuple[str, ...]) -> tuple[str, ...]:
    """The patterns whose subject may be a name."""
    return tuple(one for one in patterns if fits(one, is_name=True))


def _sort_of(clause: str) -> str:
    """Whether a clause is relative ("whose genre is"), begins with a preposition, or is a participle's."""
    first, _, _ = clause.partition(" ")
    if first in ("that", "who", "which", "whose"):
        return "relative"
    return "preposition" if first in ("with", "of", "in", "from", "by") else "participle"


def _dead_ends(facts: Facts) -> Iterator[tuple[str, Link]]:
    """(entity, link) for entities with heads of the link, but without facts of the reverse relation."""
    links = {link.name: link for link in facts.schema.links}
    for decoy in facts.schema.decoys:
        link = links[decoy.reverse_of]
        for (tail, relation), _ in facts.heads.items():
            said = relation == facts.schema.iri(link.name) and isinstance(tail, str)
            if said and (tail, facts.schema.iri(decoy.name)) not in facts.tails:
                yield str(tail), link


def _sets(form: Expression) -> Iterator[Expression]:
    """The form's intermediate sets, except whole classes, and the form itself."""
    match form:
        case Class():
            return
        case And(left, right):
            yield from _sets(left)
            yield from _sets(right)
        case Join(_, source) if not isinstance(source, Entity | Literal):
            yield from _sets(source)
        case Superlative() | Timed() | Count():
            yield from _sets(form.source)
    yield form
