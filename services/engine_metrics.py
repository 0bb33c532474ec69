"""Relays the metrics of a vLLM server to Prometheus.

vLLM obeys everybody who can reach it, so it listens on its pod's loopback address only. The service in the
same pod relays its metrics and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import httpx
from fastapi import FastAPI, Query
from fastapi.responses import Response

from services.http import problem

_TIMEOUT_S = 5.0


def relay_engine_metrics(app: FastAPI, vllm_urls: Sequence[str]) -> None:
    """Add `/engine/metrics`: the metrics of a vLLM server, or 503 if it does not answer.

    `?server=1` is the second of several, as their metrics have the same names.
    """

    @app.get("/engine/metrics", tags=["operations"], summary="Prometheus metrics of the engine")
    def engine_metrics(server: Annotated[int, Query(ge=0, lt=len(vllm_urls))] = 0) -> Response:
        vllm_url = vllm_urls[server]
        try:
            answer = httpx.get(f"{vllm_url.rstrip('/')}/metrics", timeout=_TIMEOUT_S, trust_env=False)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            return problem(503, f"vLLM at {vllm_url} returns no metrics: {error}", kind="engine-unavailable")
        return Response(answer.content, headers={"Content-Type": answer.headers["Content-Type"]})
