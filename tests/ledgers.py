"""A run's ledger as a whole: what is archived, and what is not."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any


def read_ledger(directory: Path) -> dict[str, Any]:
    """`in_flight`, and `settled`: outcome and step by id."""
    ledger = json.loads((directory / "ledger.json").read_text())
    archive = directory / "settled.jsonl"
    archived = archive.read_bytes()[: ledger["archive_bytes"]] if archive.exists() else b""
    settled = {key: rest for key, *rest in map(json.loads, archived.splitlines())}
    assert not set(settled) & set(ledger["settled"])
    return {"in_flight": ledger["in_flight"], "settled": settled | ledger["settled"]}
