"""The record of finished runs: one JSON object a line, committed, appended to.

A run leaves it only if it turns out not to have been what the design says; the commit tells why.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from benchmarks.learning.trial import Outcome

Loop = Literal["production", "own"]
RECORD = Path(__file__).with_name("record.jsonl")


@dataclass(frozen=True, slots=True)
class Entry:
    """Attributes:
    digest: of the variant as it was then, see `Design.digest`.
    loop: that made the run: `production`, or `own`, which the ablations had before and which knew no guards,
        selection or staleness.
    """

    variant: str
    seed: int
    digest: str
    outcome: Outcome
    loop: Loop = "production"


def read(path: Path = RECORD) -> Iterator[Entry]:
    """Every finished run, oldest first; none if there is no record yet.

    Raises:
        ValueError: a line is none; names it.
    """
    if not path.is_file():
        return
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        try:
            values = json.loads(line)
            columns = {name: tuple(values["outcome"][name]) for name in ("f1", "hops", "reward")}
            outcome = Outcome(**{**values["outcome"], **columns})
            loop = values.get("loop", "own")  # the first lines do not say
            yield Entry(values["variant"], values["seed"], values["digest"], outcome, loop)
        except (KeyError, TypeError, ValueError) as error:
            raise ValueError(f"{path}:{number}: no run of the record: {error}") from error


def append(entry: Entry, path: Path = RECORD) -> None:
    """Add a run that has just finished."""
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps(asdict(entry)) + "\n")
