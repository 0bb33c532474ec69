"""The model that a run trains: where it comes from."""

from __future__ import annotations

import json

import pytest

from kbqa.errors import BaseNotFoundError
from kbqa.policies.frame import Frame
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.runs.student import Student
from kbqa.training.small_policy import save_model
from tests.unit.policies_fixtures import make_model, make_tokenizer


def test_a_run_begins_with_a_base_of_this_machine_or_says_what_to_install(tmp_path) -> None:
    save_model(make_model(), make_tokenizer(), tmp_path)
    student = Student.pretrained(str(tmp_path), (), 1)
    assert student.tokenizer_files["tokenizer.json"] == (tmp_path / "tokenizer.json").read_bytes()
    with pytest.raises(BaseNotFoundError, match="hf download nobody/has-this, or name a directory"):
        Student.pretrained("nobody/has-this", (), 1)


def test_a_base_without_its_chat_template_reads_bare_text(tmp_path) -> None:
    """As a recipe may say of a base model, whose tokenizer has a template all the same."""
    save_model(make_model(), make_tokenizer(), tmp_path / "base")
    template = "{% for m in messages %}[{{ m.role }}] {{ m.content }}[end]{% endfor %}[assistant] "
    config = tmp_path / "base" / "tokenizer_config.json"
    config.write_text(json.dumps({**json.loads(config.read_text()), "chat_template": template}))
    chat = Student.pretrained(str(tmp_path / "base"), (), 1)
    bare = Student.pretrained(str(tmp_path / "base"), (), 1, chat_template=False)
    assert (chat.codec.frame.first, bare.codec.frame) == ("[user] ", Frame())
    bare.save(tmp_path)  # what a version is: every later process reads it as this one does
    assert TokenizerCodec.load(tmp_path).frame == Frame()
    assert "chat_template" not in json.loads(bare.tokenizer_files["tokenizer_config.json"])
