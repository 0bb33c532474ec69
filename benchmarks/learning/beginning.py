"""What a run begins with: a policy after its cold start, made once for all runs that have it in common."""

from __future__ import annotations

import fcntl
import hashlib
import json
import random
import re
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from benchmarks.learning.design import ColdStart
from benchmarks.learning.scene import Scene
from kbqa.cold_start.collecting import SamplingTeacher, Setting, attempt, attempts, choose
from kbqa.cold_start.demonstrations import Demonstration, demonstrate, is_right, play, recite
from kbqa.cold_start.imitation import Names, draw_examples
from kbqa.errors import DatasetError, RunError
from kbqa.runs.student import Student, tokenizer_texts
from kbqa.training.sft import fine_tune

_TURNS = 12  # of a gold program before its actions are merged
_CANDIDATES = 8  # that a teacher tries of a question
_TRIED = 8  # questions at a time
_COUNT = "demonstrations.json"
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_LOOK_UP = re.compile(r'get_(?P<side>tail|head)_entities\((?P<entity>".*?"), "(?P<relation>.*?)"\)')


class Beginning:
    """Makes what is not on the shelf yet.

    Args:
        shelf: a directory that all runs share.
    """

    def __init__(self, scene: Scene, shelf: Path) -> None:
        self._scene, self._shelf = scene, shelf

    def cold_started(self, cold: ColdStart) -> tuple[Path, int]:
        """A policy after its cold start, and the number of its demonstrations; made unless it is there."""
        base = self._base()
        section = self._scene.recipe.cold_start
        if not cold.demonstrations or section is None:
            return base, 0
        path = self._shelf / f"cold-start-{self._key(_chosen(cold), _chosen(section))}"
        with _alone(path):
            if not path.is_dir():
                demonstrations = self._demonstrations(cold)
                student = Student.load(base)
                rng, names = random.Random(f"cold_start/{self._scene.seed}"), Names(student.words())
                most = self._scene.recipe.rollout.max_observation_tokens
                fine_tune(
                    student.model,
                    lambda size: draw_examples(demonstrations, size, student.codec, names, rng, most),
                    section.build(len(demonstrations)),
                    lambda step, loss: False,
                )
                _keep(student, path, len(demonstrations))
        return path, int(json.loads((path / _COUNT).read_text(encoding="utf-8")))

    def _base(self) -> Path:
        """A policy that has learned to copy and nothing else; made unless it is there."""
        small = self._scene.recipe.small_policy
        if small is None:
            raise RunError(f"recipe {self._scene.recipe.name} has no small policy")
        path = self._shelf / f"base-{self._key(_chosen(small))}"
        with _alone(path):
            if not path.is_dir():
                scene = self._scene
                texts = tokenizer_texts(scene.dataset.graph_lines(), self._gold(), scene.questions.train)
                student = Student.fresh(small.build(), texts, scene.protocol.tags, scene.seed)
                if small.warm_up is not None:
                    student.warm_up(small.warm_up.build(), scene.seed)
                _keep(student, path, 0)
        return path

    def _gold(self, count: int | None = None, turns: int | None = None) -> list[Demonstration]:
        """The gold programs of so many questions of the cold start that can be played in so many turns."""
        turns = turns or self._scene.recipe.rollout.max_turns
        played = (
            demonstrate(question, self._scene.protocol, self._scene.tools, turns)
            for question in self._scene.questions.cold_start[:count]
        )
        return [demonstration for demonstration in played if demonstration is not None]

    def _demonstrations(self, cold: ColdStart) -> list[Demonstration]:
        if cold.taught:
            return self._sampled(cold)
        found = self._gold(
            cold.demonstrations if cold.rare_hops is None else None, turns=_TURNS if cold.merged else None
        )
        if cold.rare_hops is not None:
            found = halving(found, cold.demonstrations, upsampled=cold.rare_hops == "upsampled")
        if not cold.thoughts:
            found = self._replayed(found, _without_thoughts)
        if cold.merged:
            found = self._replayed(found, merged_turns)
        if cold.listed:
            found = self._replayed(found, listing_turns)
        if not found:
            raise DatasetError("no gold program of the data set can be played")
        return found

    def _replayed(
        self, demonstrations: Sequence[Demonstration], changed: Callable[[Sequence[str]], Iterable[str]]
    ) -> list[Demonstration]:
        """The episodes that other turns make of the same questions, as long as they are right."""
        scene, turns = self._scene, self._scene.recipe.rollout.max_turns
        played = [
            play(one.question, scene.protocol, scene.tools, recite(list(changed(one.turns))), turns)
            for one in demonstrations
        ]
        return [one.demonstration for one in played if is_right(one)]

    def _sampled(self, cold: ColdStart) -> list[Demonstration]:
        """What a weaker policy answers rightly by itself (outcome rejection sampling)."""
        weaker = cold.model_copy(update={"demonstrations": cold.taught, "taught": 0})
        teacher, _ = self.cold_started(weaker)
        setting = Setting(self._scene.protocol, self._scene.tools, self._scene.recipe.rollout.max_turns)
        with self._scene.agent(Student.load(teacher)) as (agent, _):
            sampling = SamplingTeacher(agent, _CANDIDATES, seed=self._scene.seed)
            questions = self._scene.questions.cold_start[: cold.demonstrations]
            tried = list(attempts(questions, lambda question: attempt(question, sampling, setting), _TRIED))
        kept = choose(tried, random.Random(f"cold-start/{self._scene.seed}"))
        if not kept:
            raise RunError("the teacher answers no question rightly")
        return kept

    def _key(self, *parts: object) -> str:
        """Of a policy that runs with the same parts may share."""
        recipe = self._scene.recipe
        shared = {
            "dataset": self._scene.dataset.name,
            "seed": self._scene.seed,
            "protocol": _chosen(recipe.protocol),
            "questions": _chosen(recipe.questions),
            "turns": recipe.rollout.max_turns,
            "small": recipe.small_policy and _chosen(recipe.small_policy),
            "parts": parts,
        }
        return hashlib.sha256(json.dumps(shared, sort_keys=True).encode()).hexdigest()[:12]


