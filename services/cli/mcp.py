"""`kbqa mcp`: the graphs of a kg_server as MCP tools, for an agent that starts its MCP servers itself."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Sequence
from typing import Annotated

import typer

from kbqa.errors import ConfigurationError
from kbqa.kg.actions import Action, ActionResult
from kbqa.kg.client import HttpGraphTools
from kbqa.kg.store import GraphInfo


def mcp(
    url: Annotated[
        str, typer.Option(envvar="KBQA_KG_SERVER_URL", help="URL of the kg_server.")
    ] = "http://127.0.0.1:8001",
) -> None:
    """Serve the graphs of a kg_server as MCP tools, over standard input and output.

    Set KBQA_KG_SERVER_API_KEY if the server requires a key.
    """
    try:
        from mcp.server.stdio import stdio_server

        from services.kg_server.callers import Caller
        from services.kg_server.mcp import mcp_server
    except ModuleNotFoundError as error:
        raise ConfigurationError("the mcp package is missing: pip install 'kbqa[mcp]'") from error

    async def serve() -> None:
        with HttpGraphTools(url, api_key=os.environ.get("KBQA_KG_SERVER_API_KEY")) as tools:

            async def list_graphs(_: Caller) -> Sequence[GraphInfo]:
                return await asyncio.to_thread(tools.graphs)

            async def execute(kg: str, action: Action, graph: str | None, _: Caller) -> ActionResult:
                return (await asyncio.to_thread(tools.execute, kg, [action], graph=graph))[0]

            server = mcp_server(list_graphs, execute)
            async with stdio_server() as (requests, answers):
                await server.run(requests, answers, server.create_initialization_options())

    asyncio.run(serve())
