"""Which facts of a graph name its entities, and which of several names is shown."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

from kbqa.kg.languages import DEFAULT_LANGUAGES, rank

# Relations that give an entity's type.
TYPE_RELATIONS = frozenset(
    {
        "http://www.w3.org/1999/02/22-rdf-syntax-ns#type",
        "http://rdf.freebase.com/ns/type.object.type",
        "http://www.wikidata.org/prop/direct/P31",
        "type.object.type",
    }
)
# What such a relation is called in a delimited file, without blanks and punctuation.
_TYPE_NAMES = frozenset({"type", "isa", "instanceof", "rdftype"})
# Relations that give an entity's name.
LABEL_RELATIONS = frozenset(
    {"http://www.w3.org/2000/01/rdf-schema#label", "http://rdf.freebase.com/ns/type.object.name"}
)
# Further names: of all entities by SKOS and by relations declared to be kinds of rdfs:label; of entities
# that have no other name, by relations whose IRI ends with such a word.
SKOS_LABELS = frozenset(f"http://www.w3.org/2004/02/skos/core#{name}" for name in ("prefLabel", "altLabel"))
SUBPROPERTY = "http://www.w3.org/2000/01/rdf-schema#subPropertyOf"
NAMING = re.compile(r".*[/#:](?:name|title|label)", re.IGNORECASE | re.DOTALL)
TEXT = re.compile(r'".*"(?:@([A-Za-z0-9-]+))?', re.DOTALL)  # a literal without a datatype
# Preferences of names, after the preferred ones of files of labels: by `LABEL_RELATIONS`, aliases of files of
# labels, and by other relations; the rank of a name's language is added.
FIRST_NAME, ALIAS, FURTHER_NAME = 1, 50, 51

_NO_WORD = re.compile(r"[\W_]+")
_TAG = re.compile(r'".*"@([A-Za-z0-9-]+)', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|(.))", re.DOTALL)
_ESCAPED = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f"}


@dataclass(frozen=True, slots=True)
class NamingRules:
    """How names were found when a graph was written, so that a change finds them in the same way.

    Attributes:
        languages: of names, the preferred one first.
        type_relations: further relations that give an entity's type.
        of_names: whether ids are names from a delimited file.
        declared: relations that are kinds of rdfs:label, with those of SKOS.
        texts: relation that is only called a name → number of its values that are texts, and of their
            distinct texts.
    """

    languages: tuple[str, ...] = DEFAULT_LANGUAGES
    type_relations: tuple[str, ...] = ()
    of_names: bool = False
    declared: frozenset[str] = SKOS_LABELS
    texts: Mapping[str, tuple[int, int]] = field(default_factory=dict)

    def write(self, directory: Path) -> None:
        fields = asdict(self) | {"declared": sorted(self.declared)}
        (directory / "names.json").write_text(json.dumps(fields) + "\n")

    @classmethod
    def read(cls, directory: Path) -> NamingRules | None:
        """The rules of an index; None if it was written before there were any."""
        try:
            fields = json.loads((directory / "names.json").read_text())
        except FileNotFoundError:
            return None
        texts = {id_: (total, distinct) for id_, (total, distinct) in fields["texts"].items()}
        return cls(
            tuple(fields["languages"]),
            tuple(fields["type_relations"]),
            fields.get("of_names", False),  # older indices recognise no types
            frozenset(fields["declared"]),
            texts,
        )

    def states_type(self, relation: str) -> bool:
        """Whether a relation gives an entity's type, such as `is a` in a delimited file."""
        if relation in TYPE_RELATIONS or relation in self.type_relations:
            return True
        return self.of_names and _NO_WORD.sub("", relation).casefold() in _TYPE_NAMES

    def is_called_a_name(self, relation: str) -> bool:
        """Whether `texts` decides if a relation gives names."""
        called = NAMING.fullmatch(relation) is not None
        return called and relation not in LABEL_RELATIONS and relation not in self.declared

    def are_names(self, relation: str) -> bool:
        """Whether most texts of a relation that is called a name belong to one entity each."""
        total, distinct = self.texts.get(relation, (0, 0))
        return 2 * distinct >= total

    def may_name(self, relation: str) -> bool:
        return relation in LABEL_RELATIONS or relation in self.declared or self.is_called_a_name(relation)

    def names(self, facts: Iterable[tuple[str, str]], is_named: bool = False) -> list[tuple[int, str]]:
        """The names that an entity's facts give it, each with its preference, the preferred one first.

        Args:
            facts: (relation, value) of all facts with the entity as head.
            is_named: whether it has names from elsewhere, so that values of relations that are only called
                names do not count.
        """
        found: list[tuple[int, str]] = []
        others: list[tuple[int, str]] = []
        for relation, value in facts:
            if not value.startswith('"'):
                continue
            if relation in LABEL_RELATIONS:
                tag = _TAG.fullmatch(value)
                found.append((FIRST_NAME + self._rank(tag), literal_value(value)))
                is_named = True
            elif (tag := TEXT.fullmatch(value)) is not None:
                name = FURTHER_NAME + self._rank(tag), literal_value(value)
                if relation in self.declared:
                    found.append(name)
                elif self.is_called_a_name(relation) and self.are_names(relation):
                    others.append(name)
        return sorted(found if is_named else found + others)

    def _rank(self, tag: re.Match[str] | None) -> int:
        return rank((tag[1] or "") if tag is not None else "", self.languages)


def shown_first(id_: str, names: Iterable[tuple[int, str]]) -> tuple[str, list[str]]:
    """The label of a node, and its names other than its id.

    Args:
        names: with preferences, the preferred one first.
    """
    distinct = list(dict.fromkeys(name for _, name in names))
    label = next(filter(None, distinct), id_)
    return label, [name for name in distinct if name != id_]


def literal_value(literal: str) -> str:
    """The lexical form of an N-Triples literal: `a"b` for `"a\\"b"@en`."""
    value = literal[1 : literal.rindex('"')]
    if "\\" not in value:
        return value

    def plain(match: re.Match[str]) -> str:
        code = match[1] or match[2]
        return chr(int(code, 16)) if code else _ESCAPED.get(match[3], match[3])

    return _ESCAPE.sub(plain, value)


def texts_of(values: Iterable[str]) -> Iterator[str]:
    """The texts among values: literals without a datatype."""
    return (literal_value(value) for value in values if TEXT.fullmatch(value))