def merged_turns(texts: Sequence[str]) -> list[str]:
    """All actions of an episode in its first turn, and then its answer (KBQA-R1's dialect)."""
    thought = _THOUGHT.match(texts[0])
    actions = [action for text in texts for action in _ACTION.findall(text)]
    first = "\n".join(actions)
    return [f"{thought[0] if thought else ''}<action>{first}</action>", texts[-1]]


def listing_turns(texts: Sequence[str]) -> Iterator[str]:
    """Before a relation is followed, those that there are are listed (KG-R1's dialect)."""
    followed = None
    for text in texts:
        found = _LOOK_UP.search(text)
        if found and found["relation"] != followed:
            followed = found["relation"]
            yield _LOOK_UP.sub(r"get_\g<side>_relations(\g<entity>)", text)
        yield text


def _chosen(section: BaseModel) -> dict[str, Any]:
    """Its values, less those that are a default: an option that it gets later changes no key."""
    return section.model_dump(mode="json", exclude_defaults=True)


@contextmanager
def _alone(path: Path) -> Iterator[None]:
    """Nobody else makes what is to be at `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.with_suffix(".lock").open("w", encoding="utf-8") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _keep(student: Student, path: Path, demonstrations: int) -> None:
    """Whole or not at all."""
    with tempfile.TemporaryDirectory(dir=path.parent) as aside:
        student.save(Path(aside) / "policy")
        (Path(aside) / "policy" / _COUNT).write_text(json.dumps(demonstrations), "utf-8")
        (Path(aside) / "policy").rename(path)


def halving(demonstrations: Sequence[Demonstration], count: int, *, upsampled: bool) -> list[Demonstration]:
    """Some `count` of which every further hop has half as many as the one before, at least one."""
    by_hops: defaultdict[int, list[Demonstration]] = defaultdict(list)
    for demonstration in demonstrations:
        by_hops[demonstration.question.hops].append(demonstration)
    chosen: list[list[Demonstration]] = []
    for hops in sorted(by_hops):
        count = max(1, count // 2)
        chosen.append(by_hops[hops][:count])
    most = max(map(len, chosen))
    return [one for members in chosen for one in (islice(cycle(members), most) if upsampled else members)]


def _without_thoughts(texts: Sequence[str]) -> list[str]:
    return [_THOUGHT.sub("<think></think>", text) for text in texts]
