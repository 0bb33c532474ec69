"""`kbqa ask`: a question to the gateway, and its answer as text."""

from __future__ import annotations

import json
import re
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.text import Text

from kbqa.errors import ConfigurationError
from services.cli.api import Api
from services.cli.options import DEFAULT_GATEWAY, AsJson, GatewayUrl

NO_ANSWER = 3

_TAGS = re.compile(r"</?(information|error)>")
_EXPLANATIONS = {
    "no_answer": "no answer was found",
    "no_topic_entity": "the question names nothing in the graph: spell names as it does, or use --topic",
    "partial": "the time was over before an answer was found: give it more with --timeout-s",
    "unsupported": "no retrieved fact supports this",
}


def ask(
    question: Annotated[str, typer.Argument(help="In natural language.")],
    kg: Annotated[
        str | None, typer.Option("--kg", help="Which graph; needed when several are loaded.")
    ] = None,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", help="An entity that it is about, by id or exact label. Repeatable."),
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, help="Runs whose answers are united.")] = 1,
    timeout_s: Annotated[float | None, typer.Option(help="Seconds for the answer.")] = None,
    gateway: GatewayUrl = DEFAULT_GATEWAY,
    as_json: AsJson = False,
) -> None:
    """Ask a question.

    Exit code 0 when it was answered, 3 when there is no answer that facts support, 2 on an error.
    """
    api = Api("gateway", gateway, "--gateway or KBQA_GATEWAY_URL", timeout_s=(timeout_s or 300.0) + 30.0)
    request: dict[str, Any] = {"question": question, "kg": kg or _only_graph(api), "n_runs": runs}
    if topic:
        request["topic_entities"] = topic
    if timeout_s is not None:
        request["timeout_s"] = timeout_s
    response = api.post("/v1/answer", request)
    if as_json:
        typer.echo(json.dumps(response, ensure_ascii=False, indent=2))
    else:
        Console(soft_wrap=True, highlight=False).print(render(response))
    if response["status"] != "answered":
        raise typer.Exit(NO_ANSWER)


def _only_graph(api: Api) -> str:
    names = sorted(str(graph["name"]) for graph in api.get("/v1/kg")["graphs"])
    if len(names) == 1:
        return names[0]
    if not names:
        raise ConfigurationError("no graph is loaded: load one with kbqa kg load NAME FILE")
    raise ConfigurationError(f"several graphs are loaded ({', '.join(names)}): choose one with --kg NAME")


def render(response: dict[str, Any]) -> Text:
    """An answer document for people: answers with their evidence, then each run, then what it cost."""
    text = Text()
    for answer in response["answers"]:
        text.append(printable(answer["value"]), style="bold green")
        text.append(f"   in {answer['support']} runs\n" if len(response["runs"]) > 1 else "\n")
        for line in _evidence(answer["evidence"]):
            text.append(f"    {line}\n", style="cyan")
    if response["status"] in _EXPLANATIONS:
        text.append(f"{_EXPLANATIONS[response['status']]}\n", style="yellow")
    for number, run in enumerate(response["runs"], 1):
        text.append(f"\nrun {number}: {run['status']}\n", style="bold")
        for turn in run["trajectory"]:
            _append_turn(text, turn)
    usage = response["usage"]
    text.append(
        f"\npolicy {response['policy_version']}, {usage['llm_calls']} calls, "
        f"{usage['generated_tokens']} tokens written, {usage['kg_calls']} graph actions, "
        f"{usage['elapsed_ms'] / 1000:.2f} s",
        style="dim",
    )
    return text


def _evidence(evidence: dict[str, Any]) -> list[str]:
    """Triples, or a query with the rows that hold the answer."""
    if "sparql" not in evidence:
        return ["  ".join(map(printable, triple)) for triple in evidence["triples"]]
    rows = [
        "  ".join(f"?{printable(name)} = {printable(term['label'])}" for name, term in row.items())
        for row in evidence["rows"]
    ]
    return [printable(" ".join(evidence["sparql"].split())), *rows]


def _append_turn(text: Text, turn: dict[str, Any]) -> None:
    text.append(f"{turn['turn']:>3}  ")
    text.append(printable(turn["thought"] or "…") + "\n", style="italic")
    for action in turn["actions"]:
        arguments = ", ".join(
            f'"{printable(str(value))}"' for name, value in action.items() if name not in ("action", "code")
        )
        text.append(f"     {printable(action['action'])}({arguments})\n", style="cyan")
    for observation in turn["observations"]:
        text.append(f"     {printable(_TAGS.sub('', observation).strip())}\n", style="dim")


def printable(text: str) -> str:
    """Names come from strangers' graphs: nothing in them may steer the terminal."""
    return "".join(c if c.isprintable() else " " if c.isspace() else "\ufffd" for c in text)
