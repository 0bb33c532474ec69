"""Records in the shape of data sets that are not here, made of records of those that are.

WebQSP (Yih et al. 2016) has a query of one chain and a list of answers for each parse; the chains are
GrailQA's, and a second parse overlooks an answer. LC-QuAD 2.0 (Dubey et al. 2019) has queries without
prefixes, and no answers; the queries are QALD-10's.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from kbqa.datasets import load_dataset
from kbqa.datasets.formats import Answers
from kbqa.trajectory import Question
from tests.gold.graphs import Case, cases

_COMPLETE = {"ParseQuality": "Complete", "QuestionQuality": "Good", "Confidence": "Normal"}
_WITHOUT_PREFIX = {"wd", "wdt", "p", "ps", "pq", "rdfs"}


def webqsp(data: Path) -> Iterator[dict[str, Any]]:
    """The questions of GrailQA whose program is a chain from one entity, as WebQSP has them."""
    for question in load_dataset("grailqa", 0, data, answers=Answers.IDS).splits.test:
        entities = [answer for answer in question.answers if re.fullmatch(r"[mg]\.\w+", answer)]
        if question.path and len(question.topic_entities) == 1 and len(entities) == len(question.answers):
            yield _webqsp(question)


def _webqsp(question: Question) -> dict[str, Any]:
    [topic] = question.topic_entities
    names = {id_: label for id_, label, *_ in question.names}
    answers = [
        {"AnswerType": "Entity", "AnswerArgument": id_, "EntityName": names.get(id_)}
        for id_ in question.answers
    ]
    parse = {
        "ParseId": f"WebQTest-{question.id}.P0",
        "AnnotatorComment": _COMPLETE,
        "Sparql": _chain(question),
        "TopicEntityName": names.get(topic),
        "TopicEntityMid": topic,
        "InferentialChain": [hop.relation for hop in question.path],
        "Answers": answers,
    }
    overlooking = [parse | {"Answers": answers[1:]}] if len(answers) > 1 else []
    return {
        "QuestionId": f"WebQTest-{question.id}",
        "RawQuestion": question.text,
        "ProcessedQuestion": question.text.lower(),
        "Parses": [parse, *overlooking],
    }


def _chain(question: Question) -> str:
    """The query of a chain, as WebQSP's are written."""
    topic, last = f"ns:{question.topic_entities[0]}", len(question.path) - 1
    lines, node = [], topic
    for number, hop in enumerate(question.path):
        following = "?x" if number == last else f"?y{number}"
        ends = (following, node) if hop.inverse else (node, following)
        lines.append(f"{ends[0]} ns:{hop.relation} {ends[1]} .")
        node = following
    return "\n".join(
        (
            "PREFIX ns: <http://rdf.freebase.com/ns/>\nSELECT DISTINCT ?x\nWHERE {",
            f"FILTER (?x != {topic})",
            "FILTER (!isLiteral(?x) OR lang(?x) = '' OR langMatches(lang(?x), 'en'))",
            *lines,
            "}\n",
        )
    )


def lcquad(data: Path) -> Iterator[dict[str, Any]]:
    """The questions of QALD-10 whose queries use the prefixes that LC-QuAD leaves out, as it has them."""
    [file] = (data / "qald10").glob("qald_10.json")
    for record in json.loads(file.read_text(encoding="utf-8"))["questions"]:
        query = re.sub(r"PREFIX\s+\w*:\s*<[^>]*>", "", record["query"]["sparql"])
        used = re.findall(r"(\w+):\w", re.sub(r"<[^>]*>|\"[^\"]*\"", "", query))
        if _WITHOUT_PREFIX.issuperset(used):
            [text, *_] = (said["string"] for said in record["question"] if said["language"] == "en")
            yield {
                "uid": record["id"],
                "NNQT_question": text,
                "question": text,
                "paraphrased_question": [],
                "sparql_wikidata": " ".join(query.split()),
                "answer": [],
            }


_Records = Callable[[Path], Iterator[dict[str, Any]]]
_FILES: Mapping[str, tuple[str, _Records, Callable[[Sequence[Any]], Any]]] = {
    "webqsp": ("webqsp/WebQSP.test.json", webqsp, lambda records: {"Questions": records}),
    "lcquad-2": ("lcquad2/test.json", lcquad, list),
}
SHAPED = tuple(_FILES)


def shaped_cases(
    dataset: str, data: Path, directory: Path, sample: int | None
) -> tuple[list[Case], list[str], Path]:
    """As `cases`; the test file of the data set is written, into the returned directory of data sets."""
    name, records, whole = _FILES[dataset]
    shaped = directory / "shaped"
    file = shaped / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(whole(list(records(data)))), encoding="utf-8")
    if dataset == "webqsp":
        return *cases(dataset, shaped, sample), shaped
    # Its queries are answered on the facts of the questions that they are from.
    asked = {question.id for question in load_dataset(dataset, 0, shaped).splits.test}
    found, missing = cases("qald-10", data, sample)
    return [case for case in found if case.id in asked], [id_ for id_ in missing if id_ in asked], shaped
