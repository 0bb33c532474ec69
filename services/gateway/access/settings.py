"""Settings of who may ask the gateway, and of what is kept: `KBQA_GATEWAY_…`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, BeforeValidator, Field
from pydantic_settings import NoDecode

from services.gateway.access.keys import LimitText
from services.settings import ServiceSettings, comma_separated


class AccessSettings(ServiceSettings):
    """The part of the gateway's settings that is about its callers.

    Attributes:
        require_keys: whether only health answers those without a key; unless set, whether there is
            a file of keys when the gateway starts.
        keys_file: HOME/gateway/keys.json unless given.
        operations_port: where metrics are when keys are required.
        redis_url: counts requests and keeps answers for all gateways together (`KBQA_REDIS_URL`, else
            `REDIS_URL`); each does so by itself when unset.
        rate: requests of a key that has no rate of its own, or of an address where no keys are required.
        quota: questions, likewise.
        counts_without_redis: when Redis does not answer, each gateway counts by itself ("local"), or
            requests that have to be counted are refused ("refuse").
        redis_timeout_s: how long Redis is waited for.
        audit_log: file that gets a line for each request; the log of the service when unset.
        audit_questions: whether the line holds the question.
        audit_mb: size of that file; two as large are kept beside it.
        open_page: whether the page's files, which hold no data, load without a key; the page asks for one
            then, and else the browser does.
        cors_origins: sites whose pages may ask, separated by commas.
        body_timeout_s: how long a request's body may take to arrive.
        answers_ttl_s: how long an answer can be read again, and its Idempotency-Key is remembered.
        answers_kept: how many, the newest.
        feedback_file: that keeps feedback; HOME/gateway/feedback.jsonl unless given. Gateways of several
            machines need one each; all that are called HOME/gateway/feedback*.jsonl are read together.
        feedback_mb: how much feedback is kept; more is refused.
        default_graph: that chat clients ask about whose model names none; needed where there are several.
    """

    require_keys: bool | None = None
    keys_file: Path | None = None
    operations_port: int = Field(9080, ge=1, le=65535)
    redis_url: str | None = Field(None, validation_alias=AliasChoices("KBQA_REDIS_URL", "REDIS_URL"))
    rate: LimitText | None = None
    quota: LimitText | None = None
    counts_without_redis: Literal["local", "refuse"] = "local"
    redis_timeout_s: float = Field(0.5, gt=0)
    audit_log: Path | None = None
    audit_questions: bool = False
    audit_mb: int = Field(64, ge=1)
    open_page: bool = False
    cors_origins: Annotated[tuple[str, ...], NoDecode, BeforeValidator(comma_separated)] = ()
    body_timeout_s: float = Field(10.0, gt=0)
    answers_ttl_s: int = Field(3600, ge=1)
    answers_kept: int = Field(1000, ge=1)
    feedback_file: Path | None = None
    feedback_mb: int = Field(256, ge=1)
    default_graph: str | None = None

    @property
    def keys_path(self) -> Path:
        """Where the keys are kept."""
        return self.keys_file or keys_path(self.home)


def keys_path(home: Path) -> Path:
    """Where keys are kept unless a file is named."""
    return home / "gateway" / "keys.json"
