"""Computes the members of a logical form directly from the facts, for the gold answers.

This is independent of SPARQL, so that each can be checked against the other.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Collection, Iterable
from functools import partial
from operator import attrgetter

from kbqa.datasets.world.facts import Facts, Node, comparable
from kbqa.logical_forms.algebra import (
    NOW,
    XSD,
    And,
    Ask,
    Class,
    Comparator,
    Comparison,
    Count,
    Expression,
    Extreme,
    Join,
    Literal,
    Path,
    Relation,
    Superlative,
    Timed,
)
from kbqa.logical_forms.algebra import Entity as Named
from kbqa.logical_forms.compiler import interval


def members(
    facts: Facts, expression: Expression, *, apart: Collection[str] = (), now: str = "2015-08-10"
) -> set[Node]:
    """All members of an expression; for COUNT, the number as a literal, and for ASK true or false.

    Args:
        apart: entities that no join leads to.
        now: the day that NOW means.
    """
    within = partial(members, facts, apart=apart, now=now)
    match expression:
        case Class(name):
            return set(facts.members[facts.schema.kind_of[name]])
        case And(left, right):
            return within(left) & within(right)
        case Join(relation, source):
            if isinstance(source, Named | Literal):
                nodes: Iterable[Node] = [source.id if isinstance(source, Named) else source]
            else:
                nodes = within(source)
            return _related(facts, relation, nodes).difference(apart)
        case Superlative(extreme, source, path):
            last = path[-1].name
            valued = [(m, facts.value(v, last)) for m in within(source) for v in _values(facts, m, path)]
            choose = max if extreme is Extreme.MAX else min
            best = choose((comparable(value) for _, value in valued), default=None)
            return {member for member, value in valued if comparable(value) == best}
        case Comparison(comparator, path, bound):
            (relation,) = path
            ordered = facts.ordered(relation.name)
            cut = bisect_left if comparator in (Comparator.LT, Comparator.GE) else bisect_right
            at = cut(ordered, comparable(bound), key=attrgetter("key"))
            is_below = comparator in (Comparator.LT, Comparator.LE)
            return {one.head for one in (ordered[:at] if is_below else ordered[at:])}
        case Timed(source, relation, time):
            day = now if time == NOW else time
            return {m for m in within(source) if _holds(facts, m, relation.name, day)}
        case Count(source):
            return {Literal(str(len(within(source))), XSD + "integer")}
        case Ask(source, node):
            is_member = (node.id if isinstance(node, Named) else node) in within(source)
            return {Literal(str(is_member).lower(), XSD + "boolean")}


def _related(facts: Facts, relation: Relation, nodes: Iterable[Node]) -> set[Node]:
    """All x of `x relation node`, or of `node relation x` if the relation is inverse."""
    found: set[Node] = set()
    for node in nodes:
        if not relation.inverse:
            found.update(facts.heads.get((node, relation.name), ()))
        elif isinstance(node, str):
            found.update(facts.tails.get((node, relation.name), ()))
    return found


def _values(facts: Facts, member: Node, path: Path) -> set[Node]:
    """The nodes at the end of a path that starts at the member."""
    reached: set[Node] = {member}
    for relation in path:
        reached = _related(facts, Relation(relation.name, not relation.inverse), reached)
    return reached


def _holds(facts: Facts, member: Node, begins: str, time: str) -> bool:
    """Whether an interval includes a day, month or year; a missing begin or end means that it is open."""
    starts, ends = (_values(facts, member, (Relation(name),)) for name in interval(begins))
    begun = not starts or any(str(comparable(start))[: len(time)] <= time for start in starts)
    return begun and (not ends or any(str(comparable(end))[: len(time)] >= time for end in ends))
