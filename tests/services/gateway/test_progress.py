"""What an observation tells of the triples that were walked."""

from __future__ import annotations

import pytest

from kbqa.evidence import Claims
from kbqa.kg.actions import Action
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.trajectory import ExecutedAction, Status, Turn
from services.gateway.progress import Progress

LABEL = "<http://www.w3.org/2000/01/rdf-schema#label>"


@pytest.fixture
def tools(tmp_path):
    """A hub with 80 neighbours, each with a name and one further on."""
    lines = [f'<x:n{n}> {LABEL} "name {n}" .' for n in range(80)]
    lines += [f"<x:hub> <x:links> <x:n{n}> ." for n in range(80)]
    lines += [f"<x:n{n}> <x:on> <x:m{n:02}> ." for n in range(80)]
    (tmp_path / "graph.ttl").write_text("\n".join(lines))
    catalog = GraphCatalog(tmp_path / "home")
    catalog.load("hub", tmp_path / "graph.ttl")
    yield LocalGraphTools(catalog)
    catalog.close()


def observed(tools, path):
    (result,) = tools.execute("hub", [Action("follow_path", {"entity": "x:hub", "path": path})])
    labels = tuple(item.label for item in result.items)
    arguments = {"entity": "x:hub", "path": str(path).replace("'", '"')}
    ids = tuple(item.id for item in result.items)
    action = ExecutedAction("follow_path", arguments, None, ids, labels, details=result.details)
    turn = Turn(0, 1, (0.0,), "", Status.OK, "", True, (action,), "seen", "v", elapsed_ms=1.0)
    events = []
    Progress(1, Claims(tools, "hub"), events.append).took(0, turn, 1)
    (event,) = events
    return event


def test_the_ways_of_the_first_ends_are_told_with_their_labels(tools):
    event = observed(tools, ["x:links"])
    assert event.triples[0] == ("x:hub", "x:links", "x:n0")
    assert len(event.triples) == 50
    assert event.labels == {triple[2]: f"name {triple[2][3:]}" for triple in event.triples}


def test_of_long_ways_only_so_many_triples_are_told_as_can_be_drawn(tools):
    event = observed(tools, ["x:links", "x:on", "^x:on"])
    assert event.triples[:2] == [("x:hub", "x:links", "x:n0"), ("x:n0", "x:on", "x:m00")]
    assert len(event.triples) == 100
    assert len(set(event.triples)) == 100
    # What lies between was named by an earlier turn, or goes by its id.
    assert "x:m00" not in event.labels
