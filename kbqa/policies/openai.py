"""A model behind an OpenAI-compatible chat endpoint, which exchanges text only and is not trained."""

from __future__ import annotations

import threading
from collections.abc import Sequence

from kbqa.chat import ChatClient, ChatModel, ChatParams, ChatReply, Conversation
from kbqa.errors import ChatRefusedError, ChatUnavailableError, PolicyRefusedError, PolicyUnavailableError


class OpenAiPolicy:
    """`ChatPolicy` over one endpoint. Close it when it is no longer needed.

    Raises:
        ConfigurationError: the model's URL is invalid.
    """

    def __init__(self, model: ChatModel) -> None:
        self._client = ChatClient(model)

    @property
    def name(self) -> str:
        return self._client.model.name

    def reply(
        self,
        conversations: Sequence[Conversation],
        params: ChatParams,
        *,
        deadline: float | None = None,
        cancelled: threading.Event | None = None,
    ) -> list[ChatReply | None]:
        """As `ChatPolicy.reply`."""
        try:
            return self._client.reply(conversations, params, deadline=deadline, cancelled=cancelled)
        except ChatUnavailableError as error:
            raise PolicyUnavailableError(str(error)) from error
        except ChatRefusedError as error:
            raise PolicyRefusedError(str(error)) from error

    def close(self) -> None:
        self._client.close()
