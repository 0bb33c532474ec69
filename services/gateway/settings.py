"""Settings of the gateway: `KBQA_GATEWAY_…`, and those that all services share."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal

from pydantic import AliasChoices, BeforeValidator, Field
from pydantic_settings import NoDecode

from services.gateway.access.settings import AccessSettings
from services.settings import GraphSettings, comma_separated


def _datasets(value: object) -> object:
    """Read `URI=GRAPH,URI=GRAPH`; a URI may contain `=`."""
    entries = comma_separated(value)
    if not isinstance(entries, tuple):
        return value
    pairs = [entry.rpartition("=") for entry in entries]
    if not all(uri and graph for uri, _, graph in pairs):
        raise ValueError("write URI=GRAPH, separated by commas")
    return {uri: graph for uri, _, graph in pairs}


class GatewaySettings(GraphSettings, AccessSettings):
    """Where the gateway finds graphs and policies, and what one question may cost.

    Attributes:
        poll_s: seconds between checks for a newly promoted policy.
        engine: what computes completions: "transformers" in this process, "vllm", or "external",
            a model behind somebody else's API (`KBQA_GATEWAY_ENGINE`, else `KBQA_ENGINE`).
        vllm_urls: URLs of one or more vLLM servers that only this gateway uses, separated by commas
            (`KBQA_GATEWAY_VLLM_URL`, else `KBQA_VLLM_URL`). The runs of a question stay on one.
        vllm_precision: precision of these servers (their `--dtype`).
        vllm_timeout_s: timeout for a completion, in seconds from sending it to vLLM.
        vllm_update_timeout_s: timeout for loading weights into a server, in seconds; by default 120, and 10
            more for each GB of weights.
        chat_url: OpenAI-compatible API of the external model, for example https://api.openai.com/v1.
        chat_model: name of the external model.
        chat_api_key: API key of the external model, sent as a bearer token.
        chat_recipe: recipe that gives the external model's dialect and budgets.
        chat_native_tools: use native function calls, if the dialect has function calls.
        chat_timeout_s: timeout for each reply of the external model, in seconds.
        chat_rewrites: let the external model, if there is one, write the complete question that a follow-up
            question means; otherwise rules do.
        fallback: what answers while the first choice is not available: "external", or RUN/VERSION with
            the full id of a version in the policy store (default: nothing).
        reader: let the reader answer for graphs that the promoted policy was not trained on, and while no
            policy is available; otherwise the promoted policy answers for every graph. An external engine
            needs no reader.
        rollback: return to the version before if a promoted one answers far fewer questions. Each gateway
            decides for itself, from its latest questions.
        rollback_questions: number of questions of both versions that are compared.
        rollback_errors: by how much the share of failed questions may rise.
        rollback_fall: by how much the share of answered questions may fall.
        max_rows: number of completions computed at a time in this process; each reserves memory.
        concurrency: number of questions answered at a time.
        batch_concurrency: number of lines of batches answered at a time while no other question is being
            answered; otherwise one.
        batch_lines: maximum number of lines of a batch.
        batch_mb: maximum size of a batch, in MB.
        batches_kept: maximum number of batches of each key.
        batches_ttl_s: seconds for which a batch is kept after its last answer.
        queue: number of questions that may wait; further ones get 429.
        timeout_s: default timeout of a question, in seconds.
        max_timeout_s: largest timeout that a request may set, in seconds.
        max_runs: maximum number of runs per question.
        max_turns: largest number of turns that a request may set.
        max_topic_entities: maximum number of topic entities per question, given or found.
        max_question_chars: maximum length of a question, in characters.
        max_body_bytes: maximum size of a request, in bytes.
        cache_bytes: memory for cached answers, as JSON, in bytes; 0 disables the cache.
        datasets: names of graphs for clients of the TEXT2SPARQL protocol, as `URI=GRAPH`, separated by
            commas: https://text2sparql.aksw.org/2025/corporate/=ck25. A graph's own name needs no entry.
        keep_alive_s: seconds without an event after which a stream sends a keep-alive comment.
    """

    service = "gateway"

    port: int = Field(8080, ge=1, le=65535)
    engine: Literal["transformers", "vllm", "external"] = Field(
        "transformers", validation_alias=AliasChoices("KBQA_GATEWAY_ENGINE", "KBQA_ENGINE")
    )
    vllm_urls: Annotated[tuple[str, ...], NoDecode, BeforeValidator(comma_separated)] = Field(
        ("http://127.0.0.1:8000",),
        min_length=1,
        validation_alias=AliasChoices("KBQA_GATEWAY_VLLM_URL", "KBQA_VLLM_URL"),
    )
    vllm_precision: Literal["bfloat16", "float32"] = "bfloat16"
    vllm_timeout_s: float = Field(60.0, gt=0)
    vllm_update_timeout_s: float | None = Field(None, gt=0)
    chat_url: str | None = None
    chat_model: str | None = None
    chat_api_key: str | None = Field(None, repr=False)
    chat_recipe: str = "kg-r1"
    chat_native_tools: bool = True
    chat_timeout_s: float = Field(60.0, gt=0)
    chat_rewrites: bool = True
    fallback: str | None = None
    reader: bool = True
    poll_s: float = Field(2.0, gt=0)
    rollback: bool = True
    rollback_questions: int = Field(50, ge=1)
    rollback_errors: float = Field(0.1, ge=0, le=1)
    rollback_fall: float = Field(0.3, ge=0, le=1)
    max_rows: int = Field(16, ge=1)
    concurrency: int = Field(32, ge=1)
    queue: int = Field(32, ge=0)
    batch_concurrency: int = Field(4, ge=1)
    batch_lines: int = Field(50_000, ge=1)
    batch_mb: int = Field(16, ge=1)
    batches_kept: int = Field(20, ge=1)
    batches_ttl_s: float = Field(7 * 86400.0, gt=0)
    timeout_s: float = Field(60.0, gt=0)
    max_timeout_s: float = Field(300.0, gt=0)
    max_runs: int = Field(8, ge=1)
    max_turns: int = Field(20, ge=1)
    max_topic_entities: int = Field(16, ge=1)
    max_question_chars: int = Field(2000, ge=1)
    max_body_bytes: int = Field(256 * 2**10, ge=1024)
    cache_bytes: int = Field(32 * 2**20, ge=0)
    datasets: Annotated[Mapping[str, str], NoDecode, BeforeValidator(_datasets)] = Field(default_factory=dict)
    keep_alive_s: float = Field(10.0, gt=0)
