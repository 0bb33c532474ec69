"""A few questions about a graph to show to its users: a file for each, `KBQA_HOME/examples/GRAPH.jsonl`."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from kbqa.datasets.gold import is_computed
from kbqa.datasets.records import read_questions, write_questions
from kbqa.trajectory import Question

MOST = 6
"""Examples of a graph."""

_FEW = 5  # answers that an example has at most
_BEGIN = ("who ", "whom ", "which ", "when ", "where ", "how many ", "is ", "does ", "did ", "was ")
# Words that fit people and things alike ("what directs Heat", "who or what is", "who are the films"), number
# that does not fit ("is people"), and a question within a question.
_VAGUE = re.compile(r"\b(things?|what|or|who (is|are|was|were) the|(is|was) people)\b|.\b(who|which)\b")


def choose_examples(questions: Sequence[Question]) -> tuple[Question, ...]:
    """Of each operation and number of hops the question that looks most natural, written as people write."""
    chosen: dict[tuple[str, int], Question] = {}
    for question in sorted(questions, key=_unnatural):
        if len(question.answers) <= _FEW:
            chosen.setdefault((question.operation, len(question.path)), question)
    return tuple(
        replace(one, text=_written(one.text)) for one in sorted(chosen.values(), key=_unnatural)[:MOST]
    )


def _unnatural(question: Question) -> tuple[bool, bool, bool, int]:
    """Greater for what asks about a bare number ("the films of 94"), is vague, is no sentence, or is long."""
    about_numbers = any(map(is_computed, question.topic_entities))
    is_vague = _VAGUE.search(question.text) is not None
    return about_numbers, is_vague, not question.text.startswith(_BEGIN), len(question.text)


def _written(text: str) -> str:
    """A made text with a capital letter, and without spaces before its marks."""
    text = re.sub(r" (?='s\b|[?.]$)", "", text)
    return text[:1].upper() + text[1:] + ("" if text.endswith(("?", ".")) else "?")


def write_examples(home: Path, kg: str, questions: Sequence[Question]) -> tuple[Question, ...]:
    """Keep the examples among some questions, in place of earlier ones; returns them.

    Raises:
        OSError: they cannot be written.
    """
    examples = choose_examples(questions)
    file = _file(home, kg)
    file.parent.mkdir(parents=True, exist_ok=True)
    write_questions(file, examples)
    return examples


def read_examples(home: Path, kg: str) -> Sequence[Question]:
    """The examples of a graph; none if there are none.

    Raises:
        DatasetError: the file is malformed.
    """
    file = _file(home, kg)
    return read_questions(file) if file.is_file() else ()


def is_answered(question: Question, found: Sequence[str]) -> bool:
    """Whether a graph, which may have changed, still answers an example.

    A count of nothing is not an answer, and neither is a yes that has become a no, or the reverse: such a
    question would tell what the graph had when it was made, or what a view no longer shows.

    Args:
        found: labels of the answers that the graph has now.
    """
    if question.operation == "boolean":
        return tuple(found) == question.answers
    return bool(found) and not (question.operation == "count" and list(found) == ["0"])


def _file(home: Path, kg: str) -> Path:
    return home / "examples" / f"{kg}.jsonl"
