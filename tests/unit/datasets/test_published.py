"""Data sets by the names of their published files, and which of these files are which split."""

from __future__ import annotations

import json

import pytest

from kbqa.datasets import load_dataset, spread
from kbqa.datasets.metaqa import gold_query
from kbqa.datasets.published import FAMILIES
from kbqa.kg.actions import Action, Success
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.trajectory import Hop
from tests.unit.datasets import published_files as files

PUBLISHED = {
    "webqsp": {"WebQSP.train.json": files.WEBQSP, "WebQSP.test.json": files.WEBQSP},
    "cwq": {
        "ComplexWebQuestions_train.json": files.CWQ,
        "ComplexWebQuestions_dev.json": files.CWQ,
        "ComplexWebQuestions_test_wans.json": files.CWQ,
    },
    "grailqa": {"grailqa_v1.0_train.json": files.GRAILQA, "grailqa_v1.0_dev.json": files.GRAILQA},
    "graphquestions": {
        "graphquestions.training.json": files.GRAPHQUESTIONS,
        "graphquestions.testing.json": files.GRAPHQUESTIONS,
    },
    "simplequestions": {
        "annotated_fb_data_train.txt": files.SIMPLEQUESTIONS,
        "annotated_fb_data_valid.txt": files.SIMPLEQUESTIONS,
        "annotated_fb_data_test.txt": files.SIMPLEQUESTIONS,
    },
    "qald-10": {"qald_9_plus_train_wikidata.json": files.QALD, "qald_10.json": files.QALD},
    "lcquad-2": {"train.json": files.LCQUAD, "test.json": files.LCQUAD},
    "trex": {
        "trex-train-kilt.jsonl": files.lines(files.TREX),
        "trex-dev-kilt.jsonl": files.lines(files.TREX),
    },
    "multitq": {
        "questions/train.json": files.MULTITQ,
        "questions/dev.json": files.MULTITQ,
        "questions/test.json": files.MULTITQ,
        "kg/full.txt": files.MULTITQ_GRAPH,
    },
    "metaqa-1hop": {"1-hop/vanilla/qa_train.txt": files.METAQA, "1-hop/vanilla/qa_test.txt": files.METAQA},
}


TEXTS = {
    "what does ada lovelace do?",
    "What do both Ada and Bob do?",
    "who taught ada?",
    "how many pupils did mary teach?",
    "what does ada lovelace do",
    "Who taught Ada?",
    "Who taught Ada ?",
    "Ada Lovelace [SEP] student of",
    "On which day did Ada first meet Mary?",
    "who taught Ada B",
}


@pytest.mark.parametrize("name", sorted(PUBLISHED))
@pytest.mark.parametrize("own", [False, True], ids=["under KBQA_DATA", "in a directory of its own"])
def test_a_data_set_is_found_by_its_published_file_names(tmp_path, name, own):
    directory = tmp_path if own else tmp_path / FAMILIES[name].folder
    for file, content in PUBLISHED[name].items():
        (directory / file).parent.mkdir(parents=True, exist_ok=True)
        (directory / file).write_text(files.text_of(content), encoding="utf-8")
    where = {"data": tmp_path} if own else {"data_directory": tmp_path}
    dataset = load_dataset(name, 1, **where)
    splits = dataset.splits
    assert splits.test[0].text in TEXTS
    assert splits.cold_start + splits.train
    assert dataset.graph.name == FAMILIES[name].kg
    assert dataset.graph.is_included is (name == "multitq")


def test_multitqs_graph_has_the_names_of_its_questions(tmp_path):
    (tmp_path / "kg").mkdir()
    (tmp_path / "kg" / "full.txt").write_text(files.MULTITQ_GRAPH)
    for part in ("train", "dev", "test"):
        (tmp_path / f"{part}.json").write_text(files.text_of(files.MULTITQ))
    graph = load_dataset("multitq", 1, data=tmp_path).graph
    assert next(graph.lines()).split("\t")[2] == "Government (France)"
    catalog = GraphCatalog(tmp_path / "home")
    catalog.load("multitq", graph.as_source(tmp_path))
    asked = {"entity": "Government (France)", "relation": "Express intent to meet"}
    [result] = LocalGraphTools(catalog).execute("multitq", [Action("get_head_entities", asked)])
    catalog.close()
    assert isinstance(result, Success)
    assert result.items[0].label == "Ada Lovelace"


