"""python -m benchmarks [engine|graph …]"""

from __future__ import annotations

import sys

from benchmarks import engine, graph

_ALL = {"engine": engine.measure, "graph": graph.measure}


def main(names: list[str]) -> int:
    unknown = [name for name in names if name not in _ALL]
    if unknown:
        sys.stderr.write(f"no benchmark named {unknown[0]} (known: {', '.join(_ALL)})\n")
        return 2
    for name in names or _ALL:
        for line in _ALL[name]():
            sys.stdout.write(line + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
