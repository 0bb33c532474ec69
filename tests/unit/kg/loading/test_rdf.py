"""RDF in every syntax: what is recognised, how several files make one graph, and where an error is."""

from __future__ import annotations

import gzip

import pytest

from kbqa.errors import GraphLoadError
from kbqa.kg.loading.files import GraphFormat, GraphSource
from kbqa.kg.loading.rejected import RejectedLines

A, R, B, G = (f"<http://e/{name}>" for name in "arbg")
NT = f"{A} {R} {B} .\n"
RDF_NS = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
PREFIX = "@prefix : <http://e/> .\n"
XML = f"""<?xml version="1.0"?>
<rdf:RDF xmlns:rdf="{RDF_NS}" xmlns="http://e/">
  <rdf:Description rdf:about="http://e/a">
    <r rdf:resource="http://e/b"/>
  </rdf:Description>
</rdf:RDF>
"""
JSON_LD = """{
  "@context": {"r": {"@id": "http://e/r", "@type": "@id"}},
  "@id": "http://e/a",
  "r": "http://e/b"
}
"""


@pytest.fixture
def write(tmp_path):
    def write_file(content, name="graph"):
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        return path

    return write_file


def read(*files, format=None, rejected=None):
    """The format of the first file, and the triples of all."""
    with GraphSource(files, format).open(rejected) as reader:
        return reader.format, [str(fact.quad) for fact in reader.facts()]


@pytest.mark.parametrize(
    ("content", "format"),
    [
        (NT, GraphFormat.NTRIPLES),
        (f"{A} {R} {B} {G} .\n", GraphFormat.NQUADS),
        (f"{A} {R} {B} _:g .\n", GraphFormat.NQUADS),
        (f"{PREFIX}:a :r :b .\n", GraphFormat.TURTLE),
        (f"{A} {R} {B} ; {R} {B} .\n", GraphFormat.TURTLE),
        (f"{PREFIX}:g {{ :a :r :b }}\n", GraphFormat.TRIG),
        (f"{PREFIX}GRAPH :g\n{{ :a :r :b }}\n{{\n:a :r :b }}", GraphFormat.TRIG),
        (f"{G} {{\n{NT}{NT}{NT}}}\n", GraphFormat.TRIG),
        (XML, GraphFormat.RDFXML),
        (XML.partition("\n")[2], GraphFormat.RDFXML),
        (JSON_LD, GraphFormat.JSONLD),
        (f"[{JSON_LD}]", GraphFormat.JSONLD),
        (f'{{"@id": "http://e/g", "@graph": [{JSON_LD}]}}', GraphFormat.JSONLD),
    ],
)
def test_every_syntax_is_recognised_and_read_into_one_graph(write, content, format):
    for written in (content, gzip.compress(content.encode()), b"\xef\xbb\xbf" + content.encode()):
        found, triples = read(write(written))
        assert found is format
        assert set(triples) == {f"{A} {R} {B}"}


def test_statements_of_turtle_on_one_line_are_not_n_triples(write):
    found, triples = read(write(f'{A} {R} "x; y" ; {R} "z" .'))
    assert (found, triples) == (GraphFormat.TURTLE, [f'{A} {R} "x; y"', f'{A} {R} "z"'])


def test_a_named_graph_may_come_late(write):
    many = "".join(f"<http://e/{n}> {R} {B} .\n" for n in range(5000))
    found, triples = read(write(f"{many}{A} {R} {B} {G} .\n"))
    assert (found, len(triples), triples[-1]) == (GraphFormat.NTRIPLES, 5001, f"{A} {R} {B}")
    found, triples = read(write(f"{PREFIX}{many}:g {{ :a :r :b }}"))
    assert (found, len(triples), triples[-1]) == (GraphFormat.TURTLE, 5001, f"{A} {R} {B}")


def test_files_of_several_syntaxes_are_one_graph(write):
    turtle = write(f'{PREFIX}:b :r "x" .', "vocabulary")
    assert read(write(XML), turtle, write(NT, "more"))[1] == [
        f"{A} {R} {B}",
        f'{B} {R} "x"',
        f"{A} {R} {B}",
    ]


def test_blank_nodes_of_different_files_stay_apart(write):
    text = f"_:x {R} _:y .\n_:y {R} _:x .\n"
    _, triples = read(write(text, "1"), write(text, "2"))
    assert triples == [
        f"_:f1_x {R} _:f1_y",
        f"_:f1_y {R} _:f1_x",
        f"_:f2_x {R} _:f2_y",
        f"_:f2_y {R} _:f2_x",
    ]
    assert read(write(text))[1] == [f"_:x {R} _:y", f"_:y {R} _:x"]


def test_a_directory_stands_for_the_rdf_files_in_it(write, tmp_path):
    for name, letter in (
        ("2.nt.gz", "c"),
        ("1.TTL", "b"),
        ("inner/3.nq", "d"),
        ("README.md", "?"),
        (".x.nt", "?"),
    ):
        text = f"{A} {R} <http://e/{letter}> .\n"
        write(gzip.compress(text.encode()) if name.endswith("gz") else text, f"graph/{name}")
    found = [triple.rpartition("/")[2] for triple in read(tmp_path / "graph")[1]]
    assert found == ["b>", "c>", "d>"]
    write("a|r|b\n", "tables/kb.txt")
    with pytest.raises(GraphLoadError, match=r"tables: the directory holds no RDF files \(.nt"):
        read(tmp_path / "tables")


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        (f"{A} {R} {B} {G} .\n{A} {R} {G}\n", 2, "dot"),
        (f"{PREFIX}:g {{\n:a :r }}\n", 3, "not a valid RDF object"),
        (XML.replace("</rdf:Description>", "</rdf:RDF>"), 5, "not XML: mismatched tag"),
        (XML.replace("http://e/b", "b c"), 4, "IRI"),
        (XML[: XML.index("</rdf:Description>")], 5, "not XML: no element found"),
        (JSON_LD.replace('"http://e/b"', "]"), 4, "Unexpected closing"),
        ('{"@context": "http://e/c", "@id": "http://e/a"}', None, "write the context into the file"),
    ],
)
def test_an_error_names_file_and_line(write, content, line, reason):
    with pytest.raises(GraphLoadError, match=reason) as caught:
        read(write(NT, "good"), write(content, "broken"))
    assert (caught.value.path.name, caught.value.line) == ("broken", line)


def test_bad_lines_of_every_file_can_be_skipped(write):
    rejected = RejectedLines(skip=True)
    _, triples = read(write(f"{NT}bad\n", "1"), write(f"bad\n{A} {R} {B} {G} .\n", "2"), rejected=rejected)
    assert triples == [f"{A} {R} {B}"] * 2
    assert [(error.path.name, error.line) for error in rejected.first] == [("1", 2), ("2", 1)]


def test_hdt_is_refused_with_what_converts_it(write):
    with pytest.raises(GraphLoadError, match="HDT is not supported: .*hdt2rdf"):
        read(write(b"$HDT\x01\x00<http://purl.org/HDT/hdt#HDTv1>"))


def test_rog_records_that_mention_json_ld_stay_records(write):
    record = '{"id": "q", "question": "what is \\"@context\\": ?", "graph": [["a", "r", "b"]]}\n'
    assert read(write(record))[0] is GraphFormat.ROG
