"""How routes document their failures."""

from __future__ import annotations

from typing import Any

from kbqa.client.events import Problem

PROBLEM_RESPONSE: dict[str, Any] = {
    "description": "Why not, and what to do (RFC 9457)",
    "content": {"application/problem+json": {"schema": Problem.model_json_schema()}},
}
"""For `responses` of a route."""

PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {"4XX": PROBLEM_RESPONSE, "5XX": PROBLEM_RESPONSE}
"""Of every route of the gateway."""
