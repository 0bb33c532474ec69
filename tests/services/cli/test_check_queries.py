"""`kbqa kg check-queries` over the shapes of files that data sets come in."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

# At import: the tests of services run without the variable.
DATA = os.environ.get("KBQA_DATA")


@pytest.fixture
def check(in_process, tmp_path):
    """`check(content)`: exit code and report of the command over a file with that content."""

    def check(content):
        file = tmp_path / "questions.json"
        file.write_text(json.dumps(content))
        code, output, _ = in_process("kg", "check-queries", str(file), "--json")
        return code, json.loads(output)

    return check


def test_records_of_every_shape_are_accepted(check):
    query = "SELECT DISTINCT ?x { ?x ns:people.person.parents ?y FILTER(?x != ?y OR lang(?y) = '') }"
    for content in (
        [{"ID": "a", "sparql": query}],
        [{"qid": 1, "sparql_query": query}],
        {"questions": [{"id": "0", "query": {"sparql": query}}]},
    ):
        assert check(content) == (0, {"records": 1, "accepted": 1, "failures": []})


def test_what_is_refused_or_does_not_parse_is_told_with_its_id(check):
    code, report = check(
        [
            {"ID": "fine", "sparql": "ASK { ?s ?p ?o }"},
            {"ID": "foreign", "sparql": "ASK { SERVICE <http://ex.org/> { ?s ?p ?o } }"},
            {"sparql": "ASK { ?s ?p }"},
        ]
    )
    assert code == 1
    assert (report["records"], report["accepted"]) == (3, 1)
    assert [failure["id"] for failure in report["failures"]] == ["foreign", "2"]
    assert "SERVICE is refused" in report["failures"][0]["error"]
    assert "error at 1:" in report["failures"][1]["error"]


def test_text_tells_the_count_and_the_failures(in_process, tmp_path):
    file = tmp_path / "questions.json"
    file.write_text(json.dumps([{"ID": "broken", "sparql": "ASK { ?s"}, {"sparql": "ASK {}"}]))
    code, output, _ = in_process("kg", "check-queries", str(file))
    assert code == 1
    assert "1 of 2 queries are accepted" in output
    assert "broken: error at 1:" in output


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (None, "does not exist"),
        ("SELECT", "is not JSON"),
        ("[]", "holds no queries"),
        ('{"answers": []}', "holds no queries"),
        ('[{"sparql": "ASK {}"}, {"question": "who?"}]', "record 1 has no query"),
    ],
)
def test_a_file_without_queries_is_an_error(in_process, tmp_path, content, message):
    file = tmp_path / "questions.json"
    if content is not None:
        file.write_text(content)
    code, output, errors = in_process("kg", "check-queries", str(file))
    assert (code, output) == (2, "")
    assert message in errors


@pytest.mark.parametrize(
    ("name", "records"),
    [
        ("cwq/cwq_test_sample.json", 2500),
        ("grailqa/grailqa_dev_sample.json", 700),
        ("qald10/qald_10.json", 394),
    ],
)
def test_every_gold_query_is_accepted(in_process, name, records):
    if DATA is None:
        pytest.skip("KBQA_DATA is not set")
    code, output, _ = in_process("kg", "check-queries", str(Path(DATA) / name), "--json")
    assert json.loads(output) == {"records": records, "accepted": records, "failures": []}
    assert code == 0
