"""Has a file of questions answered as batches; goes on where an earlier call was interrupted.

The answers are appended to the output. The id of the batch that is being answered is in a file beside it,
`OUTPUT.batch`, so that a later call finds the batch again instead of asking its questions once more.
"""

from __future__ import annotations

import hashlib
import json
import os
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import typer
from pydantic import ValidationError
from rich.console import Console
from rich.progress import Progress

from kbqa.client import Gateway, GatewayBusyError, GatewayError, GatewayUnreachableError, NotThereError
from kbqa.client.batches import BatchAnswer, BatchLine, BatchModel
from kbqa.client.events import Problem
from kbqa.errors import DatasetError

T = TypeVar("T")

_MOST = 10_000  # lines of a batch; a longer file is sent in several
_POLL_S = 1.0
_PATIENCE_S = 300.0  # for a gateway that is restarted meanwhile
_INTERRUPTED = 130
_OF_RECORDS = ("id", "kg", "graph", "topic_entities")  # fields of a data set's record that are asked


class FileOfQuestions:
    """A file of questions and that of their answers.

    Args:
        options: fields of each question that does not set them itself; None stands for no value.

    Raises:
        DatasetError: a file cannot be read, two questions have the same id, or the output is something else.
    """

    def __init__(self, file: Path, output: Path, options: Mapping[str, Any]) -> None:
        self._output, self._note = output, output.with_name(f"{output.name}.batch")
        given = {name: value for name, value in options.items() if value is not None}
        self._numbers: dict[str, int] = {}  # id → number of the line
        self._lines: list[BatchLine] = []
        self._bad: list[BatchAnswer] = []
        for number, text in _numbered(file):
            line = _read(number, text, given)
            assert line.id is not None
            if line.id in self._numbers:
                raise DatasetError(
                    f'{file}: lines {self._numbers[line.id]} and {number} have the same id "{line.id}": '
                    "give each question its own"
                )
            self._numbers[line.id] = number
            if isinstance(line, BatchLine):
                self._lines.append(line)
            else:
                self._bad.append(line)
        self._answered = _answered(output)

    def ask(self, client: Gateway) -> None:
        """Have every question answered that has no answer yet, and append the answers to the output.

        Raises:
            GatewayError: the gateway refuses, or does not answer for minutes.
        """
        for bad in self._bad:
            self._keep([bad])
        console = Console(stderr=True)
        with Progress(console=console, transient=True) as progress:
            task = progress.add_task("answers", total=len(self._numbers))
            progress.update(task, completed=len(self._answered))

            def report(batch: BatchModel) -> None:
                progress.update(task, completed=len(self._answered), description=batch.waiting or "answers")

            try:
                while waiting := [line for line in self._lines if line.id not in self._answered]:
                    self._ask(client, waiting[:_MOST], report)
            except KeyboardInterrupt:
                typer.echo("the gateway goes on answering; to fetch its answers: the same command again")
                raise typer.Exit(_INTERRUPTED) from None
        errors = len(self._answered) - sum(self._answered.values())
        typer.echo(
            f"{self._output}: answers to {len(self._answered)} questions"
            + (f"; {errors} of them are errors" if errors else "")
        )

    def _ask(self, client: Gateway, lines: list[BatchLine], report: Callable[[BatchModel], None]) -> None:
        """One batch: an earlier call's, or one of these lines."""
        id_ = self._earlier(client)
        if id_ is None:
            asked = "\n".join(line.model_dump_json() for line in lines)
            # If this call is killed before it has noted the id, the next one gets the same batch again.
            key = hashlib.sha256(asked.encode()).hexdigest()
            id_ = _patiently(lambda: client.send_batch(lines, idempotency_key=key)).id
            self._note.write_text(json.dumps({"gateway": client.url, "batch": id_}), encoding="utf-8")
        fetched = 0
        while True:
            batch = _patiently(lambda: client.batch(id_))
            fetched += self._keep(_patiently(partial(_ready, client, id_, fetched)))
            report(batch)
            if batch.state != "running":
                break
            time.sleep(_POLL_S)
        with suppress(NotThereError):
            _patiently(lambda: client.delete_batch(id_))
        self._note.unlink()
        if batch.state == "cancelled":
            raise DatasetError(
                f"the batch {id_} was cancelled: to ask the remaining questions, give the same command again"
            )

    def _earlier(self, client: Gateway) -> str | None:
        """The batch that an earlier call has left at this gateway."""
        try:
            note = json.loads(self._note.read_bytes())
            if note["gateway"] == client.url:
                return _patiently(lambda: client.batch(str(note["batch"]))).id
        except (FileNotFoundError, ValueError, KeyError, TypeError, NotThereError):
            pass
        return None

    def _keep(self, answers: list[BatchAnswer]) -> int:
        """Append answers that are new; returns how many there were."""
        with self._output.open("ab") as file:
            for answer in answers:
                if answer.id not in self._numbers or answer.id in self._answered:
                    continue
                self._answered[answer.id] = answer.error is None
                kept = answer.model_copy(update={"line": self._numbers[answer.id]})
                file.write(kept.model_dump_json(exclude_none=True).encode() + b"\n")
        return len(answers)


