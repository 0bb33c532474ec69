"""Beam search, with a policy whose preferences are written down."""

from __future__ import annotations

import math
from dataclasses import replace
from time import monotonic

import pytest

from kbqa.environment import Budget
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.policies.base import Ranking
from kbqa.protocols.chooser import ChoosingProtocol
from kbqa.protocols.form_chooser import FormChoosingProtocol
from kbqa.rollouts import Agent, answering_rollout
from kbqa.rollouts.many import many_rollouts
from kbqa.trajectory import DECLINED, Status
from tests.unit.episodes import Heard, question
from tests.unit.policies_fixtures import RankingScript, make_codec

CODEC = make_codec()
BUDGET = Budget(max_turns=4, max_tokens=2000, max_turn_tokens=16, max_observation_tokens=600)
TRIPLES = [("Ada", "parent", "Byron"), ("Ada", "friend", "Babbage"), ("Byron", "rival", "Southey")]

# The likeliest first choice is the parent, but then the policy does not know what to do.
UNSURE = {"": {"parent": 0.6, "friend": 0.4}, "parent": {"answer": 0.5, "rival": 0.5}}


def agent(table, protocol=None, beam=2, ratings=None):
    tools = LocalGraphTools(FixedGraphs({"world": OxigraphStore.from_triples(TRIPLES)}))
    policy = RankingScript(CODEC, table, ratings)
    return Agent(policy, CODEC, protocol or ChoosingProtocol(), tools, BUDGET, beam=beam)


@pytest.mark.parametrize(("beam", "answer"), [(1, "Byron"), (2, "Babbage")])
def test_the_likeliest_episode_need_not_begin_with_the_likeliest_choice(beam, answer):
    """0.6 * 0.5 for each of two answers behind the parent, 0.4 for the friend."""
    found = answering_rollout(agent({**UNSURE, "friend": {"answer": 1.0}}, beam=beam), question(), 0.0)
    assert found.answers == (answer,)
    assert found.status is Status.ANSWERED


def test_the_share_is_that_of_all_episodes_with_the_same_answers():
    """Of 0.4 for Babbage and 0.3 for Byron or Southey, the other one of which the beam has no place for."""
    found = answering_rollout(agent({**UNSURE, "friend": {"answer": 1.0}}), question(), 0.0)
    assert found.search.share == pytest.approx(0.4 / 0.7, abs=1e-3)
    assert found.search.presence == 1
    alone = answering_rollout(agent({"": {"parent": 1.0}, "parent": {"answer": 1.0}}), question(), 0.0)
    assert alone.search.share == pytest.approx(1.0, abs=1e-3)


def test_the_re_ranker_has_the_last_word():
    """0.4 for Babbage is more than 0.3 for Byron, but not more than e^-1 of it."""
    table = {**UNSURE, "friend": {"answer": 1.0}}
    found = answering_rollout(agent(table, ratings={"friend": -1.0}), question(), 0.0)
    assert found.answers == ("Byron",)
    friend = 0.4 * math.exp(-1)
    assert found.search.share == pytest.approx(0.3 / (0.3 + friend), abs=1e-3)


def test_what_is_rated_highly_is_not_looked_for():
    """Ratings are of whole episodes: they do not bring back what has left the beam."""
    table = {
        "": {"parent": 0.7, "friend": 0.3},
        "parent": {"answer": 0.5, "rival": 0.5},
        "friend": {"answer": 1.0},
    }
    found = answering_rollout(agent(table, ratings={"friend": 9.0}), question(), 0.0)
    assert found.answers == ("Byron",)


@pytest.mark.parametrize(("friend", "rated"), [(1e-5, 2), (1e-7, 0)])
def test_no_rating_makes_up_for_14_nats(friend, rated):
    """e^-14 is 8e-7."""
    table = {
        "": {"parent": 1 - friend, "friend": friend},
        "parent": {"answer": 1.0, "rival": 1e-9, "parent": 1e-9},
        "friend": {"answer": 1.0},
    }
    player = agent(table, ratings={"parent": -16.0})
    found = answering_rollout(player, question(), 0.0)
    assert player.policy.rated_episodes == rated
    assert found.answers == ("Babbage" if rated else "Byron",)


def test_what_the_search_cost_beside_its_episode_is_counted():
    player = agent({**UNSURE, "friend": {"answer": 1.0}})
    found = answering_rollout(player, question(), 0.0)
    assert len(found.turns) + found.search.turns == player.policy.asked
    # The parent was followed, too.
    assert found.search.actions == 1
    assert found.search.prompt_tokens > 0


def test_without_a_beam_nothing_is_searched():
    assert answering_rollout(agent(UNSURE, beam=1), question(), 0.0).search is None


def test_an_episode_that_declines_does_so_alone():
    """Declining is the likeliest: then the friend, as likely as if the policy had not declined."""
    table = {
        "": {"noneofthese": 0.7, "friend": 0.2, "parent": 0.1},
        "noneofthese": {"friend": 2 / 3, "parent": 1 / 3},
        "friend": {"answer": 1.0},
        "parent": {"answer": 1.0},
    }
    found = answering_rollout(agent(table, FormChoosingProtocol(may_decline=True)), question(), 0.0)
    assert [turn.thought for turn in found.turns] == [DECLINED, "", ""]
    assert found.answers == ("Babbage",)
    assert found.search.share == pytest.approx(2 / 3, abs=1e-3)
    assert found.search.presence == pytest.approx(0.3, abs=1e-3)


def test_no_other_episode_declines():
    """Declining is only the second likeliest choice: the parent takes its place in the beam."""
    table = {
        "": {"friend": 0.5, "noneofthese": 0.4, "parent": 0.1},
        "friend": {"answer": 1.0},
        "parent": {"answer": 1.0},
    }
    found = answering_rollout(agent(table, FormChoosingProtocol(may_decline=True)), question(), 0.0)
    assert [turn.thought for turn in found.turns] == ["", ""]
    assert found.answers == ("Babbage",)
    assert found.search.share == pytest.approx(0.5 / 0.6, abs=1e-3)
    assert found.search.presence == pytest.approx(0.6, abs=1e-3)


def test_a_listener_hears_the_turns_of_the_episode_that_is_taken():
    heard = Heard()
    found = answering_rollout(agent({**UNSURE, "friend": {"answer": 1.0}}), question(), 0.0, listener=heard)
    assert [turn for _, turn in heard.turns] == list(found.turns)
    assert heard.written == [(0, ["follow_path"]), (0, [])]


def test_a_deadline_that_has_passed_times_the_search_out():
    player = agent(UNSURE)
    found = answering_rollout(player, question(), 0.0, deadline=monotonic() - 1)
    assert found.status is Status.TIMED_OUT
    assert player.policy.asked == 0


class Late(RankingScript):
    """Nobody waits for its second turn."""

    def ranked(self, prompts, *, deadline=None, cancelled=None):
        return super().ranked(prompts) if self.asked == 0 else [Ranking([]) for _ in prompts]


def test_turns_that_do_not_come_in_time_end_the_search():
    player = replace(agent(UNSURE), policy=Late(CODEC, UNSURE))
    found = answering_rollout(player, question(), 0.0)
    assert found.status is Status.TIMED_OUT
    assert len(found.turns) == 1


def test_many_questions_are_searched_as_one_is():
    player = agent({**UNSURE, "friend": {"answer": 1.0}})
    found = dict(many_rollouts(player, [question()] * 3, 0.0))
    assert {found[place].answers for place in range(3)} == {("Babbage",)}
