"""`kbqa promote`: which policy answers."""

from __future__ import annotations

from typing import Annotated
from urllib.parse import quote

import typer

from kbqa.errors import NoPolicyError
from kbqa.policy_store import PolicyStore
from services.cli.api import Api, ApiError
from services.cli.options import DEFAULT_HOME, DEFAULT_TRAINER, Home, TrainerUrl


def promote(
    run: Annotated[str, typer.Argument(help="A training run.")],
    version: Annotated[
        str | None, typer.Option(help="One of its versions; unless given, the newest that was tested.")
    ] = None,
    trainer: TrainerUrl = DEFAULT_TRAINER,
    home: Home = DEFAULT_HOME,
) -> None:
    """Make a run's policy the one that answers users. A running gateway takes it over by itself.

    The trainer that is up decides which version; without one, it is the newest in KBQA_HOME.
    """
    try:
        api = Api("trainer", trainer, "--trainer or KBQA_TRAINER_URL")
        promoted = api.post(f"/v1/runs/{quote(run, safe='')}/promote", {"version": version})["version"]
    except ApiError as error:
        if error.status not in (0, 404):
            raise
        promoted = _promote_here(PolicyStore(home / "policies"), run, version)
    typer.echo(f"promoted {promoted} of run {run}")


def _promote_here(store: PolicyStore, run: str, version: str | None) -> str:
    if version is None:
        newest = store.newest(run)
        if newest is None:
            known = ", ".join(store.runs()) or "none yet"
            raise NoPolicyError(f'run "{run}" has published no policy (runs that have: {known})')
        version = newest.id
    return store.promote(run, version).id
