"""The record of what was taught: lessons, and teachers whose corrections were taken back.

    corrections/lessons/RUN.json        one `Lesson` each
    corrections/revocations/….json      one `Revocation` each
    corrections/record.lock             held while the record and the promoted version are changed together

Files are written atomically and never changed.
"""

from __future__ import annotations

import fcntl
import uuid
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

from pydantic import AwareDatetime, BaseModel, ConfigDict, ValidationError

from kbqa.corrections.correction import Correction
from kbqa.errors import CorrectionsError, NoPolicyError
from kbqa.policy_store import PolicyStore, PolicyVersion
from kbqa.policy_store.durable import write_file

ModelT = TypeVar("ModelT", bound=BaseModel)


class _Entry(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class Revocation(_Entry):
    """All corrections by a teacher up to a time are taken back."""

    by: str
    time: AwareDatetime


class TaughtCorrection(_Entry):
    """A correction that a lesson was made of, and who said it when."""

    id: str
    by: str
    time: AwareDatetime


class RefusedCorrection(_Entry):
    """A correction that was set aside, and why."""

    id: str
    by: str
    reason: str


class Earlier(_Entry):
    """The data set of earlier questions, and the seed of its splits."""

    dataset: str
    seed: int


class Lesson(_Entry):
    """What a policy was taught, and whether it was promoted afterwards.

    Attributes:
        run, version: the policy after the lesson.
        began_with: run and version of the policy before it, as RUN/VERSION.
        corrections: from which it was learned.
        set_aside: those that were not.
        before, after: mean F1 of both policies on the corrections (`corrections`) and on held-out earlier
            questions (`earlier`).
        broken: ids of must-answer questions that only the policy before answers right.
        promoted: whether the policy after the lesson was to be promoted.
        reason: why it was not; empty if it was.
    """

    run: str
    version: str
    began_with: str
    time: AwareDatetime
    earlier: Earlier
    corrections: tuple[TaughtCorrection, ...]
    set_aside: tuple[RefusedCorrection, ...] = ()
    before: dict[str, float]
    after: dict[str, float]
    broken: tuple[str, ...] = ()
    promoted: bool
    reason: str = ""

    @property
    def name(self) -> str:
        """The policy after the lesson, as RUN/VERSION."""
        return f"{self.run}/{self.version}"


class CorrectionRecord:
    """The record under a home.

    Raises:
        CorrectionsError: any method, if a file of the record is damaged.
    """

    def __init__(self, home: Path) -> None:
        self.directory = home / "corrections"
        self._revocations, self._lessons = self.directory / "revocations", self.directory / "lessons"

    @contextmanager
    def exclusive(self) -> Iterator[None]:
        """While this lasts, no other process changes the record, or promotes because of it."""
        self.directory.mkdir(parents=True, exist_ok=True)
        with (self.directory / "record.lock").open("ab") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield

    def valid(self, corrections: Iterable[Correction]) -> list[Correction]:
        """The corrections that were not taken back."""
        until = self._taken_back()
        return [one for one in corrections if one.teacher not in until or one.time > until[one.teacher]]

    def revoked(self, lesson: Lesson) -> list[str]:
        """Teachers of a lesson some of whose corrections in it were taken back."""
        until = self._taken_back()
        return sorted({one.by for one in lesson.corrections if one.by in until and one.time <= until[one.by]})

    def revoke(self, teacher: str) -> Revocation:
        """Take back what a teacher has said until now; it is on the disk when this returns."""
        revocation = Revocation(by=teacher, time=datetime.now(UTC))
        self._revocations.mkdir(parents=True, exist_ok=True)
        path = self._revocations / f"{revocation.time:%Y%m%d-%H%M%S}-{uuid.uuid4().hex[:8]}.json"
        write_file(path, revocation.model_dump_json(indent=1).encode())
        return revocation

    def revocations(self) -> list[Revocation]:
        """All of them, oldest first."""
        return sorted(_read(Revocation, self._revocations), key=lambda revocation: revocation.time)

    def keep(self, lesson: Lesson) -> None:
        """Add a lesson to the record."""
        self._lessons.mkdir(parents=True, exist_ok=True)
        write_file(self._lessons / f"{lesson.run}.json", lesson.model_dump_json(indent=1).encode())

    def lessons(self) -> list[Lesson]:
        """All of them, oldest first."""
        return sorted(_read(Lesson, self._lessons), key=lambda lesson: lesson.time)

    def taught(self, version: PolicyVersion) -> set[str]:
        """Ids of all corrections that a version has learned from, in the last lesson or in those before."""
        return {one.id for lesson in self._course(version) for one in lesson.corrections}

    def lesson_that_made(self, version: PolicyVersion) -> Lesson | None:
        """The lesson that a version comes from; None if it comes from ordinary training."""
        return next(self._course(version), None)

    def lesson_of(self, version: PolicyVersion, corrections: Iterable[Correction]) -> Lesson | None:
        """The last lesson that taught exactly these corrections to a version, or that made it of them."""
        ids, name = {one.id for one in corrections}, f"{version.run}/{version.id}"
        alike = [
            lesson
            for lesson in self.lessons()
            if name in (lesson.name, lesson.began_with) and {one.id for one in lesson.corrections} == ids
        ]
        return alike[-1] if alike else None

    def untaught(self, version: PolicyVersion, store: PolicyStore) -> PolicyVersion | None:
        """The last version that has led to this one without having learned anything that was taken back.

        Returns:
            None if this version itself has learned nothing of the kind.

        Raises:
            NoPolicyError: the version before is no longer in the store.
        """
        wrong = [lesson for lesson in self._course(version) if self.revoked(lesson)]
        if not wrong:
            return None
        found = wrong[-1].began_with
        run, _, id_ = found.partition("/")
        try:
            return store.get(run, id_)
        except NoPolicyError as error:
            raise NoPolicyError(
                f"the version {found}, which has not learned from these corrections, was deleted: promote "
                "another one (kbqa promote), and teach it what is left (kbqa corrections learn)"
            ) from error

    def _course(self, version: PolicyVersion) -> Iterator[Lesson]:
        """The lessons that a version comes from, latest first."""
        lessons, name = {lesson.name: lesson for lesson in self.lessons()}, f"{version.run}/{version.id}"
        while (lesson := lessons.get(name)) is not None:
            yield lesson
            name = lesson.began_with

    def _taken_back(self) -> dict[str, datetime]:
        return {revocation.by: revocation.time for revocation in self.revocations()}


def _read(model: type[ModelT], directory: Path) -> Iterator[ModelT]:
    for path in directory.glob("*.json"):
        try:
            yield model.model_validate_json(path.read_bytes())
        except (OSError, ValidationError) as error:
            raise CorrectionsError(f"{path} is damaged: restore it from a copy ({error})") from error
