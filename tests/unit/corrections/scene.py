"""A tiny home in which a lesson can be learned: a graph, an encoder, and a policy that is promoted."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from kbqa.corrections import Correction, Earlier, Examination, Lesson
from kbqa.corrections.teaching import teach
from kbqa.datasets.records import write_questions
from kbqa.datasets.splits import Splits
from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.tools import LocalGraphTools
from kbqa.policy_store import PolicyStore
from kbqa.recipes import Recipe, load_recipe
from kbqa.runs.directory import Runs, SplitLimits
from kbqa.runs.local import open_run
from kbqa.runs.training import train
from kbqa.trajectory import Question
from tests.unit.encoders import save_encoder
from tests.unit.runs.mortal import die

RELATIONS = ("maker", "star", "year")
FILMS = [(f"film {n}", relation, f"{relation} {n}") for n in range(6) for relation in RELATIONS]
CUT = {
    "schedule.steps": 1,
    "schedule.questions_per_step": 4,
    "schedule.max_in_flight": 4,
    "schedule.checkpoint_every": 1,
    "schedule.validate_every": 1,
    "rollout.n": 2,
    "optimisation.lora.rank": 8,
}
CUT_LESSON = {"cold_start.steps": 1, "cold_start.validate_every": 1, "cold_start.lora.rank": 8}
CUT_WRITER = {
    "schedule.steps": 1,
    "schedule.questions_per_step": 2,
    "schedule.max_in_flight": 2,
    "schedule.validate_every": 1,
    "small_policy.vocabulary": 400,
    "small_policy.layers": 1,
    "small_policy.width": 32,
    "small_policy.heads": 2,
    "small_policy.feed_forward": 64,
    "cold_start.steps": 2,
    "cold_start.batch": 4,
    "cold_start.validate_every": 2,
}
POINTS = {
    "while it learns": ("kbqa.runs.cold_start.ColdStart", "_look", 1, True),
    "before it publishes": ("kbqa.corrections.teaching", "_publish", 1, False),
    "before its run is kept": ("kbqa.corrections.teaching", "_keep_run", 1, False),
    "before it is judged": ("kbqa.corrections.teaching", "compare", 1, False),
    "before it is promoted": ("kbqa.corrections.record.CorrectionRecord", "keep", 1, True),
}
"""Where a lesson dies; see `mortal.die`."""


def asked(relation: str, n: int) -> Question:
    answers = (f"{relation} {n}",)
    return Question(f"{relation}-{n}", f"{relation} of film {n} ?", answers, (f"film {n}",), "films")


def correction(n: int, teacher: str = "ann") -> Correction:
    now = datetime.now(UTC)
    return Correction(f"c{n}", f"its year: film {n} ?", (f"year {n}",), (f"film {n}",), "films", teacher, now)


EARLIER = Splits(
    (), tuple(asked("maker", n) for n in range(4)), (asked("star", 1),), (asked("star", 2), asked("maker", 5))
)


def films() -> LocalGraphTools:
    return LocalGraphTools(FixedGraphs({"films": OxigraphStore.from_triples(FILMS)}), deadline_s=300)


def begin(home: Path, recipe: Recipe | None = None) -> PolicyStore:
    """Train and promote a policy, the run `first`; by default one that chooses."""
    data = home / "data" / "films"
    data.mkdir(parents=True)
    for split in ("train", "validation", "test"):
        write_questions(data / f"{split}.jsonl", getattr(EARLIER, split))
    if recipe is None:
        encoder = save_encoder(home / "encoder", words=(*RELATIONS, "film"))
        recipe = load_recipe("kg-r1-chooser", {**CUT, "base_model": str(encoder)})
    directory = Runs(home / "runs").create(recipe, "films", SplitLimits(test=0), 1, "first")
    with open_run(directory, films(), data.parent) as context:
        train(context)
    store = PolicyStore(home / "policies")
    first = store.newest("first")
    assert first is not None
    store.promote(first.run, first.id)
    return store


def learn(
    home: Path,
    *corrections: Correction,
    name: str = "lesson",
    must: tuple[Question, ...] = (),
    cut: Mapping[str, object] = CUT_LESSON,
) -> Lesson:
    """One lesson, of one step."""
    return teach(
        home,
        PolicyStore(home / "policies"),
        films(),
        Examination(corrections, ()),
        earlier=EARLIER,
        earlier_name=Earlier(dataset="films", seed=1),
        must_answer=must,
        overrides=cut,
        name=name,
    )


def learn_and_die(home: Path, point: str) -> None:
    """A lesson in a process that kills itself at a point."""
    import torch

    torch.set_num_threads(1)
    die(*POINTS[point])
    learn(home, correction(0), name="dead")
