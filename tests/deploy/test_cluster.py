"""cpu-small in a real cluster: it answers, outlives deaths, is upgraded, taken back, removed and restored."""

from __future__ import annotations

import base64
import re
import threading
from contextlib import contextmanager, suppress

import httpx
import pytest

from kbqa.policy_store import PolicyStore
from tests.deploy.cluster import Namespace, missing, relaxed
from tests.deploy.compose import ROOT, TAG, Stack, fetch_torch, remove_images
from tests.deploy.compose import missing as no_engine
from tests.deploy.conftest import merged, values_of
from tests.deploy.helm import missing as no_helm
from tests.deploy.test_compose import CUT, QUESTION
from tests.services.invariant import assert_every_group_occurs_once

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3600)]

RELEASE = "kbqa"
QUESTIONS_PER_STEP, STEPS = 2, 150
# Who dies how, one death each so many steps.
EVERY = 10
DEATHS = [
    (death, component)
    for component in ("rollout-worker", "trainer", "redis", "kg-server")
    for death in (Namespace.crash, Namespace.evict)
]
RUN = {
    **CUT,
    "schedule.questions_per_step": QUESTIONS_PER_STEP,
    "schedule.steps": STEPS,
    "schedule.max_run_seconds": 3000,
    "schedule.validate_every": STEPS,
}
SMALL = {"resources": {"requests": {"cpu": "50m"}}}
# Beside what is asked of the run: images that are on the node, room on two cores for pods that replace
# others, and nothing that Kubernetes 1.20 lacks.
VALUES = {
    "image": {"tag": TAG, "pullPolicy": "Never"},
    "redis": {"image": {"tag": "7-bookworm", "pullPolicy": "Never"}},
    "disruptionBudgets": False,
    "priorityClasses": {"create": True},
    "monitoring": {"dashboards": {"enabled": True}},
    "graph": SMALL,
    "rolloutWorker": SMALL,
    "trainer": {
        **SMALL,
        "autoStart": {"overrides": RUN, "limits": {"validation": 4, "test": 8}},
        "persistence": {"keep": True},
    },
    "policyStore": {"persistence": {"keep": True}},
}
# Rolls every pod, makes other jobs, and adds a pod.
CHANGES = {
    "logLevel": "WARNING",
    "rolloutWorker": {"replicas": 2},
    "jobs": {"resources": {"limits": {"memory": "2Gi"}}},
}
KEPT = {"persistentvolumeclaim/kbqa-trainer", "persistentvolumeclaim/kbqa-policies"}


@pytest.fixture(scope="module")
def namespace(tmp_path_factory):
    if (reason := missing() or no_engine() or no_helm()) is not None:
        pytest.skip(reason)
    fetch_torch()
    Stack(tmp_path_factory.mktemp("compose"), {}).compose("build", timeout_s=3000)
    namespace = Namespace("kbqa-under-test", tmp_path_factory.mktemp("volumes"), volumes=14)
    yield namespace
    namespace.remove()
    remove_images()


@pytest.fixture(scope="module")
def helm(namespace):
    import helm_python

    with helm_python.Config(namespace=namespace.name) as config:
        yield config


