"""Witnesses of QALD-10's queries over Wikidata, whose shapes are too many for a builder by rules.

The patterns of a query are filled in with invented entities and drawn values until a SPARQL engine says
that the query has its gold answers. A distractor lacks one of the triples.
"""

from __future__ import annotations

import random
import re
from collections.abc import Iterator, Sequence
from typing import Any

import pyoxigraph as ox

from kbqa.kg.sparql.prefixes import PREFIXES
from tests.witnesses import Pattern, UnknownShapeError

_DRAWS = 1000
_XSD = "http://www.w3.org/2001/XMLSchema#"
_TOKEN = re.compile(
    r"""<[^>\s]*> | "(?:[^"\\]|\\.)*" (?:\^\^(?:<[^>]*>|\w+:\w+)|@[\w-]+)? | '[^']*' | \?\w+ | _:\w+
      | [A-Za-z]*:[\w-]+ | \w+ | \|\| | && | [<>!]=? | [^\s]""",
    re.VERBOSE,
)
_TERM = re.compile(r"<[^>\s]*>|\"|'|\?\w|_:|[A-Za-z]*:\w")
# What a witness is drawn for, and a logical form has no operator for.
_MORE = re.compile(
    r"\b(FILTER|BIND|MINUS|UNION|OPTIONAL|HAVING|GROUP|ORDER|ASK|SUM|AVG|MAX|MIN|LIMIT)\b|[*+|]",
    re.IGNORECASE,
)
_TRIPLE = tuple[str, str, str]
_NOT_GROUPS = {"FILTER", "BIND", "MINUS", "VALUES", "HAVING", "SELECT", "ORDER", "GROUP", "LIMIT", "OFFSET"}


def wikidata_witness(record: dict[str, Any]) -> frozenset[str] | None:
    """Facts on which a query of QALD-10 has its gold answers; None if none are found."""
    query = record["query"]["sparql"]
    answers = list(_answers(record["answers"]))
    rng = random.Random(str(record["id"]))
    builder = _Builder(query, f"Q9{int(record['id']):03}", " ".join(answers))
    for draw in range(_DRAWS):
        lines = builder.facts(answers, rng, draw)
        if _suits(query, lines, answers):
            distracted = lines | builder.distractor(rng)
            return frozenset(distracted if _suits(query, distracted, answers) else lines)
    return None


def wikidata_pattern(query: str) -> Pattern:
    """What a query asks, if it is no more than triples.

    Raises:
        UnknownShapeError: it is more than triples.
    """
    builder = _Builder(query, "Q9")
    if _MORE.search(builder.body):
        raise UnknownShapeError("no logical form: the query is more than triples")
    return builder.pattern()


def _answers(results: Sequence[dict[str, Any]]) -> Iterator[str]:
    for result in results:
        if "boolean" in result:
            yield str(result["boolean"]).lower()
            continue
        for binding in result["results"]["bindings"]:
            for term in binding.values():
                yield _term(term)


def _term(term: dict[str, str]) -> str:
    if term["type"] == "uri":
        return str(ox.NamedNode(term["value"]))
    if "datatype" in term:
        value = term["value"].removeprefix("+")  # as engines return numbers
        return str(ox.Literal(value, datatype=ox.NamedNode(term["datatype"])))
    return str(ox.Literal(term["value"], language=term.get("xml:lang")))


def _suits(query: str, lines: set[str], answers: Sequence[str]) -> bool:
    """Whether the query has its answers on these facts, at any engine."""
    kinds: dict[str, set[str]] = {}
    for line in lines:
        _, relation, value = line.removesuffix(" .").split(" ", 2)
        if typed := re.fullmatch(r'".*"\^\^<(.*)>', value):
            kinds.setdefault(relation, set()).add(typed[1])
    # A number is neither before nor after a day, but Virtuoso orders them.
    uniform = all(len(found) == 1 for found in kinds.values())
    return uniform and all(_found(one, lines) == sorted(set(answers)) for one in _ties_broken(query))


def _ties_broken(query: str) -> Sequence[str]:
    """The query, and what is cut by its order with equal things in one order and in the other."""
    cut = re.search(r"ORDER\s+BY.*?(?=\b(?:LIMIT|OFFSET)\b)", query, re.IGNORECASE | re.DOTALL)
    if cut is None:
        return [query]
    *_, variable = re.findall(r"SELECT\s+(?:DISTINCT\s+)?(\?\w+)", query[: cut.start()], re.IGNORECASE)
    ways = (f"{way}(STR({variable})) " for way in ("ASC", "DESC"))
    return [query, *(query[: cut.end()] + way + query[cut.end() :] for way in ways)]


def _found(query: str, lines: set[str]) -> list[str]:
    store = ox.Store()
    store.load("\n".join(lines).encode(), format=ox.RdfFormat.N_TRIPLES)
    try:
        found = store.query(query, prefixes=PREFIXES)
    except (SyntaxError, OSError, RuntimeError):
        return ["the query does not run"]
    if isinstance(found, ox.QueryBoolean):
        return [str(bool(found)).lower()]
    return sorted({str(term) for solution in found for term in solution if term is not None})


