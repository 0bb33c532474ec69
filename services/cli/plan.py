"""`kbqa plan`: what a recipe needs of a machine."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kbqa.recipes import load_recipe
from services.cli.options import AsJson, Overrides, read_pairs

_DOES_NOT_FIT = 1


def plan(
    recipe: Annotated[str, typer.Argument(help="Name of a recipe, or a YAML file.")],
    gpus: Annotated[
        int | None,
        typer.Option(min=1, help="GPUs of each node (default: plan for this machine, with or without GPUs)."),
    ] = None,
    gpu_memory: Annotated[float, typer.Option(min=1, help="Memory of each GPU, GiB.")] = 80,
    nodes: Annotated[int, typer.Option(min=1, help="Number of nodes.")] = 1,
    overrides: Overrides = None,
    as_json: AsJson = False,
) -> None:
    """Say whether a recipe fits a machine, and what it takes: memory by part, speed, disk.

    Memory is measured on the model's own classes with tensors that have no contents, so neither the base
    model nor a GPU is needed. Exit code 1 if the recipe does not fit; then it says what to change.
    """
    from kbqa.planning.defaults import resolved  # these load torch
    from kbqa.planning.machines import GIB, Machine, machine_here
    from kbqa.planning.plan import plan as make_plan
    from kbqa.planning.report import lines

    machine = (
        machine_here(nodes=nodes) if gpus is None else Machine("cuda", gpus, int(gpu_memory * GIB), nodes)
    )
    chosen = resolved(load_recipe(recipe, read_pairs("--set", overrides)), machine.kind)
    made = make_plan(chosen, machine)
    typer.echo(json.dumps(made.to_json()) if as_json else "\n".join(lines(made)))
    if not made.fits:
        raise typer.Exit(_DOES_NOT_FIT)
