"""Data sets by name: graphs to load and questions in splits.

A name may end in a `Design`, such as `metaqa-2hop@whole`. Several names can be mixed, such as
`0.8*metaqa-2hop+0.2*world` (`kbqa.datasets.mixtures`).
"""

from __future__ import annotations

import random
import re
from enum import StrEnum
from pathlib import Path

from kbqa.datasets.dataset import Dataset, Graph
from kbqa.datasets.formats import Answers, OnError
from kbqa.datasets.mixtures import is_mixture, mix, read_shares
from kbqa.datasets.published import FAMILIES, Part, Published
from kbqa.datasets.splits import Splits, split_at_random, split_by_path
from kbqa.datasets.world import GENERATED, generate_questions, generate_world
from kbqa.errors import DatasetError
from kbqa.trajectory import Question

GENERATED_NAMES = ("world", *GENERATED)
DATASETS = (*GENERATED_NAMES, *FAMILIES)

_NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")
SAMPLE_SIZES = {"cold_start": 150, "train": 4000, "validation": 120, "test": 240}
"""Questions by split, of `world` and of the design `SAMPLE`."""
_COLD_START, _VALIDATION = 2000, 500  # at most, for a set that is used whole


class Design(StrEnum):
    """How much of a data set is used, and how it is split if its publishers did not split it.

    `SAMPLE`: small validation and test splits, so that evaluation is fast; the default for the sets
    on which small policies train (MetaQA, PathQuestion) and for a file of questions. `WHOLE`: the
    published files; if there is only one, a tenth each for validation and test, split by (topic, path).
    `RANDOM`: like `WHOLE`, but split at random, as in published results on sets without a split; this
    leaks paraphrases and paths. `WHOLE` and `RANDOM` do not depend on the seed; `whole-1`, `whole-2` and
    so on are other splits.
    """

    SAMPLE = "sample"
    WHOLE = "whole"
    RANDOM = "random"


def load_dataset(
    name: str,
    seed: int,
    data_directory: Path | None = None,
    *,
    data: Path | None = None,
    answers: Answers = Answers.LABELS,
    on_error: OnError = OnError.REFUSE,
) -> Dataset:
    """Load a data set by name; the same seed gives the same data.

    Args:
        name: one of `DATASETS`, optionally followed by @ and a `Design`; a file of questions in
            `data_directory`, such as `x.jsonl` (`kbqa.datasets.records`); or a directory there with
            `train.jsonl`, `validation.jsonl` and `test.jsonl`. The questions in such files must be
            about one graph, which must be loaded already. Or a mixture of such names.
        data_directory: directory of published data (KBQA_DATA), with one subdirectory per set; the
            generated world needs none.
        data: the set's own directory, or one file in its format, which becomes the test split; used
            instead of `data_directory`.
        answers: whether gold answers are labels or ids, if the set has both.
        on_error: what to do about malformed records.

    Raises:
        DatasetError: the name is unknown, or files are missing or malformed.
    """
    if is_mixture(name):
        if data is not None:
            raise DatasetError(f"{name} is a mixture, which has no files of its own: omit --data")
        shares = read_shares(name)
        parts = {
            part: load_dataset(part, seed, data_directory, answers=answers, on_error=on_error)
            for part in shares
        }
        return mix(name, shares, parts)
    base, design, draw = _design(name)
    if base in GENERATED_NAMES:
        if data is not None or design is not None:
            raise DatasetError(f"{base} is generated: it has no files and no designs")
        return _generated(name, seed, data_directory)
    published = open_published(base, data_directory, data, answers, on_error)
    design = design or (Design.SAMPLE if published.family.sampled else Design.WHOLE)
    return _published(name, published, design, seed if design is Design.SAMPLE else draw)


def open_published(
    name: str,
    data_directory: Path | None,
    data: Path | None,
    answers: Answers = Answers.LABELS,
    on_error: OnError = OnError.REFUSE,
) -> Published:
    """The files of a data set that is not generated; for the arguments see `load_dataset`.

    Raises:
        DatasetError: the name is unknown or that of a mixture, or the files are missing.
    """
    if is_mixture(name):
        raise DatasetError(f"{name} is a mixture, which has no files of its own: name one of its parts")
    if _NAME.fullmatch(name) is None:
        raise _unknown(name)
    if data is not None:
        if not data.exists():
            raise DatasetError(f"{data}: there is no such file or directory")
        return Published.within(name, data, answers, on_error)
    if name not in FAMILIES and (data_directory is None or not (data_directory / name).exists()):
        raise _unknown(name)
    if data_directory is None or not data_directory.is_dir():
        raise DatasetError(f"{name} is not shipped: set KBQA_DATA to the directory that holds it")
    return Published.under(name, data_directory, answers, on_error)


