"""`make bench-metaqa`: what is wrong is told before anything is trained."""

from __future__ import annotations

import pytest

from benchmarks.multihop import main


@pytest.mark.parametrize(
    ("names", "says"), [([], "name what to train: metaqa"), (["moon"], "metaqa"), (["metaqa"], "KBQA_DATA")]
)
def test_what_is_missing_is_one_line(names, says, monkeypatch, capsys):
    monkeypatch.delenv("KBQA_DATA", raising=False)
    assert main(names) == 2
    error = capsys.readouterr().err
    assert says in error
    assert len(error.splitlines()) == 1
