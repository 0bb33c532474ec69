"""Walks along the relations of a world: the set that is reached, as a form and in words."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kbqa.datasets.world.agreement import fill, fits
from kbqa.datasets.world.facts import Facts, Node
from kbqa.datasets.world.schema import Link, Quantity
from kbqa.logical_forms.algebra import Entity, Expression, Join, Relation, entities
from kbqa.trajectory import Hop


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits of the sets of a form.

    Attributes:
        answers: members of the whole form.
        members: members of an intermediate set.
        lookups: one-hop look-ups for a path, one per node on the way.
        returns: whether a path may go straight back (to the films of a film's director), and sets may
            contain the entities that the form names; these are then left out.
        hops: of a path, each drawn as often as it stands here.
        within: share of the hops that are drawn from the relations within a kind ("the mother of the mother
            of X"), where there are any.
    """

    answers: int = 5
    members: int = 12
    lookups: int = 4
    returns: bool = False
    hops: tuple[int, ...] = (1, 2, 3)
    within: float = 0.0


@dataclass(frozen=True, slots=True)
class Reached:
    """The end of a path so far.

    Attributes:
        nodes: its set.
        phrase: describes the set.
        lookups: that the hops took.
        question: the text, if it is no pattern around the phrase.
        sharing: phrases for what shares these nodes with where the last hop came from.
        is_plural: whether the phrase is about several things.
        whether: yes/no questions whether `{e}` is in the set.
    """

    form: Entity | Expression
    nodes: tuple[Node, ...]
    phrase: str
    path: tuple[Hop, ...] = ()
    lookups: int = 0
    question: str = ""
    sharing: tuple[str, ...] = ()
    is_plural: bool = False
    whether: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class _Said:
    """What a schema says of a hop; see `Link`."""

    named: tuple[str, ...]
    asks: tuple[str, ...]
    sharing: tuple[str, ...]
    whether: tuple[str, ...]
    several: bool


class Walker:
    """Draws walks over facts; a walk that would break the limits is None."""

    def __init__(self, facts: Facts, rng: random.Random, limits: Limits) -> None:
        self._facts, self._rng, self._schema, self._limits = facts, rng, facts.schema, limits

    def start(self, entity: str) -> Reached:
        """The beginning of a walk."""
        return Reached(Entity(entity), (entity,), self.mention(entity))

    def some(self, kind: str) -> Reached:
        """The beginning at some entity of a kind."""
        return self.start(self._rng.choice(self._facts.members[kind]))

    def walk(self, reached: Reached | None, hops: int) -> Reached | None:
        """Continue for a number of hops, in directions that the graph has."""
        for _ in range(hops):
            if reached is None:
                return None
            kinds = {self._facts.kinds[node] for node in reached.nodes if isinstance(node, str)}
            if len(kinds) != 1:
                return None
            (kind,) = kinds
            forward = [link for link in self._schema.links if link.head == kind and link.forward]
            back = [
                link for link in self._schema.links if link.tails == (kind,) and (link.heads or link.back)
            ]
            valued = [quantity for quantity in self._schema.quantities if quantity.head == kind]
            steps: list[Link | Quantity] = [*forward, *back, *valued]
            if not steps:
                return None
            within = [link for link in (*forward, *back) if (link.head, *link.tails) == (kind, kind)]
            if within and self._limits.within > 0 and self._rng.random() < self._limits.within:
                steps = [*within]
            step = self._rng.choice(steps)
            if isinstance(step, Link) and (step.head != kind or (step in back and self._coin())):
                reached = self.step_back(reached, step)
            else:
                reached = self.step(reached, step)
        return reached

    def step(self, reached: Reached, step: Link | Quantity) -> Reached | None:
        """Step to the tails of a link, or to the values of a quantity."""
        found = (tail for node in reached.nodes for tail in self.tails(node, step.name))
        nodes: dict[Node, None] = dict.fromkeys(found)
        relation = Relation(self._schema.iri(step.name), inverse=True)
        sharing, several = (step.same_tail, step.several) if isinstance(step, Link) else ((), False)
        said = _Said(step.forward, step.asks, sharing, step.whether, several)
        return self._reach(reached, relation, nodes, said)

    def step_back(self, reached: Reached, link: Link) -> Reached | None:
        """Step to the heads of a link."""
        name, kind = self._schema.iri(link.name), self._schema.kinds[link.head]
        found = (head for node in reached.nodes for head in self._facts.heads.get((node, name), ()))
        nodes: dict[Node, None] = dict.fromkeys(found)
        noun = f"{{a:{kind.singular}|{kind.plural}}}" if self._schema.grammar.agrees else kind.plural
        phrases = (*(f"the {noun} {clause}" for clause in link.heads), *link.back)
        said = _Said(phrases, link.asks_back, link.same_head, link.whether_back, link.several_back)
        return self._reach(reached, Relation(name), nodes, said)

    def _reach(
        self, reached: Reached, relation: Relation, nodes: dict[Node, None], said: _Said
    ) -> Reached | None:
        if self._limits.returns:
            for topic in (
                entities(reached.form) if not isinstance(reached.form, Entity) else (reached.form.id,)
            ):
                nodes.pop(topic, None)
        hop = Hop(relation.name, inverse=not relation.inverse)
        turns_back = reached.path and reached.path[-1] == Hop(hop.relation, not hop.inverse)
        lookups = reached.lookups + len(reached.nodes)
        if not nodes or (turns_back and not self._limits.returns) or lookups > self._limits.lookups:
            return None
        is_plural = said.several or len(nodes) > 1

        def filled(patterns: Sequence[str]) -> list[str]:
            return [
                fill(one, reached.phrase, is_plural=reached.is_plural, answers=is_plural)
                for one in patterns
                if fits(one, is_name=not reached.path)
            ]

        phrase = self._rng.choice(filled(said.named))
        question, whether = "", tuple(filled(said.whether))
        asks = filled(said.asks)
        if asks and self._rng.random() < self._schema.grammar.direct:
            question = self._rng.choice(asks)
        if turns_back and reached.sharing and self._coin():
            phrase, question, whether = self._rng.choice(reached.sharing), "", ()
            is_plural = True
        path = (*reached.path, hop)
        return Reached(
            Join(relation, reached.form),
            tuple(nodes),
            phrase,
            path,
            lookups,
            question,
            tuple(filled(said.sharing)),
            is_plural,
            whether,
        )

    def mention(self, entity: str) -> str:
        """The entity's name, with its kind if other entities share the name."""
        name = self._facts.names[entity]
        alone = len(self._facts.bearers[name]) == 1
        return name if alone else f"the {self._schema.kinds[self._facts.kinds[entity]].singular} {name}"

    def tails(self, node: Node, relation: str) -> list[Node]:
        """Where a relation of the schema leads from a node."""
        return self._facts.tails.get((node, self._schema.iri(relation)), []) if isinstance(node, str) else []

    def _coin(self) -> bool:
        return self._rng.random() < 0.5
