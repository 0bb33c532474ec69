"""RoG's released records become one graph with subgraphs, and a data set."""

from __future__ import annotations

import json

import pytest

from kbqa.datasets import load_dataset
from kbqa.datasets.gold import gold_namer
from kbqa.datasets.rog import convert
from kbqa.errors import ConfigurationError, DatasetError
from kbqa.kg.actions import GET_TAIL_ENTITIES, Action
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from tests.unit.datasets import rog_records as rog
from tests.unit.datasets.published_files import text_of


@pytest.fixture
def released(tmp_path):
    directory = tmp_path / "released" / "data"
    directory.mkdir(parents=True)
    for name, records in (("train", rog.TRAIN), ("validation", rog.VALIDATION), ("test", rog.TEST)):
        (directory / f"{name}.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in records))
    return directory.parent


def converted(tmp_path, *files):
    return convert(files, "rog", tmp_path / "data" / "rog", tmp_path / "graph.jsonl")


def test_all_parts_become_one_graph_and_a_data_set_used_whole(tmp_path, released):
    written = converted(tmp_path, released)
    assert (written.questions, written.nameless) == ({"test": 4, "train": 12, "validation": 4}, 0)
    splits = load_dataset("rog", 1, tmp_path / "data").splits
    assert [len(part) for part in (splits.cold_start, splits.train, splits.validation, splits.test)] == [
        *(12, 12, 4, 4)
    ]
    question = splits.train[0]
    assert (question.id, question.graph, question.kg) == ("WebQTrn-0", "WebQTrn-0", "rog")
    assert (question.answers, question.topic_entities) == (("Aldby",), ("Ada Byr",))

    catalog = GraphCatalog(tmp_path)
    try:
        catalog.load("rog", tmp_path / "graph.jsonl")
        [subgraphs] = catalog.subgraphs("rog")
        assert (subgraphs.questions, subgraphs.leaking) == (20, False)
        tools = LocalGraphTools(catalog)
        # The third person is born in another town than the first, and not in the first one's subgraph.
        born = [
            Action(GET_TAIL_ENTITIES, {"entity": name, "relation": rog.RELATION})
            for name in ("Ada Byr", "Cy Marsh")
        ]
        inside, outside = tools.execute("rog", born, graph=question.graph)
        assert [item.label for item in inside.items] == ["Aldby"]
        assert outside.kind == "entity_not_in_kg"
        assert list(map(gold_namer(splits.all, tools, "rog"), splits.train)) == list(splits.train)
    finally:
        catalog.close()


def test_answers_are_those_in_words_or_else_the_entities(tmp_path):
    changed = [rog.TRAIN[0] | {"answer": ["Ald-By"]}, rog.TRAIN[1] | {"answer": []}]
    (tmp_path / "train.json").write_text(json.dumps(changed))
    converted(tmp_path, tmp_path / "train.json")
    written = (tmp_path / "data" / "rog" / "train.jsonl").read_text().splitlines()
    assert [json.loads(line)["answers"] for line in written] == [["Ald-By"], ["Brenta"]]


def test_a_triple_with_an_empty_name_is_left_out_and_counted(tmp_path):
    record = rog.TRAIN[0] | {"graph": [*rog.TRAIN[0]["graph"], ["Ada Byr", "common.topic.alias", " "]]}
    (tmp_path / "train.jsonl").write_text(json.dumps(record))
    assert converted(tmp_path, tmp_path / "train.jsonl").nameless == 1


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"graph": [["Ada Byr", "born"]]}, r'record 1: "graph" is not a list of \[head, relation, tail\]'),
        ({"q_entity": "Ada Byr"}, 'record 1: "q_entity" is not a list'),
        ({"id": ""}, 'record 1: "id" is not an id'),
    ],
)
def test_a_malformed_record_is_named(tmp_path, change, reason):
    (tmp_path / "train.jsonl").write_text(json.dumps(rog.TRAIN[0] | change))
    with pytest.raises(DatasetError, match=reason):
        converted(tmp_path, tmp_path / "train.jsonl")


def test_files_that_cannot_be_used_say_why(tmp_path):
    with pytest.raises(DatasetError, match="there is no such file"):
        converted(tmp_path, tmp_path / "none")
    (tmp_path / "part1.jsonl").write_text(json.dumps(rog.TRAIN[0]))
    with pytest.raises(DatasetError, match="has to begin with one of train"):
        converted(tmp_path, tmp_path / "part1.jsonl")
    (tmp_path / "test.jsonl").write_text("{")
    with pytest.raises(DatasetError, match=r"test\.jsonl cannot be read"):
        converted(tmp_path, tmp_path / "test.jsonl")
    (tmp_path / "dev.jsonl").write_text(f"{json.dumps(rog.TRAIN[0])}\n" * 2)
    with pytest.raises(DatasetError, match='two records have the id "WebQTrn-0"'):
        converted(tmp_path, tmp_path / "dev.jsonl")


def test_parquet_files_are_read_if_pyarrow_is_installed(tmp_path):
    file = tmp_path / "train-00000-of-00001-0123456789abcdef.parquet"
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError:
        file.write_bytes(b"PAR1")
        with pytest.raises(ConfigurationError, match="pip install pyarrow, or convert them to JSON lines"):
            converted(tmp_path, file)
        return
    pq.write_table(pa.Table.from_pylist(rog.TRAIN), file)
    assert converted(tmp_path, tmp_path).questions == {"train": 12}


def test_released_records_read_as_questions_say_what_to_do(tmp_path):
    (tmp_path / "rog.jsonl").write_text(text_of(rog.TRAIN[0]))
    with pytest.raises(DatasetError, match="load them with kbqa data load-rog NAME"):
        load_dataset("rog.jsonl", 1, tmp_path)
