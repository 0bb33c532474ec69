"""Finds a base in a directory, in the hub's cache, or in an installed package, in this order."""

from __future__ import annotations

import hashlib
import json
import os
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from kbqa.bases.cache import converted
from kbqa.bases.cards import licence_of
from kbqa.bases.known import KNOWN, READER
from kbqa.errors import BaseNotFoundError, PolicyIntegrityError

Origin = Literal["directory", "hub cache", "package"]

_WEIGHTS = "model.safetensors"
_CONFIGS = ("config.json", "adapter_config.json")  # of whole weights, and of an adapter
_INDEX = "model.safetensors.index.json"
_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*(/[\w.-]+)?")
_SHOWN = 12  # digits of a digest


@dataclass(frozen=True, slots=True)
class Base:
    """A pretrained model on this machine.

    Attributes:
        name: as requested.
        directory: an ordinary Hugging Face directory: config.json, safetensors, tokenizer.json …
        licence: SPDX identifier; "" if unknown.
        origin: where the base was found.
    """

    name: str
    directory: Path
    licence: str
    origin: Origin


def find_base(name: str) -> Base:
    """Find a base, and check that a base in `KNOWN` is the published one.

    A directory is used without checks. A base that a package holds in another format is converted
    at the first use, which takes about half a minute.

    Raises:
        BaseNotFoundError: the base is missing, incomplete or cannot be converted; says what to install.
        PolicyIntegrityError: a file of a known base differs from the published file.
    """
    found, known = sight(name), KNOWN.get(name)
    if found is None:
        raise BaseNotFoundError(f"base model {name} is not on this machine: {ways_to_get(name)}")
    origin, path = found
    if origin == "directory" or known is None:
        if (fault := _fault(path)) is not None:
            raise BaseNotFoundError(
                f"base model {name}: {fault}; a base model needs config.json and *.safetensors"
            )
        return Base(name, path, licence_of(path), origin)
    if origin == "hub cache":
        _check(name, path / _WEIGHTS, known.digest, f"hf download --force-download {name}")
        return Base(name, path, known.licence, origin)
    _check(name, path, known.package.digest, known.package.how_to_repair)
    directory = converted(known, path) if path.suffix == ".gguf" else path.parent
    return Base(name, directory, known.licence, origin)


def sight(name: str) -> tuple[Origin, Path] | None:
    """The origin of a base, and its directory (for a package, its weights file), unchecked; or None."""
    if name != READER and (directory := Path(name)).is_dir():
        return "directory", directory
    if (cached := _in_hub_cache(name)) is not None:
        return "hub cache", cached
    known = KNOWN.get(name)
    weights = known.package.locate() if known is not None else None
    return None if weights is None else ("package", weights)


def ways_to_get(name: str) -> str:
    """What a user can do to get a base, as a part of a message."""
    known = KNOWN.get(name)
    ways = [] if known is None else [known.package.how_to_install]
    if _REPOSITORY.fullmatch(name):
        ways.append(f"hf download {name}")
    return ", or ".join([*ways, "name a directory that holds it"])


def _in_hub_cache(name: str) -> Path | None:
    """The snapshot of the commit `KBQA_BASE_REVISION`, else of the main branch, if it is a complete model."""
    if not _REPOSITORY.fullmatch(name):
        return None
    from huggingface_hub import try_to_load_from_cache  # takes a third of a second; few commands need it

    for revision in (os.environ.get("KBQA_BASE_REVISION") or None, None):
        config = try_to_load_from_cache(name, "config.json", revision=revision)
        # If only a model's tokenizer was downloaded, its snapshot has no weights.
        if isinstance(config, str) and _fault(snapshot := Path(config).parent) is None:
            return snapshot
    return None


def _fault(directory: Path) -> str | None:
    """Why a directory is not a complete model; None if it is one."""
    if not any((directory / name).is_file() for name in _CONFIGS):
        return f"{directory} holds no config.json"
    try:
        shards = set(json.loads((directory / _INDEX).read_bytes())["weight_map"].values())
    except FileNotFoundError:
        if any(directory.glob("*.safetensors")):
            return None
        return f"{directory} holds no weights (*.safetensors)"
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        return f"{directory / _INDEX} cannot be read ({error})"
    missing = sorted(shard for shard in shards if not (directory / shard).is_file())
    return f"{directory} lacks {', '.join(missing[:3])}" if missing else None


def _check(name: str, path: Path, digest: str, again: str) -> None:
    """Check the digest of a known base's file; takes a tenth of a second per 100 MB.

    Raises:
        PolicyIntegrityError: the digest differs, or the file cannot be read.
    """
    try:
        with path.open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
    except OSError as error:
        raise PolicyIntegrityError(
            f"base model {name}: {path}: {error}; download it again: {again}"
        ) from error
    if found != digest:
        raise PolicyIntegrityError(
            f"base model {name}: the SHA-256 of {path} is {found[:_SHOWN]}…, not {digest[:_SHOWN]}… as "
            f"published: download it again ({again}), or name its directory to use it unchecked"
        )
