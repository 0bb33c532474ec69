"""Texts of episodes that tests of the chooser read, and how they are read."""

from __future__ import annotations

from kbqa.policies.chooser.reading import decisions
from kbqa.trajectory import Segment

ASKED = "<question>who directed <topic> ?</question><options><1> directed by<2><inverse> starring</options>"


AGAIN = f"{ASKED}<1><options><0> answer<1> born<2><inverse> directed by</options>"


def tokens(codec, text):
    return codec.encode([Segment(text)])


def read(codec, model, text):
    return [decision for _, decision in decisions(tokens(codec, text), model.vocabulary)]


FORMS = (
    "<question>films by <topic> with <topic2></question><options><1><inverse><topic> directed by"
    "<2><inverse><topic2> starring<3><keep><inverse><topic2> starring<4><max> runtime<5><count> number"
    "<6><inverse><keep> starring</options>"
)


AHEAD = (
    "<question>who directed <topic> that starring</question><options><1> born<then> city<then><inverse> born"
    "<2> directed by<then> starring<3><max> runtime</options>"
)
