"""Arguments of actions: their allowed values, meanings and JSON schemas."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

MAX_ARGUMENT_CHARS = 32_768
MAX_ARGUMENT_TEXTS = 1000


@dataclass(frozen=True, slots=True)
class ArgumentKind:
    """The values that an argument may have.

    Attributes:
        fits: whether a value is allowed; this check alone decides.
        says: describes the kind in errors and to agents; "" for a text.
        schema: the kind as JSON schema, as far as JSON schema can express it.
    """

    fits: Callable[[Any], bool]
    says: str = ""
    schema: Mapping[str, Any] = field(default_factory=dict)

    @property
    def is_text(self) -> bool:
        return self.schema.get("type") == "string"


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of an action.

    Attributes:
        meaning: tells an agent what to pass.
    """

    kind: ArgumentKind
    meaning: str = ""

    @property
    def description(self) -> str:
        """The meaning, followed by the kind of value unless that is a text."""
        return "; ".join(filter(None, (self.meaning, self.kind.says)))

    @property
    def schema(self) -> dict[str, Any]:
        """JSON schema of the argument, with its description."""
        return {**self.kind.schema, "description": self.description}


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= MAX_ARGUMENT_CHARS


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and 0 < len(value) <= MAX_ARGUMENT_TEXTS and all(map(_is_text, value))


def whole_number(least: int, most: int | None = None) -> ArgumentKind:
    """A whole number in a range."""
    bounds = f"at least {least}" if most is None else f"{least} to {most}"
    return ArgumentKind(
        lambda value: type(value) is int and least <= value and (most is None or value <= most),
        f"a whole number, {bounds}",
        {"type": "integer", "minimum": least, **({} if most is None else {"maximum": most})},
    )


def short_text(most: int) -> ArgumentKind:
    """A text of at most `most` characters."""
    return ArgumentKind(
        lambda value: _is_text(value) and len(value) <= most,
        f"a text of at most {most} characters",
        {"type": "string", "maxLength": most},
    )


TEXT = ArgumentKind(_is_text, schema={"type": "string"})
TEXTS = ArgumentKind(
    _are_texts,
    f"a list of 1 to {MAX_ARGUMENT_TEXTS} texts",
    {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_ARGUMENT_TEXTS},
)
FLAG = ArgumentKind(lambda value: type(value) is bool, "true or false", {"type": "boolean"})

ENTITY = Argument(TEXT, "an entity's id or exact label")
RELATION = Argument(TEXT, "a relation's id or exact label")
QUESTION = Argument(TEXT, "the question in natural language")
EXPRESSION = Argument(TEXT, "a logical form as an S-expression")

# Arguments that every action takes in addition to its own.
PAGING: Mapping[str, Argument] = {
    "limit": Argument(whole_number(1), "items to return at most"),
    "offset": Argument(whole_number(0), "items to skip, to see more than the first page"),
}
SECONDS = ArgumentKind(
    lambda value: type(value) in (int, float) and 0 < value <= 3600,
    "seconds, 3600 at most",
    {"type": "number", "exclusiveMinimum": 0, "maximum": 3600},
)
# Arguments with which a recipe's terms go along with an action (`kbqa.kg.terms`); every action takes them.
TERMS: Mapping[str, Argument] = {
    "timeout_s": Argument(SECONDS, "time that a query may run; at most the server's"),
    "encoder": Argument(TEXT, "the encoder that relations have to be compared by; another one is an error"),
}
