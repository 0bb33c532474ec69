"""The least that a FastAPI handler can do for a batch of one-hop actions: look up a dictionary.

No checks, no labels, no errors, no limits, no metrics, no cache, no paging: what is left to
gain is the difference to this.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import orjson
import uvicorn
from fastapi import FastAPI, Request, Response

from kbqa.kg.actions import GET_HEAD_ENTITIES, GET_HEAD_RELATIONS, GET_TAIL_ENTITIES, GET_TAIL_RELATIONS


def make_app(graph: Path) -> FastAPI:
    """Serve a file of `subject|relation|object`."""
    found: dict[tuple[str, str, str | None], dict[str, None]] = {}
    for line in graph.read_text(encoding="utf-8").split("\n"):
        if line:
            head, relation, tail = line.split("|")
            found.setdefault((GET_TAIL_RELATIONS, head, None), {})[relation] = None
            found.setdefault((GET_HEAD_RELATIONS, tail, None), {})[relation] = None
            found.setdefault((GET_TAIL_ENTITIES, head, relation), {})[tail] = None
            found.setdefault((GET_HEAD_ENTITIES, tail, relation), {})[head] = None
    answers = {key: {"status": "ok", "items": list(items)} for key, items in found.items()}
    app = FastAPI()

    @app.get("/ready")
    async def ready() -> dict[str, str]:
        return {}

    @app.post("/v1/kg/{kg}/actions")
    async def actions(kg: str, request: Request) -> Response:
        batch = orjson.loads(await request.body())["actions"]
        results = [answers[a["action"], a["entity"], a.get("relation")] for a in batch]
        return Response(orjson.dumps({"kg": kg, "results": results}), media_type="application/json")

    return app


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("graph", type=Path)
    parser.add_argument("--port", type=int)
    options = parser.parse_args()
    uvicorn.run(make_app(options.graph), port=options.port, log_level="error", access_log=False)
