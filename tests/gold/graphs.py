"""Witness graphs for whole data sets: the facts behind each question, packed into few graphs.

Questions share a graph only if none of their relations is the same, so that a question's facts are never
those of another one, and every gold query keeps its gold answers.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from kbqa.datasets import load_dataset
from kbqa.datasets.curation import curate
from kbqa.datasets.formats import Answers
from kbqa.kg.actions import GraphTools
from kbqa.kg.catalog import GraphCatalog
from kbqa.trajectory import Question
from tests.gold.wikidata import wikidata_pattern, wikidata_witness
from tests.witnesses import FREEBASE, Pattern, UnknownShapeError, build, read

NAME = f"<{FREEBASE}type.object.name>"
LABEL = "<http://www.w3.org/2000/01/rdf-schema#label>"
WRONG = "none of them"
"""The name of an entity that is no answer to any question."""

_XSD = "http://www.w3.org/2001/XMLSchema#"
_CLASS = re.compile(r".*(type\.object\.type|notable_types|/direct/P31)>")
_ENTITY = re.compile(rf"<{FREEBASE}([mg]\.[\w.]+)>|<http://www\.wikidata\.org/entity/(Q\d+)>")
_DATES = {4: "gYear", 7: "gYearMonth", 10: "date"}


@dataclass(frozen=True)
class Case:
    """A question with the facts behind it.

    Attributes:
        triples: in N-Triples.
        names: label of each entity, by its IRI in angle brackets.
        pattern: what the gold query asks; None if that is more than triples, over Wikidata.
    """

    id: str
    triples: frozenset[str]
    names: dict[str, str]
    pattern: Pattern | None = None

    @property
    def kinds(self) -> frozenset[str]:
        """The relations of its facts, memberships together with their class."""
        return frozenset(map(_kind, self.triples))


@dataclass
class WitnessGraph:
    """Facts of several questions."""

    cases: list[Case] = field(default_factory=list)
    kinds: set[str] = field(default_factory=set)

    @property
    def lines(self) -> list[str]:
        name = NAME if any(FREEBASE in line for line in self.cases[0].triples) else LABEL
        lines = {line for case in self.cases for line in case.triples}
        names = {iri: label for case in self.cases for iri, label in case.names.items()}
        labels = [
            f"{iri} {name} {json.dumps(label, ensure_ascii=False)}@en ." for iri, label in names.items()
        ]
        return [*sorted(lines), *labels]


def packed(cases: Iterable[Case]) -> list[WitnessGraph]:
    """The cases in as few graphs as a greedy choice takes."""
    graphs: list[WitnessGraph] = []
    for case in cases:
        fitting = (graph for graph in graphs if graph.kinds.isdisjoint(case.kinds))
        graph = next(fitting, None)
        if graph is None:
            graphs.append(graph := WitnessGraph())
        graph.cases.append(case)
        graph.kinds |= case.kinds
    return graphs


def load(
    graphs: Sequence[WitnessGraph],
    catalog: GraphCatalog,
    dataset: str,
    directory: Path,
    attach: Callable[[GraphCatalog, str, Path], None] | None,
) -> None:
    """Load the graphs as `dataset-0`, `dataset-1` and so on, as `kbqa kg load` does, or else attach them."""
    for number, graph in enumerate(graphs):
        name = f"{dataset}-{number}"
        file = directory / f"{name}.nt"
        file.write_text("\n".join(graph.lines), encoding="utf-8")
        if attach is None:
            catalog.load(name, file)
        else:
            attach(catalog, name, file)


def questions(dataset: str, data: Path, graphs: Sequence[WitnessGraph], form: Answers) -> list[Question]:
    """The data set's questions, each about its witness graph; without those that have none."""
    found = {question.id: question for question in load_dataset(dataset, 0, data, answers=form).splits.test}
    return [
        replace(found[case.id], kg=f"{dataset}-{number}")
        for number, graph in enumerate(graphs)
        for case in graph.cases
    ]


def curated(asked: Iterable[Question], tools: GraphTools) -> list[Question]:
    """The questions with the answers that their queries have, as `kbqa data convert --curate` keeps them."""
    by_graph: defaultdict[str, list[Question]] = defaultdict(list)
    for question in asked:
        by_graph[question.kg].append(question)
    return [one for kg, some in by_graph.items() for one in curate(some, tools, kg).kept]


