"""Twenty records in the shape in which RoG-WebQSP and RoG-CWQ are released, about invented people."""

from __future__ import annotations

from typing import Any

_NAMES = (
    "Ada Byr",
    "Bo Lind",
    "Cy Marsh",
    "Di Novak",
    "Ed Okoro",
    "Flo Park",
    "Gil Quist",
    "Ha Rao",
    "Ida Sol",
)
_TOWNS = ("Aldby", "Brenta", "Corvo")
RELATION = "people.person.place_of_birth"


def _graph(number: int) -> list[list[str]]:
    name, town = _NAMES[number % len(_NAMES)], _TOWNS[number % len(_TOWNS)]
    node = f"m.0rog{number:02}"  # a node without a name, as Freebase's compound values are
    return [
        [name, RELATION, town],
        [town, "location.location.containedby", "Norland"],
        [name, "people.person.marriage", node],
        [node, "people.marriage.spouse", _NAMES[(number + 1) % len(_NAMES)]],
    ]


def _record(part: str, number: int) -> dict[str, Any]:
    name = _NAMES[number % len(_NAMES)]
    answers = [_TOWNS[number % len(_TOWNS)]]
    return {
        "id": f"WebQ{part}-{number}",
        "question": f"where was {name.lower()} born",
        "answer": answers,
        "q_entity": [name],
        "a_entity": answers,
        "graph": _graph(number),
        "choices": [],
    }


TRAIN = [_record("Trn", number) for number in range(12)]
VALIDATION = [_record("Trn", number) for number in range(12, 16)]
TEST = [_record("Test", number) for number in range(16, 20)]
