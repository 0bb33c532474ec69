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
from dataclasses import dataclass
from itertools import cycle, islice
from pathlib import Path
from statistics import fmean
from typing import Any

from pydantic import BaseModel

from benchmarks.learning.design import ColdStart
from benchmarks.learning.scene import Scene
from kbqa.cold_start.collecting import SamplingTeacher, Setting, attempt, attempts, choose
from kbqa.cold_start.demonstrations import Demonstration, demonstrate, is_right, play, recite
from kbqa.cold_start.files import DemonstrationEntry, write_entries
from kbqa.errors import DatasetError, RunError
from kbqa.rollouts import Agent
from kbqa.runs.directory import RunDirectory, Runs, SplitLimits
from kbqa.runs.local import open_run
from kbqa.runs.phases import base_version, cold_started_version, prepare
from kbqa.runs.student import Student

_TURNS = 12  # of a gold program before its actions are merged
_CANDIDATES = 8  # that a teacher tries of a question
_TRIED = 8  # questions at a time
_KEPT = "beginning.json"
_THOUGHT = re.compile(r"<think>.*?</think>", re.DOTALL)
_ACTION = re.compile(r"<action>(.*?)</action>", re.DOTALL)
_LOOK_UP = re.compile(r'get_(?P<side>tail|head)_entities\((?P<entity>".*?"), "(?P<relation>.*?)"\)')


@dataclass(frozen=True, slots=True)
class Policy:
    """Attributes:
    key: its name on the shelf.
    path: its directory.
    demonstrations: that it has imitated.
    """

    key: str
    path: Path
    demonstrations: int


class Beginning:
    """Makes what is not on the shelf yet.

    Args:
        shelf: a directory that all runs share.
    """

    def __init__(self, scene: Scene, shelf: Path) -> None:
        self._scene, self._shelf = scene, shelf

    def f1(self, policy: Policy) -> float:
        """Mean F1 of the test questions by one of its policies; measured once."""
        path = self._shelf / f"{policy.key}.f1"
        with _alone(path):
            if not path.is_file():
                path.write_text(f"{fmean(self._scene.f1(policy.path)):.4f}", encoding="utf-8")
        return float(path.read_text(encoding="utf-8"))

    def cold_started(self, cold: ColdStart) -> Policy:
        """The policy after its cold start; made unless it is there."""
        base, section = self._base(), self._scene.recipe.cold_start
        if not cold.demonstrations or section is None:
            return base
        key = f"cold-start-{self._key(_chosen(cold), _chosen(section))}"
        return self._made(key, lambda: self._demonstrations(cold), base)

    def _base(self) -> Policy:
        """The recipe's base model, or a small policy that can copy at most; made unless it is there."""
        recipe = self._scene.recipe
        if recipe.base_model is not None:
            return self._made(f"base-{self._key(recipe.base_model, recipe.chooser_head)}", list, None)
        if recipe.small_policy is None:
            raise RunError(f"recipe {recipe.name} has neither a base model nor a small policy")
        return self._made(f"base-{self._key(_chosen(recipe.small_policy))}", self._gold, None)

    def _made(
        self, key: str, demonstrations: Callable[[], Sequence[Demonstration]], base: Policy | None
    ) -> Policy:
        """What the phases of a run before reinforcement learning make; on the shelf whole or not at all."""
        path = self._shelf / key
        with _alone(path):
            if not path.is_dir():
                with tempfile.TemporaryDirectory(dir=self._shelf) as aside:
                    self._make(Path(aside) / "home", demonstrations(), base)
                    (Path(aside) / "home").rename(path)
        kept = json.loads((path / _KEPT).read_text(encoding="utf-8"))
        return Policy(key, path / kept["policy"], kept["demonstrations"])

    def _make(self, home: Path, demonstrations: Sequence[Demonstration], base: Policy | None) -> None:
        scene = self._scene
        directory = Runs(home / "runs").create(
            scene.recipe, scene.dataset.name, SplitLimits(test=0), scene.seed, "beginning"
        )
        write_demonstrations(directory, demonstrations, scene.protocol.name)
        with open_run(directory, scene.tools) as context:
            material = prepare(context)
            if base is None:
                version = base_version(context, material)
            else:
                begun = context.publish(Student.load(base.path), 0, {})
                version = cold_started_version(context, material, begun)
        kept = {
            "policy": str(version.path.relative_to(home)),
            "demonstrations": len(demonstrations) if base is not None else 0,
        }
        (home / _KEPT).write_text(json.dumps(kept), encoding="utf-8")

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
        teacher = self.cold_started(weaker)
        setting = Setting(self._scene.protocol, self._scene.tools, self._scene.recipe.rollout.max_turns)
        with self._scene.players(teacher.path) as players:
            agent = players.player(self._scene.tools, 1)
            assert isinstance(agent, Agent)
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


def write_demonstrations(
    directory: RunDirectory, demonstrations: Iterable[Demonstration], protocol: str
) -> None:
    """What a run is to imitate, in place of what its recipe would collect."""
    entries = [DemonstrationEntry(one, protocol, "gold", "gold path") for one in demonstrations]
    write_entries(directory.demonstrations_path, entries)


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
