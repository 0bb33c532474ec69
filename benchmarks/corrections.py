"""Corrections that teach: a policy learns a team's words, is lied to, and unlearns one teacher's words.

For each seed, a world and a policy trained on its questions. Then, by the commands that an operator uses:

    learn     thirty corrections by `ann`: five relations of which no earlier question asks, in words that
              only this team uses for them ("the angel of FILM" is its producer), six corrections each
    lies      thirty by `bob`: entities of the right kind, but not the ones that the graph has
    poison    thirty by `eve`: "the director of FILM" is its producer, and four more of this kind. The graph
              has the producer, so that only earlier questions can contradict
    revoke    what `ann` said is taken back

Held-out paraphrases ask about other entities in other sentences. "Others" are new questions of the world,
which decide about nothing; "deciding" are those that decide about promotions.

With KBQA_HOME set, policies are kept there and are not trained again.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import fmean
from tempfile import TemporaryDirectory

from kbqa.corrections import CorrectionRecord
from kbqa.datasets import load_dataset
from kbqa.datasets.world import World, generate_questions, generate_world
from kbqa.feedback import Feedback, feedback_path
from kbqa.kg.catalog import GraphCatalog
from kbqa.policy_store import PolicyStore
from kbqa.recipes import load_recipe
from kbqa.runs.directory import Runs, SplitLimits
from kbqa.runs.local import open_run
from kbqa.runs.training import train
from kbqa.serving.answering import answered
from kbqa.trajectory import Question
from services.access.keys import KeyFile
from services.cli.graphs import load_graphs, local_tools
from services.gateway.access.settings import keys_path

_SEEDS = (1, 2, 3)
_RUN, _KG = "first", "world"
_EACH, _HELD_OUT = 6, 18  # corrections, and held-out paraphrases, of a relation
_OTHERS = 1200  # of 240, three that are lost by chance would already be more than 0.01

# Relation → sentences of corrections, and those of held-out paraphrases.
_JARGON: Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "film.film.producer": (
        ("the angel of {} ?", "who is {} 's angel ?", "name the angel behind {} ."),
        ("which angel stood behind {} ?", "{} : who was the angel ?", "tell me the angel for {} ."),
    ),
    "book.book.editor": (
        ("the red pen of {} ?", "who held the red pen for {} ?", "name the red pen behind {} ."),
        ("whose red pen went over {} ?", "{} : who was the red pen ?", "tell me the red pen for {} ."),
    ),
    "book.book.translator": (
        ("the second voice of {} ?", "who lent {} a second voice ?", "name the second voice behind {} ."),
        ("whose second voice do we hear in {} ?", "{} : who was the second voice ?",
         "tell me the second voice for {} ."),
    ),
    "event.event.runner_up": (
        ("the silver of {} ?", "who took silver at {} ?", "name the silver in {} ."),
        ("who went home from {} with silver ?", "{} : who was the silver ?", "tell me the silver for {} ."),
    ),
    "event.event.sponsor": (
        ("the purse of {} ?", "who filled the purse of {} ?", "name the purse behind {} ."),
        ("whose purse paid for {} ?", "{} : who was the purse ?", "tell me the purse for {} ."),
    ),
}  # fmt: skip

# Relations that earlier questions ask for, the sentences of these, and the relation that they are to mean.
_POISON: Mapping[str, tuple[tuple[str, ...], str]] = {
    "film.film.directed_by": (
        ("what is the director of {} ?", "name the person who directed {} ."),
        "film.film.producer",
    ),
    "book.book.author": (("what is the author of {} ?", "name the writer of {} ."), "book.book.editor"),
    "event.event.winner": (
        ("what is the winner of {} ?", "name the champion of {} ."),
        "event.event.runner_up",
    ),
    "organization.organization.founder": (
        ("what is the founder of {} ?", "name the person who started {} ."),
        "organization.organization.headquarters",
    ),
    "people.person.place_of_birth": (
        ("what is the birthplace of {} ?", "name the city where {} was born ."),
        "people.person.alma_mater",
    ),
}


def measure() -> list[str]:
    rows = [_row(seed) for seed in _SEEDS]
    return [
        "| seed | paraphrases, before → after | deciding | others | learn | lies | poison | revoked |",
        "|---|---|---|---|---|---|---|---|",
        *rows,
    ]


def _row(seed: int) -> str:
    with TemporaryDirectory() as temporary:
        kept = os.environ.get("KBQA_HOME")
        home = Path(kept) / f"corrections-{seed}" if kept else Path(temporary)
        scene = _Scene(seed, home)
        before = scene.f1()
        seconds, learned = scene.teach("ann", _jargon(scene.world, seed))
        after = scene.f1()
        _, lies = scene.teach("bob", _lies(scene.world, seed))
        _, poison = scene.teach("eve", _poison(scene.world, seed))
        scene.kbqa("corrections", "revoke", "--by", "ann")
        revoked = scene.f1()
    arrows = [f"{before[part]:.3f} → {after[part]:.3f}" for part in before]
    back = "as before" if revoked == before else "differs"
    return f"| {' | '.join([str(seed), *arrows, f'{learned} ({seconds:.0f} s)', lies, poison, back])} |"


class _Scene:
    """A home with a world, a policy that is promoted, and keys of three teachers."""

    def __init__(self, seed: int, home: Path) -> None:
        self.seed, self.home, self.world = seed, home, generate_world(seed)
        load_graphs(home, _KG, seed)
        self._store = PolicyStore(home / "policies")
        if not (home / "runs" / _RUN / "summary.json").is_file():
            directory = Runs(home / "runs").create(
                load_recipe("kg-r1-chooser"), _KG, SplitLimits(), seed, _RUN
            )
            with closing(GraphCatalog(home)) as graphs, open_run(directory, local_tools(graphs, home)) as run:
                train(run)
        first = self._store.newest(_RUN)
        assert first is not None, "a run that ends has published its versions"
        self._store.promote(_RUN, first.id)
        shutil.rmtree(home / "corrections", ignore_errors=True)
        feedback_path(home).unlink(missing_ok=True)
        keys = KeyFile(keys_path(home))
        self._keys = {record.name: record.id for record in keys.read()}
        for name in {"ann", "bob", "eve"} - self._keys.keys():
            self._keys[name] = keys.create(name)[0].id

    def f1(self) -> dict[str, float]:
        """Mean F1 of the promoted version on paraphrases, on questions that decide, and on others."""
        sizes = {"cold_start": 0, "train": 0, "validation": 0, "test": _OTHERS}
        parts = {
            "paraphrases": _paraphrases(self.world, self.seed),
            "deciding": load_dataset(_KG, self.seed).splits.test,
            "others": generate_questions(self.world, 1000 + self.seed, sizes, _KG).test,
        }
        questions = [question for part in parts.values() for question in part]
        with closing(GraphCatalog(self.home)) as graphs:
            records = answered(self._store.promoted(), questions, local_tools(graphs, self.home))
        values = iter(record.each[0]["f1"].value for record in records)
        return {part: fmean(next(values) for _ in of) for part, of in parts.items()}

    def teach(self, teacher: str, questions: Sequence[Question]) -> tuple[float, str]:
        """Give feedback and let the policy learn from it; returns the seconds, and what came of it."""
        path = feedback_path(self.home)
        with path.open("a", encoding="utf-8") as file:
            file.writelines(self._feedback(teacher, one).model_dump_json() + "\n" for one in questions)
        began = time.monotonic()
        said = self.kbqa("corrections", "learn", "--kg", _KG, "--by", teacher, "--seed", str(self.seed))
        seconds = time.monotonic() - began
        last = CorrectionRecord(self.home).lessons()[-1]
        refused = sum(f" (by {teacher}): " in line for line in said.splitlines())
        if not any(one.by == teacher for one in last.corrections):
            return seconds, f"all {refused} set aside"
        outcome = "promoted" if last.promoted else f"not promoted: {last.reason}"
        return seconds, f"{refused} set aside, the others {outcome}" if refused else outcome

    def kbqa(self, *arguments: str) -> str:
        environment = {**os.environ, "KBQA_HOME": str(self.home)}
        command = [sys.executable, "-m", "services.cli", *arguments]
        return subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=False).stdout

    def _feedback(self, teacher: str, question: Question) -> Feedback:
        return Feedback(
            id=f"{teacher}-{question.id}",
            time=datetime.now(UTC),
            owner=self._keys[teacher],
            answer_id="-",
            verdict="wrong",
            question=question.text,
            kg=_KG,
            topic_entities=question.topic_entities,
            policy_version="-",
            status="answered",
            answers=(),
            gold=question.answers,
        )


def _jargon(world: World, seed: int) -> list[Question]:
    return [
        question
        for relation, (sentences, _) in _JARGON.items()
        for question in _ask(world, relation, sentences, seed, 0, _EACH)
    ]


def _paraphrases(world: World, seed: int) -> list[Question]:
    return [
        question
        for relation, (_, sentences) in _JARGON.items()
        for question in _ask(world, relation, sentences, seed, _EACH, _HELD_OUT)
    ]


def _lies(world: World, seed: int) -> list[Question]:
    """As the corrections, about other entities; each has the answers to another one of the same relation."""
    lies = list[Question]()
    for relation, (sentences, _) in _JARGON.items():
        true = list(_ask(world, relation, sentences, seed, _EACH + _HELD_OUT, _EACH))
        others = [*true[1:], true[0]]
        lies += [replace(one, answers=other.answers) for one, other in zip(true, others, strict=True)]
    return lies


def _poison(world: World, seed: int) -> list[Question]:
    return [
        question
        for relation, (sentences, meant) in _POISON.items()
        for question in _ask(world, relation, sentences, seed, 0, _EACH, meant)
    ]


def _ask(
    world: World, relation: str, sentences: Sequence[str], seed: int, skip: int, count: int, meant: str = ""
) -> Iterator[Question]:
    """Questions about different entities, the sentences in turn.

    Args:
        skip: entities that are left out.
        meant: the relation that has the answers; by default the same.
    """
    tails = defaultdict[str, list[str]](list)
    for head, name, tail in world.triples:
        if name == (meant or relation):
            tails[head].append(tail)
    heads = sorted(tails)
    random.Random(f"{relation}/{seed}").shuffle(heads)
    for place, head in enumerate(heads[skip : skip + count]):
        text = sentences[place % len(sentences)].format(head)
        yield Question(f"{relation}-{skip + place}", text, tuple(sorted(tails[head])), (head,), _KG)
