"""Writes the one-hop index of a graph, which `adjacency` reads.

Nodes (heads and tails) and relations are numbered in the order of look-up results: by
label, then id. A result is therefore a run of ascending numbers, and a page is a slice.

    nodes.*, relations.*         ids: string tables
    names.*, names.owners        labels other than the id, and the node that each belongs to
    labels                       node → its preferred name, or the number of names if it has none
    relation_names.*, …          likewise for relations
    out.groups                   node → its first group; a group is a (head, relation)
    out.relations, out.starts    group → its relation, its first tail
    out.neighbours               tails, group by group
    in.*                         the same from tail to head
    types                        tails of the type relations
    dated.*, times.*             edges of `out` that have times, and the times
    names.json                   `NamingRules`, by which changes of the graph find names
    index.json                   counts

The names by which a linker finds nodes are in further files (`mapped_names`).
"""

from __future__ import annotations

import json
import re
from array import array
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod
from pathlib import Path

import numpy as np
import numpy.typing as npt

from kbqa.kg.embedded.names import (
    FURTHER_NAME,
    LABEL_RELATIONS,
    NAMING,
    SKOS_LABELS,
    SUBPROPERTY,
    TEXT,
    NamingRules,
    literal_value,
)
from kbqa.kg.embedded.tables import StringTable, starts_of, write_numbers
from kbqa.kg.languages import DEFAULT_LANGUAGES, rank

_NUMBER = re.compile(r"\+?(?P<sign>-?)(?P<whole>[0-9]+)\.?(?P<fraction>[0-9]*)")
Numbers = npt.NDArray[np.integer]


