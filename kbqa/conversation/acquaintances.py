"""What the graph knows of the entities of a conversation: their kinds, and how a question fits them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kbqa.kg.actions import (
    DESCRIBE,
    FIND_RELATION,
    FOLLOW_PATH,
    LINK_ENTITIES,
    Action,
    ActionResult,
    GraphTools,
    Item,
    Mention,
    Success,
)
from kbqa.kg.linking.inflection import inflections
from kbqa.kg.ranking.gating import OUT

_RELATIONS = 5  # of an entity that are compared with a question, the best ones
# Most questions ask for what a relation leads to: the genre of a film rather than the films of a genre.
_BACKWARDS = 0.1
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Acquaintance:
    """An entity as the graph describes it.

    Attributes:
        types: ids of its types.
        kinds: words of their labels, in lower case, singular and plural.
        fit: similarity of its best relation to a question, at most 1; None if it has no choice of relations.
    """

    types: frozenset[str] = frozenset()
    kinds: frozenset[str] = frozenset()
    fit: float | None = None


class Acquaintances:
    """Asks a graph.

    Args:
        graph: id of a per-question subgraph.

    Raises:
        GraphNotFoundError, GraphUnavailableError: any method.
    """

    def __init__(self, tools: GraphTools, kg: str, graph: str | None = None) -> None:
        self._tools, self._kg, self._graph = tools, kg, graph

    def mentions(self, texts: Sequence[str]) -> list[Sequence[Mention]]:
        """What each text names; nothing of a text that the graph cannot search."""
        found = self._execute([Action(LINK_ENTITIES, {"question": text}) for text in texts])
        return [result.items if isinstance(result, Success) else () for result in found]

    def of(self, entities: Sequence[str], question: str) -> dict[str, Acquaintance]:
        """What the graph knows of entities, by id, with how well a question fits each."""
        actions = [
            action
            for entity in entities
            for action in (
                Action(DESCRIBE, {"entity": entity, "limit": 1}),
                Action(
                    FOLLOW_PATH,
                    {"entity": entity, "path": [], "question": question, "relations": _RELATIONS, "limit": 1},
                ),
            )
        ]
        found = self._execute(actions)
        return {
            entity: _acquaintance(described, followed)
            for entity, described, followed in zip(entities, found[::2], found[1::2], strict=True)
        }

    def property_of(self, entity: str, name: str) -> Item | None:
        """The first of what an entity has under a name, such as "brother"; None if it has no such thing."""
        (found,) = self._execute([Action(FIND_RELATION, {"entity": entity, "relation": name, "limit": 1})])
        return found.items[0] if isinstance(found, Success) and found.items else None

    def _execute(self, actions: Sequence[Action]) -> list[ActionResult]:
        return self._tools.execute(self._kg, actions, graph=self._graph) if actions else []


def words_of(text: str) -> frozenset[str]:
    """The words of a label, or of an id's last part (`film.filmActor`), with their singulars and plurals."""
    last = text if " " in text else re.split(r"[.:/#]", text)[-1]
    found = {word.lower() for word in _WORD.findall(last)}
    return frozenset(found.union(*(inflections(word) for word in found)))


def _fit(relation: Mapping[str, Any]) -> float:
    score: float = relation["score"]
    return score if relation["direction"] == OUT else score - _BACKWARDS


def _acquaintance(described: ActionResult, followed: ActionResult) -> Acquaintance:
    types = described.items[0]["types"] if isinstance(described, Success) and described.items else []
    ranked = followed.details["relations"] if isinstance(followed, Success) else []
    return Acquaintance(
        types=frozenset(type_["id"] for type_ in types),
        kinds=frozenset[str]().union(*(words_of(type_["label"]) for type_ in types)),
        fit=max((_fit(relation) for relation in ranked if "score" in relation), default=None),
    )
