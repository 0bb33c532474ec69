"""Recipes: each paper as a file of numbers, shipped with the package."""

from __future__ import annotations

from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any, get_args

import yaml
from pydantic import Tag, ValidationError

from kbqa.errors import RecipeError
from kbqa.recipes.schema import Recipe

__all__ = ["Recipe", "load_recipe", "recipe_from", "recipe_names"]


def recipe_names() -> list[str]:
    """Names of the recipes in the package."""
    files = resources.files(__name__).iterdir()
    return sorted(file.name.removesuffix(".yaml") for file in files if file.name.endswith(".yaml"))


def load_recipe(name: str, overrides: Mapping[str, Any] | None = None) -> Recipe:
    """A recipe by name or by path of a YAML file, resolved.

    A file may name another under `extends`; its own values are laid over that one's.

    Args:
        overrides: values by dotted key (`{"schedule.steps": 50}`), laid over the file's.

    Raises:
        RecipeError: unknown recipe, unknown key or impossible value; names the key.
    """
    values = _read(name)
    for key, value in (overrides or {}).items():
        *parents, leaf = key.split(".")
        section = values
        for parent in parents:
            section = section.setdefault(parent, {})
            if not isinstance(section, dict):
                raise RecipeError(f"recipe {name}: {key}: {parent} is not a section")
        section[leaf] = value
    return recipe_from(values, name)


def recipe_from(values: Mapping[str, Any], source: str = "recipe") -> Recipe:
    """A recipe from plain values.

    Raises:
        RecipeError: names each wrong key and what is allowed there.
    """
    try:
        return Recipe.model_validate(values)
    except ValidationError as error:
        faults = "; ".join(map(_explain, error.errors()))
        raise RecipeError(f"{source}: {faults}") from None


def _explain(fault: Any) -> str:
    keys: list[str] = []
    section: Any = Recipe  # the one that the last key stands in
    inner: Any = Recipe  # the one that it names, or those that it may be, by the tags of their union
    for part in fault["loc"]:
        if isinstance(inner, dict):  # pydantic names the tag between two keys
            inner = inner[part]
            continue
        keys.append(str(part))
        if isinstance(part, int):  # one of several alike
            continue
        section = inner
        field = getattr(section, "model_fields", {}).get(part)
        inner = field and (_tagged(field.annotation) or _wanted(field.annotation))
    says = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        says = f"unknown key (known: {', '.join(section.model_fields)})"
    return f"{'.'.join(keys) or 'recipe'}: {says}"


def _tagged(annotation: Any) -> dict[str, Any]:
    """The sections of a union, by their tags; none of another type."""
    members = [get_args(member) for member in get_args(annotation)]
    return {member[1].tag: member[0] for member in members if len(member) > 1 and isinstance(member[1], Tag)}


def _wanted(annotation: Any) -> Any:
    """The type of a value that may be left out, or of those in a list."""
    return next((member for member in get_args(annotation) if member is not type(None)), annotation)


def _read(name: str) -> dict[str, Any]:
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        try:
            text = path.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise RecipeError(f"recipe file {name} cannot be read: {error}") from error
    else:
        file = resources.files(__name__) / f"{name}.yaml"
        if name not in recipe_names():
            raise RecipeError(f'no recipe named "{name}" (known: {", ".join(recipe_names())})')
        text = file.read_text(encoding="utf-8")
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise RecipeError(f"{name}: not YAML: {error}") from error
    if not isinstance(values, dict):
        raise RecipeError(f"{name}: a recipe is a mapping of sections")
    parent = values.pop("extends", None)
    return values if parent is None else _overlay(_read(parent), values)


def _overlay(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    merged = dict(below)
    for key, value in above.items():
        inherited = merged.get(key)
        if isinstance(inherited, dict) and isinstance(value, dict) and not _is_another_part(inherited, value):
            merged[key] = _overlay(inherited, value)
        else:
            merged[key] = value
    return merged


def _is_another_part(below: dict[str, Any], above: dict[str, Any]) -> bool:
    """Whether a section names another part, to which the options of the one below mean nothing."""
    return "name" in above and above["name"] != below.get("name")
