"""Published data sets: their formats, files and graphs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

from kbqa.datasets.ck25 import CK25
from kbqa.datasets.cwq import CWQ
from kbqa.datasets.formats import Answers, Format, Malformed, OnError, lines, read
from kbqa.datasets.grailqa import GRAILQA, GRAPHQUESTIONS
from kbqa.datasets.lcquad import LCQUAD
from kbqa.datasets.metaqa import METAQA
from kbqa.datasets.multitq import MULTITQ
from kbqa.datasets.pathquestion import PATHQUESTION
from kbqa.datasets.qald import QALD
from kbqa.datasets.records import RECORDS
from kbqa.datasets.simplequestions import SIMPLEQUESTIONS
from kbqa.datasets.trex import TREX
from kbqa.datasets.webqsp import WEBQSP
from kbqa.errors import DatasetError, GraphLoadError
from kbqa.kg.loading.files import graph_files
from kbqa.trajectory import Question


class Part(StrEnum):
    """The part of a data set that a file holds; `ALL` for a set without splits."""

    TRAIN = "train"
    DEV = "dev"
    TEST = "test"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Family:
    """How a data set is published.

    Attributes:
        kg: name of the graph; empty if the questions name it.
        files: part → patterns of file names in the set's directory; the first pattern with a match is used.
        folder: the set's subdirectory of the data directory.
        graph: name of the graph's file in the set's directory, if there is one; "." for the RDF files in it.
        sampled: whether small policies train on the set, for which a sample of the splits is enough.
        united: whether a part consists of all files that match its pattern, instead of the first.
        underscored: whether the graph's file has underscores for the blanks in names.
    """

    kg: str
    form: Format
    files: Mapping[Part, tuple[str, ...]]
    folder: str
    graph: str | None = None
    sampled: bool = False
    united: bool = False
    underscored: bool = False


def _metaqa(hops: str) -> Family:
    files = {
        part: (f"{hops}hop_{part}.txt", f"{hops}-hop/vanilla/qa_{part}.txt")
        for part in (Part.TRAIN, Part.DEV, Part.TEST)
    }
    return Family("metaqa", METAQA, files, "metaqa", graph="kb.txt", sampled=True, united=True)


def _pathquestion(kind: str) -> Family:
    name = f"pathquestion-{kind.lower()}"
    files = {Part.ALL: (f"PQ-{kind}.txt",)}
    return Family(name, PATHQUESTION, files, "pathquestion", graph=f"{kind}-kb.txt", sampled=True)


def _split(
    kg: str,
    form: Format,
    folder: str,
    train: str,
    dev: str,
    test: str,
    graph: str | None = None,
    *,
    underscored: bool = False,
) -> Family:
    """A set in three files; patterns are separated by bars, and empty for an unpublished part."""
    written = zip((Part.TRAIN, Part.DEV, Part.TEST), (train, dev, test), strict=True)
    files = {part: tuple(patterns.split("|")) for part, patterns in written if patterns}
    return Family(kg, form, files, folder, graph, underscored=underscored)


# The test files of GrailQA and KILT have no answers; published results are measured on dev.
FAMILIES: Mapping[str, Family] = {
    "pathquestion-2h": _pathquestion("2H"),
    "pathquestion-3h": _pathquestion("3H"),
    **{f"metaqa-{hops}hop": _metaqa(hops) for hops in "123"},
    "metaqa": _metaqa("[123]"),
    "webqsp": _split("freebase", WEBQSP, "webqsp", "WebQSP.train.json", "", "WebQSP.test.json"),
    "cwq": _split(
        *("freebase", CWQ, "cwq", "ComplexWebQuestions_train.json|*train*.json"),
        *("ComplexWebQuestions_dev.json|*dev*.json", "ComplexWebQuestions_test_wans.json|*test*.json"),
    ),
    "grailqa": _split("freebase", GRAILQA, "grailqa", "grailqa*train*.json", "", "grailqa*dev*.json"),
    "graphquestions": _split(
        *("freebase", GRAPHQUESTIONS, "graphquestions"),
        *("graphquestions*fb15*training*.json|graphquestions*training*.json", ""),
        "graphquestions*fb15*test*.json|graphquestions*test*.json",
    ),
    "simplequestions": _split(
        *("freebase", SIMPLEQUESTIONS, "simplequestions", "annotated_fb_data_train.txt"),
        *("annotated_fb_data_valid.txt", "annotated_fb_data_test.txt"),
    ),
    "qald-10": _split("wikidata", QALD, "qald10", "qald_9_plus_train_wikidata.json", "", "qald_10.json"),
    "lcquad-2": _split("wikidata", LCQUAD, "lcquad2", "train.json", "", "test.json"),
    "trex": _split("wikidata", TREX, "trex", "trex-train-kilt.jsonl", "", "trex-dev-kilt.jsonl"),
    "ck25": _split("ck25", CK25, "ck25", "", "", "questions_dev.yml|questions*.y*ml", "."),
    "multitq": _split(
        *("multitq", MULTITQ, "multitq", "train.json|questions/train.json"),
        *("dev.json|questions/dev.json", "test.json|questions/test.json", "kg/full.txt"),
        underscored=True,
    ),
}

# The files that `kbqa data split` writes.
_OWN_FILES = {
    Part.TRAIN: ("train.jsonl",),
    Part.DEV: ("validation.jsonl", "dev.jsonl"),
    Part.TEST: ("test.jsonl",),
}


@dataclass(slots=True)
class Published:
    """The files found for one data set; reading them adds to `malformed`."""

    family: Family
    files: Mapping[Part, tuple[Path, ...]]
    answers: Answers
    on_error: OnError
    graph_file: Path | None = None
    malformed: list[Malformed] = field(default_factory=list)

    @classmethod
    def under(cls, name: str, root: Path, answers: Answers, on_error: OnError) -> Published:
        """Find a set in its subdirectory of `root`, or as a file there such as `x.jsonl`.

        Raises:
            DatasetError: there is no file of the set.
        """
        family = FAMILIES.get(name) or _own(name, sampled=(root / name).is_file())
        if (root / name).is_file():
            return cls(family, {Part.ALL: (root / name,)}, answers, on_error)
        return cls._in(family, name, root / family.folder, " (looked under KBQA_DATA)", answers, on_error)

    @classmethod
    def within(cls, name: str, place: Path, answers: Answers, on_error: OnError) -> Published:
        """Find a set in its own directory, or take one file, which becomes the test part.

        Raises:
            DatasetError: there is no file of the set.
        """
        family = FAMILIES.get(name) or _own(name)
        if place.is_dir():
            inner = place / family.folder
            return cls._in(family, name, inner if inner.is_dir() else place, "", answers, on_error)
        return cls(family, {Part.TEST: (place,)}, answers, on_error, _graph(family, place.parent))

    @classmethod
    def _in(
        cls, family: Family, name: str, directory: Path, hint: str, answers: Answers, on_error: OnError
    ) -> Published:
        for known in (family.files, _OWN_FILES):
            found = {part: _found(directory, names) for part, names in known.items()}
            files = {part: paths if family.united else paths[:1] for part, paths in found.items() if paths}
            if files:
                return cls(family, files, answers, on_error, _graph(family, directory))
        wanted = [names[0] for names in family.files.values()]
        raise DatasetError(f"{name}: {directory / wanted[-1]}: No such file or directory{hint}")

    @property
    def parts(self) -> tuple[Part, ...]:
        return tuple(self.files)

    def read(self, part: Part) -> tuple[Question, ...]:
        """The questions of a part.

        Raises:
            DatasetError: the part is malformed; names file, line or record, and reason.
        """
        questions: list[Question] = []
        for file in self.files[part]:
            form = RECORDS if _is_own(file) else self.family.form
            found = read(file, form, self.family.kg, on_error=self.on_error, answers=self.answers)
            self.malformed += found.malformed
            questions += found.questions
        return tuple(questions)


def _own(name: str, *, sampled: bool = False) -> Family:
    """A set in our own format of records."""
    return Family("", RECORDS, _OWN_FILES, name, sampled=sampled)


def _found(directory: Path, names: tuple[str, ...]) -> tuple[Path, ...]:
    """The files that match the first pattern with any match."""
    fitting = (tuple(filter(Path.is_file, sorted(directory.glob(name)))) for name in names)
    return next(filter(None, fitting), ())


def _graph(family: Family, directory: Path) -> Path | None:
    path = directory / family.graph if family.graph else None
    try:
        return path if path is not None and path.exists() and graph_files(path) else None
    except GraphLoadError:  # a directory without RDF files
        return None


def _is_own(file: Path) -> bool:
    """Whether a file holds records of `kbqa.datasets.records`; other sets' files may end in .jsonl, too."""
    if file.suffix != ".jsonl":
        return False
    try:
        _, first = next(lines(file), (0, ""))
        record = json.loads(first)
    except (OSError, ValueError):
        return True  # reading it will report the error
    return not isinstance(record, dict) or not {"input", "output"} <= record.keys()