class _Builder:
    def __init__(self, query: str, node: str, answers: str = "") -> None:
        self._node, self._made = node, 0
        self._prefixes = PREFIXES | dict(re.findall(r"PREFIX\s+(\w*):\s*<([^>]*)>", query, re.IGNORECASE))
        body = re.sub(r"PREFIX\s+\S*\s*<[^>]*>", " ", query, flags=re.IGNORECASE)
        body = re.sub(r"\[([^][]+)\]", r"?unnamed . ?unnamed \1", body)  # a node without a name ends a triple
        self.body = body
        self._tokens = _TOKEN.findall(body)
        # A query that only says what must not be there has an answer by what is there, or by nothing.
        self._triples = list(self._patterns()) or list(self._patterns(negated=True))
        # Numbers that the query or its answers name are likely bounds.
        named = [int(n) for n in re.findall(r"(?<![\w.])\d+", re.sub(r"<[^>]*>", " ", f"{body} {answers}"))]
        self._numbers = [-900, -1, 1, 2, 5, 40, 2500, 300000, *named, *(n + 1 for n in named)]
        self._years = [n for n in named if 1000 <= n <= 2030]
        among = re.search(r"(\?\w+)\s+IN\s*\(([^)]*)\)", body)
        self._among = (among[1], among[2].split(",")) if among else None
        self._dated = set(re.findall(r"(?:YEAR|MONTH|DAY)\s*\(\s*(\?\w+)", body, re.IGNORECASE))
        equations = body.replace("!=", " ")
        compared = re.findall(r"(\?\w+)\s*\)?\s*(?=[-+<>=])|(?<=[-+<>=])\s*\(?\s*(\?\w+)", equations)
        ordered = re.findall(r"(?:ASC|DESC|SUM|AVG|MAX|MIN)\s*\(\s*(\?\w+)", body, re.IGNORECASE)
        self._measured = {name for pair in compared for name in pair if name} | set(ordered)
        counted = re.search(r"COUNT\s*\(\s*(?:DISTINCT\s+)?(\?\w+)", body, re.IGNORECASE)
        self._counted = counted[1] if counted else ""
        selected = re.search(r"SELECT\s+(?:DISTINCT\s+)?(\?\w+)", body, re.IGNORECASE)
        self._answer = selected[1] if selected else ""
        summed = re.search(r"\(\s*(?:SUM|AVG|MAX|MIN)\s*\(\s*(\?\w+)", body, re.IGNORECASE)
        self._summed = summed[1] if summed else ""
        spoken = re.search(r"BIND\s*\(\s*LANG\s*\(\s*(\?\w+)\s*\)\s*AS\s*(\?\w+)", body, re.IGNORECASE)
        self._spoken, self._language = spoken.groups() if spoken else ("", "")
        matched = re.search(r"REGEX\s*\(\s*(\?\w+)\s*,\s*\"\^?(\w+)\$?\"", body, re.IGNORECASE)
        self._matched = {matched[1]: f'"{matched[2]}"'} if matched else {}

    def pattern(self) -> Pattern:
        """The triples, with those of paths one by one."""
        triples: list[_TRIPLE] = []
        for number, (subject, path, value) in enumerate(self._triples):
            steps = path.split("/")
            nodes = [subject, *(f"?step{number}_{i}" for i in range(1, len(steps))), value]
            triples += zip(nodes, steps, nodes[1:], strict=False)
        return Pattern(self._counted or self._answer, bool(self._counted), triples)

    def facts(self, answers: Sequence[str], rng: random.Random, draw: int) -> set[str]:
        """A graph that may have the answers."""
        if any(self._answer in (s, o) for s, _, o in self._triples) and self._answer:
            instances = [{self._answer: answer} for answer in answers]
        elif self._language and self._language == self._answer:
            instances = [{self._spoken: f'"a name"@{answer.strip(chr(34))}'} for answer in answers]
        elif self._counted and answers and (number := re.match(r'"(\d+)"', answers[0])):
            instances = [{} for _ in range(int(number[1]))]
        elif self._summed:
            instances = [{self._summed: answer} for answer in answers]
        else:
            instances = [{} for _ in range(1 + draw % 3)]
        lines: set[str] = set()
        same = dict(self._values(rng, equal=draw % 4 == 3)) if draw % 2 else {}
        for bound in instances:
            lines |= self._instance(dict(self._values(rng)) | same | bound)
        if draw % 5 == 4:
            lines |= self.distractor(rng)
        elif draw % 5 == 3:  # what comes first, if the query skips it
            lines |= self._instance(first := dict(self._values(rng)))
            if draw % 2 == 0 and self._answer in first:  # there are more of it
                lines |= self._instance(dict(self._values(rng)) | {self._answer: first[self._answer]})
        empty = not instances or answers in (["false"], []) or any(a.startswith('"0"') for a in answers)
        if empty and draw % 3 != 2 and self._triples:
            lines = self.distractor(rng)
        return lines

    def distractor(self, rng: random.Random) -> set[str]:
        """The pattern without one of its triples."""
        missing = rng.choice(self._triples) if self._triples else None
        return self._instance(dict(self._values(rng)), missing)

    def _values(self, rng: random.Random, *, equal: bool = False) -> Iterator[tuple[str, str]]:
        yield from ((value, '"a name"@en') for _, path, value in self._triples if path == "rdfs:label")
        yield from self._matched.items()
        year, number = 0, 0
        if self._among is not None and self._among[0] != self._answer:
            yield self._among[0], self._constant(rng.choice(self._among[1]).strip())
        for name in sorted(self._dated | self._measured):
            if not (equal and year):
                year, number = rng.choice([rng.randint(1450, 2022), *self._years]), rng.choice(self._numbers)
            if name in self._dated or rng.random() < 0.3:
                yield name, f'"{year}-05-17T00:00:00Z"^^<{_XSD}dateTime>'
            else:
                yield name, f'"{number}"^^<{_XSD}decimal>'

    def _instance(self, bound: dict[str, str], missing: _TRIPLE | None = None) -> set[str]:
        self._made += 1
        lines: set[str] = set()
        for triple in self._triples:
            if triple is not missing:
                subject, path, value = triple
                lines |= set(self._path(self._term(subject, bound), path, self._term(value, bound)))
        return {line for line in lines if not line.startswith('"')}

    def _path(self, subject: str, path: str, value: str) -> Iterator[str]:
        steps = re.split(r"/(?![^<]*>)", path.replace("(", "").replace(")", ""))
        # A step of any length is taken once, unless another step stands for it.
        needed = [step for step in steps if not step.endswith("*")] or [steps[0]]
        for number, step in enumerate(needed):
            self._made += number > 0
            following = value if number + 1 == len(needed) else self._fresh(f"step{number}")
            name = step.rstrip("*+?").partition("|")[0]
            ends = (following, subject) if name.startswith("^") else (subject, following)
            # Any relation will do for a variable.
            relation = f"wdt:P9{sum(map(ord, name))}" if name.startswith("?") else name.lstrip("^")
            yield f"{ends[0]} {self._constant(relation)} {ends[1]} ."
            subject = following

    def _term(self, term: str, bound: dict[str, str]) -> str:
        if term[0] == "?" or term.startswith("_:"):
            return bound.get(term) or bound.setdefault(term, self._fresh(term))
        return self._constant(term)

    def _fresh(self, name: str) -> str:
        number = sum(map(ord, name))
        return f"<http://www.wikidata.org/entity/{self._node}{self._made:04}{number:04}>"

    def _constant(self, term: str) -> str:
        if term.startswith("'"):
            return f'"{term[1:-1]}"'
        if term[0] in '<"':
            return term
        if term == "a":
            return "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
        prefix, _, local = term.partition(":")
        return f"<{self._prefixes[prefix]}{local}>"

    def _patterns(self, *, negated: bool = False) -> Iterator[_TRIPLE]:
        """The triples of all groups, those that must not match only if `negated`."""
        tokens, i = self._tokens, 0
        subject = relation = ""
        while i < len(tokens):
            word = tokens[i].upper()
            if not negated and (word == "MINUS" or (word == "NOT" and tokens[i + 1].upper() == "EXISTS")):
                i = self._closing(next(j for j in range(i, len(tokens)) if tokens[j] == "{")) + 1
            elif word in ("SELECT", "ASK"):
                i = next(j for j in range(i, len(tokens)) if tokens[j] == "{") + 1
            elif word in ("FILTER", "BIND", "HAVING", "YEAR") and tokens[i + 1] == "(":
                inner = self._tokens[i + 2 : self._closing(i + 1)]
                if "EXISTS" in (token.upper() for token in inner):
                    i += 2  # what has to exist is read like any group
                else:
                    i = self._closing(i + 1) + 1
            elif i + 2 < len(tokens) and _TERM.match(tokens[i]) and tokens[i - 1] != ",":
                if tokens[i - 1] not in ".{;}" and tokens[i - 1].upper() != "WHERE":
                    i += 1
                    continue
                if tokens[i - 1] != ";":
                    subject, i = tokens[i], i + 1
                relation, i = self._read_path(i)
                while i < len(tokens) and _TERM.match(tokens[i]):
                    yield subject, relation, tokens[i]
                    i += 1
                    if i < len(tokens) and tokens[i] == ",":
                        i += 1
                    else:
                        break
            else:
                i += 1

    def _read_path(self, i: int) -> tuple[str, int]:
        path, i = self._tokens[i], i + 1
        while self._tokens[i] in ("/", "*", "+", "|", "?", "(", ")") or path[-1] in "/|(^":
            path += self._tokens[i]
            i += 1
        return path, i

    def _closing(self, i: int) -> int:
        depth = 0
        for j in range(i, len(self._tokens)):
            depth += (self._tokens[j] in "({") - (self._tokens[j] in ")}")
            if depth == 0:
                return j
        return len(self._tokens) - 1
