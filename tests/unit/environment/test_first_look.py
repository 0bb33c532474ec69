"""A dialect that looks at the graph first: nothing is read by the policy before it has seen that."""

from __future__ import annotations

import pytest

from kbqa.chat import ChatReply
from kbqa.environment import Budget, ChatEpisode, Episode
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.protocols.chooser import ChoosingProtocol, write_choice
from kbqa.training.small_policy import train_tokenizer
from kbqa.trajectory import Question, Status

QUESTION = Question("q", "who is the parent of Ada ?", ("Byron",), ("Ada",), "people")
BUDGET = Budget(max_turns=3, max_tokens=2000, max_turn_tokens=20, max_observation_tokens=200)
TOOLS = LocalGraphTools(FixedGraphs({"people": OxigraphStore.from_triples([("Ada", "parent", "Byron")])}))


@pytest.fixture(params=["tokens", "messages"])
def episode(request) -> Episode | ChatEpisode:
    protocol = ChoosingProtocol("full")
    if request.param == "messages":
        return ChatEpisode(QUESTION, protocol, BUDGET)
    codec = TokenizerCodec(train_tokenizer([QUESTION.text], protocol.tags, 400))
    return Episode(QUESTION, protocol, codec, BUDGET)


def read_by(episode: Episode | ChatEpisode) -> str:
    if isinstance(episode, ChatEpisode):
        return "".join(message.text for message in episode.conversation.messages)
    return TokenizerCodec(train_tokenizer([QUESTION.text], ChoosingProtocol.tags, 400)).decode(
        episode.token_ids
    )


def test_what_was_looked_at_stands_in_the_prompt_and_is_no_turn(episode):
    assert episode.results == ()
    looked = episode.actions
    assert looked
    episode.observe(TOOLS.execute("people", looked))
    assert not episode.actions
    assert not episode.done
    assert len(episode.turns) == 0
    assert "parent" in read_by(episode)
    episode.observe([])  # nothing was asked: nothing changes
    assert len(episode.turns) == 0
    with pytest.raises(ValueError, match="still runs"):
        episode.trajectory()


def test_a_reply_ends_with_its_first_stop_string():
    episode = ChatEpisode(QUESTION, Stopping(), BUDGET)
    episode.observe(TOOLS.execute("people", episode.actions))
    episode.act(ChatReply(f"{write_choice(1)}</stop> and more </stop>", prompt_tokens=5, generated_tokens=4))
    assert episode.turns[0].text == f"{write_choice(1)}</stop>"


def test_a_cut_reply_of_nothing_is_no_room():
    episode = ChatEpisode(QUESTION, ChoosingProtocol("full"), BUDGET)
    episode.observe(TOOLS.execute("people", episode.actions))
    episode.act(ChatReply("", cut=True))
    assert episode.status is Status.OUT_OF_TOKENS


class Stopping(ChoosingProtocol):
    stop = ("</stop>",)
