"""Witness graphs: small graphs on which a gold query must return its gold answers, and nothing else.

Of Freebase, whose dump no test can load, the queries themselves say what it has to hold.
A witness instantiates a query's pattern once per answer (once per counted thing), with
invented ids for its variables and values that meet its filters, typed as the dump types
them: days are xsd:date and years xsd:gYear, whatever the query calls them. Beside that
stand distractors: the pattern with one triple missing, with a value on the wrong side
of a filter or behind in the order, or bound to what a filter excludes.

The queries are read by a parser of this module's own, which knows the shapes of CWQ and
GrailQA and nothing of `kbqa.kg`, so that it cannot share a mistake with what it tests.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

XSD = "http://www.w3.org/2001/XMLSchema#"
FREEBASE = "http://rdf.freebase.com/ns/"

_TOKEN = re.compile(
    r"""<[^>\s]*> | \#[^\n]* | "(?:[^"\\]|\\.)*" (?: \^\^(?:<[^>]*>|\w+:\w+) | @[\w-]+ )? | '[^']*'
      | \?\w+ | \w*:(?:[\w.-]*[\w-])? | [\w]+ | \|\| | && | [<>!]=? | [^\s]""",
    re.VERBOSE,
)
_LITERAL = re.compile(r'"(?P<text>.*)"\^\^(?:xsd:|<' + XSD + r")(?P<type>\w+)>?", re.DOTALL)
_DATE = re.compile(r"(\d{4})((?:-\d\d)?)((?:-\d\d)?)(?:-08:00)?")
_CLASS = ":type.object.type"
_TYPES = {4: "gYear", 7: "gYearMonth", 10: "date"}

# They name a thing by what it has (`?c ns:location.country.currency_used ns:m.0b423v`) and ask
# for all that it has so (`?c ns:location.country.currency_used ?x`): the named one is an answer
# by SPARQL, on any graph, though the data set leaves it out.
ANSWERED_BY_WHAT_THEY_NAME = {
    "WebQTest-1528_4599452026541030cf9501fbe153fa1e",
    "WebQTest-1603_38a6be99c929582756a9a7019d8a8ef9",
    "WebQTest-1603_c0228581809788c617b45f1c43535436",
    "WebQTest-1840_c00f449746ccac175d49bbcd8f9c7757",
    "WebQTest-1923_60c98dd577b89e982f0432c395e26743",
    "WebQTest-534_0fca6c57b860f8b3ab53d092652cb048",
    "WebQTest-537_b934936c418a21861f71d9d67dbb7d7b",
    "WebQTrn-1521_ea85cbb9b031dd740882914f30533648",
    "WebQTrn-2047_6d4448f6a30576186670b7bd2be505db",
    "WebQTrn-2057_8a53ef8199d789102fab4d503857c0db",
    "WebQTrn-2069_20f08f012745c0876649db86bc922a96",
    "WebQTrn-2100_faefa67fba5946fa87b438a6df0b8e63",
    "WebQTrn-2209_7bc37f5ea0bc419b7ee5510daff240df",
    "WebQTrn-2209_a031d7238f92d1a0cb027f0118f36510",
    "WebQTrn-2478_76926adb8d69a10516897671bc45b2ec",
    "WebQTrn-25_64dcfc659ae9ffee5e555443282b4e1f",
    "WebQTrn-2748_f62c4564039c2c0497f1bf14b6d5bbc8",
    "WebQTrn-2875_3d4ecc1165ae1c21499afb8f7b9e25a3",
    "WebQTrn-3057_1315945fdcb4fad1310ab7862120be0f",
    "WebQTrn-3057_87afbf2481df60df8476b920f00c4247",
    "WebQTrn-3376_0619d288bbed0ca782e60c6f841a6051",
    "WebQTrn-3384_1ad460cd0410838a2d94b2dd7bd93efe",
    "WebQTrn-372_301c8094ece19fea6abf81373a2cb78d",
    "WebQTrn-3766_cb21e01db360ce345ff98f5f2ac4b3e8",
    "WebQTrn-750_bb35e9b8023fbf9c05df55b4245a4775",
}

Triple = tuple[str, str, str]


class UnknownShapeError(Exception):
    """A query that this module cannot read."""


@dataclass
class Pattern:
    """What a query asks, as far as its witness needs it.

    Attributes:
        answer: the variable that is asked for; `counts` whether for the number of its values.
        triples: of names as written, IRIs, variables and literals; of a union, the first branch.
        fixed: values that VALUES gives to variables.
        bounds: (variable, sign, literal or number), and whether a variable may lack it: then
            with the triple (subject, relation) that holds the value.
        smaller: pairs of variables, the first of which holds the earlier date.
        excluded: what the answer must not be.
        texts: variables of which the text is given.
        order: the variable by which the first is taken, its cast, and whether it is the greatest.
    """

    answer: str = ""
    counts: bool = False
    triples: list[Triple] = field(default_factory=list)
    fixed: dict[str, str] = field(default_factory=dict)
    bounds: list[tuple[str, str, str]] = field(default_factory=list)
    optional_bounds: list[tuple[Triple, str, str]] = field(default_factory=list)
    smaller: list[tuple[str, str]] = field(default_factory=list)
    excluded: list[str] = field(default_factory=list)
    texts: dict[str, str] = field(default_factory=dict)
    order: tuple[str, str, bool] | None = None


@dataclass(frozen=True)
class Witness:
    """Triples in N-Triples, and the values that the query must return on them: IRIs or a count."""

    triples: frozenset[str]
    expected: frozenset[str]


def read(sparql: str) -> Pattern:
    """What a query of CWQ or GrailQA asks.

    Raises:
        UnknownShapeError: it is of another shape.
    """
    tokens = [token for token in _TOKEN.findall(sparql) if not token.startswith("#")]
    start = next(i for i, token in enumerate(tokens) if token.upper() == "SELECT")
    pattern = Pattern()
    _Reader(tokens, pattern).select(start)
    return pattern


class _Reader:
    def __init__(self, tokens: Sequence[str], pattern: Pattern) -> None:
        self._tokens, self._pattern = tokens, pattern

    def select(self, i: int) -> int:
        opening = self._tokens.index("{", i)
        head = [
            token for token in self._tokens[i + 1 : opening] if token.upper() not in ("DISTINCT", "WHERE")
        ]
        aggregate = head[1].upper() if head[0] == "(" else ""
        if aggregate in ("MAX", "MIN"):
            # Of the same pattern over variables of its own: the value is the greatest of all.
            self._pattern.order = (head[-2], "", aggregate == "MAX")
            return self._closing(opening) + 1
        if aggregate == "COUNT":
            self._pattern.counts = True
        self._pattern.answer = self._pattern.answer or next(token for token in head if token[0] == "?")
        return self._modifiers(self._group(opening))

    def _modifiers(self, i: int) -> int:
        if i < len(self._tokens) and self._tokens[i].upper() == "ORDER":
            end = next(j for j in range(i, len(self._tokens)) if self._tokens[j].upper() == "LIMIT")
            key = self._tokens[i + 2 : end]
            variable = next(token for token in key if token[0] == "?")
            cast = next((token for token in key if token.startswith("xsd:")), "")
            self._pattern.order = (variable, cast.lower(), key[0].upper() == "DESC")
            return end + 2
        return i

    def _group(self, i: int) -> int:
        """Reads from an opening brace; returns what is behind its closing one."""
        i += 1
        subject, relation = "", ""
        while self._tokens[i] != "}":
            token = self._tokens[i]
            if token.upper() == "SELECT":
                i = self.select(i)
            elif token == "{":
                i = self.select(i + 1) + 1 if self._tokens[i + 1].upper() == "SELECT" else self._group(i)
            elif token.upper() == "UNION":
                i = self._closing(i + 1) + 1
            elif token.upper() == "FILTER":
                close = self._closing(i + 1)
                self._filter(self._tokens[i + 2 : close])
                i = close + 1
            elif token.upper() == "VALUES":
                self._pattern.fixed[self._tokens[i + 1]] = self._tokens[i + 3]
                i += 5
            elif token in ".;":
                i += 1
            else:
                if self._tokens[i - 1] == ";":
                    relation, value = self._tokens[i : i + 2]
                    i += 2
                else:
                    subject, relation, value = self._tokens[i : i + 3]
                    i += 3
                self._pattern.triples.append((subject, relation, value))
        return i + 1

    def _closing(self, i: int) -> int:
        depth = 0
        for j in range(i, len(self._tokens)):
            depth += (self._tokens[j] in "({") - (self._tokens[j] in ")}")
            if depth == 0:
                return j
        raise UnknownShapeError("a bracket that does not close")

    def _filter(self, tokens: Sequence[str]) -> None:
        text = " ".join(tokens)
        pattern = self._pattern
        if "EXISTS" in tokens:
            found = re.search(
                r"\|\| EXISTS { (\S+) (\S+) (\S+) \. FILTER \( \S+ \( \S+ \) (\S+) (\S+) \) }", text
            )
            if found is None:
                raise UnknownShapeError(text)
            pattern.optional_bounds.append(((found[1], found[2], found[3]), found[4], found[5]))
        elif text.startswith("! isLiteral"):
            pass  # the answers are entities
        elif found := re.fullmatch(r'str \( (\?\w+) \) = (".*")', text):
            pattern.texts[found[1]] = found[2]
        elif found := re.fullmatch(r"\S+ \( (\?\w+) \) - \S+ \( (\?\w+) \) < 0", text):
            pattern.smaller.append((found[1], found[2]))
        elif "!=" in tokens:
            for left, right in re.findall(r"(\S+) != (\S+)", text):
                pattern.excluded += [right] if left == pattern.answer and right[0] not in '?"' else []
        elif found := re.fullmatch(r"(\?\w+) ([<>]) (\?\w+)", text):
            pattern.smaller.append((found[1], found[3]) if found[2] == "<" else (found[3], found[1]))
        elif found := re.fullmatch(r"(?:\S+ \( )?(\?\w+)(?: \))? ([<>]=?) (\S+)", text):
            pattern.bounds.append((found[1], found[2], found[3]))
        else:
            raise UnknownShapeError(text)


def build(pattern: Pattern, answers: Sequence[str], *, classes_between: bool = True) -> Witness:
    """A graph on which `pattern` has exactly these answers.

    Args:
        answers: ids of Freebase; of a query that counts, the number alone.
        classes_between: whether what lies between the question's entities and an answer may lack its class;
            a logical form names the class of its answers only.
    """
    builder = _Builder(pattern, classes_between)
    entities = [f"m.w{i}" for i in range(int(answers[0]))] if pattern.counts else list(answers)
    for entity in entities:
        builder.instance(f"ns:{entity}")
    builder.distract()
    expected = list(answers) if pattern.counts else [FREEBASE + entity for entity in answers]
    return Witness(frozenset(builder.lines), frozenset(expected))


class _Builder:
    def __init__(self, pattern: Pattern, classes_between: bool) -> None:
        self._pattern, self._classes_between = pattern, classes_between
        self._instances = 0
        self.lines: set[str] = set()

    def instance(
        self, answer: str, *, missing: Triple | None = None, wrong: str = "", last: bool = False
    ) -> None:
        """The pattern with ids of its own.

        Args:
            missing: a triple that is left out.
            wrong: a variable that breaks its filter.
            last: whether its value comes behind in the order.
        """
        pattern = self._pattern
        self._instances += 1
        bound = {pattern.answer: answer} | pattern.fixed
        bound |= {variable: f"{text}@en" for variable, text in pattern.texts.items()}
        for early, late in pattern.smaller:
            bound[early], bound[late] = _date("1940-05-17"), _date("1944")
        for variable, sign, limit in pattern.bounds:
            bound[variable] = _beside(limit, sign, wrong == variable)
        if pattern.order is not None:
            variable, cast, greatest = pattern.order
            bound[variable] = _ordered(cast, greatest != last)
        for triple in pattern.triples:
            if triple is not missing:
                self._add(triple, bound)
        for triple, sign, limit in pattern.optional_bounds:
            # A fact without dates is true at any time: every other instance has none.
            if wrong == triple[2]:
                self._add(triple, bound | {triple[2]: _beside(limit, sign, True)})
            elif self._instances % 2:
                self._add(triple, bound | {triple[2]: _beside(limit, sign, False)})

    def distract(self) -> None:
        pattern = self._pattern
        for number, triple in enumerate(self._necessary()):
            self.instance(f"ns:m.missing{number}", missing=triple)
        if self._shared():
            return
        connected = self._connected()
        bounded = [(variable, variable) for variable, *_ in pattern.bounds]
        bounded += [(triple[0], triple[2]) for triple, *_ in pattern.optional_bounds]
        for variable in (variable for holder, variable in bounded if holder in connected):
            self.instance(f"ns:m.wrong{variable[1:]}", wrong=variable)
        for constant in pattern.excluded:
            self.instance(constant)
        if pattern.order is not None and pattern.order[0] in connected:
            self.instance("ns:m.last", last=True)

    def _connected(self) -> set[str]:
        """Variables that chains of variables connect with the answer: those of an instance go together."""
        found, before = {self._pattern.answer}, 0
        while len(found) > before:
            before = len(found)
            for subject, _, value in self._pattern.triples:
                ends = {end for end in (subject, value) if end[0] == "?" and end not in self._pattern.fixed}
                if ends & found:
                    found |= ends
        return found

    def _necessary(self) -> Iterator[Triple]:
        """Triples without which an instance is no match: no other one can stand in."""
        connected = self._connected()
        for triple in self._pattern.triples:
            stands_in = any(
                other is not triple
                and other[1] == triple[1]
                and (other[2] == triple[2] or "?" in (other[2][0], triple[2][0]))
                for other in self._pattern.triples
            )
            if triple[1].endswith(_CLASS) and triple[0] != self._pattern.answer:
                stands_in = stands_in or not self._classes_between
            if not stands_in and connected.intersection((triple[0], triple[2])):
                yield triple

    def _shared(self) -> bool:
        """Whether a relation occurs twice about the same thing, so that instances could mix."""
        pairs = [(triple[1], end) for triple in self._pattern.triples for end in {triple[0], triple[2]}]
        return len(set(pairs)) < len(pairs)

    def _add(self, triple: Triple, bound: dict[str, str]) -> None:
        terms = []
        for term in triple:
            if term[0] == "?":
                term = bound.get(term, f"<http://witness.example/{term[1:]}{self._instances}>")
            terms.append(as_dumped(term))
        self.lines.add(" ".join(terms) + " .")


def as_dumped(term: str) -> str:
    """A term in N-Triples, dates typed as Freebase's dump types them."""
    if term[0] not in '"<':
        return f"<{FREEBASE}{term.partition(':')[2]}>"
    literal = _LITERAL.fullmatch(term)
    if literal is None:
        return term
    if (date := _DATE.fullmatch(literal["text"])) and literal["type"] in ("dateTime", "date"):
        return _date("".join(date.groups()))
    return f'"{literal["text"]}"^^<{XSD}{literal["type"]}>'


def _date(text: str) -> str:
    return f'"{text}"^^<{XSD}{_TYPES[len(text)]}>'


def _beside(limit: str, sign: str, wrong: bool) -> str:
    """A value that meets a filter, or that just does not."""
    step = 0 if "=" in sign and not wrong else 1
    if (sign[0] == "<") != wrong:
        step = -step
    literal = _LITERAL.fullmatch(limit)
    if literal is None:
        return f'"{int(limit) + step}"'  # numbers of the dump have no type
    if date := _DATE.fullmatch(literal["text"]):
        return _date(f"{int(date[1]) + step:04}{date[2]}{date[3]}")
    return f'"{float(literal["text"]) + step}"^^<{XSD}{literal["type"]}>'


def _ordered(cast: str, great: bool) -> str:
    if cast == "xsd:integer":
        return '"1000"' if great else '"999"'
    if cast == "xsd:float":
        return '"1000.5"' if great else '"999.5"'
    return _date("1987-06-05") if great else _date("1986")
