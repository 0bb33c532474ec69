"""ISP-KGR's reward of a linear episode, after Algorithm 2 (F.9) and F.8, apart from `kbqa.rewards`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import pyoxigraph as ox

from kbqa.kg.sparql.dialect import lenient
from kbqa.kg.sparql.functions import FUNCTIONS
from kbqa.kg.sparql.guard import check_query

D = 3  # the bound on distances
_COUNT = re.compile(r"\(?\s*COUNT\s*\(\s*(DISTINCT\s+)?(\?\w+)\s*\)\s*(AS\s+\?\w+\s*)?\)?", re.IGNORECASE)
_EXTREME = re.compile(r"ORDER\s+BY.*LIMIT|\b(MAX|MIN)\s*\(", re.IGNORECASE | re.DOTALL)


class Facts:
    """A graph in N-Triples, asked without `kbqa.kg`'s stores."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._around: dict[str, set[str]] = {}
        self._store = ox.Store()
        text = "\n".join(lines)
        self._store.load(text.encode(), format=ox.RdfFormat.N_TRIPLES)
        for quad in self._store:
            subject, value = str(quad.subject), str(quad.object)
            self._around.setdefault(subject, set()).add(value)
            self._around.setdefault(value, set()).add(subject)

    def ask(self, query: str) -> set[str] | bool:
        """The values that a query finds."""
        found = self._store.query(lenient(check_query(query)).text, custom_functions=FUNCTIONS)
        if isinstance(found, ox.QueryBoolean):
            return bool(found)
        return {str(term) for solution in found for term in solution if term is not None}

    def near(self, one: Iterable[str], other: set[str]) -> float:
        """DIST: max(0, (D - d) / D)."""
        reached = set(one)
        for distance in range(D):
            if reached & other:
                return (D - distance) / D
            reached = reached | {n for node in reached for n in self._around.get(node, ())}
        return 0.0


def isp_kgr(
    steps: Sequence[tuple[str | None, str]],
    topics: Sequence[str],
    gold: set[str],
    count: int | None,
    f1: float,
    facts: Facts,
    *,
    released: bool,
) -> float:
    """The sum of an episode's step rewards; every step is well formed.

    Args:
        steps: each a node that is explored, or None, and a query.
        topics, gold: as they stand in the facts.
        count: the gold answer, if it is a number.
        f1: of the answers at the end.
    """
    w_progress, w_outcome = (0.3, 0.6) if released else (0.6, 0.3)
    superlative = _EXTREME.search(steps[-1][1]) is not None
    known = {topic: facts.near([topic], gold) for topic in topics}  # S_map
    previous, total, asked = 0.0, 0.0, set()
    for node, query in steps:
        explored = False
        if node is not None:
            name = node if node[0] == "?" else f"<{node}>"
            explored = name in known
            total += _step(0.0 if explored else -1.0, f1, w_progress, w_outcome)
            previous = known[name] if explored else previous
        found = facts.ask(query)
        if found == set() or query in asked:
            total += _step(-1.0, f1, w_progress, w_outcome)
            continue
        asked.add(query)
        values = set() if isinstance(found, bool) else found
        counts = count is not None and _COUNT.search(query.partition("{")[0]) is not None
        if counts:
            inner = facts.ask(_COUNT.sub(r"\1\2", query, count=1))
            score = float(isinstance(inner, set) and len(inner) == count)
        elif superlative and gold <= values:
            score = 1.0 if values == gold else (D - 1) / D
        else:
            score = facts.near(values, gold)
        quality = _f1(found, gold)
        if released and quality:
            score = 1.0 if quality >= 0.9 else 0.5 + 0.5 * quality
        if counts:
            progress = float(score == 1.0)
        elif released and not explored:
            progress = float(quality >= 0.9)
        else:
            progress = float(score > previous)
        total += _step(progress, f1, w_progress, w_outcome)
        previous = score
        for name in _selected(query):
            known[name] = max(score, known.get(name, 0.0))
    return total + _step(0.0, f1, w_progress, w_outcome)


def _step(progress: float, f1: float, w_progress: float, w_outcome: float) -> float:
    return 0.1 + w_progress * progress + w_outcome * f1 * (progress >= 0)


def _f1(found: set[str] | bool, gold: set[str]) -> float:
    values = {str(found).lower()} if isinstance(found, bool) else found
    right = len(values & gold)
    return 2 * right / (len(values) + len(gold)) if right else 0.0


def _selected(query: str) -> set[str]:
    head = query.partition("{")[0].upper().rpartition("SELECT")[2]
    at = query.upper().find(head)
    named = re.findall(r"AS\s+(\?\w+)", query[at : at + len(head)], re.IGNORECASE)
    return set(named) or set(re.findall(r"\?\w+", query[at : at + len(head)]))
