"""Additional destinations of a run's records: TensorBoard, Weights & Biases.

Both are optional and must be named in the settings. A failing sink does not end the run: a warning is logged,
and the sink is no longer used.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from importlib.util import find_spec
from typing import Any, Literal, get_args

from kbqa.errors import ConfigurationError
from kbqa.runs.directory import RunDirectory
from kbqa.runs.journal import Sink

logger = logging.getLogger(__name__)

SinkName = Literal["tensorboard", "wandb"]


def require_sinks(names: Sequence[SinkName]) -> None:
    """Check that the packages of the sinks are installed.

    Raises:
        ConfigurationError: one is missing; the message says how to install it.
    """
    for name in names:
        if find_spec(name) is None:
            raise ConfigurationError(
                f"KBQA_TRAINER_SINKS: {name} is not installed: pip install 'kbqa[{name}]'"
            )


def open_sinks(names: Sequence[SinkName], directory: RunDirectory) -> list[Sink]:
    """The sinks of a run; each opens with its first record."""
    made: dict[SinkName, type[TensorBoard] | type[WandB]] = {"tensorboard": TensorBoard, "wandb": WandB}
    assert made.keys() == set(get_args(SinkName))
    return [Forgiving(name, made[name](directory)) for name in names]


class Forgiving:
    """A sink that is no longer used after it fails."""

    def __init__(self, name: str, sink: Sink) -> None:
        self._name = name
        self._sink: Sink | None = sink

    def write(self, record: Mapping[str, Any]) -> None:
        self._try("write", record)

    def forget_after(self, phase: str, step: int) -> None:
        self._try("forget_after", phase, step)

    def close(self) -> None:
        self._try("close")

    def _try(self, what: str, *arguments: Any) -> None:
        if self._sink is None:
            return
        try:
            getattr(self._sink, what)(*arguments)
        except Exception as error:  # an error in a sink's library must not end the run
            logger.warning(
                "a sink failed and is no longer used", extra={"sink": self._name, "reason": repr(error)}
            )
            self._sink = None


class TensorBoard:
    """Event files under `tensorboard/<phase>` of the run's directory."""

    def __init__(self, directory: RunDirectory) -> None:
        self._path = directory.path / "tensorboard"
        self._writers: dict[str, Any] = {}

    def write(self, record: Mapping[str, Any]) -> None:
        writer = self._writer(record["phase"], purge_step=None)
        for name, value in scalars(record):
            writer.add_scalar(name, value, record["step"], walltime=record["time"])
        writer.flush()

    def forget_after(self, phase: str, step: int) -> None:
        if phase in self._writers:
            self._writers.pop(phase).close()
        self._writer(phase, purge_step=step + 1)

    def close(self) -> None:
        for writer in self._writers.values():
            writer.close()

    def _writer(self, phase: str, purge_step: int | None) -> Any:
        from torch.utils.tensorboard import SummaryWriter

        if phase not in self._writers:
            path = str(self._path / phase)
            self._writers[phase] = SummaryWriter(path, purge_step=purge_step)
        return self._writers[phase]


class WandB:
    """One run of Weights & Biases with our run's id; `WANDB_…` variables configure the destination."""

    def __init__(self, directory: RunDirectory) -> None:
        self._directory = directory
        self._run: Any = None

    def write(self, record: Mapping[str, Any]) -> None:
        phase = record["phase"]
        values = {f"{phase}/{name}": value for name, value in scalars(record)}
        self._open().log({**values, f"{phase}/step": record["step"]})

    def forget_after(self, phase: str, step: int) -> None:
        """Does nothing: undone records stay, and the following records repeat their steps."""

    def close(self) -> None:
        if self._run is not None:
            self._run.finish()

    def _open(self) -> Any:
        import wandb

        if self._run is None:
            record = self._directory.read()
            self._run = wandb.init(
                project="kbqa",
                id=record.id,
                name=record.id,
                dir=str(self._directory.path),
                config={"recipe": record.recipe, "dataset": record.dataset, "seed": record.seed},
                resume="allow",
            )
            for phase in ("warm_up", "cold_start", "rl"):
                self._run.define_metric(f"{phase}/*", step_metric=f"{phase}/step")
        return self._run


def scalars(record: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """The numbers of a record by name, such as `step/loss`, `evaluation/test/f1`, `step/groups/trained`."""
    kind = "/".join([record["kind"], *filter(None, [record.get("split")])])
    head = ("seq", "time", "kind", "phase", "step", "of", "split", "version")
    for name, value in record.items():
        if name in head:
            continue
        entries = value.items() if isinstance(value, Mapping) else [(None, value)]
        for key, number in entries:
            if isinstance(number, int | float):
                yield "/".join([kind, name, *([] if key is None else [str(key)])]), float(number)
