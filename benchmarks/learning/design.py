"""What is compared: variants of recipes, and findings that set two of them against each other."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, model_validator

from kbqa.recipes import Recipe, load_recipe

DESIGN = Path(__file__).with_name("design.yaml")


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ColdStart(_Part):
    """What a variant imitates first.

    Attributes:
        demonstrations: questions whose gold programs are played; 0 leaves the copying warm-up alone.
        thoughts: whether turns keep what stands between <think> and </think>.
        merged: whether all actions of an episode are one turn (KBQA-R1 without interaction).
        listed: whether an entity's relations are listed before one is followed (KG-R1).
        rare_hops: `kept` has questions of every further hop half as often, `upsampled` shows the same
            questions, those of every hop equally often; None takes them as they come.
        taught: how many gold programs a teacher of the same size imitates, whose rollouts on all
            cold-start questions are then filtered by outcome and imitated in place of gold programs;
            0 is none.
    """

    demonstrations: int = 150
    thoughts: bool = True
    merged: bool = False
    listed: bool = False
    rare_hops: Literal["kept", "upsampled"] | None = None
    taught: int = 0


class Variant(_Part):
    """A way to train.

    Attributes:
        set: values by dotted key, laid over the recipe's.
        steps: optimiser steps of GRPO.
        tokens: in place of steps: it ends when so many were sampled.
    """

    recipe: str
    dataset: str = "world"
    set: dict[str, Any] = Field(default_factory=dict)
    cold_start: ColdStart = ColdStart()
    steps: int | None = None
    tokens: int | None = None

    @cached_property
    def resolved(self) -> Recipe:
        return load_recipe(self.recipe, self.set)


class Needs(_Part):
    """What the runs must have for a finding to be able to show there.

    Attributes:
        gain: of F1 by reinforcement learning: without one, there is nothing that a reward could change.
        partly: share of answers that are partly right among the test answers with an F1 above 0, of the
            variant that has more of them. Only these are rewarded differently by F1, other F-measures and
            a hit.
    """

    gain: float = -1.0
    partly: float = 0.0


class Look(_Part):
    """A moment at which a finding is looked at.

    Attributes:
        pairs: of runs that there are then.
        error: probability of a wrong verdict that this look may have.
    """

    pairs: int = Field(ge=2)
    error: float = Field(gt=0.0, lt=0.5)


class Finding(_Part):
    """A claim of a paper.

    Attributes:
        claim: what the paper's method has and its ablation lacks.
        paper, reports: which one, and its figures with their place.
        sign: of the effect there: 1 helps, -1 harms, 0 not reported.
        has, lacks: variants with and without it.
        measure: what is compared: the F1 at the end, at the start of reinforcement learning, or how
            much `has` gained by it.
        smallest: effect on F1 that matters; a smaller one is equivalent to none.
        needs: without which it is not decided.
        learned: what was learned where ours differs.
    """

    claim: str
    paper: str
    reports: str
    sign: Literal[-1, 0, 1]
    has: str
    lacks: str
    measure: Literal["end", "start", "gain"] = "end"
    smallest: float = Field(0.03, gt=0.0)
    needs: Needs = Needs()
    learned: str = ""


class Design(_Part):
    """Attributes:
    seeds: of each variant, as many as the last look needs; a seed has a world and a base policy of its own.
    looks: at the findings, see `benchmarks.learning.verdicts`.
    steps: of a variant that says nothing else.
    max_seconds: of processor time, after which a run's reinforcement learning ends in any case.
    """

    seeds: tuple[int, ...]
    looks: tuple[Look, ...]
    steps: int
    max_seconds: float
    variants: dict[str, Variant]
    findings: dict[str, Finding]

    @model_validator(mode="after")
    def _complete(self) -> Self:
        for name, finding in self.findings.items():
            for variant in (finding.has, finding.lacks):
                if variant not in self.variants:
                    raise ValueError(f"findings: {name}: there is no variant {variant}")
        if list(self.looks) != sorted(self.looks, key=lambda look: look.pairs):
            raise ValueError("looks: each must have more pairs than the one before")
        if self.looks[-1].pairs > len(self.seeds):
            raise ValueError(
                f"looks: the last needs {self.looks[-1].pairs} seeds, and there are {len(self.seeds)}"
            )
        return self

    def digest(self, variant: str) -> str:
        """Of everything that a variant's runs hang on; runs of another digest are other runs."""
        chosen = self.variants[variant]
        values = {
            # An option that comes later changes nothing as long as it is left alone.
            **chosen.model_dump(mode="json", exclude={"recipe", "set"}, exclude_defaults=True),
            "recipe": chosen.resolved.model_dump(mode="json", exclude_defaults=True),
            "steps": chosen.steps or self.steps,
        }
        return hashlib.sha256(json.dumps(values, sort_keys=True).encode()).hexdigest()[:12]


def load_design(path: Path = DESIGN) -> Design:
    """The design that is shipped, or another one.

    Raises:
        RecipeError: a variant's recipe is none.
        pydantic.ValidationError: the file is no design.
    """
    values: Mapping[str, Any] = yaml.safe_load(path.read_text(encoding="utf-8"))
    return Design.model_validate(values)
