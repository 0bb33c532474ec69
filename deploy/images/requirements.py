"""Writes what kbqa and some of its extras depend on, and nothing else that pyproject.toml says.

python requirements.py EXTRA,EXTRA <pyproject.toml

A build installs from this text, so that its largest layers survive every other edit of that file.
"""

import re
import sys
import tomllib
from collections.abc import Iterable, Iterator
from typing import Any


def requirements(project: dict[str, Any], extras: Iterable[str]) -> Iterator[str]:
    """What the extras name, those that they name in turn included."""
    for extra in extras:
        for requirement in project["optional-dependencies"][extra]:
            own = re.fullmatch(rf"{project['name']}\[(.+)\]", requirement)
            yield from requirements(project, own[1].split(",")) if own else [requirement]


if __name__ == "__main__":
    found = tomllib.load(sys.stdin.buffer)["project"]
    wanted = {*found["dependencies"], *requirements(found, filter(None, sys.argv[1].split(",")))}
    sys.stdout.write("".join(f"{requirement}\n" for requirement in sorted(wanted)))
