"""Writes docs/cli.md from the commands: cli_reference.py [--check]."""

from __future__ import annotations

import sys
from pathlib import Path

import typer
from typer.cli import get_docs_for_click
from typer.main import get_command

from services.cli.__main__ import create_cli

FILE = Path(__file__).parents[1] / "docs" / "cli.md"


def main(arguments: list[str]) -> int:
    """Returns the exit code: 1 if the file is to be checked and is out of date."""
    command = get_command(create_cli())
    text = get_docs_for_click(obj=command, ctx=typer.Context(command), name="kbqa", title="The kbqa command")
    if arguments != ["--check"]:
        FILE.write_text(text, encoding="utf-8")
    elif not FILE.is_file() or FILE.read_text(encoding="utf-8") != text:
        sys.stderr.write("docs/cli.md is out of date: run python scripts/cli_reference.py\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
