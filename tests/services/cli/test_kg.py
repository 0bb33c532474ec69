"""`kbqa kg`: loading with options and reports, subgraphs, and whether a graph fits a data set."""

from __future__ import annotations

import io
import json
import sys
from types import SimpleNamespace

import pytest

from tests.iri_graphs import FREEBASE
from tests.sparql_servers import SparqlServer


@pytest.fixture
def write(tmp_path):
    def write_file(name, text):
        (tmp_path / name).write_text(text)
        return str(tmp_path / name)

    return write_file


@pytest.fixture
def films(write, in_process):
    file = write("films.txt", "Big\tstarred\tTom Hanks\nHeat\tstarred\tAl Pacino\nBig\tgenre\tComedy\n")
    assert in_process("kg", "load", "films", file)[0] == 0


@pytest.fixture
def questions(write):
    records = [
        {"id": "q1", "text": "?", "answers": ["Tom Hanks"], "topic_entities": ["Big"]},
        {"id": "q2", "text": "?", "answers": ["Robert De Niro"], "topic_entities": ["Ronin"]},
    ]
    return write("questions.jsonl", "".join(json.dumps(record) + "\n" for record in records))


def test_dated_facts_of_ids_are_loaded(in_process, write):
    code, out, err = in_process(
        *("kg", "load", "events", write("train", "0\t0\t1\t24\t-1\n"), write("test", "1\t0\t0\t48\t-1\n")),
        *("--entities", write("entities", "Niger\t0\nChad\t1\n")),
        *("--relations", write("relations", "Consult\t0\n")),
        *("--time-unit", "hour", "--epoch", "2014-01-01"),
    )
    assert (code, err) == (0, "")
    assert out.startswith("loaded events: 2 triples, 2 entities, version ")


def test_what_states_types_is_recognised_and_said(in_process, write):
    lines = ["Heat|is a|film", "Ali|is a|film", *(f"p{n}|is a|kind {n}" for n in range(6))]
    code, out, err = in_process("kg", "load", "films", write("films", "\n".join(lines) + "\n"))
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == ['types, by "is a": film, kind 0, kind 1, kind 2, kind 3, and 2 more']


def test_bad_lines_are_listed_reported_or_skipped(in_process, write, tmp_path):
    file = write("bad.txt", "a\tb\tc\na\tb\n\tb\tc\nd\te\tf\n")
    report = tmp_path / "report.txt"
    code, out, err = in_process("kg", "load", "bad", file, "--report", str(report))
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {file}:2: ")
    assert f"{file}:3: the subject is empty" in err
    assert "2 bad lines" in err
    assert [line.split(": ")[0] for line in report.read_text().splitlines()] == [f"{file}:2", f"{file}:3"]
    assert in_process("kg", "list")[1].startswith("no graph is loaded")
    code, out, err = in_process("kg", "load", "bad", file, "--skip-bad-lines")
    assert (code, "2 triples" in out, "2 lines skipped" in out) == (0, True, True)
    assert err.startswith(f"{file}:2: ")


def test_unit_and_epoch_go_together(in_process, write):
    code, _, err = in_process("kg", "load", "x", write("x", "a\tb\tc\t1\n"), "--time-unit", "day")
    assert code == 2
    assert "--time-unit and --epoch must be given together" in err


def test_subgraphs_are_built_and_listed_and_leaks_are_marked(in_process, films, questions):
    code, out, err = in_process("kg", "subgraphs", "films", questions, "--hops", "1")
    assert (code, out.startswith("films: 1 subgraphs of 1 hops, version ")) == (0, True)
    assert "1 questions have no subgraph" in err
    assert "q2" in err
    [graph] = json.loads(in_process("kg", "list", "--json")[1])
    assert [(s["seed"], s["questions"], s["leaking"]) for s in graph["subgraphs"]] == [("topics", 1, False)]
    assert "leaking" in in_process("kg", "subgraphs", "films", questions, "--seed", "topics+gold")[1]
    [graph] = json.loads(in_process("kg", "list", "--json")[1])
    assert graph["version"].endswith("-leaking")
    assert "leaking" in in_process("kg", "list")[1]


def test_a_check_says_what_is_missing_by_its_exit_code(in_process, films, questions):
    code, out, _ = in_process("kg", "check", "films", questions)
    assert code == 1
    assert "1 of 2 questions" in out
    assert "Ronin" in out
    code, out, _ = in_process("kg", "check", "films", questions, "--threshold", "0.5", "--json")
    found = json.loads(out)
    assert (code, found["share"], found["answers"]["missing"]) == (0, 0.5, 1)
    assert found["topics"]["examples"] == [["Ronin", "no label of the graph"]]


def test_a_check_follows_the_gold_paths(in_process, films, write):
    record = {
        "id": "q",
        "text": "?",
        "answers": ["Al Pacino"],
        "topic_entities": ["Heat"],
        "path": [{"relation": "starred"}],
    }
    asked = write("asked.jsonl", json.dumps(record) + "\n")
    code, out, _ = in_process("kg", "check", "films", asked)
    assert (code, "gold paths" in out) == (0, False)
    _, out, _ = in_process("kg", "check", "films", asked, "--paths")
    assert "gold paths: 1 of 1 lead to exactly the gold answers; RHits@1 of their ends is 1.000" in out
    paths = json.loads(in_process("kg", "check", "films", asked, "--paths", "--json")[1])["paths"]
    assert paths == {"questions": 1, "exact": 1, "hits": 1.0, "rhits@1": 1.0}
    pathless = write("pathless.jsonl", json.dumps(record | {"path": []}) + "\n")
    assert "gold paths: no question has one" in in_process("kg", "check", "films", pathless, "--paths")[1]
    code, _, err = in_process("kg", "check", "films", asked, "--split", "test")
    assert (code, "leave --split out" in err) == (2, True)


