"""Several data sets as one: names and shares, unique ids, and splits in which the parts take turns."""

from __future__ import annotations

import json
import re
from collections import Counter
from dataclasses import fields, replace

import pytest

from kbqa.datasets import Dataset, Graph, Splits, load_dataset, spread
from kbqa.datasets.mixtures import mix, read_shares
from kbqa.datasets.splits import in_turns
from kbqa.errors import DatasetError
from kbqa.trajectory import Question


def ask(id_: str, kg: str = "g", part: str = "") -> Question:
    return Question(id_, "?", ("a",), (id_,), kg, part=part)


@pytest.mark.parametrize(
    ("name", "shares"),
    [
        ("metaqa-2hop+pathquestion-2h", {"metaqa-2hop": 0.5, "pathquestion-2h": 0.5}),
        ("0.75*metaqa-2hop+0.25*world", {"metaqa-2hop": 0.75, "world": 0.25}),
        (
            "0.5*metaqa-2hop@whole + world + x.jsonl",
            {"metaqa-2hop@whole": 0.5, "world": 0.25, "x.jsonl": 0.25},
        ),
        ("0.1*a+0.2*b+0.7*c", {"a": 0.1, "b": 0.2, "c": 0.7}),  # whose sum is not 1 in binary
    ],
)
def test_parts_without_a_share_have_equal_shares_of_what_is_left(name, shares):
    assert read_shares(name) == shares


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("1.5*metaqa-2hop+world", '"1.5" is not a share: write a number between 0 and 1'),
        ("0*metaqa-2hop+world", '"0" is not a share'),
        ("nan*metaqa-2hop+world", '"nan" is not a share'),
        ("half*metaqa-2hop+world", '"half" is not a share'),
        ("0.5*metaqa-2hop+0.6*world", "add up to 1.1, not to 1"),
        ("0.5*world", "add up to 0.5, not to 1"),
        ("0.5*metaqa-2hop+0.5*world+x.jsonl", "leaves nothing for a part without a share"),
        ("world+metaqa-2hop+world", "world occurs twice"),
        ("metaqa-2hop+metaqa-2hop@whole", "metaqa-2hop occurs twice"),
        ("world+", "a part has no name"),
        ("0.5*+world", "a part has no name"),
        ("world+nosuch", 'no data set named "nosuch"'),
        ("world+webqsp", "set KBQA_DATA"),
        ("world+temporal-world@whole", "generated"),
    ],
)
def test_a_name_that_cannot_be_read_says_what_to_do(name, message):
    with pytest.raises(DatasetError, match=re.escape(message)):
        load_dataset(name, 1)


def test_a_mixture_has_no_files_of_its_own(tmp_path):
    with pytest.raises(DatasetError, match="omit --data"):
        load_dataset("world+temporal-world", 1, data=tmp_path)


def test_a_mixture_is_its_parts_under_ids_of_their_own():
    mixture = load_dataset("0.8*world+0.2*temporal-world", 3)
    alone = {name: load_dataset(name, 3) for name in ("world", "temporal-world")}
    assert mixture.shares == {"world": 0.8, "temporal-world": 0.2}
    assert mixture.graphs == alone["world"].graphs + alone["temporal-world"].graphs
    ids = set()
    for split in (field.name for field in fields(Splits)):
        questions = getattr(mixture.splits, split)
        ids |= {question.id for question in questions}
        for name, dataset in alone.items():
            part = [question for question in questions if question.part == name]
            assert all(question.id.startswith(f"{name}/") for question in part)
            as_alone = [replace(q, id=q.id.removeprefix(f"{name}/"), part="") for q in part]
            assert as_alone == list(getattr(dataset.splits, split))
        assert [question.part for question in questions[:4]] == ["world", "temporal-world"] * 2
    assert len(ids) == sum(len(getattr(mixture.splits, field.name)) for field in fields(Splits))
    assert mixture == load_dataset("0.8*world+0.2*temporal-world", 3)


def test_a_data_set_by_itself_has_neither_parts_nor_shares():
    world = load_dataset("world", 1)
    assert (world.name, world.shares, world.graph.name) == ("world", {}, "world")
    assert {question.part for question in world.splits.train} == {""}
    assert not any(question.id.startswith("world/") for question in world.splits.train)
    assert in_turns(world.splits.train) == world.splits.train
    assert spread(world.splits.test, 50) == tuple(
        world.splits.test[place * len(world.splits.test) // 50] for place in range(50)
    )


def test_parts_take_turns_and_a_limit_is_divided_equally():
    many = [ask(f"a{n}", part="a") for n in range(8)]
    few = [ask(f"b{n}", part="b") for n in range(2)]
    mixed = in_turns([*many, *few])
    assert [question.id for question in mixed[:6]] == ["a0", "b0", "a1", "b1", "a2", "a3"]
    # Four places: two each. Those of a part are evenly spaced.
    assert [question.id for question in spread(mixed, 4)] == ["a0", "b0", "a4", "b1"]
    assert Counter(question.part for question in spread(mixed, 7)) == {"a": 5, "b": 2}
    assert spread(mixed, None) == spread(mixed, 99) == mixed
    # What a recipe leaves out of one part does not push the other back.
    odd = Splits(mixed, mixed, mixed, mixed).only(lambda question: question.id in {"a6", "a7", "b0", "b1"})
    assert [question.id for question in odd.test] == ["b0", "a6", "b1", "a7"]


def test_several_graphs_are_all_there_and_one_is_not_to_be_had():
    mixture = load_dataset("world+temporal-world", 1)
    lines = mixture.graph_lines()
    one, other = (graph.text.splitlines() for graph in mixture.graphs)
    assert [next(lines) for _ in range(4)] == [one[0], other[0], one[1], other[1]]
    assert 4 + sum(1 for _ in lines) == len(one) + len(other)
    with pytest.raises(DatasetError, match=re.escape("has 2 graphs (world, temporal-world), and only one")):
        _ = mixture.graph


def test_parts_about_one_graph_have_it_once(tmp_path):
    directory = tmp_path / "metaqa"
    directory.mkdir()
    (directory / "kb.txt").write_text("Ada|taught|Bob\n")
    for hops in (1, 2):
        (directory / f"{hops}hop_test.txt").write_text(f"{hops} [Ada]\tBob\n")
    (tmp_path / "asked.jsonl").write_text(
        json.dumps({"id": "q", "text": "?", "answers": ["Bob"], "topic_entities": ["Ada"], "kg": "metaqa"})
        + "\n"
    )
    mixture = load_dataset("asked.jsonl+metaqa-1hop@whole+metaqa-2hop@whole", 1, tmp_path)
    assert mixture.graphs == (Graph("metaqa", file=directory / "kb.txt"),)  # whichever part includes it
    assert len(mixture.splits.test) == 3


def test_different_graphs_of_one_name_are_refused():
    nothing = Splits((), (), (), ())
    parts = {name: Dataset(name, nothing, (Graph("g", text=name),)) for name in ("a", "b")}
    with pytest.raises(DatasetError, match='different graphs of the name "g"'):
        mix("a+b", {"a": 0.5, "b": 0.5}, parts)
