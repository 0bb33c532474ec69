"""`kbqa ask`: asks the gateway a question and prints the answer, or has a file of questions answered."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from kbqa.client import AnswerOptions, Gateway
from kbqa.client.events import ActionEvent, DoneEvent, Event, LinkedEvent, ObservationEvent, ThoughtEvent
from kbqa.client.models import Answer, AnswerResponse, TripleEvidence, TurnRecord
from kbqa.errors import ConfigurationError
from kbqa.policy_store.shipped import READER
from services.cli.ask_file import FileOfQuestions
from services.cli.options import DEFAULT_GATEWAY, AsJson, GatewayUrl

NO_ANSWER = 3
API_KEY_VARIABLE = "KBQA_GATEWAY_API_KEY"

_PATIENCE_S = 30.0  # added to the question's own timeout
_ROWS = 10  # rows shown per query
# Fields of an action that are not shown as arguments: they say nothing of the way to the answer.
_UNTOLD = (
    *("action", "code", "question", "relations", "topics", "expansions", "operations"),
    *("return", "ask", "missing", "ahead"),
)
_TAGS = re.compile(r"</?(information|error)>")
_EXPLANATIONS = {
    "no_answer": "no answer was found",
    "no_topic_entity": "the question names nothing in the graph: spell names as it does, or use --topic",
    "partial": "the time limit was reached before an answer was found: set a larger one with --timeout-s",
    "unsupported": "no retrieved fact supports this",
}


def ask(
    question: Annotated[
        str | None, typer.Argument(help="The question, in natural language; leave it out with --file.")
    ] = None,
    kg: Annotated[
        str | None, typer.Option("--kg", help="Graph to ask. Required when several graphs are loaded.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="Topic entity of the question, by id or exact label. Repeatable."),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Number of runs; their answers are merged.")] = 1,
    timeout_s: Annotated[float | None, typer.Option(help="Timeout in seconds.")] = None,
    min_confidence: Annotated[
        float | None,
        typer.Option(
            min=0.0,
            max=1.0,
            help="Withhold an answer if its confidence or its presence is lower (default: the threshold of "
            "the key or the gateway).",
        ),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option(
            "--file",
            help="Ask all questions of this file of JSON lines instead: id, question, and any other field of "
            "a request; or the records of a data set.",
        ),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option(
            "--output",
            help="File for the answers to --file, one JSON record per line, in any order, each with the id "
            "of its question. Questions that have an answer in it are not asked again.",
        ),
    ] = None,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    as_json: AsJson = False,
) -> None:
    """Ask a question, and watch it being answered; or have a file of questions answered as a batch.

    When piped, the complete answer is printed first. Set KBQA_GATEWAY_API_KEY if the gateway requires a
    key. With --file, give the same command again to continue after an interruption.
    Exit code 0 when it was answered, 3 when there is no answer that facts support, 2 on an error.
    """
    options: AnswerOptions = {"n_runs": runs}
    if topic:
        options["topic_entities"] = topic
    if timeout_s is not None:
        options["timeout_s"] = timeout_s
    if min_confidence is not None:
        options["min_confidence"] = min_confidence
    if (question is None) == (file is None) or (file is None) != (output is None):
        raise ConfigurationError(
            'give a question (kbqa ask "Who …?"), or files (kbqa ask --file QUESTIONS --output ANSWERS)'
        )
    if file is not None and output is not None:
        with _gateway(gateway, timeout_s) as client:
            FileOfQuestions(file, output, {"kg": kg, **options}).ask(client)
        return
    assert question is not None
    console = Console(soft_wrap=True, highlight=False)
    with _gateway(gateway, timeout_s) as client:
        graph = kg or _only_graph(client)
        if console.is_terminal and not as_json:
            with closing(client.stream(question, graph, **options)) as events:
                document = _watch(events, console, runs)
        else:
            document = client.answer(question, graph, **options)
            _tell(document, console, as_json)
    if document.status != "answered":
        raise typer.Exit(NO_ANSWER)


def _gateway(url: str, timeout_s: float | None) -> Gateway:
    return Gateway(
        url, api_key=os.environ.get(API_KEY_VARIABLE) or None, timeout_s=(timeout_s or 300.0) + _PATIENCE_S
    )


def _only_graph(client: Gateway) -> str:
    names = sorted(graph.name for graph in client.graphs())
    if len(names) == 1:
        return names[0]
    if not names:
        raise ConfigurationError("no graph is loaded: load one with kbqa kg load NAME FILE")
    raise ConfigurationError(f"several graphs are loaded ({', '.join(names)}): choose one with --kg NAME")


def _tell(document: AnswerResponse, console: Console, as_json: bool) -> None:
    if as_json:
        typer.echo(document.model_dump_json(exclude_none=True, indent=2))
    else:
        console.print(render(document))


def _watch(events: Iterator[Event], console: Console, runs: int) -> AnswerResponse:
    """Print every step when it arrives, and finally the answers."""
    for event in events:
        if isinstance(event, DoneEvent):
            text = _answers(event.document)
            text.append_text(_cost(event.document))
            console.print(text)
            return event.document
        step = _step(event, runs)
        if step is not None:
            console.print(step)
    raise AssertionError("a stream ends with its document, or an error")


def _step(event: Event, runs: int) -> Text | None:
    """Format an event as one or two lines; returns None if it is printed only at the end."""
    text = Text()
    match event:
        case LinkedEvent():
            topics = ", ".join(map(printable, event.linking.topic_entities)) or "nothing in the graph"
            text.append(f"about {topics}", style="dim")
        case ThoughtEvent():
            text.append(f"{_run(event.run, runs)}{event.turn:>3}  ")
            text.append(printable(event.thought or "…"), style="italic")
        case ActionEvent():
            text.append(f"{_run(event.run, runs)}     {_called(event.action)}", style="cyan")
        case ObservationEvent():
            seen = printable(_TAGS.sub("", event.observation).strip())
            text.append(f"{_run(event.run, runs)}     {seen}", style="dim")
        case _:
            return None
    return text


def _run(number: int, runs: int) -> str:
    return f"[{number + 1}] " if runs > 1 else ""


def render(document: AnswerResponse) -> Text:
    """An answer document as text: answers with their evidence, then each run, then the usage."""
    text = _answers(document)
    for number, run in enumerate(document.runs, 1):
        text.append(f"\nrun {number}: {run.status}\n", style="bold")
        for turn in run.trajectory:
            _append_turn(text, turn)
    return text.append_text(_cost(document))


def _answers(document: AnswerResponse) -> Text:
    text = Text()
    # Several answers of one query are listed first, then the query.
    for query, group in groupby(document.answers, key=_query):
        answers = list(group)
        shared = query if len(answers) > 1 else None
        for answer in answers:
            text.append(printable(answer.value), style="bold green")
            _append_support(text, answer, document, _evidence(answer) if shared is None else ())
        if shared is not None:
            text.append("".join(f"    {line}\n" for line in shared), style="cyan")
    if document.status in _EXPLANATIONS:
        why = "" if document.reason is None else f": {document.reason}"
        text.append(f"{_EXPLANATIONS[document.status]}{why}\n", style="yellow")
    for answer in document.candidates[:1]:
        text.append("best candidate: ", style="yellow")
        text.append(printable(answer.value))
        _append_support(text, answer, document, _evidence(answer))
    if document.confidence is not None:
        text.append(f"how sure: {document.confidence:g}\n", style="dim")
    if document.candidates and document.presence is not None:
        text.append(f"how likely the graph has the fact: {document.presence:g}\n", style="dim")
    if document.policy == READER:
        did = "answered" if document.answers else "was asked"
        text.append(f"the reader {did}, which was not trained on this graph\n", style="dim")
    return text


def _append_support(text: Text, answer: Answer, document: AnswerResponse, evidence: Sequence[str]) -> None:
    """The rest of an answer's line, and its evidence."""
    text.append(f"   in {answer.support} runs\n" if len(document.runs) > 1 else "\n")
    for line in evidence:
        text.append(f"    {line}\n", style="cyan")


