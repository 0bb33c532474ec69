"""What the graph supports of the answers, as a term of KG-R1's reward."""

from __future__ import annotations

import pytest

from kbqa.errors import GraphUnavailableError
from kbqa.kg.actions import ErrorCode, ErrorKind, Failure
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.recipes import load_recipe
from kbqa.rewards import Instruments, KgR1Reward, SupportedKgR1Reward
from tests.unit.episodes import query, question
from tests.unit.evaluation.cases import episode

WORLD = LocalGraphTools(FixedGraphs({"world": OxigraphStore.from_triples([("Ada", "parent", "Byron")])}))


def score(reward, trajectory, tools=WORLD):
    return reward.score(question("Byron"), trajectory, Instruments(tools, judge=None))


@pytest.mark.parametrize(
    ("answers", "supported"),
    [(["Byron"], 1.0), (["Byron", "Annabella"], 0.5), (["Annabella"], 0.0), ([], 0.0)],
)
def test_it_adds_the_share_of_the_answers_that_the_graph_confirms(answers, supported):
    retrieved = query(found=("Byron", "Annabella"))  # of which the graph knows one
    trajectory = episode(*answers, queries=[retrieved], ids=[[answer] for answer in answers])
    plain = score(KgR1Reward(), trajectory)
    scored = score(SupportedKgR1Reward(w_supported=0.2), trajectory)
    assert scored.outcome == pytest.approx(plain.outcome + 0.2 * supported)
    assert scored.turn_rewards == plain.turn_rewards
    assert scored.components == {**plain.components, "supported": supported}


def test_what_was_guessed_earns_less_than_what_was_found():
    found = episode("Byron", queries=[query()], ids=[["Byron"]])
    guessed = episode("Byron", queries=[query(found=("Annabella",))])
    reward = SupportedKgR1Reward(w_retrieval=0.0, w_supported=0.2)
    assert (score(reward, found).outcome, score(reward, guessed).outcome) == (1.2, 1.0)


def test_without_a_weight_it_is_the_papers_and_asks_nothing():
    trajectory = episode("Byron", queries=[query()], ids=[["Byron"]])
    assert score(SupportedKgR1Reward(), trajectory, tools=None) == score(KgR1Reward(), trajectory)


def test_a_graph_that_cannot_answer_takes_nothing_away(monkeypatch):
    monkeypatch.setattr(
        WORLD,
        "execute_at",
        lambda kg, actions, graph: (
            [Failure(ErrorCode.SERVER_ERROR, ErrorKind.OVERLOADED, "busy")] * len(actions),
            "version",
        ),
    )
    trajectory = episode("Byron", queries=[query()], ids=[["Byron"]])
    with pytest.raises(GraphUnavailableError, match="world: busy"):
        score(SupportedKgR1Reward(w_supported=0.2), trajectory)


def test_a_recipe_of_the_paper_takes_it_by_name_and_weight():
    changes = {"reward.name": "kg_r1_supported", "reward.w_supported": 0.2}
    recipe, paper = load_recipe("kg-r1", changes), load_recipe("kg-r1")
    assert recipe.reward.build() == SupportedKgR1Reward(w_supported=0.2)
    assert "w_supported" not in paper.reward.model_dump()
