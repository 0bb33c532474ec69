"""Reads from a graph what questions can be about: pairs of each relation, names and classes."""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from kbqa.datasets.from_graph.english import is_a_unit
from kbqa.datasets.world.facts import Node
from kbqa.errors import DatasetError, QueryTimeoutError
from kbqa.kg.actions import Item
from kbqa.kg.descriptions import DESCRIPTION_RELATIONS
from kbqa.kg.embedded.names import LABEL_RELATIONS
from kbqa.kg.namespaces import is_machine_id, local_name
from kbqa.kg.ranking.encoders import words
from kbqa.kg.store import GraphStore
from kbqa.logical_forms.algebra import XSD, Literal

MAX_PAIRS = 50_000
"""Pairs of a relation that are read; of a relation with more, some pages are drawn."""

_PAGE = 10_000  # rows of a query
_DEADLINE_S = 60.0  # of a query, unless the graph has a deadline of its own
_LONGEST = 60  # characters; longer texts are descriptions
_NAMED_AT_ONCE = 5_000
# Vocabulary that describes the graph and not what it is about.
_ABOUT_THE_GRAPH = tuple(
    f"http://www.w3.org/{space}#"
    for space in ("1999/02/22-rdf-syntax-ns", "2000/01/rdf-schema", "2002/07/owl", "2004/02/skos/core")
)
_NAMES = frozenset({"name", "title", "label", "alias", "description", "comment", "id", "identifier"})
_REMARK = re.compile(r"(?P<rest>.*\S)\s*[(\[](?P<said>[^()\[\]]*)[)\]]")
_ACRONYM = re.compile(r"(?<![A-Za-z])[A-Z]{2,}(?![A-Za-z])")
_TEXT = frozenset({XSD + "string", "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString"})

Pair = tuple[str, Node]


@dataclass(frozen=True, slots=True)
class ReadRelation:
    """A relation and its pairs.

    Attributes:
        words: that it is called by, in lower case but for acronyms; "" if neither its label nor its id has
            any.
        domain: what Freebase's ids say of its heads (`film` in `film.film.directed_by`); or "".
        is_cut: whether the graph has further pairs.
        written_as: full IRI of a datatype, if it leads to texts that are all numbers or dates.
    """

    id: str
    words: str
    domain: str
    pairs: tuple[Pair, ...]
    is_cut: bool = False
    written_as: str = ""


@dataclass(frozen=True, slots=True)
class ReadGraph:
    """A part of a graph.

    Attributes:
        names: entity → label; entities without a label are in no pair.
        classes: entity → id of the class that most entities have, of those that it has.
        class_names: id of a class → its words.
        left_out: reason → relations that are of no use.
    """

    relations: tuple[ReadRelation, ...]
    names: Mapping[str, str]
    classes: Mapping[str, str]
    class_names: Mapping[str, str]
    left_out: Mapping[str, int]

    @property
    def cut(self) -> tuple[str, ...]:
        return tuple(relation.id for relation in self.relations if relation.is_cut)


def read_graph(store: GraphStore, rng: random.Random, max_pairs: int = MAX_PAIRS) -> ReadGraph:
    """Read a graph page by page.

    Args:
        max_pairs: of a relation, rounded up to whole pages.

    Raises:
        DatasetError: the graph has no relations that questions can be about.
        GraphError: a query failed, other than by its deadline.
    """
    left_out: Counter[str] = Counter()
    found: dict[Item, tuple[tuple[Pair, ...], bool]] = {}
    types: list[Item] = []
    kinds = set(store.type_relations)
    for relation in store.relations():
        if relation.id in kinds or local_name(relation.id) == "type":
            types.append(relation)
        elif _is_about_the_graph(store, relation):
            left_out["names, descriptions and schema"] += 1
        else:
            pairs, is_cut = _pairs(store, relation.id, rng, max_pairs)
            if _are_texts(pairs):
                left_out["long texts"] += 1
            else:
                found[relation] = pairs, is_cut
    nodes = dict.fromkeys(node for pairs, _ in found.values() for pair in pairs for node in pair)
    names = _names(store, [node for node in nodes if isinstance(node, str)])
    relations = []
    for relation, (pairs, is_cut) in found.items():
        named = tuple((head, tail) for head, tail in pairs if head in names and _is_named(tail, names))
        if not named:
            left_out["no pairs of named entities"] += 1
            continue
        domain, _, _ = relation.id.rpartition(".")
        relations.append(
            ReadRelation(
                relation.id,
                _words(relation),
                words(domain.rpartition(".")[2]) if ":" not in domain else "",
                named,
                is_cut,
                store.written_as(relation.id) or "",
            )
        )
    if not relations:
        reasons = ", ".join(f"{reason}: {count}" for reason, count in left_out.items()) or "it has none"
        raise DatasetError(
            f"the graph has no relations between named entities to ask about ({reasons}); if its entities "
            "are ids, load it with their labels (kbqa kg load --labels)"
        )
    classes = _classes(store, types, names, rng, max_pairs)
    known = store.items(list(dict.fromkeys(classes.values())))
    class_names = {id_: _words(known.get(id_, Item(id_, id_))) for id_ in dict.fromkeys(classes.values())}
    return ReadGraph(tuple(relations), names, classes, class_names, left_out)


