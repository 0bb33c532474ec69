"""Exports the weights of a run as an ordinary Hugging Face directory."""

from __future__ import annotations

import shutil
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

from kbqa.bases import find_base
from kbqa.errors import RunError
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.policy_store.durable import new_directory, put_in_place
from kbqa.policy_store.manifest import MANIFEST_NAME, RECIPE_NAME
from kbqa.runs.directory import RunDirectory
from kbqa.runs.student import Student
from kbqa.training.adapters import add_adapter
from kbqa.training.checkpoints import Checkpoints

_STARTS = ("cold_start", "base")  # the phases after which reinforcement learning may have begun, latest first


def export(
    store: PolicyStore,
    directory: RunDirectory,
    into: Path,
    *,
    version: str | None = None,
    checkpoint: int | None = None,
    adapter: bool = False,
) -> None:
    """Write the weights of a version, or of a checkpoint, as an ordinary Hugging Face directory.

    Args:
        into: directory to create, with its parents.
        version: None takes the run's newest.
        adapter: keep a LoRA adapter separate instead of merging it into its base model.

    Raises:
        RunError: `into` already exists, or the run has no such weights yet.
        NoPolicyError: the run has no such version.
        PolicyIntegrityError, CheckpointError: the files are damaged.
    """
    if into.exists():
        raise RunError(f"{into} already exists: name a directory that does not")
    with new_directory(into.absolute().parent) as aside:
        if checkpoint is not None:
            _write_checkpoint(store, directory, checkpoint, aside, adapter=adapter)
        else:
            found = store.get(directory.id, version) if version is not None else store.newest(directory.id)
            if found is None:
                raise RunError(f"run {directory.id} has published no version yet")
            store.verify(found)
            if found.manifest.kind == "lora" and not adapter and _names_its_base(found):
                Student.load(found.path).save(aside)
            elif found.manifest.kind == "lora" and not adapter:
                _write_merged(_start(store, directory), found.path, aside)
            else:
                _copy(found, aside)
        put_in_place(aside, into.absolute())


def _copy(version: PolicyVersion, into: Path) -> None:
    """Copy the files of a version, except kbqa's own."""
    for name in version.manifest.files:
        if name not in (RECIPE_NAME, MANIFEST_NAME):
            (into / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(version.path / name, into / name)


def _write_checkpoint(
    store: PolicyStore, directory: RunDirectory, step: int, into: Path, *, adapter: bool
) -> None:
    """Write the version that reinforcement learning began with, with the weights of the checkpoint."""
    start, trained = _start(store, directory), directory.read().resolved_recipe().optimisation.build().adapter
    student = Student.load(_weights(start))
    if trained is not None:
        add_adapter(student.model, trained, seed=0)
    Checkpoints(directory.checkpoints_path, directory.id).load_weights(step, student.model)
    if trained is None or adapter:
        student.save(into)
        return
    with TemporaryDirectory() as apart:
        student.save(Path(apart))
        _write_merged(start, Path(apart), into)


def _write_merged(start: PolicyVersion, adapter: Path, into: Path) -> None:
    """Write the base model of an adapter, with the adapter merged into it."""
    from peft import PeftModel

    base = Student.load(_weights(start))
    replace(base, model=PeftModel.from_pretrained(base.model, str(adapter)).merge_and_unload()).save(into)


def _start(store: PolicyStore, directory: RunDirectory) -> PolicyVersion:
    """The version that reinforcement learning began with."""
    versions = directory.progress().get("results", {}).get("versions", {})
    start = next((versions[phase] for phase in _STARTS if phase in versions), None)
    if start is None:
        raise RunError(f"run {directory.id} has no weights yet: reinforcement learning has not begun")
    version = store.get(directory.id, start)
    store.verify(version)
    return version


def _names_its_base(version: PolicyVersion) -> bool:
    """Whether it is an adapter that can be loaded by itself: that of a cold start."""
    return version.manifest.kind == "lora" and version.recipe().get("cold_start") is not None


def _weights(start: PolicyVersion) -> Path:
    """The directory with the weights of a version: where it is a fresh adapter, those of its base model."""
    manifest = start.manifest
    if manifest.kind != "lora" or _names_its_base(start):
        return start.path
    assert manifest.base_model is not None, "an adapter names its base model"
    return find_base(manifest.base_model).directory
