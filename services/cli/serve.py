"""`kbqa serve SERVICE`: runs one service in this process."""

from __future__ import annotations

import importlib

import typer

# The service itself reads all arguments after its name, including --help.
_PASS_ON = {"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []}

commands = typer.Typer(
    help="Run one service in this process. Options after its name are the service's own (--help lists them).",
    no_args_is_help=True,
)


def _run(service: str, arguments: list[str]) -> None:
    main = importlib.import_module(f"services.{service}.__main__").main
    raise typer.Exit(main(arguments))


@commands.command("kg-server", context_settings=_PASS_ON, help="Serve the graphs (port 8001).")
def kg_server(context: typer.Context) -> None:
    _run("kg_server", context.args)


@commands.command("rollout-worker", context_settings=_PASS_ON, help="Roll out questions (port 8002).")
def rollout_worker(context: typer.Context) -> None:
    _run("rollout_worker", context.args)


@commands.command("trainer", context_settings=_PASS_ON, help="Train policies (port 8003).")
def trainer(context: typer.Context) -> None:
    _run("trainer", context.args)


@commands.command("gateway", context_settings=_PASS_ON, help="Answer questions (port 8080).")
def gateway(context: typer.Context) -> None:
    _run("gateway", context.args)
