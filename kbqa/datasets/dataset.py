"""What a data set is: questions in splits, and the graphs that they are about."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import zip_longest
from pathlib import Path

from kbqa.datasets.formats import Malformed
from kbqa.datasets.splits import Splits
from kbqa.errors import DatasetError
from kbqa.kg.loading.files import GraphSource, graph_files

_LISTED = 3  # graphs that an error names


@dataclass(frozen=True, slots=True)
class Graph:
    """A graph that questions are about. Without text and file, it must be loaded already.

    Attributes:
        name: under which it is loaded, as in `Question.kg`.
        text: of its file, if it is generated.
        file: if it is published with the questions; a directory for the RDF files in it.
        underscored: whether underscores in the names of its file stand for blanks.
    """

    name: str
    text: str | None = None
    file: Path | None = None
    underscored: bool = False

    @property
    def is_included(self) -> bool:
        """Whether the data set contains the graph's triples."""
        return self.text is not None or self.file is not None

    def lines(self) -> Iterator[str]:
        """The lines of its file; none if it is not included."""
        if self.file is None:
            yield from (self.text or "").splitlines()
        else:
            for path in graph_files(self.file):
                with path.open(encoding="utf-8") as file:
                    yield from (line.replace("_", " ") for line in file) if self.underscored else file

    def as_file(self, directory: Path) -> Path:
        """Its file, which is written into `directory` if it is generated."""
        if self.file is not None:
            return self.file
        file = directory / f"{self.name}.tsv"
        file.write_text(self.text or "", encoding="utf-8")
        return file

    def as_source(self, directory: Path) -> GraphSource:
        """How it is loaded; see `as_file`."""
        return GraphSource([self.as_file(directory)], underscored=self.underscored)


@dataclass(frozen=True, slots=True)
class Dataset:
    """Questions in splits, and their graphs.

    Attributes:
        graphs: all that questions are about, each name once.
        shares: of a mixture, by part: its share of the questions trained on; they add up to 1. Empty if
            the data set is not a mixture.
        malformed: records that were left out.
        leaking: whether the test split may contain paraphrases of training questions.
    """

    name: str
    splits: Splits
    graphs: tuple[Graph, ...]
    shares: Mapping[str, float] = field(default_factory=dict)
    malformed: tuple[Malformed, ...] = ()
    leaking: bool = False

    @property
    def graph(self) -> Graph:
        """The only graph.

        Raises:
            DatasetError: there are several.
        """
        if len(self.graphs) > 1:
            names = ", ".join(graph.name for graph in self.graphs[:_LISTED])
            more = ", …" if len(self.graphs) > _LISTED else ""
            raise DatasetError(
                f"{self.name} has {len(self.graphs)} graphs ({names}{more}), and only one can be used here: "
                "name a data set with a single graph"
            )
        return self.graphs[0]

    def graph_lines(self) -> Iterator[str]:
        """The lines of all graphs' files; the graphs take turns, so that the first lines are of all."""
        for lines in zip_longest(*(graph.lines() for graph in self.graphs)):
            yield from (line for line in lines if line is not None)
