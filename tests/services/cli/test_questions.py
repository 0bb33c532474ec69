"""`kbqa questions make`: from a file of triples to a data set that can be split."""

from __future__ import annotations

import json
import signal

import httpx
import pytest

from kbqa.datasets.examples import MOST, read_examples
from kbqa.datasets.from_graph import split_made
from kbqa.datasets.leaks import leaks_between
from kbqa.datasets.questions import load_questions
from kbqa.datasets.records import write_questions
from kbqa.datasets.reviews import Review, Verdict, digest
from kbqa.trajectory import Question
from tests.chat_server import serve
from tests.unit.datasets.from_graph.test_making import film_facts
from tests.unit.datasets.world.wordnet import lexicon_or_skip

_PARTS = ("train", "validation", "test")


@pytest.fixture
def films(in_process, tmp_path):
    file = tmp_path / "films.txt"
    file.write_text("".join("|".join(fact) + "\n" for fact in film_facts()), encoding="utf-8")
    assert in_process("kg", "load", "films", str(file))[0] == 0
    return tmp_path / "films.jsonl"


def test_a_file_of_triples_becomes_questions_that_can_be_split(in_process, films):
    lexicon_or_skip()
    arguments = ("questions", "make", "films", "--count", "60", "--output", str(films))
    code, output, _ = in_process(*arguments, "--heads", "directed_by=film")
    assert code == 0, output
    assert "60 questions" in output
    assert "questions cover 4 of 4 relations" in output
    written = [json.loads(line) for line in films.read_text(encoding="utf-8").splitlines()]
    assert len(written) == 60
    assert all(record["answers"] and record["form"] and record["kg"] == "films" for record in written)
    assert in_process(*arguments)[0] == 2  # exists
    parts = films.with_name("films")
    assert in_process("data", "split", str(films), str(parts))[0] == 0
    assert (parts / "train.jsonl").exists()


def test_it_says_what_the_parts_of_a_split_share(in_process, films):
    lexicon_or_skip()
    arguments = ("questions", "make", "films", "--output", str(films), "--force", "--count")
    _, output, _ = in_process(*arguments, "150")
    rows = {line.split()[0]: line.split() for line in output.splitlines() if line.strip()}
    splits = split_made(load_questions(str(films)), 0)
    for part, shared in leaks_between({name: getattr(splits, name) for name in _PARTS}).items():
        assert rows[part] == [
            *(part, str(shared.questions), "0", "of", str(shared.with_path)),
            *(str(round(shared.answers * shared.with_answers)), "of", str(shared.with_answers)),
            *(str(round(shared.wordings * shared.questions)), "of", str(shared.questions)),
        ]
    assert "split as" not in in_process(*arguments, "60")[1]  # too few for parts


def test_it_says_what_an_untyped_graph_is_taken_to_be_about(in_process, films):
    lexicon_or_skip()
    arguments = ("questions", "make", "films", "--count", "60", "--output", str(films))
    assert ' are called "film", after the graph; to change it: --heads ' in in_process(*arguments)[1]
    _, output, _ = in_process(*arguments, "--force", "--heads", "directed_by=movie")
    assert "after the graph" not in output
    assert "movies" in films.read_text()


