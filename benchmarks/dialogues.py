"""python -m benchmarks.dialogues: follow-up questions beside the same questions asked in full.

A gateway in this process answers 200 generated dialogues of three questions about a generated world with the
shipped reader: each question in its session as it is said, and in full without a session. "understood" counts
the questions whose complete text is the one that was meant, whoever answers. An answer is right if it is the
whole gold set. The quotient of the two accuracies is what the conversation costs.
"""

from __future__ import annotations

import random
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from fastapi.testclient import TestClient

from kbqa.datasets.world.dialogues import Dialogue, generate_dialogues
from kbqa.datasets.world.facts import generate_facts
from kbqa.datasets.world.vocabulary import WORLD
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from services.gateway.app import create_app
from services.gateway.settings import GatewaySettings

_COUNT, _SEED, _KG = 200, 1, "world"


def main() -> int:
    """Returns the exit code."""
    with tempfile.TemporaryDirectory() as home:
        for line in report(Path(home), int(sys.argv[1]) if len(sys.argv) > 1 else _COUNT):
            sys.stdout.write(line + "\n")
            sys.stdout.flush()
    return 0


def report(home: Path, count: int) -> Iterator[str]:
    """The figures, as Markdown."""
    facts = generate_facts(WORLD, random.Random(f"dialogues/{_SEED}"))
    file = home / "world.nt"
    file.write_text("".join(f"{line}\n" for line in facts.lines()), encoding="utf-8")
    catalog = GraphCatalog(home)
    catalog.load(_KG, file)
    app = create_app(GatewaySettings.load(home=home), graphs=LocalGraphTools(catalog))
    counts: dict[str, Counter[str]] = {}
    with TestClient(app) as gateway:
        while gateway.get("/readyz").status_code != 200:  # the reader is being loaded
            time.sleep(0.1)
        for dialogue in generate_dialogues(facts, _SEED, count):
            for sort, found in _played(gateway, dialogue):
                counts.setdefault(sort, Counter()).update(found)
    catalog.close()
    yield "| question | asked | understood | right in full | right in its dialogue | quotient |"
    yield "|---|---|---|---|---|---|"
    follow_ups = sum((of for sort, of in counts.items() if sort != "opening"), Counter[str]())
    for sort, of in {**counts, "all that follow": follow_ups}.items():
        asked, full = of["asked"], max(1, of["full"])
        shares = " | ".join(f"{of[key] / asked:.3f}" for key in ("understood", "full", "dialogue"))
        yield f"| {sort} | {asked} | {shares} | {of['dialogue'] / full:.3f} |"


def _played(gateway: TestClient, dialogue: Dialogue) -> Iterator[tuple[str, Counter[str]]]:
    session = "new"
    for turn in dialogue:
        full = _asked(gateway, turn.meant)
        said = _asked(gateway, turn.said, session=session)
        session = said.get("session", session)
        understood = _plain(said.get("understood", "")) == _plain(turn.meant)
        yield (
            turn.sort,
            Counter(
                asked=1,
                understood=understood,
                full=_answers(full) == turn.answers,
                dialogue=_answers(said) == turn.answers,
            ),
        )


def _asked(gateway: TestClient, question: str, **more: str) -> dict[str, Any]:
    asked = {"question": question, "kg": _KG, "min_confidence": 0.0, **more}
    document: dict[str, Any] = gateway.post("/v1/answer", json=asked).json()
    return document


def _answers(document: dict[str, Any]) -> tuple[str, ...]:
    return tuple(sorted(answer.get("id", answer["value"]) for answer in document.get("answers", [])))


def _plain(text: str) -> str:
    return text.replace(" 's", "'s").rstrip("?. ").casefold()


if __name__ == "__main__":
    sys.exit(main())
