"""Where the tokens of an episode come from."""

from __future__ import annotations

import pytest

from kbqa.environment.layout import opening_ids, shown_ids
from kbqa.policies.frame import Frame
from kbqa.trajectory import Segment

FRAMED = Frame(first="<s>system ", reply=" reply:", end="</s>", again=" user ")


class Spelling:
    """Encodes a segment as a token: its length, negative for text that is not trusted."""

    def __init__(self, frame: Frame) -> None:
        self.frame = frame
        self.encoded: list[Segment] = []

    def encode(self, segments) -> list[int]:
        self.encoded += segments
        return [len(one.text) if one.trusted else -len(one.text) for one in segments if one.text]


def test_what_is_trusted_alike_is_encoded_as_one_where_a_frame_stands_around_it():
    codec = Spelling(FRAMED)
    prompt = [Segment("Question "), Segment("who", trusted=False), Segment(" ?", trusted=False)]
    assert opening_ids(codec, [*prompt, Segment("\nNow")]) == [19, -5, 11]
    assert [segment.text for segment in codec.encoded] == ["<s>system Question ", "who ?", "\nNow reply:"]


def test_without_a_frame_segments_are_encoded_as_they_are():
    codec = Spelling(Frame())
    assert opening_ids(codec, [Segment("ab"), Segment("c")]) == [2, 1]


@pytest.mark.parametrize(("turn", "before"), [([9, 4], [6]), ([9], [10])])
def test_the_end_of_a_turn_is_put_where_the_policy_did_not_write_it(turn, before):
    codec = Spelling(FRAMED)  # "</s>" is token 4, " user " token 6, both together token 10
    shown = shown_ids(codec, turn, [Segment("<o>"), Segment("inner"), Segment("</ob>")], most=0)
    assert (shown.before, shown.observation, shown.after) == (before, [3, 5], [7])
