"""`kbqa corrections`: what is listed, checked, learned and taken back."""

from __future__ import annotations

import json
from contextlib import closing
from datetime import UTC, datetime, timedelta

import pytest

from kbqa.corrections import CorrectionRecord, Earlier, Lesson
from kbqa.corrections.record import TaughtCorrection
from kbqa.datasets.records import write_questions
from kbqa.feedback import Feedback, feedback_path
from kbqa.kg.catalog import GraphCatalog
from kbqa.policy_store import PolicyStore
from kbqa.trajectory import Question
from services.access.keys import KeyFile
from services.gateway.access.settings import keys_path
from tests.services.gateway.conftest import TRIPLES
from tests.unit.corrections.scene import CUT_LESSON, FILMS, begin

BEGAN = datetime.now(UTC) - timedelta(hours=1)


def write(home, *said):
    """Feedback of owner, question, topic and right answer."""
    lines = [
        Feedback(
            id=f"f{n}",
            time=BEGAN + timedelta(minutes=n),
            owner=owner,
            answer_id="a",
            verdict="wrong",
            question=question,
            kg="films",
            topic_entities=(topic,),
            policy_version="v",
            status="answered",
            answers=("x",),
            gold=(gold,),
        ).model_dump_json()
        for n, (owner, question, topic, gold) in enumerate(said)
    ]
    feedback_path(home).parent.mkdir(parents=True, exist_ok=True)
    feedback_path(home).write_text("\n".join(lines) + "\n")


@pytest.fixture
def home(tmp_path, in_process, monkeypatch):
    """A home with the graph `films`, a data set about it, and what two keys have said."""
    home, data = tmp_path / "home", tmp_path / "data"
    (data / "earlier").mkdir(parents=True)
    earlier = Question("q1", "Who starred in Philadelphia?", ("Tom Hanks",), ("Philadelphia",), "films")
    for split in ("train", "validation", "test"):
        write_questions(data / "earlier" / f"{split}.jsonl", [earlier])
    monkeypatch.setenv("KBQA_DATA", str(data))
    (tmp_path / "films.txt").write_text("".join("\t".join(triple) + "\n" for triple in TRIPLES))
    home.mkdir()
    with closing(GraphCatalog(home)) as catalog:
        catalog.load("films", tmp_path / "films.txt")
    keys = KeyFile(keys_path(home))
    ann, bob = (keys.create(name)[0].id for name in ("ann", "bob"))
    write(
        home,
        (ann, "Who directed Big?", "Big", "Penny Marshall"),
        (ann, "Who starred in Philadelphia?", "Philadelphia", "Penny Marshall"),
        (bob, "Where was Tom Hanks born?", "Tom Hanks", "Concord"),
        (bob, "Who wrote Big?", "Big", "Nobody"),
    )
    return home


def checked(in_process):
    code, out, err = in_process("corrections", "check", "--kg", "films", "--earlier", "earlier", "--json")
    assert code == 0, err
    found = json.loads(out)
    return [one["id"] for one in found["accepted"]], {one["id"]: one["reason"] for one in found["set_aside"]}


def test_what_was_said_is_listed_with_who_and_checked_against_the_graph(home, in_process):
    listed = json.loads(in_process("corrections", "list", "--json")[1])
    assert [(one["by"], one["taken_back"]) for one in listed] == [("ann", False)] * 2 + [("bob", False)] * 2
    accepted, set_aside = checked(in_process)
    assert accepted == ["f0", "f2"]
    assert "the question q1" in set_aside["f1"]
    assert set_aside["f3"] == 'the graph has no entity "Nobody"'
    code, out, _ = in_process("corrections", "check", "--kg", "films", "--earlier", "earlier")
    assert (code, out.splitlines()[0]) == (0, "2 corrections can be taught, 2 are set aside")


