"""Options that several commands share."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from kbqa.errors import ConfigurationError
from kbqa.kg.namespaces import Namespace, NamespaceOptions
from services import settings

Home = Annotated[
    Path,
    typer.Option(
        "--home",
        envvar="KBQA_HOME",
        file_okay=False,
        help="Directory that holds graphs, policies and runs.",
    ),
]
StoreLocation = Annotated[
    str | None,
    typer.Option(
        "--store",
        envvar="KBQA_POLICY_STORE",
        help="Directory or s3:// URL of the policies (default: HOME/policies).",
    ),
]
GatewayUrl = Annotated[str, typer.Option("--gateway", envvar="KBQA_GATEWAY_URL", help="URL of the gateway.")]
TrainerUrl = Annotated[str, typer.Option("--trainer", envvar="KBQA_TRAINER_URL", help="URL of the trainer.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON instead of text.")]
Overrides = Annotated[
    list[str] | None,
    typer.Option(
        "--set",
        metavar="KEY=VALUE",
        help="Override a value of the recipe, for example --set schedule.steps=50. Repeatable.",
    ),
]
RecipeName = Annotated[str, typer.Option("--recipe", help="Recipe name (see `kbqa recipe list`).")]
Seed = Annotated[int, typer.Option("--seed", min=0, help="Random seed.")]
VllmUrl = Annotated[
    str | None,
    typer.Option(
        "--vllm",
        metavar="URL",
        help="Compute on this vLLM server, in bf16 (default: in this process, on the CPU). It serves the "
        "policy's base model; nothing else may use it meanwhile.",
    ),
]
Limits = Annotated[
    list[str] | None,
    typer.Option(
        "--limit",
        metavar="SPLIT=N",
        help="Use at most N questions of train, validation or test; test=0 uses none. Repeatable.",
    ),
]

LabelLanguages = Annotated[
    list[str] | None,
    typer.Option(
        "--language",
        metavar="TAG",
        help="Language of labels, most preferred first (default: en). Repeatable. Then come mul and en, "
        "labels without a language, and any other.",
    ),
]
GivenNamespaces = Annotated[
    list[str] | None,
    typer.Option(
        "--namespace",
        metavar="PREFIX=IRI",
        help="Show ids that begin with IRI as PREFIX:name, or as the bare name if PREFIX is empty. "
        "Repeatable.",
    ),
]
RecogniseNamespaces = Annotated[
    bool,
    typer.Option(
        help="Shorten the ids of Freebase (m.02mjmr), Wikidata (Q76, P40, p:P40) and DBpedia (dbr:Berlin), "
        "if the graph has such IRIs."
    ),
]

DEFAULT_HOME = Path("var")
DEFAULT_GATEWAY = "http://127.0.0.1:8080"
DEFAULT_TRAINER = "http://127.0.0.1:8003"
DEFAULT_RECIPE = "kg-r1-chooser"


def data_directory(home: Path) -> Path:
    """Directory of data sets that are not generated: `KBQA_DATA`, or HOME/data if it is not set."""
    return settings.data_directory(home, os.environ.get("KBQA_DATA"))


def namespace_options(given: list[str] | None, recognise: bool) -> NamespaceOptions:
    """The options of a graph's namespaces.

    Raises:
        ConfigurationError: a text is not of the form PREFIX=IRI.
    """
    return NamespaceOptions(tuple(map(Namespace.parse, given or ())), recognise)


def read_pairs(option: str, pairs: list[str] | None) -> dict[str, Any]:
    """Values by key, from texts KEY=VALUE; values are YAML.

    Raises:
        ConfigurationError: a text does not have this form; the message contains the option.
    """
    values = {}
    for pair in pairs or ():
        key, separator, value = pair.partition("=")
        if not separator or not key:
            raise ConfigurationError(f'{option} "{pair}": write KEY=VALUE, for instance schedule.steps=50')
        try:
            values[key] = yaml.safe_load(value)
        except yaml.YAMLError as error:
            raise ConfigurationError(f'{option} "{pair}": the value is not YAML ({error})') from error
    return values
