"""What of a data set a graph resolves, counted by hand."""

from __future__ import annotations

from kbqa.datasets.coverage import Found, coverage
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.trajectory import Hop, Question


def test_names_are_counted_once_and_by_their_part():
    store = OxigraphStore.from_triples([("Big", "starred", "Tom Hanks"), ("Big", "released", "1988")])
    questions = [
        Question("1", "?", ("Tom Hanks",), ("Big",), "g", path=(Hop("starred"),)),
        Question("2", "?", ("1988", "1989"), ("Big",), "g", path=(Hop("released"),)),
        Question("3", "?", ("Big",), ("Heat",), "g", path=(Hop("starred"), Hop("directed"))),
        Question("4", "?", ("Big",), ("Heat",), "g"),
    ]
    found = coverage(store, questions)
    assert (found.questions, found.resolved, found.share) == (4, 1, 0.25)
    assert found.topics == Found(2, 1, ["Heat"])
    assert found.answers == Found(4, 1, ["1989"])
    assert found.relations == Found(3, 1, ["directed"])
    assert coverage(store, []).share == 0.0