def test_a_graph_or_questions_that_are_not_there_are_errors(in_process, films, questions, write):
    assert in_process("kg", "check", "none", questions)[0] == 2
    assert in_process("kg", "check", "films", "nothing.jsonl")[0] == 2
    assert in_process("kg", "subgraphs", "none", questions)[0] == 2
    twice = write("twice", '{"id": "q", "text": "", "answers": [], "topic_entities": []}\n' * 2)
    code, _, err = in_process("kg", "check", "films", twice)
    assert (code, "the same id" in err) == (2, True)


def test_a_graph_of_iris_covers_questions_of_short_ids(in_process, write):
    graph = write("fb.ttl", FREEBASE)
    record = {"id": "q", "text": "?", "answers": ["m.0malia"], "topic_entities": ["m.02mjmr"]}
    questions = write("fb.jsonl", json.dumps(record) + "\n")
    assert in_process("kg", "load", "freebase", graph)[0] == 0
    code, out, _ = in_process("kg", "check", "freebase", questions)
    assert (code, out.splitlines()[0]) == (0, "freebase contains all names of 1 of 1 questions (100.00%)")
    assert in_process("kg", "subgraphs", "freebase", questions, "--hops", "1")[0] == 0
    assert in_process("kg", "load", "freebase", graph, "--no-recognise-namespaces")[0] == 0
    assert in_process("kg", "check", "freebase", questions)[0] == 1
    assert in_process("kg", "load", "freebase", graph, "--namespace", "fb")[0] == 2


def test_the_options_of_an_endpoint_are_recorded(in_process, tmp_path):
    server = SparqlServer(FREEBASE)
    try:
        options = ("--schema-deadline", "300", "--query-deadline", "120", "--hub-relations", "32")
        namespace = ("--namespace", "key=http://rdf.freebase.com/key/")
        more = ("--hub-neighbours", "9", "--language", "de", "--deadline", "30", *namespace)
        assert in_process("kg", "attach", "freebase", server.url, *options, *more)[0] == 0
    finally:
        server.stop()
    [manifest] = tmp_path.rglob("manifest.json")
    fields = json.loads(manifest.read_text())
    record = fields["endpoint"]
    assert (record["schema_deadline_s"], record["query_deadline_s"]) == (300, 120)
    assert (record["hub_relations"], record["hub_neighbours"], record["languages"]) == (32, 9, ["de"])
    assert record["labels"] == ["http://rdf.freebase.com/ns/type.object.name"]
    assert fields["namespaces"]["key"] == "http://rdf.freebase.com/key/"
    assert fields["namespaces"]["ns"] == "http://rdf.freebase.com/ns/"


def test_a_graph_is_updated_from_files_and_standard_input_and_written_whole_again(
    in_process, films, write, monkeypatch
):
    new, gone = (
        write("new.txt", "Jaws\tdirected by\tSteven Spielberg\n"),
        write("gone.txt", "Big\tgenre\tComedy\n"),
    )
    code, out, err = in_process("kg", "update", "films", "--insert", new, "--delete", gone)
    assert code == 0
    assert out.startswith("films: 1 inserted, 1 deleted, 0 ignored; 3 triples, version ")
    assert err == "no fact has these relations any more: genre\n"
    given = SimpleNamespace(buffer=io.BytesIO(b"Jaws\tstarred\tRoy Scheider\n"))
    monkeypatch.setattr(sys, "stdin", given)
    assert in_process("kg", "update", "films", "--insert", "-")[1].startswith("films: 1 inserted")
    rule = write("rule.rq", "DELETE WHERE { ?film <urn:kbqa:r:starred> <urn:kbqa:e:Al%20Pacino> }")
    assert in_process("kg", "update", "films", "--sparql", rule)[1].startswith("films: 0 inserted, 1 deleted")
    [listed] = json.loads(in_process("kg", "list", "--json")[1])
    assert (listed["triples"], listed["lost_relations"]) == (3, ["genre"])
    assert "+3-" in listed["version"]
    code, out, _ = in_process("kg", "compact", "films")
    assert (code, out.startswith("films: 3 triples, "), "+" in out) == (0, True, False)


def test_an_update_without_changes_or_with_wrong_ones_is_refused(in_process, films, write):
    bad = write("bad.txt", "a\tb\n")
    for arguments, told in (
        ((), "give --insert and --delete files, or a --sparql file"),
        (("--insert", "-", "--delete", "-"), "can be read once"),
        (("--insert", bad), f"{bad}:1: "),
        (("--insert", write("g.nt", "<http://x/a> <http://x/b> <http://x/c> .\n")), "loaded from names"),
        (("--sparql", write("clear.rq", "CLEAR ALL")), "CLEAR is not allowed"),
    ):
        code, _, err = in_process("kg", "update", "films", *arguments)
        assert (code, told in err) == (2, True), err
