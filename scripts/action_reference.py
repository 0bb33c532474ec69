"""Writes docs/actions.md from the actions: action_reference.py [--check]."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields

from generated import ROOT, keep

from kbqa.kg.actions import ErrorKind
from kbqa.kg.arguments import PAGING, TERMS, Argument
from kbqa.kg.handlers import failure
from kbqa.kg.retrieval import ACTIONS
from kbqa.kg.specs import COMMON_ERRORS, ActionSpec
from kbqa.parts import additions

FILE = ROOT / "docs" / "actions.md"

HEAD = """\
# Actions

What an agent may ask of a graph: by `POST /v1/kg/{kg}/actions` of
[kg_server](../services/kg_server/README.md), as tools of the Model Context Protocol under the same names, and
within a process by `kbqa.kg.tools.LocalGraphTools`. Each action is described by one value, and this page is
generated from these values. Another Python distribution can add an action by an entry point
([kbqa/kg/specs.py](../kbqa/kg/specs.py)).
"""
COSTS = """\
A *look-up* is made in memory and answered at once; a *query* is one SPARQL query; a *search* takes several
queries, walks or rankings by an encoder.
"""


def reference() -> str:
    """The page, as Markdown."""
    # What is installed beside this project is documented elsewhere.
    others = {point.load().name for point in additions("actions")}
    specs = [spec for spec in ACTIONS.values() if spec.name not in others]
    overview = _table(
        ("action", "arguments (`?` optional)", "what it does", "cost"),
        ((f"[`{spec.name}`](#{spec.name})", _signature(spec), _summary(spec), spec.cost) for spec in specs),
    )
    shared = [
        "## All actions\n",
        _argument_table(PAGING, required=()),
        "Two further arguments carry the terms of a recipe (its section `graph`). They matter to actions "
        "that query the graph or rank relations.\n",
        _argument_table(TERMS, required=()),
        f"Any action may fail with {_errors(COMMON_ERRORS)}; an unknown action fails with "
        f"{_errors([ErrorKind.INVALID_ACTION])}. In brackets is the code, one of KG-R1's six.\n",
    ]
    return "\n".join((HEAD, overview, COSTS, *shared, *map(_section, specs))).rstrip() + "\n"


def _section(spec: ActionSpec) -> str:
    parts = [f"## {spec.name}\n", f"{spec.description}\n"]
    parts.append(_argument_table({**spec.required, **spec.optional}, spec.required))
    parts += [f"{text}\n" for text in (_items(spec), spec.answers) if text]
    if spec.costly:
        parts.append(f"With {_names(spec.costly)} it is a search.\n")
    if spec.cites is not None:
        parts.append("An item cites the facts by which it was found.\n")
    if spec.errors:
        parts.append(f"Errors: {_errors(spec.errors)}.\n")
    return "\n".join(parts)


def _signature(spec: ActionSpec) -> str:
    return ", ".join((*(f"`{name}`" for name in spec.required), *(f"`{name}?`" for name in spec.optional)))


def _summary(spec: ActionSpec) -> str:
    """The first sentence of its description."""
    return spec.description.split(". ")[0].rstrip(".")


def _items(spec: ActionSpec) -> str:
    return "" if spec.item is None else f"Items have {_names(field.name for field in fields(spec.item))}."


def _errors(kinds: Iterable[ErrorKind]) -> str:
    return ", ".join(f"`{kind}` ({failure(kind, '').code})" for kind in kinds)


def _names(names: Iterable[str]) -> str:
    return ", ".join(f"`{name}`" for name in names)


def _argument_table(arguments: Mapping[str, Argument], required: Iterable[str]) -> str:
    rows = (
        (f"`{name}`" if name in required else f"`{name}?`", argument.description)
        for name, argument in arguments.items()
    )
    return _table(("argument", "what it is"), rows)


def _table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    return "".join(f"| {' | '.join(cells)} |\n" for cells in (head, ["---"] * len(head), *rows))


if __name__ == "__main__":
    sys.exit(keep(FILE, reference(), sys.argv[1:]))