def node_of(store: GraphStore, term: Mapping[str, str]) -> Node:
    """An entity's id, or the value, of a term in SPARQL's JSON results."""
    if term["type"] not in ("literal", "typed-literal"):
        return store.id_of(term)
    return Literal(term["value"], term.get("datatype", XSD + "string"), term.get("xml:lang"))


def _pairs(
    store: GraphStore, relation: str, rng: random.Random, max_pairs: int
) -> tuple[tuple[Pair, ...], bool]:
    """The pairs of a relation, and whether there are more."""
    term = store.relation_term(relation)
    most = -(-max_pairs // _PAGE)
    try:
        [row] = _rows(store, f"SELECT (COUNT(*) AS ?n) WHERE {{ ?s {term} ?o }}")
        total = int(row["n"]["value"])
        pages = list(range(-(-total // _PAGE)))
        is_cut = len(pages) > most
    except QueryTimeoutError:
        pages, is_cut = [0], True
    found: dict[Pair, None] = {}
    for page in sorted(rng.sample(pages, most)) if len(pages) > most else pages:
        text = f"SELECT ?s ?o WHERE {{ ?s {term} ?o }} LIMIT {_PAGE} OFFSET {page * _PAGE}"
        try:
            for row in _rows(store, text):
                head = node_of(store, row["s"])
                assert isinstance(head, str)
                found[head, node_of(store, row["o"])] = None
        except QueryTimeoutError:
            is_cut = True
            break
    return tuple(found), is_cut


def _rows(store: GraphStore, text: str) -> list[dict[str, dict[str, str]]]:
    result = store.query(text, deadline_s=store.query_deadline_s or _DEADLINE_S)
    rows: list[dict[str, dict[str, str]]] = json.loads(result.body)["results"]["bindings"]
    return rows


def _names(store: GraphStore, nodes: Sequence[str]) -> dict[str, str]:
    """Labels; of a graph of names, the names themselves. Other nodes without a label have no name."""
    names: dict[str, str] = {}
    for start in range(0, len(nodes), _NAMED_AT_ONCE):
        for id_, item in store.items(nodes[start : start + _NAMED_AT_ONCE]).items():
            is_name = item.label != item.id or store.entity_term(id_) not in (id_, f"<{id_}>")
            if is_name and not is_machine_id(item.label) and not id_.startswith("_:") and item.label.strip():
                names[id_] = item.label
    return names


def _classes(
    store: GraphStore, types: Iterable[Item], names: Mapping[str, str], rng: random.Random, max_pairs: int
) -> dict[str, str]:
    pairs = [pair for relation in types for pair in _pairs(store, relation.id, rng, max_pairs)[0]]
    declared = [(head, tail) for head, tail in pairs if isinstance(tail, str) and head in names]
    declared = [pair for pair in declared if not pair[1].startswith(_ABOUT_THE_GRAPH)]
    sizes = Counter(tail for _, tail in declared)
    classes: dict[str, str] = {}
    for head, tail in declared:
        best = classes.get(head)
        if best is None or (sizes[tail], tail) > (sizes[best], best):
            classes[head] = tail
    return classes


def _is_about_the_graph(store: GraphStore, relation: Item) -> bool:
    term = store.relation_term(relation.id).strip("<>")
    is_known = relation.id in LABEL_RELATIONS or relation.id in DESCRIPTION_RELATIONS
    return is_known or term.startswith(_ABOUT_THE_GRAPH) or _words(relation).lower() in _NAMES


def _are_texts(pairs: Sequence[Pair]) -> bool:
    """Whether most values are texts in some language, or long."""
    texts = [tail for _, tail in pairs if isinstance(tail, Literal) and tail.datatype in _TEXT]
    long = sum(tail.language is not None or len(tail.lexical) > _LONGEST for tail in texts)
    return 2 * long > len(pairs)


def _is_named(node: Node, names: Mapping[str, str]) -> bool:
    return isinstance(node, Literal) or node in names


def _words(item: Item) -> str:
    """Words of a label, or of the last part of an id, without what is in parentheses, except units."""
    text = item.label if item.label != item.id else local_name(item.id)
    if remark := _REMARK.fullmatch(text):
        is_unit = is_a_unit(remark["said"].lower())
        text = f"{remark['rest']} {remark['said']}" if is_unit else remark["rest"]
    acronyms = {one.lower(): one for one in _ACRONYM.findall(text)} if not text.isupper() else {}
    return " ".join(acronyms.get(word, word) for word in words(text).split())
