"""The formula of ISP-KGR's reward, on facts that are given here."""

from __future__ import annotations

import pytest

from tests.gold.progress import Facts, Gold, isp_kgr
from tests.gold.scripts import iri_of


def test_an_answer_that_the_graph_calls_otherwise_is_found_by_its_id():
    ps1, ps3 = iri_of("m.ps1"), iri_of("m.ps3")
    family, name = iri_of("cvg.cvg_platform.platform_family"), iri_of("type.object.name")
    facts = Facts([f"{ps3} {family} {ps1} .", f'{ps3} {name} "ps 3"@en .'])
    asked = f"SELECT ?x WHERE {{ ?x {family} {ps1} }}"
    gold = Gold([("PlayStation 3",)], {ps3: "PlayStation 3"})
    earned = isp_kgr([(ps1.strip("<>"), asked)], [ps1], gold, 1.0, facts, released=False)
    assert earned == pytest.approx(0.4 + 1.0 + 0.4)
