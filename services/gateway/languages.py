"""Shows answers in the language of who asked: labels by `Accept-Language`, where the graph has them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence

from kbqa.client.events import AnswerEvent, DoneEvent, Event, LinkedEvent, ObservationEvent
from kbqa.client.models import Answer, AnswerResponse, Linking, QueryEvidence
from kbqa.errors import GraphError
from kbqa.kg.actions import LABELS, Action, GraphTools, Success
from kbqa.kg.languages import MAX_LANGUAGES, is_language

logger = logging.getLogger(__name__)

_AT_ONCE = 1000  # entities whose labels one action finds


def accepted(header: str) -> tuple[str, ...]:
    """The languages that a header `Accept-Language` prefers, best first; what is malformed is left out.

    "de-CH, fr;q=0.5, en;q=0.8"     de-CH, en, fr
    "*"                             none: any label will do
    """
    found: list[tuple[float, str]] = []
    for part in header.split(","):
        tag, _, weight = (text.strip() for text in part.partition(";"))
        quality = _quality(weight)
        if is_language(tag) and quality > 0:
            found.append((quality, tag))
    ordered = [tag for _, tag in sorted(found, key=lambda one: -one[0])]
    return tuple(dict.fromkeys(ordered))[:MAX_LANGUAGES]


def _quality(weight: str) -> float:
    if not weight:
        return 1.0
    name, _, value = weight.partition("=")
    try:
        return float(value) if name.strip() == "q" and 0 <= float(value) <= 1 else 0.0
    except ValueError:
        return 0.0


class Labelling:
    """The labels of one answer's entities in some languages; each entity is looked up once.

    Args:
        graph: id of a per-question subgraph.
        languages: the preferred one first; with none, labels stay as they are.
    """

    def __init__(self, tools: GraphTools, kg: str, graph: str | None, languages: Sequence[str]) -> None:
        self._tools, self._kg, self._graph = tools, kg, graph
        self._languages = list(languages)
        self._known: dict[str, str | None] = {}

    async def told(self, event: Event) -> Event:
        """An event with these labels. If the graph does not answer, labels stay as they are."""
        if not self._languages:
            return event
        unknown = [id_ for id_ in dict.fromkeys(_ids(event)) if id_ not in self._known][:_AT_ONCE]
        if unknown:
            found = await asyncio.to_thread(self._look_up, unknown)
            self._known |= {id_: found.get(id_) for id_ in unknown}
        match event:
            case LinkedEvent():
                return event.model_copy(update={"linking": self._linking(event.linking)})
            case ObservationEvent():
                ends = dict.fromkeys(end for head, _, tail in event.triples for end in (head, tail))
                found = {end: label for end in ends if (label := self._known.get(end)) is not None}
                return event.model_copy(update={"labels": {**event.labels, **found}})
            case AnswerEvent():
                return AnswerEvent(answer=self._answer(event.answer))
            case DoneEvent():
                return DoneEvent(document=self._document(event.document))
        return event

    def _look_up(self, ids: Sequence[str]) -> dict[str, str]:
        action = Action(LABELS, {"entities": list(ids), "languages": self._languages, "limit": len(ids)})
        try:
            (found,) = self._tools.execute(self._kg, [action], graph=self._graph)
        except GraphError as error:
            logger.warning("labels cannot be looked up", extra={"kg": self._kg, "error": str(error)})
            return {}
        return {item.id: item.label for item in found.items} if isinstance(found, Success) else {}

    def _document(self, document: AnswerResponse) -> AnswerResponse:
        update = {
            "answers": [self._answer(answer) for answer in document.answers],
            "candidates": [self._answer(answer) for answer in document.candidates],
            "linking": None if document.linking is None else self._linking(document.linking),
        }
        return document.model_copy(update=update)

    def _answer(self, answer: Answer) -> Answer:
        update: dict[str, object] = {"label": self._known.get(answer.id or "") or answer.label}
        if isinstance(answer.evidence, QueryEvidence):
            rows = [
                {
                    name: {**term, "label": label} if (label := self._known.get(term.get("id", ""))) else term
                    for name, term in row.items()
                }
                for row in answer.evidence.rows
            ]
            update["evidence"] = answer.evidence.model_copy(update={"rows": rows})
        return answer.model_copy(update=update)

    def _linking(self, linking: Linking) -> Linking:
        mentions = [
            mention.model_copy(
                update={
                    "candidates": [
                        one.model_copy(update={"label": self._known.get(one.id) or one.label})
                        for one in mention.candidates
                    ]
                }
            )
            for mention in linking.mentions
        ]
        return linking.model_copy(update={"mentions": mentions})


def _ids(event: Event) -> Iterable[str]:
    """The entities whose labels an event shows."""
    match event:
        case LinkedEvent():
            yield from _linked(event.linking)
        case ObservationEvent():
            yield from (end for head, _, tail in event.triples for end in (head, tail))
        case AnswerEvent():
            yield from _answered([event.answer])
        case DoneEvent():
            yield from _answered([*event.document.answers, *event.document.candidates])
            if event.document.linking is not None:
                yield from _linked(event.document.linking)


def _linked(linking: Linking) -> Iterable[str]:
    return (one.id for mention in linking.mentions for one in mention.candidates)


def _answered(answers: Sequence[Answer]) -> Iterable[str]:
    for answer in answers:
        if answer.id is not None:
            yield answer.id
        if isinstance(answer.evidence, QueryEvidence):
            yield from (term["id"] for row in answer.evidence.rows for term in row.values() if "id" in term)
