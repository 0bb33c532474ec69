"""An episode of messages, for chat models, which give text but no tokens.

Commands are parsed as in an episode of tokens. The differences: an example explains the dialect, a
stop string that the server removed is put back, a function call is read as the command that it stands
for, and observations are messages. Numbers of tokens are those that the server counted, so the
trajectory cannot be trained on.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

from kbqa.chat import ChatReply, Conversation, Message, ToolCall
from kbqa.environment.play import Budget, Play
from kbqa.protocols import AgentProtocol
from kbqa.trajectory import Question, Segment, Status, Turn

_CHARS_A_TOKEN = 4  # estimate for observations, whose tokens are not counted


class ChatEpisode(Play):
    """An episode of messages: call `observe` and `act` in turn until `done`.

    Args:
        native_tools: whether the model uses native function calls in a dialect of function calls;
            otherwise it writes the calls as text.
    """

    def __init__(
        self, question: Question, protocol: AgentProtocol, budget: Budget, *, native_tools: bool = True
    ) -> None:
        super().__init__(question, protocol, budget)
        self._native_tools, self._stop = native_tools, protocol.stop
        self._messages: list[Message] = []
        if not self.actions:
            self._begin()

    @property
    def conversation(self) -> Conversation:
        """The messages that the model replies to."""
        return Conversation(tuple(self._messages), self._tools)

    def act(self, reply: ChatReply) -> None:
        """Take the model's reply to `conversation`; afterwards as `Episode.act`."""
        call = next(iter(reply.tool_calls), None)  # one command a turn
        said = reply.text if call else _until_stop(reply, self._stop)
        self._messages.append(Message("assistant", said, (call,) if call else ()))
        turn = Turn(
            start=reply.prompt_tokens,
            end=reply.prompt_tokens + reply.generated_tokens,
            logprobs=(),
            text=_written(said, reply.reasoning, call),
            status=Status.OK,
            policy_version=reply.model,
        )
        self._said(turn, cut=reply.cut)
        if reply.cut and not turn.text and not self.done:
            self.status = Status.OUT_OF_TOKENS  # there was no room for a single token

    def _begin(self) -> None:
        opening = self._dialogue.opening(native_tools=self._native_tools)
        self._tools = opening.tools
        system = [Message("system", opening.system)] if opening.system else []
        self._messages = [*system, Message("user", opening.user)]

    def _tokens(self) -> tuple[int, ...]:
        return ()

    def _keep(self, observation: Sequence[Segment]) -> str:
        opening, *body, closing = observation
        inner = "".join(segment.text for segment in body)
        text = opening.text + inner[: _CHARS_A_TOKEN * self._budget.max_observation_tokens] + closing.text
        [*_, said] = self._messages
        answers = next((call.id for call in said.tool_calls), None)
        self._messages.append(Message("user" if answers is None else "tool", text, answers=answers))
        return text

    @property
    def _full(self) -> bool:
        return self._turns[-1].end >= self._budget.max_tokens


def _until_stop(reply: ChatReply, stop: Sequence[str]) -> str:
    """The reply up to its first stop string, which is put back if the server removed it."""
    ends = [at + len(tag) for tag in stop if (at := reply.text.find(tag)) >= 0]
    if ends:
        return reply.text[: min(ends)]
    opened = {reply.text.rfind(tag.replace("</", "<", 1)): tag for tag in stop}
    last = max(opened, default=-1)
    return reply.text if reply.cut or last < 0 else reply.text + opened[last]


def _written(said: str, reasoning: str, call: ToolCall | None) -> str:
    """The turn as the dialects write it."""
    if call is not None and said.strip() and "<think>" not in said:
        said = f"<think>{said.strip()}</think>"
    if reasoning and "<think>" not in said:
        said = f"<think>{reasoning.strip()}</think>{said}"
    if call is not None:
        said += f'<tool_call>{{"name": {json.dumps(call.name)}, "arguments": {call.arguments}}}</tool_call>'
    return said
