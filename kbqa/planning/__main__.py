"""python -m kbqa.planning: plans a recipe on this machine, for `kbqa.planning.guard`, from JSON to JSON."""

from __future__ import annotations

import json
import sys

from kbqa.planning.defaults import resolved, with_rows_of
from kbqa.planning.machines import machine_here
from kbqa.planning.plan import plan
from kbqa.planning.report import refusal
from kbqa.recipes import recipe_from


def main() -> None:
    """Read an order from standard input, and write the decision to standard output."""
    order = json.load(sys.stdin)
    machine = machine_here(order["processes"], order["nodes"])
    recipe = resolved(recipe_from(order["recipe"]), machine.kind)
    decided = plan(recipe, machine, details=False)
    reply = {
        "refusal": None if decided.fits else refusal(decided),
        "recipe": with_rows_of(recipe, decided).model_dump(mode="json"),
    }
    json.dump(reply, sys.stdout)


if __name__ == "__main__":
    main()
