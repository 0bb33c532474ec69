"""`kbqa base`: the pretrained models that policies and encoders start from."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from kbqa.bases import KNOWN, find_base, sight, ways_to_get
from services.cli.options import AsJson

commands = typer.Typer(help="Find pretrained models on this machine.", no_args_is_help=True)


@commands.command("list")
def list_bases(as_json: AsJson = False) -> None:
    """List the bases that kbqa knows: their licences, and where each is or what to install."""
    rows = []
    for base in KNOWN.values():
        found = sight(base.name)
        rows.append(
            {
                "name": base.name,
                "licence": base.licence,
                "origin": None if found is None else found[0],
                "path": None if found is None else str(found[1]),
                "install": ways_to_get(base.name) if found is None else None,
            }
        )
    if as_json:
        typer.echo(json.dumps(rows))
        return
    for row in rows:  # not a table, so that the install command can be copied
        where = f"{row['origin']}: {row['path']}" if row["install"] is None else f"not here: {row['install']}"
        typer.echo(f"{row['name']} ({row['licence']})\n    {where}")


@commands.command()
def find(
    name: Annotated[str, typer.Argument(help="Directory, name on the hub, or a base of `kbqa base list`.")],
) -> None:
    """Print the directory of a base. Its checksum is verified, and it is converted first if need be."""
    typer.echo(find_base(name).directory)
