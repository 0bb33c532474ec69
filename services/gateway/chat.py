"""Bodies of `/v1/chat/completions`: a question as chat messages, and its answer with evidence as text.

The model is `kbqa/<graph>`. The question is the user's last message. Earlier messages of the user and their
replies say what it refers to. System messages and sampling parameters are ignored.
The response contains the document of `POST /v1/answer` as `kbqa`. Steps are sent as
`reasoning_content`, which chat clients show folded, and answers as `content`.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from itertools import pairwise
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from kbqa.client.events import ActionEvent, DoneEvent, ErrorEvent, Event, ThoughtEvent
from kbqa.client.models import Answer, AnswerRequest, AnswerResponse, TripleEvidence, Usage
from services.gateway.conversations import Remark
from services.gateway.errors import RequestRefusedError

MODEL = "kbqa"
"""Name of the model without a graph; names with a graph are `kbqa/<graph>`."""

_EXPLANATIONS = {
    "no_answer": "No answer was found{why}.",
    "no_topic_entity": "The question names nothing in the graph: spell names as the graph does.",
    "partial": "The time limit was reached before an answer was found.",
    "unsupported": "Nothing in the graph supports this.",
}
_MOST_REMARKS, _MOST_CHARS = 4, 2000  # of earlier messages that are read, and of each
_MOST_ROWS = 10  # rows shown per query
# Characters that could become a link, an image or markup in a client that renders Markdown.
_MARKUP = re.compile(r"[\\`\[\]<>]")
_BACKTICKS = re.compile(r"`+")


class ChatPart(BaseModel):
    """A piece of a message; only text is read."""

    model_config = ConfigDict(extra="ignore")

    type: str
    text: str | None = None


class ChatMessage(BaseModel):
    """A message; those of the user and their replies are read."""

    model_config = ConfigDict(extra="ignore")

    role: str
    content: str | list[ChatPart] | None = None

    def text(self) -> str:
        if self.content is None or isinstance(self.content, str):
            return self.content or ""
        return "\n".join(part.text for part in self.content if part.type == "text" and part.text)


class StreamOptions(BaseModel):
    model_config = ConfigDict(extra="ignore")

    include_usage: bool = False


class ChatRequest(BaseModel):
    """The fields of a chat completion request that are used; all others are ignored.

    Attributes:
        kbqa: fields of `POST /v1/answer` beyond question and graph, for clients that know them.
    """

    model_config = ConfigDict(extra="ignore")

    model: str
    messages: Annotated[list[ChatMessage], Field(min_length=1)]
    stream: bool = False
    stream_options: StreamOptions | None = None
    kbqa: dict[str, Any] = Field(default_factory=dict)

    def graph(self) -> str | None:
        """The graph that the model's name contains; None if it contains none.

        Raises:
            RequestRefusedError: the model is not one of this gateway.
        """
        prefix, _, graph = self.model.partition("/")
        if prefix != MODEL:
            raise RequestRefusedError(
                f'there is no model "{self.model[:200]}": use {MODEL}/GRAPH (GET /v1/models lists them)'
            )
        return graph or None

    def remarks(self) -> list[Remark]:
        """The latest of the earlier messages of the user that have a reply; none if a session is named."""
        if "session" in self.kbqa:
            return []
        said = [message for message in self.messages if message.role in ("user", "assistant")]
        return [
            Remark(asked.text()[:_MOST_CHARS], reply.text()[:_MOST_CHARS])
            for asked, reply in pairwise(said)
            if (asked.role, reply.role) == ("user", "assistant")
        ][-_MOST_REMARKS:]

    def question(self, kg: str) -> AnswerRequest:
        """The user's last message as a question about a graph.

        Raises:
            RequestRefusedError: there is no question, or `kbqa` contains an unknown or invalid field.
        """
        said = next((m.text() for m in reversed(self.messages) if m.role == "user"), "")
        try:
            # Validate from JSON, in which lists are valid for the request's tuples.
            text = json.dumps({**self.kbqa, "question": said, "kg": kg, "stream": self.stream})
            return AnswerRequest.model_validate_json(text)
        except ValidationError as error:
            details = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in error.errors())
            raise RequestRefusedError(f"the last user message is not a question: {details}") from error


class ChatUsage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class CompletionReply(BaseModel):
    role: Literal["assistant"] = "assistant"
    content: str


class Choice(BaseModel):
    index: int = 0
    message: CompletionReply
    finish_reason: Literal["stop"] = "stop"


class ChatCompletion(BaseModel):
    """An answer as a chat completion; `kbqa` is the document of `POST /v1/answer`."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int
    model: str
    choices: list[Choice]
    usage: ChatUsage
    kbqa: AnswerResponse


class ChatModelCard(BaseModel):
    """A graph as a model."""

    id: str
    object: Literal["model"] = "model"
    created: int = 0
    owned_by: str = "kbqa"


