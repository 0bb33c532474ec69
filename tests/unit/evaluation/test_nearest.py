"""The gold path of the training question that is most alike."""

from __future__ import annotations

import pytest

from kbqa.errors import DatasetError
from kbqa.evaluation import evaluate
from kbqa.evaluation.nearest import NearestQuestion
from kbqa.evaluation.paths import PathPlayer
from kbqa.judges import MatchingJudge
from kbqa.rollouts.many import many_rollouts
from kbqa.trajectory import Status
from tests.unit.evaluation.bags import FILMS, Bag, Counted, asked

EXAMPLES = [
    asked("who directed Ali", "Ali", path=("directed_by",)),
    asked("what did Mann direct", "Mann", path=("^directed_by",)),
    asked("where was who directed Ali born", "Ali", path=("directed_by", "born_in")),
]


def played(question, examples=EXAMPLES, *, bag=None):
    tools = Counted(FILMS)
    known = NearestQuestion.among(bag or Bag(), examples)
    [(_, trajectory)] = many_rollouts(PathPlayer(known, tools), [question], 0.0)
    return trajectory, tools.paths


@pytest.mark.parametrize(
    ("text", "topic", "answers"),
    [
        ("who directed Heat", "Heat", {"Mann"}),
        ("what did Mann direct", "Mann", {"Heat", "Ali"}),
        ("where was who directed Heat born", "Heat", {"Chicago"}),
    ],
)
def test_the_path_of_the_nearest_example_is_followed(text, topic, answers):
    trajectory, _ = played(asked(text, topic))
    assert (trajectory.status, set(trajectory.answers)) == (Status.ANSWERED, answers)


def test_it_says_which_example_was_nearest():
    # "who directed" and "where was who directed born" have two words in common: 2 / sqrt(2 * 5) = 0.632.
    trajectory, _ = played(asked("who directed Heat", "Heat"))
    assert trajectory.turns[0].thought == "1.000 who directed: directed_by"
    trajectory, _ = played(asked("who directed Heat", "Heat"), EXAMPLES[2:])
    assert trajectory.turns[0].thought == "0.632 where was who directed born: directed_by / born_in"


def test_names_of_topics_do_not_count():
    bag = Bag()
    played(asked("who directed Heat", "Heat"), bag=bag)
    assert not {"Ali", "Mann", "Heat"} & set(" ".join(bag.encoded).split())


def test_the_next_path_is_followed_if_the_nearest_leads_nowhere():
    trajectory, paths = played(asked("what did Heat direct", "Heat"))
    assert ("^directed_by",) in paths
    assert trajectory.answers == ("Mann",)


def test_of_examples_with_the_same_text_most_decide():
    twice = asked("who directed Ali", "Ali", path=("starred_actors",))
    trajectory, _ = played(asked("who directed Heat", "Heat"), [*EXAMPLES, twice, twice])
    assert trajectory.answers == ("Pacino",)


@pytest.mark.parametrize("topics", [(), ("Nobody",), ("Chicago",)])
def test_without_a_path_nothing_is_answered(topics):
    trajectory, _ = played(asked("where was who directed that born", *topics), EXAMPLES[2:])
    assert (trajectory.status, trajectory.answers, list(trajectory.actions)) == (Status.ANSWERED, (), [])
    assert trajectory.turns[0].thought == "no path leads away from the topic"


def test_examples_without_a_gold_path_are_refused():
    with pytest.raises(DatasetError, match="training questions with a gold path, and the data set has none"):
        NearestQuestion.among(Bag(), [asked("who directed Ali", "Ali")])


def test_it_is_measured_like_a_policy_and_calls_no_model():
    question = asked("where was who directed Heat born", "Heat")
    trajectory, _ = played(question)
    metrics = evaluate([(question, [trajectory])], MatchingJudge()).to_json()["metrics"]
    assert (metrics["f1"], metrics["turns"], metrics["llm_calls"]) == (1, 2, 0)
