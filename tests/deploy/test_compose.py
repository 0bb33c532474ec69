"""The images are built and compose.yaml runs: a policy is trained, a question answered, and nothing stays."""

from __future__ import annotations

import json
import time

import httpx
import pytest

from tests.deploy.compose import (
    ROOT,
    SERVICES,
    Stack,
    fetch_torch,
    image,
    inspect_image,
    missing,
    remove_images,
    run_in,
)

pytestmark = [pytest.mark.integration, pytest.mark.timeout(3600)]

# The demo's recipe, its numbers cut down to a minute or two.
CUT = {
    "schedule.steps": 3,
    "schedule.questions_per_step": 2,
    "schedule.max_in_flight": 2,
    "schedule.validate_every": 3,
}
OPTIONS = [f"--set {key}={value}" for key, value in CUT.items()] + ["--limit validation=4", "--limit test=8"]
QUESTION = {"question": "what is the city where Hangreath Susbri was born ?", "kg": "world"}


@pytest.fixture(scope="module")
def stack(tmp_path_factory):
    if (reason := missing()) is not None:
        pytest.skip(reason)
    fetch_torch()
    stack = Stack(
        tmp_path_factory.mktemp("compose"), {"RUN_OPTIONS": " ".join(OPTIONS), "ROLLOUT_WORKERS": "1"}
    )
    stack.compose("build", timeout_s=3000)
    yield stack
    stack.compose("--profile", "*", "down", "--volumes", "--remove-orphans", timeout_s=300)
    remove_images()


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_holds_what_it_needs_and_no_more(stack, service):
    name = image(service)
    config = inspect_image(name)["Config"]
    assert config["User"] == "10001:10001"
    assert config["Cmd"] == ["kbqa", "serve", service]
    assert config["Healthcheck"]["Test"][0] == "CMD"
    assert config["Labels"]["org.opencontainers.image.title"] == f"kbqa-{service}"
    assert config["Labels"]["org.opencontainers.image.version"] == "under-test"
    assert run_in(name, "id", "-u").strip() == "10001"
    absent = "command -v gcc cc make git curl; ls /opt/kbqa/bin/pip 2>/dev/null; true"
    assert run_in(name, "sh", "-c", absent) == ""
    assert "serve" in run_in(name, "kbqa", "--help")


@pytest.mark.parametrize("service", SERVICES)
def test_an_image_lists_what_it_is_made_of(stack, service):
    listed = json.loads(run_in(image(service), "cat", "/opt/kbqa/sbom.cdx.json"))
    assert listed["bomFormat"] == "CycloneDX"
    versions = {part["name"]: part["version"] for part in listed["components"]}
    pinned = dict(
        line.split("==") for line in (ROOT / "constraints.txt").read_text().splitlines() if "==" in line
    )
    assert versions["pydantic"] == pinned["pydantic"]
    assert ("torch" in versions) == (service != "kg-server")
    if "torch" in versions:
        assert versions["torch"] == f"{pinned['torch']}+cpu"
        assert not [name for name in versions if name.startswith("nvidia-")]


def test_the_stack_answers_trains_and_leaves_nothing(stack):
    stack.compose("up", "--detach", timeout_s=600)
    stack.wait_for(f"{stack.trainer}/readyz", 600)
    stack.wait_for(f"{stack.gateway}/readyz", 900)
    answer = httpx.post(f"{stack.gateway}/v1/answer", json=QUESTION, timeout=120)
    assert answer.status_code == 200, answer.text
    assert answer.json()["kg"] == "world"
    assert answer.json()["policy_version"]

    run = finished(stack)
    assert (run["state"], run["phase"]) == ("done", "done")
    assert [record["step"] for record in run["history"] if record.get("phase") == "rl"][-1] == 3
    # Whoever restarts the stack finds the run, and starts none.
    stack.compose("up", "--detach", timeout_s=300)
    assert httpx.get(f"{stack.trainer}/v1/runs", timeout=30).status_code == 401
    assert len(told(stack, "/v1/runs")["runs"]) == 1

    for service in (*SERVICES, "redis"):
        found = stack.inspect(service)
        assert found["HostConfig"]["ReadonlyRootfs"], service
        assert found["HostConfig"]["CapDrop"] == ["ALL"], service
        assert found["State"]["Health"]["Status"] == "healthy", service

    stack.compose("stop", timeout_s=300)
    codes = {c["Service"]: c["ExitCode"] for c in stack.containers()}
    assert {service: codes[service] for service in (*SERVICES, "redis")} == dict.fromkeys(
        (*SERVICES, "redis"), 0
    )
    stack.compose("down", "--volumes", timeout_s=300)
    assert stack.leftovers() == {}


def told(stack, path):
    """What the trainer tells who has the key."""
    return httpx.get(f"{stack.trainer}{path}", headers={"X-API-Key": stack.key}, timeout=30).json()


def finished(stack):
    """The one run, as soon as it is over; the reader may answer before the run begins."""
    deadline, run = time.monotonic() + 900, None
    while time.monotonic() < deadline:
        for summary in told(stack, "/v1/runs")["runs"]:
            run = told(stack, f"/v1/runs/{summary['id']}")
            if run["state"] in ("done", "failed", "stopped"):
                return run
        time.sleep(2)
    raise AssertionError(f"the run is not over: {run}\n{stack.logs()}")
