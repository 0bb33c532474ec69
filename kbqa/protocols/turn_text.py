"""Parses a turn of most dialects: a thought in its tags, then one command in its tags."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

_THOUGHT = re.compile(r"\s*<think>(.*?)</think>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TurnText:
    """The parts of a completion.

    Attributes:
        thought: the text between the thinking tags, "" without them.
        kind: name of the first command's tag, None if there is no command.
        body: the text between the command's tags.
        tidy: whether there is a `<think>` block, and nothing but it and the command.
    """

    thought: str
    kind: str | None = None
    body: str = ""
    tidy: bool = False

    def is_sound(self, tags: Iterable[str], *, silent: bool = False) -> bool:
        """Whether it is tidy, says something in its thought, and has none of `tags` within its parts.

        Args:
            silent: whether an empty thought will do.
        """
        inside = self.thought + self.body
        return self.tidy and (silent or bool(self.thought)) and not any(tag in inside for tag in tags)


def read_turn(text: str, command: re.Pattern[str]) -> TurnText:
    """Parse a completion, which may be any text.

    Args:
        command: matches a command; its groups are the tag's name and the body.
    """
    thought = _THOUGHT.match(text)
    reasoning = thought[1].strip() if thought else ""
    rest = text[thought.end() :] if thought else text
    found = command.search(rest)
    if found is None:
        return TurnText(reasoning)
    tidy = thought is not None and not rest.replace(found[0], "", 1).strip()
    return TurnText(reasoning, found[1], found[2], tidy)


def read_json(text: str) -> Any:
    """The value of JSON that a model wrote; its strings may contain line breaks.

    Raises:
        ValueError: it is not JSON, nests too deep, or contains a number of thousands of digits or half a
            surrogate pair, which could not be sent on.
    """
    try:
        value = json.loads(text, strict=False)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("the JSON nests too deep") from error
    return value