def test_cpu_small_lives_a_whole_life(namespace, helm, tmp_path):
    chart, values = relaxed(tmp_path), merged(values_of("cpu-small"), VALUES)
    before = namespace.everything()
    helm.install(chart, RELEASE, values, namespace=namespace.name, timeout=300)
    namespace.wait_ready(900)
    # The reader answers until a policy is promoted.
    assert re.search(r"policy (\S+/)?v0", helm.test(RELEASE, timeout=300, logs=True)["logs"])

    trainer = operator(namespace)
    for number, (death, component) in enumerate(DEATHS, start=1):
        wait_for_step(namespace, trainer, number * EVERY)
        death(namespace, component)
        namespace.wait_ready(300)

    gateway = namespace.address("kbqa-gateway")
    # Of the answers that it wanted to keep in a Redis which died, a gateway loses one for each connection.
    namespace.wait_until(lambda: is_told(gateway, "Paris"), 60)
    with asking(gateway) as failures:
        helm.upgrade(chart, RELEASE, merged(values, CHANGES), namespace=namespace.name, timeout=300)
        namespace.wait_ready(600)
        # A worker that is replaced goes once it has played its rollouts.
        namespace.wait_until(lambda: len(namespace.get("pods", "rollout-worker")) == 2, 120)
        helm.rollback(RELEASE, timeout=300)
        namespace.wait_ready(600)
    assert failures == []
    export = ("kbqa", "feedback", "export", "/tmp/said.jsonl")
    assert "wrote 1 questions" in namespace.kubectl("exec", "deployment/kbqa-gateway", "--", *export)

    run = finished(namespace, trainer)
    assert (run["state"], run["phase"]) == ("done", "done"), run["error"]
    directory = namespace.volume("kbqa-trainer") / "runs" / run["id"]
    outcomes = assert_every_group_occurs_once(directory, {"step": STEPS}, QUESTIONS_PER_STEP)
    assert outcomes["trained"] > 0
    namespace.wait_until(lambda: serves_what_is_promoted(namespace), 120)
    served = promoted(namespace)
    back_up, restore = documented()
    for line in back_up:
        namespace.shell(line, tmp_path)

    helm.uninstall(RELEASE, timeout=300)
    namespace.wait_until(lambda: namespace.everything() == before | KEPT, 120)

    helm.install(chart, RELEASE, values, namespace=namespace.name, timeout=300)
    namespace.wait_ready(900)
    assert ask(namespace.address("kbqa-gateway"))["policy_version"] == served
    assert [r["id"] for r in runs(operator(namespace))] == [run["id"]]
    helm.uninstall(RELEASE, timeout=300)
    namespace.wait_until(lambda: namespace.everything() == before | KEPT, 120)

    namespace.kubectl("delete", *KEPT)
    empty = merged(values, {"trainer": {"autoStart": {"enabled": False}}})
    helm.install(chart, RELEASE, empty, namespace=namespace.name, timeout=300)
    namespace.wait_ready(900)
    assert runs(operator(namespace)) == []
    for line in restore:
        namespace.shell(line, tmp_path)
        namespace.wait_ready(300)
    gateway = namespace.address("kbqa-gateway")
    namespace.wait_until(lambda: ask(gateway)["policy_version"] == served, 120)
    assert [(r["id"], r["state"]) for r in runs(operator(namespace))] == [(run["id"], "done")]
    assert "wrote 1 questions" in namespace.kubectl("exec", "deployment/kbqa-gateway", "--", *export)


def documented():
    """The lines of docs/install.md that back a cluster up, and those that restore it."""
    text = (ROOT / "docs" / "install.md").read_text()
    section = re.search(r"(?ms)^## Backup$(.*?)^## ", text)[1]
    lines = [line for line in section.splitlines() if line.startswith("kubectl --namespace kbqa ")]
    back_up = [line for line in lines if ">" in line]
    assert len(back_up) == 3
    assert lines[:3] == back_up
    return back_up, lines[3:]


def ask(gateway):
    response = httpx.post(f"{gateway}/v1/answer", json=QUESTION, timeout=120)
    assert response.status_code == 200, response.text
    return response.json()


def is_told(gateway, right):
    """Whether it keeps that another answer would have been right."""
    said = {"answer_id": ask(gateway)["id"], "verdict": "wrong", "answers": [right]}
    return httpx.post(f"{gateway}/v1/feedback", json=said, timeout=30).status_code == 201


@contextmanager
def asking(gateway):
    """Ask all the time; gives the list of what went wrong."""
    failures, stop = [], threading.Event()

    def go_on():
        while not stop.wait(0.5):
            try:
                ask(gateway)
            except (AssertionError, httpx.HTTPError) as error:
                failures.append(repr(error))

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield failures
    finally:
        stop.set()
        thread.join()


def promoted(namespace):
    return PolicyStore(namespace.volume("kbqa-policies") / "store").promoted().id


def serves_what_is_promoted(namespace):
    return ask(namespace.address("kbqa-gateway"))["policy_version"] == promoted(namespace)


def operator(namespace):
    """Reads from the trainer with the key of the release."""
    [secret] = [s for s in namespace.get("secrets") if s["metadata"]["name"] == "kbqa-services"]
    key = base64.b64decode(secret["data"]["api-key"]).decode()
    address = namespace.address("kbqa-trainer")

    def read(path):
        return httpx.get(f"{address}{path}", headers={"X-API-Key": key}, timeout=30).json()

    return read


def runs(trainer):
    return trainer("/v1/runs")["runs"]


def view(trainer):
    """The one run; None while nobody answers."""
    with suppress(httpx.HTTPError):
        for run in runs(trainer):
            return trainer(f"/v1/runs/{run['id']}")
    return None


def wait_for_step(namespace, trainer, step):
    def reached():
        run = view(trainer)
        assert run is None or run["state"] == "running", run
        return run is not None and run["phase"] == "rl" and run["step"] >= step

    namespace.wait_until(reached, 600)


def finished(namespace, trainer):
    def over():
        run = view(trainer)
        return run is not None and run["state"] in ("done", "failed", "stopped")

    namespace.wait_until(over, 900)
    return view(trainer)