class ChatModels(BaseModel):
    object: Literal["list"] = "list"
    data: list[ChatModelCard]


def completion(model: str, document: AnswerResponse) -> ChatCompletion:
    """A document as a whole chat completion."""
    return ChatCompletion(
        id=_id(document.id),
        created=int(time.time()),
        model=model,
        choices=[Choice(message=CompletionReply(content=text_of(document)))],
        usage=_usage(document.usage),
        kbqa=document,
    )


class Chunks:
    """Writes the events of one answer as chunks of a chat completion.

    Args:
        usage: whether the client asked for the usage.
        runs: number of runs of the answer.
    """

    def __init__(self, model: str, *, usage: bool, runs: int) -> None:
        self._model, self._wants_usage, self._runs = model, usage, runs
        self._id, self._created = _id(uuid.uuid4().hex), int(time.time())
        self._begun = False

    def write(self, event: Event) -> str:
        """The server-sent events for an event; some events have none."""
        match event:
            case ThoughtEvent():
                return self._delta(reasoning_content=f"{self._run(event.run)}{event.thought}\n")
            case ActionEvent():
                return self._delta(reasoning_content=f"{self._run(event.run)}{_called(event.action)}\n")
            case DoneEvent():
                return self._end(event.document)
            case ErrorEvent():
                problem = event.problem
                told = {"message": problem.detail, "type": problem.type, "code": problem.status}
                return f"{_data({'error': told})}data: [DONE]\n\n"
            case _:
                return ""

    def _run(self, run: int) -> str:
        return f"[{run + 1}] " if self._runs > 1 else ""

    def _delta(self, **delta: str) -> str:
        if not self._begun:
            self._begun = True
            delta = {"role": "assistant", **delta}
        return self._chunk([{"index": 0, "delta": delta, "finish_reason": None}])

    def _end(self, document: AnswerResponse) -> str:
        said = self._delta(content=text_of(document))
        end = self._chunk(
            [{"index": 0, "delta": {}, "finish_reason": "stop"}],
            kbqa=document.model_dump(mode="json", exclude_none=True),
        )
        cost = self._chunk([], usage=_usage(document.usage).model_dump()) if self._wants_usage else ""
        return f"{said}{end}{cost}data: [DONE]\n\n"

    def _chunk(self, choices: list[dict[str, Any]], **more: Any) -> str:
        return _data(
            {
                "id": self._id,
                "object": "chat.completion.chunk",
                "created": self._created,
                "model": self._model,
                "choices": choices,
                **more,
            }
        )


def text_of(document: AnswerResponse) -> str:
    """An answer document as text: the answers, or what comes nearest, and their evidence."""
    parts, found = [], document.answers or document.candidates
    if document.answers:
        parts.append(_names(document.answers))
    if document.status in _EXPLANATIONS:
        why = "" if document.reason is None else f": {document.reason}"
        parts.append(_EXPLANATIONS[document.status].format(why=why))
    if document.candidates:
        parts.append(f"What comes nearest: {_names(document.candidates)}")
    if document.understood not in (None, document.question):
        parts.append(f"Understood as: {_escaped(str(document.understood))}")
    shown = list(dict.fromkeys(line for answer in found for line in _evidence(answer)))
    if shown:
        parts.append(f"Evidence:\n{_fenced(shown)}")
    return "\n\n".join(parts)


def _names(answers: list[Answer]) -> str:
    return ", ".join(_escaped(answer.label or answer.value) for answer in answers)


def _evidence(answer: Answer) -> list[str]:
    evidence = answer.evidence
    if isinstance(evidence, TripleEvidence):
        return ["  ".join(map(_line, triple)) for triple in evidence.triples]
    rows = [
        ", ".join(f"?{name} = {_line(term.get('label') or term['value'])}" for name, term in row.items())
        for row in evidence.rows[:_MOST_ROWS]
    ]
    asked = [] if evidence.boolean is None else [str(evidence.boolean).lower()]
    return [*evidence.sparql.splitlines(), *rows, *asked]


def _called(action: dict[str, Any]) -> str:
    name, *arguments = (_line(str(value)) for value in action.values())
    return f"{name}({', '.join(arguments)})"


def _escaped(text: str) -> str:
    return _MARKUP.sub(lambda found: f"\\{found.group()}", _line(text))


def _line(text: str) -> str:
    return " ".join(text.split())


def _fenced(lines: list[str]) -> str:
    """Lines in a code fence, which clients show without rendering."""
    longest = max((len(run) for line in lines for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * max(3, longest + 1)
    return "\n".join([fence, *lines, fence])


def _usage(usage: Usage) -> ChatUsage:
    return ChatUsage(
        prompt_tokens=usage.prompt_tokens,
        completion_tokens=usage.generated_tokens,
        total_tokens=usage.prompt_tokens + usage.generated_tokens,
    )


def _id(answer: str) -> str:
    return f"chatcmpl-{answer}"


def _data(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False)}\n\n"
