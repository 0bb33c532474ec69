"""`kbqa export`: writes a run's weights as a Hugging Face directory, for any engine or hub."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any, cast
from urllib.parse import quote, urlencode

import typer

from kbqa.errors import ConfigurationError, RunError
from kbqa.policy_store.durable import new_directory, put_in_place
from services.cli.api import Api, UnreachableError
from services.cli.options import DEFAULT_HOME, DEFAULT_TRAINER, Home, TrainerUrl

_TIMEOUT_S = 1800.0  # for the trainer to merge an adapter and begin to send
# Python before 3.11.4 has no filters; the archive is the trainer's own.
_FILTER: dict[str, Any] = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}


def export(
    run: Annotated[str, typer.Argument(help="Training run.")],
    into: Annotated[Path, typer.Argument(help="Directory to create; it must not exist yet.")],
    version: Annotated[str | None, typer.Option(help="Version of the policy (default: the newest).")] = None,
    checkpoint: Annotated[
        int | None, typer.Option(min=0, metavar="STEP", help="Export this checkpoint instead of a version.")
    ] = None,
    adapter: Annotated[
        bool,
        typer.Option(
            "--adapter", help="Export a LoRA adapter by itself instead of merging it into its base model."
        ),
    ] = False,
    trainer: TrainerUrl = DEFAULT_TRAINER,
    home: Home = DEFAULT_HOME,
) -> None:
    """Write a run's weights as an ordinary Hugging Face directory.

    The running trainer provides them; without one, they are read from KBQA_HOME.
    """
    if version is not None and checkpoint is not None:
        raise ConfigurationError("--version and --checkpoint exclude each other: give only one of them")
    if into.exists():
        raise ConfigurationError(f"{into} already exists: name a directory that does not")
    choice = {"version": version, "checkpoint": checkpoint, "adapter": adapter or None}
    asked = {name: str(value) for name, value in choice.items() if value is not None}
    try:
        api = Api("trainer", trainer, "--trainer or KBQA_TRAINER_URL", timeout_s=_TIMEOUT_S)
        _unpack(api.stream(f"/v1/runs/{quote(run, safe='')}/export?{urlencode(asked)}"), into)
    except UnreachableError:
        if trainer != DEFAULT_TRAINER:
            raise
        _export_here(home, run, into, asked)
    typer.echo(f"exported to {into}")


def _unpack(pieces: Iterator[bytes], into: Path) -> None:
    """Extract all files of a tar archive, or none."""
    with new_directory(into.absolute().parent) as aside:
        with tarfile.open(fileobj=cast("tarfile._Fileobj", _Pieces(pieces)), mode="r|") as archive:
            archive.extractall(aside, **_FILTER)
        put_in_place(aside, into.absolute())


def _export_here(home: Path, run: str, into: Path, asked: dict[str, str]) -> None:
    # Use another process, because the export needs torch, which commands do not load.
    # -P: do not import a directory "services" in the working directory instead of ours.
    command = [sys.executable, "-P", "-m", "services.trainer.export"]
    choice = [f"--{name}" if name == "adapter" else f"--{name}={value}" for name, value in asked.items()]
    where = [f"--home={home}", f"--run={run}", f"--into={into}"]
    made = subprocess.run([*command, *where, *choice], stderr=subprocess.PIPE, text=True, check=False)
    if made.returncode:
        lines = made.stderr.strip().splitlines() or ["the export failed without a message"]
        raise RunError(lines[-1].removeprefix("error: "))


class _Pieces:
    """A readable file over the chunks of a stream."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces, self._rest = pieces, b""

    def read(self, size: int) -> bytes:
        while len(self._rest) < size and (piece := next(self._pieces, b"")):
            self._rest += piece
        taken, self._rest = self._rest[:size], self._rest[size:]
        return taken
