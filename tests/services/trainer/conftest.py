"""Runs over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import httpx
import pytest


class Client:
    """Runs of a trainer, over HTTP."""

    def __init__(self, trainer) -> None:
        self.trainer = trainer
        self.http = httpx.Client(base_url=trainer.url, timeout=120)

    def start(self, recipe: dict[str, object], **body: object) -> str:
        body = {"dataset": "world", "recipe": recipe, "limits": {"validation": 2, "test": 3}, **body}
        response = self.http.post("/v1/runs", json=body)
        assert response.status_code == 201, response.text
        return response.json()["id"]

    def view(self, run: str) -> dict:
        return self.http.get(f"/v1/runs/{run}").json()

    def wait(self, run: str, reached: Callable[[dict], bool], timeout_s: float = 400.0) -> dict:
        """The run's view as soon as it is as it should be."""
        deadline = time.monotonic() + timeout_s
        while not reached(view := self.view(run)):
            brief = {key: view[key] for key in ("state", "phase", "step", "groups", "error", "restarts")}
            if view["state"] == "failed" or time.monotonic() > deadline:
                log = self.trainer.home / "runs" / run / "train.log"
                raise AssertionError(f"{brief} {log.read_text()[-3000:] if log.exists() else ''}")
            time.sleep(0.05)
        return view


@pytest.fixture
def client() -> Iterator[Callable[..., Client]]:
    """`client(trainer)` makes a client."""
    clients: list[Client] = []

    def make(trainer) -> Client:
        clients.append(Client(trainer))
        return clients[-1]

    yield make
    for made in clients:
        made.http.close()
