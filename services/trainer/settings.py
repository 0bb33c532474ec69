"""Settings of the trainer: `KBQA_TRAINER_…`, and those that all services share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from pydantic import AliasChoices, BeforeValidator, Field
from pydantic_settings import NoDecode

from services.settings import ServiceSettings, comma_separated
from services.trainer.sinks import SinkName


class TrainerSettings(ServiceSettings):
    """How runs are kept alive. What a run learns, and how fast, is its recipe's business.

    Attributes:
        broker_url: the queues (`KBQA_BROKER_URL`, else `KBQA_REDIS_URL` or `REDIS_URL`).
        broker_wait_s: how long the service waits for them when it starts.
        kg_server_url: the graphs (`KBQA_KG_SERVER_URL`).
        kg_server_api_key: for a kg_server that wants one (`KBQA_KG_SERVER_API_KEY`).
        data: directory of data sets that are not generated (`KBQA_DATA`).
        processes: processes that reinforcement learning is sharded over (`KBQA_TRAINING_PROCESSES`), as
            many as there are GPUs; each has `threads` threads.
        threads: threads that training computes with. A small policy gains nothing by a second one,
            and loses as soon as anything else runs on the same cores.
        auto_resume: whether a run that was going on when the trainer ended goes on when it starts.
        max_restarts: how often in a row a training process that dies without a step forward is
            started again.
        graph_wait_s: how long a run waits for kg_server when it starts.
        traces: steps of a run whose rollouts are kept as text, to be looked at: a third the newest,
            older ones ever farther apart; 0 keeps none.
        sinks: where records go beside the run's own files, a list with commas: tensorboard, wandb.
    """

    service = "trainer"

    port: int = Field(8003, ge=1, le=65535)
    broker_url: str = Field(
        "redis://127.0.0.1:6379/0",
        validation_alias=AliasChoices("KBQA_BROKER_URL", "KBQA_REDIS_URL", "REDIS_URL"),
    )
    broker_wait_s: float = Field(5.0, ge=0)
    kg_server_url: str = Field("http://127.0.0.1:8001", validation_alias="KBQA_KG_SERVER_URL")
    kg_server_api_key: str | None = Field(None, repr=False, validation_alias="KBQA_KG_SERVER_API_KEY")
    data: Path | None = Field(None, validation_alias="KBQA_DATA")
    processes: int = Field(1, ge=1, validation_alias="KBQA_TRAINING_PROCESSES")
    threads: int = Field(1, ge=1)
    auto_resume: bool = True
    max_restarts: int = Field(5, ge=0)
    graph_wait_s: float = Field(60.0, ge=0)
    traces: int = Field(150, ge=0)
    sinks: Annotated[tuple[SinkName, ...], NoDecode, BeforeValidator(comma_separated)] = ()
