"""Data sets by name: a graph to load and questions in splits."""

from __future__ import annotations

import random
import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from kbqa.datasets.metaqa import read_metaqa
from kbqa.datasets.pathquestion import read_pathquestion
from kbqa.datasets.records import read_questions
from kbqa.datasets.splits import Splits, split_by_path
from kbqa.datasets.world import generate_questions, generate_world
from kbqa.errors import DatasetError

DATASETS = ("world", "pathquestion-2h", "pathquestion-3h", "metaqa-1hop", "metaqa-2hop", "metaqa-3hop")

_FILE = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*\.jsonl")
_SIZES = {"cold_start": 150, "train": 4000, "validation": 120, "test": 240}


@dataclass(frozen=True, slots=True)
class Dataset:
    """Attributes:
    kg: name under which its graph is loaded.
    graph: the graph as delimited text, or None if `graph_file` holds it.
    """

    name: str
    kg: str
    splits: Splits
    graph_file: Path | None = None
    graph: str | None = None

    def graph_lines(self) -> Iterator[str]:
        """The graph's triples as its file writes them."""
        if self.graph_file is None:
            yield from (self.graph or "").splitlines()
        else:
            with self.graph_file.open(encoding="utf-8") as file:
                yield from file


def load_dataset(name: str, seed: int, data_directory: Path | None = None) -> Dataset:
    """A data set by name, the same for the same seed.

    Args:
        name: one of `DATASETS`, or a file of questions in `data_directory`, as `x.jsonl`
            (`kbqa.datasets.records`): all of one graph, which has to be loaded already.
        data_directory: where real data lies (KBQA_DATA); the generated world needs none.

    Raises:
        DatasetError: unknown name, or its files are not there or malformed.
    """
    if name == "world":
        world = generate_world(seed)
        text = "".join("\t".join(triple) + "\n" for triple in world.triples)
        return Dataset(name, "world", generate_questions(world, seed, _SIZES, "world"), graph=text)
    is_file = _FILE.fullmatch(name) is not None
    if name not in DATASETS and not is_file:
        known = ", ".join(DATASETS)
        raise DatasetError(f'no data set named "{name}" (known: {known}; or a file of KBQA_DATA, as x.jsonl)')
    if data_directory is None:
        raise DatasetError(f"{name} is not shipped: set KBQA_DATA to the directory that holds it")
    if is_file:
        return _questions_file(data_directory / name, seed)
    family, kind = name.split("-")
    try:
        if family == "pathquestion":
            return _pathquestion(data_directory / family, kind.upper(), seed)
        return _metaqa(data_directory / family, int(kind[0]), seed)
    except OSError as error:
        raise DatasetError(f"{name}: {error.filename}: {error.strerror} (looked under KBQA_DATA)") from error


def _questions_file(path: Path, seed: int) -> Dataset:
    questions = read_questions(path)
    graphs = sorted({question.kg for question in questions})
    if len(graphs) != 1 or not graphs[0]:
        raise DatasetError(f'{path}: its questions should be about one graph, by "kg", not about {graphs}')
    tenth = max(1, len(questions) // 10)
    sizes = {part: min(_SIZES[part], tenth) for part in ("validation", "test")}
    # Only a question whose gold path is known can be demonstrated.
    sizes["cold_start"] = min(_SIZES["cold_start"], tenth) if all(q.path for q in questions) else 0
    return Dataset(path.name, graphs[0], split_by_path(questions, seed, **sizes))


def _pathquestion(directory: Path, kind: str, seed: int) -> Dataset:
    kg = f"pathquestion-{kind.lower()}"
    questions = read_pathquestion(directory / f"PQ-{kind}.txt", kg)
    sizes = {part: _SIZES[part] for part in ("cold_start", "validation", "test")}
    splits = split_by_path(questions, seed, **sizes)
    return Dataset(kg, kg, splits, graph_file=directory / f"{kind}-kb.txt")


def _metaqa(directory: Path, hops: int, seed: int) -> Dataset:
    rng = random.Random(f"metaqa/{seed}")
    # A sample of the official test file keeps the demo short; dev repeats some of its pairs.
    test = tuple(rng.sample(read_metaqa(directory, hops, "test", "metaqa"), _SIZES["test"]))
    held_out = {(question.topic_entities, question.path) for question in test}
    dev = [
        question
        for question in read_metaqa(directory, hops, "dev", "metaqa")
        if (question.topic_entities, question.path) not in held_out
    ]
    sizes = {part: _SIZES[part] for part in ("cold_start", "validation")}
    splits = replace(split_by_path(dev, seed, test=0, **sizes), test=test)
    return Dataset(f"metaqa-{hops}hop", "metaqa", splits, graph_file=directory / "kb.txt")
