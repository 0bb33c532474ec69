import os
from pathlib import Path

import pytest

from kbqa.datasets import load_dataset
from kbqa.datasets.formats import read
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
    ("name", "message"), [("webqsp", "no data set named"), ("metaqa-1hop", "set KBQA_DATA")]
)
def test_a_data_set_that_is_not_there_is_an_error_that_says_what_to_do(name, message):
    with pytest.raises(DatasetError, match=message):
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
