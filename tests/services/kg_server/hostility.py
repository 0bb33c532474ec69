"""Requests that are meant to hurt: bombs, injections, huge and malformed things, from a seed."""

from __future__ import annotations

import json
import random
from typing import NamedTuple
from urllib.parse import urlencode

SPARQL, ACTIONS = "/v1/kg/films/sparql", "/v1/kg/films/actions"
# What they are sent with, where the server wants a key.
KEY = "hostile-0123456789abcdef"
_STARRED, _LINKS = "<urn:kbqa:r:starred>", "<urn:kbqa:r:links>"


class Attack(NamedTuple):
    """One request; `raw` is sent as it stands, over a connection of its own."""

    kind: str
    method: str = "POST"
    path: str = ""
    headers: tuple[tuple[str, bytes], ...] = ()
    body: bytes = b""
    raw: bytes | None = None


def attacks(seed: int, count: int, *, bombs: float) -> list[Attack]:
    """Attacks of all kinds.

    Args:
        bombs: share of queries that run into their deadline or memory.
    """
    dice = random.Random(seed)
    kinds = [_text, _query_injection, _request, _batch, _arguments, _malformed, _raw]
    return [_bomb(dice) if dice.random() < bombs else dice.choice(kinds)(dice) for _ in range(count)]


def _sparql(kind: str, query: str, dice: random.Random) -> Attack:
    """A query, sent in one of the ways there are."""
    text = query.encode("utf-8", "surrogatepass")
    way = dice.randrange(4)
    if way == 0:
        return Attack(kind, path=SPARQL, headers=(("Content-Type", b"application/sparql-query"),), body=text)
    if way == 1:
        return _actions(kind, [{"action": "execute_sparql", "query": query}])
    form = urlencode({"query": text}).encode()
    if way == 2 and len(form) < 30_000:
        return Attack(kind, "GET", f"{SPARQL}?{form.decode()}")
    return Attack(
        kind, path=SPARQL, headers=(("Content-Type", b"application/x-www-form-urlencoded"),), body=form
    )


def _actions(kind: str, actions: object, **envelope: object) -> Attack:
    body = json.dumps({"actions": actions, **envelope}).encode()
    return Attack(kind, path=ACTIONS, headers=(("Content-Type", b"application/json"),), body=body)


def _bomb(dice: random.Random) -> Attack:
    mark = dice.randrange(10**9)  # no two are the same, so that no cache helps
    patterns = " . ".join(f"?a{n} ?b{n} ?c{n}" for n in range(dice.randint(4, 12)))
    doubled = "".join(f"BIND(CONCAT(?s{n}, ?s{n}) AS ?s{n + 1}) " for n in range(dice.randint(24, 60)))
    several = " ".join(f"?x{n} ({_LINKS}|^{_LINKS})+ ?x{n + 1} ." for n in range(dice.randint(2, 5)))
    queries = [
        f"SELECT (COUNT(*) AS ?n) {{ {patterns} }} LIMIT {mark}",
        f"SELECT DISTINCT * {{ {patterns} }} LIMIT {mark}",
        f"SELECT * {{ {patterns} }} ORDER BY ?c1 ?b2 ?a0 LIMIT {mark}",
        f"CONSTRUCT {{ ?a1 ?b0 ?c2 }} {{ {patterns} FILTER(?a1 != ?c2) }} LIMIT {mark}",
        f"SELECT (GROUP_CONCAT(?c1) AS ?all) {{ {patterns} }} LIMIT {mark}",
        f"SELECT (COUNT(*) AS ?n) {{ {several} }} LIMIT {mark}",
        f'SELECT (STRLEN(?s24) AS ?n) {{ BIND("x{mark}" AS ?s0) {doubled} }}',
        f'SELECT * {{ {patterns} FILTER(REGEX(STR(?c0), "^(([a-z])+.)+[A-Z]([a-z])+$")) }} LIMIT {mark}',
        f'ASK {{ {patterns} FILTER(REPLACE(STR(?c1), "(.*)*", "$1$1") = "{mark}") }}',
        f"ASK {{ {patterns} FILTER NOT EXISTS {{ ?a1 ?b1 ?c1 }} }} LIMIT {mark}",
    ]
    return _sparql("bomb", dice.choice(queries), dice)


