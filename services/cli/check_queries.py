"""`kbqa kg check-queries`: which queries of a data set a graph server would accept."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer

from kbqa.errors import DatasetError, QueryError
from kbqa.kg.embedded.oxigraph import OxigraphStore
from services.cli.options import AsJson

# A query on an empty graph takes a millisecond; longer only if it is pathological or the machine very busy.
_DEADLINE_S = 20.0
_SHOWN = 20
_QUERY_FIELDS = ("sparql", "sparql_query")
_ID_FIELDS = ("ID", "QuestionId", "qid", "id")


class GoldQuery(NamedTuple):
    """A query of a data set; `id` is the id of its question or, without one, the record's number from 0."""

    id: str
    text: str


def check_queries(
    file: Annotated[
        Path,
        typer.Argument(help="JSON records with `sparql` or `sparql_query`, or QALD's `questions`."),
    ],
    as_json: AsJson = False,
) -> None:
    """Report which queries of a data set a graph server would accept.

    Each is normalised, checked and parsed. Exit code 1 unless all are accepted.
    """
    queries = read_queries(file)
    failures = list(_failures(queries))
    accepted = len(queries) - len(failures)
    if as_json:
        report = {"records": len(queries), "accepted": accepted, "failures": failures}
        typer.echo(json.dumps(report, ensure_ascii=False))
    else:
        typer.echo(f"{accepted} of {len(queries)} queries are accepted")
        for failure in failures[:_SHOWN]:
            typer.echo(f"  {failure['id']}: {failure['error']}")
        if len(failures) > _SHOWN:
            typer.echo(f"  … and {len(failures) - _SHOWN} more (--json lists them all)")
    if failures:
        raise typer.Exit(1)


def _failures(queries: Iterable[GoldQuery]) -> Iterator[dict[str, str]]:
    store = OxigraphStore.from_triples([])
    for query in queries:
        try:
            store.query(query.text, deadline_s=_DEADLINE_S)
        except QueryError as error:
            yield {"id": query.id, "error": str(error), "query": query.text}


def read_queries(file: Path) -> list[GoldQuery]:
    """The queries of a file of records, in order.

    Raises:
        DatasetError: the file does not exist or is not JSON, or a record has no query.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise DatasetError(f"{file} does not exist") from None
    except OSError as error:
        raise DatasetError(f"{file} cannot be read: {error.strerror}") from error
    except (ValueError, RecursionError) as error:
        raise DatasetError(f"{file} is not JSON: {error}") from error
    records = content.get("questions") if isinstance(content, dict) else content
    if not isinstance(records, list) or not records:
        raise DatasetError(
            f"{file} holds no queries: give a list of records, or QALD's object with `questions`"
        )
    return [_query(file, number, record) for number, record in enumerate(records)]


def _query(file: Path, number: int, record: object) -> GoldQuery:
    if isinstance(record, Mapping):
        nested = record.get("query")
        candidates: list[Any] = [record.get(name) for name in _QUERY_FIELDS]
        candidates.append(nested.get("sparql") if isinstance(nested, Mapping) else None)
        text = next((value for value in candidates if isinstance(value, str)), None)
        if text is not None:
            id_ = next((record[name] for name in _ID_FIELDS if name in record), number)
            return GoldQuery(str(id_), text)
    raise DatasetError(
        f"{file}: record {number} has no query: expected `sparql`, `sparql_query` or `query.sparql`"
    )
