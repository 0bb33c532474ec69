"""The TypeScript client: built from its lockfile, then run by Node.js against a gateway."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from services.access.keys import KeyFile
from services.gateway.access.settings import keys_path
from services.gateway.app import create_app
from services.gateway.settings import GatewaySettings
from services.http import background
from tests.services.gateway.conftest import FixedPolicy, answer, query, recite

CLIENT = Path(__file__).parents[3] / "clients" / "typescript"
STARS = recite(query("get_tail_entities", "Big", "starred"), answer("Tom Hanks, Elizabeth Perkins"))

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(shutil.which("npm") is None, reason="npm is missing: install Debian's package npm"),
]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A copy of the package, built."""
    copy = tmp_path_factory.mktemp("client") / "typescript"
    shutil.copytree(CLIENT, copy, ignore=shutil.ignore_patterns("node_modules", "dist", "schema.ts"))
    ended = subprocess.run(["npm", "ci"], cwd=copy, capture_output=True, text=True, timeout=600)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return copy


@pytest.mark.timeout(900)
def test_its_own_tests_pass_against_a_gateway(built, kg_server_url, tmp_path):
    _, key = KeyFile(keys_path(tmp_path)).create("node")
    settings = GatewaySettings.load(home=tmp_path, reader=False, kg_server_url=kg_server_url)
    with background(create_app(settings, FixedPolicy(STARS))) as url:
        environment = {**os.environ, "KBQA_GATEWAY_URL": url, "KBQA_GATEWAY_API_KEY": key}
        ended = subprocess.run(
            ["npm", "test"], cwd=built, env=environment, capture_output=True, text=True, timeout=300
        )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "# pass 7" in ended.stdout
