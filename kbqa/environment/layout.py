"""Encodes the text of an episode: the dialect's text within the model's frame."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kbqa.policies.base import Codec
from kbqa.trajectory import Segment


class Shown(NamedTuple):
    """Tokens that the environment appends: an observation, and the frame's text around it."""

    before: list[int]
    observation: list[int]
    after: list[int]

    @property
    def token_ids(self) -> list[int]:
        return [*self.before, *self.observation, *self.after]


def opening_ids(codec: Codec, prompt: Sequence[Segment]) -> list[int]:
    """What the policy reads before its first turn."""
    first, reply = Segment(codec.frame.first), Segment(codec.frame.reply)
    return codec.encode(_joined([first, *prompt, reply]) if reply.text else [first, *prompt])


def shown_ids(
    codec: Codec, turn: Sequence[int], observation: Sequence[Segment], most: int | None = None
) -> Shown:
    """What the policy reads after a turn.

    Args:
        turn: tokens of the turn; the frame's `end` is added unless the policy wrote it.
        observation: first and last segment are its opening and closing tag.
        most: maximum tokens between the two tags; the rest is cut. None cuts nothing.
    """
    frame = codec.frame
    opening, *body, closing = observation
    inner = codec.encode(body)[:most]
    end = codec.encode([Segment(frame.end)]) if frame.end else []
    has_ended = not end or list(turn[-len(end) :]) == end
    before = codec.encode([Segment(frame.again if has_ended else frame.end + frame.again)])
    shown = [*codec.encode([opening]), *inner, *codec.encode([closing])]
    return Shown(before, shown, codec.encode([Segment(frame.reply)]))


def _joined(segments: Sequence[Segment]) -> list[Segment]:
    """Join adjacent segments of equal trust: a tokenizer may merge characters across their border."""
    joined: list[Segment] = []
    for segment in segments:
        if joined and joined[-1].trusted == segment.trusted:
            joined[-1] = Segment(joined[-1].text + segment.text, segment.trusted)
        else:
            joined.append(segment)
    return joined
