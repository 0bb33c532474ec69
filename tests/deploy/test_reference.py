"""The chart's README and values schema are those that values.yaml and the settings give."""

from __future__ import annotations

import json

import pytest

from scripts import chart_reference


def test_readme_and_schema_are_current():
    for path, text in chart_reference.rendered().items():
        assert path.read_text(encoding="utf-8") == text, "run python scripts/chart_reference.py"


def test_a_value_without_description_is_refused():
    with pytest.raises(ValueError, match=r"b\.c has no line"):
        list(chart_reference.values("# -- good\na: 1\nb:\n  c: 2\n"))


def test_settings_that_the_chart_manages_cannot_be_set_twice():
    whole = json.loads(chart_reference.rendered()[chart_reference.CHART / "values.schema.json"])
    schema = whole["properties"]["gateway"]["properties"]["settings"]
    assert "MAX_RUNS" in schema["properties"]
    assert {"HOST", "PORT", "DRAIN_S", "ENGINE"}.isdisjoint(schema["properties"])
