"""Writes what Grafana and Prometheus read: `python -m deploy.dashboards [--check]`."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

import yaml
from grafana_foundation_sdk.builders.dashboard import Dashboard
from grafana_foundation_sdk.cog.encoder import JSONEncoder

from deploy.dashboards.alerts import groups
from deploy.dashboards.gateway import gateway
from deploy.dashboards.graph import graph
from deploy.dashboards.machines import machines
from deploy.dashboards.queues import queues
from deploy.dashboards.rollouts import rollouts
from deploy.dashboards.training import training

_DEPLOY = Path(__file__).resolve().parents[1]
_BOARDS = {
    "training": training,
    "rollouts": rollouts,
    "graph": graph,
    "gateway": gateway,
    "queues": queues,
    "machines": machines,
}
_RULES = _DEPLOY / "helm" / "alerts" / "kbqa.yaml"
_HEAD = "# Made by python -m deploy.dashboards; each alert has a section of its name in docs/operations.md.\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a file is not current")
    check = parser.parse_args().check
    files = rendered()
    stale = [p for p, text in files.items() if not p.exists() or p.read_text(encoding="utf-8") != text]
    if check and stale:
        names = ", ".join(str(path.relative_to(_DEPLOY.parent)) for path in stale)
        sys.stderr.write(f"not current: {names}; run python -m deploy.dashboards\n")
        return 1
    for path in stale:
        path.parent.mkdir(exist_ok=True)
        path.write_text(files[path], encoding="utf-8")
    return 0


def rendered() -> dict[Path, str]:
    """What each file should contain."""
    encoder = JSONEncoder(sort_keys=True, indent=1)
    boards = {
        _DEPLOY / "helm" / "dashboards" / f"{name}.json": encoder.encode(_numbered(board())) + "\n"
        for name, board in _BOARDS.items()
    }
    rules = _HEAD + yaml.safe_dump(groups(), sort_keys=False, width=110)
    return {**boards, _RULES: rules}


def _numbered(board: Dashboard) -> Any:
    """A dashboard whose panels have ids, which links to a panel and its alerts need."""
    built = board.build()
    for number, panel in enumerate(built.panels or (), 1):
        panel.id_val = number
    return built


if __name__ == "__main__":
    sys.exit(main())
