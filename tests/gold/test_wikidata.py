"""Witnesses of queries over Wikidata."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

import pytest

from tests.gold.wikidata import wikidata_witness

SECOND = """\
SELECT ?result WHERE { ?person wdt:P166 wd:Q123737; wdt:P27 ?result }
GROUP BY ?result ORDER BY DESC(COUNT(?result)) OFFSET 1 LIMIT 1"""


def test_what_comes_second_in_a_witness_ties_with_nothing():
    """Engines order what is equal each in its own way."""
    found = {"result": {"type": "uri", "value": "http://www.wikidata.org/entity/Q145"}}
    record = {"id": 27, "query": {"sparql": SECOND}, "answers": [{"results": {"bindings": [found]}}]}
    witness = wikidata_witness(record)
    assert witness is not None
    winners = {line.split(" ")[0] for line in witness if re.search(r"/P166> \S+/Q123737>", line)}
    countries = Counter(
        line.split(" ")[2] for line in witness if "/P27>" in line and line.split(" ")[0] in winners
    )
    (_, most), (second, fewer), *_ = countries.most_common()
    assert second.endswith("/Q145>")
    assert most > fewer


@pytest.mark.parametrize(
    ("query", "answers"),
    [
        ('SELECT ?word WHERE { ?word wikibase:lemma ?lemma FILTER(regex(?lemma, "uş$")) }', ["L30607"]),
        ("SELECT ?name WHERE { wd:Q30 wdt:P1813 ?short BIND(lang(?short) AS ?name) }", ["ja"]),
        ("ASK { wd:Q395 ?one [?other wd:Q336] }", [True]),
        ("ASK { FILTER(NOT EXISTS { wd:Q213849 wdt:P576 ?end }) }", [False]),
    ],
)
def test_shapes_that_have_a_witness(query, answers):
    """The end of a text, the language of a name, any relation, and only what must not be there."""
    record = {"id": 1, "query": {"sparql": query}, "answers": [_result(answer) for answer in answers]}
    assert wikidata_witness(record)


def _result(answer: str | bool) -> dict[str, Any]:
    if isinstance(answer, bool):
        return {"boolean": answer}
    if answer.startswith("L"):
        term = {"type": "uri", "value": f"http://www.wikidata.org/entity/{answer}"}
    else:
        term = {"type": "literal", "value": answer}
    return {"results": {"bindings": [{"found": term}]}}
