"""Each adapter on a file in its data set's true format, and what it says of a record that is none."""

from __future__ import annotations

import copy
import re

import pytest

from kbqa.datasets import load_dataset
from kbqa.datasets.formats import Answers, OnError, read
from kbqa.datasets.published import FAMILIES
from kbqa.errors import DatasetError
from kbqa.trajectory import Hop, Question
from tests.unit.datasets import published_files as files


@pytest.fixture
def reading(tmp_path):
    def read_content(name, content, **options):
        family = FAMILIES[name]
        file = tmp_path / ("x.jsonl" if name == "trex" else "x.json")
        file.write_text(files.text_of(content), encoding="utf-8")
        return read(file, family.form, family.kg, **options)

    return read_content


def test_webqsp_takes_the_first_complete_parse(reading):
    (question,) = reading("webqsp", files.WEBQSP).questions
    parse = files.WEBQSP["Questions"][0]["Parses"][1]
    assert question == Question(
        "WebQTest-0",
        "what does ada lovelace do?",
        ("Programmer", "1815-12-10"),
        ("m.0ada",),
        "freebase",
        path=(Hop("people.person.employment"), Hop("business.tenure.title")),
        sparql=parse["Sparql"],
        operation="path",
        names=(("Programmer", "m.0prog"),),
    )
    (by_id,) = reading("webqsp", files.WEBQSP, answers=Answers.IDS).questions
    assert by_id.answers == ("m.0prog", "1815-12-10")
    assert by_id.names == (("m.0prog", "Programmer"),)


def test_every_good_parse_of_webqsp_is_a_set_of_gold_answers(reading):
    content = copy.deepcopy(files.WEBQSP)
    parses = content["Questions"][0]["Parses"]
    answer = {"AnswerType": "Entity", "AnswerArgument": "m.0math", "EntityName": "Mathematician"}
    empty, same = parses[1] | {"Answers": []}, parses[1]
    content["Questions"][0]["Parses"] = [empty, *parses, same, parses[1] | {"Answers": [answer]}]
    (question,) = reading("webqsp", content).questions
    assert question.golds == (("Programmer", "1815-12-10"), ("Mathematician",))
    assert question.names == (("Programmer", "m.0prog"), ("Mathematician", "m.0math"))
    assert question.sparql == parses[1]["Sparql"]


def test_cwq_topics_come_from_the_query_unless_they_are_listed(reading):
    (question,) = reading("cwq", files.CWQ).questions
    assert (question.topic_entities, question.answers) == (("m.0ada", "m.0bob"), ("Programmer",))
    assert (question.operation, question.path) == ("intersection", ())
    (superlative,) = reading("cwq", [files.CWQ[0] | {"compositionality_type": "superlative"}]).questions
    assert superlative.operation == "superlative"
    listed = [files.CWQ[0] | {"topic_entity": {"m.0bob": "Bob"}}]
    (question,) = reading("cwq", listed, answers=Answers.IDS).questions
    assert (question.topic_entities, question.answers) == (("m.0bob",), ("m.0prog",))


def test_grailqa_has_form_query_level_and_topics(reading):
    (question,) = reading("grailqa", files.GRAILQA).questions
    assert question == Question(
        "2101215000000",
        "who taught ada?",
        ("Mary",),
        ("m.0ada",),
        "freebase",
        path=(Hop("education.teacher.pupils", inverse=True),),
        form=files.GRAILQA[0]["s_expression"],
        sparql=files.GRAILQA[0]["sparql_query"],
        operation="path",
        level="zero-shot",
        names=(("Mary", "m.0mary"),),
    )
    assert reading("grailqa", files.GRAILQA, answers=Answers.IDS).questions[0].answers == ("m.0mary",)


def test_grailqa_writes_null_for_the_name_of_an_entity_without_one(reading):
    answers = [
        files.GRAILQA[0]["answer"][0] | {"entity_name": "null", "answer_argument": id_}
        for id_ in ("m.1", "m.2")
    ]
    (question,) = reading("grailqa", [files.GRAILQA[0] | {"answer": answers}]).questions
    assert (question.answers, question.names) == (("m.1", "m.2"), ())


