"""Paths mined from answers: relations that lead from a question's topic to exactly its gold answers.

Mining needs only pairs of question and answers. A mined path is played as a gold program is
(`kbqa.cold_start.demonstrations`). Often several paths lead to the answers; the question's words decide
between them (`kbqa.cold_start.wording`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from kbqa.cold_start.wording import likeliest
from kbqa.kg.actions import (
    GET_HEAD_ENTITIES,
    GET_HEAD_RELATIONS,
    GET_TAIL_ENTITIES,
    GET_TAIL_RELATIONS,
    Action,
    GraphTools,
    Item,
    Success,
)
from kbqa.protocols import AgentProtocol, KgR1
from kbqa.protocols.references import referring
from kbqa.trajectory import Hop, Question

Path = tuple[Hop, ...]


@dataclass(frozen=True, slots=True)
class Bounds:
    """Limits of the search for paths.

    Attributes:
        hops: maximum hops of a path.
        width: maximum entities that a hop may lead to, from one entity or from all at hand; so no path
            goes through a hub.
        entities: maximum entities whose neighbours are looked up for one question.
        look_ups: maximum look-ups of a path: one for each entity at hand before each hop. An agent that
            looks up one entity a turn has no turns for more. None sets no limit.
    """

    hops: int = 3
    width: int = 20
    entities: int = 500
    look_ups: int | None = None


def blind(question: Question) -> Question:
    """A question without its gold program: what mining and reinforcement learning may see of it."""
    return replace(question, path=(), form="", sparql="")


def bounds_for(protocol: AgentProtocol, max_turns: int) -> Bounds:
    """Limits of what can be played: KG-R1 asks about one entity a turn, other dialects about all at hand."""
    return Bounds(look_ups=max_turns - 1 if isinstance(protocol, KgR1) else None)


def mine(
    questions: Sequence[Question],
    tools: GraphTools,
    bounds: Bounds,
    seed: int,
    check: Callable[[], None] = lambda: None,
) -> list[Question]:
    """The questions, each with the most probable of the paths that lead to its answers, or without a path.

    Gold programs are not read, and the returned questions contain none.

    Args:
        seed: decides between paths that are equally probable.
        check: called between two questions; whatever it raises ends the search.

    Raises:
        GraphNotFoundError, GraphUnavailableError: from the tools.
    """
    asked = [blind(question) for question in questions]
    neighbours = Neighbours(tools, bounds.width)
    found: list[list[Path]] = []
    for question in asked:
        check()
        found.append(list(paths_to_answers(question, neighbours, bounds)))
    chosen = likeliest([_wording(question) for question in asked], found, seed)
    return [replace(question, path=path or ()) for question, path in zip(asked, chosen, strict=True)]


def paths_to_answers(question: Question, neighbours: Neighbours, bounds: Bounds) -> Iterator[Path]:
    """Every path within the bounds that ends with exactly the gold answers, by id or by label.

    A topic that a path comes back to does not count as an answer (MetaQA's gold answers leave it out, too).
    """
    if len(question.topic_entities) != 1 or not question.answers:
        return
    [topic] = question.topic_entities
    golds = [set(gold) for gold in question.golds if gold]
    known: set[str] = set()
    at_hand: dict[Path, dict[str, Item]] = {(): {topic: Item(topic, topic)}}
    spent: dict[Path, int] = {(): 0}  # look-ups
    for _ in range(bounds.hops):
        wanted = dict.fromkeys(id_ for ends in at_hand.values() for id_ in ends if id_ not in known)
        near = list(wanted)[: bounds.entities - len(known)]
        known.update(near)
        neighbours.look_at(question.kg, question.graph, near)
        following: dict[Path, dict[str, Item]] = {}
        for path, ends in at_hand.items():
            spent[path] = spent[path[:-1]] + len(ends)
            too_long = bounds.look_ups is not None and spent[path] > bounds.look_ups
            if too_long or not known.issuperset(ends):
                continue
            around = [neighbours.of(question.kg, question.graph, id_) for id_ in ends]
            for hop in dict.fromkeys(hop for hops in around for hop in hops):
                reached = _union(hops[hop] for hops in around if hop in hops)
                others = [item for item in reached.values() if topic not in (item.id, item.label)]
                if not others or len(reached) > bounds.width:
                    continue
                following[*path, hop] = reached
                if any(_are(others, gold) for gold in golds):
                    yield (*path, hop)
        at_hand = following


class Neighbours:
    """What each relation of an entity leads to; each entity is looked up once.

    Args:
        width: a relation that leads to more entities is left out.
    """

    def __init__(self, tools: GraphTools, width: int) -> None:
        self._tools, self._width = tools, width
        self._known: dict[tuple[str, str | None, str], dict[Hop, tuple[Item, ...]]] = {}

    def of(self, kg: str, graph: str | None, entity: str) -> Mapping[Hop, tuple[Item, ...]]:
        return self._known[kg, graph, entity]

    def look_at(self, kg: str, graph: str | None, entities: Iterable[str]) -> None:
        """Look up the neighbours of entities, in two batches of actions."""
        new = [entity for entity in entities if (kg, graph, entity) not in self._known]
        self._known |= {(kg, graph, entity): {} for entity in new}
        edges = [(entity, inverse) for entity in new for inverse in (False, True)]
        actions = [
            Action(GET_HEAD_RELATIONS if inverse else GET_TAIL_RELATIONS, {"entity": entity})
            for entity, inverse in edges
        ]
        hops: list[tuple[str, Hop]] = []
        for (entity, inverse), result in zip(edges, self._execute(kg, actions, graph), strict=True):
            hops += [(entity, Hop(relation.id, inverse)) for relation in result]
        actions = [
            Action(
                GET_HEAD_ENTITIES if hop.inverse else GET_TAIL_ENTITIES,
                {"entity": entity, "relation": hop.relation, "limit": self._width + 1},
            )
            for entity, hop in hops
        ]
        for (entity, hop), items in zip(hops, self._execute(kg, actions, graph), strict=True):
            if 0 < len(items) <= self._width:
                self._known[kg, graph, entity][hop] = items

    def _execute(self, kg: str, actions: Sequence[Action], graph: str | None) -> list[tuple[Item, ...]]:
        results = self._tools.execute(kg, actions, graph=graph) if actions else []
        return [result.items if isinstance(result, Success) else () for result in results]


def _are(items: Sequence[Item], gold: set[str]) -> bool:
    """Whether entities are exactly the gold answers, all by id or all by label."""
    first = items[0]  # it rules out almost all paths
    if first.id not in gold and first.label not in gold:
        return False
    return gold in ({item.id for item in items}, {item.label for item in items})


def _union(groups: Iterable[Iterable[Item]]) -> dict[str, Item]:
    return {item.id: item for group in groups for item in group}


def _wording(question: Question) -> str:
    """The text of a question without its topic."""
    segments = referring(question.text, question.topic_entities)
    return " ".join(segment.text for segment in segments if not segment.trusted)
