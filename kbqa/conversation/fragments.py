"""What an incomplete question says, and what it leaves to the question before it.

A fragment puts something else in one place of that question:

    And when?               another question word       Where was Ali born? → When was Ali born?
    And Sara?               another name                Where was Ali born? → Where was Sara born?
    And of her brother?     what belongs to somebody    Where was Ali born? → Where was Ali's brother born?
    And the producer?       another property            Who is the director of Heat? → the producer of Heat
    And who wrote it?       nothing: it is a question of its own
"""

from __future__ import annotations

import re
from dataclasses import dataclass

_LEAD = re.compile(r"^\s*(?:(?:and|but|or|so|ok|okay|now|then|also)\b[\s,]*)+", re.IGNORECASE)
_ABOUT = re.compile(
    r"^(?:what|how)\s+about\s+|^(?:the\s+)?same\s+(?:question\s+)?(?=(?:for|of|with)\b)", re.IGNORECASE
)
_PREPOSITION = re.compile(r"^(?:that\s+of|of|for|in|at|by|with|from|about|to)\s+", re.IGNORECASE)
_END = re.compile(r"[\s,]*(?:\b(?:then|too|instead|as well)\b)?[\s?.!]*$", re.IGNORECASE)
_WORD = r"(?:who|whom|whose|what|which|when|where|why|how)"
_BEFORE = r"^(?:(?:in|at|on|by|for|from|to|with|since|until)\s+)?"
_VERB = r"(?:is|are|was|were|did|does|do|has|have|had|can|will)\b"
_QUESTION_WORD = re.compile(
    rf"{_BEFORE}(?:who|whom|when|where|why|how|(?:what|which)(?:\s+\w+)?)$", re.IGNORECASE
)
_CLAUSE = re.compile(
    rf"{_BEFORE}{_WORD}\b|"
    r"^(?:is|are|was|were|do|does|did|has|have|had|can|could|will|would)\b|"
    r"^(?:name|list|show|give|tell|find|count)\b",
    re.IGNORECASE,
)
_OPENING = re.compile(
    rf"{_BEFORE}(?:who or what|(?:what|which)\s+(?!{_VERB})\w+(?=\s+{_VERB})|{_WORD})", re.IGNORECASE
)
_PROPERTY = re.compile(
    r"\b(?:is|are|was|were|be|name|list|find|show|give me|tell me|know)\s+"
    r"(?P<noun>(?:the\s+)?[^\W_][\w\s-]*?)\s+of\s+$",
    re.IGNORECASE,
)
_OWNED = re.compile(r"^\s?'s\s+(?P<noun>[^?.!]+?)\s*(?=[?.!]*\s*$)")


@dataclass(frozen=True, slots=True)
class Fragment:
    """An incomplete question.

    Attributes:
        text: what is left of it without "and", "what about", a preposition and marks.
        start: its place in the question.
        is_marked: whether it begins with "and" or the like; without that, it may be a question of its own.
        replaces: whether its words ("of", "what about") say that it is asked about in the same way.
    """

    text: str
    start: int
    is_marked: bool
    replaces: bool

    @property
    def is_question_word(self) -> bool:
        return _QUESTION_WORD.match(self.text) is not None


def fragment_of(question: str) -> Fragment | None:
    """The incomplete question, if the question is not a clause of its own."""
    start = match.end() if (match := _LEAD.match(question)) else 0
    is_marked, replaces = start > 0, False
    for pattern in (_ABOUT, _PREPOSITION):
        if match := pattern.match(question[start:]):
            if pattern is _PREPOSITION and _CLAUSE.match(question[start:]):
                break
            start, is_marked, replaces = start + match.end(), is_marked or pattern is _ABOUT, True
    text = _END.sub("", question[start:])
    fragment = Fragment(text, start, is_marked, replaces)
    if not text or (_CLAUSE.match(text) and not (is_marked and fragment.is_question_word)):
        return None
    return fragment


def without_lead(question: str) -> str:
    """A clause without "and" before it."""
    bare = _LEAD.sub("", question)
    return bare[:1].upper() + bare[1:] if bare != question else question


def with_question_word(question: str, word: str) -> str:
    """The question with another question word, or the word before it if it has none."""
    word = word[:1].upper() + word[1:]
    if match := _OPENING.match(question):
        return word + question[match.end() :]
    return f"{word}: {question}"


def property_before(question: str, start: int) -> tuple[int, int] | None:
    """The place of a property of what begins at `start`: "the director" of "Who is the director of Heat?"."""
    match = _PROPERTY.search(question[:start])
    return None if match is None else match.span("noun")


def property_after(question: str, end: int) -> tuple[int, int] | None:
    """The place of a property of what ends at `end`: "mother" of "Who is Ali's mother?"."""
    match = _OWNED.match(question[end:])
    return None if match is None else (end + match.start("noun"), end + match.end("noun"))
