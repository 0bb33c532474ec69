"""Which forms lead to which, by operations that add to the whole form so far."""

from __future__ import annotations

import pytest

from kbqa.logical_forms.building import leads_to
from kbqa.logical_forms.s_expression import parse_s_expression

YEAR = "^^http://www.w3.org/2001/XMLSchema#gYear"
STARS = "(JOIN starring Pacino)"
DRAMAS = "(JOIN genre drama)"
EARLY = f"(lt year 1990{YEAR})"


@pytest.mark.parametrize(
    ("form", "target"),
    [
        (STARS, STARS),
        (STARS, f"(JOIN (R director) {STARS})"),
        (STARS, f"(AND {STARS} {DRAMAS})"),
        (DRAMAS, f"(AND {STARS} {DRAMAS})"),
        (f"(AND {DRAMAS} {STARS})", f"(AND {STARS} (AND {DRAMAS} {EARLY}))"),
        (f"(AND {DRAMAS} {EARLY})", f"(AND {STARS} (AND {DRAMAS} {EARLY}))"),
        (STARS, f"(AND {DRAMAS} (JOIN (R sequel) {STARS}))"),
        ("film", f"(AND film {EARLY})"),
        ("film", "(ARGMAX film runtime)"),
        (STARS, f"(COUNT (AND {STARS} {EARLY}))"),
        (STARS, f"(JOIN (R employer) (TC {STARS} job.from 2009))"),
        (f"(TC {STARS} job.from 2009)", f"(JOIN (R employer) (TC {STARS} job.from 2009))"),
        (STARS, f"(ASK {STARS} Heat)"),
    ],
)
def test_a_part_leads_to_the_whole(form, target):
    assert leads_to(parse_s_expression(form), parse_s_expression(target))


@pytest.mark.parametrize(
    ("form", "target"),
    [
        (DRAMAS, STARS),
        (f"(JOIN (R director) {STARS})", STARS),
        (f"(AND {STARS} {DRAMAS})", STARS),
        (EARLY, f"(AND {STARS} {EARLY})"),  # a comparison has no members of its own to begin with
        (f"(AND {STARS} {DRAMAS})", f"(AND {STARS} {EARLY})"),
        (f"(ARGMAX {STARS} runtime)", f"(ARGMIN {STARS} runtime)"),
        (f"(ARGMAX {STARS} runtime)", f"(ARGMAX (AND {STARS} {DRAMAS}) runtime)"),
        (f"(TC {STARS} job.from 2009)", f"(TC {STARS} job.from 2010)"),
        (f"(COUNT {STARS})", f"(COUNT (AND {STARS} {DRAMAS}))"),
        ("(JOIN starring Smith)", f"(JOIN (R director) {STARS})"),
        (f"(ASK {STARS} Heat)", f"(ASK {STARS} Ali)"),
    ],
)
def test_other_forms_do_not(form, target):
    assert not leads_to(parse_s_expression(form), parse_s_expression(target))
