"""Lets a chat model write the complete question that a follow-up question means."""

from __future__ import annotations

import logging
import time
from collections.abc import Sequence

from kbqa.chat import ChatClient, ChatParams, Conversation, Message
from kbqa.conversation.exchanges import Exchange
from kbqa.errors import ChatError

logger = logging.getLogger(__name__)

_TASK = (
    "Rewrite the last question of a conversation so that it is complete without the conversation: replace "
    "every pronoun by the name that it stands for, and add what an incomplete question leaves out. Change "
    "nothing else. If the question is complete, repeat it. Reply with the question alone, on one line."
)
_LONGEST_TOKENS = 200


class ChatRewriter:
    """Rewrites questions with a model; it is deterministic if the model is.

    Args:
        timeout_s: seconds for one question.
    """

    def __init__(self, client: ChatClient, timeout_s: float = 10.0) -> None:
        self._client, self._timeout_s = client, timeout_s

    def complete(self, said: str, exchanges: Sequence[Exchange]) -> str | None:
        """The complete question; None if the model gives none in time, so that rules must do."""
        told = [
            line
            for exchange in exchanges
            for line in (
                f"Question: {exchange.question}",
                f"Answer: {', '.join(answer.label for answer in exchange.answers) or '(a value, or none)'}",
            )
        ]
        messages = (Message("system", _TASK), Message("user", "\n".join([*told, f"Last question: {said}"])))
        try:
            (reply,) = self._client.reply(
                [Conversation(messages)],
                ChatParams(max_tokens=_LONGEST_TOKENS, temperature=0.0),
                deadline=time.monotonic() + self._timeout_s,
            )
        except ChatError as error:
            logger.warning("the chat model does not rewrite a question", extra={"error": str(error)})
            return None
        lines = [] if reply is None or reply.cut else reply.text.strip().splitlines()
        return lines[0].strip().strip('"') if len(lines) == 1 else None
