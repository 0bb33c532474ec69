"""Questions from files."""

from __future__ import annotations

import json

import pytest

from kbqa.datasets.questions import load_questions
from kbqa.datasets.records import read_questions, write_questions
from kbqa.errors import DatasetError
from kbqa.trajectory import Hop, Question


@pytest.fixture
def write(tmp_path):
    def write_lines(*lines):
        path = tmp_path / "questions.jsonl"
        path.write_text("".join(line if isinstance(line, str) else json.dumps(line) + "\n" for line in lines))
        return path

    return write_lines


def test_records_have_the_fields_of_questions(write):
    path = write(
        {"id": "q1", "text": "Who?", "answers": ["a"], "topic_entities": ["t"], "kg": "g", "graph": "s1"},
        "\n",
        {
            "id": "q2",
            "question": "What?",
            "answers": [],
            "topic_entities": ["t"],
            "path": [{"relation": "r"}, {"relation": "s", "inverse": True}],
        },
    )
    assert read_questions(path) == [
        Question("q1", "Who?", ("a",), ("t",), "g", graph="s1"),
        Question("q2", "What?", (), ("t",), "", path=(Hop("r"), Hop("s", inverse=True))),
    ]


def test_several_sets_and_names_of_gold_answers_are_read_as_they_were_written(tmp_path):
    names = (("a", "m.0a"), ("b", "m.0b", "m.0c"))
    question = Question("q", "?", ("a",), ("t",), "g", variants=(("b",), ("a", "b")), names=names)
    write_questions(tmp_path / "x.jsonl", [question])
    assert read_questions(tmp_path / "x.jsonl") == [question]


def test_rog_records_are_questions_about_their_own_graphs(write):
    path = write(
        {"id": "q1", "question": "?", "q_entity": ["t"], "a_entity": ["a"], "answer": ["A"], "graph": []}
    )
    assert read_questions(path) == [Question("q1", "?", ("a",), ("t",), "", graph="q1")]


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("[]\n", "a JSON object"),
        ("{\n", "Expecting"),
        ('{"id": 1}\n', '"id" and "text"'),
        ('{"id": "q", "text": "t"}\n', '"answers" is not'),
        ('{"id": "q", "text": "t", "answers": ["a"], "topic_entities": "x"}\n', '"topic_entities" is not'),
        ('{"id": "q", "text": "t", "answers": [], "topic_entities": [], "path": ["r"]}\n', '"path" is not'),
        ('{"id": "q", "text": "t", "answers": [], "topic_entities": [], "names": ["r"]}\n', '"names" is not'),
        ('{"id": "q", "text": "t", "answers": [], "topic_entities": [], "variants": 1}\n', '"variants" is'),
    ],
)
def test_a_bad_record_is_named(write, line, reason):
    good = {"id": "q0", "text": "?", "answers": [], "topic_entities": []}
    with pytest.raises(DatasetError, match=reason) as caught:
        read_questions(write(good, line))
    assert ":2: " in str(caught.value)


def test_an_empty_or_missing_file_is_refused(write, tmp_path):
    with pytest.raises(DatasetError, match="no questions"):
        read_questions(write())
    with pytest.raises(DatasetError, match=r"name a file of questions, or one of world"):
        load_questions(str(tmp_path / "none"))


def test_a_data_set_by_name_gives_the_questions_of_all_splits():
    questions = load_questions("world", seed=1)
    assert len({question.id for question in questions}) == len(questions) > 4000


def test_a_split_of_a_data_set_can_be_loaded_alone(write):
    questions = load_questions("world", seed=1, split="test")
    assert {question.id for question in questions} < {
        question.id for question in load_questions("world", seed=1)
    }
    with pytest.raises(
        DatasetError, match=r'no split "exam" \(there are: cold_start, train, validation, test'
    ):
        load_questions("world", seed=1, split="exam")
    file = write({"id": "q0", "text": "?", "answers": ["Heat"], "topic_entities": ["Ali"]})
    with pytest.raises(DatasetError, match="leave --split out"):
        load_questions(str(file), split="test")
