"""The model that a run trains: where it comes from."""

from __future__ import annotations

import pytest

from kbqa.errors import BaseNotFoundError
from kbqa.runs.student import Student
from kbqa.training.small_policy import save_model
from tests.unit.policies_fixtures import make_model, make_tokenizer


def test_a_run_begins_with_a_base_of_this_machine_or_says_what_to_install(tmp_path) -> None:
    save_model(make_model(), make_tokenizer(), tmp_path)
    student = Student.pretrained(str(tmp_path), (), 1)
    assert student.tokenizer_files["tokenizer.json"] == (tmp_path / "tokenizer.json").read_bytes()
    with pytest.raises(BaseNotFoundError, match="hf download nobody/has-this, or name a directory"):
        Student.pretrained("nobody/has-this", (), 1)
