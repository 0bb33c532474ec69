"""Debian's iso-codes as a graph: countries, currencies and languages, with labels in ten languages."""

from __future__ import annotations

import gettext
import json
from collections.abc import Iterator
from pathlib import Path

CODES = Path("/usr/share/iso-codes/json")
LOCALES = Path("/usr/share/locale")
LANGUAGES = ("de", "fr", "es", "it", "nl", "pl", "sv", "tr", "ru", "ja")

_X, _LABEL = "http://iso/", "http://www.w3.org/2000/01/rdf-schema#label"
_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
# Standard, key of its records in the JSON file, key of their codes, and the class.
_STANDARDS = (("3166-1", "3166-1", "alpha_2", "Country"), ("4217", "4217", "alpha_3", "Currency"))


def is_installed() -> bool:
    return (CODES / "iso_3166-1.json").exists() and (LOCALES / "de/LC_MESSAGES/iso_3166-1.mo").exists()


def labels() -> dict[str, dict[str, str]]:
    """Language → IRI → label, for what has a translation; "en" for all."""
    found: dict[str, dict[str, str]] = {language: {} for language in ("en", *LANGUAGES)}
    for standard, key, code, _ in _STANDARDS:
        records = json.loads((CODES / f"iso_{standard}.json").read_text(encoding="utf-8"))[key]
        translations = {
            language: gettext.translation(f"iso_{standard}", str(LOCALES), [language])
            for language in LANGUAGES
        }
        for record in records:
            iri, name = f"{_X}{standard}/{record[code]}", record["name"]
            found["en"][iri] = name
            for language, translation in translations.items():
                if (translated := translation.gettext(name)) != name:
                    found[language][iri] = translated
    return found


def triples() -> Iterator[str]:
    """The graph as N-Triples."""
    for standard, key, code, class_ in _STANDARDS:
        for record in json.loads((CODES / f"iso_{standard}.json").read_text(encoding="utf-8"))[key]:
            iri = f"{_X}{standard}/{record[code]}"
            yield f"<{iri}> <{_TYPE}> <{_X}{class_}> ."
            yield f"<{iri}> <{_X}code> {json.dumps(record[code])} ."
            if "numeric" in record:
                yield f"<{iri}> <{_X}numeric> {json.dumps(record['numeric'])} ."
    for language, named in labels().items():
        for iri, label in named.items():
            yield f"<{iri}> <{_LABEL}> {json.dumps(label, ensure_ascii=False)}@{language} ."
