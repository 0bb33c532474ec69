"""Writes clients/typescript/openapi.json from the gateway's routes: openapi_reference.py [--check]."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from services.gateway.app import create_app
from services.gateway.settings import GatewaySettings

FILE = Path(__file__).parents[1] / "clients" / "typescript" / "openapi.json"


def main(arguments: list[str]) -> int:
    """Returns the exit code: 1 if the file is to be checked and is out of date."""
    text = reference()
    if arguments != ["--check"]:
        FILE.write_text(text, encoding="utf-8")
    elif not FILE.is_file() or FILE.read_text(encoding="utf-8") != text:
        sys.stderr.write(
            "clients/typescript/openapi.json is out of date: run python scripts/openapi_reference.py\n"
        )
        return 1
    return 0


def reference() -> str:
    """The OpenAPI document of a gateway, as JSON."""
    with tempfile.TemporaryDirectory() as home:
        document = create_app(GatewaySettings.load(home=Path(home))).openapi()
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
