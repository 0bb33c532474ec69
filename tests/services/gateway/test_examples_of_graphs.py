"""Example questions: those to which the graph has answers now."""

from __future__ import annotations

import pytest

from kbqa.datasets.examples import write_examples
from kbqa.trajectory import Question
from tests.services.gateway.conftest import FixedPolicy, answer, recite

WHO, GONE = (
    Question(
        f"q-{film}", f"who starred in {film} ?", ("x",), (film,), "films", form=form, operation=operation
    )
    for film, form, operation in (
        ("Big", "(JOIN (R starred) Big)", "path"),
        ("Speed", "(JOIN (R starred) Speed)", "count"),
    )
)


@pytest.fixture
def client(gateway):
    return gateway(FixedPolicy(recite(answer("x"))))


def test_only_what_the_graph_answers_is_an_example(client, tmp_path):
    assert client.get("/v1/kg/films/examples").json() == {"questions": []}
    write_examples(tmp_path, "films", [WHO, GONE])
    assert client.get("/v1/kg/films/examples").json() == {"questions": ["Who starred in Big?"]}


@pytest.mark.parametrize("name", ["mars", "..%2Ffilms"])
def test_a_graph_that_is_not_there_has_none(client, name):
    assert client.get(f"/v1/kg/{name}/examples").status_code == 404
