"""Witnesses of queries over Wikidata."""

from __future__ import annotations

import re
from collections import Counter

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
