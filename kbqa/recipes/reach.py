"""What a recipe reaches beyond itself: URLs, environment variables and files that its values name.

A recipe of somebody else may name an address to which a judge sends questions, the variable whose value goes
along as the key, or a directory of weights. A service therefore accepts a recipe from a request only within
a `Reach`, which its operator sets:

    Reach(urls=("https://judge.example/v1",), variables=("JUDGE_KEY",)).require(recipe)

Values are recognised by their form, so that options of parts from other distributions are covered as well: a
URL contains `://`; the name of an option that names an environment variable ends in `_variable`; a path
begins with `/`, `~` or `.`, or has more than one slash. A model is a path if such a file exists.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from kbqa.errors import RecipeRefusedError
from kbqa.recipes import load_recipe, recipe_names
from kbqa.recipes.schema import Recipe

_MODELS = frozenset({"base_model", "optimisation.reference"})


class Outside(StrEnum):
    """What a value may name beyond a recipe."""

    URL = "URL"
    VARIABLE = "environment variable"
    PATH = "path"


class _Named(NamedTuple):
    kind: Outside
    value: str


@dataclass(frozen=True, slots=True)
class Reach:
    """What recipes from requests may name, in addition to what the shipped recipes name.

    Attributes:
        urls: whole URLs; a final slash does not matter.
        variables: names of environment variables.
        directories: directories; everything below them may be named.
    """

    urls: tuple[str, ...] = ()
    variables: tuple[str, ...] = ()
    directories: tuple[Path, ...] = ()

    def require(self, recipe: Recipe) -> None:
        """Check that a recipe names nothing else.

        Raises:
            RecipeRefusedError: it does; the error has the key and the kind of the value.
        """
        for key, named in _outside(recipe.model_dump()):
            if named not in _shipped() and not self._has(named):
                raise RecipeRefusedError(key, named.kind, named.value)

    def _has(self, named: _Named) -> bool:
        match named.kind:
            case Outside.URL:
                return named.value.rstrip("/") in {url.rstrip("/") for url in self.urls}
            case Outside.VARIABLE:
                return named.value in self.variables
            case Outside.PATH:
                path = Path(named.value).expanduser().resolve()
                return any(path.is_relative_to(directory.resolve()) for directory in self.directories)


def _outside(values: Any, key: str = "") -> Iterator[tuple[str, _Named]]:
    """Every value that names something beyond the recipe, with its dotted key."""
    if isinstance(values, dict):
        for name, value in values.items():
            yield from _outside(value, f"{key}.{name}" if key else str(name))
    elif isinstance(values, list | tuple):
        for value in values:
            yield from _outside(value, key)
    elif isinstance(values, str) and (kind := _kind(key, values)) is not None:
        yield key, _Named(kind, values)


def _kind(key: str, value: str) -> Outside | None:
    if "://" in value:
        return Outside.URL
    if key.endswith("_variable"):
        return Outside.VARIABLE
    if value.startswith(("/", "~", ".")) or value.count("/") > 1 or "\\" in value:
        return Outside.PATH
    return Outside.PATH if key in _MODELS and Path(value).exists() else None


@cache
def _shipped() -> frozenset[_Named]:
    recipes = map(load_recipe, recipe_names())
    return frozenset(named for recipe in recipes for _, named in _outside(recipe.model_dump()))
