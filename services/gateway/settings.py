"""Settings of the gateway: `KBQA_GATEWAY_…`, and those that all services share."""

from __future__ import annotations

from typing import Literal

from pydantic import AliasChoices, Field

from services.gateway.access.settings import AccessSettings


class GatewaySettings(AccessSettings):
    """Where the gateway finds graphs and policies, and what one question may cost.

    Attributes:
        kg_server_url: where the graphs are (`KBQA_KG_SERVER_URL`).
        kg_server_api_key: for a kg_server that wants one (`KBQA_KG_SERVER_API_KEY`).
        poll_s: how often it looks which policy is promoted, in seconds.
        engine: what computes completions: "transformers" in this process, "vllm", or "external",
            a model of somebody else (`KBQA_GATEWAY_ENGINE`, else `KBQA_ENGINE`).
        vllm_url: the vLLM server whose weights this gateway alone changes
            (`KBQA_GATEWAY_VLLM_URL`, else `KBQA_VLLM_URL`).
        vllm_precision: what that server computes in (its `--dtype`).
        vllm_timeout_s: most time that the completions of a turn may take there.
        chat_url: an OpenAI-compatible API, for instance https://api.openai.com/v1; of the external model.
        chat_model: its name there.
        chat_api_key: sent as a bearer token.
        chat_recipe: says which dialect it plays, within which budgets.
        chat_native_tools: whether it calls functions where the dialect is one of function calls.
        chat_timeout_s: for each of its replies.
        fallback: who answers while the first is not available: "external", or the full id of a
            version in the policy store.
        max_rows: completions computed at a time in this process; each reserves memory.
        concurrency: questions that are answered at the same time.
        queue: questions that may wait for that; one more is answered with 429.
        timeout_s: time for a question that names none, in seconds.
        max_timeout_s: most that a question may ask for.
        max_runs: most runs of a question.
        max_turns: most turns that a question may ask for.
        max_topic_entities: most topic entities of a question, given or found.
        max_question_chars: longer questions are refused.
        max_body_bytes: size of a request.
        cache_bytes: memory for answers that would come out the same again, as JSON.
        keep_alive_s: a stream without an event for as long says that it is still there.
    """

    service = "gateway"

    port: int = Field(8080, ge=1, le=65535)
    kg_server_url: str = Field("http://127.0.0.1:8001", validation_alias="KBQA_KG_SERVER_URL")
    kg_server_api_key: str | None = Field(None, repr=False, validation_alias="KBQA_KG_SERVER_API_KEY")
    engine: Literal["transformers", "vllm", "external"] = Field(
        "transformers", validation_alias=AliasChoices("KBQA_GATEWAY_ENGINE", "KBQA_ENGINE")
    )
    vllm_url: str = Field(
        "http://127.0.0.1:8000", validation_alias=AliasChoices("KBQA_GATEWAY_VLLM_URL", "KBQA_VLLM_URL")
    )
    vllm_precision: Literal["bfloat16", "float32"] = "bfloat16"
    vllm_timeout_s: float = Field(60.0, gt=0)
    chat_url: str | None = None
    chat_model: str | None = None
    chat_api_key: str | None = Field(None, repr=False)
    chat_recipe: str = "kg-r1"
    chat_native_tools: bool = True
    chat_timeout_s: float = Field(60.0, gt=0)
    fallback: str | None = None
    poll_s: float = Field(2.0, gt=0)
    max_rows: int = Field(16, ge=1)
    concurrency: int = Field(32, ge=1)
    queue: int = Field(32, ge=0)
    timeout_s: float = Field(60.0, gt=0)
    max_timeout_s: float = Field(300.0, gt=0)
    max_runs: int = Field(8, ge=1)
    max_turns: int = Field(20, ge=1)
    max_topic_entities: int = Field(16, ge=1)
    max_question_chars: int = Field(2000, ge=1)
    max_body_bytes: int = Field(256 * 2**10, ge=1024)
    cache_bytes: int = Field(32 * 2**20, ge=0)
    keep_alive_s: float = Field(10.0, gt=0)
