"""`kbqa questions`: makes questions about a graph that has none."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import Progress
from rich.table import Table

from kbqa.chat import ChatClient
from kbqa.datasets.examples import write_examples
from kbqa.datasets.from_graph import FEWEST, Made, Paraphraser, make_questions, split_made
from kbqa.datasets.leaks import leaks_between
from kbqa.datasets.records import write_questions
from kbqa.datasets.splits import Splits
from kbqa.errors import ConfigurationError, DatasetError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.store import GraphStore
from kbqa.trajectory import Question
from services.cli import review
from services.cli.chat_models import CHAT, chat_model
from services.cli.options import DEFAULT_HOME, Home, Seed

commands = typer.Typer(help="Make questions about a graph that has none.", no_args_is_help=True)

_SAMPLES = 5
_EXAMPLES_OF = 120  # questions of which examples are chosen
_LISTED = 10

Heads = Annotated[
    list[str] | None,
    typer.Option(
        "--heads",
        metavar="RELATION=NOUN",
        help="What the heads of a relation are called, if the graph declares no classes: "
        "directed_by=film. Repeatable. By default, a graph whose name is a plural (films) is about these.",
    ),
]

ParaphraseWith = Annotated[
    str | None,
    typer.Option(
        "--paraphrase-with",
        metavar=f"{CHAT}MODEL",
        help="Let a chat model reword the questions. Its endpoint is KBQA_GATEWAY_CHAT_URL and "
        "KBQA_GATEWAY_CHAT_API_KEY (or OPENAI_BASE_URL and OPENAI_API_KEY). A question keeps its own "
        "words if the new ones fail a check.",
    ),
]


@commands.callback()
def questions() -> None:
    """Make questions about a graph that has none."""


@commands.command()
def make(
    graph: Annotated[str, typer.Argument(help="Name of a graph that is loaded or attached.")],
    output: Annotated[Path, typer.Option("--output", help="Output file, one JSON record per line.")],
    count: Annotated[int, typer.Option("--count", min=1, help="How many questions to make.")] = 1_000,
    heads: Heads = None,
    paraphrase_with: ParaphraseWith = None,
    seed: Seed = 0,
    home: Home = DEFAULT_HOME,
    force: Annotated[bool, typer.Option("--force", help="Overwrite an existing file.")] = False,
) -> None:
    """Make questions with answers and programs from a graph alone, to train a policy on it.

    The words come from the names of the graph's relations and from WordNet. Every program is executed on the
    graph, whose answers are the gold answers. Needs English names or labels of relations, Debian's package
    wordnet-base and `pip install 'kbqa[worlds]'`. Next: `kbqa questions review FILE`, and
    `kbqa data split FILE DIRECTORY`; or let `kbqa train --graph GRAPH` do all but the review.
    """
    if output.exists() and not force:
        raise DatasetError(f"{output} already exists: choose another name, or overwrite it with --force")
    if not output.absolute().parent.is_dir():
        raise DatasetError(f"{output} cannot be written: its directory does not exist")
    called = called_heads(heads)
    with open_paraphraser(paraphrase_with, seed) as paraphraser, closing(GraphCatalog(home)) as catalog:
        made = make_and_show(catalog.get(graph), graph, count, called, seed, home, paraphraser)
    try:
        write_questions(output, made.questions)
    except OSError as error:
        raise DatasetError(f"{output} cannot be written: {error.strerror}") from error
    typer.echo(f"{output}: {len(made.questions)} questions")
    if len(made.questions) < count:
        typer.echo(f"the graph has no more: {count} were asked for", err=True)
    if len(made.questions) >= FEWEST:
        typer.echo("split as kbqa train --graph splits them:")
        print_leaks(split_made(made.questions, seed))


@commands.command()
def examples(
    graph: Annotated[str, typer.Argument(help="Name of a graph that is loaded or attached.")],
    heads: Heads = None,
    seed: Seed = 0,
    home: Home = DEFAULT_HOME,
) -> None:
    """Make example questions, which the gateway's page shows until something is asked.

    `kbqa questions make` and `kbqa train --graph` make them, too. Needs the same as `kbqa questions make`.
    """
    with closing(GraphCatalog(home)) as catalog:
        made = make_questions(catalog.get(graph), graph, _EXAMPLES_OF, seed, called=called_heads(heads))
    for question in _keep_examples(home, graph, made):
        typer.echo(f"  {question.text}  →  {', '.join(question.answers)}")


commands.command()(review.review)
commands.command()(review.accept)


def _keep_examples(home: Path, graph: str, made: Made) -> Sequence[Question]:
    """Raises: DatasetError: they cannot be written."""
    try:
        return write_examples(home, graph, made.questions)
    except OSError as error:
        raise DatasetError(
            f"examples cannot be written to {home} ({error.strerror}): make it writable, or choose another "
            "with --home"
        ) from error


@contextmanager
def open_paraphraser(model: str | None, seed: int) -> Iterator[Paraphraser | None]:
    """A paraphraser that asks a chat model; None if `model` is None.

    Raises:
        ConfigurationError: see `chat_model`.
    """
    if model is None:
        yield None
        return
    with ChatClient(chat_model(model)) as client:
        yield Paraphraser(client, seed)


def make_and_show(
    store: GraphStore,
    graph: str,
    count: int,
    called: Mapping[str, str],
    seed: int,
    home: Path,
    paraphraser: Paraphraser | None = None,
) -> Made:
    """Make questions about a graph, with a progress bar, and print what was made; some become its examples.

    Examples that cannot be written are reported, because the questions took longer to make.

    Args:
        called: relation → noun for its heads.

    Raises:
        DatasetError, GraphError: see `make_questions`.
    """
    with Progress(console=Console(stderr=True), transient=True) as progress:
        task = progress.add_task("questions", total=count)
        reworded = progress.add_task("other words", total=None, visible=False)

        def report_reworded(done: int) -> None:
            total = progress.tasks[task].completed
            progress.update(reworded, completed=done, total=total, visible=True)

        made = make_questions(
            store,
            graph,
            count,
            seed,
            called=called,
            paraphraser=paraphraser,
            report=lambda done: progress.update(task, completed=done),
            report_reworded=report_reworded,
        )
    _print(made)
    if paraphraser is not None:
        _print_paraphrased(made, paraphraser.model)
    try:
        _keep_examples(home, graph, made)
    except DatasetError as error:
        typer.echo(f"no examples are shown: {error}", err=True)
    return made


def print_leaks(splits: Splits) -> None:
    """Print how many questions of each part share something with a question of another part."""
    table = Table("part", "questions", "topics and path shared", "answers shared", "wording shared", box=None)
    parts = {part: getattr(splits, part) for part in ("train", "validation", "test")}
    for name, leak in leaks_between(parts).items():
        shares = [
            (leak.pairs, leak.with_path),
            (leak.answers, leak.with_answers),
            (leak.wordings, leak.questions),
        ]
        cells = (f"{round(share * of)} of {of}" for share, of in shares)
        table.add_row(name, str(leak.questions), *cells)
    Console().print(table)


def called_heads(heads: list[str] | None) -> Mapping[str, str]:
    """Relation → noun, from texts RELATION=NOUN.

    Raises:
        ConfigurationError: a text does not have this form.
    """
    called = {}
    for text in heads or ():
        relation, separator, noun = text.rpartition("=")
        if not separator or not relation or not noun.replace(" ", "").isalpha():
            raise ConfigurationError(f'--heads "{text}": write RELATION=NOUN, for instance directed_by=film')
        called[relation] = noun.lower()
    return called


def _print(made: Made) -> None:
    hops = Counter(
        f"{question.operation}, {len(question.path)} hops" if question.path else question.operation
        for question in made.questions
    )
    table = Table("questions", "", box=None)
    for kind, number in sorted(hops.items()):
        table.add_row(kind, str(number))
    dropped = Table("dropped", "", box=None)
    for reason, number in made.dropped.most_common():
        dropped.add_row(reason, str(number))
    console = Console()
    console.print(table)
    if made.dropped:
        console.print(dropped)
    typer.echo(
        f"questions cover {sum(uses > 0 for uses in made.uses.values())} of {made.relations} relations"
    )
    if made.after_graph is not None:
        relation, noun = made.after_graph
        typer.echo(
            f'  the heads of {relation} are called "{noun}", after the graph; to change it: '
            f"--heads {relation}=NOUN"
        )
    for reason, number in made.left_out.items():
        typer.echo(f"  not read, {reason}: {number}")
    _list("without English words", made.wordless)
    _list("read in part", made.cut)
    for question in made.questions[:: max(1, len(made.questions) // _SAMPLES)][:_SAMPLES]:
        typer.echo(f"  {question.text}  →  {', '.join(question.answers)}")


def _print_paraphrased(made: Made, model: str) -> None:
    typer.echo(f"{made.paraphrased} of {len(made.questions)} questions are in the words of {model}")
    for reason, number in made.refused.most_common():
        typer.echo(f"  not taken, {reason}: {number}")
    if made.model_error:
        typer.echo(f"  the model failed: {made.model_error}", err=True)


def _list(says: str, relations: tuple[str, ...]) -> None:
    if relations:
        more = f" … and {len(relations) - _LISTED} more" if len(relations) > _LISTED else ""
        typer.echo(f"  {says}: {', '.join(relations[:_LISTED])}{more}")
