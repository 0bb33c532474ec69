"""A one-node cluster on this machine's Docker Engine, as far as tests ask for one."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.deploy.helm import CHART
from tests.deploy.objects import Object

_QUICK_S = 60.0


def missing() -> str | None:
    """Why nothing can be installed here; None if it can."""
    if shutil.which("kubectl") is None or not os.environ.get("KUBECONFIG"):
        return (
            "no cluster: set KUBECONFIG to a one-node Kubernetes on this machine's Docker, beside a kubectl"
        )
    try:
        nodes = json.loads(kubectl("get", "nodes", "--output", "json"))["items"]
    except subprocess.CalledProcessError as error:
        return f"the cluster of KUBECONFIG does not answer: {error.stderr.strip()[-200:]}"
    runtimes = [node["status"]["nodeInfo"]["containerRuntimeVersion"] for node in nodes]
    if len(runtimes) != 1 or not runtimes[0].startswith("docker://"):
        return f"the cluster of KUBECONFIG does not run images of this machine's Docker Engine: {runtimes}"
    return None


def kubectl(*arguments: str, timeout_s: float = _QUICK_S, given: str | None = None) -> str:
    """Output of a command.

    Raises:
        subprocess.CalledProcessError: it failed.
    """
    done = subprocess.run(
        ["kubectl", *arguments], check=True, capture_output=True, text=True, timeout=timeout_s, input=given
    )
    return done.stdout


class Namespace:
    """A namespace, and volumes on this machine's disk that its claims are given."""

    def __init__(self, name: str, directory: Path, volumes: int) -> None:
        self.name = name
        self._directory = directory
        self._volumes = [f"{name}-{number}" for number in range(volumes)]
        kubectl("create", "namespace", name)
        for volume in self._volumes:
            path = directory / volume
            # Nobody gives a hostPath to the group that a pod asks for.
            path.mkdir()
            path.chmod(0o777)
            kubectl("apply", "--filename", "-", given=json.dumps(_volume(volume, path)))
        # What a cluster puts into every namespace comes a moment after it.
        self.wait_until(lambda: bool(self.get("serviceaccounts")), 30)

    def kubectl(self, *arguments: str, timeout_s: float = _QUICK_S) -> str:
        return kubectl("--namespace", self.name, *arguments, timeout_s=timeout_s)

    def shell(self, line: str, directory: Path) -> None:
        """Run a line of a shell in a directory, here instead of in the namespace `kbqa`.

        Raises:
            AssertionError: it failed; says how.
        """
        here = line.replace("--namespace kbqa ", f"--namespace {self.name} ")
        done = subprocess.run(
            ["bash", "-c", here], cwd=directory, capture_output=True, text=True, timeout=10 * _QUICK_S
        )
        assert done.returncode == 0, f"{here}: {done.stderr}"

    def get(self, kind: str, component: str | None = None) -> list[Object]:
        """All objects of a kind, or those of a part of the chart."""
        chosen = () if component is None else ("--selector", f"app.kubernetes.io/component={component}")
        found: list[Object] = json.loads(self.kubectl("get", kind, *chosen, "--output", "json"))["items"]
        return found

    def everything(self) -> set[str]:
        """Kind and name of whatever is there, but the record of what happened."""
        listed = kubectl("api-resources", "--namespaced", "--verbs", "list", "--output", "name").split()
        kinds = ",".join(kind for kind in listed if not kind.startswith("events"))
        return set(self.kubectl("get", kinds, "--output", "name", "--ignore-not-found").split())

    def address(self, service: str) -> str:
        """Of the first port of a Service, which the node, this machine, reaches."""
        [found] = [s for s in self.get("services") if s["metadata"]["name"] == service]
        return f"http://{found['spec']['clusterIP']}:{found['spec']['ports'][0]['port']}"

    def volume(self, claim: str) -> Path:
        """Where on this machine the volume of a claim lies."""
        [found] = [c for c in self.get("persistentvolumeclaims") if c["metadata"]["name"] == claim]
        return self._directory / str(found["spec"]["volumeName"])

    def wait_ready(self, within_s: float) -> None:
        """Until every workload has all of its pods, as they were asked for last.

        Raises:
            AssertionError: it does not in time; says what the pods are about.
        """
        deadline = time.monotonic() + within_s
        for workload in self.kubectl("get", "deployments,statefulsets", "--output", "name").split():
            left = max(1.0, deadline - time.monotonic())
            try:
                self.kubectl("rollout", "status", workload, f"--timeout={left:.0f}s", timeout_s=left + 30)
            except subprocess.CalledProcessError as error:
                raise AssertionError(f"{workload}: {error.stderr}\n{self.describe()}") from error

    def wait_until(self, holds: Callable[[], bool], within_s: float) -> None:
        """Raises: AssertionError: it does not in time; says what the pods are about."""
        deadline = time.monotonic() + within_s
        while not holds():
            assert time.monotonic() < deadline, self.describe()
            time.sleep(1)

    def crash(self, component: str) -> None:
        """SIGKILL the container of a part; its pod stays, and is to start another."""
        for pod in self.get("pods", component):
            label = f"label=io.kubernetes.pod.uid={pod['metadata']['uid']}"
            own = f"label=io.kubernetes.container.name={component}"
            listed = ["docker", "ps", "--quiet", "--filter", label, "--filter", own]
            running = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.split()
            subprocess.run(["docker", "kill", *running], check=True, capture_output=True)

    def evict(self, component: str) -> None:
        """Take the pods of a part away, with a second to end in; others are to come."""
        self.kubectl(
            "delete", "pods", "--selector", f"app.kubernetes.io/component={component}", "--now", timeout_s=120
        )

    def describe(self) -> str:
        events = self.kubectl("get", "events", "--sort-by", ".lastTimestamp")[-3000:]
        waiting = [pod["metadata"]["name"] for pod in self.get("pods") if not _ready(pod)]
        logs = []
        for name in waiting[:3]:
            try:
                logs.append(f"{name}: {self.kubectl('logs', name, '--all-containers', '--tail', '20')}")
            except subprocess.CalledProcessError as error:  # not even created
                logs.append(f"{name}: {error.stderr}")
        return "\n".join([self.kubectl("get", "pods", "--output", "wide"), events, *logs])

    def remove(self) -> None:
        kubectl("delete", "namespace", self.name, "--wait", "--ignore-not-found", timeout_s=300)
        kubectl("delete", "persistentvolumes", *self._volumes, "--ignore-not-found", timeout_s=120)


def relaxed(directory: Path) -> Path:
    """A copy of the chart that a cluster older than it asks for accepts."""
    copy = directory / "chart"
    shutil.copytree(CHART, copy)
    file = copy / "Chart.yaml"
    file.write_text(re.sub(r"(?m)^kubeVersion: .*$", 'kubeVersion: ">=1.20.0-0"', file.read_text()))
    return copy


def _volume(name: str, path: Path) -> Object:
    return {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "accessModes": ["ReadWriteOnce", "ReadWriteMany"],
            "hostPath": {"path": str(path)},
            "persistentVolumeReclaimPolicy": "Retain",
        },
    }


def _ready(pod: Object) -> bool:
    if pod["status"]["phase"] == "Succeeded":
        return True
    conditions = pod["status"].get("conditions", ())
    return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