def _ready(client: Gateway, batch_id: str, after: int) -> list[BatchAnswer]:
    return list(client.batch_answers(batch_id, after=after))


def _numbered(file: Path) -> list[tuple[int, bytes]]:
    try:
        lines = file.read_bytes().split(b"\n")
    except OSError as error:
        raise DatasetError(f"{file} cannot be read: {error.strerror}") from error
    found = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    if not found:
        raise DatasetError(f"{file} has no questions: write a JSON object with a question on each line")
    return found


def _read(number: int, text: bytes, given: Mapping[str, Any]) -> BatchLine | BatchAnswer:
    """A line of the file, or the error that is its answer."""
    id_ = str(number)
    try:
        record = json.loads(text)
        if not isinstance(record, dict):
            raise ValueError("expected a JSON object")
        if "text" in record and "question" not in record:
            fields = {name: record[name] for name in _OF_RECORDS if record.get(name)}
            record = {**fields, "question": record["text"]}
        record = {**given, "id": id_, **record}
        if isinstance(record["id"], str):
            id_ = record["id"]
        return BatchLine.model_validate_json(json.dumps(record))
    except (ValueError, RecursionError) as error:  # pydantic's ValidationError is one
        return BatchAnswer(line=number, id=id_, error=_problem(error))


def _problem(error: Exception) -> Problem:
    detail = str(error)
    if isinstance(error, ValidationError):
        detail = "; ".join(
            ": ".join((".".join(map(str, e["loc"])), e["msg"])) for e in error.errors(include_url=False)
        )
    return Problem(
        type="urn:kbqa:problem:invalid-request", title="Unprocessable Content", status=422, detail=detail
    )


def _answered(output: Path) -> dict[str, bool]:
    """By the id of each question with an answer: whether it is no error. An incomplete line is removed."""
    if not output.exists():
        if not output.absolute().parent.is_dir():
            raise DatasetError(f"{output} cannot be written: its directory does not exist")
        return {}
    text = output.read_bytes()
    whole, _, rest = text.rpartition(b"\n")
    try:
        answers = [BatchAnswer.model_validate_json(line) for line in whole.split(b"\n") if line]
    except ValidationError as error:
        raise DatasetError(f"{output} is not a file of answers: choose another name") from error
    if rest:
        os.truncate(output, len(text) - len(rest))
    return {answer.id: answer.error is None for answer in answers}


def _patiently(call: Callable[[], T]) -> T:
    """The result of a call, which is repeated for a while if the gateway is busy or restarts."""
    deadline = time.monotonic() + _PATIENCE_S
    while True:
        try:
            return call()
        except (GatewayBusyError, GatewayUnreachableError) as error:
            pause_s = _pause_s(error)
            if time.monotonic() + pause_s > deadline:
                raise
        time.sleep(pause_s)


def _pause_s(error: GatewayError) -> float:
    wanted = error.retry_after_s if isinstance(error, GatewayBusyError) else None
    return _POLL_S if wanted is None else wanted
