"""Settings of kg_server: `KBQA_KG_SERVER_…`, and those that all services share."""

from __future__ import annotations

from pathlib import Path

from pydantic import AliasChoices, Field, SecretStr

from kbqa.errors import ConfigurationError
from kbqa.kg.ranking.encoders import NGRAM, Encoder, Thresholds
from kbqa.kg.ranking.opening import open_encoder
from services.settings import ServiceSettings


class KgServerSettings(ServiceSettings):
    """How graphs are served, and what one request may cost.

    Attributes:
        redis_url: second tier of the cache (`KBQA_REDIS_URL`, else `REDIS_URL`); none when unset.
        max_batch: actions in a batch.
        max_items: items in an action's result.
        max_body_bytes: size of a request.
        max_answer_bytes: size of a batch's answer; a larger one is refused with 413.
        body_timeout_s: how long a request's body may take to arrive.
        batch_deadline_s: seconds for a batch with more than one-hop actions, from its arrival.
        batch_threads: such batches that run at the same time.
        batch_queue: such batches that may wait; one more is answered with 429.
        encoder: compares relations and types with what is asked for: `ngram`, a directory of
            sentence-transformers, or the URL of an OpenAI-compatible server (`…/v1#model`).
        encoder_high, encoder_low: thresholds in place of the encoder's own (both or none).
        encoder_api_key: for the encoder's server.
        encoder_timeout_s: for a request to it.
        query_processes: SPARQL queries that run at the same time.
        endpoint_queries: queries that are sent to endpoints at the same time.
        query_queue: queries of either that may wait; one more is answered with 429.
        query_wait_s: how long a query may wait for its turn.
        query_deadline_s: seconds after which a query is killed, once it runs.
        query_max_rows: rows or triples of a query's result; the rest is cut and flagged.
        query_max_bytes: size of a query's result, likewise.
        query_memory_mb: address space of a query process, in MiB.
        concurrency: requests under way; one more is answered with 429.
        client_concurrency: of one client, likewise.
        client_requests_per_s: requests a second of one client, likewise; no limit when unset.
        look_up_cache_mb: size of the answers of one-hop actions that are kept, in MiB.
        cache_memory_mb: size of the cache's first tier, in MiB.
        cache_max_value_bytes: larger answers are not kept.
        cache_ttl_s: how long an answer stays.
        cache_timeout_s: how long Redis is waited for, at most.
        api_keys: keys that are accepted, separated by commas; everybody is when unset.
        api_keys_file: file of the names and hashes of further ones.
        operations_port: where probes and metrics are when keys are required.
    """

    service = "kg_server"

    port: int = Field(8001, ge=1, le=65535)
    redis_url: str | None = Field(None, validation_alias=AliasChoices("KBQA_REDIS_URL", "REDIS_URL"))
    max_batch: int = Field(1024, ge=256)
    max_items: int = Field(1000, ge=1)
    max_body_bytes: int = Field(8 * 2**20, ge=1024)
    max_answer_bytes: int = Field(32 * 2**20, ge=2**20)
    body_timeout_s: float = Field(10.0, gt=0)
    batch_deadline_s: float = Field(20.0, gt=0)
    batch_threads: int = Field(8, ge=1)
    batch_queue: int = Field(64, ge=0)
    encoder: str = NGRAM
    encoder_high: float | None = Field(None, ge=-1, le=1)
    encoder_low: float | None = Field(None, ge=-1, le=1)
    encoder_api_key: SecretStr | None = None
    encoder_timeout_s: float = Field(10.0, gt=0)
    query_processes: int = Field(2, ge=1)
    endpoint_queries: int = Field(16, ge=1)
    query_queue: int = Field(32, ge=0)
    query_wait_s: float = Field(5.0, gt=0)
    query_deadline_s: float = Field(3.0, gt=0)
    query_max_rows: int = Field(10_000, ge=1)
    query_max_bytes: int = Field(16 * 2**20, ge=1024)
    query_memory_mb: int = Field(2048, ge=512)
    concurrency: int = Field(256, ge=1)
    client_concurrency: int = Field(128, ge=1)
    client_requests_per_s: float | None = Field(None, gt=0)
    look_up_cache_mb: int = Field(128, ge=0)
    cache_memory_mb: int = Field(64, ge=1)
    cache_max_value_bytes: int = Field(2**20, ge=1024)
    cache_ttl_s: int = Field(86_400, ge=1)
    cache_timeout_s: float = Field(0.1, gt=0)
    api_keys: SecretStr | None = None
    api_keys_file: Path | None = None
    operations_port: int = Field(9001, ge=1, le=65535)

    def open_encoder(self) -> Encoder:
        """The encoder that is set.

        Raises:
            ConfigurationError: there is none such, or only one threshold is set.
            EncoderUnavailableError: its server does not answer.
        """
        thresholds = None
        if self.encoder_high is not None and self.encoder_low is not None:
            thresholds = Thresholds(self.encoder_high, self.encoder_low)
        elif self.encoder_high is not None or self.encoder_low is not None:
            raise ConfigurationError(
                "set KBQA_KG_SERVER_ENCODER_HIGH and KBQA_KG_SERVER_ENCODER_LOW, or none"
            )
        api_key = self.encoder_api_key.get_secret_value() if self.encoder_api_key is not None else None
        return open_encoder(
            self.encoder, thresholds=thresholds, api_key=api_key, timeout_s=self.encoder_timeout_s
        )