def _generated(name: str, seed: int, data_directory: Path | None) -> Dataset:
    if name == "world":
        world = generate_world(seed)
        questions = generate_questions(world, seed, SAMPLE_SIZES, "world")
        return Dataset(name, questions, (Graph("world", world.text()),))
    splits, texts = GENERATED[name](seed, data_directory)
    return Dataset(name, splits, tuple(Graph(kg, text) for kg, text in texts.items()))


def _published(name: str, published: Published, design: Design, draw: int) -> Dataset:
    """The questions of published files, in splits.

    Raises:
        DatasetError: the questions are not all about one graph, or the files are malformed.
    """
    files = {part: published.read(part) for part in published.parts}
    questions = [question for part in files.values() for question in part]
    graphs = sorted({question.kg for question in questions})
    if graphs == [""] and any(question.graph for question in questions):
        raise DatasetError(
            f"{name}: these are RoG's records, which bring along their graph: load them with "
            f"kbqa data load-rog NAME {published.files[published.parts[0]][0]}"
        )
    if len(graphs) != 1 or not graphs[0]:
        raise DatasetError(f'{name}: all questions must have the same graph in "kg", but they have {graphs}')
    whole = files.pop(Part.ALL, None)
    if whole is not None:
        splits = _divided(whole, design, draw)
    else:
        splits = _official(name, files, design, draw, carved=published.family.sampled)
    return Dataset(
        name,
        splits,
        (Graph(graphs[0], file=published.graph_file, underscored=published.family.underscored),),
        malformed=tuple(published.malformed),
        leaking=design is Design.RANDOM,
    )


def _design(name: str) -> tuple[str, Design | None, int]:
    """Split a name into data set, design, and number of the split."""
    base, at, written = name.partition("@")
    if not at:
        return base, None, 0
    design, dash, draw = written.partition("-")
    if design not in set(Design) or (dash and (design == Design.SAMPLE or not draw.isdecimal())):
        raise DatasetError(f'{name}: there is no design "{written}" (known: {", ".join(Design)}, whole-1, …)')
    return base, Design(design), int(draw or 0)


def _unknown(name: str) -> DatasetError:
    known = ", ".join(DATASETS)
    return DatasetError(f'no data set named "{name}" (known: {known}; or a file of KBQA_DATA, as x.jsonl)')


def _divided(questions: tuple[Question, ...], design: Design, seed: int) -> Splits:
    """Split a set that its publishers did not split."""
    if design is Design.SAMPLE:
        most = max(1, len(questions) // 7)  # the limit for a small set
        sizes = {part: min(SAMPLE_SIZES[part], most) for part in ("cold_start", "validation", "test")}
        return split_by_path(questions, seed, **sizes)
    tenth = max(1, len(questions) // 10)
    split = split_by_path if design is Design.WHOLE else split_at_random
    cold_start = min(_COLD_START, 2 * tenth)
    return split(questions, seed, cold_start=cold_start, validation=tenth, test=tenth)


def _official(
    name: str, parts: dict[Part, tuple[Question, ...]], design: Design, seed: int, *, carved: bool
) -> Splits:
    """Splits of a set that is published in several files.

    The train file is the training set, and its questions with a gold program are also those of the cold
    start, as in KBQA-R1 and KnowCoder-A1. Without a train file, the dev file is used for training, except the
    questions that the test split asks in other words.

    Args:
        carved: whether cold start and validation are taken out of the training set, so that all splits are
            disjoint; always so without a train file.
    """
    if design is Design.RANDOM:
        raise DatasetError(f"{name}: the data set has a published split; omit the design")
    sampled = design is Design.SAMPLE
    test, material, validation = (parts.get(part, ()) for part in (Part.TEST, Part.TRAIN, Part.DEV))
    if material and not carved and not sampled:
        programmed = tuple(
            question for question in material if question.path or question.form or question.sparql
        )
        return Splits(programmed or material, material, validation, test)
    if sampled:
        test = _sample(test, SAMPLE_SIZES["test"], f"metaqa/{seed}")
    if not material:
        held_out = {(question.topic_entities, question.path) for question in test}
        material = tuple(q for q in validation if (q.topic_entities, q.path) not in held_out)
        validation = ()
    most = (SAMPLE_SIZES["cold_start"], SAMPLE_SIZES["validation"]) if sampled else (_COLD_START, _VALIDATION)
    splits = split_by_path(
        material,
        seed,
        cold_start=min(most[0], len(material) // 5),
        validation=0 if validation else min(most[1], len(material) // 10),
        test=0,
    )
    if validation:
        chosen = _sample(validation, most[1], f"validation/{seed}") if sampled else validation
        return Splits(splits.cold_start, splits.train, chosen, test)
    return Splits(splits.cold_start, splits.train, splits.validation, test)


def _sample(questions: tuple[Question, ...], most: int, seed: str) -> tuple[Question, ...]:
    return tuple(random.Random(seed).sample(questions, min(most, len(questions))))
