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


def test_what_was_so_once_is_no_example(client, tmp_path):
    """Nobody learns from an example what a view no longer shows: here, that a film once had these people."""
    asked = [
        Question(f"q-{text}", text, (said,), ("Philadelphia",), "films", form=form, operation=operation)
        for text, said, form, operation in (
            ("how many directors ?", "1", "(COUNT (JOIN (R `directed by`) Philadelphia))", "count"),
            ("how many actors ?", "2", "(COUNT (JOIN (R starred) Big))", "count"),
        )
    ]
    write_examples(tmp_path, "films", asked[:1])
    assert client.get("/v1/kg/films/examples").json() == {"questions": []}
    write_examples(tmp_path, "films", asked[1:])
    assert client.get("/v1/kg/films/examples").json() == {"questions": ["How many actors?"]}
    for said, shown in (("true", []), ("false", ["Is she in it?"])):
        form = "(ASK (JOIN starred `Elizabeth Perkins`) Philadelphia)"
        one = Question("q", "is she in it ?", (said,), (), "films", form=form, operation="boolean")
        write_examples(tmp_path, "films", [one])
        assert client.get("/v1/kg/films/examples").json() == {"questions": shown}


def test_examples_that_cannot_be_read_are_none(client, tmp_path, caplog):
    (tmp_path / "examples").mkdir()
    (tmp_path / "examples" / "films.jsonl").write_text('{"id": "q')
    assert client.get("/v1/kg/films/examples").json() == {"questions": []}
    assert "kbqa questions examples" in caplog.text
