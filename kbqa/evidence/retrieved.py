"""Collects evidence for answers from the actions of a run.

A successful action yields the triples that its specification cites (`kbqa.kg.specs`):
`get_tail_entities(e, r)` with the items o₁, o₂ yields (e, r, o₁), (e, r, o₂). Evidence is the
shortest chain of such triples, found by walking back from the answer. If a query or logical
form found the answer, evidence is the query with the rows that contain the answer. Only what
an action returned is ever claimed; the graph then confirms it (`claims`).
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kbqa.kg.actions import (
    EXECUTE_LOGICAL_FORM,
    EXECUTE_SPARQL,
    EXPAND,
    FIND_RELATION,
    FOLLOW_PATH,
    GET_HEAD_ENTITIES,
    GET_HEAD_RELATIONS,
    GET_TAIL_ENTITIES,
    GET_TAIL_RELATIONS,
    Triple,
)
from kbqa.kg.retrieval import ACTIONS
from kbqa.trajectory import ExecutedAction

_FORMS = (FIND_RELATION, EXECUTE_LOGICAL_FORM, EXPAND)
_ENTITIES = (GET_TAIL_ENTITIES, GET_HEAD_ENTITIES)
_RELATIONS = (GET_TAIL_RELATIONS, GET_HEAD_RELATIONS)


class WalkedTriple(NamedTuple):
    """One triple as it was walked: an action asked about `source` and found `target`."""

    source: str
    target: str
    triple: Triple


@dataclass(frozen=True, slots=True)
class Query:
    """A query that found an answer.

    Attributes:
        text: SPARQL, or the S-expression of a logical form.
        is_form: whether `text` is a logical form.
        now: the day that NOW means in the form.
        returning: whether the form's members may be entities that it names.
    """

    text: str
    is_form: bool = False
    now: str | None = None
    returning: bool = False


@dataclass(frozen=True, slots=True)
class FollowedPath:
    """A path in the form of the arguments of `follow_path`."""

    entity: str
    path: tuple[str, ...]
    returning: bool = False

    @classmethod
    def of(cls, action: ExecutedAction) -> FollowedPath:
        returning = action.arguments.get("return") == "true"
        return cls(action.arguments["entity"], tuple(json.loads(action.arguments["path"])), returning)


def hops(action: ExecutedAction) -> Iterator[WalkedTriple]:
    """The triples that an action found and its specification cites, with names as the action wrote them."""
    spec = ACTIONS.find(action.name)
    if spec is None or spec.cites is None:
        return
    cited = spec.cites(spec.read_arguments(action.arguments), action.items, action.details)
    # Many ways share their first triples.
    yield from dict.fromkeys(
        hop for end, triples in zip(action.items, cited, strict=True) for hop in _walked(triples, end)
    )


def _walked(triples: Sequence[Triple], end: str) -> list[WalkedTriple]:
    """Triples that lead to an item, in walking order, each with its source."""
    way: list[WalkedTriple] = []
    item = end
    for triple in reversed(triples):
        if end not in (triple[0], triple[2]):
            end = item  # another way to the item
        source = triple[0] if triple[2] == end else triple[2]
        way.append(WalkedTriple(source, end, triple))
        end = source
    return way[::-1]


class Retrieved:
    """What the actions of a run found, as a graph that can be walked back, and as queries.

    Evidence cites ids. If an action named an entity or relation by label, the label is
    replaced by the id that the run saw with it, if there is exactly one; otherwise the
    label is cited as written.
    """

    def __init__(self, actions: Iterable[ExecutedAction]) -> None:
        steps = list(actions)
        executed = [action for action in steps if action.succeeded]
        entities = _ids_by_label(executed, (*_ENTITIES, *_FORMS))
        relations = _ids_by_label(executed, _RELATIONS)
        self._labels: dict[str, str] = {}
        self._hops_to: dict[str, list[WalkedTriple]] = {}
        self._queries: dict[str, Query] = {}  # id → the latest query that found it
        # id → the latest path that led there, and the id's place among the ends
        self._walks: dict[str, tuple[FollowedPath, int]] = {}
        self._asked: Query | None = None
        for action in steps:
            if action.code is None and "boolean" in action.details:
                self._asked = Query(action.arguments["query"])
            if not action.succeeded or action.name in _RELATIONS:
                continue
            self._labels.update(zip(action.items, action.labels, strict=True))
            # The query of a form says more than the facts of one way to its members.
            for hop in hops(action) if action.name != EXPAND else ():
                hop = _identified(hop, entities, relations)
                self._hops_to.setdefault(hop.target, []).append(hop)
            if action.name == FOLLOW_PATH:
                walk, first = FollowedPath.of(action), int(action.arguments.get("offset", 0))
                self._walks |= {id_: (walk, place) for place, id_ in enumerate(action.items, first)}
            query = _query(action)
            if query is not None:
                self._queries |= dict.fromkeys(action.items, query)

    def label(self, entity: str) -> str | None:
        """The label with which an entity was retrieved; None if it was not."""
        return self._labels.get(entity)

    def query(self, answer: str) -> Query | None:
        """The latest query that found the answer."""
        return self._queries.get(answer)

    def walk(self, answer: str) -> tuple[FollowedPath, int] | None:
        """The latest path that led to the answer, and the answer's place among the ends."""
        return self._walks.get(answer)

    @property
    def asked(self) -> Query | None:
        """The latest ASK."""
        return self._asked

    def chain(self, answer: str, topics: Collection[str]) -> tuple[Triple, ...]:
        """The shortest chain of triples from a topic entity to the answer.

        If no topic entity leads to the answer, because the policy asked about an entity
        that it had not seen, the chain begins there. Empty if the answer was never retrieved.
        """
        onwards: dict[str, WalkedTriple] = {}  # entity → the hop that leads from it towards the answer
        beginning: WalkedTriple | None = None
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


def _query(action: ExecutedAction) -> Query | None:
    if action.name == EXECUTE_SPARQL:
        return Query(action.arguments["query"])
    if action.name in _FORMS and "expression" in action.details:
        return Query(
            action.details["expression"],
            is_form=True,
            now=action.arguments.get("now"),
            returning=action.details.get("return", action.arguments.get("return") == "true"),
        )
    return None


def _follow(hop: WalkedTriple, answer: str, onwards: dict[str, WalkedTriple]) -> tuple[Triple, ...]:
    triples = [hop.triple]
    while hop.target != answer:
        hop = onwards[hop.target]
        triples.append(hop.triple)
    # A triple may have been walked both ways, to and from an answer that is a topic entity.
    return tuple(dict.fromkeys(triples))


def _ids_by_label(actions: Iterable[ExecutedAction], names: Collection[str]) -> dict[str, str]:
    """The id of each label that was seen with a single id."""
    found: dict[str, set[str]] = {}
    for action in actions:
        if action.name in names:
            for id_, label in zip(action.items, action.labels, strict=True):
                found.setdefault(label, set()).add(id_)
    return {label: next(iter(ids)) for label, ids in found.items() if len(ids) == 1}


def _identified(hop: WalkedTriple, entities: dict[str, str], relations: dict[str, str]) -> WalkedTriple:
    source = entities.get(hop.source, hop.source)
    subject, relation, object_ = hop.triple
    relation = relations.get(relation, relation)
    forwards = object_ == hop.target and subject == hop.source
    triple = (source, relation, hop.target) if forwards else (hop.target, relation, source)
    return WalkedTriple(source, hop.target, triple)
