"""The retrieval actions as tools of the Model Context Protocol, for any agent that speaks it.

Tools and their schemas come from the table of handlers; an action without a description
here is no tool. A tool's result is the action's, as `POST /v1/kg/{kg}/actions` has it.
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
from kbqa.kg.handlers import FLAG, TEXT, TEXTS, Handler, Kind
from kbqa.kg.retrieval.follow_path import MAX_STEPS, PATH
from kbqa.kg.store import GraphInfo
from kbqa.kg.tools import HANDLERS
from services.kg_server.callers import Caller, caller_of
from services.kg_server.schemas import dump_result

LIST_GRAPHS = "list_graphs"

INSTRUCTIONS = """\
Answers questions from knowledge graphs: sets of facts (head, relation, tail). Begin with list_graphs. Find
the entities that the question names (link_entities), see which relations they have (get_tail_relations,
get_head_relations), and follow those that matter (get_tail_entities, get_head_entities). Entities and
relations are named by the `id` of an earlier result, or by their exact label. Answer only from what the
tools return."""

DESCRIPTIONS: Mapping[str, str] = {
    "get_tail_relations": "List the relations that lead away from an entity: those of its facts (entity, "
    "relation, ?). Call it before get_tail_entities, to see what can be asked.",
    "get_head_relations": "List the relations that lead to an entity: those of the facts (?, relation, "
    "entity). Call it before get_head_entities.",
    "get_tail_entities": "List what a relation leads to from an entity: every ? of (entity, relation, ?), "
    "for instance the actors of a film for entity=the film, relation=starred_actors.",
    "get_head_entities": "List what has a relation to an entity: every ? of (?, relation, entity), for "
    "instance the films of an actor for entity=the actor, relation=starred_actors.",
    "link_entities": "Find the entities that a question names. Each comes with its place in the question "
    "and a score; 1 is its exact name.",
    "describe": "Summarise an entity: its names, types and some of its facts in both directions. Good to "
    "find out which of several entities of one name is meant.",
    "find_relation": "Find the relation of an entity, or of the results of a logical form, that is "
    "closest in meaning to a phrase such as 'place of birth', and follow it. When nothing is close "
    "enough, the relations that are there are returned with their scores: choose one of them.",
    "execute_logical_form": "Execute an S-expression such as (AND people.person (JOIN "
    "people.person.parents m.02mjmr)), and list the entities or values that it denotes.",
    "search_types": "Find the types (classes) of the graph whose names are closest to a phrase such as "
    "'film director'.",
    "search_graph_patterns": "Given SPARQL that finds entities (SELECT ?x WHERE {...}), list up to ten "
    "one- and two-hop patterns of facts around them, those closest to the phrase `semantic` first.",
    "execute_sparql": "Execute a read-only SPARQL 1.1 query (SELECT or ASK) and return its rows. It is "
    "stopped after a few seconds: constrain it well and use LIMIT. An error says where the query is "
    "wrong.",
    "node_relations": "List the relations around a node that matter most to a question, with example "
    "facts. The node is an entity's id, or a variable (?x) of the SPARQL query that is sent along.",
    "follow_path": "Follow a path of relations from an entity and list what is at its end, with the "
    "relations that can be followed next (details.relations): those closest to the question, if there "
    "are many. Begin with an empty path, then make it longer by one of the relations that were listed, "
    "until its end answers the question.",
    "entity_distance": "Count the facts on the shortest path between two sets of entities, in whichever "
    "direction they run.",
}
_ARGUMENTS: Mapping[str, str] = {
    "kg": "name of the graph, as list_graphs returns it",
    "graph": "id of a per-question subgraph; leave it out to use the whole graph",
    "entity": "an entity's id or exact label",
    "relation": "a relation's id or exact label; of find_relation, a phrase",
    "question": "the question in natural language",
    "path": "ids or exact labels of relations, each followed from head to tail, or from tail to head where "
    'it begins with ^ (a relation of direction "in")',
    "relations": "relations to list at most",
    "return": "whether the path may come back to the entity itself, which is left out otherwise",
    "query": "the query",
    "expression": "a logical form as an S-expression",
    "limit": "items to return at most",
    "offset": "items to skip, to see more than the first page",
}
_SCHEMAS: Mapping[Kind, Mapping[str, Any]] = {
    TEXT: {"type": "string"},
    TEXTS: {"type": "array", "items": {"type": "string"}},
    FLAG: {"type": "boolean"},
    PATH: {"type": "array", "items": {"type": "string"}, "maxItems": MAX_STEPS},
}
_WHOLE_NUMBER = {"type": "integer", "minimum": 0}

# Executes one action over a graph: (kg, action, graph, caller).
Execute = Callable[[str, Action, str | None, Caller], Awaitable[ActionResult]]
ListGraphs = Callable[[], Awaitable[Sequence[GraphInfo]]]


def mcp_server(list_graphs: ListGraphs, execute: Execute) -> Server[Any]:
    """A server of the tools, for any transport."""

    async def on_list_tools(_: Any, __: types.PaginatedRequestParams | None) -> types.ListToolsResult:
        return types.ListToolsResult(tools=_tools())

    async def on_call_tool(
        context: ServerRequestContext[Any, Any], params: types.CallToolRequestParams
    ) -> types.CallToolResult:
        arguments = dict(params.arguments or {})
        try:
            if params.name == LIST_GRAPHS:
                return _result({"graphs": [_graph(info) for info in await list_graphs()]})
            kg, graph = arguments.pop("kg", None), arguments.pop("graph", None)
            if not isinstance(kg, str) or not isinstance(graph, str | None):
                return _result(
                    {"message": "kg: the name of a graph is required; see list_graphs"}, failed=True
                )
            request = context.request
            caller = caller_of(request) if isinstance(request, Request) else Caller("stdio")
            result = await execute(kg, Action(params.name, arguments), graph, caller)
        except (GraphNotFoundError, GraphUnavailableError, QueryOverloadError) as error:
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
    """The tools over streamable HTTP, without sessions: every request stands for itself."""

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
    return [listing, *(_tool(name, handler) for name, handler in HANDLERS.items() if name in DESCRIPTIONS)]


def _tool(name: str, handler: Handler) -> types.Tool:
    kinds = {"kg": TEXT, **handler.required, **handler.optional}
    properties = {argument: _property(argument, kind) for argument, kind in kinds.items()}
    properties["graph"] = {**_SCHEMAS[TEXT], "description": _ARGUMENTS["graph"]}
    for argument in ("limit", "offset"):
        properties[argument] = {**_WHOLE_NUMBER, "description": _ARGUMENTS[argument]}
    return types.Tool(
        name=name,
        description=DESCRIPTIONS[name],
        input_schema={
            "type": "object",
            "properties": properties,
            "required": ["kg", *handler.required],
            "additionalProperties": False,
        },
        annotations=types.ToolAnnotations(read_only_hint=True),
    )


def _property(argument: str, kind: Kind) -> dict[str, Any]:
    described = "; ".join(filter(None, (_ARGUMENTS.get(argument), kind.says)))
    return {**_SCHEMAS.get(kind, {}), **({"description": described} if described else {})}


def _graph(info: GraphInfo) -> dict[str, Any]:
    return {"name": info.name, "triples": info.triples, "entities": info.entities}


def _result(answer: Mapping[str, Any], *, failed: bool = False) -> types.CallToolResult:
    # As JSON for models, and again as a value for programs.
    encoded = orjson.dumps(answer)
    return types.CallToolResult(
        content=[types.TextContent(type="text", text=encoded.decode())],
        structured_content=orjson.loads(encoded),
        is_error=failed,
    )
