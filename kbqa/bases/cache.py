"""The cache of converted models: `KBQA_BASES`, else kbqa/bases in the user's cache directory.

Each model has a directory named after the digest of its source file. The directory is written
under a temporary name, renamed, and never changed again.
"""

from __future__ import annotations

import fcntl
import logging
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from kbqa.bases.known import KnownBase
from kbqa.errors import BaseNotFoundError

logger = logging.getLogger(__name__)

_FORM = 1  # version of the output of `convert`; another version has another directory
_ASIDE = ".aside-"
_CARD = """---
license: {licence}
base_model: {name}
---

{name}, from `{file}` of {distribution} {version}: its quantised weights, written out as fp32.
"""


def converted(base: KnownBase, gguf: Path) -> Path:
    """The directory of a base's converted GGUF; converts it if necessary, which takes half a minute.

    If several processes call this, one converts and the others wait for it.

    Args:
        gguf: the file; its digest must have been checked.

    Raises:
        BaseNotFoundError: the file cannot be converted, or the disk is full.
    """
    short = base.name.rpartition("/")[2]
    final = _home() / f"{short}-{base.package.digest[:12]}-{_FORM}"
    if final.is_dir():
        return final
    try:
        with _alone(final):
            if not final.is_dir():
                _convert_aside(base, gguf, final)
    except OSError as error:
        raise BaseNotFoundError(
            f"base model {base.name} cannot be written to {final} ({error}): set KBQA_BASES to a directory "
            "with a gigabyte of free space"
        ) from error
    return final


def _home() -> Path:
    if own := os.environ.get("KBQA_BASES"):
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "kbqa" / "bases"


@contextmanager
def _alone(final: Path) -> Iterator[None]:
    """Lock `final`: wait until no other process writes it."""
    final.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(final.with_name(f".{final.name}.lock"), os.O_RDWR | os.O_CREAT, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _convert_aside(base: KnownBase, gguf: Path, final: Path) -> None:
    """Convert a GGUF to `final` atomically; only one process at a time may call this."""
    for left in final.parent.glob(f"{_ASIDE}{final.name}-*"):  # left by a process that died
        shutil.rmtree(left, ignore_errors=True)
    aside = Path(tempfile.mkdtemp(prefix=f"{_ASIDE}{final.name}-", dir=final.parent))
    began = time.monotonic()
    logger.info("converting a base model; this happens once", extra={"base": base.name, "into": str(final)})
    try:
        child = subprocess.run(
            [sys.executable, "-m", "kbqa.bases.conversion", str(gguf), str(aside)],
            capture_output=True,
            text=True,
            check=False,
        )
        if child.returncode:
            said = child.stderr.strip().rpartition("\n")[2]
            raise BaseNotFoundError(
                f"base model {base.name}: {gguf} cannot be converted ({said}): "
                f"{' and '.join(f'pip install {need}' for need in base.package.needs)}"
            )
        card = _CARD.format(
            licence=base.licence.lower(),
            name=base.name,
            file=gguf.name,
            distribution=base.package.distribution,
            version=base.package.version,
        )
        (aside / "README.md").write_text(card, encoding="utf-8")
        aside.chmod(0o755)  # mkdtemp allows one user only, but others may use the converted model
        for path in (*aside.iterdir(), aside):
            if path.is_file():
                path.chmod(0o644)
            _flush(path)
        aside.rename(final)
        _flush(final.parent)
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    seconds = round(time.monotonic() - began, 1)
    logger.info("base model converted", extra={"base": base.name, "seconds": seconds})


def _flush(path: Path) -> None:
    """Write a file or a directory's entries to the disk, so that a rename survives a power cut."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
