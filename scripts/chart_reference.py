"""Makes the chart's README.md, values.schema.json and recipes.yaml from values.yaml, settings and recipes.

python scripts/chart_reference.py [--check]

A line "# --" above a value describes it. The schema takes a value's type from its default,
refuses keys that values.yaml lacks, and knows more only of what stands in `_SHAPES`.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import yaml

from kbqa.planning.needs import needs_by_recipe
from kbqa.recipes import load_recipe
from services.gateway.settings import GatewaySettings
from services.kg_server.settings import KgServerSettings
from services.rollout_worker.settings import RolloutWorkerSettings
from services.settings import ServiceSettings
from services.trainer.settings import TrainerSettings

ROOT = Path(__file__).resolve().parents[1]
CHART = ROOT / "deploy" / "helm"
SETTINGS: dict[str, type[ServiceSettings]] = {
    "kgServer": KgServerSettings,
    "rolloutWorker": RolloutWorkerSettings,
    "trainer": TrainerSettings,
    "gateway": GatewaySettings,
}
# Fields that values of the chart's own stand for.
_MANAGED = {
    "host", "port", "drain_s", "api_keys", "api_keys_file", "operations_port", "encoder", "encoder_api_key",
    "vllm_precision", "chat_api_key", "device",
}  # fmt: skip

_TEXTS = {"type": "object", "additionalProperties": {"type": "string"}}
_QUANTITY = r"^[0-9]+(\.[0-9]+)?(m|k|M|G|T|Ki|Mi|Gi|Ti)?$"
_AMOUNTS = {"type": "object", "additionalProperties": {"type": ["string", "integer", "number"]}}
_OBJECTS = {"type": "array", "items": {"type": "object"}}
_DESTINATIONS = (
    "hub", "bucket", "judge", "encoder", "endpoint", "graph", "redis", "sentinels", "kgServer", "vllm",
    "chat", "tracker", "traces", "proxy",
)  # fmt: skip
_COMPONENTS = ("kgServer", "rolloutWorker", "trainer", "gateway", "jobs")


def _one_of(*values: str) -> dict[str, Any]:
    return {"type": "string", "enum": list(values)}


def _objects_by(names: tuple[str, ...]) -> dict[str, Any]:
    """A list of objects for each of these names, or for some of them."""
    return {"type": "object", "additionalProperties": False, "properties": dict.fromkeys(names, _OBJECTS)}


# What a default does not tell, by the pattern of a value's path; the first that fits counts.
_SHAPES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("logFormat", _one_of("json", "text")),
    ("logLevel", _one_of("DEBUG", "INFO", "WARNING", "ERROR")),
    ("*pullPolicy", _one_of("Always", "IfNotPresent", "Never")),
    ("*digest", {"type": "string", "pattern": "^(sha256:[0-9a-f]{64})?$"}),
    ("graph.sha256", {"type": "string", "pattern": "^([0-9a-f]{64})?$"}),
    ("vllm.precision", _one_of("bfloat16", "float32")),
    ("vllm.gpuMemoryUtilization", {"type": "number", "exclusiveMinimum": 0, "maximum": 1}),
    ("graph.name", {"type": "string", "pattern": "^[A-Za-z0-9][A-Za-z0-9._-]{0,63}$"}),
    ("graph.source", _one_of("world", "url", "configMap", "endpoint", "existing")),
    ("graph.endpoint.auth", _one_of("", "basic", "digest", "bearer")),
    ("rolloutWorker.engine", _one_of("sidecar", "in-process")),
    ("rolloutWorker.autoscaling.type", _one_of("none", "keda", "hpa")),
    ("gateway.engine", _one_of("sidecar", "in-process", "external")),
    ("gateway.service.type", _one_of("ClusterIP", "NodePort", "LoadBalancer")),
    ("policyStore.type", _one_of("volume", "s3")),
    ("policyStore.s3.url", {"type": "string", "pattern": "^(s3://.+)?$"}),
    ("topologySpread.whenUnsatisfiable", _one_of("ScheduleAnyway", "DoNotSchedule")),
    (
        "*.accessModes",
        {
            "type": "array",
            "minItems": 1,
            "items": _one_of("ReadWriteOnce", "ReadWriteMany", "ReadWriteOncePod"),
        },
    ),
    ("*size", {"type": "string", "pattern": _QUANTITY}),
    ("*Size", {"type": "string", "pattern": _QUANTITY}),
    ("*sharedMemory", {"type": "string", "pattern": _QUANTITY}),
    ("priorityClasses.low", {"type": "integer"}),
    ("*.processes", {"type": "integer", "minimum": 0}),
    ("trainer.nodes", {"type": "integer", "minimum": 1}),
    ("rolloutWorker.autoscaling.minReplicas", {"type": "integer", "minimum": 0}),
    ("*.minReplicas", {"type": "integer", "minimum": 1}),
    ("*.maxReplicas", {"type": "integer", "minimum": 1}),
    ("*.cpuPercent", {"type": "integer", "minimum": 1}),
    ("*.requestsPerPod", {"type": "integer", "minimum": 1}),
    ("*.maxUnavailable", {"type": "integer", "minimum": 1}),
    ("*ort", {"type": "integer", "minimum": 1, "maximum": 65535}),
    (
        "*.dnsPorts",
        {"type": "array", "minItems": 1, "items": {"type": "integer", "minimum": 1, "maximum": 65535}},
    ),
    (
        "*esources",
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {"requests": _AMOUNTS, "limits": _AMOUNTS},
        },
    ),
    ("*.tolerations", _OBJECTS),
    ("*.affinity", {"type": "object"}),
    ("*.nodeSelector", _TEXTS),
    ("*nnotations", _TEXTS),
    ("*abels", _TEXTS),
    ("trainer.autoStart.overrides", {"type": "object"}),
    (
        "trainer.autoStart.limits",
        {
            "type": "object",
            "additionalProperties": False,
            "properties": {
                split: {"type": "integer", "minimum": 1} for split in ("train", "validation", "test")
            },
        },
    ),
    ("gateway.httpRoute.parentRefs", _OBJECTS),
    ("networkPolicy.*From", _OBJECTS),
    ("networkPolicy.dns", _OBJECTS),
    ("networkPolicy.destinations", _objects_by(_DESTINATIONS)),
    ("networkPolicy.extraEgress", _objects_by(_COMPONENTS)),
    ("externalRedis.address", {"type": "string", "pattern": "^([^:/]+:[0-9]+)?$"}),
    (
        "externalRedis.sentinels.addresses",
        {"type": "array", "items": {"type": "string", "pattern": "^[^:/]+:[0-9]+$"}},
    ),
    ("podUser", _one_of("auto", "fixed", "assigned")),
    ("progressDeadlineSeconds", {"type": "integer", "minimum": 60}),
    ("tracing.sampled", {"type": "number", "minimum": 0, "maximum": 1}),
    ("extraObjects", _OBJECTS),
    ("*.extraEnv", _OBJECTS),
    ("*.envFrom", _OBJECTS),
    ("*.extraVolumes", _OBJECTS),
    ("*.extraVolumeMounts", _OBJECTS),
    ("*.initContainers", _OBJECTS),
)


@dataclass(frozen=True)
class Value:
    """A value of the chart: its path with dots, its default, and what the comment above says."""

    path: str
    default: Any
    description: str


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--check", action="store_true", help="change nothing; fail if a file is not current")
    check = parser.parse_args().check
    stale = []
    for path, text in rendered().items():
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            stale.append(path)
            if not check:
                path.write_text(text, encoding="utf-8")
    if check and stale:
        names = ", ".join(str(path.relative_to(ROOT)) for path in stale)
        sys.stderr.write(f"not current: {names}; run python scripts/chart_reference.py\n")
        return 1
    return 0


def rendered() -> dict[Path, str]:
    """What the files should contain."""
    text = (CHART / "values.yaml").read_text(encoding="utf-8")
    schema = {
        "$schema": "https://json-schema.org/draft-07/schema#",
        "title": "Values of the kbqa chart; made by scripts/chart_reference.py",
        **_schema("", yaml.safe_load(text)),
    }
    # Helm hands the parent's to every chart that it depends on, with whatever other charts read there.
    schema["properties"]["global"]["additionalProperties"] = True
    return {
        CHART / "values.schema.json": json.dumps(schema, indent=1) + "\n",
        CHART / "README.md": _readme(list(values(text))),
        CHART / "recipes.yaml": _recipes(),
    }


def values(text: str) -> Iterator[Value]:
    """The values that are described, in the order of the file.

    Raises:
        ValueError: one has no description; names it.
    """
    lines = text.splitlines()

    def walk(node: yaml.MappingNode, prefix: str) -> Iterator[Value]:
        for key, child in node.value:
            path = f"{prefix}{key.value}"
            above = lines[key.start_mark.line - 1].strip() if key.start_mark.line else ""
            if above.startswith("# -- "):
                default = yaml.safe_load(yaml.serialize(child))
                yield Value(path, default, above.removeprefix("# -- "))
            elif isinstance(child, yaml.MappingNode) and child.value and not child.flow_style:
                yield from walk(child, f"{path}.")
            elif not path.endswith("resources"):
                raise ValueError(f'{path} has no line "# --" above it')

    root = yaml.compose(text)
    assert isinstance(root, yaml.MappingNode)
    yield from walk(root, "")


def _schema(path: str, default: Any) -> dict[str, Any]:
    service = path.removesuffix(".settings")
    if path.endswith(".settings"):
        return _settings(SETTINGS[service])
    for pattern, shape in _SHAPES:
        if fnmatchcase(path, pattern):
            return shape
    match default:
        case bool():
            return {"type": "boolean"}
        case int():
            return {"type": "integer", "minimum": 0}
        case float():
            return {"type": "number"}
        case str():
            return {"type": "string"}
        case list():
            return {"type": "array", "items": {"type": "string"}}
        case dict() if default:
            prefix = f"{path}." if path else ""
            properties = {key: _schema(f"{prefix}{key}", value) for key, value in default.items()}
            return {"type": "object", "additionalProperties": False, "properties": properties}
    raise ValueError(f"{path}: say in _SHAPES what it may be")


def _settings(service: type[ServiceSettings]) -> dict[str, Any]:
    """Fields that have an environment variable of the service's own, and no value of the chart's."""
    described = service.model_json_schema()["properties"]
    names = [name for name, field in service.model_fields.items() if field.validation_alias is None]
    properties = {name.upper(): _setting(described[name]) for name in names if name not in _MANAGED}
    return {"type": "object", "additionalProperties": False, "properties": properties}


def _setting(field: dict[str, Any]) -> dict[str, Any]:
    shape = next((s for s in field.get("anyOf", ()) if s.get("type") != "null"), field)
    kept = ("type", "minimum", "exclusiveMinimum", "maximum", "enum")
    found = {key: shape[key] for key in kept if key in shape}
    return found if found.get("type") in ("boolean", "integer", "number", "string") else {"type": "string"}


def _recipes() -> str:
    """What guards and vLLM have to know of each recipe; a template cannot read the recipes themselves."""
    needs = {
        name: {
            "base": need.base,
            "revision": need.revision,
            "context": need.context,
            "loraRank": need.lora_rank if need.base else 0,
            "demonstrations": _demonstrations(name),
        }
        for name, need in needs_by_recipe().items()
    }
    return "# Made by scripts/chart_reference.py\n" + yaml.safe_dump(needs, sort_keys=False)


def _demonstrations(recipe: str) -> str:
    """The file that a recipe's cold start reads; empty if it reads none."""
    cold_start = load_recipe(recipe).cold_start
    return (cold_start and cold_start.file) or ""


def _readme(described: list[Value]) -> str:
    head = (CHART / "README.head.md").read_text(encoding="utf-8").rstrip()
    rows = [f"| `{v.path}` | {_shown(v.default)} | {_escaped(v.description)} |" for v in described]
    return "\n".join([head, "", "| value | default | |", "|---|---|---|", *rows]) + "\n"


def _shown(default: Any) -> str:
    if default in ("", [], {}):
        return ""
    text = default if isinstance(default, str) else json.dumps(default)
    return f"`{_escaped(text)}`"


def _escaped(text: str) -> str:
    return re.sub(r"\|", r"\\|", text)


if __name__ == "__main__":
    sys.exit(main())
