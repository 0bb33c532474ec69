"""From what a run retrieved: the triples that lead from a topic entity to an answer.

A one-hop action that succeeded is a set of triples: `get_tail_entities(e, r)` with
the items o₁, o₂ is (e, r, o₁), (e, r, o₂); `get_head_entities(e, r)` with the item s
is (s, r, e). Evidence is the shortest chain of such triples, found by walking back
from the answer. Nothing that an action did not return is ever cited.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from kbqa.kg.actions import (
    GET_HEAD_ENTITIES,
    GET_HEAD_RELATIONS,
    GET_TAIL_ENTITIES,
    GET_TAIL_RELATIONS,
)
from kbqa.trajectory import ExecutedAction

Triple = tuple[str, str, str]


@dataclass(frozen=True, slots=True)
class Hop:
    """One triple as it was walked: asked about `source`, found `target`."""

    source: str
    target: str
    triple: Triple


class Retrieved:
    """What the entity actions of a run found, as a graph that can be walked back.

    Ids are cited. An action may have named its entity or relation by label: that is
    replaced by the id which the run had seen under the label, if there is just one,
    and otherwise cited as it was written.
    """

    def __init__(self, actions: Iterable[ExecutedAction]) -> None:
        executed = [action for action in actions if action.succeeded]
        entities = _ids_by_label(executed, (GET_TAIL_ENTITIES, GET_HEAD_ENTITIES))
        relations = _ids_by_label(executed, (GET_TAIL_RELATIONS, GET_HEAD_RELATIONS))
        self._labels: dict[str, str] = {}
        self._hops_to: dict[str, list[Hop]] = {}
        for action in executed:
            if action.name not in (GET_TAIL_ENTITIES, GET_HEAD_ENTITIES):
                continue
            source = _identify(action.arguments["entity"], entities)
            relation = _identify(action.arguments["relation"], relations)
            self._labels.update(zip(action.items, action.labels, strict=True))
            for target in action.items:
                forwards = action.name == GET_TAIL_ENTITIES
                triple = (source, relation, target) if forwards else (target, relation, source)
                self._hops_to.setdefault(target, []).append(Hop(source, target, triple))

    def label(self, entity: str) -> str | None:
        """The label under which an entity was retrieved, None if none was."""
        return self._labels.get(entity)

    def chain(self, answer: str, topics: Collection[str]) -> tuple[Triple, ...]:
        """The triples from a topic entity to the answer, in that order, as few as possible.

        Where no topic entity led to it (the policy asked about an entity out of thin
        air) the chain begins there. Empty if the answer was never retrieved.
        """
        onwards: dict[str, Hop] = {}  # entity → the hop that leads from it towards the answer
        beginning: Hop | None = None
        queue = [answer]
        for entity in queue:
            for hop in self._hops_to.get(entity, ()):
                if hop.source in topics:
                    return _follow(hop, answer, onwards)
                if hop.source not in onwards and hop.source != answer:
                    onwards[hop.source] = hop
                    queue.append(hop.source)
                if beginning is None or (
                    hop.source not in self._hops_to and beginning.source in self._hops_to
                ):
                    beginning = hop
        return () if beginning is None else _follow(beginning, answer, onwards)


def _follow(hop: Hop, answer: str, onwards: dict[str, Hop]) -> tuple[Triple, ...]:
    triples = [hop.triple]
    while hop.target != answer:
        hop = onwards[hop.target]
        triples.append(hop.triple)
    # A triple may have been walked both ways: there and back to an answer that is a topic entity.
    return tuple(dict.fromkeys(triples))


def _ids_by_label(actions: Iterable[ExecutedAction], names: Collection[str]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for action in actions:
        if action.name in names:
            for id_, label in zip(action.items, action.labels, strict=True):
                found.setdefault(label, set()).add(id_)
    return found


def _identify(name: str, ids: dict[str, set[str]]) -> str:
    candidates = ids.get(name, set())
    return next(iter(candidates)) if len(candidates) == 1 else name
