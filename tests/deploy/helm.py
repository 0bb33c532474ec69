"""Helm's own SDK as a library: the chart linted, and rendered into objects."""

from __future__ import annotations

from importlib.util import find_spec
from pathlib import Path

import yaml

from tests.deploy.objects import Object

CHART = Path(__file__).resolve().parents[2] / "deploy" / "helm"
RELEASE, NAMESPACE = "kbqa", "answers"


def missing() -> str | None:
    """Why the chart cannot be rendered here; None if it can."""
    absent = [name for name in ("helm_python", "kubernetes_validate") if find_spec(name) is None]
    return f"{' and '.join(absent)} not installed: run make chart" if absent else None


def helm_error() -> type[Exception]:
    """What `render` raises for values that the chart refuses."""
    import helm_python

    return helm_python.HelmError


def lint(values: Object, kube_version: str) -> list[str]:
    """What `helm lint --strict` complains about."""
    import helm_python

    report = helm_python.lint(
        CHART, values, strict=True, kube_version=f"v{kube_version}.0", namespace=NAMESPACE
    )
    complaints = [f"{m['path']}: {m['error']}" for m in report["messages"] if m["severity"] > 1]
    return complaints + report["errors"]


def render(values: Object) -> list[Object]:
    """All objects of a release.

    Raises:
        helm_python.HelmError: the values do not fit the schema, or a guard refuses them.
    """
    manifests = manifests_of(values)
    return [
        found
        for path, text in manifests.items()
        if path.endswith(".yaml")
        for found in yaml.safe_load_all(text)
        if found
    ]


def manifests_of(values: Object) -> dict[str, str]:
    """Text by template, NOTES.txt too."""
    import helm_python

    with helm_python.Chart.load(CHART) as chart:
        chart.validate_schema(values)
        return chart.render(values, name=RELEASE, namespace=NAMESPACE, is_install=True)


def defaults() -> Object:
    values: Object = yaml.safe_load((CHART / "values.yaml").read_text(encoding="utf-8"))
    return values
