"""A process that executes SPARQL queries over on-disk stores, one at a time.

A query can take all memory or never end, and the engine cannot be interrupted, but a
process can be killed. `QueryPool` starts this module and communicates with it over
standard input and output in frames: a 4-byte length, then that many bytes. A request
is one JSON frame, which names no store if the query is only to be parsed; an answer is one
JSON frame, followed by a frame with the body if there is a result.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import struct
import sys
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import IO, Any, TypeVar

import pyoxigraph as ox
from cachetools import LRUCache

from kbqa.kg.sparql.copies import StoreCopy, base_of
from kbqa.kg.sparql.dialect import HIDDEN_VARIABLE
from kbqa.kg.sparql.functions import FUNCTIONS
from kbqa.kg.sparql.guard import ResultFormat

# Niceness: look-ups in the server's own process go first.
_NICENESS = 5
# If the parent is gone, the kernel kills a process this long after its deadline.
_ORPHAN_GRACE_S = 2.0
_OPEN_STORES = 8

_RESULT_FORMATS = {
    ResultFormat.XML: ox.QueryResultsFormat.XML,
    ResultFormat.CSV: ox.QueryResultsFormat.CSV,
    ResultFormat.TSV: ox.QueryResultsFormat.TSV,
}
_GRAPH_FORMATS = {
    ResultFormat.NTRIPLES: ox.RdfFormat.N_TRIPLES,
    ResultFormat.TURTLE: ox.RdfFormat.TURTLE,
}
_XSD_STRING = "http://www.w3.org/2001/XMLSchema#string"

T = TypeVar("T")
_Stores = LRUCache[str, "ox.Store | StoreCopy"]


def _write_frame(stream: IO[bytes], payload: bytes) -> None:
    stream.write(struct.pack(">I", len(payload)) + payload)


def _read_frame(stream: IO[bytes]) -> bytes | None:
    head = stream.read(4)
    return stream.read(struct.unpack(">I", head)[0]) if len(head) == 4 else None


def _main(requests: IO[bytes], answers: IO[bytes], memory_bytes: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (memory_bytes, memory_bytes))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    os.nice(_NICENESS)
    _volunteer_for_the_oom_killer()
    # The parent handles interrupts from the terminal, and ends this process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    stores: _Stores = LRUCache(_OPEN_STORES)
    _write_frame(answers, b"ready")
    answers.flush()
    while (frame := _read_frame(requests)) is not None:
        request = json.loads(frame)
        signal.setitimer(signal.ITIMER_REAL, request["deadline_s"] + _ORPHAN_GRACE_S)
        head, body = _answer(stores, request)
        signal.setitimer(signal.ITIMER_REAL, 0)
        _write_frame(answers, json.dumps({**head, "held_bytes": _held_bytes()}).encode())
        if body is not None:
            _write_frame(answers, body)
        answers.flush()


def _answer(stores: _Stores, request: dict[str, Any]) -> tuple[dict[str, Any], bytes | None]:
    if request["path"] is None:
        return _parse(request["query"])
    try:
        solutions = _open(stores, request["path"]).query(request["query"], custom_functions=FUNCTIONS)
        return _write(solutions, ResultFormat(request["format"]), request["max_rows"], request["max_bytes"])
    except SyntaxError as error:
        return {"error": "syntax", "message": _first_line(error)}, None
    except MemoryError:
        return {"error": "memory", "message": "out of memory"}, None
    except OSError as error:
        return {"error": "store", "message": _first_line(error)}, None
    except (ValueError, RuntimeError) as error:
        return {"error": "failed", "message": _first_line(error)}, None


def _parse(query: str) -> tuple[dict[str, Any], bytes | None]:
    """Whether a query parses: the engine offers no parser alone, so it begins the query over nothing."""
    try:
        ox.Store().query(query, custom_functions=FUNCTIONS)
    except SyntaxError as error:
        return {"error": "syntax", "message": _first_line(error)}, None
    except MemoryError:
        return {"error": "memory", "message": "out of memory"}, None
    except (ValueError, RuntimeError):
        pass  # it has been parsed, and its evaluation says nothing about another engine's
    return {"rows": 0, "truncated": False}, b""


def _open(stores: _Stores, path: str) -> ox.Store:
    version = Path(path).parent
    base = base_of(version)
    if base is None:
        stores.pop(str(version.parent), None)  # a copy of what was before is not needed any more
        opened = stores.get(path)
        if not isinstance(opened, ox.Store):
            opened = stores[path] = ox.Store.read_only(path)
        return opened
    # One copy for all versions of a graph with the same base.
    copy = stores.get(key := str(version.parent))
    if not isinstance(copy, StoreCopy) or copy.base != base:
        stores.pop(key, None)
        copy = stores[key] = StoreCopy(version, base)
    try:
        return copy.at(version)
    except BaseException:
        del stores[key]  # it may be between two versions
        raise


def _write(
    result: ox.QuerySolutions | ox.QueryBoolean | ox.QueryTriples,
    result_format: ResultFormat,
    max_rows: int,
    max_bytes: int,
) -> tuple[dict[str, Any], bytes]:
    if isinstance(result, ox.QueryBoolean):
        body = result.serialize(format=_RESULT_FORMATS.get(result_format, ox.QueryResultsFormat.JSON))
        return {"rows": 1, "truncated": False}, body or b""
    if isinstance(result, ox.QueryTriples):
        triples, truncated = _cap(result, max_rows, max_bytes, lambda triple: len(str(triple)))
        body = ox.serialize(triples, format=_GRAPH_FORMATS[result_format])
        return {"rows": len(triples), "truncated": truncated}, body or b""
    variables = [v.value for v in result.variables if not v.value.startswith(HIDDEN_VARIABLE)]
    rows, truncated = _cap((_row(variables, s) for s in result), max_rows, max_bytes, len)
    head = json.dumps({"vars": variables})
    body = f'{{"head":{head},"results":{{"bindings":[{",".join(rows)}]}}}}'.encode()
    if result_format in _RESULT_FORMATS:
        parsed = ox.parse_query_results(body, ox.QueryResultsFormat.JSON)
        body = parsed.serialize(format=_RESULT_FORMATS[result_format]) or b""
    return {"rows": len(rows), "truncated": truncated}, body


def _cap(found: Iterable[T], max_rows: int, max_bytes: int, size: Callable[[T], int]) -> tuple[list[T], bool]:
    """The first items that fit the limits, and whether there were more."""
    taken: list[T] = []
    total = 0
    for one in found:
        total += size(one)
        if len(taken) == max_rows or total > max_bytes:
            return taken, True
        taken.append(one)
    return taken, False


def _row(variables: list[str], solution: ox.QuerySolution) -> str:
    terms = ((name, solution[name]) for name in variables)
    return json.dumps(
        {name: _term(term) for name, term in terms if term is not None},
        ensure_ascii=False,
        separators=(",", ":"),
    )


def _term(term: ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple) -> dict[str, Any]:
    """A term in the SPARQL 1.1 Query Results JSON Format."""
    if isinstance(term, ox.Triple):
        parts = {"subject": term.subject, "predicate": term.predicate, "object": term.object}
        return {"type": "triple", "value": {name: _term(part) for name, part in parts.items()}}
    if isinstance(term, ox.NamedNode):
        return {"type": "uri", "value": term.value}
    if isinstance(term, ox.BlankNode):
        return {"type": "bnode", "value": term.value}
    binding = {"type": "literal", "value": term.value}
    if term.language:
        binding["xml:lang"] = term.language
    elif term.datatype.value != _XSD_STRING:
        binding["datatype"] = term.datatype.value
    return binding


def _held_bytes() -> int:
    """The memory that this process has in use, in bytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def _volunteer_for_the_oom_killer() -> None:
    """Make the kernel kill this process before the server if memory runs out."""
    with suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def _first_line(error: Exception) -> str:
    # The engine's list of what it expected can fill a page.
    return str(error).splitlines()[0][:300] if str(error) else type(error).__name__


if __name__ == "__main__":
    _main(sys.stdin.buffer, sys.stdout.buffer, int(sys.argv[1]))
