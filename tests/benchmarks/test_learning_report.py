"""The findings of the ablations, as a report draws them."""

from __future__ import annotations

import json

import pytest

from benchmarks.learning.__main__ import main
from benchmarks.learning.report import findings
from kbqa.reports import build, read_findings
from services.page.report import page
from tests.benchmarks.test_learning import FINDING, design, finished

SURE = finished(a=[0.5, 0.52, 0.51, 0.9], b=[0.3, 0.31, 0.33, 0.1])


def test_a_finding_has_the_effect_of_its_look_and_all_its_trials():
    [found] = findings(design(), SURE).findings
    assert (found.name, found.claim, found.verdict) == ("turn-rewards", "Turn rewards", "same sign")
    # The look at three pairs has decided; the fourth came later.
    assert found.effect.mean == pytest.approx((0.2 + 0.21 + 0.18) / 3)
    assert found.effect.low < found.effect.mean < found.effect.high
    assert found.effect.confidence == 0.99
    assert [(trial.seed, trial.has, trial.lacks) for trial in found.trials][3] == (4, 0.9, 0.1)
    assert (found.questions, found.smallest) == (2, 0.03)


def test_before_the_first_look_there_is_no_interval():
    [found] = findings(design(), finished(a=[0.5], b=[0.3])).findings
    assert (found.verdict, found.effect.mean, found.effect.low) == ("undecided", pytest.approx(0.2), None)
    [none] = findings(design(), {}).findings
    assert (none.verdict, none.effect, none.trials, none.questions) == ("not run yet", None, [], None)


def test_the_page_has_the_findings():
    both = design(findings={"turn-rewards": FINDING, "other": {**FINDING, "claim": "Another"}})
    text = page(build([], findings=[findings(both, SURE)]))
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    assert [one["claim"] for one in data["findings"][0]["findings"]] == ["Turn rewards", "Another"]


def test_the_command_writes_a_file_that_kbqa_report_reads(tmp_path, capsys):
    file = tmp_path / "findings.json"
    assert main(["--table", "--report", str(file)]) == 0
    assert len(read_findings(file).findings) >= 20
    assert "| claim |" in capsys.readouterr().out
