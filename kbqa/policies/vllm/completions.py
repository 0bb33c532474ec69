"""The request for a completion, and what its answer says."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from typing import Any

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


def choice_of(
    url: str, body: Mapping[str, Any], exchange: Future[Answer]
) -> dict[str, Any] | PolicyUnavailableError:
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
        choice: dict[str, Any] = answer["choices"][0]
        reason = choice["finish_reason"]
        written = [entry["token_id"] for entry in choice["logprobs"]["content"]]
    except (KeyError, IndexError, TypeError):
        return refusal(url, GENERATE, status, answer)
    if len(written) > (most := body["sampling_params"]["max_tokens"]):
        return PolicyUnavailableError(
            f"vLLM at {url} has written {len(written)} tokens, although at most {most} were asked for: check "
            "what answers there (KBQA_VLLM_URL)"
        )
    if reason not in ("stop", "length") or written != choice["token_ids"]:
        return PolicyUnavailableError(f"vLLM at {url} aborted a completion ({reason})")
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
