"""The place where policy versions are published, and from which every engine pulls.

    policies/promoted.json
    policies/<run>/v000006-1a2b3c4d/    config.json, model.safetensors, tokenizer.json, …
                                        recipe.json, manifest.json
    policies/.uses/<holder>.json        versions that a process uses, until when

A version is an ordinary Hugging Face directory that never changes. A directory is a version only
while it has a manifest, which is written last and removed first.
"""

from __future__ import annotations

import hashlib
import json
import re
import threading
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kbqa.confidence import Calibration
from kbqa.errors import NoPolicyError, PolicyIntegrityError
from kbqa.policies.probe import Probe
from kbqa.policy_store.durable import new_directory
from kbqa.policy_store.manifest import (
    MANIFEST_NAME,
    RECIPE_NAME,
    VERSION_PATTERN,
    Kind,
    Manifest,
    version_id,
)
from kbqa.policy_store.shelves import LocalShelf, RemoteShelf, Shelf, answering
from kbqa.policy_store.uses import Uses

_VERSION = re.compile(VERSION_PATTERN.removesuffix("$") + r"\Z")
_RUN = re.compile(r"[a-z0-9][a-z0-9-]{0,63}\Z")
_PROMOTED = "promoted.json"
_REMEMBERED = 100  # promotions

NOT_PROMOTED = (
    "no policy is promoted yet: run `kbqa demo`, or train one with `kbqa train` "
    "and promote it with `kbqa promote RUN`"
)
"""Why a new installation has no policy to serve."""


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """A published version; `path` is its local directory, which exists after `PolicyStore.verify`."""

    path: Path
    manifest: Manifest

    @property
    def id(self) -> str:
        return self.manifest.id

    @property
    def number(self) -> int:
        return self.manifest.number

    @property
    def run(self) -> str:
        return self.manifest.run

    def recipe(self) -> dict[str, Any]:
        """The whole resolved recipe, as plain values.

        Raises:
            PolicyIntegrityError: its file is missing, or is not a JSON object.
        """
        path = self.path / RECIPE_NAME
        try:
            return _json_object(path.read_bytes(), path)
        except OSError as error:
            raise PolicyIntegrityError(f"{path}: cannot be read ({error})") from error


def open_store(home: Path, location: str | None = None, until: threading.Event | None = None) -> PolicyStore:
    """The policy store of an installation.

    Args:
        home: `KBQA_HOME`.
        location: a directory or an fsspec URL (`KBQA_POLICY_STORE`); `home`/policies by default.
        until: a store that does not answer is tried until this is set; None gives up after a while.

    Raises:
        ConfigurationError: no installed package supports the URL's protocol.
    """
    if location is not None and "://" in location:
        return PolicyStore(RemoteShelf(location.rstrip("/"), home / "pulled-policies", until=until))
    return PolicyStore(LocalShelf(home / "policies" if location is None else Path(location), until=until))