def _query(answer: Answer) -> tuple[str, ...] | None:
    """The lines of the query that found an answer and tells no more than that; None if there is none."""
    evidence = answer.evidence
    if isinstance(evidence, TripleEvidence) or any(len(row) > 1 for row in evidence.rows):
        return None
    return tuple(map(printable, evidence.sparql.splitlines()))


def _evidence(answer: Answer) -> list[str]:
    evidence = answer.evidence
    if isinstance(evidence, TripleEvidence):
        return ["  ".join(map(printable, triple)) for triple in evidence.triples]
    rows = [
        "  ".join(f"?{name}={printable(term.get('label') or term['value'])}" for name, term in row.items())
        for row in evidence.rows[:_ROWS]
    ]
    return [*map(printable, evidence.sparql.splitlines()), *rows]


def _cost(document: AnswerResponse) -> Text:
    usage, version = document.usage, document.policy_version
    # An external model has no versions.
    policy = version if document.policy == version else f"{document.policy}/{version}"
    return Text(
        f"\npolicy {policy}, {usage.llm_calls} calls, "
        f"{usage.generated_tokens} tokens written, {usage.kg_calls} graph actions, "
        f"{usage.elapsed_ms / 1000:.2f} s",
        style="dim",
    )


def _append_turn(text: Text, turn: TurnRecord) -> None:
    text.append(f"{turn.turn:>3}  ")
    text.append(printable(turn.thought or "…") + "\n", style="italic")
    for action in turn.actions:
        text.append(f"     {_called(action)}\n", style="cyan")
    for observation in turn.observations:
        text.append(f"     {printable(_TAGS.sub('', observation).strip())}\n", style="dim")


def _called(action: dict[str, object]) -> str:
    told = (value for name, value in action.items() if name not in _UNTOLD)
    arguments = ", ".join(
        f'"{printable(" / ".join(value) if isinstance(value, list) else str(value))}"' for value in told
    )
    return f"{printable(str(action['action']))}({arguments})"


def printable(text: str) -> str:
    """The text without control characters: names from untrusted graphs must not control the terminal."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)
