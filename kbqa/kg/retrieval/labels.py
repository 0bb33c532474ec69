"""`labels`: what entities are called in the languages of a reader.

A graph shows one label of each entity, in the languages for which it was loaded. This action finds others:
those in the first language, else in its dialects (`pt-BR` for `pt`) or in what it is a dialect of (`de` for
`de-CH`), else in the next language. An entity without any such label is not listed.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from kbqa.kg.actions import LABELS, ActionResult, Item, Success
from kbqa.kg.arguments import TEXT, TEXTS, Argument, ArgumentKind
from kbqa.kg.embedded.names import LABEL_RELATIONS
from kbqa.kg.handlers import Surroundings
from kbqa.kg.languages import MAX_LANGUAGES, is_language
from kbqa.kg.specs import ACTIONS, ActionSpec
from kbqa.kg.store import GraphStore

_AT_ONCE = 100  # entities in one query
_PREFERRED = "http://www.w3.org/2004/02/skos/core#prefLabel"

_LANGUAGES = ArgumentKind(
    lambda value: (
        isinstance(value, list)
        and 0 < len(value) <= MAX_LANGUAGES
        and all(TEXT.fits(one) and is_language(one) for one in value)
    ),
    f"a list of 1 to {MAX_LANGUAGES} language tags such as pt-BR",
    {"type": "array", "items": {"type": "string"}, "minItems": 1, "maxItems": MAX_LANGUAGES},
)


def _labels(surroundings: Surroundings, arguments: Mapping[str, Any]) -> ActionResult:
    store, wanted = surroundings.store, [language.lower() for language in arguments["languages"]]
    in_graph = store.items(arguments["entities"])  # only these ids may stand in a query
    known = [entity for entity in in_graph if store.entity_term(entity).startswith("<")]
    best: dict[str, tuple[int, str]] = {}
    for start in range(0, len(known), _AT_ONCE):
        for entity, label, language in _read(store, known[start : start + _AT_ONCE], surroundings.deadline_s):
            rank = _rank(language.lower(), wanted)
            if rank is not None and (entity not in best or (rank, label) < best[entity]):
                best[entity] = rank, label
    found = tuple(Item(entity, best[entity][1]) for entity in known if entity in best)
    return Success(found, len(found))


def _read(store: GraphStore, entities: Sequence[str], deadline_s: float) -> Iterator[tuple[str, str, str]]:
    """Each label of the entities that has a language: (entity, label, language)."""
    of = {store.entity_term(entity): entity for entity in entities}
    relations = " ".join(f"<{relation}>" for relation in (*sorted(LABEL_RELATIONS), _PREFERRED))
    text = (
        f"SELECT ?e ?l WHERE {{ VALUES ?e {{ {' '.join(of)} }} VALUES ?r {{ {relations} }} "
        '?e ?r ?l . FILTER(LANG(?l) != "") }'
    )
    result = store.query(text, deadline_s=deadline_s)
    for row in json.loads(result.body)["results"]["bindings"]:
        yield of[f"<{row['e']['value']}>"], row["l"]["value"], row["l"]["xml:lang"]


def _rank(language: str, wanted: Sequence[str]) -> int | None:
    """The place of a language, 0 for the best; None if nobody wants it."""
    for place, one in enumerate(wanted):
        if language == one:
            return 2 * place
        if language.startswith(f"{one}-") or one.startswith(f"{language}-"):
            return 2 * place + 1
    return None


ACTIONS.register(
    ActionSpec(
        LABELS,
        "Say what entities are called in some languages. An entity without a label in them is not listed.",
        _labels,
        {
            "entities": Argument(TEXTS, "ids of entities"),
            "languages": Argument(_LANGUAGES, "language tags, the preferred one first"),
        },
        answers="An item for each entity that has a label in one of the languages, in their order. "
        "Dialects count: pt-BR for pt, and de for de-CH.",
    )
)
