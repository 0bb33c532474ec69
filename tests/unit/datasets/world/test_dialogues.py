"""Generated dialogues: what is said leaves out what is meant, whose answers are right."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kbqa.datasets.world.dialogues import FOLLOW_UPS, Dialogue, generate_dialogues
from kbqa.datasets.world.facts import Facts, generate_facts
from kbqa.datasets.world.vocabulary import WORLD

COUNT = 90


@pytest.fixture(scope="module")
def facts() -> Facts:
    return generate_facts(WORLD, random.Random(3))


@pytest.fixture(scope="module")
def dialogues(facts: Facts) -> list[Dialogue]:
    return generate_dialogues(facts, 3, COUNT)


def test_each_pair_of_follow_ups_is_equally_frequent(facts: Facts, dialogues: list[Dialogue]) -> None:
    pairs = Counter((second.sort, third.sort) for _, second, third in dialogues)
    assert set(pairs.values()) == {COUNT // len(FOLLOW_UPS) ** 2}
    assert len(pairs) == len(FOLLOW_UPS) ** 2
    assert dialogues == generate_dialogues(facts, 3, COUNT)


def test_only_what_is_said_in_full_names_its_topic_and_means_itself(
    facts: Facts, dialogues: list[Dialogue]
) -> None:
    for turn in (turn for dialogue in dialogues for turn in dialogue):
        name = facts.names[turn.topic]
        assert name in turn.meant
        assert (name in turn.said) == (turn.sort != "pronoun")
        assert (turn.said == turn.meant) == (turn.sort in ("opening", "change of topic"))


def test_the_answers_are_in_the_graph_and_a_pronoun_stands_for_one_thing_of_its_kind(
    facts: Facts, dialogues: list[Dialogue]
) -> None:
    for dialogue in dialogues:
        for before, turn in zip((None, *dialogue), dialogue, strict=False):
            assert turn.answers
            linked = {
                tail for (head, _), tails in facts.tails.items() if head == turn.topic for tail in tails
            }
            assert linked.issuperset(turn.answers)
            if before is not None and turn.sort == "pronoun":
                single = before.answers if len(before.answers) == 1 else ()
                kinds = [facts.kinds[one] for one in {before.topic, *single}]
                assert turn.topic in (before.topic, *single)
                assert kinds.count(facts.kinds[turn.topic]) == 1
