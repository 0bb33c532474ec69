"""Writes clients/typescript/openapi.json from the gateway's routes: openapi_reference.py [--check]."""

from __future__ import annotations

import json
import sys
import tempfile
from pathlib import Path

from generated import ROOT, keep

from services.gateway.app import create_app
from services.gateway.settings import GatewaySettings

FILE = ROOT / "clients" / "typescript" / "openapi.json"


def reference() -> str:
    """The OpenAPI document of a gateway, as JSON."""
    with tempfile.TemporaryDirectory() as home:
        document = create_app(GatewaySettings.load(home=Path(home))).openapi()
    return json.dumps(document, indent=1, ensure_ascii=False) + "\n"


if __name__ == "__main__":
    raise SystemExit(keep(FILE, reference(), sys.argv[1:]))
