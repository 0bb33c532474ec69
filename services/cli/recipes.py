"""`kbqa recipe`: lists, shows, checks and compares recipes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, Any

import typer
import yaml

from kbqa.errors import RecipeError
from kbqa.recipes import load_recipe, recipe_names
from services.cli.options import Overrides, read_pairs

commands = typer.Typer(help="List, show, check and compare recipes.", no_args_is_help=True)

_BAD = 1
_ABSENT = "-"

Name = Annotated[str, typer.Argument(help="Name of a recipe, or a YAML file.")]


@commands.command("list")
def list_recipes() -> None:
    """List the recipes that come with kbqa."""
    for name in recipe_names():
        typer.echo(name)


@commands.command()
def show(name: Name, overrides: Overrides = None) -> None:
    """Print a recipe with all its values, including inherited and default ones."""
    recipe = load_recipe(name, read_pairs("--set", overrides))
    typer.echo(yaml.safe_dump(recipe.model_dump(mode="json"), sort_keys=False), nl=False)


@commands.command()
def check(name: Name, overrides: Overrides = None) -> None:
    """Validate a recipe. Exit code 1 if it is invalid, naming each wrong key and what is allowed."""
    values = read_pairs("--set", overrides)
    try:
        recipe = load_recipe(name, values)
    except RecipeError as error:
        typer.echo(f"error: {error}", err=True)
        raise typer.Exit(_BAD) from None
    typer.echo(f"{recipe.name} is a valid recipe (digest {recipe.digest()[:12]})")


@commands.command()
def diff(
    name: Name,
    other: Annotated[str, typer.Argument(help="The other recipe or YAML file.")],
    overrides: Overrides = None,
) -> None:
    """Print the values that differ between two recipes, one per line. Exit code 1 if any do.

    --set overrides values of the second recipe.
    """
    ours = dict(_values(load_recipe(name).model_dump(mode="json")))
    theirs = dict(_values(load_recipe(other, read_pairs("--set", overrides)).model_dump(mode="json")))
    keys = [key for key in {**ours, **theirs} if key != "name"]
    differing = [key for key in keys if ours.get(key, _ABSENT) != theirs.get(key, _ABSENT)]
    for key in differing:
        typer.echo(f"{key}: {ours.get(key, _ABSENT)} -> {theirs.get(key, _ABSENT)}")
    if differing:
        raise typer.Exit(_BAD)


def _values(section: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, value) of every value in a recipe."""
    for key, value in section.items():
        if isinstance(value, Mapping):
            yield from _values(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
