"""Base classes of recipe sections."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Generic, TypeVar

from pydantic import BaseModel, ConfigDict, Field, model_validator

from kbqa.parts import Parts

T = TypeVar("T")
Positive = Annotated[int, Field(ge=1)]
Fraction = Annotated[float, Field(ge=0, le=1)]
Rate = Annotated[float, Field(gt=0, le=1)]
Moment = Annotated[float, Field(ge=0, lt=1)]


class Section(BaseModel):
    """A part of a recipe; an unknown key is an error."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class PartSection(Section, Generic[T]):
    """A named part with its options, which are the fields of the part's class."""

    model_config = ConfigDict(extra="allow", frozen=True)
    parts: ClassVar[Parts[Any]]

    name: str

    @model_validator(mode="before")
    @classmethod
    def _resolve(cls, values: Any) -> Any:
        if not isinstance(values, dict) or not isinstance(values.get("name"), str):
            return values
        options = {key: value for key, value in values.items() if key != "name"}
        return {"name": values["name"], **cls.parts.resolve(values["name"], options)}

    def build(self) -> T:
        part: T = self.parts.build(self.name, self.model_extra or {})
        return part