class PolicyStore:
    """Versions of all runs, and the pointer to the promoted version.

    Safe for any number of readers, and one writer for each run. A remote store that does not
    answer raises `PolicyStoreUnavailableError` after a while.

    Args:
        shelf: where the files are kept; a path stands for a `LocalShelf`.
    """

    def __init__(self, shelf: Shelf | Path) -> None:
        self._shelf: Shelf = LocalShelf(shelf) if isinstance(shelf, Path) else shelf
        self._uses = Uses(self._shelf)

    def publish(
        self,
        run: str,
        number: int,
        write: Callable[[Path], Mapping[str, str] | None],
        *,
        recipe: Mapping[str, Any],
        recipe_digest: str,
        step: int,
        metrics: Mapping[str, float],
        base_model: str | None = None,
        kind: Kind = "full",
        probe: Probe | None = None,
        calibration: Calibration | None = None,
        graphs: Iterable[str] = (),
    ) -> PolicyVersion:
        """Publish a version atomically.

        Args:
            number: orders the versions of a run; higher is newer.
            write: fills an empty directory with the model's and the tokenizer's files; returns the SHA-256 of
                files that it has hashed while writing, by name.
            recipe: all resolved values, with a `name`.
            probe: a few tokens and their log-probabilities in training, with which engines are checked.
            calibration: how sure the version's answers are, if that was measured.
            graphs: names of the graphs that its run was trained on.

        Raises:
            NoPolicyError: the run's name is invalid.
            PolicyIntegrityError: `write` has written a file that is not allowed in a version.
        """
        here = self._shelf.path / _checked(run)
        self._shelf.sweep(run)
        with new_directory(here) as directory:
            known = write(directory) or {}
            _dump_json(directory / RECIPE_NAME, recipe)
            files = {
                (name := path.relative_to(directory).as_posix()): known.get(name) or _checksum(path)
                for path in sorted(directory.rglob("*"))
                if path.is_file()
            }
            sha256 = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
            try:
                manifest = Manifest(
                    id=version_id(number, sha256),
                    number=number,
                    run=run,
                    kind=kind,
                    recipe=str(recipe["name"]),
                    recipe_digest=recipe_digest,
                    base_model=base_model,
                    step=step,
                    metrics=dict(metrics),
                    sha256=sha256,
                    files=files,
                    created_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
                    probe=probe,
                    calibration=calibration,
                    graphs=tuple(graphs),
                )
            except ValidationError as error:
                raise PolicyIntegrityError(f"version {number} of run {run}: {error}") from error
            (directory / MANIFEST_NAME).write_text(manifest.model_dump_json(indent=1), encoding="utf-8")
            if not self._shelf.exists(_manifest_path(run, manifest.id)):  # else it is published already
                self._shelf.publish(directory, f"{run}/{manifest.id}")
        return self.get(run, manifest.id)

    def runs(self) -> list[str]:
        """Names of the runs that have published anything, in alphabetical order."""
        return sorted(name for name in self._shelf.names("") if _RUN.match(name))

    def ids(self, run: str) -> list[str]:
        """Ids of all versions of a run, including damaged ones, in no order."""
        return [name for name in self._shelf.names(_checked(run)) if _VERSION.match(name)]

    def versions(self, run: str) -> list[PolicyVersion]:
        """All versions of a run, oldest first."""
        return sorted(self._readable(run, self.ids(run)), key=_age)

    def newest(self, run: str, at_least: int = 0) -> PolicyVersion | None:
        """The version with the highest number, or None if no number is `at_least` or higher."""
        ids = self.ids(run)
        for number in sorted({_number(name) for name in ids}, reverse=True):
            if number < at_least:
                break
            if versions := self._readable(run, [name for name in ids if _number(name) == number]):
                return max(versions, key=_age)
        return None

    def get(self, run: str, version: str) -> PolicyVersion:
        """One version by its full id.

        Raises:
            NoPolicyError: there is no version of that id.
            PolicyIntegrityError: its manifest cannot be read.
        """
        _checked(run)
        if not _VERSION.match(version):
            raise NoPolicyError(f"run {run} has no policy version {version!r}")
        path = self._shelf.path / run / version
        try:
            manifest = Manifest.model_validate_json(self._shelf.read(_manifest_path(run, version)))
        except FileNotFoundError:
            raise NoPolicyError(f"run {run} has no policy version {version}") from None
        except (OSError, ValidationError) as error:
            raise PolicyIntegrityError(f"{path}: no readable manifest ({error})") from error
        if (manifest.run, manifest.id) != (run, version):
            raise PolicyIntegrityError(f"{path}: the manifest belongs to {manifest.run}/{manifest.id}")
        return PolicyVersion(path, manifest)

    def verify(self, version: PolicyVersion, *, weights: bool = True) -> None:
        """Copy a version's files to this machine if necessary, and compare each with its checksum.

        Args:
            weights: whether files of weights are compared, too; not needed if nobody reads them here.

        Raises:
            PolicyIntegrityError: a file is missing, was changed or was added.
        """
        name, stated = f"{version.run}/{version.id}", version.manifest.files
        try:
            self._shelf.bring(name, [*stated, MANIFEST_NAME])
            with answering(version.path):
                compare_files(version.path, stated, weights=weights)
        except FileNotFoundError as error:
            raise PolicyIntegrityError(f"{version.path}: {error} is missing") from error
        except PolicyIntegrityError:
            self._shelf.forget(name)
            raise

    def hold(self, holder: str, versions: Iterable[PolicyVersion]) -> None:
        """Declare which versions a process uses from now on, so that they are not removed.

        It replaces the process's earlier declaration and expires after `uses.HELD_S`. Repeat it in time;
        a repetition is cheap, because most of them write nothing.

        Args:
            holder: name of the process.

        Raises:
            NoPolicyError: one of the versions has been removed.
        """
        held = [(version.run, version.id) for version in versions]
        for run, version in held:
            self._shelf.use(f"{run}/{version}")
        if not self._uses.hold(holder, held):
            return
        # `retain` removes the manifest and then looks for users, so one of the two processes notices.
        for run, version in held:
            if not self._shelf.exists(_manifest_path(run, version)):
                raise NoPolicyError(f"policy version {version} of run {run} has been removed")

    def promote(self, run: str, version: str) -> PolicyVersion:
        """Make a version the one that the gateway serves.

        Raises:
            NoPolicyError: there is no version of that id.
            PolicyIntegrityError: its files do not match the manifest.
        """
        found = self.get(run, version)
        self.verify(found)
        promotion = {
            "run": run,
            "id": version,
            "promoted_at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        pointer = promotion | {"history": [*self._history(), promotion][-_REMEMBERED:]}
        self._shelf.write(_PROMOTED, json.dumps(pointer).encode())
        if not self._shelf.exists(_manifest_path(run, version)):  # as in `hold`
            raise NoPolicyError(f"policy version {version} of run {run} has been removed")
        return found

    def promoted(self) -> PolicyVersion:
        """The version that the gateway serves.

        Raises:
            NoPolicyError: no version was promoted yet; says how to get one.
            PolicyIntegrityError: the pointer or the manifest cannot be read.
        """
        pointer = self._pointer()
        if pointer is None:
            raise NoPolicyError(NOT_PROMOTED)
        return self.get(*pointer)

    def promotions(self, run: str) -> list[str]:
        """Ids of the versions of a run that were promoted, oldest first; a version may occur several times.

        Only the latest 100 promotions of the store are remembered.
        """
        return [str(one["id"]) for one in self._history() if one.get("run") == run and "id" in one]

    def retain(self, run: str, keep: int, protect: Collection[str] = ()) -> list[str]:
        """Remove all but the newest `keep` versions of a run; returns the ids removed.

        The newest version that can be read, the promoted one, those in `protect` and those that any process
        holds always stay. Damaged versions count among the newest, and are removed like others.
        """
        ids, newest = sorted(self.ids(run), key=_number), self.newest(run)
        spared = {*protect, *ids[-max(keep, 1) :]} | self._spoken_for(run)
        if newest is not None:  # the highest numbers may be damaged
            spared.add(newest.id)
        removed = []
        for version in ids:
            if version in spared:
                continue
            manifest = _manifest_path(run, version)
            if self._shelf.exists(manifest):
                data = self._shelf.read(manifest)
                self._shelf.remove(manifest)
                if version in self._spoken_for(run):
                    self._shelf.write(manifest, data)
                    continue
                removed.append(version)
            self._shelf.discard(f"{run}/{version}")  # without a manifest, a process that died has left it
        return removed

    def _spoken_for(self, run: str) -> set[str]:
        """Versions of a run that are promoted, or held by any process."""
        pointer = self._pointer()
        promoted = {pointer[1]} if pointer is not None and pointer[0] == run else set()
        return promoted | self._uses.of(run)

    def _pointer(self) -> tuple[str, str] | None:
        """Run and id of the promoted version."""
        values = self._promotion()
        return None if values is None else (str(values.get("run")), str(values.get("id")))

    def _promotion(self) -> dict[str, Any] | None:
        try:
            return _json_object(self._shelf.read(_PROMOTED), Path(_PROMOTED))
        except FileNotFoundError:
            return None
        except OSError as error:
            raise PolicyIntegrityError(f"{_PROMOTED}: cannot be read ({error})") from error

    def _history(self) -> list[dict[str, Any]]:
        """Promotions, oldest first; none if the record of them is damaged."""
        try:
            values = self._promotion() or {}
        except PolicyIntegrityError:
            return []
        # Earlier releases remembered the latest one only.
        history = values.get("history", [values] if values else [])
        return [one for one in history if isinstance(one, dict)] if isinstance(history, list) else []

    def _readable(self, run: str, ids: Iterable[str]) -> list[PolicyVersion]:
        versions = []
        for name in ids:
            try:
                versions.append(self.get(run, name))
            except (NoPolicyError, PolicyIntegrityError):
                continue  # removed meanwhile, or damaged: not offered
        return versions


def _checked(run: str) -> str:
    if not _RUN.match(run):
        raise NoPolicyError(f"{run!r} is not a valid name of a run")
    return run


def _manifest_path(run: str, version: str) -> str:
    return f"{run}/{version}/{MANIFEST_NAME}"


def _number(version: str) -> int:
    return int(version[1:].partition("-")[0])


def _age(version: PolicyVersion) -> tuple[int, str]:
    return version.number, version.manifest.created_at


def compare_files(path: Path, stated: Mapping[str, str], *, weights: bool = True) -> None:
    """Compare a version's directory with its stated checksums.

    Args:
        weights: as for `PolicyStore.verify`.

    Raises:
        PolicyIntegrityError: a file is missing, was changed or was added.
    """
    present = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    if extra := present - {*stated, MANIFEST_NAME}:
        raise PolicyIntegrityError(f"{path}: {min(extra)} is not part of the version")
    for name, checksum in stated.items():
        if name not in present:
            raise PolicyIntegrityError(f"{path}: {name} is missing")
        if (weights or not name.endswith(".safetensors")) and _checksum(path / name) != checksum:
            raise PolicyIntegrityError(f"{path}: {name} does not match its checksum")


def _dump_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1, sort_keys=True), encoding="utf-8")


def _json_object(data: bytes, path: Path) -> dict[str, Any]:
    try:
        values = json.loads(data)
    except ValueError as error:
        raise PolicyIntegrityError(f"{path}: cannot be read ({error})") from error
    if not isinstance(values, dict):
        raise PolicyIntegrityError(f"{path}: not a JSON object")
    return values


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
