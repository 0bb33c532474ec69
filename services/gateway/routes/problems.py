"""Documentation of failures in the OpenAPI of routes."""

from __future__ import annotations

from typing import Any

from kbqa.client.events import Problem

PROBLEM_RESPONSE: dict[str, Any] = {
    "description": "What went wrong and what to do, as a problem document (RFC 9457)",
    "content": {"application/problem+json": {"schema": Problem.model_json_schema()}},
}
"""An entry for `responses` of a route."""

PROBLEM_RESPONSES: dict[int | str, dict[str, Any]] = {"4XX": PROBLEM_RESPONSE, "5XX": PROBLEM_RESPONSE}
"""`responses` of every route of the gateway."""
