"""ISP-KGR's reward of a linear episode, after Algorithm 2 (F.9) and F.8, apart from `kbqa.rewards`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

import pyoxigraph as ox

from kbqa.kg.sparql.dialect import lenient
from kbqa.kg.sparql.functions import FUNCTIONS
from kbqa.kg.sparql.guard import check_query
from kbqa.kg.sparql.prefixes import PREFIXES

D = 3  # the bound on distances
GOOD = Fraction(9, 10)  # the F1 from which the released code takes a result for the answers
_COUNT = re.compile(r"\(?\s*COUNT\s*\(\s*(DISTINCT\s+)?(\?\w+)\s*\)\s*(AS\s+\?\w+\s*)?\)?", re.IGNORECASE)
_EXTREME = re.compile(r"ORDER\s+BY.*LIMIT|\b(MAX|MIN)\s*\(", re.IGNORECASE | re.DOTALL)


class Gold:
    """The gold answers of a question.

    Attributes:
        sets: of names, each as right as the others; the first one is that of the data set's answers.
        names: all of them, and the ids of the entities that the data set calls so.

    Args:
        called: IRIs in angle brackets → what the data set calls them.
    """

    def __init__(self, golds: Iterable[Sequence[str]], called: Mapping[str, str]) -> None:
        self.sets = [_values(answers) for answers in golds]
        answers = set().union(*self.sets)
        self._answers = {_text(iri): label for iri, label in called.items() if label in answers}
        self._answers |= {answer: answer for answer in answers}
        self.names = set(self._answers)

    def name(self, names: set[str]) -> str:
        """The gold answer that goes by one of these names; if none does, one of them."""
        return min((self._answers[name] for name in names & self.names), default=min(names))


class Facts:
    """A graph in N-Triples, asked without `kbqa.kg`'s stores."""

    def __init__(self, lines: Iterable[str]) -> None:
        self._around: dict[str, set[str]] = {}
        self._store = ox.Store()
        self._labels: dict[str, set[str]] = {}
        text = "\n".join(lines)
        self._store.load(text.encode(), format=ox.RdfFormat.N_TRIPLES)
        for quad in self._store:
            subject, value = str(quad.subject), str(quad.object)
            if quad.predicate.value.endswith(("type.object.name", "rdf-schema#label")):
                self._labels.setdefault(subject, set()).add(quad.object.value)
            self._around.setdefault(subject, set()).add(value)
            self._around.setdefault(value, set()).add(subject)

    def names(self, term: str) -> set[str]:
        """The labels of a term, and its id, or its text if it is a value."""
        return {*self._labels.get(term, ()), _text(term)}

    def nodes(self, names: set[str]) -> set[str]:
        """All nodes that go by one of these names."""
        return {node for node in self._around if self.names(node) & names}

    def ask(self, query: str) -> set[str] | bool:
        """The values that a query finds."""
        found = self._store.query(lenient(check_query(query)).text, custom_functions=FUNCTIONS)
        if isinstance(found, ox.QueryBoolean):
            return bool(found)
        return {str(term) for solution in found for term in solution if term is not None}

    def answers(self, query: str, gold: Gold) -> set[str]:
        """The names of what a query finds, of each the one that is gold; the yes or no of an ASK."""
        found = self.ask(query)
        if isinstance(found, bool):
            return {str(found).lower()}
        return {gold.name(self.names(value)) for value in found}

    def near(self, one: Iterable[str], other: set[str]) -> Fraction:
        """DIST: max(0, (D - d) / D). Exact, as what comes no nearer is no progress."""
        reached = set(one)
        for distance in range(D):
            if reached & other:
                return Fraction(D - distance, D)
            reached = reached | {n for node in reached for n in self._around.get(node, ())}
        return Fraction(0)


def isp_kgr(
    steps: Sequence[tuple[str | None, str]],
    topics: Sequence[str],
    gold: Gold,
    f1: float,
    facts: Facts,
    *,
    released: bool,
) -> float:
    """The sum of an episode's step rewards; every step is well formed.

    Args:
        steps: each a node that is explored, or None, and a query.
        topics: IRIs in angle brackets.
        f1: of the answers at the end.
    """
    w_progress, w_outcome = (0.3, 0.6) if released else (0.6, 0.3)
    answers, ends = sorted(gold.sets[0]), facts.nodes(gold.names)
    count = int(answers[0]) if len(answers) == 1 and re.fullmatch(r"\d{1,9}", answers[0]) else None
    superlative = _EXTREME.search(steps[-1][1]) is not None
    known = {topic: facts.near([topic], ends) for topic in topics}  # S_map
    previous, total, asked = Fraction(0), 0.0, set()
    for node, query in steps:
        explored = False
        if node is not None:
            name = node if node[0] == "?" else _iri(node)
            explored = name in known
            total += _step(0.0 if explored else -1.0, f1, w_progress, w_outcome)
            previous = known[name] if explored else previous
        found = facts.ask(query)
        if found == set() or query in asked:
            total += _step(-1.0, f1, w_progress, w_outcome)
            continue
        asked.add(query)
        values = set() if isinstance(found, bool) else found
        names = {gold.name(facts.names(value)) for value in values}
        quality = max(_f1(names, one) for one in gold.sets)
        counts = count is not None and _COUNT.search(query.partition("{")[0]) is not None
        if counts:
            inner = facts.ask(_COUNT.sub(r"\1\2", query, count=1))
            score = Fraction(isinstance(inner, set) and len(inner) == count)
        elif superlative and any(one <= names for one in gold.sets):
            score = Fraction(1) if names in gold.sets else Fraction(D - 1, D)
        else:
            score = Fraction(1) if quality else facts.near(values, ends)
        if released and quality:
            score = Fraction(1) if quality >= GOOD else (1 + quality) / 2
        if counts:
            progress = float(score == 1)
        elif released and not explored:
            progress = float(quality >= GOOD)
        else:
            progress = float(score > previous)
        total += _step(progress, f1, w_progress, w_outcome)
        previous = score
        for name in _selected(query):
            known[name] = max(score, known.get(name, 0.0))
    return total + _step(0.0, f1, w_progress, w_outcome)


def _step(progress: float, f1: float, w_progress: float, w_outcome: float) -> float:
    return 0.1 + w_progress * progress + w_outcome * f1 * (progress >= 0)


def _f1(found: set[str], gold: set[str]) -> Fraction:
    """F1 of names; case does not count."""
    one, other = ({name.casefold() for name in names} for names in (found, gold))
    return Fraction(2 * len(one & other), len(one) + len(other)) if one & other else Fraction(0)


def _values(answers: Iterable[str]) -> set[str]:
    return {answer.removeprefix("+") for answer in answers}


def _iri(node: str) -> str:
    """The IRI of a node of a query, in angle brackets."""
    prefix, _, local = node.partition(":")
    return f"<{PREFIXES[prefix]}{local}>" if prefix in PREFIXES else f"<{node}>"


def _text(term: str) -> str:
    """The text of a value; the id of an entity."""
    if literal := re.match(r'"(.*)"', term, re.DOTALL):
        return literal[1]
    iri = term.strip("<>")
    return re.sub(r"^http://(rdf\.freebase\.com/ns|www\.wikidata\.org/entity)/", "", iri)


def _selected(query: str) -> set[str]:
    head = query[: query.index("{")]
    head = head[head.upper().rindex("SELECT") :] if "SELECT" in head.upper() else ""
    return set(re.findall(r"AS\s+(\?\w+)", head, re.IGNORECASE)) or set(re.findall(r"\?\w+", head))