def test_a_chat_model_may_reword_the_questions_and_the_report_says_how_many(in_process, films, monkeypatch):
    lexicon_or_skip()
    for name in ("KBQA_GATEWAY_CHAT_URL", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    arguments = ("questions", "make", "films", "--count", "20", "--output", str(films), "--paraphrase-with")
    code, _, error = in_process(*arguments, "openai:wordy")
    assert (code, "set KBQA_GATEWAY_CHAT_URL (or OPENAI_BASE_URL)" in error) == (2, True)
    code, _, error = in_process(*arguments, "wordy")
    assert (code, "write openai:MODEL" in error) == (2, True)

    def script(body):
        text = json.loads(body["messages"][-1]["content"])["question"]
        return f"Say, {text}" if len(text) % 2 else f"Say,\n{text}"

    with serve() as chat:
        chat.script = script
        monkeypatch.setenv("KBQA_GATEWAY_CHAT_URL", chat.url)
        code, output, _ = in_process(*arguments, "openai:wordy")
    assert code == 0, output
    written = load_questions(str(films))
    reworded = [one for one in written if one.wording == "model:wordy"]
    assert 0 < len(reworded) < len(written) == 20
    assert all(one.text.startswith("Say, ") for one in reworded)
    assert {one.wording for one in written} <= {"model:wordy", "template", "lexicon"}
    assert f"{len(reworded)} of 20 questions are in the words of wordy" in output
    assert f"not taken, not one line: {20 - len(reworded)}" in output


def test_examples_are_a_few_different_questions_written_as_people_write(in_process, films, tmp_path):
    lexicon_or_skip()
    code, output, _ = in_process("questions", "examples", "films", "--heads", "directed_by=film")
    assert code == 0, output
    kept = read_examples(tmp_path / "home", "films")
    assert 3 <= len(kept) <= MOST
    assert len({(one.operation, len(one.path)) for one in kept}) == len(kept)
    assert all(one.text[0].isupper() and " ?" not in one.text and one.answers for one in kept)
    assert in_process("questions", "make", "films", "--count", "60", "--output", str(films))[0] == 0
    assert read_examples(tmp_path / "home", "films") != kept  # made anew
    assert read_examples(tmp_path / "home", "books") == ()


@pytest.fixture
def reviewed(tmp_path):
    """A file of questions about a graph that is not loaded."""
    questions = [Question(f"q{n}", f"who made Tale {n} ?", (f"p{n}",), (f"t{n}",), "films") for n in range(9)]
    write_questions(tmp_path / "made.jsonl", questions)
    return tmp_path / "made.jsonl"


def test_a_review_that_is_killed_loses_no_decision(kbqa, in_process, reviewed, tmp_path):
    def serve():
        process = kbqa("questions", "review", str(reviewed), "--port", "0")
        url, _, rest = process.stdout.readline().partition(" ")
        assert "9 of 9 questions" in rest
        return process, url

    def decide(url, question, verdict, **fields):
        body = {"id": question["id"], "digest": question["digest"], "verdict": verdict, **fields}
        httpx.post(f"{url}/v1/decisions", json=body).raise_for_status()

    process, url = serve()
    questions = {one["id"]: one for one in httpx.get(f"{url}/v1/review").json()["questions"]}
    decide(url, questions["q1"], "rejected")
    decide(url, questions["q2"], "accepted", wording="Whose is Tale 2?")
    process.kill()
    process.wait()
    decisions = reviewed.with_name("made.jsonl.review.jsonl")
    decisions.write_bytes(decisions.read_bytes() + decisions.read_bytes()[:40])  # it was killed while writing
    process, url = serve()
    decide(url, questions["q3"], "rejected")
    code, _, error = in_process("questions", "review", str(reviewed), "--port", url.rpartition(":")[2])
    assert (code, "choose another with --port" in error) == (2, True), error
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert "1 of 9 questions are accepted (1 with other words) and 2 rejected" in process.stdout.read()
    output = tmp_path / "read.jsonl"
    assert in_process("questions", "accept", str(reviewed), "--output", str(output))[0] == 0
    kept = {question.id: question.text for question in load_questions(str(output))}
    assert len(kept) == 7
    assert kept["q2"] == "Whose is Tale 2?"
    assert not {"q1", "q3"} & kept.keys()
    code, _, error = in_process("questions", "accept", str(reviewed), "--output", str(output))
    assert (code, "--force" in error) == (2, True)
    code, _, error = in_process("questions", "accept", str(reviewed), "--output", str(reviewed), "--force")
    assert (code, "choose another name" in error) == (2, True)


def test_a_review_of_something_else_is_refused(in_process, reviewed, tmp_path):
    output = str(tmp_path / "read.jsonl")
    code, _, error = in_process("questions", "accept", str(reviewed), "--output", output)
    assert (code, "kbqa questions review" in error) == (2, True)
    review = Review(reviewed)
    for question, _ in review.sample(9):
        review.decide(question.id, digest(question), Verdict.REJECTED)
    code, _, error = in_process("questions", "accept", str(reviewed), "--output", output)
    assert (code, "all questions" in error) == (2, True)
    # Made anew: the decisions are about other questions.
    reviewed.write_text(reviewed.read_text().replace("Tale", "Story"))
    code, _, error = in_process("questions", "accept", str(reviewed), "--output", output)
    assert (code, "has no decisions about the questions in" in error) == (2, True)
    for text in ("", "Heat|directed by|Michael Mann\n"):
        reviewed.write_text(text)
        for command in (("review",), ("accept", "--output", output)):
            code, _, error = in_process("questions", command[0], str(reviewed), *command[1:])
            assert (code, str(reviewed) in error) == (2, True)
    assert not (tmp_path / "read.jsonl").exists()


def test_wrong_arguments_say_what_to_write(in_process, films):
    code, _, error = in_process("questions", "make", "nothing", "--output", str(films))
    assert code == 2
    assert "kbqa kg load" in error
    code, _, error = in_process("questions", "make", "films", "--output", str(films), "--heads", "film")
    assert code == 2
    assert "RELATION=NOUN" in error
