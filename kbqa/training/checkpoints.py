"""Checkpoints of a training run, written atomically and verified by checksums.

    checkpoints/step-000005/    shard-…safetensors, state.json, manifest.json

Tensors are stored as safetensors and everything else as JSON, so that reading a checkpoint runs no
code. Frozen weights (the base of a LoRA adapter) are not stored; they come from the initial model.
A run may be resumed on another number of processes than it was saved on (`kbqa.training.tensor_files`).
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from safetensors import SafetensorError

from kbqa.errors import CheckpointError
from kbqa.policy_store.durable import new_directory, put_in_place, remove_directory, sweep
from kbqa.training.generators import generator_states, restore_generators
from kbqa.training.tensor_files import checksum, read_weights

logger = logging.getLogger(__name__)

_FORMAT = 3
_NAME = re.compile(r"^step-(\d{6,})(?:-replaced)?$")
_STATE, _MANIFEST = "state.json", "manifest.json"


class Trained(Protocol):
    """What is trained: see `kbqa.training.tensor_files.TrainedTensors`."""

    def write(self, directory: Path) -> Future[dict[str, str]]: ...

    def read(self, directory: Path, checksums: Mapping[str, str]) -> None: ...


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The contents of a checkpoint other than tensors.

    Attributes:
        step: finished optimiser steps.
        state: the state that was saved with it, as JSON values.
    """

    step: int
    state: dict[str, Any]


