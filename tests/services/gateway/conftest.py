"""A gateway in this process, a real kg_server beside it, and policies that recite."""

from __future__ import annotations

import threading
import time

import pytest
from fastapi.testclient import TestClient

from kbqa.environment import Budget
from kbqa.errors import NoPolicyError
from kbqa.kg.catalog import GraphCatalog
from kbqa.protocols.kg_r1 import KgR1
from kbqa.serving.players import GREEDY, Draw, Players
from kbqa.serving.policies import Lease, ServedPolicy
from services.cli.supervisor import Stack
from services.gateway.app import create_app
from services.gateway.settings import GatewaySettings
from tests.unit.policies_fixtures import ScriptedPolicy, make_codec

TRIPLES = [
    ("Big", "starred", "Tom Hanks"),
    ("Big", "starred", "Elizabeth Perkins"),
    ("Big", "directed by", "Penny Marshall"),
    ("Philadelphia", "starred", "Tom Hanks"),
    ("Tom Hanks", "born in", "Concord"),
]
RDF = """
<http://x/big> <http://www.w3.org/2000/01/rdf-schema#label> "Big" .
<http://x/big> <http://x/year> "1988"^^<http://www.w3.org/2001/XMLSchema#gYear> .
<http://x/big> <http://x/star> <http://x/a1> .
<http://x/a1> <http://www.w3.org/2000/01/rdf-schema#label> "Tom Hanks" .
"""
CODEC = make_codec()
BUDGET = Budget(max_turns=4, max_tokens=1200, max_turn_tokens=200, max_observation_tokens=200)


def think(command):
    return f"<think>so</think>{command}"


def query(name, *arguments):
    quoted = ", ".join(f'"{argument}"' for argument in arguments)
    return think(f"<kg-query>{name}({quoted})</kg-query>")


def answer(text):
    return think(f"<answer>{text}</answer>")


def recite(*turns):
    """A script whose turn k is the k-th text, whatever it reads."""
    return lambda prompt: turns[min(prompt.count("<information>"), len(turns) - 1)]


OTHERS = Draw(1.0)


class FixedPolicy:
    """A policy source with one policy, or none."""

    def __init__(
        self,
        script=None,
        policy=None,
        budget=BUDGET,
        protocol=None,
        version="v000001-scripted",
        first=GREEDY,
        others=OTHERS,
        run="scripted",
        graphs=(),
        calibration=None,
    ):
        self.policy = policy or ScriptedPolicy(CODEC, script or recite(answer("nothing")))
        self.budget, self.leases = budget, 0
        self.protocol, self.version = protocol or KgR1("brief"), version
        self.first, self.others = first, others
        self.run, self.graphs, self.calibration = run, graphs, calibration
        self._lock = threading.Lock()

    def start(self):
        pass

    def stop(self):
        pass

    def unready(self):
        return None

    def lease(self, kg=None, /):
        self._count(1)
        served = ServedPolicy(
            run=self.run,
            version=self.version,
            recipe="kg-r1-small",
            players=Players(self.policy, CODEC, self.protocol, self.budget, self.first, self.others),
            close=lambda: None,
            alive=lambda: True,
            graphs=self.graphs,
            calibration=self.calibration,
        )
        return Lease(served, lambda: self._count(-1))

    def is_free(self, within=30.0):
        """Whether nobody holds it: a call that ended may hold it until its thread has returned.

        Args:
            within: seconds to wait for that.
        """
        deadline = time.monotonic() + within
        while self.leases and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.leases == 0

    def _count(self, change):
        with self._lock:
            self.leases += change


class NoPolicy:
    def start(self):
        pass

    def stop(self):
        pass

    def unready(self):
        return "no policy is promoted yet"

    def lease(self, kg=None, /):
        raise NoPolicyError("no policy is promoted yet")


@pytest.fixture(scope="session")
def kg_server_url(tmp_path_factory):
    """URL of a real kg_server with the graphs `films` and `rdf`."""
    home = tmp_path_factory.mktemp("gateway-home")
    films, rdf = home / "films.txt", home / "rdf.nt"
    films.write_text("".join("\t".join(triple) + "\n" for triple in TRIPLES))
    rdf.write_text(RDF)
    catalog = GraphCatalog(home)
    catalog.load("films", films)
    catalog.load("rdf", rdf)
    catalog.close()
    with Stack(home, services=["kg_server"], free_ports=True) as stack:
        stack.wait_ready(180)
        yield stack.urls["kg_server"]


@pytest.fixture
def gateway(kg_server_url, tmp_path):
    """Makes a client of a gateway: with a source of policies, or with the store under its home."""
    clients = []

    def make(policies=None, graphs=None, **settings):
        settings = {"home": tmp_path, "kg_server_url": kg_server_url, "poll_s": 0.05, **settings}
        settings.setdefault("reader", False)
        client = TestClient(create_app(GatewaySettings.load(**settings), policies, graphs))
        clients.append(client.__enter__())
        return client

    yield make
    for client in clients:
        client.__exit__(None, None, None)
