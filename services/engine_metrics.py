"""What a vLLM server says of itself, where Prometheus can ask for it.

vLLM takes orders from whoever reaches it, so it listens on the address of its pod alone. The
service beside it passes on its metrics, and nothing else.
"""

from __future__ import annotations

import httpx
from fastapi import FastAPI
from fastapi.responses import Response

from services.http import problem

_TIMEOUT_S = 5.0


def relay_engine_metrics(app: FastAPI, vllm_url: str) -> None:
    """Add `/engine/metrics`: those of the vLLM server at that URL, or 503 while it does not answer."""

    @app.get("/engine/metrics", tags=["operations"], summary="Prometheus metrics of the engine")
    def engine_metrics() -> Response:
        try:
            answer = httpx.get(f"{vllm_url.rstrip('/')}/metrics", timeout=_TIMEOUT_S, trust_env=False)
            answer.raise_for_status()
        except httpx.HTTPError as error:
            return problem(503, f"vLLM at {vllm_url} tells no metrics: {error}", kind="engine-unavailable")
        return Response(answer.content, headers={"Content-Type": answer.headers["Content-Type"]})
