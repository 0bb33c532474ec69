"""Facts by which an entity is a member of a logical form, for evidence that people read.

    (JOIN (R born_in) (JOIN (R directed_by) Heat))     Chicago: Heat directed_by Mann, Mann born_in Chicago

A form is executed as a whole, so the nodes between its leaves and a member are not known. One way through
its joins is looked up afterwards, from the member back. Where members are compared by a value, the fact that
gives a member its value is added, if it has one alone. Classes and times add no facts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kbqa.kg.actions import Triple
from kbqa.kg.forms import leaf_of
from kbqa.kg.store import GraphStore
from kbqa.logical_forms.algebra import (
    And,
    Comparison,
    Entity,
    Expression,
    Join,
    Literal,
    Relation,
    Superlative,
    Timed,
    entities,
)
from kbqa.logical_forms.compiler import literal_term


def way(store: GraphStore, form: Expression, member: str) -> list[Triple]:
    """The facts of one way from the leaves of a form to a member; several ways where it is an AND.

    Leaves are written as the form writes them: an id, or a label that stands for several entities.

    Raises:
        QueryError, GraphUnavailableError: as `GraphStore.members`.
    """
    return list(_way(store, form, member, frozenset(entities(form))))


def _way(store: GraphStore, form: Expression, member: str, named: frozenset[str]) -> Iterator[Triple]:
    match form:
        case Join(relation, Entity(id_)):
            yield _fact(relation, id_, member)
        case Join(relation, Literal() as value):
            yield _fact(relation, literal_term(value), member)
        case Join(relation, source):
            assert not isinstance(source, Entity | Literal)
            linked = Join(Relation(relation.name, not relation.inverse), leaf_of(store, member))
            # A set that leaves no entity out is the same for all members, and is computed once.
            found = store.members(And(source, linked), limit=2, returning=True).items
            if found:
                before = min(found, key=lambda item: item.id in named).id
                yield from _way(store, source, before, named)
                yield _fact(relation, before, member)
        case And(left, right):
            yield from _way(store, left, member, named)
            yield from _way(store, right, member, named)
        case Superlative(_, source, path):
            yield from _way(store, source, member, named)
            yield from _value(store, path, member)
        case Comparison(_, path, _):
            yield from _value(store, path, member)
        case Timed(source, _, _):
            yield from _way(store, source, member, named)


def _value(store: GraphStore, path: Sequence[Relation], member: str) -> list[Triple]:
    """The facts from a member to its value; none if it has several."""
    facts: list[Triple] = []
    for relation in path:
        forward = Join(Relation(relation.name, not relation.inverse), leaf_of(store, member))
        found = store.members(forward, limit=1, returning=True)
        if found.total != 1:
            return []
        [following] = found.items
        facts.append(_fact(forward.relation, member, following.id))
        member = following.id
    return facts


def _fact(relation: Relation, source: str, member: str) -> Triple:
    """The fact of a join that leads from a node of its source to a member."""
    return (source, relation.name, member) if relation.inverse else (member, relation.name, source)
