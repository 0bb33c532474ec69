"""Settings of the trainer: `KBQA_TRAINER_…`, and those that all services share."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator
from pydantic_settings import NoDecode

from kbqa.recipes.reach import Reach
from services.access.settings import KeySettings
from services.settings import QueueSettings, comma_separated, data_directory
from services.trainer.sinks import SinkName

Texts = Annotated[tuple[str, ...], NoDecode, BeforeValidator(comma_separated)]


class TrainerSettings(QueueSettings, KeySettings):
    """How the trainer keeps runs alive. What a run learns, and how fast, is set by its recipe.

    Attributes:
        data: directory of data sets that are not generated (`KBQA_DATA`; default: HOME/data).
        processes: number of processes of this machine that share the training
            (`KBQA_TRAINING_PROCESSES`), one for each GPU; each has `threads` threads.
        nodes: number of machines that share it (`KBQA_TRAINING_NODES`), with as many processes each. All
            mount KBQA_HOME at the same path.
        node_rank: number of this machine (`KBQA_TRAINING_NODE_RANK`). 0 is the trainer's; the others run
            `services.trainer.launch`.
        rendezvous: HOST:PORT of the trainer's machine, at which the others find it
            (`KBQA_TRAINING_RENDEZVOUS`).
        threads: number of threads of each process for computing on the CPU; None means one without GPUs,
            and each process's share of the cores with them. With a small policy, a second thread gains
            nothing, and slows training down if anything else runs on the same cores. With GPUs, the probe of
            a model that is sharded is taken on the host.
        device: "cuda" fails a run if torch finds no GPU; "auto" then trains it on the CPU, and logs a warning
            if torch is built for GPUs. If only some of the processes have a GPU, either fails it.
        auto_resume: resume an unfinished run when the trainer starts.
        stop_wait_s: seconds that a run which is stopped on request has for its checkpoint.
        max_restarts: how often in a row a training process is restarted that dies without completing a
            step.
        graph_wait_s: seconds that a run waits for the kg_server when it starts.
        traces: number of steps of a run whose rollouts are kept as text. A third of them are the newest
            steps; older ones are spaced farther and farther apart. 0 keeps none.
        recipe_urls: URLs that recipes of requests may name, such as a judge's `base_url`, separated by commas
            (default: those that shipped recipes name).
        recipe_variables: environment variables that they may name; likewise.
        recipe_directories: directories whose contents they may name, such as weights for `base_model`;
            separated by commas (default: none).
        operations_port: port of probes and metrics if keys are required.
        sinks: additional destinations of records, separated by commas: tensorboard, wandb.
        colocated_vllm_url: URL of the rollouts' vLLM server, if it is on the trainer's GPU: it sleeps during
            each step of reinforcement learning.
        weights_port: port at which rollout workers ask for whole weights, which are then sent straight into
            their vLLM servers; by default these read files.
    """

    service = "trainer"

    port: int = Field(8003, ge=1, le=65535)
    data: Path | None = Field(None, validation_alias="KBQA_DATA")
    processes: int = Field(1, ge=1, validation_alias="KBQA_TRAINING_PROCESSES")
    nodes: int = Field(1, ge=1, validation_alias="KBQA_TRAINING_NODES")
    node_rank: int = Field(0, ge=0, validation_alias="KBQA_TRAINING_NODE_RANK")
    rendezvous: str | None = Field(
        None, pattern=r"^[^\s:]+:\d{1,5}$", validation_alias="KBQA_TRAINING_RENDEZVOUS"
    )
    threads: int | None = Field(None, ge=1)
    device: Literal["auto", "cuda"] = "auto"
    auto_resume: bool = True
    stop_wait_s: float = Field(600.0, ge=0)
    max_restarts: int = Field(5, ge=0)
    graph_wait_s: float = Field(60.0, ge=0)
    traces: int = Field(150, ge=0)
    colocated_vllm_url: str | None = None
    weights_port: int | None = Field(None, ge=1, le=65535)
    recipe_urls: Texts = ()
    recipe_variables: Texts = ()
    recipe_directories: Annotated[tuple[Path, ...], NoDecode, BeforeValidator(comma_separated)] = ()
    operations_port: int = Field(9003, ge=1, le=65535)
    sinks: Annotated[tuple[SinkName, ...], NoDecode, BeforeValidator(comma_separated)] = ()

    @model_validator(mode="after")
    def _machines_fit(self) -> Self:
        if self.node_rank >= self.nodes:
            raise ValueError(
                f"KBQA_TRAINING_NODE_RANK: the machines of KBQA_TRAINING_NODES={self.nodes} have the numbers "
                f"0 to {self.nodes - 1}"
            )
        if self.nodes > 1 and self.rendezvous is None:
            raise ValueError(
                "KBQA_TRAINING_RENDEZVOUS: several machines need the address HOST:PORT of the trainer's"
            )
        return self

    @property
    def data_directory(self) -> Path:
        return data_directory(self.home, self.data)

    @property
    def reach(self) -> Reach:
        """What recipes of requests may name."""
        return Reach(self.recipe_urls, self.recipe_variables, self.recipe_directories)
