"""A baseline without training: ranks relation paths by the similarity of their words to the question.

    paths     of at most three relations, in both directions, from the topic entity, by `follow_path`
    score     cosine of the question (without the topic's name) and the path's words (last relation first,
              as in "the nationality of the spouse"), by a frozen sentence encoder
    answer    the entities at the end of the best path

If a level has too many paths, only the best are extended (a beam); a path that has returned to its start
is not extended. The words do not express direction: of two paths with the same words, the one with fewer
inverse relations comes first.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, NamedTuple

from kbqa.evaluation.paths import ChosenPath, PathDialogue
from kbqa.kg.actions import FOLLOW_PATH, Action, ActionResult, Failure, Item
from kbqa.kg.ranking.ranker import Ranker
from kbqa.kg.retrieval.follow_path import INVERSE
from kbqa.protocols.chooser import in_words
from kbqa.trajectory import Question

RANKING = "ranking"
"""The name of the baseline."""

MAX_HOPS = 3
BEAM = 50

_MOST_RELATIONS = 100  # at a path's end; if there are more, the graph lists the best ones
_SHOWN_PATHS = 5


class _Path(NamedTuple):
    """A path from a topic.

    Attributes:
        steps: in the form of `follow_path`.
        words: of its relations, the last one first.
        score: similarity of the words to the question.
    """

    topic: str
    steps: tuple[str, ...] = ()
    words: str = ""
    score: float = 0.0

    @property
    def backwards(self) -> int:
        """The number of relations that are followed from tail to head."""
        return sum(step.startswith(INVERSE) for step in self.steps)


@dataclass(frozen=True, slots=True)
class PathRanking:
    """Settings of the ranking. Safe for many threads.

    Attributes:
        ranker: scores texts; encodes each text once for all questions.
        max_hops: maximum number of relations of a path.
        known_hops: whether paths have exactly as many relations as the question's gold path.
        beam: number of paths that are extended at each level.
    """

    ranker: Ranker
    max_hops: int = MAX_HOPS
    known_hops: bool = False
    beam: int = BEAM

    name: ClassVar[str] = "path_ranking"
    tags: ClassVar[tuple[str, ...]] = ()
    stop: ClassVar[tuple[str, ...]] = ()

    def begin(self, question: Question, max_turns: int) -> PathSearch:
        return PathSearch(question, self)


class PathSearch(PathDialogue):
    """Searches the paths of a question level by level before the first turn."""

    def __init__(self, question: Question, ranking: PathRanking) -> None:
        super().__init__(question)
        self._ranking = ranking
        self._hops = question.hops if ranking.known_hops else ranking.max_hops
        self._open = [_Path(topic) for topic in question.topic_entities]  # paths to extend
        self._starts: dict[str, set[str]] = {}  # topic → the entities that its name stands for
        self._found: list[_Path] = []

    def first_look(self) -> tuple[Action, ...]:
        return tuple(map(self._list, self._open))

    def choose(self) -> ChosenPath | None:
        ranked = sorted(self._found, key=lambda path: (-path.score, len(path.steps), path.backwards))
        if not ranked:
            return None
        best = "; ".join(f"{path.score:.3f} {' / '.join(path.steps)}" for path in ranked[:_SHOWN_PATHS])
        return ChosenPath(ranked[0].topic, ranked[0].steps, best)

    def look(self, results: Sequence[ActionResult]) -> tuple[Action, ...]:
        """Extend each open path by one relation; the best results become the open paths."""
        grown: list[_Path] = []
        for path, result in zip(self._open, results, strict=True):
            if isinstance(result, Failure):
                continue
            if not path.steps:
                self._begin_at(path.topic, result.items)
            elif result.items[0].id in self._starts[path.topic]:
                continue  # it has returned: its start is among its ends only if nothing else is
            relations = result.details["relations"]
            for relation, words in zip(relations, in_words(relations), strict=True):
                step = relation["id"] if relation["direction"] == "out" else f"{INVERSE}{relation['id']}"
                grown.append(_Path(path.topic, (*path.steps, step), f"{words} {path.words}".rstrip()))
        scores = self._ranking.ranker.similarities(self.query, [path.words for path in grown])
        # Rounded, since the last digit of a text's score may depend on the other texts.
        grown = [
            path._replace(score=round(float(score), 4)) for path, score in zip(grown, scores, strict=True)
        ]
        depth = len(grown[0].steps) if grown else self._hops
        if depth == self._hops or not self._ranking.known_hops:
            self._found += grown
        grown.sort(key=lambda path: (-path.score, path.backwards))
        self._open = grown[: self._ranking.beam] if depth < self._hops else []
        return tuple(map(self._list, self._open))

    def _begin_at(self, topic: str, items: Sequence[Item]) -> None:
        self._starts[topic] = {item.id for item in items}
        self.forget(topic, items[0].label if items else topic)

    def _list(self, path: _Path) -> Action:
        """The action that lists the relations at a path's end; one entity shows whether it has returned."""
        asked = {"question": self.question.text, "relations": _MOST_RELATIONS}
        limit = {"limit": 1} if path.steps else {}
        return Action(FOLLOW_PATH, {"entity": path.topic, "path": list(path.steps), **asked, **limit})
