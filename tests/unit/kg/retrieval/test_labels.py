"""The action `labels`: what entities are called in a reader's languages."""

from __future__ import annotations

import pytest

from kbqa.kg.actions import LABELS, Action, ErrorCode, Failure, Success
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools

LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
GRAPH = f"""
<http://x/de> <{LABEL}> "Germany"@en .
<http://x/de> <{LABEL}> "Deutschland"@de .
<http://x/de> <{LABEL}> "Alemanha"@pt-BR .
<http://x/de> <{LABEL}> "Saksa" .
<http://x/at> <http://www.w3.org/2004/02/skos/core#prefLabel> "Österreich"@de .
<http://x/de> <http://x/borders> <http://x/at> .
<http://x/de> <http://x/area> "357" .
"""


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    home = tmp_path_factory.mktemp("labels")
    (home / "lands.nt").write_text(GRAPH, encoding="utf-8")
    catalog = GraphCatalog(home)
    catalog.load("lands", home / "lands.nt")
    yield LocalGraphTools(catalog)
    catalog.close()


def named(tools, entities, languages):
    (found,) = tools.execute("lands", [Action(LABELS, {"entities": entities, "languages": languages})])
    assert isinstance(found, Success)
    return {item.id: item.label for item in found.items}


@pytest.mark.parametrize(
    ("languages", "label"),
    [
        (["de", "en"], "Deutschland"),
        (["DE"], "Deutschland"),
        (["de-CH"], "Deutschland"),
        (["pt"], "Alemanha"),
        (["fi", "en", "de"], "Germany"),
    ],
)
def test_the_first_language_that_has_a_label_counts_with_its_dialects(tools, languages, label):
    assert named(tools, ["http://x/de"], languages) == {"http://x/de": label}


def test_what_has_no_such_label_is_not_listed(tools):
    asked = ["http://x/at", "http://x/de", '"357"', "http://x/none", "http://x/> ?r ?l } UNION { ?e"]
    assert named(tools, asked, ["de"]) == {"http://x/at": "Österreich", "http://x/de": "Deutschland"}
    assert named(tools, asked, ["fi"]) == {}


@pytest.mark.parametrize("languages", [[], ["not a tag"], ["de"] * 9, "de", [1]])
def test_other_languages_are_refused(tools, languages):
    action = Action(LABELS, {"entities": ["http://x/de"], "languages": languages})
    (refused,) = tools.execute("lands", [action])
    assert isinstance(refused, Failure)
    assert refused.code is ErrorCode.FORMAT_ERROR
