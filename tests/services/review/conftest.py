"""The page of reviews, served, with questions that have every sort of program, and a name that is markup."""

from __future__ import annotations

from contextlib import contextmanager

import pytest

from kbqa.datasets.records import write_questions
from kbqa.datasets.reviews import Review
from kbqa.trajectory import Hop, Question
from services.http import background
from services.review import create_app

MARKUP = "<img src=x onerror=\"document.title='taken'\">"
QUESTIONS = [
    Question(
        "films/1",
        "who directed the films of Tale 1 ?",
        ("p1", MARKUP),
        ("t1",),
        "films",
        path=(Hop("part_of", inverse=True), Hop("directed_by")),
        sparql="SELECT ?x WHERE { <t1> <part_of> ?y . ?y <directed_by> ?x }",
        operation="path",
    ),
    Question(
        "films/2", "how many films are of Horror ?", ("12",), ("g1",), "films", form="(COUNT (JOIN a b))"
    ),
    Question("films/3", "who wrote Tale 3 ?", ("p3",), ("t3",), "films", path=(Hop("written_by"),)),
    Question("films/4", "what is the longest film ?", ("t4",), (), "films", operation="superlative"),
]
LABELS = {"p1": "Ada Smith", "t1": "Tale One", "t4": "Tale Four"}


@pytest.fixture
def file(tmp_path):
    write_questions(tmp_path / "films.jsonl", QUESTIONS)
    return tmp_path / "films.jsonl"


@pytest.fixture
def serve(file):
    """`with serve() as url`: the page of the file."""

    @contextmanager
    def serve_(sample=50):
        def labels(kg, ids):
            assert kg == "films"
            return {id_: LABELS[id_] for id_ in ids if id_ in LABELS}

        with background(create_app(Review(file), labels, sample=sample, seed=0)) as url:
            yield url

    return serve_