class Checkpoints:
    """The checkpoints of one run.

    Args:
        root: directory of the checkpoints.
        run: name of the run; another run's checkpoints are refused.
        keep: number of newest checkpoints to keep.
        fence: raises `LeaseLostError` if another process may write here now; called before a checkpoint is
            put in place.
    """

    def __init__(self, root: Path, run: str, keep: int = 2, fence: Callable[[], None] = lambda: None) -> None:
        self._root, self._run, self._keep = root, run, keep
        self._fence = fence
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="checkpoints")
        self._saving: Future[None] | None = None

    def save(
        self,
        step: int,
        trained: Trained,
        state: Mapping[str, Any],
        *,
        needs: Collection[int] = (),
        on_saved: Callable[[], None] = lambda: None,
    ) -> None:
        """Copy the state to the host, and write it durably in the background.

        An earlier checkpoint of the same step is removed once the new one is in place. Only one is written at
        a time, so this first waits for the one before.

        Args:
            state: JSON values.
            needs: steps whose checkpoints are kept as long as this one is, such as the best so far.
            on_saved: called in the background once the checkpoint is durable.

        Raises:
            CheckpointError: this one, or the one before, cannot be written; those that were are unchanged.
            LeaseLostError: by `fence`; the one before was not put in place.
        """
        self.wait()
        final = self._root / f"step-{step:06d}"
        with ExitStack() as stack, _writing(final):
            self._root.mkdir(parents=True, exist_ok=True)
            self._tidy()
            directory = stack.enter_context(new_directory(self._root))
            values = {"state": state, "generators": generator_states()}
            (directory / _STATE).write_text(json.dumps(values), encoding="utf-8")
            written = trained.write(directory)
            manifest = {"format": _FORMAT, "run": self._run, "step": step, "needs": sorted(needs)}
            unfinished = stack.pop_all()
            self._saving = self._thread.submit(
                self._finish, unfinished, written, directory, final, manifest, on_saved
            )

    def wait(self) -> None:
        """Wait until the checkpoint that is being written is durable.

        Raises:
            CheckpointError: it cannot be written.
            LeaseLostError: by `fence`; it was not put in place.
        """
        saving, self._saving = self._saving, None
        if saving is not None:
            saving.result()

    def steps(self) -> list[int]:
        """Steps that have a checkpoint, in ascending order."""
        if not self._root.is_dir():
            return []
        return sorted({int(match[1]) for path in self._root.iterdir() if (match := _NAME.match(path.name))})

    def restore(
        self,
        trained: Trained,
        on_fault: Callable[[CheckpointError], None] = lambda error: None,
    ) -> Checkpoint | None:
        """Load the newest intact checkpoint into `trained` and all random generators.

        Args:
            on_fault: called for each newer checkpoint that cannot be used.

        Returns:
            The checkpoint, or None if the run has none.

        Raises:
            CheckpointError: there are checkpoints, but none can be used.
        """
        self.wait()
        steps = self.steps()
        faults = []
        for step in reversed(steps):
            try:
                return self._load(step, trained)
            except CheckpointError as error:
                logger.warning("damaged checkpoint skipped", extra={"step": step, "reason": str(error)})
                on_fault(error)
                faults.append(str(error))
        if steps:
            raise CheckpointError(
                f"no checkpoint of run {self._run} can be used ({'; '.join(faults)}): restore the files "
                f"from a backup, or delete {self._root} to start the phase again"
            )
        return None

    def load_weights(self, step: int, model: Any) -> None:
        """Load the weights of one checkpoint into `model`.

        Raises:
            CheckpointError: there is no checkpoint of that step, or it cannot be used.
        """
        self.wait()
        if step not in self.steps():
            have = ", ".join(map(str, self.steps())) or "none"
            raise CheckpointError(f"run {self._run} has no checkpoint of step {step} (there are: {have})")
        with _reading(self._directory(step)):
            checksums = self._manifest(step)
            for name, digest in checksums.items():
                if checksum(self._directory(step) / name) != digest:
                    raise CheckpointError(f"{self._directory(step)}: {name} does not match its checksum")
            read_weights(self._directory(step), model)

    def _load(self, step: int, trained: Trained) -> Checkpoint:
        directory = self._directory(step)
        with _reading(directory):
            checksums = self._manifest(step)
            if checksum(directory / _STATE) != checksums.pop(_STATE):
                raise CheckpointError(f"{directory}: {_STATE} does not match its checksum")
            values = json.loads((directory / _STATE).read_bytes())
            trained.read(directory, checksums)
            restore_generators(values["generators"])
            return Checkpoint(step, dict(values["state"]))

    def _manifest(self, step: int) -> dict[str, str]:
        """The checksums of a checkpoint's files, if it is one of this run."""
        directory = self._directory(step)
        manifest = json.loads((directory / _MANIFEST).read_bytes())
        if manifest.get("format") != _FORMAT:
            raise CheckpointError(
                f"{directory}: was written by another version of kbqa; finish the run with that version, "
                "or start another run"
            )
        if manifest["run"] != self._run:
            raise CheckpointError(f"{directory}: belongs to run {manifest['run']}, not {self._run}")
        return dict(manifest["files"])

    def _finish(
        self,
        unfinished: ExitStack,
        written: Future[dict[str, str]],
        directory: Path,
        final: Path,
        manifest: Mapping[str, Any],
        on_saved: Callable[[], None],
    ) -> None:
        """Put a checkpoint in place once its tensors are written."""
        with unfinished, _writing(final):
            files = {**written.result(), _STATE: checksum(directory / _STATE)}
            (directory / _MANIFEST).write_text(json.dumps({**manifest, "files": files}), encoding="utf-8")
            self._fence()
            replaced = _replaced(final)
            if final.exists():
                final.rename(replaced)  # still found under this name, if the process dies now
            put_in_place(directory, final)
            remove_directory(replaced)
            self._rotate()
            on_saved()

    def _tidy(self) -> None:
        """Remove what a writer that died has left behind."""
        sweep(self._root)
        for step in self.steps():
            final = self._root / f"step-{step:06d}"
            replaced = _replaced(final)
            if not final.exists():
                replaced.rename(final)
            elif replaced.exists():
                remove_directory(replaced)

    def _rotate(self) -> None:
        """Remove all checkpoints but the newest and those that they need."""
        steps = self.steps()
        kept = set(steps[-self._keep :])
        for step in tuple(kept):
            try:
                kept.update(json.loads((self._directory(step) / _MANIFEST).read_bytes())["needs"])
            except (OSError, ValueError, KeyError):
                continue  # damaged; `restore` skips it
        for step in steps:
            if step not in kept:
                remove_directory(self._directory(step))

    def _directory(self, step: int) -> Path:
        final = self._root / f"step-{step:06d}"
        return final if final.exists() else _replaced(final)


def _replaced(final: Path) -> Path:
    """Where a checkpoint is while another one of its step takes its place."""
    return final.with_name(f"{final.name}-replaced")


@contextmanager
def _writing(final: Path) -> Iterator[None]:
    """Turn any error in writing a checkpoint into a `CheckpointError` that says what to do."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise CheckpointError(
            f"{final}: cannot be written ({error}): free some disk space, then resume the run; it "
            "continues from the previous checkpoint"
        ) from error


@contextmanager
def _reading(directory: Path) -> Iterator[None]:
    """Turn any error in reading a directory into a `CheckpointError` that names it."""
    try:
        yield
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, RuntimeError) as error:
        raise CheckpointError(f"{directory}: cannot be read ({error})") from error