def test_graphquestions_have_labels_for_answers_and_a_function(reading):
    (question,) = reading("graphquestions", files.GRAPHQUESTIONS).questions
    assert (question.id, question.answers, question.topic_entities) == ("278000100", ("2",), ("m.0mary",))
    assert (question.operation, question.path, question.level) == ("count", (), "")


def test_graphquestions_of_2020_have_ids_and_forms_like_grailqa(reading):
    (question,) = reading("graphquestions", files.GRAPHQUESTIONS_FB15).questions
    assert (question.answers, question.topic_entities, question.level) == (("2",), ("m.0mary",), "")
    assert question.form == files.GRAPHQUESTIONS_FB15[0]["s_expression"]


def test_of_both_releases_of_graphquestions_the_one_of_2020_is_read(tmp_path):
    for part, newer in ("training", "training"), ("testing", "test"):
        (tmp_path / f"graphquestions.{part}.json").write_text(files.text_of(files.GRAPHQUESTIONS))
        name = f"graphquestions_v1_fb15_{newer}_091420.json"
        (tmp_path / name).write_text(files.text_of(files.GRAPHQUESTIONS_FB15))
    splits = load_dataset("graphquestions", 1, data=tmp_path).splits
    assert splits.train[0].form
    assert splits.test[0].form


def test_simplequestions_are_facts(reading):
    (question,) = reading("simplequestions", files.SIMPLEQUESTIONS).questions
    assert question == Question(
        "x-00001",
        "what does ada lovelace do",
        ("m.0prog",),
        ("m.0ada",),
        "freebase",
        path=(Hop("people.person.profession"),),
        operation="path",
    )


def test_qald_is_read_in_english_or_else_as_it_is(reading):
    first, second = reading("qald-10", files.QALD).questions
    assert (first.id, first.text, first.answers) == ("7", "Who taught Ada?", ("Q2", "1815"))
    assert (first.topic_entities, first.path, first.operation) == (("Q1",), (Hop("P1066"),), "path")
    assert (second.id, second.text, second.answers) == ("8", "她?", ("true",))
    assert (second.operation, second.topic_entities) == ("boolean", ("Q1", "Q6581072"))


def test_lcquad_falls_back_to_the_template_question(reading):
    first, second = reading("lcquad-2", files.LCQUAD).questions
    assert (first.id, first.text, first.answers) == ("19719", "Who taught Ada ?", ())
    assert (first.topic_entities, first.path) == (("Q1",), (Hop("P1066"),))
    assert second.text == "Is it true that the weight of Ada is equal to 50 ?"
    assert (second.operation, second.topic_entities) == ("boolean", ("Q1",))


def test_trex_facts_have_labels(reading):
    (question,) = reading("trex", files.lines(files.TREX)).questions
    assert question == Question(
        "f2a5d4e8",
        "Ada Lovelace [SEP] student of",
        ("Mary Somerville", "Mary"),
        ("Ada Lovelace",),
        "wikidata",
        path=(Hop("student of"),),
        operation="path",
    )


def test_multitq_keeps_its_own_question_types(reading):
    (question,) = reading("multitq", files.MULTITQ).questions
    assert question == Question(
        "2008980",
        "On which day did Ada first meet Mary?",
        ("2005-07-12",),
        (),
        "multitq",
        operation="first_last",
    )
    named = [files.MULTITQ[0] | {"entities": ["Ada", "Mary"]}]
    assert reading("multitq", named).questions[0].topic_entities == ("Ada", "Mary")


def changed(content, *keys, to):
    """A copy with the value at `keys` replaced; `...` takes it away."""
    changed_content = copy.deepcopy(content)
    *way, last = keys
    place = changed_content
    for key in way:
        place = place[key]
    if to is ...:
        del place[last]
    else:
        place[last] = to
    return changed_content