def cases(dataset: str, data: Path, sample: int | None = None) -> tuple[list[Case], list[str]]:
    """The questions of a data set with their facts, and the ids of those for which none were found.

    Args:
        sample: how many to take, at equal distances; None for all.
    """
    file = next((data / _FILES[dataset].parent).glob(_FILES[dataset].name))
    records = json.loads(file.read_text(encoding="utf-8"))
    if isinstance(records, dict):
        [records] = (value for value in records.values() if isinstance(value, list))
    step = 1 if sample is None else max(1, len(records) // sample)
    made = [_MAKERS[dataset](number, record) for number, record in enumerate(records) if number % step == 0]
    return [case for case in made if isinstance(case, Case)], [id_ for id_ in made if isinstance(id_, str)]


def _grailqa(number: int, record: dict[str, Any]) -> Case:
    answers = [answer["answer_argument"] for answer in record["answer"]]
    named = {answer["answer_argument"]: answer.get("entity_name") for answer in record["answer"]}
    for node in record["graph_query"]["nodes"]:
        if node["node_type"] == "entity":
            named[node["id"]] = node["friendly_name"]
    return _freebase_case(number, str(record["qid"]), read(record["sparql_query"]), answers, named)


def _cwq(number: int, record: dict[str, Any]) -> Case:
    id_, label = f"m.answer{number}", record["answer"]
    named = {**record.get("topic_entity", {}), id_: label}
    case = _freebase_case(number, record["ID"], read(record["sparql"]), [id_], named)
    iri, value = f"<{FREEBASE}{id_}>", _value(label)
    if value is None or any(line.startswith(iri) for line in case.triples):
        return case
    # Years and dates are values in Freebase.
    triples = frozenset(line.replace(f" {iri} .", f" {value} .") for line in case.triples)
    return replace(case, triples=triples, names={key: n for key, n in case.names.items() if key != iri})


def _freebase_case(
    number: int, id_: str, pattern: Pattern, answers: Sequence[str], named: dict[str, str | None]
) -> Case:
    witness = build(pattern, answers, classes_between=False)
    own = f"<{FREEBASE}m.v{number}_"
    triples = frozenset(
        re.sub(
            rf"<{FREEBASE}m\.((?:missing|wrong|w)\d|last|wrong)",
            rf"{own}\1",
            line.replace("<http://witness.example/", own),
        )
        for line in witness.triples
    )
    names = {
        f"<{FREEBASE}{entity}>": label for entity, label in named.items() if label not in (None, "", "null")
    }
    for line in triples:
        for wrong in re.findall(rf"{own}(?:missing|wrong|last|w\d)[^>]*>", line):
            names.setdefault(wrong, f"{WRONG} {wrong.removeprefix(own).removesuffix('>')} {number}")
    return Case(id_, triples, names, pattern)


def _webqsp(number: int, record: dict[str, Any]) -> Case:
    parse = record["Parses"][0]
    named = {answer["AnswerArgument"]: answer["EntityName"] for answer in parse["Answers"]}
    named[parse["TopicEntityMid"]] = parse["TopicEntityName"]
    answers = [answer["AnswerArgument"] for answer in parse["Answers"]]
    # Find_relation looks in one direction, so that a topic that relates to itself would answer for itself.
    pattern = replace(read(parse["Sparql"]), excluded=[])
    return _freebase_case(number, record["QuestionId"], pattern, answers, named)


def _qald(number: int, record: dict[str, Any]) -> Case | str:
    triples = wikidata_witness(record)
    if triples is None:
        return str(record["id"])
    try:
        pattern = wikidata_pattern(record["query"]["sparql"])
    except UnknownShapeError:
        pattern = None
    entities = {found[0] for line in triples for found in _ENTITY.finditer(line)}
    # An entity of the query is in the graph, whatever the graph says about it.
    named = re.findall(r"\bwd:(Q\d+)", record["query"]["sparql"])
    entities |= {f"<http://www.wikidata.org/entity/{id_}>" for id_ in named}
    return Case(str(record["id"]), triples, {iri: _invented(iri) for iri in entities}, pattern)


def _invented(iri: str) -> str:
    """A name for an entity of Wikidata: a syllable for every two digits of its id."""
    digits = iri.rpartition("/Q")[2].removesuffix(">")
    pairs = (int(digits[start : start + 2]) for start in range(0, len(digits), 2))
    name = "".join("bcdfghjklmnpqrstvwxz"[pair // 5] + "aeiou"[pair % 5] for pair in pairs)
    return f"{name}{len(digits)}".title()


def _value(text: str) -> str | None:
    """A year, month or day as Freebase's dump has it; None of any other text."""
    if re.fullmatch(r"\d{4}(-\d\d){0,2}", text):
        return f'"{text}"^^<{_XSD}{_DATES[len(text)]}>'
    return None


def _kind(line: str) -> str:
    _, predicate, value = line.removesuffix(" .").split(" ", 2)
    return f"{predicate} {value}" if _CLASS.fullmatch(predicate) else predicate


_FILES = {
    "grailqa": Path("grailqa/grailqa_dev_sample.json"),
    "cwq": Path("cwq/cwq_test_sample.json"),
    "qald-10": Path("qald10/qald_10.json"),
    "webqsp": Path("webqsp/WebQSP.test.json"),
}
_MAKERS = {"grailqa": _grailqa, "cwq": _cwq, "qald-10": _qald, "webqsp": _webqsp}
