"""Common nouns for people, places and other things, by which pronouns are told apart."""

from __future__ import annotations

import re


def _words(text: str) -> frozenset[str]:
    return frozenset(re.findall(r"\w+", text))


WOMEN = _words(
    """
    actress aunt bride daughter girl goddess grandmother heroine lady mother niece princess queen sister widow
    wife woman
    """
)
MEN = _words(
    """
    boy brother father god grandfather gentleman groom hero husband king man nephew prince son uncle widower
    """
)
PEOPLE = (
    WOMEN
    | MEN
    | _words(
        """
        actor architect artist athlete author character composer director doctor editor employee employer
        engineer founder human individual leader manager mayor member minister musician officer painter people
        performer person player politician president producer scientist singer student teacher translator
        winner worker writer
        """
    )
)
PLACES = _words(
    """
    area capital city continent country county district island location municipality nation place province
    region river state town village venue
    """
)
THINGS = PLACES | _words(
    """
    album award book company date event film game genre language movie number organisation organization party
    product profession school series song team thing university work year
    """
)
