"""Writes docs/cli.md from the commands: cli_reference.py [--check]."""

from __future__ import annotations

import sys

import typer
from generated import ROOT, keep
from typer.cli import get_docs_for_click
from typer.main import get_command

from services.cli.__main__ import create_cli

FILE = ROOT / "docs" / "cli.md"


def reference() -> str:
    """The page, as Markdown."""
    command = get_command(create_cli())
    return get_docs_for_click(obj=command, ctx=typer.Context(command), name="kbqa", title="The kbqa command")


if __name__ == "__main__":
    sys.exit(keep(FILE, reference(), sys.argv[1:]))
