"""What a rendered chart consists of, as far as checks ask for it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

Object = dict[str, Any]


@dataclass(frozen=True)
class Pod:
    """A pod, or the template of a workload's pods.

    Attributes:
        owner: kind/name of what it belongs to.
        labels: of the pod.
        spec: of the pod.
    """

    owner: str
    labels: Mapping[str, str]
    spec: Object

    @property
    def containers(self) -> list[Object]:
        return [*self.spec.get("initContainers", ()), *self.spec["containers"]]

    @property
    def ports(self) -> dict[str, int]:
        """By name."""
        return {p["name"]: p["containerPort"] for c in self.containers for p in c.get("ports", ())}


def title(found: Object) -> str:
    return f"{found['kind']}/{found['metadata']['name']}"


def of_kind(objects: list[Object], kind: str) -> list[Object]:
    return [found for found in objects if found["kind"] == kind]


def names(objects: list[Object], kind: str) -> set[str]:
    return {found["metadata"]["name"] for found in of_kind(objects, kind)}


def pods(objects: list[Object]) -> Iterator[Pod]:
    for found in objects:
        if found["kind"] == "Pod":
            yield Pod(title(found), found["metadata"].get("labels", {}), found["spec"])
        elif found["kind"] in ("Deployment", "StatefulSet", "Job"):
            template = found["spec"]["template"]
            yield Pod(title(found), template["metadata"]["labels"], template["spec"])


def selects(selector: Mapping[str, str], labels: Mapping[str, str]) -> bool:
    return all(labels.get(key) == value for key, value in selector.items())


def component(pod: Pod) -> str:
    return pod.labels["app.kubernetes.io/component"]


def service_of(container: Object) -> str | None:
    """The service that a container runs, as `services.settings.SERVICES` calls it."""
    command = container.get("command", ())
    return command[2].replace("-", "_") if command[:2] == ["kbqa", "serve"] else None


def services(objects: list[Object]) -> Iterator[tuple[Pod, Object, str]]:
    """Pod, container and name of everything that runs one of our services."""
    for pod in pods(objects):
        for container in pod.containers:
            if (service := service_of(container)) is not None:
                yield pod, container, service


def variables(container: Object) -> dict[str, str]:
    """Name → value; a secret's is a text that fits both a URL and a password."""
    return {v["name"]: v.get("value", "redis://:secret-of-32-letters@redis:6379/0") for v in container["env"]}
