"""A turn as most dialects write it: a thought in its tags, then one command in its own."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import Any

_THOUGHT = re.compile(r"\s*<think>(.*?)</think>", re.DOTALL)


@dataclass(frozen=True, slots=True)
class TurnText:
    """What a completion holds.

    Attributes:
        thought: what stands between the thinking tags, "" without them.
        kind: name of the first command's tag, None if there is no command.
        body: what stands between the command's tags.
        tidy: whether there is a thought, and nothing but it and the command.
    """

    thought: str
    kind: str | None = None
    body: str = ""
    tidy: bool = False


def read_turn(text: str, command: re.Pattern[str]) -> TurnText:
    """Take a completion apart; any text will do.

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
    """The value of some JSON that a model wrote; line ends may stand in its strings.

    Raises:
        ValueError: it is none, or nests too deep, or holds a number of thousands of digits or half
            a character, which nobody could send on.
    """
    try:
        value = json.loads(text, strict=False)
        json.dumps(value, ensure_ascii=False).encode()
    except RecursionError as error:
        raise ValueError("the JSON nests too deep") from error
    return value
