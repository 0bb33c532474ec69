"""Reads a model's licence from its model card, that is, from the front matter of README.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

_FRONT_MATTER = re.compile(r"\A---\s*\n(.*?)\n---\s*$", re.DOTALL | re.MULTILINE)
_LONGEST = 64_000  # characters of a card that are read; front matter comes first

# The hub writes identifiers in lower case, SPDX does not.
_SPDX = {
    identifier.lower(): identifier
    for identifier in (
        "AFL-3.0",
        "AGPL-3.0",
        "Apache-2.0",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "CC-BY-4.0",
        "CC-BY-SA-4.0",
        "CC-BY-NC-4.0",
        "CC-BY-NC-SA-4.0",
        "GPL-3.0",
        "ISC",
        "LGPL-3.0",
        "MIT",
        "MPL-2.0",
    )
}


def licence_of(directory: Path) -> str:
    """SPDX identifier of a model's licence; `LicenseRef-…` for a licence without one, "" if it is unknown."""
    try:
        with (directory / "README.md").open(encoding="utf-8") as file:
            text = file.read(_LONGEST)
        found = _FRONT_MATTER.match(text)
        card = yaml.safe_load(found[1]) if found else None
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        return ""
    return _identifier(card) if isinstance(card, dict) else ""


def _identifier(card: dict[str, Any]) -> str:
    said = card.get("license")
    if said == "other":
        said = card.get("license_name")
    if not isinstance(said, str) or not said:
        return ""
    if (known := _SPDX.get(said.lower())) is not None:
        return known
    return f"LicenseRef-{re.sub('[^A-Za-z0-9.-]+', '-', said)}"
