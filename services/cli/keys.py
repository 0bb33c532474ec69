"""`kbqa keys`: API keys of the gateway, or of a kg_server."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from services.access.keys import EVERY_GRAPH, KeyFile, KeyRecord
from services.cli.options import DEFAULT_HOME, AsJson, Home
from services.gateway.access.settings import keys_path
from services.gateway.usage import read_usage, usage_path

commands = typer.Typer(
    help="Create, list and revoke API keys of the gateway, or with --file those in a key file of kg_server "
    "or the trainer.",
    no_args_is_help=True,
)

File = Annotated[
    Path | None,
    typer.Option(
        "--file",
        envvar="KBQA_GATEWAY_KEYS_FILE",
        help="File that holds the keys (default: HOME/gateway/keys.json).",
    ),
]


@commands.command()
def create(
    name: Annotated[str, typer.Argument(help="Name of the key's owner.")],
    graph: Annotated[
        list[str] | None,
        typer.Option("--graph", help="Restrict the key to this graph (default: all). Repeatable."),
    ] = None,
    changes: Annotated[
        bool, typer.Option("--changes", help="Let the key change its graphs at kg_server.")
    ] = False,
    days: Annotated[
        float | None, typer.Option(min=0.0, help="Days until the key expires (default: never).")
    ] = None,
    rate: Annotated[
        str | None, typer.Option(help="Rate limit, such as 60/minute (default: the service's setting).")
    ] = None,
    quota: Annotated[
        str | None,
        typer.Option(help="Quota of questions, such as 1000/day (default: the gateway's setting)."),
    ] = None,
    min_confidence: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Withhold an answer if its confidence or its presence is lower (default: the gateway's "
            "threshold).",
        ),
    ] = None,
    file: File = None,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Create a key and print it once; only its hash is stored.

    A gateway that was started without keys requires them from its next start on.
    """
    expires = None if days is None else datetime.now(UTC) + timedelta(days=days)
    keys = KeyFile(file or keys_path(home))
    first = not keys.path.exists()
    record, key = keys.create(
        name,
        graphs=tuple(graph or (EVERY_GRAPH,)),
        changes=changes,
        rate=rate,
        quota=quota,
        min_confidence=min_confidence,
        expires=expires,
    )
    if as_json:
        typer.echo(json.dumps({"key": key, **_described(record)}))
        return
    typer.echo(key)
    typer.echo(
        f"the key of {name} ({record.id}) is not shown again: send it as Authorization: Bearer KEY", err=True
    )
    if first:
        typer.echo("restart the service so that it requires keys", err=True)


@commands.command("list")
def list_keys(file: File = None, home: Home = DEFAULT_HOME, as_json: AsJson = False) -> None:
    """List all keys, oldest first."""
    records = KeyFile(file or keys_path(home)).read()
    if as_json:
        typer.echo(json.dumps([_described(record) for record in records]))
        return
    if not records:
        typer.echo(
            "there is no key yet, so everybody who can reach the gateway may ask: create one with kbqa "
            "keys create NAME"
        )
        return
    now = datetime.now(UTC)
    columns = ("id", "name", "state", "graphs", "rate", "quota", "confidence", "created", "expires")
    table = Table(*columns, box=None)
    for record in records:
        graphs = "all" if EVERY_GRAPH in record.graphs else ", ".join(record.graphs)
        expires = "never" if record.expires is None else f"{record.expires:%Y-%m-%d}"
        table.add_row(
            record.id,
            record.name,
            record.state(now),
            graphs,
            record.rate or "",
            record.quota or "",
            "" if record.min_confidence is None else f"{record.min_confidence:g}",
            f"{record.created:%Y-%m-%d}",
            expires,
        )
    Console().print(table)


@commands.command()
def usage(
    since: Annotated[
        datetime | None,
        typer.Option(formats=["%Y-%m-%d"], help="First day that counts, in UTC (default: all)."),
    ] = None,
    file: File = None,
    home: Home = DEFAULT_HOME,
    as_json: AsJson = False,
) -> None:
    """Report what each key has cost: questions, calls of the policy, tokens, graph actions and seconds.

    Gateways save these figures every few seconds.
    """
    used = read_usage(usage_path(home), None if since is None else since.date())
    names = {record.id: record.name for record in KeyFile(file or keys_path(home)).read()}
    if as_json:
        typer.echo(
            json.dumps(
                [
                    {"id": key, "name": names.get(key, ""), **cost.model_dump()}
                    for key, cost in sorted(used.items())
                ]
            )
        )
        return
    if not used:
        typer.echo("no question has been answered yet")
        return
    columns = (
        "id",
        "name",
        "questions",
        "calls",
        "tokens read",
        "tokens written",
        "graph actions",
        "seconds",
    )
    table = Table(*columns, box=None)
    for key, cost in sorted(used.items(), key=lambda entry: -entry[1].seconds):
        table.add_row(
            key or "-",
            names.get(key, "" if key else "callers without a key"),
            str(cost.questions),
            str(cost.llm_calls),
            str(cost.prompt_tokens),
            str(cost.generated_tokens),
            str(cost.kg_calls),
            f"{cost.seconds:.1f}",
        )
    Console().print(table)


@commands.command()
def revoke(
    key: Annotated[str, typer.Argument(help="Id or name of a key.")],
    file: File = None,
    home: Home = DEFAULT_HOME,
) -> None:
    """Revoke a key permanently. Running gateways notice within a second."""
    record = KeyFile(file or keys_path(home)).revoke(key)
    typer.echo(f"revoked {record.name} ({record.id})")


def _described(record: KeyRecord) -> dict[str, object]:
    """A record with its state and without its hash."""
    return {**record.model_dump(mode="json", exclude={"digest"}), "state": record.state(datetime.now(UTC))}
