"""The manifest of a policy version."""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator

from kbqa.confidence import Calibration
from kbqa.policies.probe import Probe

VERSION_PATTERN = r"^v[0-9]{6,}-[0-9a-f]{8}$"
RECIPE_NAME = "recipe.json"
MANIFEST_NAME = "manifest.json"

Kind = Literal["full", "lora"]

# Weights are safetensors and everything else is text, so reading a version cannot run code.
_FILE = re.compile(
    r"([A-Za-z0-9_-][A-Za-z0-9._-]*/)*[A-Za-z0-9_-][A-Za-z0-9._-]*\.(safetensors|json|txt|jinja|model|md)"
)


class Manifest(BaseModel):
    """`manifest.json` of a version, written last.

    Attributes:
        id: `v000006-1a2b3c4d`: the number, and the first 8 digits of `sha256`.
        kind: whole weights, or a LoRA adapter of `base_model`.
        recipe: name of the recipe; `recipe_digest` is the SHA-256 of all its resolved values.
        base_model: the pretrained model that training began with; None for a small policy.
        step: number of optimiser steps of reinforcement learning.
        sha256: over the names and checksums of all files, the recipe's included.
        files: SHA-256 of each file, by its path relative to the directory.
        created_at: ISO 8601, UTC.
        probe: the version's probe; None in versions from before there were probes.
        calibration: how sure the version's answers are; None where that was not measured.
        graphs: names of the graphs that its run was trained on; empty where that is not known.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_version: Literal[1] = 1
    id: Annotated[str, Field(pattern=VERSION_PATTERN)]
    number: Annotated[int, Field(ge=0)]
    run: str
    kind: Kind = "full"
    recipe: str
    recipe_digest: str
    base_model: str | None
    step: Annotated[int, Field(ge=0)]
    metrics: dict[str, float]
    sha256: str
    files: dict[str, str]
    created_at: str
    probe: Probe | None = None
    calibration: Calibration | None = None
    graphs: tuple[str, ...] = ()

    @field_validator("files")
    @classmethod
    def _harmless(cls, files: dict[str, str]) -> dict[str, str]:
        for name in files:
            if not _FILE.fullmatch(name) or name == MANIFEST_NAME:
                raise ValueError(
                    f"{name!r} is not allowed in a version: only safetensors, JSON or text files inside "
                    "its directory are"
                )
        return files


def version_id(number: int, sha256: str) -> str:
    return f"v{number:06d}-{sha256[:8]}"
