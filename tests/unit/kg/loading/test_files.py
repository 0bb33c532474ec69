"""Graph files: what is recognised, what is read, what is refused and where."""

from __future__ import annotations

import gzip
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kbqa.errors import GraphLoadError
from kbqa.kg.loading import lines
from kbqa.kg.loading.facts import NamedTriples, named_quad
from kbqa.kg.loading.files import GraphFormat, GraphSource
from kbqa.kg.loading.rejected import RejectedLines
from kbqa.kg.naming import name_of

NT = "<http://ex.org/a> <http://ex.org/r> <http://ex.org/b> .\n"


@pytest.fixture
def read(tmp_path):
    """Write content to a file whose name says nothing, and read it: (format, triples as names)."""

    def read_content(content: bytes | str, format: GraphFormat | None = None):
        path = tmp_path / "graph"
        path.write_bytes(content if isinstance(content, bytes) else content.encode())
        with GraphSource([path], format).open() as file:
            quads = [fact.quad for fact in file.facts()]
            terms = [(quad.subject, quad.predicate, quad.object) for quad in quads]
            if file.format.is_named:
                return file.format, [tuple(name_of(term.value) for term in triple) for triple in terms]
            return file.format, [tuple(map(str, triple)) for triple in terms]

    return read_content


def refusal(read, content, format=None):
    with pytest.raises(GraphLoadError) as caught:
        read(content, format)
    assert caught.value.path.name == "graph"
    assert str(caught.value.path) in str(caught.value)
    return caught.value


@pytest.mark.parametrize(
    ("content", "format"),
    [
        ("a\tr\tb\n", GraphFormat.TAB),
        ("a|r|b\n", GraphFormat.PIPE),
        ("a|x\tr\tb|y\n", GraphFormat.TAB),
        (NT, GraphFormat.NTRIPLES),
        ("# a comment\n\n" + NT.replace(" ", "\t"), GraphFormat.NTRIPLES),
        ('<http://ex.org/a> <http://ex.org/r> "a|b|c" .\n', GraphFormat.NTRIPLES),
        ("@prefix : <http://ex.org/> .\n:a :r :b , :c .\n", GraphFormat.TURTLE),
        ("PREFIX : <http://ex.org/>\n:a :r :b .\n", GraphFormat.TURTLE),
        ("<http://ex.org/a>\n  <http://ex.org/r> <http://ex.org/b> .\n", GraphFormat.TURTLE),
        (
            "<http://ex.org/a> <http://ex.org/r> <http://ex.org/b> ;\n <http://ex.org/s> 1 .\n",
            GraphFormat.TURTLE,
        ),
        ("[Rec]|directed_by|Jaume Balagueró\n", GraphFormat.PIPE),
        ("#Horror|r|b\n", GraphFormat.PIPE),
    ],
)
def test_the_format_is_recognised_from_the_content(read, content, format):
    assert read(content)[0] is format
    assert read(gzip.compress(content.encode()))[0] is format
    assert read(b"\xef\xbb\xbf" + content.encode())[0] is format
    assert read(content.replace("\n", "\r\n"))[0] is format


def test_a_given_format_overrides_the_content(read):
    content = "a|b\tr|s\tc\n"
    assert read(content) == (GraphFormat.TAB, [("a|b", "r|s", "c")])
    assert read(content, GraphFormat.PIPE) == (GraphFormat.PIPE, [("a", "b\tr", "s\tc")])


def test_names_are_taken_as_they_stand(read):
    rows = [(" a b ", 'r "q"', "x,(y)/z|%20"), ("😀", "é\u2028\x85\x0b\x1c", "1999"), ("a\rb", "r", "\xa0c")]
    content = "".join("\t".join(row) + "\n" for row in rows)
    assert read(content) == (GraphFormat.TAB, rows)


def test_blank_lines_crlf_and_a_missing_last_newline_are_fine(read):
    assert read("\r\na|r|b\r\n\n   \nc|r|d")[1] == [("a", "r", "b"), ("c", "r", "d")]


