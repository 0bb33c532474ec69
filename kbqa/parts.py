"""Named parts that recipes combine: protocols, rewards, judges and so on.

    PROTOCOLS: Parts[AgentProtocol] = Parts("protocols")

    @PROTOCOLS.register("toy")
    @dataclass(frozen=True)
    class Toy:
        prompt: Literal["full", "brief"] = "full"

    PROTOCOLS.build("toy", {"prompt": "brief"})

A part is a dataclass; its fields are its options. Parts of other distributions are found by
entry points of the group `kbqa.<kind>`, so that a new paper needs no change here.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import fields
from importlib.metadata import EntryPoints, entry_points
from typing import Any, Generic, TypeVar

from pydantic import TypeAdapter, ValidationError
from pydantic_core import InitErrorDetails, PydanticCustomError

T = TypeVar("T")
PartT = TypeVar("PartT", bound=type)


def additions(kind: str) -> EntryPoints:
    """The entry points of the group `kbqa.<kind>`, by which other distributions add parts of a kind."""
    return entry_points(group=f"kbqa.{kind}")


def added(kind: str, name: str) -> Any | None:
    """The part of that kind and name in another distribution; None if there is none."""
    return next((point.load() for point in additions(kind) if point.name == name), None)


class Parts(Generic[T]):
    """The parts of one kind.

    Args:
        kind: name of the kind, in the plural, as in the group of entry points.
    """

    def __init__(self, kind: str) -> None:
        self._kind = kind
        self._classes: dict[str, Any] = {}
        self._adapters: dict[Any, TypeAdapter[Any]] = {}

    def register(self, name: str) -> Callable[[PartT], PartT]:
        """A decorator for a dataclass that recipes may name."""

        def add(part: PartT) -> PartT:
            self._classes[name] = part
            return part

        return add

    def names(self) -> list[str]:
        """Every name that a recipe may use."""
        return sorted({*self._classes, *(point.name for point in additions(self._kind))})

    def options(self, name: str) -> list[str]:
        """The options of a part; raises as `resolve`."""
        return [field.name for field in fields(self._find(name))]

    def resolve(self, name: str, options: Mapping[str, Any]) -> dict[str, Any]:
        """Check options, and add the defaults of missing ones.

        Raises:
            ValidationError: there is no such part, or an option is unknown or invalid.
        """
        adapter = self._adapter(name)
        known = self.options(name)
        unknown = [option for option in options if option not in known]
        if unknown:
            says = f"unknown key (known: {', '.join(('name', *known))})"
            raise _error(self._kind, *((option, says) for option in unknown))
        resolved: dict[str, Any] = adapter.dump_python(adapter.validate_python(dict(options)))
        return resolved

    def build(self, name: str, options: Mapping[str, Any]) -> T:
        """Create a part with options; raises as `resolve`."""
        part: T = self._adapter(name).validate_python(dict(options))
        return part

    def _adapter(self, name: str) -> TypeAdapter[Any]:
        part = self._find(name)
        if part not in self._adapters:
            self._adapters[part] = TypeAdapter(part)  # takes longer than building hundreds of parts
        return self._adapters[part]

    def _find(self, name: str) -> Any:
        if name not in self._classes and (part := added(self._kind, name)) is not None:
            self._classes[name] = part
        if name not in self._classes:
            raise _error(self._kind, ("name", f'unknown name "{name}" (known: {", ".join(self.names())})'))
        return self._classes[name]


def _error(kind: str, *faults: tuple[str, str]) -> ValidationError:
    details = [
        InitErrorDetails(type=PydanticCustomError("part", "{says}", {"says": says}), loc=(key,), input=key)
        for key, says in faults
    ]
    return ValidationError.from_exception_data(kind, details)