def _text(dice: random.Random) -> Attack:
    """Queries of a size or shape that parsers do not expect."""
    size = dice.choice([70, 5_000, 30_000, 99_000, 200_000])
    bracket = dice.choice(["{}", "()", "[]"])
    tokens = [
        "SELECT",
        "*",
        "{",
        "}",
        "?x",
        "<x:y>",
        '"',
        "'''",
        "(",
        ")",
        "#",
        "\\",
        "^^",
        "@en",
        "FILTER",
        ".",
        ";",
    ]
    queries = [
        "SELECT * " + bracket[0] * size + bracket[1] * size,
        "SELECT * { FILTER(" + "!" * size + "true) }",
        "SELECT * { " + "OPTIONAL { ?s ?p ?o . " * (size // 20) + "}" * (size // 20) + " }",
        "SELECT * { { ?s ?p ?o }" + " UNION { ?s ?p ?o }" * (size // 20) + " }",
        "SELECT * { ?s ?p '" + "x" * size + "' }",
        "SELECT * { <" + ")" * size + "> ?p ?o }",
        "SELECT * { ?s " + "^" * size + "<x:y> ?o }",
        "SELECT (" + "1+" * (size // 2) + "1 AS ?n) {}",
        "SELECT * { VALUES ?x { " + "1 " * (size // 2) + "} }",
        "SELECT * { x:" + "a." * (size // 2) + " ?p ?o }",
        "SELECT * { ?s ?p ?o } ORDER BY " + "?s " * (size // 3),
        "SELECT * { ?s ?p \ud800 }",
        "\x00" * size,
        " ".join(dice.choice(tokens) for _ in range(min(size, 5_000))),
        "".join(chr(dice.choice([dice.randrange(32, 127), dice.randrange(160, 0xD000)])) for _ in range(500)),
    ]
    return _sparql("text", dice.choice(queries), dice)


def _query_injection(dice: random.Random) -> Attack:
    queries = [
        "SELECT * { SERVICE <http://127.0.0.1:9/> { ?s ?p ?o } }",
        "SELECT * { SERVICE SILENT ?s { ?s ?p ?o } }",
        "SELECT * FROM <file:///etc/passwd> { ?s ?p ?o }",
        "SELECT * FROM NAMED <http://127.0.0.1:9/> { GRAPH ?g { ?s ?p ?o } }",
        "LOAD <file:///etc/passwd>",
        "INSERT DATA { <x:a> <x:b> <x:c> }",
        "DELETE WHERE { ?s ?p ?o }",
        "DROP ALL",
        "SELECT * {} ; CLEAR ALL",
        "SELECT * { ?s ?p ?o }\n#\rINSERT DATA { <x:a> <x:b> <x:c> }",
        "PREFIX SERVICE: <x:> SELECT * { SERVICE:x { ?s ?p ?o } }",
        f"SELECT ?o {{ <urn:kbqa:e:Big> {_STARRED} ?o }} }} UNION {{ ?s ?p ?o",
    ]
    return _sparql("injection", dice.choice(queries), dice)


def _request(dice: random.Random) -> Attack:
    """Paths, methods, parameters and headers that are wrong."""
    paths = [
        "/v1/kg/../../etc/passwd/sparql",
        "/v1/kg/%00/actions",
        "/v1/kg/" + "x" * 5000,
        "/v1//kg",
        "/%ff%fe",
    ]
    accepts = [b"text/csv;q=nan", b"*/*;q=1e999", b"text/" * 1000, b",;=," * 500, b"\xff\xfe", b"image/png"]
    types = [b"application/json; charset=utf-16", b"", b"text/plain", b"multipart/form-data", b"\xff"]
    query = urlencode({"query": "ASK {}"})
    return dice.choice(
        [
            Attack("request", dice.choice(["GET", "POST", "PUT", "DELETE", "PATCH"]), dice.choice(paths)),
            Attack("request", "GET", f"{SPARQL}?{query}", (("Accept", dice.choice(accepts)),)),
            Attack("request", "POST", SPARQL, (("Content-Type", dice.choice(types)),), b"query=ASK{}"),
            Attack("request", "POST", ACTIONS, (("Content-Type", dice.choice(types)),), b'{"actions": []}'),
            Attack("request", "GET", f"{SPARQL}?{'&'.join([query] * 200)}"),
            Attack("request", "GET", f"{SPARQL}?query=%FF%FE&%zz"),
            Attack("request", "POST", "/mcp", (("Content-Type", b"application/json"),), b'{"jsonrpc": "9"}'),
        ]
    )


def _batch(dice: random.Random) -> Attack:
    """Batches that are much, or nothing that a batch may be."""
    hub = {"action": "get_tail_entities", "entity": "hub", "relation": "links"}
    return dice.choice(
        [
            _actions("batch", [hub] * 1024),
            _actions("batch", [hub] * 100_000),
            _actions(
                "batch",
                [{"action": "execute_sparql", "query": f"SELECT * {{ ?s ?p {n} }}"} for n in range(64)],
            ),
            _actions("batch", [{"action": "link_entities", "question": "Big hub " * 4000}] * 8),
            _actions("batch", dice.choice([None, 7, "x", {}, [[]], [None], ["get_tail_relations"]])),
            _actions("batch", [], graph=dice.choice([7, [], {}, True])),
            _actions("batch", [hub], graph="../../etc"),
            _actions("batch", [hub], unknown="x" * 100_000),
        ]
    )


def _arguments(dice: random.Random) -> Attack:
    """Actions whose arguments are of any type but the right one."""
    values: list[object] = [
        None, True, -1, 0, 10**30, 1.5, -1e308, "", "x" * 100_000, "\x00", [], {}, [[[]]],
        ["x"] * 2000, {"a": {"b": []}}, "?x", "(JOIN " * 3000 + ")" * 3000, "(AND (ARGMAX a b) (R c))", "hub",
    ]  # fmt: skip
    names = [
        "get_tail_relations", "get_head_relations", "get_tail_entities", "get_head_entities", "link_entities",
        "find_relation", "execute_logical_form", "search_types", "search_graph_patterns", "execute_sparql",
        "node_relations", "entity_distance", "describe", "follow_path", "fly", "__class__", "",
    ]  # fmt: skip
    fields = [
        "entity", "relation", "question", "query", "expression", "sparql", "semantic", "node", "set_a",
        "set_b", "path", "relations", "return", "max_distance", "limit", "offset", "gate", "tau_high",
        "top_k", "timeout_s", "now",
    ]  # fmt: skip

    def action() -> dict[str, object]:
        chosen = {field: dice.choice(values) for field in dice.sample(fields, dice.randint(0, 6))}
        return {"action": dice.choice([*names, *values]), **chosen}

    return _actions("arguments", [action() for _ in range(dice.randint(1, 30))])


def _malformed(dice: random.Random) -> Attack:
    """Bodies that are no JSON, or more of it than is good."""
    depth = dice.choice([100, 1000, 100_000])
    bodies = [
        b"",
        b"{",
        b"[" * depth,
        b'{"actions":' * (depth // 10),
        b'{"actions": ' + b"[" * depth + b"]" * depth + b"}",
        b'{"actions": [' + b"[]," * 200_000 + b"[]]}",
        b'{"actions": [{"action": "\xff\xfe"}]}',
        b'{"actions": [{"action": "\\ud800"}]}',
        b'{"actions": [{"limit": ' + b"9" * depth + b"}]}",
        b'{"actions": [], "actions": 7}',
        b'{"actions": NaN}',
        b"\x00" * depth,
        bytes(dice.randrange(256) for _ in range(2000)),
        b" " * (9 * 2**20),
    ]
    return Attack(
        "malformed", path=ACTIONS, headers=(("Content-Type", b"application/json"),), body=dice.choice(bodies)
    )


def _raw(dice: random.Random) -> Attack:
    """What is hardly HTTP, in part from one who has a key."""
    key = b"X-API-Key: %s\r\n" % KEY.encode()
    post = b"POST /v1/kg/films/actions HTTP/1.1\r\nHost: x\r\n" + key
    requests = [
        b"\x16\x03\x01\x02\x00\x01\x00",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /v1/kg HTTP/1.1\r\nHost: x\r\n" + b"X: y\r\n" * 5000 + b"\r\n",
        b"GET /v1/kg HTTP/1.1\r\nHost: x\r\nX: " + b"y" * 300_000 + b"\r\n\r\n",
        b"GET /" + b"x" * 200_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n",
        post + b"Content-Length: 99999999999999\r\n\r\n{",
        post + b"Content-Length: -1\r\n\r\n{}",
        post + b"Content-Length: 5\r\nContent-Length: 6\r\n\r\n{}",
        post + b"Content-Length: 10\r\n\r\n{",  # never sends the rest
        post + b"Transfer-Encoding: chunked\r\n\r\nZZ\r\n",
        post + b"Transfer-Encoding: chunked\r\n\r\nffffffffff\r\n{",
        post + b"Content-Length: 2\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        post + b"Expect: 100-continue\r\nContent-Length: 2\r\n\r\n",
        bytes(dice.randrange(256) for _ in range(500)),
    ]
    return Attack("raw", raw=dice.choice(requests))
