"""The cache of answers that a repeated computation would not change."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from cachetools import LRUCache

from kbqa.client.events import DoneEvent, Event, LinkedEvent
from kbqa.client.models import AnswerRequest, AnswerResponse, Usage

# Fields that do not change what the policy finds: how it is sent, how long the caller waits, and how sure of
# it the policy must be.
_MANNERS = {"stream", "timeout_s", "min_confidence"}
_TRANSIENT_CODE = "KG_SERVER_ERROR"


def key(request: AnswerRequest, kg_version: str, policy_version: str) -> str:
    """The cache key: everything that an answer depends on."""
    asked = request.model_copy(update={"question": " ".join(request.question.split())})
    canonical = asked.model_dump_json(exclude=_MANNERS)
    return hashlib.sha256(f"{kg_version}\n{policy_version}\n{canonical}".encode()).hexdigest()


def is_repeatable(request: AnswerRequest, document: AnswerResponse) -> bool:
    """Whether a document is complete and independent of sampling, time limits and failures."""
    if request.n_runs > 1 or document.status == "partial" or document.linking is None:
        return False
    turns = [turn for run in document.runs for turn in run.trajectory]
    return all(run.status not in ("timed_out", "lost") for run in document.runs) and not any(
        action.get("code") == _TRANSIENT_CODE for turn in turns for action in turn.actions
    )


class AnswerCache:
    """LRU cache of the events of complete answers, as `Work.events` gives them; for one event loop.

    Args:
        capacity_bytes: maximum total size of the documents, as JSON.
    """

    def __init__(self, capacity_bytes: int) -> None:
        self._kept: LRUCache[str, tuple[int, tuple[Event, ...]]] = LRUCache(
            capacity_bytes, getsizeof=lambda kept: kept[0]
        )

    def find(self, key: str, question_id: str) -> list[Event] | None:
        """The events of a cached answer under a new id; None if it is not in the cache."""
        if key not in self._kept:
            return None
        return [_renewed(event, question_id) for event in self._kept[key][1]]

    def keep(self, key: str, events: Sequence[Event]) -> None:
        """Cache a complete answer, including `done`."""
        size = len(events[-1].model_dump_json())
        if size <= self._kept.maxsize:
            self._kept[key] = size, tuple(events)


def _renewed(event: Event, question_id: str) -> Event:
    if isinstance(event, LinkedEvent):
        return event.model_copy(update={"id": question_id})
    if isinstance(event, DoneEvent):
        usage = Usage(llm_calls=0, prompt_tokens=0, generated_tokens=0, kg_calls=0, elapsed_ms=0.0)
        update = {"id": question_id, "cached": True, "usage": usage}
        return DoneEvent(document=event.document.model_copy(update=update))
    return event
