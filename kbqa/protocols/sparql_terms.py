"""Entities in the SPARQL of an agent, and results of its queries as text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from kbqa.kg.actions import Success, named
from kbqa.kg.naming import ENTITY_NAMESPACE, entity_iri, name_of
from kbqa.protocols.base import PredictedAnswer

VARIABLE = re.compile(r"[?$]\w+")
_FREEBASE_ID = re.compile(r"[mg]\.[0-9a-z_]+")
_WIKIDATA_ID = re.compile(r"Q[1-9]\d*")


def entity_term(id_: str) -> str:
    """An entity as a query writes it: `ns:m.0abc`, `wd:Q42`, `<iri>`, or the IRI of a plain name."""
    if _FREEBASE_ID.fullmatch(id_):
        return f"ns:{id_}"
    if _WIKIDATA_ID.fullmatch(id_):
        return f"wd:{id_}"
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:\S+$", id_):
        return f"<{id_}>"
    return id_ if id_.startswith('"') else f"<{entity_iri(id_)}>"


def entity_id(term: str) -> str:
    """The id of a term in a query; any other text is returned unchanged."""
    prefix, _, local = term.partition(":")
    if (prefix == "ns" and _FREEBASE_ID.fullmatch(local)) or (
        prefix == "wd" and _WIKIDATA_ID.fullmatch(local)
    ):
        return local
    iri = term.removeprefix("<").removesuffix(">") if term.startswith("<") else term
    return name_of(iri) if iri.startswith(ENTITY_NAMESPACE) else iri


def topics_text(ids: Iterable[str], *, gap: str = " ") -> str:
    """Topic entities as a prompt lists them, each with the term that queries write."""
    return ", ".join(id_ if entity_term(id_) == id_ else f"{id_}{gap}({entity_term(id_)})" for id_ in ids)


def is_plain_name(id_: str) -> bool:
    """Whether an id is a readable name, as in a delimited file, and not an identifier."""
    return entity_term(id_) == f"<{entity_iri(id_)}>"


def rows_text(result: Success[Any], *, max_rows: int) -> str:
    """The rows of a query, one per line, values separated by ` | `; an entity as `label (term)`."""
    if "boolean" in result.details:
        return "true" if result.details["boolean"] else "false"
    if not result.items:
        return "No results."
    shown: Sequence[Mapping[str, Mapping[str, str]]] = result.items[:max_rows]
    lines = [" | ".join(_value(term) for term in row.values()) for row in shown]
    total = f"{result.total}{' or more' if result.truncated else ''}"
    return "\n".join([*lines, f"... ({total} rows in all)"] if len(shown) < result.total else lines)


def answers_by_reference(results: Sequence[Success[Any]], variable: str) -> tuple[PredictedAnswer, ...]:
    """The answers of a variable: its values in the latest of `results` that binds it."""
    values = next(filter(None, (_column(result, variable[1:]) for result in reversed(results))), {})
    return tuple(PredictedAnswer(label, tuple(ids)) for label, ids in values.items())


def _column(result: Success[Any], variable: str) -> Mapping[str, list[str]]:
    """The values of a variable: label → ids, in the order of the rows."""
    values: dict[str, list[str]] = {}
    for row in result.items:
        if variable in row:
            (item,) = named([{variable: row[variable]}])
            ids = values.setdefault(item.label, [])
            if item.id not in ids:
                ids.append(item.id)
    return values


def _value(term: Mapping[str, str]) -> str:
    label = term.get("label", term["value"])
    if term["type"] != "uri" or label == term["value"]:
        return label
    return f"{label} ({entity_term(term.get('id', term['value']))})"
