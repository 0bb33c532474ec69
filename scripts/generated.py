"""A file of this repository that a script writes from the code, or checks."""

from __future__ import annotations

import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]


def keep(file: Path, text: str, arguments: list[str]) -> int:
    """Write a file, or with `--check` compare it; returns the exit code: 1 if it is out of date."""
    if arguments != ["--check"]:
        file.write_text(text, encoding="utf-8")
    elif not file.is_file() or file.read_text(encoding="utf-8") != text:
        script = Path(sys.argv[0]).name
        sys.stderr.write(f"{file.relative_to(ROOT)} is out of date: run python scripts/{script}\n")
        return 1
    return 0
