"""What of a data set a graph resolves, counted by hand."""

from __future__ import annotations

from kbqa.datasets.coverage import Found, Missing, coverage
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.trajectory import Hop, Question


def test_names_are_counted_once_and_by_their_part():
    store = OxigraphStore.from_triples([("Big", "starred", "Tom Hanks"), ("Big", "released", "1988")])
    questions = [
        Question("1", "?", ("Tom Hanks",), ("Big",), "g", path=(Hop("starred"),)),
        Question("2", "?", ("1988", "1989"), ("Big",), "g", path=(Hop("released"),)),
        Question("3", "?", ("Big",), ("Heat",), "g", path=(Hop("starred"), Hop("directed"))),
        Question("4", "?", ("Big", "Tom hanks"), ("m.0heat",), "g", path=(Hop("Big"),)),
        Question("5", "?", ("starred",), ("Big",), "g", variants=(("Ran",),), names=(("Ran", "Tom Hanks"),)),
    ]
    found = coverage(store, questions)
    assert (found.questions, found.resolved, found.share) == (5, 2, 0.4)
    topics = [Missing("Heat", "no label of the graph"), Missing("m.0heat", "no id of the graph")]
    assert found.topics == Found(names=3, missing=2, examples=topics)
    assert found.answers == Found(
        names=7,
        missing=2,
        computed=1,  # 1989
        examples=[
            Missing("Tom hanks", "the graph writes it Tom Hanks"),
            Missing("starred", "a relation of the graph, not an entity"),
        ],
    )
    assert found.relations.names == 4
    assert found.relations.examples == [
        Missing("directed", "no relation of the graph"),
        Missing("Big", "an entity of the graph, not a relation"),
    ]
    assert coverage(store, []).share == 0.0


def test_keys_of_an_older_freebase_are_told_from_labels():
    store = OxigraphStore.from_triples([("m.0152x_", "type.object.name", "MSNBC")])
    found = coverage(store, [Question("1", "?", ("MSNBC",), ("en.msnbc",), "g")])
    [missing] = found.topics.examples
    assert missing.name == "en.msnbc"
    assert "later ones have m.…" in missing.why
