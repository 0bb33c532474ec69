"""A real Prometheus and its promtool, where they are installed."""

from __future__ import annotations

import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

_START_S = 30.0


def program(name: str) -> str:
    """The path of `promtool` or `prometheus`; skips the test where it is missing."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"no {name} here: install Debian's package prometheus")
    return found


def promtool(*arguments: object) -> str:
    """What promtool complains about; empty if nothing."""
    done = subprocess.run(
        [program("promtool"), *map(str, arguments)], capture_output=True, text=True, check=False
    )
    return "" if done.returncode == 0 else done.stdout + done.stderr


@contextmanager
def scraping(folder: Path, targets: Mapping[str, str], rules: Path, port: int) -> Iterator[str]:
    """A Prometheus that asks `targets` (job → URL of the metrics) every second; yields its URL."""
    jobs = []
    for job, target in targets.items():
        parts = httpx.URL(target)
        jobs.append(
            {
                "job_name": job,
                "metrics_path": parts.path,
                "static_configs": [{"targets": [f"{parts.host}:{parts.port}"]}],
            }
        )
    settings: dict[str, Any] = {
        "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
        "rule_files": [str(rules)],
        "scrape_configs": jobs,
    }
    config = folder / "prometheus.yaml"
    config.write_text(yaml.safe_dump(settings))
    url = f"http://127.0.0.1:{port}"
    command = [
        program("prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={folder / 'tsdb'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (folder / "prometheus.log").open("wb") as log:
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        deadline = time.monotonic() + _START_S
        while not _ready(url):
            assert server.poll() is None, (folder / "prometheus.log").read_text()
            assert time.monotonic() < deadline, "Prometheus does not become ready"
            time.sleep(0.1)
        yield url
    finally:
        server.terminate()
        server.wait()


def _ready(url: str) -> bool:
    try:
        return httpx.get(f"{url}/-/ready", trust_env=False).status_code == httpx.codes.OK
    except httpx.HTTPError:
        return False
