"""Stores to publish into: a directory, and a bucket of an S3-compatible server of the tests' own (moto's)."""

from __future__ import annotations

import itertools
import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from kbqa.policy_store import PolicyStore, PolicyVersion, RemoteShelf

RECIPE = {"name": "tiny", "schedule": {"steps": 3}}
DIGEST = "ab" * 32

_buckets = itertools.count()


class S3Server:
    """moto's S3 server, which can be killed; it forgets everything then."""

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.url = f"http://127.0.0.1:{self.port}"
        command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self.port)]
        quiet = subprocess.DEVNULL
        # Its own warnings are its own business.
        environment = {**os.environ, "PYTHONWARNINGS": "ignore"}
        self.process = subprocess.Popen(command, stdout=quiet, stderr=quiet, env=environment)
        deadline = time.monotonic() + 60
        while not self._answers():
            assert self.process.poll() is None
            assert time.monotonic() < deadline
            time.sleep(0.1)

    def _answers(self) -> bool:
        try:
            return httpx.get(f"{self.url}/moto-api/").status_code == 200
        except httpx.HTTPError:
            return False

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3Server]:
    server = S3Server()
    yield server
    server.kill()


@pytest.fixture
def bucket(s3_server: S3Server, monkeypatch: pytest.MonkeyPatch) -> str:
    """URL of an empty bucket, which the environment says how to reach."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", s3_server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "test")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "test")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "us-east-1")
    import fsspec

    name = f"bucket-{next(_buckets)}"
    fsspec.filesystem("s3").mkdir(name)
    return f"s3://{name}/policies"


@pytest.fixture(params=["directory", "s3"])
def make_store(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], PolicyStore]:
    """`make_store("other machine")`: one store, as different machines see it."""
    if request.param == "directory":
        return lambda machine: PolicyStore(tmp_path / "policies")
    url = request.getfixturevalue("bucket")
    return lambda machine: PolicyStore(RemoteShelf(url, tmp_path / machine))


@pytest.fixture
def store(make_store: Callable[[str], PolicyStore]) -> PolicyStore:
    return make_store("here")


def publish(store: PolicyStore, number: int, weights: str = "w", run: str = "r1") -> PolicyVersion:
    def write(directory: Path) -> None:
        (directory / "config.json").write_text("{}")
        (directory / "model.safetensors").write_text(weights)

    return store.publish(
        run, number, write, recipe=RECIPE, recipe_digest=DIGEST, step=number, metrics={"f1": 0.5}
    )
