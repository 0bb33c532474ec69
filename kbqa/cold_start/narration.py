"""Thoughts for the steps of a gold program, by a model that chats (ISP-KGR, E.2).

"To prevent information leakage, we provide only the preceding n - 1 steps when generating the
reasoning text for step n": the model reads the question, those steps with their observations, and the
command that its thought has to lead to; nothing that comes later, and no answer. The commands
themselves do not change.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import pairwise

from kbqa.chat import ChatParams, Conversation, Message
from kbqa.cold_start.demonstrations import Played
from kbqa.policies.base import ChatPolicy

_INSTRUCTION = """\
You see a dialogue in which an agent answers a question step by step with the help of a knowledge graph, and \
the agent's next command. Write the reasoning that leads to this command: one to three sentences, in the \
first person, from the question and from what the graph has shown so far. Say nothing of later steps, name \
no entity and no answer that has not been shown, and do not mention that the command was given to you. \
Reply with the reasoning alone."""

_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_TAG = re.compile(r"</?[A-Za-z_]+>")
_SPACE = re.compile(r"\s+")
# What stands before the topic entities in the prompt of a dialect.
_LISTED = re.compile(r"entities: (?:\[ )?$", re.IGNORECASE)
_MAX_TOKENS = 256


def narrate(
    played: Played, narrator: ChatPolicy, *, temperature: float = 0.0, seed: int | None = None
) -> list[str]:
    """The turns of an episode with new thoughts; a reply without text gives an empty thought.

    Raises:
        PolicyUnavailableError, PolicyRefusedError: from the narrator.
    """
    texts: list[str] = []
    for number, turn in enumerate(played.turns):
        asked = Conversation(
            (Message("system", _INSTRUCTION), Message("user", _so_far(played, texts, number)))
        )
        params = ChatParams(max_tokens=_MAX_TOKENS, temperature=temperature, seed=seed)
        [reply] = narrator.reply([asked], params)
        assert reply is not None, "without a deadline nothing is abandoned"
        texts.append(f"<think>{_thought(reply.text)}</think>{_command(turn.text)}")
    return texts


def _so_far(played: Played, texts: Sequence[str], number: int) -> str:
    """What the model reads before the thought of a step: the steps before it, and its command."""
    lines = [f"Question: {played.question.text}", f"Entities: {_entities(played)}", ""]
    for text, turn in zip(texts, played.turns[:number], strict=True):
        lines += [f"agent: {text}", f"graph: {turn.observation}"]
    return "\n".join([*lines, f"next command: {_command(played.turns[number].text)}"])


def _entities(played: Played) -> str:
    """The topic entities as the episode's prompt lists them, with their labels; by id if it lists none."""
    prompt = played.demonstration.passages[0].segments
    listed = (
        text.text for before, text in pairwise(prompt) if before.trusted and _LISTED.search(before.text)
    )
    return next(listed, ", ".join(played.question.topic_entities))


def _thought(reply: str) -> str:
    """A reply as one line without tags, which would end the thought."""
    return _SPACE.sub(" ", _TAG.sub(" ", reply)).strip()


def _command(text: str) -> str:
    return _THOUGHT.sub("", text, count=1).strip()
