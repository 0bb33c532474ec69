"""A graph with labels in ten languages: entities are found by their name in each, and shown by it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kbqa.kg.actions import LABELS, LINK_ENTITIES, Action, Success
from kbqa.kg.catalog import GraphCatalog
from kbqa.kg.tools import LocalGraphTools
from tests import iso_codes

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not iso_codes.is_installed(), reason="needs Debian's package iso-codes"),
]
QUESTIONS = {
    "en": "What is the code of {}?",
    "de": "Welchen Code hat {}?",
    "fr": "Quel est le code de {} ?",
    "es": "¿Cuál es el código de {}?",
    "it": "Qual è il codice di {}?",
    "nl": "Wat is de code van {}?",
    "pl": "Jaki kod ma {}?",
    "sv": "Vilken kod har {}?",
    "tr": "{} hangi koda sahip?",
    "ru": "Какой код имеет {}?",
    "ja": "{} のコードは何ですか?",
}


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGraphTools]:
    home = tmp_path_factory.mktemp("iso")
    file = home / "iso.nt"
    file.write_text("".join(f"{line}\n" for line in iso_codes.triples()), encoding="utf-8")
    catalog = GraphCatalog(home)
    catalog.load("iso", file)
    yield LocalGraphTools(catalog)
    catalog.close()


@pytest.mark.parametrize("language", QUESTIONS)
def test_entities_are_found_by_their_names_in_each_language(tools: LocalGraphTools, language: str) -> None:
    named = iso_codes.labels()[language]
    assert len(named) > 200
    actions = [
        Action(LINK_ENTITIES, {"question": QUESTIONS[language].format(label)}) for label in named.values()
    ]
    results = tools.execute("iso", actions)
    missed = [
        label
        for (iri, label), result in zip(named.items(), results, strict=True)
        if not (isinstance(result, Success) and iri in {mention.id for mention in result.items})
    ]
    assert 1 - len(missed) / len(named) >= 0.95, missed


@pytest.mark.parametrize("language", QUESTIONS)
def test_no_id_is_shown_where_a_label_exists(tools: LocalGraphTools, language: str) -> None:
    every, named = iso_codes.labels()["en"], iso_codes.labels()[language]
    wanted = {"entities": list(every), "languages": [language, "en"], "limit": len(every)}
    (found,) = tools.execute("iso", [Action(LABELS, wanted)])

    assert isinstance(found, Success)
    assert {item.id: item.label for item in found.items} == every | named
