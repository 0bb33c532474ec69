"""Findings: claims that were tested by training with something and without it, under several seeds.

A file of findings is JSON:

    {"schema_version": 1, "title": "…", "about": "…", "findings": [{"name": "turn-rewards", …}, …]}

`Finding` has the fields of a finding. The file is a list of decided facts: whoever has run the trials also
decides their verdicts. kbqa only checks that the file fits, and draws it.
"""

from __future__ import annotations

from pathlib import Path
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from kbqa.errors import ConfigurationError

Verdict = Literal[
    "same sign", "opposite", "equivalent", "helps", "harms", "cannot show", "undecided", "not run yet"
]


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class Trial(_Part):
    """One seed.

    Attributes:
        has, lacks: mean F1 with and without what the claim is about.
    """

    seed: int
    has: float
    lacks: float


class Effect(_Part):
    """The difference in F1, with - without.

    Attributes:
        low, high: interval; None where there is none yet.
        confidence: of the interval; above 0.95 where a claim is looked at several times.
    """

    mean: float
    low: float | None = None
    high: float | None = None
    confidence: float = Field(default=0.95, gt=0.5, lt=1.0)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if (self.low is None) != (self.high is None):
            raise ValueError("low and high: give both or neither")
        if self.low is not None and self.high is not None and not self.low <= self.high:
            raise ValueError("low must not be above high")
        return self


class Finding(_Part):
    """A claim of a paper, or one's own.

    Attributes:
        name: short, unique in its file.
        claim: what is claimed to matter, in words.
        paper, reports: whose claim it is, and the figures there; empty for one's own.
        has, lacks: names of what was trained with and without it.
        measured: what the figures of a trial are, in words.
        verdict: how the effect stands to the paper's; `helps` or `harms` where that is not known;
            `equivalent` if it is within ± `smallest`; `cannot show` where the trials lack what the claim
            needs.
        smallest: the smallest effect that would matter.
        questions: test questions of each trial.
        trials: by seed.
        learned: what was learned from it, in words.
        notes: anything else that a reader needs, such as the data set or the cost.
    """

    name: str = Field(min_length=1)
    claim: str
    paper: str = ""
    reports: str = ""
    has: str
    lacks: str
    measured: str = "F1 on the test questions"
    verdict: Verdict
    effect: Effect | None = None
    smallest: float | None = Field(default=None, gt=0)
    questions: int | None = Field(default=None, ge=1)
    trials: list[Trial] = []
    learned: str = ""
    notes: list[str] = []


class Findings(_Part):
    """A file of findings.

    Attributes:
        about: how they were found, in words.
    """

    schema_version: Literal[1] = 1
    title: str
    about: str = ""
    findings: list[Finding]

    @model_validator(mode="after")
    def _unique(self) -> Self:
        names = [finding.name for finding in self.findings]
        for name in names:
            if names.count(name) > 1:
                raise ValueError(f"two findings are named {name}")
        return self


def read_findings(path: Path) -> Findings:
    """Raises: ConfigurationError: the file cannot be read, or is no file of findings."""
    try:
        return Findings.model_validate_json(path.read_bytes())
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(map(str, first["loc"]))
        raise ConfigurationError(
            f"{path} is no file of findings: {f'{where}: ' if where else ''}{first['msg']}"
        ) from error
