"""`kbqa queue`: the queues between trainer and workers, and their dead letters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from kbqa.errors import ConfigurationError
from kbqa.wire import QUEUES, DeadLetter
from services.cli.options import DEFAULT_HOME, AsJson, Home
from services.cli.programs import redis_url_path

if TYPE_CHECKING:  # Celery takes half a second to import, and not every installation has it
    from services.dead_letters import DeadLetters

commands = typer.Typer(help="Look at the queues and at dead letters.", no_args_is_help=True)

_SHOWN_CHARACTERS = 200

Broker = Annotated[
    str | None,
    typer.Option(
        "--broker",
        envvar=["KBQA_BROKER_URL", "KBQA_REDIS_URL", "REDIS_URL"],
        help="URL of the broker (default: the Redis that kbqa up started in KBQA_HOME).",
    ),
]
Prefix = Annotated[
    str,
    typer.Option("--prefix", envvar="KBQA_QUEUE_PREFIX", help="Beginning of the queues' keys in Redis."),
]
Name = Annotated[str, typer.Argument(help=f"Queue: {' or '.join(QUEUES)}.")]
Ids = Annotated[list[str] | None, typer.Argument(help="Ids of dead letters (default: all of the queue).")]


@commands.command("list")
def list_queues(
    home: Home = DEFAULT_HOME, broker: Broker = None, prefix: Prefix = "", as_json: AsJson = False
) -> None:
    """Show how many messages of each queue are waiting, in progress, or dead letters."""
    found = {queue: _letters(queue, home, broker, prefix).counts() for queue in QUEUES}
    if as_json:
        typer.echo(json.dumps(found))
        return
    table = Table("queue", "waiting", "taken", "dead letters", box=None)
    for queue, counts in found.items():
        table.add_row(queue, *map(str, counts.values()))
    Console().print(table)


@commands.command()
def show(
    queue: Name,
    home: Home = DEFAULT_HOME,
    broker: Broker = None,
    prefix: Prefix = "",
    as_json: AsJson = False,
) -> None:
    """Show a queue's dead letters, oldest first, without removing them."""
    letters = _letters(queue, home, broker, prefix).read()
    if as_json:
        typer.echo(json.dumps([letter.model_dump(mode="json") for letter in letters]))
        return
    for letter in letters:
        typer.echo(f"{letter.id}  {letter.at}  {letter.consumer}  {letter.reason}")
        cut = "" if len(letter.message) <= _SHOWN_CHARACTERS else f" … ({letter.characters} characters)"
        typer.echo(f"    {letter.message[:_SHOWN_CHARACTERS]}{cut}")
    typer.echo(_count(letters, "is there" if len(letters) == 1 else "are there"))


@commands.command()
def requeue(
    queue: Name, ids: Ids = None, home: Home = DEFAULT_HOME, broker: Broker = None, prefix: Prefix = ""
) -> None:
    """Send dead letters to their queue again. Truncated ones and those without a task are kept."""
    typer.echo(_count(_letters(queue, home, broker, prefix).requeue(ids), "sent again"))


@commands.command()
def purge(
    queue: Name, ids: Ids = None, home: Home = DEFAULT_HOME, broker: Broker = None, prefix: Prefix = ""
) -> None:
    """Delete dead letters permanently."""
    typer.echo(_count(_letters(queue, home, broker, prefix).purge(ids), "removed"))


def _letters(queue: str, home: Path, broker: str | None, prefix: str) -> DeadLetters:
    if queue not in QUEUES:
        raise ConfigurationError(f'no queue "{queue}": there are {" and ".join(QUEUES)}')
    try:
        from services.broker import create_celery, require_broker
        from services.dead_letters import DeadLetters
    except ImportError as error:
        raise ConfigurationError(f"{error}: install it with pip install 'kbqa[queue]'") from error
    app = create_celery("cli", _broker(home, broker), prefix=prefix, consumes=queue)
    require_broker(app)
    return DeadLetters(app, queue)


def _broker(home: Path, broker: str | None) -> str:
    if broker is not None:
        return broker
    try:
        return redis_url_path(home).read_text(encoding="utf-8")
    except OSError:
        raise ConfigurationError(
            f"no Redis is known: none was started in {home}; name the broker with --broker or KBQA_BROKER_URL"
        ) from None


def _count(found: list[str] | list[DeadLetter], what: str) -> str:
    return f"{len(found)} dead letter{'' if len(found) == 1 else 's'} {what}"
