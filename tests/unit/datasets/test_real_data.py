import json
import os
import re
from collections import Counter
from pathlib import Path

import pytest

from kbqa.datasets import load_dataset
from kbqa.datasets.formats import read
from kbqa.datasets.leaks import leaks
from kbqa.datasets.metaqa import METAQA, gold_path
from kbqa.datasets.pathquestion import PATHQUESTION
from kbqa.errors import DatasetError
from kbqa.trajectory import Hop


@pytest.fixture
def data():
    if "KBQA_DATA" not in os.environ:
        pytest.skip("KBQA_DATA does not name the directory of the real data sets")
    return Path(os.environ["KBQA_DATA"])


def test_question_types_become_paths():
    assert gold_path("director_to_movie_to_language") == (
        Hop("directed_by", inverse=True),
        Hop("in_language"),
    )
    assert gold_path("movie_to_tags") == (Hop("has_tags"),)


def test_pathquestion_lines_are_read(tmp_path):
    file = tmp_path / "PQ-2H.txt"
    file.write_text("who is a 's wife 's son ?\tc(c/d/)\ta#spouse#b#children#c#<end>#c\n", encoding="utf-8")
    (question,) = read(file, PATHQUESTION, "pq").questions
    assert question.topic_entities == ("a",)
    assert question.answers == ("c", "d")
    assert question.path == (Hop("spouse"), Hop("children"))


def test_a_line_that_does_not_fit_is_named(tmp_path):
    file = tmp_path / "PQ-2H.txt"
    file.write_text("ok ?\tc(c/)\ta#r#c\nbroken\n", encoding="utf-8")
    with pytest.raises(DatasetError, match=r"PQ-2H.txt:2: expected"):
        read(file, PATHQUESTION, "pq")


def test_metaqa_lines_are_read_with_their_types(tmp_path):
    (tmp_path / "2hop_dev.txt").write_text("films by [Ada B] in ?\tx|y|x\n", encoding="utf-8")
    (tmp_path / "2hop_dev_qtype.txt").write_text("writer_to_movie_to_year\n", encoding="utf-8")
    (question,) = read(tmp_path / "2hop_dev.txt", METAQA, "metaqa").questions
    assert (question.text, question.topic_entities, question.answers) == (
        "films by Ada B in ?",
        ("Ada B",),
        ("x", "y"),
    )


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("nosuch", "no data set named"),
        ("../etc", "no data set named"),
        ("webqsp", "set KBQA_DATA"),
        ("metaqa-1hop@all", 'no design "all" (known: sample, whole, random, whole-1, …)'),
        ("metaqa-1hop@whole-x", 'no design "whole-x"'),
        ("metaqa-1hop@whole-", 'no design "whole-"'),
        ("metaqa-1hop@sample-1", 'no design "sample-1"'),  # of which the seed decides
        ("world@whole", "generated"),
    ],
)
def test_a_data_set_that_is_not_there_is_an_error_that_says_what_to_do(name, message):
    with pytest.raises(DatasetError, match=re.escape(message)):
        load_dataset(name, seed=1)


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DatasetError, match=r"PQ-2H.txt: No such file"):
        load_dataset("pathquestion-2h", 1, tmp_path)


@pytest.mark.parametrize(
    "name", ["world", "pathquestion-2h", "pathquestion-3h", "metaqa-1hop", "metaqa-2hop"]
)
def test_splits_share_no_pair_of_topic_and_path(name, request):
    directory = None if name == "world" else request.getfixturevalue("data")
    splits = load_dataset(name, 1, directory).splits
    parts = (splits.cold_start, splits.train, splits.validation, splits.test)
    pairs = [{(q.topic_entities, q.path) for q in part} for part in parts]
    assert len(splits.test) >= 200
    for index, some in enumerate(pairs):
        for others in pairs[index + 1 :]:
            assert some.isdisjoint(others)


@pytest.mark.parametrize(
    ("name", "sizes"),
    [
        ("metaqa-1hop@whole", (1988, 7453, 500, 6962)),
        ("metaqa-2hop@whole", (2000, 12372, 500, 10410)),
        ("metaqa-3hop@whole", (2000, 11774, 500, 9991)),
        ("pathquestion-2h@whole", (381, 1143, 192, 192)),
        ("pathquestion-2h@random", (380, 1148, 190, 190)),
    ],
)
def test_a_set_can_be_used_whole_and_is_split_alike_for_every_seed(data, name, sizes):
    one, other = (load_dataset(name, seed, data) for seed in (1, 2))
    splits = one.splits
    assert splits == other.splits
    assert tuple(map(len, (splits.cold_start, splits.train, splits.validation, splits.test))) == sizes
    assert one.leaking is name.endswith("@random")


def test_a_set_that_nobody_has_split_can_be_split_anew(data):
    splits = {n: load_dataset(f"pathquestion-2h@whole-{n}", 1, data).splits for n in range(3)}
    assert splits[0] == load_dataset("pathquestion-2h@whole", 2, data).splits
    assert len({frozenset(question.id for question in split.test) for split in splits.values()}) == 3
    for split in splits.values():
        assert leaks([*split.cold_start, *split.train, *split.validation], split.test).pairs == 0.0


def test_a_random_split_of_pathquestion_leaks_and_ours_does_not(data):
    found = {}
    for design in ("random", "whole"):
        splits = load_dataset(f"pathquestion-2h@{design}", 1, data).splits
        found[design] = leaks([*splits.cold_start, *splits.train, *splits.validation], splits.test)
    assert found["random"].paths == 1.0
    assert found["random"].pairs > 0.9
    assert found["whole"].pairs == 0.0


def test_every_question_of_the_grailqa_sample_is_read(data):
    test = load_dataset("grailqa", 1, data).splits.test
    assert len(test) == 700
    assert Counter(question.level for question in test) == {
        "zero-shot": 389,
        "i.i.d.": 177,
        "compositional": 134,
    }
    assert Counter(question.operation for question in test) == {
        "path": 640,
        "intersection": 45,
        "superlative": 10,
        "count": 3,
        "comparison": 2,
    }
    assert Counter(question.hops for question in test) == {1: 497, 2: 130, 3: 7, 0: 66}
    assert all(question.answers and question.form and question.sparql for question in test)


def test_every_question_of_the_cwq_sample_is_read_with_the_operation_that_it_was_made_with(data):
    records = json.loads((data / "cwq" / "cwq_test_sample.json").read_text(encoding="utf-8"))
    test = load_dataset("cwq", 1, data).splits.test
    assert len(test) == len(records) == 2500
    made = {"superlative": "superlative", "comparative": "comparison"}
    for record, question in zip(records, test, strict=True):
        kind = made.get(record["compositionality_type"])
        assert kind is None or question.operation == kind
        assert question.answers
        assert set(question.topic_entities) == set(record["topic_entity"] or question.topic_entities)


def test_every_question_of_qald_10_is_read(data):
    test = load_dataset("qald-10", 1, data).splits.test
    assert len(test) == 394
    assert (
        sum(question.operation == "boolean" for question in test) == 60
    )  # one ASK has a blank node in brackets
    assert sum(not question.answers for question in test) == 1
    assert all(re.fullmatch(r"Q[0-9]+", topic) for question in test for topic in question.topic_entities)
