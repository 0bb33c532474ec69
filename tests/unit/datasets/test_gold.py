"""Gold answers are looked up in the graph, by id and by label."""

from __future__ import annotations

import json

import pytest

from kbqa.answers import f1
from kbqa.datasets.formats import Answers
from kbqa.datasets.gold import gold_form_of, gold_namer, is_computed
from kbqa.datasets.records import read_questions
from kbqa.errors import DatasetError, GraphUnavailableError
from kbqa.feedback import Feedback, questions_of
from kbqa.gold import compare
from kbqa.kg.actions import Action, ErrorCode, ErrorKind, Failure
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from kbqa.protocols import KbqaR1, KgR1
from kbqa.trajectory import Question

RDF = """
@prefix : <http://ex.org/> . @prefix rdfs: <http://www.w3.org/2000/01/rdf-schema#> .
:italy rdfs:label "Italy" ; :capital :rome ; :founded "1946" . :rome rdfs:label "Rome" .
:film rdfs:label "Rome" ; :about :rome .
"""
EX = "http://ex.org/"


@pytest.fixture(scope="module")
def tools(tmp_path_factory):
    home = tmp_path_factory.mktemp("home")
    (home / "g.ttl").write_text(RDF)
    (home / "plain.tsv").write_text("Heat\tdirector\tMann\n")
    catalog = GraphCatalog(home)
    catalog.load("g", home / "g.ttl")
    catalog.load("plain", home / "plain.tsv")
    yield LocalGraphTools(catalog)
    catalog.close()


def asked(*answers, kg="g", **rest):
    return Question("q", "?", answers, (), kg, **rest)


def named(tools, *questions):
    return list(map(gold_namer(questions, tools, "set"), questions))


def test_labels_get_the_ids_that_bear_them_and_ids_their_labels(tools):
    labels, ids = named(tools, asked("Italy", "Rome"), asked(f"{EX}italy", variants=((f"{EX}rome",),)))
    assert labels.names == (("Italy", f"{EX}italy"), ("Rome", f"{EX}film", f"{EX}rome"))
    assert ids.names == ((f"{EX}italy", "Italy"), (f"{EX}rome", "Rome"))
    assert f1(*compare(labels, [f"{EX}italy", f"{EX}rome"], [])) == 1.0
    assert f1(*compare(ids, ["Rome"], [])) == 1.0


def test_where_labels_are_ids_nothing_changes(tools):
    question = asked("Mann", kg="plain")
    assert named(tools, question) == [question]


def test_feedback_on_an_answer_is_right_by_either_name(tools, tmp_path):
    said = Feedback.model_validate(
        {
            "id": "1",
            "time": "2025-01-01T00:00:00Z",
            "owner": "",
            "answer_id": "a",
            "verdict": "right",
            "question": "which land?",
            "kg": "g",
            "topic_entities": [],
            "policy_version": "v",
            "status": "answered",
            "answers": [f"{EX}italy"],
            "gold": [f"{EX}italy"],
        }
    )
    file = tmp_path / "said.jsonl"
    file.write_text("".join(f"{json.dumps(record)}\n" for record in questions_of([said])))
    [question] = named(tools, *read_questions(file))
    assert [f1(*compare(question, [name], [])) for name in ("Italy", f"{EX}italy", "Rome")] == [1.0, 1.0, 0.0]


def test_names_that_the_data_set_gives_are_kept(tools):
    own = (("Italy", "Q38"),)
    (question, _) = named(tools, asked("Italy", "Rome", names=own), asked("1946"))
    assert question.names == (*own, ("Rome", f"{EX}film", f"{EX}rome"))


def test_a_graph_without_any_gold_answer_is_refused(tools):
    with pytest.raises(DatasetError, match=r'"g" has none of its gold answers \(2 were looked'):
        named(tools, asked("m.0c1", "m.0c2"), asked("7"))
    with pytest.raises(DatasetError, match="m.0c1"):
        named(tools, asked("m.0c1", names=(("m.0c1", "Ida"),)))


def test_answers_that_a_query_computes_need_not_be_in_the_graph(tools):
    assert named(tools, asked("7"), asked("true")) == [asked("7"), asked("true")]
    assert all(map(is_computed, ("3", "-1.5", "1e6", "2014-05", "2014-05-13", "FALSE")))
    assert not any(map(is_computed, ("m.02", "Q38", "1984 (novel)", "")))


def test_a_data_set_without_gold_answers_is_refused(tools):
    with pytest.raises(DatasetError, match="has no gold answers: run its gold queries"):
        named(tools, asked())


def test_a_graph_that_cannot_answer_is_not_one_without_the_answers(tools):
    class Broken:
        def execute(self, kg, actions, *, graph=None):
            return tools.execute(kg, [Action("fly")])

    with pytest.raises(GraphUnavailableError, match="could not be looked up"):
        named(Broken(), asked("Italy"))


def test_an_answer_at_which_the_stores_query_fails_takes_no_other_with_it(tools, caplog):
    class FailingAtADate:
        def execute(self, kg, actions, *, graph=None):
            if any("-7000-01-01" in action.arguments["names"] for action in actions):
                return [Failure(ErrorCode.SERVER_ERROR, ErrorKind.QUERY_FAILED, "cannot convert a date")]
            return tools.execute(kg, actions, graph=graph)

    [italy, athens] = named(FailingAtADate(), asked("Italy", "Rome"), asked("-7000-01-01"))
    assert {answer for answer, *_ in italy.names} == {"Italy", "Rome"}
    assert athens.names == ()
    [warning] = [one for one in caplog.records if "cannot look up" in one.message]
    assert (warning.answer, warning.reason) == ("-7000-01-01", "cannot convert a date")


def test_a_store_whose_queries_all_fail_is_given_up(tools):
    calls = []

    class Failing:
        def execute(self, kg, actions, *, graph=None):
            calls.extend(actions)
            return [Failure(ErrorCode.SERVER_ERROR, ErrorKind.QUERY_FAILED, "out of disk")]

    with pytest.raises(GraphUnavailableError, match="could not be looked up: out of disk"):
        named(Failing(), asked(*(f"m.{number}" for number in range(100))))
    assert len(calls) < 60


def test_ids_are_the_gold_answers_of_a_dialect_that_answers_with_ids():
    assert (gold_form_of(KbqaR1()), gold_form_of(KgR1())) == (Answers.IDS, Answers.LABELS)
