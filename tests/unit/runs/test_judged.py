"""What a phase answered stays on the disk, question by question."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from kbqa.errors import RunError
from kbqa.runs import judged as module
from kbqa.runs.judged import Judged, JudgedHeader
from kbqa.runs.transcripts import judged_question
from kbqa.trajectory import Hop
from tests.services.trainer.made_runs import HOSTILE, QUESTION, group

HEADER = JudgedHeader(version="v000002-00000000", split="test")


def answered(number: int = 3, *, with_turns: bool = True):
    rng = random.Random(1)
    asked = [replace(QUESTION, id=f"q{i}", path=(Hop("parent"), Hop("spouse", True))) for i in range(number)]
    return [judged_question(one, group(rng, one.id, 0.5, n=1), with_turns=with_turns) for one in asked]


def test_answers_are_read_as_they_were_written(tmp_path):
    found = Judged(tmp_path / "judged")
    assert found.read("rl") is None
    found.write("rl", HEADER, answered())
    again = found.read("rl")
    assert again.header == HEADER
    assert again.questions == answered()
    assert again.questions[0].cluster == "Ada : parent / ^spouse"
    assert again.questions[0].hops == 2
    assert HOSTILE in again.questions[0].turns[0].thought


def test_results_stay_where_turns_find_no_room(tmp_path, monkeypatch):
    monkeypatch.setattr(module, "_MOST_BYTES", len(answered()[0].model_dump_json().encode()))
    found = Judged(tmp_path / "judged")
    found.write("rl", HEADER, answered())
    kept = found.read("rl").questions
    assert [bool(one.turns) for one in kept] == [True, False, False]
    assert [one.components for one in kept] == [one.components for one in answered()]
    assert answered(with_turns=False)[1] == kept[1]


def test_a_damaged_file_is_named(tmp_path):
    found = Judged(tmp_path / "judged")
    found.write("rl", HEADER, answered())
    file = tmp_path / "judged" / "rl.jsonl.gz"
    file.write_bytes(file.read_bytes()[:40])
    with pytest.raises(RunError, match="rl.jsonl.gz is damaged; remove it"):
        found.read("rl")
