"""Settings of kg_server: `KBQA_KG_SERVER_…`, and those that all services share."""

from __future__ import annotations

from pydantic import AliasChoices, Field, SecretStr

from kbqa.errors import ConfigurationError
from kbqa.kg.handlers import Surroundings
from kbqa.kg.ranking.encoders import NGRAM, Encoder, Thresholds
from kbqa.kg.ranking.opening import open_encoder
from kbqa.kg.ranking.ranker import SchemaIndex
from kbqa.kg.store import GraphStore
from services.access.keys import LimitText
from services.access.settings import KeySettings


class KgServerSettings(KeySettings):
    """How graphs are served, and what one request may cost.

    Attributes:
        redis_url: Redis as second tier of the cache (`KBQA_REDIS_URL`, else `REDIS_URL`; default: none).
        max_batch: maximum number of actions in a batch.
        max_items: maximum number of items in an action's result.
        max_body_bytes: maximum size of a request, in bytes.
        max_answer_bytes: maximum size of a batch's answer, in bytes; a larger one gets 413.
        body_timeout_s: timeout for receiving a request's body, in seconds.
        batch_deadline_s: deadline of a batch that contains more than one-hop actions, in seconds from its
            arrival.
        batch_threads: number of such batches that run at a time.
        batch_queue: number of such batches that may wait; further ones get 429.
        encoder: encoder that compares relations and types with the requested text: `ngram`, a directory of
            sentence-transformers, or the URL of an OpenAI-compatible server (`…/v1#model`).
        encoder_high, encoder_low: thresholds instead of the encoder's own (set both or neither).
        encoder_api_key: API key for the encoder's server.
        encoder_timeout_s: timeout for a request to that server, in seconds.
        query_processes: number of SPARQL queries that run at a time.
        endpoint_queries: number of concurrent queries to endpoints.
        query_queue: number of queries of either kind that may wait; further ones get 429.
        query_wait_s: seconds that a query may wait for its turn.
        query_deadline_s: seconds that a query may run before it is killed.
        query_deadline_max_s: seconds that an action may ask for by `timeout_s`, as a recipe's
            `graph.query_timeout_s` does (default: no more than query_deadline_s).
        query_max_rows: maximum number of rows or triples in a result; larger results are truncated and
            marked.
        query_max_bytes: maximum size of a result, in bytes; likewise.
        query_memory_mb: address space of a query process, in MiB.
        concurrency: maximum number of concurrent requests; further ones get 429.
        client_concurrency: the same for one client.
        rate: rate limit of clients without one of their own, such as 100/second (default: no limit).
        look_up_cache_mb: memory for cached answers of one-hop actions, in MiB.
        cache_memory_mb: memory for all other cached answers (the cache's first tier), in MiB.
        cache_max_value_bytes: maximum size of a cached answer, in bytes.
        cache_ttl_s: maximum age of a cached answer, in seconds.
        cache_timeout_s: timeout for Redis, in seconds.
        operations_port: port of probes and metrics if keys are required.
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
    query_deadline_max_s: float | None = Field(None, gt=0, le=3600)
    query_max_rows: int = Field(10_000, ge=1)
    query_max_bytes: int = Field(16 * 2**20, ge=1024)
    query_memory_mb: int = Field(2048, ge=512)
    concurrency: int = Field(256, ge=1)
    client_concurrency: int = Field(128, ge=1)
    rate: LimitText | None = None
    look_up_cache_mb: int = Field(128, ge=0)
    cache_memory_mb: int = Field(64, ge=1)
    cache_max_value_bytes: int = Field(2**20, ge=1024)
    cache_ttl_s: int = Field(86_400, ge=1)
    cache_timeout_s: float = Field(0.1, gt=0)
    operations_port: int = Field(9001, ge=1, le=65535)

    def surroundings(self, store: GraphStore, schema: SchemaIndex) -> Surroundings:
        """The context in which an action on a graph is executed."""
        deadline_s = store.query_deadline_s or self.query_deadline_s
        limits = (self.max_items, deadline_s, self.query_deadline_max_s)
        return Surroundings(store, schema, *limits)

    def open_encoder(self) -> Encoder:
        """Open the encoder from the settings.

        Raises:
            ConfigurationError: the encoder does not exist, or only one threshold is set.
            EncoderUnavailableError: the encoder's server does not answer.
        """
        thresholds = None
        if self.encoder_high is not None and self.encoder_low is not None:
            thresholds = Thresholds(self.encoder_high, self.encoder_low)
        elif self.encoder_high is not None or self.encoder_low is not None:
            raise ConfigurationError(
                "set both KBQA_KG_SERVER_ENCODER_HIGH and KBQA_KG_SERVER_ENCODER_LOW, or neither"
            )
        api_key = self.encoder_api_key.get_secret_value() if self.encoder_api_key is not None else None
        return open_encoder(
            self.encoder, thresholds=thresholds, api_key=api_key, timeout_s=self.encoder_timeout_s
        )
