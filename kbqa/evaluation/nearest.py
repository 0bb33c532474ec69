"""A baseline that looks questions up: it follows the gold path of the training question that is most alike.

    examples  training questions with a gold path, without the names of their topics
    alike     by the cosine of both texts, by a frozen sentence encoder
    answer    the entities at the end of the first path, in this order, that leads anywhere from the topic

It learns gold paths by heart and nothing else. Where it is as good as a policy, the test questions are so
similar to the training questions that they say little about language.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Self

from kbqa.errors import DatasetError
from kbqa.evaluation.paths import ChosenPath, PathDialogue, without_topic
from kbqa.kg.actions import FOLLOW_PATH, Action, ActionResult, Success
from kbqa.kg.ranking.encoders import Encoder, Matrix
from kbqa.kg.retrieval.follow_path import INVERSE
from kbqa.trajectory import Question

NEAREST = "nearest"
"""The name of the baseline."""

_TRIED = 5  # paths at most, the most alike first

Steps = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class NearestQuestion:
    """What it knows. Safe for many threads.

    Attributes:
        encoder: of questions.
        texts: of the examples, each once: text → the path that most examples with this text have.
        vectors: of the texts, normalised: [len(texts), dimension].
    """

    encoder: Encoder
    texts: Mapping[str, Steps]
    vectors: Matrix

    name: ClassVar[str] = "nearest_question"
    tags: ClassVar[tuple[str, ...]] = ()
    stop: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def among(cls, encoder: Encoder, examples: Iterable[Question]) -> Self:
        """Encode the examples that have a gold path.

        Raises:
            DatasetError: none has.
        """
        votes: defaultdict[str, Counter[Steps]] = defaultdict(Counter)
        for example in examples:
            if example.path:
                text = example.text
                for topic in example.topic_entities:
                    text = without_topic(text, topic, topic)
                steps = tuple(f"{INVERSE * hop.inverse}{hop.relation}" for hop in example.path)
                votes[text][steps] += 1
        if not votes:
            raise DatasetError(
                f"--baseline {NEAREST} needs training questions with a gold path, and the data set has none"
            )
        texts = {text: paths.most_common(1)[0][0] for text, paths in votes.items()}
        return cls(encoder, texts, encoder.encode(list(texts)))

    def begin(self, question: Question, max_turns: int) -> LookUp:
        return LookUp(question, self)

    def alike(self, query: str) -> list[tuple[float, str, Steps]]:
        """Cosine, text and path of the nearest example of each of the best paths, the most alike first."""
        cosines = self.vectors @ self.encoder.encode_query(query)
        found: dict[Steps, tuple[float, str, Steps]] = {}
        texts = list(self.texts.items())
        for place in (-cosines).argsort(kind="stable"):
            text, steps = texts[place]
            found.setdefault(steps, (float(cosines[place]), text, steps))
            if len(found) == _TRIED:
                break
        return list(found.values())


class LookUp(PathDialogue):
    """Finds the examples that are most alike, and which of their paths lead anywhere."""

    def __init__(self, question: Question, known: NearestQuestion) -> None:
        super().__init__(question)
        self._known = known
        self._tried: list[ChosenPath] = []
        self._chosen: ChosenPath | None = None

    def first_look(self) -> tuple[Action, ...]:
        return tuple(_follow(topic, ()) for topic in self.question.topic_entities)

    def look(self, results: Sequence[ActionResult]) -> tuple[Action, ...]:
        if self._tried:
            leading = (
                path for path, result in zip(self._tried, results, strict=True) if isinstance(result, Success)
            )
            self._chosen = next(leading, None)
            return ()
        topics = []
        for topic, result in zip(self.question.topic_entities, results, strict=True):
            if isinstance(result, Success):
                topics.append(topic)
                self.forget(topic, result.items[0].label if result.items else topic)
        if topics:
            self._tried = [
                ChosenPath(topic, steps, f"{cosine:.3f} {text}: {' / '.join(steps)}")
                for cosine, text, steps in self._known.alike(self.query)
                for topic in topics
            ]
        return tuple(_follow(path.topic, path.steps) for path in self._tried)

    def choose(self) -> ChosenPath | None:
        return self._chosen


def _follow(topic: str, steps: Steps) -> Action:
    """The action that shows whether a path leads anywhere."""
    return Action(FOLLOW_PATH, {"entity": topic, "path": list(steps), "relations": 0, "limit": 1})
