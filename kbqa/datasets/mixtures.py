"""Mixtures: several data sets as one, named like `0.8*metaqa-2hop+0.2*world`.

A question of a mixture names its part (`Question.part`), and its id begins with the part's name, so that ids
stay unique.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from kbqa.datasets.dataset import Dataset, Graph
from kbqa.datasets.splits import Splits, in_turns
from kbqa.errors import DatasetError
from kbqa.trajectory import Question

_ROUNDING = 1e-6  # by which the sum of stated shares may differ from 1


def is_mixture(name: str) -> bool:
    """Whether a name of a data set is that of a mixture."""
    return "+" in name or "*" in name


def read_shares(name: str) -> dict[str, float]:
    """The share of each part of a mixture. Parts without a stated share get equal shares of what is left.

    Raises:
        DatasetError: the name is not well formed, or the shares do not add up to 1.

    >>> read_shares("0.75*metaqa-2hop+world")
    {'metaqa-2hop': 0.75, 'world': 0.25}
    """
    stated: dict[str, float] = {}
    parts: list[str] = []
    for written in name.split("+"):
        share, star, part = (piece.strip() for piece in written.rpartition("*"))
        if not part:
            raise DatasetError(f'{name}: a part has no name: write NAME or SHARE*NAME, joined by "+"')
        base = part.partition("@")[0]
        if base in (known.partition("@")[0] for known in parts):
            raise DatasetError(f"{name}: {base} occurs twice: name it once, with a greater share")
        parts.append(part)
        if star:
            stated[part] = _share(name, share)
    left, others = 1 - sum(stated.values()), len(parts) - len(stated)
    if not others and abs(left) > _ROUNDING:
        raise DatasetError(
            f"{name}: the shares add up to {1 - left:g}, not to 1: correct them, or leave one out, "
            "and its part gets the rest"
        )
    if others and left <= _ROUNDING:
        raise DatasetError(
            f"{name}: the shares add up to {1 - left:g}, which leaves nothing for a part without a share: "
            "lower them"
        )
    return {part: stated.get(part) or left / others for part in parts}


def mix(name: str, shares: Mapping[str, float], parts: Mapping[str, Dataset]) -> Dataset:
    """The mixture of data sets: each split is the union of theirs, in which the parts take turns.

    Args:
        shares, parts: by the name of the part.

    Raises:
        DatasetError: two parts contain different graphs of the same name.
    """

    def union(split: str) -> tuple[Question, ...]:
        return in_turns(
            replace(question, id=f"{part}/{question.id}", part=part)
            for part, dataset in parts.items()
            for question in getattr(dataset.splits, split)
        )

    return Dataset(
        name,
        Splits(union("cold_start"), union("train"), union("validation"), union("test")),
        _all_graphs(name, parts.values()),
        shares,
        malformed=tuple(record for dataset in parts.values() for record in dataset.malformed),
        leaking=any(dataset.leaking for dataset in parts.values()),
    )


def _share(name: str, text: str) -> float:
    try:
        share = float(text)
    except ValueError:
        share = 0.0
    if not 0 < share < 1:
        raise DatasetError(
            f'{name}: "{text}" is not a share: write a number between 0 and 1, '
            "as in 0.8*metaqa-2hop+0.2*world"
        )
    return share


def _all_graphs(name: str, parts: Iterable[Dataset]) -> tuple[Graph, ...]:
    graphs: dict[str, Graph] = {}
    for graph in (graph for dataset in parts for graph in dataset.graphs):
        known = graphs.setdefault(graph.name, graph)
        if known.is_included and graph.is_included and known != graph:
            raise DatasetError(
                f'{name}: two parts have different graphs of the name "{graph.name}": leave one of them out'
            )
        if graph.is_included:
            graphs[graph.name] = graph
    return tuple(graphs.values())
