"""A graph of films, and an encoder whose cosines can be worked out by hand."""

from __future__ import annotations

import numpy as np

from kbqa.kg.catalog import FixedGraphs
from kbqa.kg.embedded.oxigraph import OxigraphStore
from kbqa.kg.ranking.encoders import Thresholds, unit_rows
from kbqa.kg.tools import LocalGraphTools
from kbqa.trajectory import Hop, Question

FILMS = [
    ("Heat", "directed_by", "Mann"),
    ("Ali", "directed_by", "Mann"),
    ("Heat", "starred_actors", "Pacino"),
    ("Mann", "born_in", "Chicago"),
    ("Pacino", "born_in", "New York"),
]


class Bag:
    """Counts words, so that a cosine is the number of common words over the root of both lengths."""

    name, thresholds = "bag", Thresholds()

    def __init__(self):
        self.vocabulary, self.encoded = {}, []

    def encode(self, texts):
        self.encoded += texts
        counts = np.zeros((len(texts), 64), np.float32)
        for row, text in enumerate(texts):
            for word in text.split():
                counts[row, self.vocabulary.setdefault(word, len(self.vocabulary))] += 1
        return unit_rows(counts)

    def encode_query(self, text, instruction=""):
        return self.encode([text])[0]


class Counted:
    """Graph tools that remember the paths which they were asked to follow."""

    def __init__(self, triples):
        self.tools, self.paths = (
            LocalGraphTools(FixedGraphs({"toy": OxigraphStore.from_triples(triples)})),
            [],
        )

    def execute(self, kg, actions, *, graph=None):
        self.paths += [tuple(action.arguments["path"]) for action in actions]
        return self.tools.execute(kg, actions, graph=graph)


def asked(text, *topics, path=(), gold="Chicago"):
    hops = tuple(Hop(step.removeprefix("^"), inverse=step.startswith("^")) for step in path)
    return Question("q", text, (gold,), topics, "toy", path=hops)
