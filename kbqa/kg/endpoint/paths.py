"""A path of several hops as one SPARQL pattern, so that intermediate sets stay on the server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, Self

from kbqa.kg.endpoint.lookups import places, union
from kbqa.logical_forms.compiler import away_from


class PathHop(NamedTuple):
    """A hop along any of several relations, given as terms; `inverse` means from tail to head."""

    relations: Sequence[str]
    inverse: bool

    def triple(self, number: int, here: str, there: str) -> str:
        head, tail = (there, here) if self.inverse else (here, there)
        return union(
            f"{before}{head} {relation} {tail}"
            for before, relation in places(f"?relation{number}", self.relations)
        )


@dataclass(frozen=True, slots=True)
class EndpointPath:
    """A path from a set of nodes.

    Attributes:
        starts: the nodes, as terms.
        hops: at least one.
        apart: numbers of the hops (from 1) after which the path must not be at a start.
    """

    starts: tuple[str, ...]
    hops: tuple[PathHop, ...]
    apart: frozenset[int]

    def pattern(self, end: str = "?x") -> str:
        """The pattern over ?n0 (omitted for a single start), ?n1 … and `end`, a variable or term."""
        nodes = [*(f"?n{number}" for number in range(1, len(self.hops))), end]
        first, *rest = self.hops
        return " . ".join(
            [
                union(
                    before + first.triple(1, place, nodes[0]) for before, place in places("?n0", self.starts)
                ),
                *(hop.triple(number, *nodes[number - 2 : number]) for number, hop in enumerate(rest, 2)),
                *(
                    test
                    for number, node in enumerate(nodes, 1)
                    if number in self.apart
                    for test in away_from(node, self.starts)
                ),
            ]
        )

    def leading(self, is_found: Callable[[str], bool]) -> Self | None:
        """Repair a path without results: a hop that finds only starts may stay at them.

        Args:
            is_found: whether a pattern has any result.

        Returns:
            The repaired path, or None if it still has no result.
        """
        path = self
        for number in range(1, len(self.hops) + 1):
            if not is_found(path._to(number)):
                path = replace(path, apart=path.apart - {number})
                if number not in self.apart or not is_found(path._to(number)):
                    return None
        return path

    def one_each(self, ends: Sequence[Sequence[str]]) -> str:
        """A query for the nodes of one path to each of several ends.

        Each row has ?end, the index into `ends`.

        Args:
            ends: the possible terms of each end.
        """
        variables = [f"?n{number}" for number in range(1, len(self.hops))]
        if "?n0" in self.pattern():
            variables.insert(0, "?n0")
        selected = " ".join(variables)
        ones = []
        for number, terms in enumerate(ends):
            pattern = union(before + self.pattern(place) for before, place in places("?x", terms))
            ones.append(f'SELECT {selected} ("{number}" AS ?end) WHERE {{ {pattern} }} LIMIT 1')
        return f"SELECT {selected} ?end WHERE {{ {' UNION '.join(f'{{ {one} }}' for one in ones)} }}"

    def _to(self, number: int) -> str:
        return replace(self, hops=self.hops[:number]).pattern()
