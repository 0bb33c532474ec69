"""The model that a run trains: where it comes from."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from kbqa.errors import BaseNotFoundError
from kbqa.policies.frame import Frame
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.runs.student import Student
from kbqa.training.small_policy import save_model
from kbqa.trajectory import Group, Question, RewardedTrajectory, Status, Trajectory, Turn
from kbqa.tree import RewardedTree, Step, Tree
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


def test_a_rollout_with_a_token_beyond_the_vocabulary_is_at_fault(tmp_path) -> None:
    save_model(make_model(), make_tokenizer(), tmp_path)
    student = Student.load(tmp_path)
    first = student.model.config.vocab_size
    asked = Question("q", "Who?", ("Ann",), ("Bob",), "world")

    def member(*token_ids: int) -> RewardedTrajectory:
        turn = Turn(2, 3, (-0.5,), "x", Status.ANSWERED)
        return RewardedTrajectory(Trajectory(token_ids, (turn,), Status.ANSWERED), (0.0,), 0.0)

    known = Group("t", asked, (member(0, 1, 2), member(0, 1, first - 1)))
    assert student.fault(known, 3) is None
    foreign = replace(known, members=(*known.members, member(0, 1, first)))
    assert (
        student.fault(foreign, 3)
        == f"members.2: token 2: {first} is not in the policy's vocabulary of {first}"
    )

    def step(parent: int | None, start: int, token: int) -> Step:
        return Step(parent, (token,), Turn(start, start + 1, (-0.5,), "x", Status.OK))

    steps = (step(None, 1, 3), step(None, 1, 4), step(0, 2, first))
    tree = RewardedTree("t", asked, Tree((0,), steps, 3), (0.0,) * 3, ({},) * 3)
    assert (
        student.fault(tree, 3)
        == f"path to steps.2: token 2: {first} is not in the policy's vocabulary of {first}"
    )
    assert student.fault(replace(tree, tree=replace(tree.tree, steps=steps[:2])), 3) is None


def test_a_rollout_that_is_longer_than_its_recipe_allows_is_at_fault(tmp_path) -> None:
    """A step with it could need more memory than the machine has, again after every restart."""
    save_model(make_model(), make_tokenizer(), tmp_path)
    student = Student.load(tmp_path)
    asked = Question("q", "Who?", ("Ann",), ("Bob",), "world")
    turn = Turn(2, 5, (-0.5,) * 3, "x", Status.ANSWERED)
    # What comes after the last turn is not trained on.
    member = RewardedTrajectory(Trajectory((0,) * 9, (turn,), Status.ANSWERED), (0.0,), 0.0)
    group = Group("t", asked, (member,))
    assert student.fault(group, 5) is None
    assert student.fault(group, 4) == "members.0: 5 tokens are more than the recipe's 4"