class IndexBuilder:
    """Collects the triples of a graph, then writes the index; can be used once.

    Uses twelve bytes of memory per triple, and holds each distinct term once.

    Args:
        named: whether terms are the names in a delimited file; an entity and a relation may share one.
        type_relations: ids of further relations that give an entity's type.
        languages: of names in RDF, the preferred one first.
    """

    def __init__(
        self,
        *,
        named: bool,
        type_relations: Iterable[str] = (),
        languages: Sequence[str] = DEFAULT_LANGUAGES,
    ) -> None:
        self._languages = languages
        self._named = named
        self._rules = NamingRules(tuple(languages), tuple(type_relations), named)
        self._nodes, self._relations = Numbering(), Numbering()
        self._heads, self._links, self._tails = array("I"), array("I"), array("I")
        self._node_labels, self._relation_labels = _Labels(), _Labels()
        self._times: dict[tuple[int, int, int], set[str]] = {}

    def add(self, head: str, relation: str, tail: str, times: Sequence[str] = ()) -> None:
        """Add a triple; if it exists already, only its times are added.

        Args:
            head, relation, tail: names; in RDF, IRIs, `_:b` for blank nodes, N-Triples for literals.
            times: when the triple holds: points, or `start; end`.
        """
        fact = self._nodes[head], self._relations[relation], self._nodes[tail]
        self._heads.append(fact[0])
        self._links.append(fact[1])
        self._tails.append(fact[2])
        if times:
            self._times.setdefault(fact, set()).update(times)

    def extend(self, heads: Sequence[str], relations: Sequence[str], tails: Sequence[str]) -> None:
        """Add triples without times, given as columns of terms."""
        self._heads.extend(map(self._nodes.__getitem__, heads))
        self._links.extend(map(self._relations.__getitem__, relations))
        self._tails.extend(map(self._nodes.__getitem__, tails))

    def add_label(self, term: str, label: str, preference: int = 0) -> tuple[bool, bool]:
        """Add a label of a term; ignored if no triple contains the term.

        Args:
            preference: results show the label with the lowest value.

        Returns:
            Whether triples contain the term as a node, and as a relation.
        """
        is_node, is_relation = term in self._nodes, term in self._relations
        if is_node:
            self._node_labels.add(self._nodes[term], label, preference)
        elif is_relation:
            self._relation_labels.add(self._relations[term], label, preference)
        return is_node, is_relation

    def write(self, directory: Path) -> int:
        """Write the index into an empty directory. The builder cannot be used afterwards.

        Returns:
            The number of distinct triples.
        """
        if not self._named:
            self._add_further_names()
        # A relation may also be a node, and its labels are then stored for the node.
        for term, number in self._relations.items():
            if term in self._nodes:
                for label, preference in self._node_labels.of(self._nodes[term]):
                    self._relation_labels.add(number, label, preference)
        node_ids, relation_ids = list(self._nodes), list(self._relations)
        self._nodes.clear()
        num_entities = len(node_ids)
        if not self._named:
            for number, id_ in enumerate(node_ids):
                if id_.startswith('"'):
                    num_entities -= 1
                    self._node_labels.add(number, literal_value(id_), 0)
        node_ranks = _write_terms(directory, "nodes", "names", "labels", node_ids, self._node_labels)
        relation_ranks = _write_terms(
            directory, "relations", "relation_names", "relation_labels", relation_ids, self._relation_labels
        )
        num_nodes = len(node_ids)
        sizes = num_nodes, len(relation_ids), num_nodes
        renumbered = (
            node_ranks[_numbers(self._heads)],
            relation_ranks[_numbers(self._links)],
            node_ranks[_numbers(self._tails)],
        )
        # Sorting takes most of the memory, so what it does not need is given up before it.
        self._heads, self._links, self._tails = array("I"), array("I"), array("I")
        del node_ids
        heads, links, tails = distinct_rows(*renumbered, sizes=sizes)
        del renumbered
        is_type = np.zeros(len(relation_ids), bool)
        is_type[
            [
                relation_ranks[number]
                for number, id_ in enumerate(relation_ids)
                if self._rules.states_type(id_)
            ]
        ] = True
        write_numbers(directory / "types.npy", np.unique(tails[is_type[links]]))
        write_side(directory, "out", heads, links, tails, num_nodes)
        write_side(directory, "in", *distinct_rows(tails, links, heads, sizes=sizes), num_nodes)
        columns = heads.data, links.data, tails.data
        dated = {
            _place(columns, (int(node_ranks[head]), int(relation_ranks[link]), int(node_ranks[tail]))): times
            for (head, link, tail), times in self._times.items()
        }
        _write_times(directory, dated)
        self._rules.write(directory)
        counts = {"triples": len(heads), "entities": num_entities}
        (directory / "index.json").write_text(json.dumps(counts) + "\n")
        return len(heads)

    def _add_further_names(self) -> None:
        """Add names by relations other than `LABEL_RELATIONS`, shown where there is no other.

        The values of a relation that is only called `name` or `title` are names if most of them belong to
        one entity each, as those of the title of a book do, and those of the title of an employee do not.
        """
        terms, labelled = list(self._nodes), self._node_labels.owners()
        heads, links, tails = _numbers(self._heads), _numbers(self._links), _numbers(self._tails)
        declared = {*LABEL_RELATIONS, *SKOS_LABELS}
        if SUBPROPERTY in self._relations:
            kinds = [self._nodes[id_] for id_ in declared if id_ in self._nodes]
            below = heads[(links == self._relations[SUBPROPERTY]) & np.isin(tails, kinds)]
            declared.update(terms[number] for number in below.tolist())
        counts: dict[str, tuple[int, int]] = {}
        for id_, link in self._relations.items():
            if id_ in LABEL_RELATIONS or not (id_ in declared or NAMING.fullmatch(id_)):
                continue
            rows = np.flatnonzero(links == link)
            pairs = dict.fromkeys(zip(heads[rows].tolist(), tails[rows].tolist(), strict=True))
            texts = [
                (head, literal_value(term), tag[1])
                for head, term in ((head, terms[tail]) for head, tail in pairs)
                if (tag := TEXT.fullmatch(term))
            ]
            if id_ not in declared:
                counts[id_] = len(texts), len({text for _, text, _ in texts})
                if 2 * counts[id_][1] < counts[id_][0]:
                    continue
                texts = [named for named in texts if named[0] not in labelled]
            for head, text, language in texts:
                self._node_labels.add(head, text, FURTHER_NAME + rank(language or "", self._languages))
        self._rules = replace(self._rules, declared=frozenset(declared - LABEL_RELATIONS), texts=counts)


def as_stored(name: str) -> str:
    """A number as Oxigraph stores it, `802` for `802.0` and `12` for `+012`; any other name unchanged."""
    number = _NUMBER.fullmatch(name)
    if number is None:
        return name
    sign, whole, fraction = number["sign"], number["whole"].lstrip("0") or "0", number["fraction"].rstrip("0")
    return f"{sign}{whole}{'.' if fraction else ''}{fraction}"


class Numbering(dict[str, int]):
    """Term → number, assigned at first access."""

    def __missing__(self, term: str) -> int:
        number = self[term] = len(self)
        return number


