"""The `kbqa` command."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Sequence

import typer

from kbqa.errors import KbqaError
from services.cli import (
    ask,
    average,
    bases,
    cold_start,
    corrections,
    data,
    demo,
    eval,
    export,
    feedback,
    forms,
    keys,
    kg,
    mcp,
    plan,
    policies,
    questions,
    queue,
    recipes,
    report,
    serve,
    status,
    train,
    up,
)

_ERROR, _UNEXPECTED = 2, 1


def create_cli() -> typer.Typer:
    """The command-line interface with all commands."""
    cli = typer.Typer(
        name="kbqa",
        help="Question answering over your own knowledge graph, by an agent that you host and train.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="markdown",  # otherwise docstrings keep their line breaks
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    cli.command()(demo.demo)
    cli.command()(ask.ask)
    cli.command()(up.up)
    cli.command()(status.status)
    cli.command()(train.train)
    cli.command()(train.resume)
    cli.command()(plan.plan)
    cli.command()(export.export)
    cli.command("cold-start")(cold_start.cold_start)
    cli.command("eval")(eval.evaluate)
    cli.command()(average.average)
    cli.command()(report.report)
    cli.command()(policies.promote)
    cli.command()(mcp.mcp)
    cli.command()(status.version)
    cli.add_typer(serve.commands, name="serve")
    cli.add_typer(kg.commands, name="kg")
    cli.add_typer(data.commands, name="data")
    cli.add_typer(questions.commands, name="questions")
    cli.add_typer(forms.commands, name="forms")
    cli.add_typer(train.runs, name="runs")
    cli.add_typer(recipes.commands, name="recipe")
    cli.add_typer(bases.commands, name="base")
    cli.add_typer(policies.commands, name="policy")
    cli.add_typer(queue.commands, name="queue")
    cli.add_typer(keys.commands, name="keys")
    cli.add_typer(feedback.commands, name="feedback")
    cli.add_typer(corrections.commands, name="corrections")
    return cli


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a command; returns the exit code.

    An error with a known remedy (`KbqaError`) is one line on standard error and exit code 2; an unexpected
    error is one line and exit code 1. `KBQA_DEBUG=1` adds the stack trace.
    """
    # Remove it from the environment, because services refuse unknown KBQA_ variables.
    debug = os.environ.pop("KBQA_DEBUG", "") not in ("", "0")
    if os.getpid() == 1:  # in a container: the kernel does not deliver unhandled signals to process 1
        signal.signal(signal.SIGTERM, lambda number, _: sys.exit(128 + number))
    try:
        create_cli()(args=arguments, prog_name="kbqa")
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else _UNEXPECTED
    except KbqaError as error:
        _complain(f"error: {error}", debug)
        return _ERROR
    except Exception as error:
        hint = "" if debug else " (KBQA_DEBUG=1 shows where)"
        _complain(f"unexpected error: {type(error).__name__}: {error}{hint}", debug)
        return _UNEXPECTED
    return 0


def _complain(message: str, debug: bool) -> None:
    if debug:
        traceback.print_exc()
    typer.echo(message, err=True)


if __name__ == "__main__":
    sys.exit(main())
