"""The request and response of each call, shared by both clients."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, TypedDict, TypeVar
from urllib.parse import quote

import httpx
from pydantic import BaseModel, ValidationError

from kbqa.client.batches import BatchAnswer, BatchesModel, BatchLine, BatchModel
from kbqa.client.errors import GatewayError, GatewayFailedError, GatewayUnreachableError, error_of
from kbqa.client.events import EVENT, ErrorEvent, Event
from kbqa.client.models import AnswerResponse, FeedbackReceipt, GraphsModel, PoliciesModel, Verdict
from kbqa.tracing import outgoing_headers

ModelT = TypeVar("ModelT", bound=BaseModel)


class AnswerOptions(TypedDict, total=False):
    """Optional fields of a request besides question and graph; see `AnswerRequest`."""

    topic_entities: Sequence[str]
    graph: str
    recipe: str
    n_runs: int
    max_turns: int
    timeout_s: float
    require_evidence: bool
    min_confidence: float


@dataclass(frozen=True, slots=True)
class Call(Generic[ModelT]):
    """A request, and the model of its response."""

    method: str
    path: str
    model: type[ModelT]
    body: Mapping[str, Any] | bytes | None = None
    headers: Mapping[str, str] = field(default_factory=dict)

    def request(self) -> dict[str, Any]:
        """Arguments of httpx's `request` and `stream`."""
        headers = {**outgoing_headers(), **self.headers}
        body = {"content" if isinstance(self.body, bytes) else "json": self.body}
        return {"method": self.method, "url": self.path, "headers": headers, **body}

    def result(self, response: httpx.Response) -> ModelT:
        """Read the response.

        Raises:
            GatewayError: the request was refused, or the response is not a gateway's.
        """
        require_success(response)
        try:
            return self.model.model_validate_json(response.content)
        except ValidationError as error:
            raise no_gateway(response) from error


def answer_call(
    question: str,
    kg: str,
    options: AnswerOptions,
    *,
    stream: bool = False,
    idempotency_key: str | None = None,
    fresh: bool = False,
) -> Call[AnswerResponse]:
    body = {"question": question, "kg": kg, **options, **({"stream": True} if stream else {})}
    headers = {
        **({"Idempotency-Key": idempotency_key} if idempotency_key is not None else {}),
        **({"Cache-Control": "no-cache"} if fresh else {}),
    }
    return Call("POST", "/v1/answer", AnswerResponse, body, headers)


def read_call(answer_id: str) -> Call[AnswerResponse]:
    return Call("GET", f"/v1/answers/{quote(answer_id, safe='')}", AnswerResponse)


def feedback_call(
    answer_id: str, verdict: Verdict, answers: Sequence[str] | None, comment: str | None
) -> Call[FeedbackReceipt]:
    body = {"answer_id": answer_id, "verdict": verdict, "answers": answers, "comment": comment}
    return Call("POST", "/v1/feedback", FeedbackReceipt, {k: v for k, v in body.items() if v is not None})


def policies_call(kg: str | None) -> Call[PoliciesModel]:
    asked = "" if kg is None else f"?kg={quote(kg, safe='')}"
    return Call("GET", f"/v1/policies{asked}", PoliciesModel)


def send_batch_call(lines: Iterable[BatchLine], idempotency_key: str | None) -> Call[BatchModel]:
    text = "".join(f"{line.model_dump_json(exclude_defaults=True)}\n" for line in lines)
    headers = {"Content-Type": "application/x-ndjson"}
    if idempotency_key is not None:
        headers["Idempotency-Key"] = idempotency_key
    return Call("POST", "/v1/batches", BatchModel, text.encode(), headers)


def batch_call(batch_id: str, method: str = "GET", beneath: str = "") -> Call[BatchModel]:
    return Call(method, f"/v1/batches/{quote(batch_id, safe='')}{beneath}", BatchModel)


class BatchAnswers:
    """Reads the answers of a batch from the chunks of a response, whose lines end at line feeds alone."""

    def __init__(self, response: httpx.Response) -> None:
        self._response, self._rest = response, b""

    def of(self, chunk: bytes) -> list[BatchAnswer]:
        """The answers that the next chunk completes.

        Raises:
            GatewayError: a line is not an answer.
        """
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        try:
            return [BatchAnswer.model_validate_json(line) for line in lines]
        except ValidationError as error:
            raise no_gateway(self._response) from error


BATCHES: Call[BatchesModel] = Call("GET", "/v1/batches", BatchesModel)
GRAPHS: Call[GraphsModel] = Call("GET", "/v1/kg", GraphsModel)


def require_success(response: httpx.Response) -> None:
    """Check that a response is a success; its body must have been read.

    Raises:
        GatewayError: the response is a problem document, or not a gateway's.
    """
    if response.is_success:
        return
    try:
        problem = response.json()
        detail, kind = problem["detail"], problem["type"].rpartition(":")[2]
    except (ValueError, KeyError, TypeError, AttributeError):
        raise no_gateway(response) from None
    raise error_of(response.status_code, detail, "" if kind == "blank" else kind, response.headers)


def event_of(data: str, response: httpx.Response) -> Event:
    """Read an event of a stream.

    Raises:
        GatewayError: the event is an error, or the data is not an event.
    """
    try:
        event = EVENT.validate_json(data)
    except ValidationError as error:
        raise no_gateway(response) from error
    if isinstance(event, ErrorEvent):
        problem = event.problem
        raise error_of(problem.status, problem.detail, problem.type.rpartition(":")[2], response.headers)
    return event


def no_gateway(response: httpx.Response) -> GatewayError:
    """The error for a response that is not from a gateway, or from one of another release."""
    return GatewayFailedError(
        f"{response.request.url} answered {response.status_code}, but not like a gateway of this release: "
        "check the URL and the gateway's version",
        status=response.status_code,
    )


def unreachable(url: str, error: httpx.HTTPError | httpx.InvalidURL) -> GatewayError:
    """The error for a gateway that does not answer."""
    if isinstance(error, httpx.TimeoutException) and not isinstance(error, httpx.ConnectTimeout):
        return GatewayUnreachableError(
            f"the gateway at {url} did not answer in time: allow more time, or ask for less"
        )
    return GatewayUnreachableError(
        f"no gateway answers at {url} ({error or type(error).__name__}): start everything with kbqa up, "
        "or give its URL (kbqa ask: by --gateway or KBQA_GATEWAY_URL)"
    )
