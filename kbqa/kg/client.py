"""Graph actions executed by kg_server, over HTTP."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self
from urllib.parse import quote

import httpx

from kbqa.errors import GraphChangeError, GraphNotFoundError, GraphUnavailableError
from kbqa.kg.actions import Action, ActionResult, ErrorCode, ErrorKind, Failure, Success
from kbqa.kg.retrieval import ACTIONS
from kbqa.kg.store import GraphInfo
from kbqa.tracing import outgoing_headers, span

# Half of the server's limit; each part of a huge batch then takes some milliseconds.
_BATCH = 512
# Seconds for what the server does besides the query.
_BESIDES_S = 10.0


@dataclass(frozen=True, slots=True)
class GraphChange:
    """What a batch of changes did to a graph.

    Attributes:
        version: of the graph with the changes.
        ignored: triples that were there already, or were not there.
        triples: of the graph with the changes.
        lost_relations, new_relations: relations that no fact has any more, or had before.
    """

    kg: str
    version: str
    inserted: int
    deleted: int
    ignored: int
    triples: int
    lost_relations: Sequence[str]
    new_relations: Sequence[str]


class HttpGraphTools:
    """`GraphTools` of a kg_server.

    Keeps connections open; safe for many threads. Close it, or use it in a `with`.

    Args:
        base_url: of the server, for instance http://127.0.0.1:8001.
        timeout_s: for each request, once connected; longer if actions, or the graph's endpoint, allow
            queries more time.
        connect_timeout_s: for a connection.
        api_key: for a server that requires one.
    """

    def __init__(
        self,
        base_url: str,
        *,
        timeout_s: float = 30.0,
        connect_timeout_s: float = 3.0,
        api_key: str | None = None,
    ) -> None:
        self._base_url = base_url.rstrip("/")
        self._timeout_s, self._connect_timeout_s = timeout_s, connect_timeout_s
        self._patience_s: dict[str, float] = {}
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {api_key}"} if api_key is not None else None,
            trust_env=False,  # our own services are never behind the environment's proxy
            base_url=self._base_url,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._client.close()

    def execute(self, kg: str, actions: Sequence[Action], *, graph: str | None = None) -> list[ActionResult]:
        return self.execute_at(kg, actions, graph=graph)[0]

    def execute_at(
        self, kg: str, actions: Sequence[Action], *, graph: str | None = None
    ) -> tuple[list[ActionResult], str]:
        results: list[ActionResult] = []
        version = ""
        # An empty batch is sent too, to check that the graph exists.
        for start in range(0, max(len(actions), 1), _BATCH):
            body: dict[str, Any] = {
                "actions": [action.to_json() for action in actions[start : start + _BATCH]]
            }
            if graph is not None:
                body["graph"] = graph
            asked = actions[start : start + _BATCH]
            # The server executes a batch's queries one after the other.
            queries_s = sum(action.arguments.get("timeout_s", 0.0) for action in asked)
            answer = self._batch(kg, body, queries_s)
            results.extend(map(parse_result, asked, answer["results"]))
            version = answer["version"]
        return results, version

    def _batch(self, kg: str, body: Mapping[str, Any], queries_s: float) -> Any:
        path = f"/v1/kg/{quote(kg, safe='')}/actions"
        patience_s = self._patience_s.get(kg, self._timeout_s)
        try:
            return self._request("POST", path, kg, body, patience_s + queries_s)
        except GraphUnavailableError as error:
            if not isinstance(error.__cause__, httpx.ReadTimeout):
                raise
            # Only now does it matter how long a query on this graph may take. The server still runs it, and
            # answers the second request with its result.
            allowed_s = next((graph.query_deadline_s for graph in self.graphs() if graph.name == kg), None)
            if allowed_s is None or allowed_s + _BESIDES_S <= patience_s:
                raise
            self._patience_s[kg] = patience_s = allowed_s + _BESIDES_S
            return self._request("POST", path, kg, body, patience_s + queries_s)

    def graphs(self) -> list[GraphInfo]:
        """The graphs that the server has loaded.

        Raises:
            GraphUnavailableError: the server cannot be reached.
        """
        listed = self._request("GET", "/v1/kg")["graphs"]
        return [GraphInfo(**g | {"lost_relations": tuple(g.get("lost_relations", ()))}) for g in listed]

    def change(
        self, kg: str, *, insert: str = "", delete: str = "", update: str = "", key: str | None = None
    ) -> GraphChange:
        """Insert and delete triples of a graph, all of them or none; needs a key with the right to do so.

        Args:
            insert, delete: triples in N-Triples, one a line.
            update: instead of both, a SPARQL Update.
            key: names the batch, so that it is not applied again if it is sent again.

        Raises:
            GraphNotFoundError: the server has no such graph.
            GraphChangeError: the server refuses the changes; the message says why.
            GraphUnavailableError: the server cannot be reached; with a key, send the same batch again.
        """
        path = f"/v1/kg/{quote(kg, safe='')}/changes"
        media_type, body = (
            ("application/sparql-update", update)
            if update
            else ("application/json", json.dumps({"insert": insert, "delete": delete}))
        )
        headers = {"Content-Type": media_type} | ({} if key is None else {"Idempotency-Key": key})
        request = self._client.build_request(
            "POST", path, content=body.encode(), headers=headers, timeout=self._timeout_s
        )
        try:
            response = self._client.send(request)  # once, since a batch without a key may not be repeated
        except httpx.HTTPError as error:
            raise self._no_answer(error) from error
        if response.status_code in (400, 403, 409, 413):
            raise GraphChangeError(_problem(response).get("detail") or "the server refuses the changes")
        return GraphChange(**self._content(response, kg))

    def _request(
        self,
        method: str,
        path: str,
        kg: str = "",
        body: Mapping[str, Any] | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        # A policy may emit half of a surrogate pair, which UTF-8 cannot carry.
        content = None if body is None else json.dumps(body, ensure_ascii=False).encode("utf-8", "replace")
        headers = {"Content-Type": "application/json"} if body is not None else {}
        with span(f"kg_server {method}", "client", kg=kg):
            request = self._client.build_request(
                method,
                path,
                content=content,
                headers=headers | outgoing_headers(),
                timeout=httpx.Timeout(timeout_s or self._timeout_s, connect=self._connect_timeout_s),
            )
            return self._answer(request, kg)

    def _answer(self, request: httpx.Request, kg: str) -> Any:
        try:
            response = self._send(request)
            until = time.monotonic() + self._timeout_s
            while (wait_s := _wait_s(response)) is not None and time.monotonic() + wait_s < until:
                time.sleep(wait_s)
                response = self._send(request)
        except httpx.HTTPError as error:
            raise self._no_answer(error) from error
        return self._content(response, kg)

    def _no_answer(self, error: httpx.HTTPError) -> GraphUnavailableError:
        return GraphUnavailableError(
            f"kg_server at {self._base_url} does not answer ({error or type(error).__name__}): "
            "start it (kbqa up), or correct KBQA_KG_SERVER_URL"
        )

    def _content(self, response: httpx.Response, kg: str) -> Any:
        if response.status_code == 200 and response.headers.get("content-type") == "application/json":
            return response.json()
        problem = _problem(response)
        if response.status_code == 404 and problem and kg:
            raise GraphNotFoundError(kg, [graph.name for graph in self.graphs()])
        detail = problem.get("detail") or "not an answer of kg_server"
        if response.status_code == 401:
            detail += "; set KBQA_KG_SERVER_API_KEY"
        raise GraphUnavailableError(
            f"kg_server at {self._base_url} answered {response.status_code}: {detail}"
        )

    def _send(self, request: httpx.Request) -> httpx.Response:
        try:
            return self._client.send(request)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            # The server closed an idle connection as we used it. Actions only read, so retrying is safe.
            return self._client.send(request)


def _wait_s(response: httpx.Response) -> float | None:
    """The Retry-After of an overloaded server (429) in seconds, at least 0.1; None for other responses."""
    wait = response.headers.get("retry-after", "")
    return max(float(wait), 0.1) if response.status_code == 429 and wait.isdigit() else None


def _problem(response: httpx.Response) -> Mapping[str, Any]:
    if response.headers.get("content-type", "").startswith("application/problem+json"):
        problem = response.json()
        if isinstance(problem, dict):
            return problem
    return {}


def parse_result(action: Action, result: Mapping[str, Any]) -> ActionResult:
    """Read an action's result from JSON; items of an action unknown here stay JSON."""
    details = result.get("details", {})
    if result["status"] == "error":
        return Failure(ErrorCode(result["code"]), ErrorKind(result["kind"]), result["message"], details)
    spec = ACTIONS.find(action.name)
    return Success(
        tuple(result["items"]) if spec is None else spec.read_items(result["items"]),
        result["total"],
        result["truncated"],
        result["cached"],
        result["elapsed_ms"],
        details,
    )
