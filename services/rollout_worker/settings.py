"""Settings of the rollout worker: `KBQA_ROLLOUT_WORKER_…`, and those that all services share."""

from __future__ import annotations

from pydantic import AliasChoices, Field

from services.settings import ServiceSettings


class RolloutWorkerSettings(ServiceSettings):
    """How rollouts are run.

    Attributes:
        broker_url: the queues (`KBQA_BROKER_URL`, else `KBQA_REDIS_URL` or `REDIS_URL`).
        kg_server_url: the graphs (`KBQA_KG_SERVER_URL`).
        kg_server_api_key: for a kg_server that wants one (`KBQA_KG_SERVER_API_KEY`).
        concurrency: requests worked on at a time.
        max_rows: completions computed at a time; more wait.
        threads: threads that the engine computes with.
        policy_wait_s: how long a request waits for a version that is new enough.
        graph_wait_s: how long a request waits for kg_server to come back.
        rollout_timeout_s: after that, the episodes of a request that still run time out.
        deliver_wait_s: how long a reply waits for the broker to come back.
        visibility_timeout_s: after that, Redis gives a dead worker's requests to another one.
    """

    service = "rollout_worker"

    port: int = Field(8002, ge=1, le=65535)
    broker_url: str = Field(
        "redis://127.0.0.1:6379/0",
        validation_alias=AliasChoices("KBQA_BROKER_URL", "KBQA_REDIS_URL", "REDIS_URL"),
    )
    kg_server_url: str = Field("http://127.0.0.1:8001", validation_alias="KBQA_KG_SERVER_URL")
    kg_server_api_key: str | None = Field(None, repr=False, validation_alias="KBQA_KG_SERVER_API_KEY")
    concurrency: int = Field(32, ge=1)
    max_rows: int = Field(64, ge=1)
    threads: int = Field(1, ge=1)
    policy_wait_s: float = Field(30.0, ge=0)
    graph_wait_s: float = Field(30.0, ge=0)
    rollout_timeout_s: float = Field(300.0, gt=0)
    deliver_wait_s: float = Field(60.0, ge=0)
    visibility_timeout_s: float = Field(120.0, gt=0)
