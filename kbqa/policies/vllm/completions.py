"""The request for a completion, and what its answer says."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

from pydantic import BaseModel, Field, FiniteFloat, ValidationError

from kbqa.errors import PolicyUnavailableError
from kbqa.policies.base import Codec, SamplingParams
from kbqa.policies.vllm.client import Answer, decoded
from kbqa.policies.vllm.server import refusal
from kbqa.trajectory import Segment

GENERATE = "/inference/v1/generate"

# Of an answer, for each token (its text and bytes, perhaps twice) and besides. vLLM's have a tenth of that.
_A_TOKEN_BYTES, _BESIDES_BYTES = 2048, 2**20

_WHATEVER_THE_PROMPT = frozenset({401, 403, 404})  # statuses of a server that refuses every completion


def request_bodies(
    prompts: Sequence[Sequence[int]], params: SamplingParams, limit: int, codec: Codec, model: str | None
) -> Iterator[dict[str, Any]]:
    """The request of each prompt.

    Args:
        limit: maximum tokens of a prompt and its completion together.
        codec: a stop string that is one token stops the engine by its id.
        model: name of an adapter; None is the base model.
    """
    common = _sampling(params, codec)
    for index, prompt in enumerate(prompts):
        sampling = common | {"max_tokens": min(params.max_tokens, limit - len(prompt))}
        if params.seed is not None:
            # One stream per sample, so that it does not depend on the rest of the batch.
            sampling["seed"] = random.Random(f"{params.seed}/{index}").getrandbits(62)
        body: dict[str, Any] = {"token_ids": list(prompt), "sampling_params": sampling}
        if model is not None:
            body["model"] = model
        yield body


def longest_answer(body: Mapping[str, Any]) -> int:
    """Maximum bytes of the answer to a request."""
    return _BESIDES_BYTES + _A_TOKEN_BYTES * int(body["sampling_params"]["max_tokens"])


class WrittenToken(BaseModel):
    """A token of a completion; `logprob` is its natural logarithm."""

    token_id: int
    logprob: FiniteFloat


class WrittenTokens(BaseModel):
    """The tokens of a completion, in order."""

    content: list[WrittenToken]


class Span(BaseModel):
    """Tokens that were written with weights of a label."""

    version: str


class Choice(BaseModel):
    """What is read of a completion."""

    finish_reason: str
    token_ids: list[int]
    logprobs: WrittenTokens
    weight_versions: list[Span] | None = None


class _Answer(BaseModel):
    choices: list[Choice] = Field(min_length=1)


def choice_of(url: str, body: Mapping[str, Any], exchange: Future[Answer]) -> Choice | PolicyUnavailableError:
    """What the server has written, or why it has written nothing that can be used.

    Args:
        body: the request.

    Raises:
        PolicyUnavailableError: it refuses all completions: it has no such weights, or no such interface.
    """
    if (error := exchange.exception()) is not None:
        if isinstance(error, PolicyUnavailableError):
            return error
        raise error
    status, answer = decoded(exchange.result())
    if status in _WHATEVER_THE_PROMPT:
        raise refusal(url, GENERATE, status, answer)
    if status != 200:
        return refusal(url, GENERATE, status, answer)
    try:
        choice = _Answer.model_validate(answer).choices[0]
    except ValidationError as invalid:
        fault = invalid.errors(include_url=False)[0]
        where = ".".join(map(str, fault["loc"])) or "the answer"
        return PolicyUnavailableError(
            f"vLLM at {url} answered with no completion: {where}: {fault['msg']}: check what answers there "
            f"(KBQA_VLLM_URL): {str(answer)[:200]}"
        )
    if len(choice.logprobs.content) > (most := body["sampling_params"]["max_tokens"]):
        return PolicyUnavailableError(
            f"vLLM at {url} has written {len(choice.logprobs.content)} tokens, although at most {most} were "
            "asked for: check what answers there (KBQA_VLLM_URL)"
        )
    written = [token.token_id for token in choice.logprobs.content]
    if choice.finish_reason not in ("stop", "length") or written != choice.token_ids:
        return PolicyUnavailableError(f"vLLM at {url} aborted a completion ({choice.finish_reason})")
    return choice


def _sampling(params: SamplingParams, codec: Codec) -> dict[str, Any]:
    """All sampling parameters of a call, so that a model's `generation_config.json` has no effect."""
    spelled = [codec.encode([Segment(stop)]) for stop in params.stop]
    return {
        "temperature": params.temperature,
        "top_p": params.truncation.top_p,
        "top_k": params.truncation.top_k or 0,
        "min_p": 0.0,
        "repetition_penalty": 1.0,
        "presence_penalty": 0.0,
        "frequency_penalty": 0.0,
        "stop": list(params.stop),
        "stop_token_ids": [tokens[0] for tokens in spelled if len(tokens) == 1],
        "skip_special_tokens": False,  # tags are special tokens; skipped, they would never be found
        "logprobs": 0,
    }
