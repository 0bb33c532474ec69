"""Which demonstrations a lesson shows, with a version whose answers the test decides."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from kbqa.cold_start.demonstrations import play_program
from kbqa.corrections import demonstrating
from kbqa.protocols.chooser import ChoosingProtocol
from kbqa.recipes import load_recipe
from kbqa.trajectory import Hop, Question, Status, Trajectory, Turn
from tests.unit.corrections.scene import asked, correction, films

RECIPE = load_recipe("kg-r1-chooser")
EARLIER = [asked("maker", n) for n in range(6)]


@dataclass(frozen=True)
class Version:
    id: str = "first-0001"


@dataclass
class Player:
    """Answers every question by one relation of its topic."""

    relation: str = "maker"
    questions: list[Question] = field(default_factory=list)

    def episodes(self, version, questions, tools):
        self.questions += questions
        return [self.episode(question, tools) for question in questions]

    def episode(self, question, tools):
        [topic] = question.topic_entities
        gold = Question("q", question.text, (f"{self.relation} {topic[5:]}",), (topic,), "films",
                        path=(Hop(self.relation),))  # fmt: skip
        played = play_program(gold, ChoosingProtocol(), tools, RECIPE.rollout.max_turns)
        turns = tuple(Turn(0, 1, (0.0,), text, Status.OK) for text in played.demonstration.turns)
        return Trajectory((0,), turns, Status.ANSWERED)


@pytest.fixture
def player(monkeypatch):
    player = Player()
    monkeypatch.setattr(demonstrating, "episodes", player.episodes)
    return player


def demonstrations(corrections, earlier=EARLIER, share=0.1):
    questions = [one.question() for one in corrections]
    return demonstrating.demonstrations(Version(), RECIPE, questions, earlier, films(), share, seed=1)


def test_a_correction_is_a_path_to_its_answers_and_an_earlier_question_what_the_policy_did(player):
    found = demonstrations([correction(0)], share=0.25)
    assert [(one.method, one.teacher) for one in found] == [
        *[("mined", "correction")] * 2,
        *[("replay", "first-0001")] * 6,
    ]
    assert [one.demonstration.question.text for one in found[2:]] == [one.text for one in EARLIER]
    assert [len(one.demonstration.turns) for one in found] == [2] * 8  # a relation, and the answer


def test_what_the_policy_answers_wrong_is_not_replayed(player):
    found = demonstrations([correction(0)], [*EARLIER, asked("star", 1)], share=0.5)
    assert [one.demonstration.question.id for one in found if one.method == "replay"] == [
        one.id for one in EARLIER
    ]


def test_few_corrections_are_shown_several_times_and_many_ask_for_more_earlier_questions(player):
    assert [one.method for one in demonstrations([correction(0)], share=0.05)].count("mined") == 1
    assert [one.method for one in demonstrations([correction(0)], share=0.9)].count("mined") == 54
    earlier = [asked("maker", n % 6) for n in range(1000)]
    player.questions.clear()
    demonstrations([correction(0)], earlier)
    assert len(player.questions) == 270
    player.questions.clear()
    demonstrations([correction(n % 6) for n in range(40)], earlier)
    assert len(player.questions) == 360


def test_corrections_that_cannot_be_played_are_left_out(player):
    wrong = correction(0).__class__(**{**_fields(correction(1)), "answers": ("nobody",)})
    assert demonstrations([wrong]) == []
    assert player.questions == []
    assert [one.method for one in demonstrations([wrong, correction(1)])].count("mined") == 1


def _fields(one):
    return {name: getattr(one, name) for name in one.__dataclass_fields__}
