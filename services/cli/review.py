"""`kbqa questions review` and `kbqa questions accept`: a person decides which made questions stay."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from contextlib import closing, suppress
from pathlib import Path
from typing import Annotated

import typer

from kbqa.datasets.records import write_questions
from kbqa.datasets.reviews import Progress, Review
from kbqa.errors import DatasetError, GraphError
from kbqa.kg.catalog import GraphCatalog
from services.cli.options import DEFAULT_HOME, Home, Seed
from services.http import background
from services.review import Labels, create_app

_PORT = 8004

File = Annotated[
    Path, typer.Argument(help="File of `kbqa questions make`, or other questions as JSON lines.")
]


def review(
    file: File,
    sample: Annotated[int, typer.Option("--sample", min=1, help="How many questions to show.")] = 50,
    seed: Seed = 0,
    port: Annotated[
        int, typer.Option(min=0, max=65535, help="Port on 127.0.0.1; 0 chooses a free one.")
    ] = _PORT,
    home: Home = DEFAULT_HOME,
) -> None:
    """Show a random sample of questions on a page where one accepts, rejects and rewords them.

    Each decision is saved at once in FILE.review.jsonl; FILE stays as it is. Repeat the command to continue a
    review that was interrupted; another --seed shows other questions. If the graph is loaded, the page shows
    labels instead of ids. Only this machine can open it. Next: `kbqa questions accept FILE --output OTHER`.
    """
    reviewed = Review(file)
    begun = reviewed.progress()
    with closing(GraphCatalog(home)) as catalog:
        app = create_app(reviewed, _labels(catalog), sample=sample, seed=seed)
        with background(app, port=port) as url:
            typer.echo(
                f"{url} shows {min(sample, begun.questions)} of {begun.questions} questions; Ctrl-C ends"
            )
            _warn(reviewed, begun)
            with suppress(KeyboardInterrupt):
                threading.Event().wait()
    typer.echo(
        f"\n{_told(reviewed.progress())}; to write the others: kbqa questions accept {file} --output …"
    )


def accept(
    file: File,
    output: Annotated[Path, typer.Option("--output", help="Output file, one JSON record per line.")],
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Write the questions of a reviewed file without the rejected ones, and with the new wordings.

    Questions without a decision are written unchanged.
    """
    reviewed = Review(file)
    if output.exists() and any(
        output.samefile(one) for one in (file, reviewed.decisions_path) if one.exists()
    ):
        raise DatasetError(f"{output} belongs to the review, which would be lost: choose another name")
    if output.exists() and not force:
        raise DatasetError(f"{output} already exists: choose another name, or overwrite it with --force")
    found = reviewed.progress()
    if not found.accepted + found.rejected:
        raise DatasetError(
            f"{reviewed.decisions_path} has no decisions about the questions in {file}: make them with "
            f"kbqa questions review {file}"
        )
    kept = reviewed.kept()
    if not kept:
        raise DatasetError(f"all questions of {file} are rejected, so {output} is not written")
    try:
        write_questions(output, kept)
    except OSError as error:
        raise DatasetError(f"{output} cannot be written: {error.strerror}") from error
    typer.echo(f"{output}: {len(kept)} questions; of {file}, {_told(found)}")
    _warn(reviewed, found)


def _told(progress: Progress) -> str:
    return (
        f"{progress.accepted} of {progress.questions} questions are accepted ({progress.reworded} with other "
        f"words) and {progress.rejected} rejected"
    )


def _warn(reviewed: Review, progress: Progress) -> None:
    if progress.lapsed:
        typer.echo(
            f"{progress.lapsed} decisions in {reviewed.decisions_path} are not applied: {reviewed.path} does "
            "not have their questions, or not as they were",
            err=True,
        )


def _labels(catalog: GraphCatalog) -> Labels:
    def labels(kg: str, ids: Sequence[str]) -> Mapping[str, str]:
        try:
            return {id_: item.label for id_, item in catalog.get(kg).items(ids).items()}
        except GraphError:
            return {}  # not loaded, or away; questions can be read without it

    return labels
