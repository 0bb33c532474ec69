"""Dated facts for questions: generated, or from ICEWS14 (García-Durán et al. 2018).

Relations are named as in CAMEO, the code book of ICEWS; `VERBS` gives their everyday wording.
"""

from __future__ import annotations

import random
from collections.abc import Iterable
from datetime import date, timedelta
from pathlib import Path
from typing import NamedTuple

import pyoxigraph as ox

from kbqa.datasets.world.names import draw_names
from kbqa.errors import DatasetError
from kbqa.kg.loading.facts import Calendar, Fact, TimeUnit
from kbqa.kg.loading.files import GraphFormat, GraphSource
from kbqa.kg.naming import name_of


class Event(NamedTuple):
    """A fact, and the day on which it held, such as 2014-05-13."""

    subject: str
    relation: str
    object: str
    day: str


class Verb(NamedTuple):
    """The everyday wording of a relation: "to visit", "visited"."""

    infinitive: str
    past: str


VERBS = {
    "Make a visit": Verb("visit", "visited"),
    "Host a visit": Verb("receive a visit from", "received a visit from"),
    "Consult": Verb("consult with", "consulted with"),
    "Make an appeal or request": Verb("appeal to", "appealed to"),
    "Express intent to meet or negotiate": Verb("want to negotiate with", "wanted to negotiate with"),
    "Express intent to cooperate": Verb("want to cooperate with", "wanted to cooperate with"),
    "Arrest, detain, or charge with legal action": Verb("arrest", "arrested"),
    "Praise or endorse": Verb("praise", "praised"),
    "Criticize or denounce": Verb("criticise", "criticised"),
    "Accuse": Verb("accuse", "accused"),
    "Engage in negotiation": Verb("negotiate with", "negotiated with"),
    "Demand": Verb("make demands on", "made demands on"),
    "Engage in diplomatic cooperation": Verb("work together with", "worked together with"),
    "Sign formal agreement": Verb("sign an agreement with", "signed an agreement with"),
    "Discuss by telephone": Verb("telephone with", "telephoned with"),
    "Investigate": Verb("investigate", "investigated"),
    "Reject": Verb("reject", "rejected"),
    "Threaten": Verb("threaten", "threatened"),
    "Make optimistic comment": Verb("speak with hope of", "spoke with hope of"),
    "Make empathetic comment": Verb("express sympathy for", "expressed sympathy for"),
    "Provide humanitarian aid": Verb("send aid to", "sent aid to"),
    "Return, release person(s)": Verb("return prisoners to", "returned prisoners to"),
    "Physically assault": Verb("assault", "assaulted"),
    "Expel or deport individuals": Verb("expel people of", "expelled people of"),
}

_ACTORS = {"country": 30, "person": 60, "company": 20}
_FIRST_DAY, _DAYS = date(2012, 1, 1), 3 * 365
_PAIRS = 1_100  # (subject, relation, object), each on one day or several
_MOST_DAYS = 5


def generate_events(seed: int, size: float = 1.0) -> tuple[Event, ...]:
    """Generate about 3,000 * `size` events in three years, between countries, people and companies."""
    rng = random.Random(f"temporal-world/{seed}")
    actors = [
        name for kind, count in _ACTORS.items() for name in draw_names(kind, int(count * size) + 4, rng)
    ]
    often = rng.sample(actors, len(actors) // 3)  # actors that occur often
    relations = list(VERBS)
    events: dict[Event, None] = {}
    for _ in range(int(_PAIRS * size)):
        subject, object_ = (rng.choice(often if rng.random() < 0.6 else actors) for _ in range(2))
        relation = rng.choice(relations)
        for _ in range(rng.randint(1, _MOST_DAYS)):
            day = _FIRST_DAY + timedelta(days=rng.randrange(_DAYS))
            if subject != object_:
                events[Event(subject, relation, object_, day.isoformat())] = None
    return tuple(events)


def read_icews14(directory: Path) -> tuple[Event, ...]:
    """Read the distinct events of all three files, in order.

    Args:
        directory: holds train.txt, valid.txt, test.txt, entity2id.txt and relation2id.txt.

    Raises:
        DatasetError: a file is missing.
        GraphLoadError: a file cannot be read.
    """
    files = [directory / f"{part}.txt" for part in ("train", "valid", "test")]
    entities, relations = directory / "entity2id.txt", directory / "relation2id.txt"
    for file in (*files, entities, relations):
        if not file.is_file():
            raise DatasetError(f"{file}: there is no such file (icews14 is looked for under KBQA_DATA)")
    source = GraphSource(
        files,
        GraphFormat.TAB,
        entity_names=entities,
        relation_names=relations,
        calendar=Calendar(TimeUnit.HOUR, "2014-01-01"),
    )
    with source.open() as reader:
        return tuple(dict.fromkeys(map(_event, reader.facts())))


def _event(fact: Fact) -> Event:
    """The event of a fact from a delimited file, with names in place of IRIs."""
    subject, relation, object_, _ = fact.quad
    assert isinstance(subject, ox.NamedNode)
    assert isinstance(object_, ox.NamedNode)
    return Event(name_of(subject.value), name_of(relation.value), name_of(object_.value), fact.time)


def dated_lines(events: Iterable[Event]) -> str:
    """The graph of events as the text of a delimited file."""
    return "".join("\t".join(event) + "\n" for event in events)
