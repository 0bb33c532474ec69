"""Settings of access to the gateway and of what it stores: `KBQA_GATEWAY_…`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

from pydantic import AliasChoices, BeforeValidator, Field
from pydantic_settings import NoDecode

from services.access.keys import LimitText
from services.http import LOOPBACK
from services.settings import ServiceSettings, comma_separated


class AccessSettings(ServiceSettings):
    """The gateway's settings for callers.

    Attributes:
        require_keys: require API keys for everything except health checks (default: true if the file of
            keys exists when the gateway starts).
        keys_file: file of the keys (default: HOME/gateway/keys.json).
        operations_port: port of the metrics if keys are required.
        redis_url: Redis in which all gateways together count requests and keep answers
            (`KBQA_REDIS_URL`, else `REDIS_URL`; default: each gateway does so for itself).
        rate: rate limit of keys without one of their own or, without keys, of each address (default: none).
        quota: the same for the number of questions.
        min_confidence: confidence and presence below which answers are withheld from keys without a threshold
            of their own, or, without keys, from everybody; requests may name another.
        counts_without_redis: if Redis does not answer, each gateway counts for itself ("local"), or
            rejects requests that must be counted ("refuse").
        redis_timeout_s: timeout for Redis, in seconds.
        audit_log: file that gets one line per request (default: the service's log).
        audit_questions: include the question in that line.
        audit_mb: size at which that file is rotated, in MB; two older files are kept.
        open_page: load the page's files, which contain no data, without a key; the page then asks for a
            key, instead of the browser.
        trusted_proxies: addresses and networks of proxies, such as 10.0.0.0/8, separated by commas. Without
            keys, limits apply to each address, and a proxy's `X-Forwarded-For` says which address asks.
        cors_origins: origins of other sites whose pages may ask, separated by commas.
        body_timeout_s: timeout for receiving a request's body, in seconds.
        answers_ttl_s: seconds for which an answer can be read again and its Idempotency-Key is remembered.
        answers_kept: maximum number of such answers of each key; the oldest are dropped.
        answers_mb: maximum size of such answers and sessions of all keys, compressed in Redis, in MB; the
            oldest are dropped.
        feedback_file: file of the feedback (default: HOME/gateway/feedback.jsonl). Gateways on several
            machines need different files; `kbqa feedback export` reads all HOME/gateway/feedback*.jsonl.
        feedback_mb: maximum size of the feedback, in MB; more is rejected.
        default_graph: graph for chat clients whose model names none; required if there are several graphs.
    """

    require_keys: bool | None = None
    keys_file: Path | None = None
    operations_port: int = Field(9080, ge=1, le=65535)
    redis_url: str | None = Field(None, validation_alias=AliasChoices("KBQA_REDIS_URL", "REDIS_URL"))
    rate: LimitText | None = None
    quota: LimitText | None = None
    min_confidence: float = Field(0.5, ge=0, le=1)
    counts_without_redis: Literal["local", "refuse"] = "local"
    redis_timeout_s: float = Field(0.5, gt=0)
    audit_log: Path | None = None
    audit_questions: bool = False
    audit_mb: int = Field(64, ge=1)
    open_page: bool = False
    trusted_proxies: Annotated[tuple[str, ...], NoDecode, BeforeValidator(comma_separated)] = LOOPBACK
    cors_origins: Annotated[tuple[str, ...], NoDecode, BeforeValidator(comma_separated)] = ()
    body_timeout_s: float = Field(10.0, gt=0)
    answers_ttl_s: int = Field(3600, ge=1)
    answers_kept: int = Field(1000, ge=1)
    answers_mb: int = Field(64, ge=8)
    feedback_file: Path | None = None
    feedback_mb: int = Field(256, ge=1)
    default_graph: str | None = None

    @property
    def keys_path(self) -> Path:
        """File of the keys."""
        return self.keys_file or keys_path(self.home)


def keys_path(home: Path) -> Path:
    """Default file of the keys."""
    return home / "gateway" / "keys.json"
