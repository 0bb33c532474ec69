"""An action that is written in one place, outside this project: registered, or installed beside it."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from mcp.client.client import Client

from kbqa.kg.actions import Action, ErrorKind, Failure
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.client import HttpGraphTools
from kbqa.kg.retrieval import ACTIONS
from kbqa.kg.tools import LocalGraphTools
from services.http import background
from services.kg_server.app import create_app
from services.kg_server.settings import KgServerSettings
from tests.service import Service
from tests.services.kg_server.added_action import COUNT_RELATIONS, Degree

NAME = COUNT_RELATIONS.name
LOCALLY = """
import sys
from pathlib import Path
from kbqa.kg.actions import Action
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
tools = LocalGraphTools(GraphCatalog(Path(sys.argv[1])))
[result] = tools.execute("films", [Action(sys.argv[2], {"entity": "Big"})])
print(result.items[0].relations)
"""


@pytest.fixture
def registered():
    ACTIONS.register(COUNT_RELATIONS)
    yield
    ACTIONS.unregister(NAME)


@pytest.fixture
def url(home):
    with background(create_app(KgServerSettings.load(home=home))) as url:
        yield url


def call(url, arguments):
    """The tools that a server lists, and what this one answers."""

    async def converse():
        async with Client(f"{url}/mcp") as client:
            listed = {tool.name: tool for tool in (await client.list_tools()).tools}
            return listed, (await client.call_tool(NAME, {"kg": "films", **arguments})).structured_content

    return asyncio.run(converse())


def test_an_action_that_is_registered_is_executed_in_this_process_and_over_http(registered, home, url):
    asked = [
        Action(NAME, arguments) for arguments in ({"entity": "Big"}, {"entity": "Bigg"}, {"at_least": 0})
    ]
    catalog = GraphCatalog(home)
    locally = LocalGraphTools(catalog).execute("films", asked)
    catalog.close()
    with HttpGraphTools(url) as tools:
        over_http = tools.execute("films", asked)
    for found, absent, wrong in (locally, over_http):
        assert found.items == (Degree("Big", "Big", 2),)
        assert absent.kind is ErrorKind.ENTITY_NOT_IN_KG
        assert wrong.message == "Missing required fields for count_relations: entity_name"
    counted = httpx.get(f"{url}/metrics").text
    assert f'kbqa_kg_actions_total{{action="{NAME}",outcome="ok"}} 1.0' in counted


def test_an_action_that_is_registered_is_a_tool_with_its_schema(registered, url):
    listed, answer = call(url, {"entity": "Big", "at_least": 2})
    assert listed[NAME].description == COUNT_RELATIONS.description
    assert listed[NAME].input_schema["required"] == ["kg", "entity"]
    assert listed[NAME].input_schema["properties"]["at_least"] == {
        "type": "integer",
        "minimum": 1,
        "description": "leave out entities with fewer; a whole number, at least 1",
    }
    assert answer["items"] == [{"id": "Big", "label": "Big", "relations": 2}]


def test_an_action_that_is_registered_is_in_the_schema_of_requests(registered, url):
    [route] = httpx.get(f"{url}/openapi.json").json()["paths"]["/v1/kg/{kg}/actions"].values()
    body = route["requestBody"]["content"]["application/json"]["schema"]
    action = body["properties"]["actions"]["items"]["properties"]
    assert NAME in action["action"]["enum"]
    assert action["at_least"]["minimum"] == 1
    assert f", {NAME}: an entity's id or exact label" in action["entity"]["description"]


def test_an_action_that_was_taken_away_is_none(home, url):
    with HttpGraphTools(url) as tools:
        [result] = tools.execute("films", [Action(NAME, {"entity": "Big"})])
    assert isinstance(result, Failure)
    assert result.kind is ErrorKind.INVALID_ACTION


@pytest.fixture(scope="module")
def environment(tmp_path_factory):
    """That of a process in which a distribution with the action is installed."""
    site = tmp_path_factory.mktemp("site")
    shutil.copy(Path(__file__).with_name("added_action.py"), site / "counting.py")
    metadata = site / "counting-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: counting\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(f"[kbqa.actions]\n{NAME} = counting:COUNT_RELATIONS\n")
    paths = (str(site), os.environ.get("PYTHONPATH", ""))
    return {"PYTHONPATH": os.pathsep.join(filter(None, paths))}


def test_an_action_that_is_installed_is_there_in_every_way(environment, home):
    command = [sys.executable, "-P", "-c", LOCALLY, str(home), NAME]
    locally = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, check=True
    )
    assert json.loads(locally.stdout) == 2
    server = Service("kg_server", home, environment)
    try:
        url = server.ready().url
        with HttpGraphTools(url) as tools:
            [over_http] = tools.execute("films", [Action(NAME, {"entity": "Big"})])
        listed, over_mcp = call(url, {"entity": "Big"})
    finally:
        server.kill()
    # Where it is not installed, as in this process, its items are what they are as JSON.
    assert over_http.items == ({"id": "Big", "label": "Big", "relations": 2},)
    assert over_mcp["items"] == list(over_http.items)
    assert list(listed)[-1] == NAME
