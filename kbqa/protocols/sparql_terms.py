"""Entities in the SPARQL of an agent, and results of its queries as text."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from kbqa.kg.actions import EXECUTE_SPARQL, Action, ActionResult, Success, named
from kbqa.kg.namespaces import canonical_id, is_machine_id, is_wikidata_entity, prefixed_name
from kbqa.kg.naming import ENTITY_NAMESPACE, entity_iri, name_of
from kbqa.protocols.base import PredictedAnswer

VARIABLE = re.compile(r"[?$]\w+")


def entity_term(id_: str) -> str:
    """An entity as a query writes it: `ns:m.0abc`, `wd:Q42`, `dbr:Berlin`, `<iri>`, or a plain name's IRI."""
    is_id = ":" in id_ or is_machine_id(id_) or is_wikidata_entity(id_)
    if is_id and (name := prefixed_name(id_)) is not None:
        return name
    if re.match(r"[A-Za-z][A-Za-z0-9+.-]*:\S+$", id_):
        return f"<{id_}>"
    return id_ if id_.startswith('"') else f"<{entity_iri(id_)}>"


def entity_id(term: str) -> str:
    """The short id of a term in a query; any other text is returned unchanged."""
    iri = term.removeprefix("<").removesuffix(">") if term.startswith("<") else term
    return name_of(iri) if iri.startswith(ENTITY_NAMESPACE) else canonical_id(iri)


class Topics:
    """The topic entities of a question with their labels, which one query fetches before the first turn.

    A name needs none. A topic whose label the graph cannot tell is shown by its id.
    """

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = ids
        self._labels: dict[str, str] = {}
        self._looking = False

    def look(self) -> tuple[Action, ...]:
        """The query for the labels; none if all topics are names or literals."""
        terms = [entity_term(id_) for id_ in self._ids if not (is_plain_name(id_) or id_.startswith('"'))]
        self._looking = bool(terms)
        query = f"SELECT ?topic WHERE {{ VALUES ?topic {{ {' '.join(terms)} }} }}"
        return (Action(EXECUTE_SPARQL, {"query": query, "limit": len(terms)}),) if terms else ()

    def take(self, results: Sequence[ActionResult]) -> bool:
        """Take the result of the query; False if the results are not its own."""
        if not self._looking:
            return False
        self._looking = False
        for result in results:
            if isinstance(result, Success):
                labelled = ((item.id, item.label) for item in named(result.items))
                self._labels.update((canonical_id(id_), label) for id_, label in labelled if label != id_)
        return True

    def text(self, *, gap: str = " ", bare: bool = False) -> str:
        """The topics as a prompt lists them: `Mona Lisa (wd:Q12418)`, or `bare` ids: `Mona Lisa (Q12418)`."""
        return ", ".join(
            _topic(id_, self._labels.get(canonical_id(id_), ""), gap, bare=bare) for id_ in self._ids
        )


def _topic(id_: str, label: str, gap: str, *, bare: bool) -> str:
    term = entity_term(id_)
    if label:
        return f"{label}{gap}({canonical_id(id_) if bare else term})"
    return id_ if term == id_ else f"{id_}{gap}({term})"


def is_plain_name(id_: str) -> bool:
    """Whether an id is a readable name, as in a delimited file, and not an identifier or literal."""
    return entity_term(id_) == f"<{entity_iri(id_)}>"


def rows_text(result: Success[Any], *, max_rows: int) -> str:
    """The rows of a query, one per line, values separated by ` | `; an entity as `label (term)`.

    Rows that hold no value at all are no results, such as that of a MAX over nothing.
    """
    if "boolean" in result.details:
        return "true" if result.details["boolean"] else "false"
    if not any(result.items):
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
    return f"{label} ({entity_term(term['value'])})"
