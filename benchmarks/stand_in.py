"""python -m benchmarks.stand_in PORT CAPACITY MEAN_S STUCK TOKEN…: a vLLM with a latency for a model.

It writes the same tokens for every prompt, each completion after a random time (log-normal, its standard
deviation half the mean), at most CAPACITY at a time. One completion in two hundred is answered with 500, and
the one numbered STUCK never. `/used` gives the seconds that its places were busy, and how many have failed.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
from typing import Any

from aiohttp import web

_SIGMA = 0.47  # of the logarithm
_FAULTS = 200  # one completion in so many


class StandIn:
    def __init__(self, capacity: int, mean_s: float, stuck: int, token_ids: list[int]) -> None:
        self._room = asyncio.Semaphore(capacity)
        self._mean_s, self._stuck, self._token_ids = mean_s, stuck, token_ids
        self._random, self._asked, self._failed = random.Random(1), 0, 0
        self._label = "default"
        self._busy, self._busy_s, self._changed_at = 0, 0.0, time.monotonic()

    def app(self) -> web.Application:
        app = web.Application(client_max_size=2**26)
        app.add_routes(
            [
                web.post("/inference/v1/generate", self._generate),
                web.post("/update_weight_version", self._name),
                web.route("*", "/{path:.*}", self._rest),
            ]
        )
        return app

    async def _generate(self, request: web.Request) -> web.Response:
        await request.json()
        self._asked += 1
        number = self._asked
        async with self._room:
            self._count(1)
            try:
                if number == self._stuck:
                    await asyncio.Event().wait()
                await asyncio.sleep(self._mean_s * self._random.lognormvariate(-(_SIGMA**2) / 2, _SIGMA))
            finally:
                self._count(-1)
        if number % _FAULTS == 0:
            self._failed += 1
            return web.json_response({"error": {"message": "planned"}}, status=500)
        content = [{"token_id": token, "logprob": -0.1} for token in self._token_ids]
        versions = [{"version": self._label, "start": 0, "end": len(content)}]
        choice = {
            "token_ids": self._token_ids,
            "logprobs": {"content": content},
            "finish_reason": "stop",
            "weight_versions": versions,
        }
        return web.json_response({"choices": [choice]})

    async def _name(self, request: web.Request) -> web.Response:
        self._label = (await request.json())["new_version"]
        return web.json_response({})

    async def _rest(self, request: web.Request) -> web.Response:
        self._count(0)
        answers: dict[str, Any] = {
            "/v1/models": {"data": [{"id": "base", "parent": None, "max_model_len": 8192}]},
            "/weight_info": {"weight_version": self._label},
            "/reset_prefix_cache": {"success": True},
            "/used": {
                "busy_s": self._busy_s,
                "at": time.monotonic(),
                "asked": self._asked,
                "failed": self._failed,
            },
        }
        return web.json_response(answers.get(request.path, {}))

    def _count(self, change: int) -> None:
        now = time.monotonic()
        self._busy_s += self._busy * (now - self._changed_at)
        self._busy, self._changed_at = self._busy + change, now


if __name__ == "__main__":
    port, capacity, mean_s, stuck, *token_ids = sys.argv[1:]
    stand_in = StandIn(int(capacity), float(mean_s), int(stuck), [int(token) for token in token_ids])
    web.run_app(
        stand_in.app(), host="127.0.0.1", port=int(port), print=None, backlog=4096, handler_cancellation=True
    )