def test_official_files_are_used_whole(tmp_path):
    for name in ("train", "dev"):
        records = [files.GRAILQA[0] | {"qid": f"{name}{n}"} for n in range(40)]
        (tmp_path / f"grailqa_v1.0_{name}.json").write_text(files.text_of(records))
    splits = load_dataset("grailqa", 1, data=tmp_path).splits
    assert [question.id for question in splits.train] == [f"train{n}" for n in range(40)]
    assert splits.cold_start == splits.train
    assert [question.id for question in splits.test] == [f"dev{n}" for n in range(40)]
    assert splits.validation == ()
    assert len(splits.all) == 80
    assert load_dataset("grailqa", 2, data=tmp_path).splits == splits


def test_without_a_train_file_dev_is_what_a_policy_trains_on(tmp_path):
    for file in ("1hop_dev.txt", "1hop_test.txt"):
        (tmp_path / file).write_text(files.METAQA + "who taught [Bob] ?\tJim\n" * (file == "1hop_dev.txt"))
    splits = load_dataset("metaqa-1hop@whole", 1, data=tmp_path).splits
    assert [question.text for question in splits.test] == ["who taught Ada B"]
    assert [question.text for question in splits.train] == ["who taught Bob ?"]  # the other is the test's


def test_all_of_metaqa_is_one_data_set(tmp_path):
    for hops, kind in ((1, "movie_to_year"), (2, "actor_to_movie_to_director")):
        for part in ("dev", "test"):
            lines = [f"{part} question of [{part}{n}]\tx{n}\n" for n in range(10)]
            (tmp_path / f"{hops}hop_{part}.txt").write_text("".join(lines))
            (tmp_path / f"{hops}hop_{part}_qtype.txt").write_text(f"{kind}\n" * 10)
    splits = load_dataset("metaqa@whole", 1, data=tmp_path).splits
    assert [question.hops for question in splits.test] == [1] * 10 + [2] * 10
    assert len({question.id for question in splits.test}) == 20
    assert {question.hops for question in (*splits.train, *splits.cold_start, *splits.validation)} == {1, 2}
    assert [question.hops for question in spread(splits.test, 4)] == [1, 1, 2, 2]
    assert spread(splits.test, None) == spread(splits.test, 21) == splits.test
    assert spread(splits.test, 0) == ()


FORWARD, BACK = Hop("starred_actors"), Hop("starred_actors", inverse=True)


@pytest.mark.parametrize(
    ("path", "query"),
    [
        ((Hop("release_year"),), "?topic <urn:kbqa:r:release_year> ?x"),
        # "the films that share actors with [X] were directed by whom": not by way of X itself. That X is
        # no answer either goes without saying, and is said of every path that turns round at its end.
        (
            (FORWARD, BACK, Hop("directed_by")),
            "?topic <urn:kbqa:r:starred_actors> ?e0 . ?e1 <urn:kbqa:r:starred_actors> ?e0 . "
            "?e1 <urn:kbqa:r:directed_by> ?x FILTER (?e1 != ?topic) FILTER (?x != ?topic)",
        ),
        # "who directed films that [X] wrote": X is no answer, whichever relations lead back.
        (
            (Hop("written_by", inverse=True), Hop("directed_by")),
            "?e0 <urn:kbqa:r:written_by> ?topic . ?e0 <urn:kbqa:r:directed_by> ?x FILTER (?x != ?topic)",
        ),
    ],
)
def test_metaqas_gold_queries_leave_the_topic_out(path, query):
    expected = f"SELECT DISTINCT ?x WHERE {{ VALUES ?topic {{ <urn:kbqa:e:Ada%20B> }} {query} }}"
    assert gold_query("Ada B", path) == expected


def test_one_file_is_a_test_split(tmp_path):
    file = tmp_path / "anything.json"
    file.write_text(json.dumps(files.GRAILQA), encoding="utf-8")
    splits = load_dataset("grailqa", 1, data=file).splits
    assert (len(splits.test), splits.train, splits.validation) == (1, (), ())
