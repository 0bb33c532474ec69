"""Reads files of labels with aliases, and files that map ids to names."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import partial

from kbqa.kg.loading.facts import Label
from kbqa.kg.loading.lines import LineSource
from kbqa.kg.loading.rejected import RejectedLines


def read_labels(source: LineSource, rejected: RejectedLines) -> Iterator[Label]:
    """Read lines `id TAB label [TAB alias …]`; texts are taken exactly as written.

    If consecutive lines have the same id, the label of the first line is the preferred one.
    If an id recurs after other ids, the alphabetically first of its preferred labels is shown.
    """
    reject = partial(rejected.add, source.path)
    last = None
    for number, line in source.lines(reject):
        id_, *names = line.split("\t")
        if not names:
            reject(number, "expected id, label and perhaps aliases, separated by tabs: found 1 field")
        elif not id_.strip():
            reject(number, "the id is empty")
        elif not all(name.strip() for name in names):
            reject(number, "a label is empty")
        else:
            for place, name in enumerate(names):
                yield Label(id_, name, preferred=place == 0 and id_ != last)
            last = id_


def read_names(source: LineSource, rejected: RejectedLines) -> dict[str, str]:
    """Read lines `name TAB id` into id → name; a first line with only a number is skipped.

    Two ids with the same name are refused, since the graph could not tell them apart.
    """
    reject = partial(rejected.add, source.path)
    names: dict[str, str] = {}
    ids: dict[str, str] = {}
    for number, line in source.lines(reject):
        fields = line.split("\t")
        if number == 1 and re.fullmatch(r"\d+", line):
            continue
        if len(fields) != 2 or not all(field.strip() for field in fields):
            found = "1 field" if len(fields) == 1 else f"{len(fields)} fields"
            reject(number, f"expected a name, a tab and an id: found {found}")
            continue
        name, id_ = fields
        if id_ in names:
            reject(number, f"the id {id_[:80]} has a name already")
        elif name in ids:
            reject(number, f"the ids {ids[name][:80]} and {id_[:80]} have the same name")
        else:
            names[id_], ids[name] = name, id_
    return names
