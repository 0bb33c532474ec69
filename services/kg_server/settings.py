"""Settings of kg_server: `KBQA_KG_SERVER_…`, and those that all services share."""

from __future__ import annotations

from pydantic import AliasChoices, Field, SecretStr

from kbqa.errors import ConfigurationError
from kbqa.kg.encoders import NGRAM, Encoder, Thresholds, open_encoder
from services.settings import ServiceSettings


class KgServerSettings(ServiceSettings):
    """How graphs are served, and what one request may cost.

    Attributes:
        redis_url: cache of SPARQL results (`KBQA_REDIS_URL`, else `REDIS_URL`); none when unset.
        max_batch: actions in a batch.
        max_items: items in an action's result.
        max_body_bytes: size of a request.
        encoder: compares relations and types with what is asked for: `ngram`, a directory of
            sentence-transformers, or the URL of an OpenAI-compatible server (`…/v1#model`).
        encoder_high, encoder_low: thresholds in place of the encoder's own (both or none).
        encoder_api_key: for the encoder's server.
        encoder_timeout_s: for a request to it.
        query_processes: SPARQL queries that run at the same time.
        query_queue: queries that may wait for a process; one more is answered with 429.
        query_deadline_s: seconds after which a query is killed.
        query_max_rows: rows or triples of a query's result; the rest is cut and flagged.
        query_max_bytes: size of a query's result, likewise.
        query_memory_mb: address space of a query process, in MiB.
        cache_ttl_s: how long a SPARQL result stays in Redis.
        cache_timeout_s: how long Redis is waited for, at most.
    """

    service = "kg_server"

    port: int = Field(8001, ge=1, le=65535)
    redis_url: str | None = Field(None, validation_alias=AliasChoices("KBQA_REDIS_URL", "REDIS_URL"))
    max_batch: int = Field(1024, ge=256)
    max_items: int = Field(1000, ge=1)
    max_body_bytes: int = Field(8 * 2**20, ge=1024)
    encoder: str = NGRAM
    encoder_high: float | None = Field(None, ge=-1, le=1)
    encoder_low: float | None = Field(None, ge=-1, le=1)
    encoder_api_key: SecretStr | None = None
    encoder_timeout_s: float = Field(10.0, gt=0)
    query_processes: int = Field(2, ge=1)
    query_queue: int = Field(16, ge=0)
    query_deadline_s: float = Field(3.0, gt=0)
    query_max_rows: int = Field(10_000, ge=1)
    query_max_bytes: int = Field(16 * 2**20, ge=1024)
    query_memory_mb: int = Field(2048, ge=512)
    cache_ttl_s: int = Field(86_400, ge=1)
    cache_timeout_s: float = Field(0.1, gt=0)

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
