"""The curves that each paper shows of its training, for comparison with a run.

A figure names fields of a run's step records; their meaning is documented where they are computed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from kbqa.parts import added, additions

FigureKind = Literal["line", "share", "points", "histogram"]


@dataclass(frozen=True, slots=True)
class Figure:
    """A plot over the steps of a run.

    Attributes:
        title: what is plotted, in words.
        fields: of step records, or `validation.<field>` of evaluations, each a line (`line`), a part of
            a whole (`share`), a list of points (`points`) or of counts (`histogram`).
        source: figure, table or section that it belongs to.
        unit: of the values; empty for plain numbers.
        about: what the values are, if the title does not say it.
    """

    title: str
    fields: tuple[str, ...]
    source: str
    kind: FigureKind = "line"
    unit: str = ""
    about: str = ""


# Both mappings are by the name of the recipe's reward.
PAPERS: Mapping[str, str] = {
    "knowcoder_a1": "KnowCoder-A1",
    "kbqa_r1": "KBQA-R1",
    "kg_r1": "KG-R1",
    "isp_kgr": "ISP-KGR",
    "learning_to_refine": "Learning-to-Refine",
    "kg_r1_supported": "KG-R1, and support by the graph",
}
FIGURES: dict[str, tuple[Figure, ...]] = {
    "knowcoder_a1": (
        Figure("Training reward", ("reward",), "Figure 3a"),
        Figure("Response length", ("generated_tokens",), "Figure 3b", unit="tokens"),
        Figure("Turns of interaction", ("turns",), "Figure 3c"),
        Figure("Invalid tool calls", ("invalid_calls",), "Figure 3d", about="per episode"),
        Figure(
            "Composition of rollouts",
            ("direct", "recovered", "incorrect"),
            "Figure 4a",
            "share",
            about="right directly, right after an error or empty result, wrong",
        ),
        Figure("Unique final queries", ("unique_queries",), "Figure 4b", about="per question"),
        Figure(
            "Errors against reward",
            ("error_reward",),
            "Figure 5",
            "points",
            about="x: errors and empty results per episode; y: reward; one dot per question",
        ),
    ),
    "kbqa_r1": (
        Figure(
            "Relation similarity", ("relation_similarity",), "Figure 4a", about="to the reference actions"
        ),
        Figure(
            "Distribution of similarities",
            ("relation_similarity_bins",),
            "Figure 4b",
            "histogram",
            about="first steps and last steps",
        ),
        Figure("Training reward", ("reward",), "Figure 5"),
        Figure("RRCG's top-1", ("rrcg_top1",), "Section IV-A3", about="score of the best relation"),
        Figure("Confidence tiers", ("rrcg_high", "rrcg_medium", "rrcg_low"), "Section IV-A3", "share"),
        Figure("Turns", ("turns",), "Table VIII", about="LLM calls per episode"),
    ),
    "kg_r1": (
        Figure("F1, training and validation", ("f1", "validation.f1"), "Figure 4"),
        Figure("Retrieval rate", ("retrieval",), "Table 3", about="episodes that saw a gold entity"),
        Figure("Generated tokens", ("generated_tokens",), "Section 4.1.2", unit="tokens"),
        Figure("Turns", ("turns",), "Section 4.1", about="at most H"),
    ),
    "isp_kgr": (
        Figure("Mean reward", ("reward",), "Figure 4a", about="mean over trajectories"),
        Figure("Success rate", ("success",), "Figure 4b", about="questions with a correct trajectory"),
        Figure("Branch factor", ("branches",), "Figure 4c", about="children of a state after pruning"),
        Figure("Pruning rate", ("pruned",), "Table 7"),
        Figure("Average F1 of trajectories", ("f1", "validation.f1"), "Figure 7"),
    ),
    "learning_to_refine": (
        Figure("Average reward", ("reward",), "Training curves, panel a"),
        Figure("In-batch accuracy", ("accuracy",), "Training curves, panel b"),
        Figure("In-batch executability", ("executability",), "Training curves, panel c"),
        Figure("Average turns", ("turns",), "Training curves, panel d"),
    ),
}

# Our own reward adds to the figures of KG-R1.
FIGURES["kg_r1_supported"] = (
    *FIGURES["kg_r1"],
    Figure("Supported answers", ("supported",), "not in the paper", about="share of an episode's answers"),
)


@dataclass(frozen=True, slots=True)
class PaperFigures:
    """The figures of another distribution; its entry point in `kbqa.figures` is named like its reward.

    Attributes:
        paper: its name, for people.
    """

    paper: str
    figures: tuple[Figure, ...]


def figures_of(reward: str) -> tuple[Figure, ...]:
    """The figures of the paper whose reward a recipe names; none if the reward belongs to no paper."""
    if reward in FIGURES:
        return FIGURES[reward]
    theirs: PaperFigures | None = added("figures", reward)
    return () if theirs is None else theirs.figures


def paper_of(reward: str) -> str:
    """The paper whose reward a recipe names; the reward's name if it belongs to no paper."""
    if reward in PAPERS:
        return PAPERS[reward]
    theirs: PaperFigures | None = added("figures", reward)
    return reward if theirs is None else theirs.paper


def curve_names() -> list[str]:
    """The fields of all figures that hold one number per step."""
    rewards = (*FIGURES, *(point.name for point in additions("figures")))
    return sorted(
        {
            name
            for reward in rewards
            for figure in figures_of(reward)
            if figure.kind in ("line", "share")
            for name in figure.fields
            if "." not in name
        }
    )
