import json
from collections import Counter

import pytest

from kbqa.datasets.formats import read
from kbqa.datasets.multitq import MULTITQ
from kbqa.datasets.world.events import Event, dated_lines, generate_events, read_icews14
from kbqa.datasets.world.temporal import MAX_ANSWERS, ask_about_events, temporal_splits
from kbqa.datasets.world.times import Chronicle, Exactness, Inquiry, query
from kbqa.errors import DatasetError
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.loading.files import GraphFormat
from kbqa.kg.naming import ENTITY_NAMESPACE, name_of

SIZES = {"cold_start": 12, "train": 60, "validation": 12, "test": 60}
TYPES = {"equal", "before_after", "first_last", "equal_multi", "before_last", "after_first"}
EVENTS = (
    Event("Iran", "Make a visit", "Japan", "2013-05-02"),
    Event("Peru", "Make a visit", "Japan", "2013-11-30"),
    Event("Peru", "Make a visit", "Japan", "2014-01-08"),
    Event("Chad", "Make a visit", "Japan", "2014-06-21"),
    Event("Peru", "Make a visit", "Mali", "2014-06-22"),
)


def load(home, events):
    file = home / "events.txt"
    file.write_text(dated_lines(events), encoding="utf-8")
    catalog = GraphCatalog(home)
    catalog.load("events", file, format=GraphFormat.TAB)
    return catalog


def solutions(catalog, text):
    store = catalog.get("events")
    bindings = json.loads(store.query(text, deadline_s=60.0).body)["results"]["bindings"]
    values = [row["x"]["value"] for row in bindings if "x" in row]
    return {name_of(value) if value.startswith(ENTITY_NAMESPACE) else value for value in values}


@pytest.fixture(scope="module")
def asked():
    return ask_about_events(generate_events(1), 1, SIZES, "temporal-world")


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    catalog = load(tmp_path_factory.mktemp("home"), generate_events(1))
    yield catalog
    catalog.close()


@pytest.fixture(scope="module")
def by_hand(tmp_path_factory):
    catalog = load(tmp_path_factory.mktemp("home"), EVENTS)
    yield catalog
    catalog.close()


def everything(asked):
    return [temporal for split in asked.values() for temporal in split]


def test_the_gold_query_finds_exactly_the_gold_answers(asked, generated):
    for temporal in everything(asked):
        assert solutions(generated, temporal.question.sparql) == set(temporal.question.answers), temporal


@pytest.mark.parametrize(
    ("inquiry", "type_", "label", "answers"),
    [
        (Inquiry("Make a visit", None, "Japan", within="2014"), "equal", "Single", ["Chad", "Peru"]),
        (
            Inquiry("Make a visit", "Peru", "Japan", exactness=Exactness.MONTH),
            "equal",
            "Single",
            ["2013-11", "2014-01"],
        ),
        (
            Inquiry("Make a visit", None, "Japan", side="before", than="Chad"),
            "before_after",
            "Single",
            ["Iran", "Peru"],
        ),
        (
            Inquiry("Make a visit", None, "Japan", side="after", than="2014-01-08"),
            "before_after",
            "Single",
            ["Chad"],
        ),
        (Inquiry("Make a visit", None, "Japan", pick="first"), "first_last", "Single", ["Iran"]),
        (
            Inquiry("Make a visit", "Peru", "Japan", pick="last", exactness=Exactness.YEAR),
            "first_last",
            "Single",
            ["2014"],
        ),
        (
            Inquiry("Make a visit", None, "Japan", within="2013", pick="last"),
            "equal_multi",
            "Multiple",
            ["Peru"],
        ),
        (
            Inquiry("Make a visit", None, "Japan", side="before", than="Chad", pick="last"),
            "before_last",
            "Multiple",
            ["Peru"],
        ),
        (
            Inquiry("Make a visit", None, "Japan", side="after", than="Iran", pick="first"),
            "after_first",
            "Multiple",
            ["Peru"],
        ),
        (Inquiry("Make a visit", "Peru", None, pick="last"), "first_last", "Single", ["Mali"]),
    ],
)
def test_answers_by_hand(by_hand, inquiry, type_, label, answers):
    assert (inquiry.type, inquiry.label) == (type_, label)
    assert list(Chronicle(EVENTS).answers(inquiry)) == answers
    assert solutions(by_hand, query(inquiry)) == set(answers)


def test_every_type_has_its_part_in_every_split(asked):
    for split, size in SIZES.items():
        assert Counter(t.inquiry.type for t in asked[split]) == dict.fromkeys(TYPES, size // len(TYPES))


def test_answers_are_entities_and_times_of_every_exactness(asked):
    times = {t.inquiry.exactness: t.question.answers[0] for t in everything(asked) if t.inquiry.asks_for_time}
    assert {level: len(time) for level, time in times.items()} == {"day": 10, "month": 7, "year": 4}
    assert any(not t.inquiry.asks_for_time for t in everything(asked))
    assert all(1 <= len(t.question.answers) <= MAX_ANSWERS for t in everything(asked))


def test_nothing_is_asked_twice(asked):
    inquiries = [t.inquiry for t in everything(asked)]
    assert len(set(inquiries)) == len(inquiries)


def test_a_question_names_its_topics(asked):
    assert all(topic in t.question.text for t in everything(asked) for topic in t.question.topic_entities)


def test_records_are_multitqs(asked, tmp_path):
    file = tmp_path / "test.json"
    records = [temporal.record() for temporal in asked["test"]]
    file.write_text(json.dumps(records), encoding="utf-8")
    assert {record["answer_type"] for record in records} == {"entity", "time"}
    questions = read(file, MULTITQ, "temporal-world").questions
    assert [(q.text, set(q.answers), q.operation) for q in questions] == [
        (t.question.text, set(t.question.answers), t.inquiry.type) for t in asked["test"]
    ]


def test_a_seed_gives_the_same_questions_and_another_seed_others(asked):
    again = ask_about_events(generate_events(1), 1, SIZES, "temporal-world")
    assert temporal_splits(again) == temporal_splits(asked)
    assert generate_events(2) != generate_events(1)


def test_real_facts_that_are_not_there_are_missed_by_name(tmp_path):
    with pytest.raises(DatasetError, match=r"train\.txt.*KBQA_DATA"):
        read_icews14(tmp_path)


def test_real_facts_are_read_with_names_and_days(tmp_path):
    (tmp_path / "entity2id.txt").write_text("Iran\t0\nJapan\t1\n")
    (tmp_path / "relation2id.txt").write_text("Make a visit\t0\n")
    (tmp_path / "train.txt").write_text("0\t0\t1\t24\t-1\n0\t0\t1\t24\t-1\n")
    (tmp_path / "valid.txt").write_text("1\t0\t0\t0\t-1\n")
    (tmp_path / "test.txt").write_text("0\t0\t1\t48\t-1\n")
    assert read_icews14(tmp_path) == (
        Event("Iran", "Make a visit", "Japan", "2014-01-02"),
        Event("Japan", "Make a visit", "Iran", "2014-01-01"),
        Event("Iran", "Make a visit", "Japan", "2014-01-03"),
    )