class _Labels:
    """Labels by owner number (a node or relation), stored in columns because there may be millions."""

    def __init__(self) -> None:
        self._owners, self._preferences = array("I"), array("B")
        self._labels: list[str] = []
        self._by_owner: dict[int, list[int]] | None = None

    def add(self, owner: int, label: str, preference: int) -> None:
        self._owners.append(owner)
        self._preferences.append(preference)
        self._labels.append(label)

    def owners(self) -> set[int]:
        """All that have a label."""
        return set(self._owners)

    def of(self, owner: int) -> list[tuple[str, int]]:
        """(label, preference) of an owner's labels. Labels added after the first call are not found."""
        if self._by_owner is None:
            self._by_owner = {}
            for row, labelled in enumerate(self._owners):
                self._by_owner.setdefault(labelled, []).append(row)
        return [(self._labels[row], self._preferences[row]) for row in self._by_owner.get(owner, ())]

    def in_order(self) -> list[tuple[int, str]]:
        """Distinct (owner, label) pairs, with each owner's preferred label first."""
        rows = sorted(
            range(len(self._labels)),
            key=lambda row: (self._owners[row], self._preferences[row], self._labels[row]),
        )
        return list(dict.fromkeys((self._owners[row], self._labels[row]) for row in rows))


def _write_terms(
    directory: Path, ids_name: str, names_name: str, labels_name: str, ids: Sequence[str], labels: _Labels
) -> Numbers:
    """Renumber terms by label, then id, and write their strings; returns old number → new number."""
    label_of, named = list(ids), set[int]()
    names: list[tuple[int, str]] = []
    for owner, label in labels.in_order():
        if owner not in named and label:
            named.add(owner)
            label_of[owner] = label
        if label != ids[owner]:
            names.append((owner, label))
    order = sorted(range(len(ids)), key=ids.__getitem__)
    if named:
        order.sort(key=label_of.__getitem__)
    ranks = np.empty(len(ids), np.uint32)
    ranks[order] = np.arange(len(ids), dtype=np.uint32)
    StringTable.write(directory, ids_name, [ids[number] for number in order])
    StringTable.write(directory, names_name, [label for _, label in names])
    owners = ranks[np.fromiter((owner for owner, _ in names), np.int64, len(names))]
    write_numbers(directory / f"{names_name}.owners.npy", owners)
    preferred = np.full(len(ids), len(names), np.int64)
    for place in range(len(names) - 1, -1, -1):
        owner, label = names[place]
        if label == label_of[owner]:
            preferred[ranks[owner]] = place
    write_numbers(directory / f"{labels_name}.npy", preferred)
    return ranks


def distinct_rows(*columns: Numbers, sizes: tuple[int, int, int]) -> tuple[Numbers, Numbers, Numbers]:
    """The distinct rows of three columns, sorted.

    Args:
        sizes: each is larger than all numbers of its column.
    """
    if prod(sizes) <= np.iinfo(np.intp).max:  # a row is one number, which is sorted in a tenth of the time
        rows = np.ravel_multi_index(columns, sizes)
        rows.sort()
        rows = rows[_changes(rows)]
        # Column by column; `np.unravel_index` would need twice the memory.
        third = (rows % sizes[2]).astype(np.uint32)
        rows //= sizes[2]
        second = (rows % sizes[1]).astype(np.uint32)
        rows //= sizes[1]
        return rows.astype(np.uint32), second, third
    order = np.lexsort(columns[::-1])
    ordered = [column[order] for column in columns]
    kept = _changes(*ordered)
    return ordered[0][kept], ordered[1][kept], ordered[2][kept]


def write_side(
    directory: Path, side: str, nodes: Numbers, links: Numbers, neighbours: Numbers, num_nodes: int
) -> None:
    first_edges = np.flatnonzero(_changes(nodes, links))
    write_numbers(directory / f"{side}.groups.npy", starts_of(nodes[first_edges], num_nodes))
    write_numbers(directory / f"{side}.relations.npy", links[first_edges])
    write_numbers(directory / f"{side}.starts.npy", np.append(first_edges, len(neighbours)))
    write_numbers(directory / f"{side}.neighbours.npy", neighbours)


def _place(columns: Sequence[memoryview], row: Sequence[int]) -> int:
    """The position of a row in sorted columns."""
    low, high = 0, len(columns[0])
    for column, value in zip(columns, row, strict=True):
        low, high = bisect_left(column, value, low, high), bisect_right(column, value, low, high)
    return low


def _write_times(directory: Path, dated: Mapping[int, Iterable[str]]) -> None:
    edges = sorted(dated)
    times = [sorted(dated[edge]) for edge in edges]
    write_numbers(directory / "dated.edges.npy", np.array(edges, np.int64))
    write_numbers(directory / "dated.starts.npy", np.cumsum([0, *map(len, times)]))
    StringTable.write(directory, "times", [time for found in times for time in found])


def _changes(*columns: Numbers) -> npt.NDArray[np.bool_]:
    """Whether each row differs from the previous one; True for the first."""
    changes = np.ones(len(columns[0]), bool)
    changes[1:] = np.logical_or.reduce([column[1:] != column[:-1] for column in columns])
    return changes


def _numbers(column: array[int]) -> Numbers:
    return np.frombuffer(column, np.uint32) if column else np.empty(0, np.uint32)
