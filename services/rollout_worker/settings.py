"""Settings of the rollout worker: `KBQA_ROLLOUT_WORKER_…`, and those that all services share."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import AliasChoices, BeforeValidator, Field, model_validator
from pydantic_settings import NoDecode

from services.settings import QueueSettings, comma_separated


class RolloutWorkerSettings(QueueSettings):
    """How rollouts are run.

    Attributes:
        engine: what computes completions: "transformers" in this process, or "vllm"
            (`KBQA_ROLLOUT_WORKER_ENGINE`, else `KBQA_ENGINE`).
        vllm_urls: URLs of one or more vLLM servers that only this worker uses, separated by commas
            (`KBQA_ROLLOUT_WORKER_VLLM_URL`, else `KBQA_VLLM_URL`). The episodes of a question stay on one.
        vllm_precision: precision of these servers (their `--dtype`). It determines how closely their
            log-probabilities must agree with the trainer's.
        vllm_timeout_s: timeout for a completion, in seconds from sending it to vLLM. A completion that takes
            longer costs its episode.
        vllm_max_in_flight: number of completions sent to each server at a time; further ones wait here. It
            should be at least the server's `--max-num-seqs`.
        vllm_update_timeout_s: timeout for loading weights into a server, in seconds; by default 120, and 10
            more for each GB of weights.
        weights_from: host:port of the trainer's KBQA_TRAINER_WEIGHTS_PORT, from where whole weights are sent
            straight into the vLLM servers; by default they read files. Files are also the way out if that
            fails.
        concurrency: number of requests played at a time.
        max_rows: number of completions computed at a time in this process; further ones wait.
        threads: number of threads of the in-process engine.
        policy_wait_s: seconds that a request waits for a version that is new enough.
        graph_wait_s: seconds that a request waits for the kg_server to come back.
        rollout_timeout_s: timeout for the episodes of a request, in seconds. A recipe with a longer
            `schedule.request_deadline_s` gets that.
        deliver_wait_s: seconds that a reply waits for the broker to come back.
        visibility_timeout_s: seconds after which Redis gives a dead worker's requests to another one. It
            must exceed all timeouts above, and bounds a recipe's; otherwise Redis would also give away
            requests in progress.
    """

    service = "rollout_worker"

    port: int = Field(8002, ge=1, le=65535)
    engine: Literal["transformers", "vllm"] = Field(
        "transformers", validation_alias=AliasChoices("KBQA_ROLLOUT_WORKER_ENGINE", "KBQA_ENGINE")
    )
    vllm_urls: Annotated[tuple[str, ...], NoDecode, BeforeValidator(comma_separated)] = Field(
        ("http://127.0.0.1:8000",),
        min_length=1,
        validation_alias=AliasChoices("KBQA_ROLLOUT_WORKER_VLLM_URL", "KBQA_VLLM_URL"),
    )
    vllm_precision: Literal["bfloat16", "float32"] = "bfloat16"
    vllm_timeout_s: float = Field(600.0, gt=0)
    vllm_max_in_flight: int = Field(1024, ge=1)
    vllm_update_timeout_s: float | None = Field(None, gt=0)
    weights_from: Annotated[str, Field(pattern=r"^[^:/]+:[0-9]{1,5}$")] | None = None
    concurrency: int = Field(32, ge=1)
    max_rows: int = Field(64, ge=1)
    threads: int = Field(1, ge=1)
    policy_wait_s: float = Field(30.0, ge=0)
    graph_wait_s: float = Field(30.0, ge=0)
    rollout_timeout_s: float = Field(300.0, gt=0)
    deliver_wait_s: float = Field(60.0, ge=0)
    visibility_timeout_s: float = Field(7200.0, gt=0)

    @property
    def longest_rollout_s(self) -> float:
        """Seconds that the episodes of a request may take before Redis gives it to another worker."""
        return self.visibility_timeout_s - self.policy_wait_s - self.graph_wait_s - self.deliver_wait_s

    def sender(self) -> tuple[str, int] | None:
        """Address of the trainer's sender of weights."""
        if self.weights_from is None:
            return None
        host, _, port = self.weights_from.rpartition(":")
        return host, int(port)

    @model_validator(mode="after")
    def _longer_than_any_request(self) -> Self:
        if self.longest_rollout_s <= self.rollout_timeout_s:
            longest_s = self.visibility_timeout_s - self.longest_rollout_s + self.rollout_timeout_s
            raise ValueError(
                f"KBQA_ROLLOUT_WORKER_VISIBILITY_TIMEOUT_S: must exceed {longest_s:g} s, the longest time "
                f"that the other timeouts allow for a request (it is {self.visibility_timeout_s:g})"
            )
        return self
