"""The directory in which policy versions are published, and from which every engine pulls.

    policies/promoted.json
    policies/<run>/v000006-1a2b3c4d/    config.json, model.safetensors, tokenizer.json, …
                                        recipe.json, manifest.json

A version is an ordinary Hugging Face directory that never changes. It appears
under its name only when it is whole.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from kbqa.errors import NoPolicyError, PolicyIntegrityError
from kbqa.policies.probe import Probe
from kbqa.policy_store.durable import new_directory, put_in_place, remove_directory, sweep, write_file
from kbqa.policy_store.manifest import (
    MANIFEST_NAME,
    RECIPE_NAME,
    VERSION_PATTERN,
    Kind,
    Manifest,
    version_id,
)

_VERSION = re.compile(VERSION_PATTERN)
_RUN = re.compile(r"^[a-z0-9][a-z0-9-]{0,63}$")
_PROMOTED = "promoted.json"


@dataclass(frozen=True, slots=True)
class PolicyVersion:
    """A published version; `path` is its directory."""

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
            PolicyIntegrityError: its file is missing or no JSON object.
        """
        return _read_json(self.path / RECIPE_NAME)


class PolicyStore:
    """Versions of all runs, and the pointer to the one that answers users.

    Safe for any number of readers, and one writer for each run.

    Args:
        root: usually `KBQA_HOME/policies`.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def publish(
        self,
        run: str,
        number: int,
        write: Callable[[Path], None],
        *,
        recipe: Mapping[str, Any],
        recipe_digest: str,
        step: int,
        metrics: Mapping[str, float],
        base_model: str | None = None,
        kind: Kind = "full",
        probe: Probe | None = None,
    ) -> PolicyVersion:
        """Publish a version; it appears whole or not at all.

        Args:
            number: orders the versions of a run; higher is newer.
            write: fills an empty directory with the model's and the tokenizer's files.
            recipe: all resolved values, with a `name`.
            probe: what the model in training makes of a few tokens, for engines to be held to.

        Raises:
            NoPolicyError: the run's name is none.
        """
        sweep(self._directory(run))
        with new_directory(self._directory(run)) as directory:
            write(directory)
            _dump_json(directory / RECIPE_NAME, recipe)
            files = {
                str(path.relative_to(directory)): _checksum(path)
                for path in sorted(directory.rglob("*"))
                if path.is_file()
            }
            sha256 = hashlib.sha256(json.dumps(files, sort_keys=True).encode()).hexdigest()
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
            )
            (directory / MANIFEST_NAME).write_text(manifest.model_dump_json(indent=1), encoding="utf-8")
            final = self._directory(run) / manifest.id
            if not final.exists():  # the same weights under the same number are there already
                put_in_place(directory, final)
        return self.get(run, manifest.id)

    def runs(self) -> list[str]:
        """Names of the runs that have published anything, in alphabetical order."""
        if not self._root.is_dir():
            return []
        return sorted(path.name for path in self._root.iterdir() if path.is_dir() and _RUN.match(path.name))

    def versions(self, run: str) -> list[PolicyVersion]:
        """All versions of a run, oldest first."""
        versions = []
        for name in self._names(run):
            try:
                versions.append(self.get(run, name))
            except (NoPolicyError, PolicyIntegrityError):
                continue  # removed meanwhile, or damaged: `verify` says so, nobody is offered it
        return sorted(versions, key=lambda version: (version.number, version.manifest.created_at))

    def newest(self, run: str, at_least: int = 0) -> PolicyVersion | None:
        """The version with the highest number, or None if there is none from `at_least` on."""
        numbers = [int(name[1:].partition("-")[0]) for name in self._names(run)]
        if not numbers or max(numbers) < at_least:
            return None
        versions = self.versions(run)
        return versions[-1] if versions and versions[-1].number >= at_least else None

    def get(self, run: str, version: str) -> PolicyVersion:
        """One version by its full id.

        Raises:
            NoPolicyError: there is none of that id.
            PolicyIntegrityError: its manifest cannot be read.
        """
        path = self._directory(run) / version
        if not _VERSION.match(version) or not path.is_dir():
            raise NoPolicyError(f"run {run} has no policy version {version}")
        try:
            manifest = Manifest.model_validate_json((path / MANIFEST_NAME).read_bytes())
        except (OSError, ValidationError) as error:
            raise PolicyIntegrityError(f"{path}: no readable manifest ({error})") from error
        if (manifest.run, manifest.id) != (run, version):
            raise PolicyIntegrityError(f"{path}: the manifest is that of {manifest.run}/{manifest.id}")
        return PolicyVersion(path, manifest)

    def verify(self, version: PolicyVersion) -> None:
        """Compare every file with its checksum.

        Raises:
            PolicyIntegrityError: a file is missing, was changed or was added.
        """
        stated = version.manifest.files
        present = {str(p.relative_to(version.path)) for p in version.path.rglob("*") if p.is_file()}
        if extra := present - {*stated, MANIFEST_NAME}:
            raise PolicyIntegrityError(f"{version.path}: {min(extra)} does not belong to the version")
        for name, checksum in stated.items():
            if name not in present:
                raise PolicyIntegrityError(f"{version.path}: {name} is missing")
            if _checksum(version.path / name) != checksum:
                raise PolicyIntegrityError(f"{version.path}: {name} does not match its checksum")

    def promote(self, run: str, version: str) -> PolicyVersion:
        """Make a version the one that answers users.

        Raises:
            NoPolicyError: there is none of that id.
            PolicyIntegrityError: its files do not match the manifest.
        """
        found = self.get(run, version)
        self.verify(found)
        pointer = {"run": run, "id": version, "promoted_at": datetime.now(UTC).isoformat(timespec="seconds")}
        write_file(self._root / _PROMOTED, json.dumps(pointer).encode())
        return found

    def promoted(self) -> PolicyVersion:
        """The version that answers users.

        Raises:
            NoPolicyError: none was promoted yet; says how to get one.
            PolicyIntegrityError: the pointer or the manifest cannot be read.
        """
        pointer = self._pointer()
        if pointer is None:
            raise NoPolicyError("no policy is promoted yet: train one with `kbqa demo` or `kbqa train`")
        return self.get(*pointer)

    def retain(self, run: str, keep: int, protect: Collection[str] = ()) -> list[str]:
        """Remove all but the newest `keep` versions of a run; returns the ids removed.

        The newest, the promoted one and those in `protect` always stay.
        """
        versions = self.versions(run)
        spared = {*protect, *(version.id for version in versions[-max(keep, 1) :])}
        pointer = self._pointer()
        if pointer is not None and pointer[0] == run:
            spared.add(pointer[1])
        doomed = [version.id for version in versions if version.id not in spared]
        for name in doomed:
            remove_directory(self._directory(run) / name)
        return doomed

    def _pointer(self) -> tuple[str, str] | None:
        """Run and id of the promoted version."""
        path = self._root / _PROMOTED
        if not path.exists():
            return None
        values = _read_json(path)
        return str(values.get("run")), str(values.get("id"))

    def _names(self, run: str) -> list[str]:
        directory = self._directory(run)
        if not directory.is_dir():
            return []
        return [path.name for path in directory.iterdir() if _VERSION.match(path.name)]

    def _directory(self, run: str) -> Path:
        if not _RUN.match(run):
            raise NoPolicyError(f"{run!r} is no name of a run")
        return self._root / run


def _dump_json(path: Path, values: Mapping[str, Any]) -> None:
    path.write_text(json.dumps(values, indent=1, sort_keys=True), encoding="utf-8")


def _read_json(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(path.read_bytes())
    except (OSError, ValueError) as error:
        raise PolicyIntegrityError(f"{path}: cannot be read ({error})") from error
    if not isinstance(values, dict):
        raise PolicyIntegrityError(f"{path}: not a JSON object")
    return values


def _checksum(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
