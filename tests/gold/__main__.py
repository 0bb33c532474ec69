"""Prints what the gold agent earns, as a table in Markdown.

KBQA_DATA names the directory of the published data sets. Each line is printed as soon as it is known; the
processor time comes last.
"""

from __future__ import annotations

import os
import sys
import tempfile
from argparse import ArgumentParser
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from time import process_time

from tests.gold.table import DATASETS, HEAD, RECIPES, Attach, attach_at, codec_of, ground, line, play_all
from tests.sparql_servers import Virtuoso


def main(datasets: Sequence[str], sample: int | None, at_virtuoso: bool) -> None:
    data = Path(os.environ["KBQA_DATA"])
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        attach = stack.enter_context(attaching(Path(directory))) if at_virtuoso else None
        grounds = [
            stack.enter_context(ground(name, data, Path(directory), sample, attach)) for name in datasets
        ]
        codec = codec_of(grounds)
        for text in HEAD:
            _say(text)
        for at in grounds:
            for recipe in RECIPES:
                _say(line(recipe, at.dataset, play_all(at, recipe, codec)))
    _say(f"{process_time():.0f} s of processor time")


@contextmanager
def attaching(directory: Path) -> Iterator[Attach]:
    """How a graph is attached behind a Virtuoso, which runs meanwhile."""
    if missing := Virtuoso.missing():
        raise SystemExit(missing)
    server = Virtuoso(directory)
    try:
        yield partial(attach_at, server)
    finally:
        server.kill()


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    parser = ArgumentParser("python -m tests.gold", description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "datasets", nargs="*", metavar="DATASET", help=f"of {', '.join(DATASETS)}; default all"
    )
    parser.add_argument(
        "--sample", type=int, metavar="N", help="about N questions of each, at equal distances"
    )
    parser.add_argument("--virtuoso", action="store_true", help="attach the graphs behind a Virtuoso")
    given = parser.parse_args()
    main(given.datasets or DATASETS, given.sample, given.virtuoso)
