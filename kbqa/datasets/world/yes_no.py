"""Yes/no questions: whether an entity is what a phrase describes, or what another question asks for."""

from __future__ import annotations

import random
import re

# {0} is the entity, {1} the phrase.
_ONE = (
    *(
        "is {0} {1} ?",
        "was {0} {1} ?",
        "is {1} {0} ?",
        "is it true that {0} is {1} ?",
        "is it {0} who is {1} ?",
    ),
    *(
        "{0} is {1} , right ?",
        "is {0} really {1}",
        "tell me whether {0} is {1} .",
        "was {1} {0} ?",
        "is {0} {1}",
    ),
)
_SEVERAL = (
    *("is {0} one of {1} ?", "is {0} among {1} ?", "does {0} belong to {1} ?", "was {0} one of {1} ?"),
    *("is it true that {0} is one of {1} ?", "do {1} include {0} ?", "{0} is one of {1} , right ?"),
    *("are there {1} , and is {0} one of them ?", "tell me whether {0} is among {1} .", "is {0} among {1}"),
)
# {0} is the entity, {1} what it does.
_STATED = (
    "is it true that {0} {1} ?",
    "{0} {1} , right ?",
    "is it {0} who {1} ?",
    "i wonder whether {0} {1} .",
)

# A subject that begins like a name, or with "the"; of several things, only like a name.
_ASKS = (
    r"(?P<auxiliary>did|does|do|can|could|has|have|is|was|are|were) "
    r"(?P<rest>(?:(?<!are )(?<!were )the |[A-Z0-9]).+)"
)
_OBJECT = re.compile(rf"(?:what|who|whom|which\b.*?|what\b.*?) {_ASKS}")
_WITH_PREPOSITION = re.compile(
    r"(?P<preposition>in|at|on|from|by|with|to|of|near|under|via|for|into|through) "
    rf"(?:which|what|whose|whom)\b.*? {_ASKS}"
)
_PLACE = re.compile(rf"where {_ASKS}")
_SUBJECT = re.compile(r"who (?P<does>(?!(?:did|does|do|can|has|have|is|was|are|were) ).+)")


def yes_no(rng: random.Random, entity: str, phrase: str, question: str, *, is_plural: bool) -> str:
    """A yes/no question.

    Args:
        phrase: describes a set.
        question: asks for that set; "" if only the phrase does.
        is_plural: whether the phrase describes several things.
    """
    turned = _turned(rng, entity, question)
    if turned is not None:
        return turned
    return rng.choice(_SEVERAL if is_plural else _ONE).format(entity, phrase)


def _turned(rng: random.Random, entity: str, question: str) -> str | None:
    """A question with an entity in place of its question word: "what did X build" → "did X build Y ?"."""
    if found := _WITH_PREPOSITION.fullmatch(question):
        return f"{found['auxiliary']} {found['rest']} {found['preposition']} {entity} ?"
    if found := _PLACE.fullmatch(question):
        return (
            f"{found['auxiliary']} {found['rest']} {rng.choice(('in', 'at', 'in', ''))} {entity} ?".replace(
                "  ", " "
            )
        )
    if found := _OBJECT.fullmatch(question):
        return f"{found['auxiliary']} {found['rest']} {entity} ?"
    if found := _SUBJECT.fullmatch(question):
        return rng.choice(_STATED).format(entity, found["does"])
    return None
