"""Files that commands write."""

from __future__ import annotations

from pathlib import Path

from kbqa.errors import ConfigurationError
from kbqa.policy_store.durable import write_file


def require_directories(*files: Path | None) -> None:
    """Check that files can be written, before hours are spent.

    Raises:
        ConfigurationError: a file's directory does not exist.
    """
    for file in files:
        if file is not None and not file.absolute().parent.is_dir():
            raise ConfigurationError(
                f"{file}: the directory {file.absolute().parent} does not exist: create it first"
            )


def write_text(file: Path, text: str) -> None:
    """Write a file completely or not at all; what UTF-8 cannot encode becomes a question mark.

    Raises:
        ConfigurationError: it cannot be written.
    """
    try:
        write_file(file, text.encode(errors="replace"))
    except OSError as error:
        raise ConfigurationError(f"{file} cannot be written: {error.strerror}") from error