def test_one_command_takes_back_what_a_key_has_said_and_what_was_learned_from_it(home, in_process):
    store = PolicyStore(home / "policies")
    before, after = (
        store.publish(run, 1, lambda into, run=run: (into / "x.txt").write_text(run) and None,
                      recipe={"name": "r"}, recipe_digest="d", step=0, metrics={})
        for run in ("before", "after")
    )  # fmt: skip
    CorrectionRecord(home).keep(
        Lesson(
            run="after",
            version=after.id,
            began_with=f"before/{before.id}",
            time=datetime.now(UTC),
            earlier=Earlier(dataset="earlier", seed=1),
            corrections=(TaughtCorrection(id="f0", by="ann", time=BEGAN),),
            before={},
            after={},
            promoted=True,
        )
    )
    store.promote("after", after.id)
    code, out, _ = in_process("corrections", "revoke", "--by", "ann")
    assert code == 0
    assert out.startswith(f"2 corrections by ann are taken back\npromoted before/{before.id}")
    assert store.promoted() == before
    assert checked(in_process) == (["f2"], {"f3": 'the graph has no entity "Nobody"'})
    assert [one["taken_back"] for one in json.loads(in_process("corrections", "list", "--json")[1])] == [
        True, True, False, False,
    ]  # fmt: skip
    assert in_process("corrections", "revoke", "--by", "bob")[0] == 0
    assert store.promoted() == before
    assert "1 corrections by ann  promoted  taken back: ann" in in_process("corrections", "lessons")[1]
    code, _, err = in_process("corrections", "revoke", "--by", "eve")
    assert (code, "see kbqa corrections list" in err) == (2, True)


def test_a_damaged_line_of_feedback_is_named_and_nothing_else_is_lost(home, in_process):
    path = feedback_path(home)
    lines = path.read_text().splitlines()
    path.write_text("\n".join([lines[0], lines[1][:40], *lines[2:]]) + "\n")
    code, out, err = in_process("corrections", "list", "--json")
    assert (code, [one["id"] for one in json.loads(out)]) == (0, ["f0", "f2", "f3"])
    assert f"{path}, line 2: this is no feedback; the line is left out" in err


def test_without_corrections_or_without_a_policy_it_says_what_to_do(home, in_process):
    for command in ("check", "learn"):
        code, _, err = in_process("corrections", command, "--kg", "films")
        assert (code, "train one with" in err) == (2, True)  # whose training would be the earlier one?
    feedback_path(home).unlink()
    assert "POST /v1/feedback" in in_process("corrections", "list")[1]
    code, _, err = in_process("corrections", "check", "--kg", "films", "--earlier", "earlier")
    assert (code, 'there is no correction about "films"' in err) == (2, True)


def test_a_policy_learns_by_one_command_and_a_second_one_finds_nothing_new(tmp_path, in_process, monkeypatch):
    home = tmp_path / "home"
    store = begin(home)
    monkeypatch.setenv("KBQA_DATA", str(home / "data"))
    (tmp_path / "films.txt").write_text("".join("\t".join(triple) + "\n" for triple in FILMS))
    with closing(GraphCatalog(home)) as catalog:
        catalog.load("films", tmp_path / "films.txt")
    write(
        home, ("", "its year: film 0 ?", "film 0", "year 0"), ("", "its year: film 1 ?", "film 1", "year 2")
    )
    cut = [f"--set={key}={value}" for key, value in CUT_LESSON.items()]
    code, out, err = in_process("corrections", "learn", "--kg", "films", "--name", "lesson", *cut)
    assert (code in (0, 1), out.splitlines()[0]) == (
        True,
        "1 corrections can be taught, 1 are set aside",
    ), err
    [lesson] = CorrectionRecord(home).lessons()
    assert [(one.id, one.reason[:22]) for one in lesson.set_aside] == [("f1", "in at most 3 hops to a")]
    assert (store.promoted().run == "lesson", code) == (lesson.promoted, 0 if lesson.promoted else 1)
    code, _, err = in_process("corrections", "learn", "--kg", "films")
    assert (code, "nothing is new since lesson" in err) == (0, True)
    code, out, err = in_process(
        "corrections", "learn", "--kg", "films", "--by", "bob", "--must-answer", "no.jsonl"
    )
    assert (code, "no.jsonl" in err) == (2, True)