BROKEN = [
    ("webqsp", changed(files.WEBQSP, "Questions", 0, "Parses", to=[]), '"Parses" is empty'),
    ("webqsp", changed(files.WEBQSP, "Questions", 0, "Parses", to=...), '"Parses" is missing'),
    ("webqsp", changed(files.WEBQSP, "Questions", 0, "Parses", to=["p"]), "expected a JSON object"),
    ("webqsp", changed(files.WEBQSP, "Questions", 0, "QuestionId", to=3), '"QuestionId" is not a text'),
    (
        "webqsp",
        changed(files.WEBQSP, "Questions", 0, "Parses", 1, "Answers", 0, "AnswerArgument", to=...),
        '"AnswerArgument" is missing',
    ),
    (
        "webqsp",
        changed(files.WEBQSP, "Questions", 0, "Parses", 1, "TopicEntityMid", to=7),
        '"TopicEntityMid"',
    ),
    ("webqsp", changed(files.WEBQSP, "Questions", 0, to=[1]), "expected a JSON object"),
    ("cwq", changed(files.CWQ, 0, "ID", to=...), '"ID" is not an id'),
    ("cwq", changed(files.CWQ, 0, "answers", to=...), '"answers" is missing'),
    ("cwq", changed(files.CWQ, 0, "answers", 0, to="x"), '"answers" is not a list of objects'),
    ("cwq", changed(files.CWQ, 0, "question", to=None), '"question" is missing'),
    ("cwq", changed(files.CWQ, 0, "sparql", to=["q"]), '"sparql" is not a text'),
    ("grailqa", changed(files.GRAILQA, 0, "qid", to=True), '"qid" is not an id'),
    ("grailqa", changed(files.GRAILQA, 0, "answer", to=...), '"answer" is missing'),
    ("grailqa", changed(files.GRAILQA, 0, "answer", 0, to=5), "expected a JSON object"),
    ("grailqa", changed(files.GRAILQA, 0, "graph_query", "nodes", 1, "id", to=...), '"id" is missing'),
    ("grailqa", changed(files.GRAILQA, 0, "graph_query", to=...), '"graph_query" is missing'),
    ("grailqa", changed(files.GRAILQA, 0, "level", to="hard"), '"level" is "hard", not one of i.i.d.'),
    ("grailqa", changed(files.GRAILQA, 0, to="text"), "expected a JSON object"),
    ("graphquestions", changed(files.GRAPHQUESTIONS, 0, "question", to=7), '"question" is not a text'),
    ("simplequestions", "www.freebase.com/m/0a\tb\tc\n", "between tabs"),
    ("simplequestions", "m/0a\twww.freebase.com/r\twww.freebase.com/m/0b\twhat ?\n", '"m/0a" does not have'),
    ("qald-10", changed(files.QALD, "questions", 0, "query", to="SELECT"), '"query" is not an object'),
    ("qald-10", changed(files.QALD, "questions", 0, "question", to=[]), '"question" has no text'),
    ("qald-10", changed(files.QALD, "questions", 0, "question", 0, "string", to=...), '"string" is missing'),
    ("qald-10", changed(files.QALD, "questions", 0, "answers", 0, "results", to=...), '"results" is missing'),
    (
        "qald-10",
        changed(files.QALD, "questions", 0, "answers", 0, "results", "bindings", 0, to="x"),
        '"bindings" is not a list of objects',
    ),
    ("lcquad-2", changed(files.LCQUAD, 0, "sparql_wikidata", to=...), '"sparql_wikidata" is missing'),
    ("lcquad-2", changed(files.LCQUAD, 0, "uid", to=None), '"uid" is not an id'),
    ("lcquad-2", [{"uid": 1, "question": "n/a", "sparql_wikidata": "ASK {}"}], "it has no question"),
    ("trex", files.lines(files.TREX | {"input": "Ada student of"}), "not written subject"),
    ("trex", files.lines(files.TREX | {"output": [{"provenance": []}]}), 'no "output" has an "answer"'),
    ("trex", files.lines(files.TREX | {"output": ["Mary"]}), '"output" is not a list of objects'),
    ("trex", '{"id": 1, \n', "the line is not JSON: Expecting .*, at character 11"),
    (
        "multitq",
        changed(files.MULTITQ, 0, "answers", to=[]),
        '"answers" or "entities" is not a list of texts',
    ),
    ("multitq", changed(files.MULTITQ, 0, "entities", to="Ada"), '"entities" is not a list'),
    ("metaqa-1hop", "who taught Ada\tMary\n", "one \\[topic\\]"),
    ("metaqa-1hop", "who taught [Ada]\n", "one \\[topic\\]"),
    ("pathquestion-2h", "who ?\tb(b/)\n", "between tabs"),
]
GOOD = {
    "webqsp": files.WEBQSP,
    "cwq": files.CWQ,
    "grailqa": files.GRAILQA,
    "graphquestions": files.GRAPHQUESTIONS,
    "simplequestions": files.SIMPLEQUESTIONS,
    "qald-10": files.QALD,
    "lcquad-2": files.LCQUAD,
    "trex": files.lines(files.TREX),
    "multitq": files.MULTITQ,
    "metaqa-1hop": files.METAQA,
    "pathquestion-2h": files.PATHQUESTION,
}


