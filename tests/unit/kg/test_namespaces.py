"""Short ids: which IRIs have one, and that each id stands for one IRI."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kbqa.errors import ConfigurationError
from kbqa.kg.namespaces import Namespace, Namespaces, canonical_id, declared, local_name
from kbqa.kg.sparql.prefixes import PREFIXES

NS, WD, WDT, P = (PREFIXES[prefix] for prefix in ("ns", "wd", "wdt", "p"))
KNOWN = declared((), [f"{NS}m.0", f"{WD}Q1", f"{PREFIXES['dbr']}Berlin"])
OWN = declared([Namespace("", "http://ex.org/"), Namespace("ex", "http://ex.org/more/")])


@pytest.mark.parametrize(
    ("namespaces", "iri", "id_"),
    [
        (KNOWN, f"{NS}m.02mjmr", "m.02mjmr"),
        (KNOWN, f"{NS}people.person.children", "people.person.children"),
        (KNOWN, f"{NS}common", "ns:common"),
        (KNOWN, f"{NS}m.0%24x", "ns:m.0%24x"),
        (KNOWN, "http://rdf.freebase.com/key/en", "http://rdf.freebase.com/key/en"),
        (KNOWN, f"{WD}Q76", "Q76"),
        (KNOWN, f"{WD}L7", "L7"),
        (KNOWN, f"{WD}L7-F1", "L7-F1"),
        (KNOWN, f"{WD}L7-X1", "wd:L7-X1"),
        (KNOWN, f"{WDT}P40", "P40"),
        (KNOWN, f"{P}P40", "p:P40"),
        (KNOWN, f"{P}statement/P40", "ps:P40"),
        (KNOWN, f"{P}qualifier/P580", "pq:P580"),
        (KNOWN, f"{WD}P40", "wd:P40"),
        (KNOWN, f"{WD}statement/Q762-ABC", "wds:Q762-ABC"),
        (KNOWN, "http://dbpedia.org/resource/Berlin", "dbr:Berlin"),
        (KNOWN, "http://dbpedia.org/resource/A_(b)", "http://dbpedia.org/resource/A_(b)"),
        (KNOWN, f"{PREFIXES['rdf']}type", "rdf:type"),
        (KNOWN, "wd:Q76", "<wd:Q76>"),
        (KNOWN, '"1999"^^<http://www.w3.org/2001/XMLSchema#gYear>', None),
        (KNOWN, "_:b0", None),
        (OWN, "http://ex.org/Alice", "Alice"),
        (OWN, "http://ex.org/more/Alice", "ex:Alice"),
        (OWN, "http://ex.org/a/b", "http://ex.org/a/b"),
        (Namespaces(), f"{NS}m.02mjmr", None),
    ],
)
def test_an_iri_has_one_short_id(namespaces, iri, id_):
    assert namespaces.short(iri) == (id_ or iri)
    assert namespaces.iri(id_ or iri) == iri


@pytest.mark.parametrize(
    "written", ["m.02mjmr", "ns:m.02mjmr", f"{NS}m.02mjmr", f"<{NS}m.02mjmr>", "<m.02mjmr>"]
)
def test_every_spelling_stands_for_the_iri(written):
    assert KNOWN.iri(written) == f"{NS}m.02mjmr"
    assert canonical_id(written) == "m.02mjmr"


@pytest.mark.parametrize(
    "text", ["Italy", "Q: who?", "dc: a city", "http://ex.org/x", "12:30", "", "a < b", "rock'n'roll"]
)
def test_other_text_is_unchanged(text):
    assert KNOWN.iri(text) == text
    assert canonical_id(text) == text


_CHARACTERS = st.characters(exclude_characters='<>"{}|^`\\', exclude_categories=("Cc", "Cs", "Z"))
_LOCALS = st.one_of(
    st.text(_CHARACTERS, max_size=12),
    st.from_regex(r"[mgQP]?\.?[0-9a-z_.%(),':/#-]{0,8}", fullmatch=True),
)
_BEGINNINGS = st.sampled_from(
    [*PREFIXES.values(), "http://ex.org/", "http://ex.org/more/", "urn:", "wd:", "x:"]
)


@given(_BEGINNINGS, _LOCALS, st.sampled_from([KNOWN, OWN, Namespaces()]))
@settings(max_examples=400)
def test_every_iri_comes_back_from_its_id(beginning, local, namespaces):
    iri = beginning + local
    id_ = namespaces.short(iri)
    assert namespaces.iri(id_) == iri
    assert namespaces.short(namespaces.iri(id_)) == id_


def test_namespaces_are_recognised_by_what_occurs():
    assert not declared((), ["http://ex.org/a", PREFIXES["rdfs"] + "label"])
    assert "wd" not in KNOWN.prefixes or set(KNOWN.prefixes) >= {"ns", "wd", "dbo", "rdfs"}
    only = declared((), [f"{NS}people.person"])
    assert set(only.prefixes) >= {"ns", "rdf"}
    assert "wd" not in only.prefixes
    assert declared([Namespace("p", "http://ex.org/")], [f"{WD}Q1"]).prefixes["p"] == "http://ex.org/"


def test_two_iris_for_a_prefix_are_refused():
    with pytest.raises(ConfigurationError, match='prefix "a"'):
        declared([Namespace("a", "http://a.org/"), Namespace("a", "http://b.org/")])


@pytest.mark.parametrize("text", ["ex", "ex=", "ex=nothing", "e x=http://ex.org/", "http=http://ex.org/"])
def test_what_is_no_namespace_is_refused(text):
    with pytest.raises(ConfigurationError):
        Namespace.parse(text)


def test_a_namespace_is_read():
    assert Namespace.parse("=http://ex.org/?a=b") == Namespace("", "http://ex.org/?a=b")


@pytest.mark.parametrize(
    ("id_", "name"),
    [("people.person.children", "children"), ("dbo:birthPlace", "birthPlace"), ("http://e.org/a#b", "b")],
)
def test_local_names(id_, name):
    assert local_name(id_) == name
