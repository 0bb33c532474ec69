"""The retrieval actions as tools of the Model Context Protocol (MCP), for any agent that supports it.

A tool returns the action's result as `POST /v1/kg/{kg}/actions` does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

import orjson
from mcp import types
from mcp.server.context import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.streamable_http_manager import StreamableHTTPSessionManager
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from kbqa import __version__
from kbqa.errors import GraphNotFoundError, GraphUnavailableError, QueryOverloadError
from kbqa.kg.actions import Action, ActionResult, Failure
from kbqa.kg.arguments import PAGING
from kbqa.kg.retrieval import ACTIONS
from kbqa.kg.specs import ActionSpec
from kbqa.kg.store import GraphInfo
from services.access.errors import GraphForbiddenError
from services.kg_server.callers import Caller, caller_of
from services.kg_server.schemas import dump_result

LIST_GRAPHS = "list_graphs"

INSTRUCTIONS = """\
Answers questions from knowledge graphs: sets of facts (head, relation, tail). Begin with list_graphs. Find
the entities that the question names (link_entities), see which relations they have (get_tail_relations,
get_head_relations), and follow those that matter (get_tail_entities, get_head_entities). Entities and
relations are named by the `id` of an earlier result, or by their exact label. Answer only from what the
tools return."""

_KG = {"type": "string", "description": "name of the graph, as list_graphs returns it"}
_GRAPH = {
    "type": "string",
    "description": "id of a per-question subgraph; leave it out to use the whole graph",
}

# Executes one action over a graph: (kg, action, graph, caller).
Execute = Callable[[str, Action, str | None, Caller], Awaitable[ActionResult]]
ListGraphs = Callable[[Caller], Awaitable[Sequence[GraphInfo]]]


def mcp_server(list_graphs: ListGraphs, execute: Execute) -> Server[Any]:
    """An MCP server of the tools, for any transport."""

    async def on_list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_tools())

    async def on_call_tool(
        context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        arguments = dict(params.arguments or {})
        try:
            request = context.request
            caller = caller_of(request) if isinstance(request, Request) else Caller("stdio")
            if params.name == LIST_GRAPHS:
                return _result({"graphs": [_graph(info) for info in await list_graphs(caller)]})
            kg, graph = arguments.pop("kg", None), arguments.pop("graph", None)
            if not isinstance(kg, str) or not isinstance(graph, str | None):
                return _result(
                    {"message": "kg: the name of a graph is required; see list_graphs"}, failed=True
                )
            result = await execute(kg, Action(params.name, arguments), graph, caller)
        except (GraphForbiddenError, GraphNotFoundError, GraphUnavailableError, QueryOverloadError) as error:
            return _result({"message": str(error)}, failed=True)
        return _result(dump_result(result), failed=isinstance(result, Failure))

    return Server(
        "kbqa",
        version=__version__,
        instructions=INSTRUCTIONS,
        on_list_tools=on_list_tools,
        on_call_tool=on_call_tool,
    )


class McpRoute:
    """The tools over streamable HTTP without sessions: requests are independent."""

    def __init__(self, server: Server[Any], max_body_bytes: int) -> None:
        self.manager = StreamableHTTPSessionManager(
            server, json_response=True, stateless=True, max_request_body_size=max_body_bytes
        )

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await self.manager.handle_request(scope, receive, send)


def _tools() -> list[types.Tool]:
    listing = types.Tool(
        name=LIST_GRAPHS,
        description="List the knowledge graphs that can be asked, with their sizes.",
        input_schema={"type": "object", "properties": {}},
        annotations=types.ToolAnnotations(read_only_hint=True),
    )
    return [listing, *map(_tool, ACTIONS.values())]


def _tool(spec: ActionSpec) -> types.Tool:
    own = {name: argument.schema for name, argument in (*spec.required.items(), *spec.optional.items())}
    paging = {name: argument.schema for name, argument in PAGING.items()}
    return types.Tool(
        name=spec.name,
        description=spec.description,
        input_schema={
            "type": "object",
            "properties": {"kg": _KG, **own, "graph": _GRAPH, **paging},
            "required": ["kg", *spec.required],
            "additionalProperties": False,
        },
        annotations=types.ToolAnnotations(read_only_hint=True),
    )


def _graph(info: GraphInfo) -> dict[str, Any]:
    return {"name": info.name, "triples": info.triples, "entities": info.entities}


def _result(answer: Mapping[str, Any], *, failed: bool = False) -> types.CallToolResult:
    # As JSON text for models, and as structured content for programs.
    encoded = orjson.dumps(answer)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=encoded.decode())],
        structured_content=orjson.loads(encoded),
        is_error=failed,
    )
