"""`kbqa cold-start` in this process, over the generated world and a chat model that a test plays."""

from __future__ import annotations

import json
import os
import re
from dataclasses import replace
from pathlib import Path

import pytest

from kbqa.cold_start.files import read_entries
from kbqa.datasets import load_dataset
from kbqa.trajectory import Hop
from tests.chat_server import serve
from tests.gold.graphs import WitnessGraph, cases

DATA = os.environ.get("KBQA_DATA")
ARGUMENTS = ("cold-start", "world", "--recipe", "kbqa-r1-small", "--name", "a", "--kind", "hops", "--json")


@pytest.fixture
def file(tmp_path):
    return tmp_path / "home" / "cold_start" / "a.jsonl"


def test_gold_programs_become_a_file_with_its_acceptance(in_process, file):
    order = (*ARGUMENTS, "--method", "gold", "--limit", "9", "--balance", "--count", "6")
    code, out, errors = in_process(*order)
    assert code == 0, errors
    report = json.loads(out)
    assert report["questions"] == 9
    assert {kind: row["questions"] for kind, row in report["by_kind"].items()} == {"1": 3, "2": 3, "3": 3}
    entries = read_entries(file)
    assert len(entries) == report["demonstrations"] <= 6
    assert {(entry.protocol, entry.method) for entry in entries} == {("kbqa_r1", "gold")}
    assert json.loads(file.with_suffix(".acceptance.json").read_text()) == report


def test_unless_told_otherwise_paths_are_mined_and_gold_programs_not_seen(in_process, file, monkeypatch):
    def with_untrue_programs(*arguments, **options):
        dataset = load_dataset(*arguments, **options)
        untrue = {"path": (Hop("no.such.relation"),), "form": "(", "sparql": "{"}
        questions = tuple(replace(question, **untrue) for question in dataset.splits.cold_start)
        return replace(dataset, splits=replace(dataset.splits, cold_start=questions))

    monkeypatch.setattr("kbqa.datasets.load_dataset", with_untrue_programs)
    code, out, errors = in_process(*ARGUMENTS, "--limit", "40")
    assert code == 0, errors
    report = json.loads(out)
    assert (report["questions"], report["taught"]) == (40, report["demonstrations"])
    assert report["taught"] > 30
    entries = read_entries(file)
    assert {(entry.method, entry.teacher) for entry in entries} == {("mined", "mined path")}
    assert {entry.demonstration.question.hops for entry in entries} == {1, 2, 3}


def obey(body):
    """The step that the last message shows; where it shows none, the last expression as the answer."""
    _, _, hint = body["messages"][-1]["content"].partition("[Reference:")
    shown = re.search(r"<action>.*?</action>", hint, re.DOTALL)
    observed = " ".join(str(message["content"]) for message in body["messages"][1:])
    made = max(map(int, re.findall(r"expression(\d+) =", observed)), default=1)
    command = shown[0] if shown else f"<answer>expression{made}</answer>"
    return f"<think>This comes next.</think>{command}"


def test_a_referenced_teacher_is_asked_once_and_its_hints_are_gone(in_process, file, monkeypatch):
    order = (
        *ARGUMENTS,
        "--method",
        "referenced",
        "--teacher",
        "openai:m",
        "--candidates",
        "1",
        "--limit",
        "3",
    )
    with serve() as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        server.script = obey
        code, out, errors = in_process(*order)
        assert code == 0, errors
        asked = len(server.asked)
        again = in_process(*order)
        assert (again[0], json.loads(again[1])) == (0, json.loads(out))
        assert len(server.asked) == asked > 0
    assert json.loads(out)["share"] > 0.5
    for entry in read_entries(file):
        assert "Reference" not in str(entry.demonstration)
        assert entry.teacher == "openai:m"


@pytest.mark.integration
def test_referenced_rejection_sampling_accepts_nearly_all_of_grailqa(in_process, tmp_path):
    """On one graph with the facts of all questions, some of which other questions' facts answer too."""
    if DATA is None:
        pytest.skip("KBQA_DATA is not set")
    published = Path(DATA)
    graph, data = tmp_path / "freebase.nt", tmp_path / "data"
    facts = WitnessGraph(cases("grailqa", published)[0]).lines
    graph.write_text("\n".join(dict.fromkeys(facts)), encoding="utf-8")
    records = (published / "grailqa" / "grailqa_dev_sample.json").read_bytes()
    (data / "grailqa").mkdir(parents=True)
    for part in ("train", "dev"):
        (data / "grailqa" / f"grailqa_v1.0_{part}.json").write_bytes(records)
    assert in_process("kg", "load", "freebase", str(graph))[0] == 0
    order = ("cold-start", "grailqa", "--recipe", "kbqa-r1", "--split", "train", "--candidates", "1")
    teacher = ("--method", "referenced", "--teacher", "openai:m", "--set", "graph.encoder=null", "--json")
    with serve() as server:
        server.script = obey
        code, out, errors = in_process(*order, *teacher, OPENAI_BASE_URL=server.url, KBQA_DATA=str(data))
    assert code == 0, errors
    report = json.loads(out)
    assert report["questions"] == report["total"] == 700
    assert report["share"] >= 0.95


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--method", "outcome"), "--method outcome: name a --teacher"),
        (("--teacher", "openai:m"), "mined paths need no teacher"),
        (("--method", "gold", "--teacher", "openai:m"), "gold paths need no teacher"),
    ],
)
def test_what_cannot_be_done_says_what_to_do(in_process, arguments, message):
    code, _, errors = in_process(*ARGUMENTS, *arguments)
    assert (code, message in errors) == (2, True)