def after_good(name, content):
    """A file whose first record is good and whose second is the first of `content`; what counts them."""
    good = GOOD[name]
    if isinstance(good, str):
        return good.splitlines(keepends=True)[0] + content, "x.*:2: "
    key = next((key for key in ("Questions", "questions") if key in good), None)
    if key is None:
        return [good[0], *content], "x.*: record 2: "
    return good | {key: [good[key][0], *content[key]]}, "x.*: record 2: "


@pytest.mark.parametrize(("name", "content", "reason"), BROKEN)
def test_a_malformed_record_is_named_with_its_place(reading, name, content, reason):
    content, place = after_good(name, content)
    with pytest.raises(DatasetError, match=place + f".*{reason}"):
        reading(name, content)


@pytest.mark.parametrize(("name", "content", "reason"), BROKEN)
def test_a_malformed_record_is_left_out_and_listed(reading, name, content, reason):
    content, place = after_good(name, content)
    found = reading(name, content, on_error=OnError.SKIP)
    assert found.questions[0] == reading(name, GOOD[name]).questions[0]
    [malformed] = found.malformed
    assert malformed.place == 2
    assert re.search(reason, malformed.reason)
    assert re.search(place, str(malformed))


@pytest.mark.parametrize("name", sorted(GOOD))
def test_a_file_without_questions_is_refused(reading, name):
    empty = {"Questions": [], "questions": []} if isinstance(GOOD[name], dict) else []
    with pytest.raises(DatasetError, match="holds no questions of the format"):
        reading(name, "" if isinstance(GOOD[name], str) else empty)


@pytest.mark.parametrize("name", sorted(name for name, good in GOOD.items() if not isinstance(good, str)))
@pytest.mark.parametrize(
    ("text", "reason"), [("{", "is not JSON"), ('"x"', "the format"), ("[" * 100_000, "is not JSON")]
)
def test_a_file_of_another_kind_is_refused(reading, name, text, reason):
    with pytest.raises(DatasetError, match=reason):
        reading(name, text)


def test_a_file_of_nothing_but_malformed_records_is_refused_even_when_they_are_skipped(reading):
    with pytest.raises(DatasetError, match=r"2 records are malformed, first .*:1: "):
        reading("simplequestions", "a\nb\n", on_error=OnError.SKIP)


def test_a_text_that_is_not_utf8_is_refused(tmp_path):
    (tmp_path / "x.json").write_bytes(b"\xff\xfe[]")
    for name in ("grailqa", "simplequestions"):
        with pytest.raises(DatasetError, match="not UTF-8"):
            read(tmp_path / "x.json", FAMILIES[name].form, "g")
