"""`kbqa data`: what a user does with a data set before training on it."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tests.unit.datasets import published_files as files
from tests.unit.datasets import rog_records as rog

_DATA = os.environ.get("KBQA_DATA")  # as the tests began


@pytest.fixture
def write(tmp_path):
    def write_file(name, content):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(files.text_of(content), encoding="utf-8")
        return file

    return write_file


@pytest.fixture
def real(monkeypatch, in_process):
    """KBQA_DATA as it was: `in_process` clears the environment."""
    if not _DATA:
        pytest.skip("KBQA_DATA does not name the directory of the real data sets")
    monkeypatch.setenv("KBQA_DATA", _DATA)


def records(file):
    return [json.loads(line) for line in Path(file).read_text(encoding="utf-8").splitlines()]


def test_a_file_of_a_data_set_is_inspected_and_what_is_malformed_listed(in_process, write):
    file = write("mine.json", [*files.GRAILQA, {"qid": 1}])
    code, out, err = in_process("data", "inspect", str(file), "--format", "grailqa")
    assert code == 0
    assert ["questions", "1"] in [line.split() for line in out.splitlines()]
    assert ["zero-shot", "1"] in [line.split() for line in out.splitlines()]
    assert "malformed: 1 records" in err
    assert f'{file}: record 2: "graph_query" is missing' in err
    code, out, _ = in_process("data", "inspect", str(file), "--format", "grailqa", "--json")
    report = json.loads(out)
    assert code == 0
    assert report["splits"]["test"]["hops"] == {"1": 1}
    assert [(found["place"], found["unit"]) for found in report["malformed"]] == [(2, "record")]


def test_a_data_set_becomes_records_that_are_read_again(in_process, write, tmp_path):
    file, output = write("WebQSP.test.json", files.WEBQSP), tmp_path / "webqsp.jsonl"
    code, out, _ = in_process("data", "convert", "webqsp", str(output), "--data", str(file), "--kg", "mine")
    assert (code, out) == (0, f"{output}: 1 questions\n")
    [record] = records(output)
    assert record["answers"] == ["Programmer", "1815-12-10"]
    assert (record["kg"], record["operation"], record["topic_entities"]) == ("mine", "path", ["m.0ada"])
    assert [hop["relation"] for hop in record["path"]] == [
        "people.person.employment",
        "business.tenure.title",
    ]
    code, out, _ = in_process("data", "inspect", str(output), "--json")
    assert (code, json.loads(out)["splits"]["test"]["hops"]) == (0, {"2": 1})
    code, _, err = in_process("data", "convert", "webqsp", str(output), "--data", str(file))
    assert (code, "--force" in err) == (2, True)
    ids = ("--answers", "ids", "--force")
    assert in_process("data", "convert", "webqsp", str(output), "--data", str(file), *ids)[0] == 0
    assert records(output)[0]["answers"] == ["m.0prog", "1815-12-10"]


def test_a_malformed_record_stops_a_conversion_unless_it_may_be_skipped(in_process, write, tmp_path):
    file, output = (
        write("kilt.jsonl", files.lines(files.TREX, {"input": "x", "output": []})),
        tmp_path / "out",
    )
    convert = ("data", "convert", "trex", str(output), "--data", str(file))
    code, out, err = in_process(*convert)
    assert (code, out, output.exists()) == (2, "", False)
    assert err == f'error: {file}:2: "input" is not written subject [SEP] relation\n'
    code, out, err = in_process(*convert, "--on-error", "skip")
    assert (code, out) == (0, f"{output}: 1 questions\n")
    assert err.startswith(f"skipped: 1 records\n  {file}:2: ")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("inspect", "nosuch"), 'no data set named "nosuch"'),
        (("inspect", "webqsp"), "set KBQA_DATA"),
        (("inspect", "webqsp", "--data", "nowhere"), "nowhere: there is no such file or directory"),
        (("inspect", "webqsp", "--data", "{empty}"), "WebQSP.test.json: No such file"),
        (("inspect", "webqsp@half", "--data", "{empty}"), 'no design "half"'),
        (("inspect", "{file}"), "1 records are malformed, first {file}:1: expected a JSON object"),
        (("inspect", "{file}", "--format", "qald-10"), "no questions of the format qald-10"),
        (("inspect", "{file}", "--format", "squad"), 'no format "squad"'),
        (("inspect", "webqsp", "--format", "cwq"), "--format can only be used with a file or directory"),
        (("convert", "{file}", "{file}"), "already exists"),
        (("convert", "{lines}", "{empty}/no/such/file"), "cannot be written"),
        (("convert", "{lines}", "{empty}/out", "--part", "dev"), 'has no part "dev" here (it has: test)'),
        (("split", "{lines}", "{empty}", "--test", "0.6", "--validation", "0.5"), "below 1"),
        (("split", "{lines}", "{empty}"), "too few to be split"),
        (("split", "{lines}", "{empty}", "--by", "level"), "no question has a gold program"),
        (("split", "{lines}", "{file}/x", "--test", "0", "--validation", "0"), "cannot be created"),
        (("convert", "world", "{empty}/out", "--part", "test"), "world is generated"),
    ],
)
def test_bad_input_is_a_line_that_says_what_is_wrong(in_process, write, tmp_path, arguments, says):
    places = {
        "file": write("file.json", ["x"]),
        "lines": write(
            "lines.jsonl", files.lines({"id": "1", "text": "?", "answers": [], "topic_entities": []})
        ),
        "empty": tmp_path / "empty",
    }
    places["empty"].mkdir()
    code, out, err = in_process("data", *(argument.format(**places) for argument in arguments))
    assert (code, out) == (2, "")
    assert says.format(**places) in err
    assert err.count("\n") == 1
    assert "Traceback" not in err


def test_lcquad_is_curated_on_a_graph(in_process, write, tmp_path):
    entity, prop = "<http://www.wikidata.org/entity/Q{}>", "<http://www.wikidata.org/prop/direct/P{}>"
    facts = [
        (1066, entity.format(2)),
        (569, '"1815"'),
        (800, "_:w"),
        (106, entity.format(3)),
        (106, entity.format(4)),
    ]
    lines = (f"{entity.format(1)} {prop.format(relation)} {value} .\n" for relation, value in facts)
    graph = write("people.nt", "".join(lines))
    assert in_process("kg", "load", "people", str(graph))[0] == 0
    queries = {
        "one entity": "SELECT ?x { wd:Q1 wdt:P1066 ?x }",
        "a literal": "SELECT ?x { wd:Q1 wdt:P569 ?x }",
        "yes": "ASK { wd:Q1 wdt:P106 wd:Q3 }",
        "no row": "SELECT ?x { wd:Q1 wdt:P40 ?x }",
        "two rows": "SELECT ?x { wd:Q1 wdt:P106 ?x }",
        "a blank node": "SELECT ?x { wd:Q1 wdt:P800 ?x }",
        "broken": "SELECT ?x { wd:Q1 wdt:P800 ",
    }
    data = write(
        "lcquad.json",
        [
            {"uid": number, "question": text, "sparql_wikidata": query}
            for number, (text, query) in enumerate(queries.items())
        ],
    )
    output = tmp_path / "curated.jsonl"
    code, out, _ = in_process(
        "data", "convert", "lcquad-2", str(output), "--data", str(data), "--curate", "people"
    )
    assert code == 0
    assert [(record["text"], record["answers"]) for record in records(output)] == [
        ("one entity", ["Q2"]),
        ("a literal", ["1815"]),
        ("yes", ["true"]),
    ]
    assert {record["kg"] for record in records(output)} == {"people"}
    for reason in ("no row", "several rows", "no RDF term", "the query failed"):
        assert f"left out, {reason}: 1" in out
    fresh = str(tmp_path / "other.jsonl")
    code, _, err = in_process("data", "convert", "lcquad-2", fresh, "--data", str(data), "--curate", "nosuch")
    assert (code, "no graph named" in err) == (2, True)


def test_a_split_is_a_data_set_of_its_own(in_process, real, tmp_path):
    directory = tmp_path / "sets" / "levels"
    code, out, _ = in_process("data", "split", "grailqa", str(directory), "--by", "level", "--seed", "3")
    assert code == 0
    parts = {file.stem: records(file) for file in directory.iterdir()}
    assert sorted(parts) == ["test", "train", "validation"]
    assert sum(map(len, parts.values())) == 700
    assert {record["level"] for record in parts["test"]} == {"zero-shot", "compositional", "i.i.d."}
    code, out, _ = in_process("data", "inspect", "grailqa", "--data", str(directory), "--json")
    assert json.loads(out)["splits"]["test"]["questions"] == len(parts["test"])
    assert in_process("data", "split", "grailqa", str(directory))[0] == 2  # it is there already


def test_a_part_of_no_questions_has_no_file(in_process, write, tmp_path):
    asked = (
        {"id": f"q{n}", "text": "?", "answers": ["a"], "topic_entities": [f"t{n}"], "kg": "g"}
        for n in range(9)
    )
    source, directory = str(write("all.jsonl", files.lines(*asked))), str(tmp_path / "parts")
    assert in_process("data", "split", source, directory)[0] == 0
    assert in_process("data", "split", source, directory, "--validation", "0", "--force")[0] == 0
    assert sorted(file.name for file in Path(directory).iterdir()) == ["test.jsonl", "train.jsonl"]
    assert in_process("data", "inspect", directory)[0] == 0


def test_paraphrases_stay_together_by_path_and_leak_at_random(in_process, real, tmp_path):
    pairs = {}
    for by in ("path", "random"):
        directory = tmp_path / by
        assert in_process("data", "split", "pathquestion-2h", str(directory), "--by", by)[0] == 0
        code, out, _ = in_process("data", "inspect", str(directory), "--json")
        assert code == 0
        pairs[by] = json.loads(out)["leaks"]["test"]["pairs"]
    assert pairs["path"] == 0.0
    assert pairs["random"] > 0.9


def test_real_files_are_inspected_by_name(in_process, real):
    for name, count in (("cwq", 2500), ("qald-10", 394), ("metaqa-1hop", 6962)):
        code, out, err = in_process("data", "inspect", name, "--json")
        report = json.loads(out)
        assert (code, err, report["malformed"]) == (0, "", [])
        assert report["splits"]["test"]["questions"] == count
    assert report["splits"]["dev"]["questions"] == 9992
    assert report["leaks"]["test"]["paths"] == 1.0


def test_a_mixture_is_inspected_whole_and_converted_part_by_part(in_process, tmp_path):
    names = ("world", "temporal-world", "world+temporal-world")
    found = [json.loads(in_process("data", "inspect", name, "--json")[1])["splits"] for name in names]
    for split in ("cold_start", "train", "validation", "test"):
        one, other, both = (splits[split]["questions"] for splits in found)
        assert both == one + other
    code, _, err = in_process("data", "convert", "metaqa-2hop@whole+world", str(tmp_path / "x.jsonl"))
    assert (code, "which has no files of its own: name one of its parts" in err) == (2, True)


def test_released_rog_records_need_one_command_before_a_run(in_process, tmp_path):
    released = tmp_path / "released"
    released.mkdir()
    for name, part in (("train", rog.TRAIN), ("validation", rog.VALIDATION), ("test", rog.TEST)):
        (released / f"{name}.jsonl").write_text("".join(f"{json.dumps(record)}\n" for record in part))
    code, out, err = in_process("data", "load-rog", "rog", str(released))
    assert (code, err) == (0, "")
    assert (tmp_path / "home" / "data" / "rog" / "test.jsonl").exists()
    assert "test 4, train 12, validation 4 questions" in out
    assert "loaded rog: " in out
    code, _, err = in_process("data", "load-rog", "rog", str(released))
    assert (code, "already exists" in err) == (2, True)
    assert in_process("data", "load-rog", "rog", str(released), "--force")[0] == 0
    # Paths are mined within each question's own subgraph, and all gold answers are in the graph.
    code, out, err = in_process("cold-start", "rog", "--recipe", "kg-r1-small", "--json")
    assert code == 0, err
    assert json.loads(out)["questions"] == json.loads(out)["taught"] == 12
    code, out, _ = in_process("kg", "check", "rog", "rog")
    assert (code, "all names of 20 of 20 questions" in out) == (0, True)
