"""Prints what the gold agent earns, as a table in Markdown: python -m tests.gold [DATASET ...]

KBQA_DATA names the directory of the published data sets.
"""

from __future__ import annotations

import os
import sys
import tempfile
from contextlib import ExitStack
from pathlib import Path

from tests.gold.table import DATASETS, RECIPES, codec_of, ground, play_all, report


def main(datasets: list[str]) -> None:
    data = Path(os.environ["KBQA_DATA"])
    with tempfile.TemporaryDirectory() as directory, ExitStack() as stack:
        grounds = [stack.enter_context(ground(name, data, Path(directory))) for name in datasets]
        codec = codec_of(grounds)
        rows = {(name, at.dataset): play_all(at, name, codec) for name in RECIPES for at in grounds}
    sys.stdout.writelines(f"{line}\n" for line in report(rows))


if __name__ == "__main__":
    main(sys.argv[1:] or list(DATASETS))
