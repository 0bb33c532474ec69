"""Paths ranked by their words."""

from __future__ import annotations

import pytest

from kbqa.evaluation import evaluate
from kbqa.evaluation.paths import PathPlayer
from kbqa.evaluation.ranking import PathRanking
from kbqa.judges import MatchingJudge
from kbqa.kg.ranking.ranker import Ranker
from kbqa.rollouts.many import many_rollouts
from kbqa.trajectory import Status
from tests.unit.evaluation.bags import FILMS, Bag, Counted, asked


def played(triples, question, *, bag=None, **options):
    tools = Counted(triples)
    ranking = PathRanking(Ranker(bag or Bag(), lambda: ()), **options)
    [(_, trajectory)] = many_rollouts(PathPlayer(ranking, tools), [question], 0.0)
    return trajectory, tools.paths


def ranked(trajectory):
    """What it thought: the best paths, with their scores."""
    return trajectory.turns[0].thought.split("; ")


def test_the_best_path_is_followed_and_its_end_is_the_answer():
    # Without its topic the question has four words, and the path all four of them.
    trajectory, _ = played(FILMS, asked("born in directed by Heat", "Heat"))
    assert ranked(trajectory)[:3] == [
        "1.000 directed_by / born_in",
        "0.949 directed_by / born_in / ^born_in",  # (2 + 2 + 1 + 1) / sqrt(4 * 10)
        "0.707 directed_by",  # (1 + 1) / sqrt(4 * 2)
    ]
    assert (trajectory.status, trajectory.answers, trajectory.answer_ids) == (
        Status.ANSWERED,
        ("Chicago",),
        (("Chicago",),),
    )
    assert [(turn.text, len(turn.actions)) for turn in trajectory.turns] == [("", 1), ("", 0)]
    [action] = trajectory.actions
    assert (action.name, action.arguments["path"]) == ("follow_path", '["directed_by", "born_in"]')
    assert trajectory.turns[0].observation == "<entities>Chicago</entities>"


def test_of_paths_as_good_the_shorter_comes_first_then_what_is_followed_forwards():
    triples = [("Ada", "parent", "Byron"), ("Medora", "parent", "Ada"), ("Byron", "parent", "Jack")]
    trajectory, _ = played(triples, asked("a parent of Ada", "Ada"), max_hops=2)
    # The words of parent once and twice over have the same direction.
    paths = [path.partition(" ")[2] for path in ranked(trajectory)]
    assert paths == ["parent", "^parent", "parent / parent", "parent / ^parent", "^parent / parent"]
    assert trajectory.answers == ("Byron",)


def test_words_stand_in_reverse_order_and_each_text_is_encoded_once():
    bag = Bag()
    ranking = PathRanking(Ranker(bag, lambda: ()), max_hops=2)
    questions = [asked(f"{text} Heat ?", "Heat") for text in ("who made", "where was")] * 3
    played = many_rollouts(PathPlayer(ranking, Counted(FILMS)), questions, 0.0, width=1)
    assert len(list(played)) == 6
    assert len(bag.encoded) == len(set(bag.encoded))
    assert "born in directed by" in bag.encoded
    assert "directed by born in" not in bag.encoded


@pytest.mark.parametrize(
    ("text", "read"),
    [
        ("who directed Heat ?", "who directed ?"),
        ("who directed heat ?", "who directed ?"),
        ("who directed that ?", "who directed that ?"),
        ("Heat", ""),
    ],
)
def test_the_topic_is_left_out_of_the_question(text, read):
    bag = Bag()
    trajectory, _ = played(FILMS, asked(text, "Heat"), bag=bag)
    assert read in bag.encoded
    assert "Heat" not in " ".join(bag.encoded).split()
    assert trajectory.status is Status.ANSWERED


def test_at_a_hub_only_the_best_paths_are_gone_on_from():
    hub = [("Hub", f"relation_{n}", f"Leaf {n}") for n in range(40)]
    triples = [*hub, *[(f"Leaf {n}", "next", f"End {n}") for n in range(40)]]
    trajectory, paths = played(triples, asked("next relation 7 of Hub", "Hub"), beam=3)
    assert trajectory.answers == ("End 7",)
    looked, followed = paths[:-1], paths[-1]
    assert [sum(len(path) == hops for path in looked) for hops in (0, 1, 2, 3)] == [1, 3, 3, 0]
    assert ("relation_7",) in looked
    assert followed == ("relation_7", "next")


def test_as_many_hops_as_the_gold_path_where_they_are_known():
    question = asked("directed by Heat", "Heat", path=("directed_by", "born_in"))
    assert played(FILMS, question)[0].answers == ("Mann",)
    trajectory, _ = played(FILMS, question, known_hops=True)
    assert {path.count(" / ") for path in ranked(trajectory)} == {1}
    trajectory, paths = played(FILMS, question, max_hops=1)
    assert paths == [(), ("directed_by",)]


def test_a_path_that_has_come_back_is_not_gone_on_from_and_may_be_the_answer():
    triples = [("Ada", "spouse", "William"), ("William", "title", "earl")]
    trajectory, paths = played(triples, asked("the spouse of the spouse of Ada", "Ada"), max_hops=3)
    assert ("spouse", "^spouse") in paths
    assert not [path for path in paths if len(path) == 3]
    question = asked("the spouse of the spouse of Ada", "Ada", path=("spouse", "spouse"))
    assert played(triples, question, known_hops=True)[0].answers == ("Ada",)


def test_a_graph_of_bare_ids_is_read_by_the_last_part_of_its_relations():
    triples = [
        ("m.01", "people.person.place_of_birth", "m.02"),
        ("m.01", "people.person.profession", "m.03"),
    ]
    bag = Bag()
    trajectory, _ = played(triples, asked("the place of birth of Ada", "m.01"), bag=bag)
    assert "place of birth" in bag.encoded
    assert "people person place of birth" not in bag.encoded
    assert (trajectory.answers, trajectory.answer_ids) == (("m.02",), (("m.02",),))


def test_several_topics_are_all_begun_at_and_one_that_is_not_there_is_passed_over():
    trajectory, _ = played(FILMS, asked("directed by Heat or Pacino", "Pacino", "Nobody", "Heat"))
    assert trajectory.actions.__next__().arguments["entity"] == "Heat"
    assert trajectory.answers == ("Mann",)


@pytest.mark.parametrize("topics", [(), ("Nobody",)])
def test_without_a_path_nothing_is_answered(topics):
    trajectory, _ = played(FILMS, asked("who ?", *topics))
    assert (trajectory.status, trajectory.answers, list(trajectory.actions)) == (Status.ANSWERED, (), [])
    assert trajectory.turns[0].thought == "no path leads away from the topic"


def test_it_is_measured_like_a_policy_and_calls_no_model():
    question = asked("born in directed by Heat", "Heat")
    trajectory, _ = played(FILMS, question)
    metrics = evaluate([(question, [trajectory])], MatchingJudge()).to_json()["metrics"]
    assert (metrics["f1"], metrics["retrieval"], metrics["turns"]) == (1, 1, 2)
    assert (metrics["llm_calls"], metrics["total_tokens"]) == (0, 0)
