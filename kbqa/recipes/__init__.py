"""Recipes: each paper as a file of numbers, shipped with the package."""

from __future__ import annotations

from collections.abc import Mapping
from copy import deepcopy
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
    """Load a recipe by name, or by the path of a YAML file, and resolve it.

    A file may name a parent recipe under `extends`; its own values override the parent's.

    Args:
        overrides: values by dotted key (`{"schedule.steps": 50}`); they override the file's.

    Raises:
        RecipeError: unknown recipe, unknown key or impossible value; names the key.
    """
    return recipe_from(_read(name), name, overrides)


def recipe_from(
    values: Mapping[str, Any], source: str = "recipe", overrides: Mapping[str, Any] | None = None
) -> Recipe:
    """Build a recipe from plain values.

    Args:
        source: where they come from, for messages.
        overrides: as those of `load_recipe`.

    Raises:
        RecipeError: names each wrong key and what is allowed there.
    """
    resolved: dict[str, Any] = deepcopy(dict(values))
    for key, value in (overrides or {}).items():
        *parents, leaf = key.split(".")
        section = resolved
        for parent in parents:
            section = section.setdefault(parent, {})
            if not isinstance(section, dict):
                raise RecipeError(f"recipe {source}: {key}: {parent} is not a section")
        section[leaf] = deepcopy(value)
    try:
        return Recipe.model_validate(resolved)
    except ValidationError as error:
        faults = "; ".join(map(_explain, error.errors()))
        raise RecipeError(f"{source}: {faults}") from None


def _explain(fault: Any) -> str:
    keys: list[str] = []
    section: Any = Recipe  # the section that holds the last key
    inner: Any = Recipe  # the section that the last key names, or the members of its union by tag
    for part in fault["loc"]:
        if isinstance(inner, dict):  # pydantic puts the union's tag between two keys
            inner = inner[part]
            continue
        keys.append(str(part))
        if isinstance(part, int):  # an index into a list
            continue
        section = inner
        field = getattr(section, "model_fields", {}).get(part)
        inner = field and (_tagged(field.annotation) or _wanted(field.annotation))
    says = fault["msg"].removeprefix("Value error, ")
    if fault["type"] == "extra_forbidden":
        says = f"unknown key (known: {', '.join(section.model_fields)})"
    return f"{'.'.join(keys) or 'recipe'}: {says}"


def _tagged(annotation: Any) -> dict[str, Any]:
    """The sections of a tagged union, by tag; empty for any other type."""
    members = [get_args(member) for member in get_args(annotation)]
    return {member[1].tag: member[0] for member in members if len(member) > 1 and isinstance(member[1], Tag)}


def _wanted(annotation: Any) -> Any:
    """The type inside an optional value or a list."""
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
    """Whether a section names a different part, for which the inherited options are meaningless."""
    return "name" in above and above["name"] != below.get("name")
