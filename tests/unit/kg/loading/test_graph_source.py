"""What a load reads beside triples: times, labels, names of ids, records; and lines that it cannot."""

from __future__ import annotations

import gzip
import io
import json

import pytest

from kbqa.errors import ConfigurationError, GraphLoadError
from kbqa.kg.loading.facts import Calendar, TimeUnit
from kbqa.kg.loading.files import GraphFormat, GraphSource
from kbqa.kg.loading.rejected import RejectedLines
from kbqa.kg.naming import name_of

NT = "<http://ex.org/a> <http://ex.org/r> <http://ex.org/b> .\n"


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="graph"):
        path = tmp_path / name
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def names(fact):
    quad = fact.quad
    return (*(name_of(term.value) for term in (quad.subject, quad.predicate, quad.object)), fact.time)


def facts(source, rejected=None):
    with source.open(rejected) as reader:
        return [names(fact) for fact in reader.facts()]


def labels(source):
    with source.open() as reader:
        list(reader.facts())
        return [tuple(label) for label in reader.labels()]


def test_underscores_in_names_may_stand_for_blanks(write):
    path = write("Ada_B\tMake_a_visit\tGovernment_(France)\t2014-05-13\n")
    written, read = GraphSource([path]), GraphSource([path], underscored=True)
    assert facts(written) == [("Ada_B", "Make_a_visit", "Government_(France)", "2014-05-13")]
    assert facts(read) == [("Ada B", "Make a visit", "Government (France)", "2014-05-13")]
    with written.open() as one, read.open() as other:
        assert one.digest() != other.digest()
    with (
        pytest.raises(ConfigurationError, match="--underscores-as-blanks"),
        GraphSource([write(NT)], underscored=True).open(),
    ):
        pass


def test_a_fourth_and_fifth_field_are_times(write):
    path = write("a\tr\tb\t2014-05-13\nc\tr\td\t2005-02\t2008-10\ne\tr\tf\n")
    assert facts(GraphSource([path])) == [
        ("a", "r", "b", "2014-05-13"),
        ("c", "r", "d", "2005-02; 2008-10"),
        ("e", "r", "f", ""),
    ]


def test_a_plain_file_has_no_fourth_field(write):
    with pytest.raises(GraphLoadError, match="found 4 fields") as caught:
        facts(GraphSource([write("a|r|b\nc|r|d\na|r|b|2014\n")]))
    assert caught.value.line == 3


def test_several_files_with_ids_for_names_and_counted_times(write):
    source = GraphSource(
        [write("0\t0\t1\t24\t-1\n", "train"), write("1\t1\t0\t0\t48\n", "test")],
        entity_names=write("2\nNiger \u2028\t0\nChad\t1\n", "entity2id"),
        relation_names=write("Consult\t0\nMake a visit\t1\n", "relation2id"),
        calendar=Calendar(TimeUnit.HOUR, "2014-01-01"),
    )
    assert facts(source) == [
        ("Niger \u2028", "Consult", "Chad", "2014-01-02"),
        ("Chad", "Make a visit", "Niger \u2028", "2014-01-01; 2014-01-03"),
    ]


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("a\t0\na\t1\n", 2, "the same name"),
        ("a\t0\nb\t0\n", 2, "has a name already"),
        ("a\t0\nb\n", 2, "found 1 field$"),
    ],
)
def test_files_of_ids_are_checked(write, content, line, reason):
    source = GraphSource([write("0\tr\t0\n")], entity_names=write(content, "names"))
    with pytest.raises(GraphLoadError, match=reason) as caught:
        facts(source)
    assert (caught.value.path.name, caught.value.line) == ("names", line)


def test_an_id_without_a_name_is_a_bad_line(write):
    source = GraphSource([write("0\tr\t0\n0\tr\t7\n")], entity_names=write("a\t0\n", "names"))
    with pytest.raises(GraphLoadError, match='the object "7" is missing from the file of names') as caught:
        facts(source)
    assert caught.value.line == 2


def test_every_bad_line_is_reported_before_the_first_is_raised(write):
    path = write(b"a|r|b\na|r\n\xff|r|b\na||b\nc|r|d\na|r|" + b"x" * (1 << 20) + b"y\ne|r|f")
    report = io.StringIO()
    rejected = RejectedLines(report=report)
    with pytest.raises(GraphLoadError) as caught:
        facts(GraphSource([path]), rejected)
    assert (caught.value.line, rejected.count) == (2, 4)
    lines = report.getvalue().splitlines()
    assert [line.removeprefix(f"{path}:").partition(":")[0] for line in lines] == ["2", "3", "4", "6"]
    assert [error.line for error in rejected.first] == [2, 3, 4, 6]
    skipped = RejectedLines(skip=True)
    assert [fact[0] for fact in facts(GraphSource([path]), skipped)] == ["a", "c", "e"]
    assert skipped.count == 4


