"""`kbqa eval`: measures how well a policy answers the questions of a data set."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.progress import track

from kbqa.datasets.catalog import GENERATED_NAMES, load_dataset, open_published
from kbqa.datasets.dataset import Dataset, Graph
from kbqa.datasets.formats import Answers
from kbqa.datasets.gold import gold_namer, nameless_ids
from kbqa.datasets.mixtures import is_mixture
from kbqa.datasets.published import Part
from kbqa.datasets.sampling import Sample
from kbqa.datasets.splits import spread
from kbqa.errors import ConfigurationError, DatasetError, GraphNotFoundError
from kbqa.recipes import load_recipe
from services.cli.graphs import KgServerUrl, open_graphs
from services.cli.options import DEFAULT_HOME, Home, StoreLocation, VllmUrl, data_directory
from services.cli.output import require_directories

if TYPE_CHECKING:
    from kbqa.kg.actions import GraphTools
    from kbqa.trajectory import Question, Trajectory
    from services.cli.candidates import EvaluatedPolicy

    Played = tuple[Question, list[Trajectory]]

_CHUNK = 1024  # questions whose runs are completed before the next questions begin; bounds memory
_MOST_HOPS = 8  # maximum of `follow_path`
_WITHOUT_GRAPH = ("vanilla", "zero-shot-cot", "cot")
_RUN_STRIDE = 104_729  # separates the random seeds of runs


class BaselineName(StrEnum):
    """What they do: `kbqa.evaluation.baselines`, `kbqa.evaluation.ranking` and `kbqa.evaluation.nearest`."""

    VANILLA = "vanilla"
    ZERO_SHOT_COT = "zero-shot-cot"
    COT = "cot"
    ONE_SHOT = "one-shot"
    ITERATIVE = "iterative"
    RANKING = "ranking"
    NEAREST = "nearest"


def evaluate(
    policy: Annotated[
        str,
        typer.Argument(
            help="A directory, NAME[@VERSION] under KBQA_HOME/policies, reader, or openai:MODEL; for "
            "--baseline ranking or nearest a sentence encoder: sentence-transformers/all-MiniLM-L6-v2, or a "
            "directory."
        ),
    ],
    dataset: Annotated[str, typer.Argument(help="Data set to ask: world, metaqa-1hop, pathquestion-2h, …")],
    kg: Annotated[
        str | None, typer.Option(metavar="NAME", help="Ask this loaded graph instead of the data set's own.")
    ] = None,
    data: Annotated[
        Path | None, typer.Option(metavar="PATH", help="Directory of the data set, or a file in its format.")
    ] = None,
    split: Annotated[str, typer.Option(help="Split to evaluate on.")] = "test",
    limit: Annotated[
        int | None, typer.Option(min=1, help="Evaluate at most N questions, evenly spaced over the split.")
    ] = None,
    sample: Annotated[
        str | None,
        typer.Option(
            metavar="KIND:N",
            help="Evaluate on N questions drawn with the seed: random:600, or equally many of each kind: "
            "operation:600, level:600, hops:600, steps:600, topics:600.",
        ),
    ] = None,
    recipe: Annotated[
        str | None,
        typer.Option(
            help="Recipe to play by (default: the one the policy was trained with; kg-r1 for a chat model)."
        ),
    ] = None,
    baseline: Annotated[
        BaselineName | None,
        typer.Option(
            help="Answer in a simpler way instead of by a recipe: with a chat model; by ranking, which needs "
            "no training and ranks relation paths by similarity to the question; or by nearest, which "
            "follows the gold path of the most similar training question."
        ),
    ] = None,
    max_hops: Annotated[
        int | None,
        typer.Option(
            min=1, max=_MOST_HOPS, help="With --baseline ranking: maximum length of a path (default: 3)."
        ),
    ] = None,
    known_hops: Annotated[
        bool,
        typer.Option(
            "--known-hops", help="With --baseline ranking: use the length of each question's gold path."
        ),
    ] = False,
    runs: Annotated[
        int, typer.Option(min=1, help="Runs per question; their answers are merged, and Pass@K is reported.")
    ] = 1,
    seed: Annotated[int, typer.Option(min=0, help="Random seed of the split and of sampled runs.")] = 1,
    text2sparql: Annotated[
        bool,
        typer.Option(
            "--text2sparql",
            help="Evaluate as the TEXT2SPARQL challenge does: entities are found in the question, and set F1 "
            "compares the results of the gold query and the query behind the answers.",
        ),
    ] = False,
    compare: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="Compare with this file, written by --json for the same questions."
        ),
    ] = None,
    as_json: Annotated[
        Path | None, typer.Option("--json", metavar="FILE", help="Write all figures to this file.")
    ] = None,
    html: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Write an HTML report to this file.")
    ] = None,
    vllm: VllmUrl = None,
    kg_server: KgServerUrl = None,
    home: Home = DEFAULT_HOME,
    location: StoreLocation = None,
) -> None:
    """Measure how well a policy answers. Needs no running service.

    Graph and policy are loaded into this process, unless --kg-server and --vllm name servers. The first run
    of a question is greedy, unless the recipe says otherwise. A model behind an OpenAI-compatible endpoint is
    openai:MODEL; the endpoint is KBQA_GATEWAY_CHAT_URL and KBQA_GATEWAY_CHAT_API_KEY (or OPENAI_BASE_URL and
    OPENAI_API_KEY).
    """
    from kbqa.evaluation import compare as compare_with
    from kbqa.evaluation import evaluate as measure
    from kbqa.evaluation import read_earlier
    from kbqa.evaluation.certainty import confidences, measured
    from services.cli.candidates import open_candidate
    from services.cli.eval_report import print_summary, write

    require_directories(as_json, html)
    if sample is not None and limit is not None:
        raise ConfigurationError("--sample and --limit exclude each other: give only one of them")
    chosen = None if sample is None else Sample.read(sample)
    earlier = None if compare is None else read_earlier(compare)
    asked = _load(dataset, data, seed, home)
    asked.splits.named(split)  # checked before anything is opened
    graphs = asked.graphs
    if kg is not None:
        graphs = (replace(asked.graph, name=kg, text=None, file=None),)
    name = None if baseline is None else baseline.value
    needs_graph = text2sparql or name not in _WITHOUT_GRAPH
    with ExitStack() as opened:
        candidate = open_candidate(
            policy,
            home,
            location,
            recipe=None if recipe is None else load_recipe(recipe),
            baseline=name,
            max_hops=max_hops,
            known_hops=known_hops,
            examples=asked.splits.train,
            vllm=vllm,
        )
        opened.callback(candidate.close)
        if candidate.gold is not Answers.LABELS:
            asked = _load(dataset, data, seed, home, candidate.gold)
        drawn = asked.splits.named(split)
        suitable = list(filter(candidate.suits, drawn))
        questions = list(spread(suitable, limit) if chosen is None else chosen.of(suitable, seed))
        if kg is not None:
            questions = [replace(question, kg=kg) for question in questions]
        if not questions:
            raise DatasetError(f"{dataset} has no suitable question in its split {split}")
        tools, versions = opened.enter_context(
            open_graphs(graphs if needs_graph else (), home, kg_server=kg_server)
        )
        if needs_graph:
            questions = list(map(gold_namer(questions, tools, dataset), questions))
        else:
            questions = _named_if_possible(questions, graphs, dataset, home, kg_server)
        began, busy = time.perf_counter(), time.process_time()
        if text2sparql:
            questions = linked(questions, tools)
        played = _played(candidate, tools, questions, runs, seed)
        shown = _with_progress(played, len(questions))
        evaluation = measure(shown, candidate.judge, tools=tools, text2sparql=text2sparql)
        seconds, processor_seconds = time.perf_counter() - began, time.process_time() - busy
    about = {
        **candidate.about,
        "dataset": dataset,
        "split": split if data is None or data.is_dir() else data.name,
        "graphs": {graph.name: versions.get(graph.name) for graph in graphs},
        "seed": seed,
        "sample": sample,
        "left_out": len(drawn) - len(suitable),
        "leaking": asked.leaking,
        "created_at": datetime.now(UTC).isoformat(timespec="seconds"),
        "seconds": round(seconds, 3),
        "processor_seconds": round(processor_seconds, 3),
        "questions_per_second": round(len(questions) / seconds, 2),
    }
    comparison = None if earlier is None else compare_with(evaluation.records, *earlier).to_json()
    result = {**evaluation.to_json(), **about, "confidence": None, "comparison": comparison}
    if candidate.calibration is not None:
        result["confidence"] = measured(candidate.calibration, evaluation.records)
        for told, sure in zip(
            result["records"], confidences(candidate.calibration, evaluation.records), strict=True
        ):
            told["confidence"] = sure
    print_summary(result)
    write(as_json, html, result, evaluation.examples)


def _load(name: str, data: Path | None, seed: int, home: Path, answers: Answers = Answers.LABELS) -> Dataset:
    """A data set. If it was published with a test file, or `data` is one, its split `test` is the whole file.

    Raises:
        DatasetError: the data set is missing or malformed.
    """
    root = data_directory(home)
    is_drawn = name in GENERATED_NAMES or "@" in name or is_mixture(name)
    if not is_drawn and Part.TEST in open_published(name, root, data).parts:
        name = f"{name}@whole"
    return load_dataset(name, seed, root, data=data, answers=answers)


def _named_if_possible(
    questions: list[Question], graphs: Sequence[Graph], dataset: str, home: Path, kg_server: str | None
) -> list[Question]:
    """The questions of a baseline that needs no graph, with the labels of gold answers that are ids alone.

    The graph is asked for them only where it is at hand; otherwise a warning says what is missing.

    Raises:
        DatasetError: the graph has none of the gold answers.
    """
    nameless = nameless_ids(questions)
    if not nameless:
        return questions
    try:
        with open_graphs(graphs, home, kg_server=kg_server) as (tools, _):
            return list(map(gold_namer(questions, tools, dataset), questions))
    except GraphNotFoundError as error:
        typer.echo(
            f"warning: {len(nameless)} gold answers are ids without a label, such as {nameless[0]}, and "
            f"answers in words cannot equal them: load or attach the graph, which has labels ({error})",
            err=True,
        )
        return questions


def linked(questions: Sequence[Question], tools: GraphTools) -> list[Question]:
    """The questions with the topic entities that the gateway finds in them, instead of the gold ones.

    Raises:
        GraphUnavailableError: the graph cannot look for them.
    """
    from services.gateway.asking import link_action, linking_of, mentions_of
    from services.gateway.settings import GatewaySettings

    most = GatewaySettings.model_fields["max_topic_entities"].default
    found: list[Question] = []
    for question in questions:
        [result] = tools.execute(question.kg, [link_action(question.text, most)], graph=question.graph)
        linking = linking_of(question.text, mentions_of(result), most)
        found.append(replace(question, topic_entities=tuple(linking.topic_entities)))
    return found


def _with_progress(played: Iterable[Played], total: int) -> Iterable[Played]:
    """The same questions, with a bar on the terminal that shows how many of them are over."""
    return track(
        played,
        total=total,
        description="questions",
        console=Console(stderr=True),
        disable=not sys.stderr.isatty(),
    )


def _played(
    candidate: EvaluatedPolicy,
    tools: GraphTools,
    questions: Sequence[Question],
    runs: int,
    seed: int,
) -> Iterator[Played]:
    """Every question with its runs."""
    from kbqa.rollouts.many import many_rollouts

    for first in range(0, len(questions), _CHUNK):
        chunk = questions[first : first + _CHUNK]
        found: list[list[Trajectory]] = [[] for _ in chunk]
        for run in range(runs):
            player, temperature = candidate.play(tools, run)
            stream = seed + first + _RUN_STRIDE * run
            for place, trajectory in many_rollouts(
                player, chunk, temperature, width=candidate.width, seed=stream
            ):
                found[place].append(trajectory)
        yield from zip(chunk, found, strict=True)
