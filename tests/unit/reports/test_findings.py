"""A file of findings is read whole, or what is wrong in it is named."""

from __future__ import annotations

import json

import pytest

from kbqa.errors import ConfigurationError
from kbqa.reports import read_findings

FINDING = {
    "name": "turn-rewards",
    "claim": "Turn rewards",
    "paper": "KG-R1",
    "reports": "F1 10.1",
    "has": "kg-r1",
    "lacks": "kg-r1-no-turn-rewards",
    "verdict": "equivalent",
    "effect": {"mean": 0.01, "low": -0.01, "high": 0.02},
    "smallest": 0.03,
    "trials": [{"seed": 1, "has": 0.6, "lacks": 0.59}],
}


def written(tmp_path, *findings, **changes):
    file = tmp_path / "findings.json"
    file.write_text(json.dumps({"title": "Ablations", "findings": list(findings), **changes}))
    return file


def test_findings_are_read(tmp_path):
    found = read_findings(written(tmp_path, FINDING, {**FINDING, "name": "other", "effect": None}))
    assert [one.name for one in found.findings] == ["turn-rewards", "other"]
    assert found.findings[0].effect.high == 0.02
    assert found.findings[0].trials[0].lacks == 0.59


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"verdict": "sure"}, "findings.0.verdict"),
        ({"effect": {"mean": 0.1, "low": 0.2, "high": 0.1}}, "low must not be above high"),
        ({"effect": {"mean": 0.1, "low": 0.2}}, "give both or neither"),
        ({"smallest": 0}, "findings.0.smallest"),
        ({"surprise": 1}, "findings.0.surprise"),
    ],
)
def test_what_is_wrong_in_a_finding_is_named(tmp_path, changes, said):
    with pytest.raises(ConfigurationError, match="findings.json is no file of findings") as caught:
        read_findings(written(tmp_path, FINDING | changes))
    assert said in str(caught.value)


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match="two findings are named turn-rewards"):
        read_findings(written(tmp_path, FINDING, FINDING))
    with pytest.raises(ConfigurationError, match="schema_version"):
        read_findings(written(tmp_path, FINDING, schema_version=2))
    with pytest.raises(ConfigurationError, match="none.json: No such file"):
        read_findings(tmp_path / "none.json")
    (tmp_path / "text.json").write_text("hello")
    with pytest.raises(ConfigurationError, match="text.json is no file of findings"):
        read_findings(tmp_path / "text.json")
