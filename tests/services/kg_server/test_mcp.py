"""The actions as MCP tools, asked by the SDK's own client over real processes."""

from __future__ import annotations

import asyncio
import json
import os
import sys

import httpx
import pytest
from mcp.client.client import Client
from mcp.client.stdio import StdioServerParameters, stdio_client

from kbqa.kg.retrieval import ACTIONS
from services.http import background
from services.kg_server.app import create_app
from services.kg_server.settings import KgServerSettings


@pytest.fixture(scope="module")
def url(home):
    with background(create_app(KgServerSettings.load(home=home))) as url:
        yield url


@pytest.fixture(params=["http", "stdio"])
def ask(request, url):
    """Runs a coroutine function with a client of the tools, over either transport."""

    def run(work):
        async def connected():
            if request.param == "http":
                target = f"{url}/mcp"
            else:
                environment = {name: v for name, v in os.environ.items() if not name.startswith("KBQA_")}
                target = stdio_client(
                    StdioServerParameters(
                        command=sys.executable,
                        args=["-m", "services.cli", "mcp", "--url", url],
                        env=environment,
                    )
                )
            async with Client(target) as client:
                return await work(client)

        return asyncio.run(connected())

    return run


def test_the_tools_are_the_actions_with_schemas_and_descriptions(ask):
    listed = ask(lambda client: client.list_tools()).tools
    tools = {tool.name: tool for tool in listed}
    assert set(tools) == {"list_graphs", *ACTIONS}
    entities = tools["get_tail_entities"].input_schema
    assert entities["required"] == ["kg", "entity", "relation"]
    assert entities["properties"]["entity"]["type"] == "string"
    assert entities["properties"]["limit"]["type"] == "integer"
    assert tools["entity_distance"].input_schema["properties"]["max_distance"]["maximum"] == 10
    for tool in listed:
        assert len(tool.description) > 40
        assert all(argument["description"] for argument in tool.input_schema["properties"].values())
        assert tool.annotations.read_only_hint is True


def test_an_agent_finds_its_way_from_the_graphs_to_an_answer(ask):
    async def converse(client):
        graphs = (await client.call_tool("list_graphs", {})).structured_content["graphs"]
        kg = graphs[0]["name"]
        linked = await client.call_tool("link_entities", {"kg": kg, "question": "who starred in Big?"})
        entity = linked.structured_content["items"][0]["id"]
        relations = await client.call_tool("get_tail_relations", {"kg": kg, "entity": entity})
        assert {item["id"] for item in relations.structured_content["items"]} == {"released", "starred"}
        return await client.call_tool(
            "get_tail_entities", {"kg": kg, "entity": entity, "relation": "starred"}
        )

    answer = ask(converse)
    assert answer.is_error is False
    assert [item["id"] for item in answer.structured_content["items"]] == ["Elizabeth Perkins", "Tom Hanks"]
    assert json.loads(answer.content[0].text) == answer.structured_content


@pytest.mark.parametrize(
    ("tool", "arguments", "says"),
    [
        ("get_tail_relations", {"kg": "films", "entity": "Bigg"}, 'Entity "Bigg" not found in KG'),
        ("get_tail_relations", {"kg": "films"}, "Missing required fields"),
        ("get_tail_relations", {"entity": "Big"}, "kg: the name of a graph is required"),
        ("get_tail_relations", {"kg": "none", "entity": "Big"}, 'no graph named "none"'),
        ("execute_sparql", {"kg": "films", "query": "SELECT * { ?s ?p }"}, "error at 1:"),
        ("execute_sparql", {"kg": "films", "query": "DROP ALL"}, "refused"),
        ("fly", {"kg": "films"}, "not available"),
    ],
)
def test_what_goes_wrong_is_a_result_that_a_model_can_read(url, tool, arguments, says):
    async def call():
        async with Client(f"{url}/mcp") as client:
            return await client.call_tool(tool, arguments)

    answer = asyncio.run(call())
    assert answer.is_error is True
    assert says in answer.structured_content["message"]


def test_what_agents_do_by_tools_is_counted(url):
    async def call():
        async with Client(f"{url}/mcp") as client:
            await client.call_tool("describe", {"kg": "films", "entity": "Big"})

    asyncio.run(call())
    counted = httpx.get(f"{url}/metrics").text
    assert 'kbqa_kg_actions_total{action="describe",outcome="ok"} 1.0' in counted