@pytest.mark.parametrize(
    ("content", "line", "reason"),
    [
        ("a|r|b\na|r\n", 2, "found 2 fields"),
        ("a|r\n", 1, "found 2 fields"),
        ("a|r|b\na|r|b|c\n", 2, "found 4 fields"),
        ("a\tr\tb\n\na\t\tb\n", 3, "relation is empty"),
        ("a|r|b\n|r|b\n", 2, "subject is empty"),
        ("a|r|b\na|r| \n", 2, "object is empty"),
        ("a\tr\tb\n\t\t\n", 2, "subject is empty"),
        (b"a|r|b\na|r|\xff\n", 2, "not UTF-8"),
        (b"\xff\xfea\x00b\x00", 1, "not UTF-8"),
        (b"\xff\n\n", 1, "not UTF-8"),
        (NT + "<http://ex.org/a> <b c> <d> .\n", 2, "IRI"),
        (NT + NT[:-3] + "\n", 2, "dot"),
        (NT + NT[:-3] + "\n" + NT + NT, 2, "dot"),
        ("@prefix : <http://ex.org/> .\n:a :r :b .\n:a x:r :b .\n", 3, "prefix"),
        (NT.encode() + b'<http://ex.org/a> <http://ex.org/r> "\xff" .\n', 2, "UTF-8"),
        ("just some text\n", 1, "not recognised"),
        ("a|r|" + "x" * (1 << 20), 1, "longer than"),
    ],
)
def test_a_bad_line_is_named_with_its_reason(read, content, line, reason):
    error = refusal(read, content)
    assert error.line == line
    assert reason in error.reason
    assert re.search(rf"graph:{line}: ", str(error))
    data = content if isinstance(content, bytes) else content.encode()
    assert refusal(read, gzip.compress(data)).line == line


@pytest.mark.parametrize("block_bytes", [1, 50, 1 << 22])
def test_lines_are_numbered_and_read_alike_in_blocks_of_any_size(tmp_path, monkeypatch, block_bytes):
    monkeypatch.setattr(lines, "_BLOCK_BYTES", block_bytes)
    path = tmp_path / "graph"
    long = "x" * (1 << 20)
    path.write_text(f"a|r|b\n\nc|r\nd|r|e\r\nf|r|{long}\n{long}|r|é%\ng|r|h i", newline="")
    rejected = RejectedLines(skip=True)
    with GraphSource([path]).open(rejected) as file:
        quads = [fact.quad for fact in file.facts()]
    triples = [tuple(name_of(term.value) for term in (q.subject, q.predicate, q.object)) for q in quads]
    assert triples == [("a", "r", "b"), ("d", "r", "e"), ("g", "r", "h i")]
    assert [(line.line, line.reason[:9]) for line in rejected.first] == [
        (3, "expected "),
        (5, "the line "),
        (6, "the line "),
    ]


@given(
    st.lists(
        st.tuples(*[st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))] * 3),
        min_size=1,
    )
)
def test_columns_of_names_are_the_same_triples_as_facts(triples):
    columns = NamedTriples(*([triple[place] for triple in triples] for place in range(3)))
    assert columns.n_triples() == "".join(f"{named_quad(*triple)} .\n" for triple in triples)


@pytest.mark.parametrize("content", [b"", b"\n \r\n", b"\xef\xbb\xbf", gzip.compress(b"", mtime=0)])
def test_an_empty_file_is_refused(read, content):
    assert "empty" in refusal(read, content).reason


def test_a_damaged_gzip_is_refused(read):
    whole = gzip.compress(b"".join(b"%d|r|b\n" % n for n in range(50_000)))
    assert "cannot be read" in refusal(read, whole[: len(whole) // 2]).reason
    assert "cannot be read" in refusal(read, whole[:-3]).reason
    broken = whole[:100] + bytes(100) + whole[200:]
    assert "cannot be read" in refusal(read, broken).reason


def test_a_missing_file_and_a_directory_are_refused(tmp_path):
    for path, reason in ((tmp_path / "none", "No such file"), (tmp_path, "directory")):
        with pytest.raises(GraphLoadError, match=reason), GraphSource([path]).open():
            pass


def test_the_digest_depends_on_content_and_format_but_not_on_compression(read, tmp_path):
    def digest(content, format=None):
        path = tmp_path / "graph"
        path.write_bytes(content)
        with GraphSource([path], format).open() as file:
            list(file.facts())
            return file.digest()

    plain = digest(b"a|r|b\n")
    assert plain == digest(gzip.compress(b"a|r|b\n")) == digest(b"\xef\xbb\xbfa|r|b\n")
    assert plain != digest(b"a|r|c\n")
    assert digest(NT.encode()) != digest(NT.encode(), GraphFormat.TURTLE)