def test_bad_lines_of_n_triples_are_each_named_and_cost_no_good_one(write):
    bad = ["<http://ex.org/a> <b c> <d> .\n", "junk\n", NT[:-3] + "\n", NT.replace("<http://ex.org/b>", '"x')]
    path = write((NT + "".join(line + NT for line in bad)).encode() + NT.encode()[:-4] + b"\xff> .\n")
    rejected = RejectedLines(skip=True)
    with GraphSource([path], GraphFormat.NTRIPLES).open(rejected) as reader:
        assert len(list(reader.facts())) == 5
    assert [error.line for error in rejected.first] == [2, 4, 6, 8, 10]


def test_labels_follow_the_rules_of_names(write):
    path = write(gzip.compress("a\tA \u2028\talias\nb\tB\nb\tBee\nnone\tN\n".encode()), "labels")
    source = GraphSource([write("a|r|b\n")], labels=path)
    assert labels(source) == [
        ("a", "A \u2028", True),
        ("a", "alias", False),
        ("b", "B", True),
        ("b", "Bee", False),
        ("none", "N", True),
    ]


@pytest.mark.parametrize(
    ("content", "line"), [("a\tA\nb\n", 2), ("a\t \n", 1), ("\tA\n", 1), (b"a\tA\nb\t\xff\n", 2)]
)
def test_bad_labels_are_named(write, content, line):
    with pytest.raises(GraphLoadError) as caught:
        labels(GraphSource([write("a|r|b\n")], labels=write(content, "labels")))
    assert (caught.value.path.name, caught.value.line) == ("labels", line)


@pytest.mark.parametrize("as_array", [False, True])
def test_rog_records_are_one_graph(write, as_array):
    records = [{"id": f"q{n}", "graph": [["a", "r", f"b{n}"], ["a", "r", "c"]]} for n in range(2)]
    text = json.dumps(records) if as_array else "".join(json.dumps(r) + "\n" for r in records)
    with GraphSource([write(text)]).open() as reader:
        assert reader.format is GraphFormat.ROG
        assert [names(f)[2] for f in reader.facts()] == ["b0", "c", "b1", "c"]


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        ('{"id": "q", "graph": [["a", "r"]]}', "is not .subject, relation, object"),
        ('{"id": "q", "graph": [["a", "r", 1]]}', "is not .subject, relation, object"),
        ('{"id": "q"}', "has no list"),
        ('{"graph": []}', "expected a record"),
        ('{"id": "p", "graph": []}', "a second record"),
        ('{"id": ', "not JSON"),
    ],
)
def test_a_bad_record_is_named(write, record, reason):
    good = json.dumps({"id": "p", "graph": [["a", "r", "b"]]})
    with pytest.raises(GraphLoadError, match=reason) as caught:
        facts(GraphSource([write(f"{good}\n{record}\n")]))
    assert caught.value.line == 2


def test_what_does_not_go_together_is_refused(write):
    triples, rdf = write("a|r|b\n"), write(NT, "rdf")
    with pytest.raises(ConfigurationError, match="rdf is ntriples, .*graph is pipe: .* all be RDF"):
        facts(GraphSource([rdf, triples]))
    records = write('{"id": "q", "graph": [["a", "r", "b"]]}\n', "records")
    with pytest.raises(ConfigurationError, match="records is rog"):
        facts(GraphSource([records, records]))
    for source in (
        GraphSource([triples, rdf]),
        GraphSource([rdf], entity_names=triples),
        GraphSource([rdf], calendar=Calendar(TimeUnit.DAY, "2014")),
    ):
        with pytest.raises(ConfigurationError, match="separated"):
            facts(source)


def test_progress_reaches_the_size_of_each_file(write):
    path = write(gzip.compress(b"".join(b"%d|r|b\n" % n for n in range(100_000))))
    seen = []
    with GraphSource([path]).open(progress=lambda *state: seen.append(state)) as reader:
        assert sum(1 for _ in reader.facts()) == 100_000
    done = [count for _, count, _ in seen]
    assert done == sorted(done)
    assert seen[-1] == (path, path.stat().st_size, path.stat().st_size)


def test_the_digest_depends_on_every_file_and_option(write):
    graph = write("a\tr\tb\n")
    sources = [
        GraphSource([graph]),
        GraphSource([graph], labels=write("a\tA\n", "labels")),
        GraphSource([graph], labels=write("a\tB\n", "other")),
        GraphSource([graph], type_relations=("r",)),
        GraphSource([graph], relation_names=write("s\tr\n", "names")),
    ]
    digests = []
    for source in sources:
        with source.open() as reader:
            list(reader.facts())
            list(reader.labels())
            digests.append(reader.digest())
    assert len(set(digests)) == len(sources)
