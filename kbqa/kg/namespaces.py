"""Short ids for graphs of IRIs: `m.02mjmr` for `http://rdf.freebase.com/ns/m.02mjmr`, or `dbo:birthPlace`.

A graph declares its namespaces, each a prefix and the IRI for which it stands. A short id is a prefixed name,
except that

    Freebase    what is in ns: and has a dot is bare: m.02mjmr, people.person.children, film.film;
    Wikidata    an item is bare (Q76), as are a lexeme (L7, its forms L7-F1, its senses L7-S1) and the
                direct form of a property (P40 is wdt:P40); its other forms keep their prefixes: p:P40 (to
                statements), ps:P40 (their values), pq:P580 (their qualifiers), and wd:P40, the property as
                a node;
    any graph   what is in the namespace with the empty prefix is bare.

What SPARQL could not write as a prefixed name without escapes stays an IRI, so that a short id is a valid
name in a query once its prefix is in front. Every IRI has exactly one id, and `Namespaces.iri` inverts
`Namespaces.short`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from kbqa.errors import ConfigurationError
from kbqa.kg.naming import ENTITY_NAMESPACE, RELATION_NAMESPACE, name_of
from kbqa.kg.sparql.prefixes import PREFIXES

_FREEBASE, _WIKIDATA, _DIRECT = (PREFIXES[prefix] for prefix in ("ns", "wd", "wdt"))
_WIKIDATA_ENTITY = re.compile(r"Q[1-9][0-9]*|L[1-9][0-9]*(?:-[FS][1-9][0-9]*)?")
# The bare names of well-known namespaces.
_BARE = {
    _FREEBASE: re.compile(r"[A-Za-z][A-Za-z0-9_\-]*(?:\.[A-Za-z0-9_\-]+)+"),
    _WIKIDATA: _WIKIDATA_ENTITY,
    _DIRECT: re.compile(r"P[1-9][0-9]*"),
}
# What shows that a graph is one of these, each with its prefixes.
_FAMILIES = {
    "Freebase": ("ns",),
    "Wikidata": (
        *("wd", "wdt", "p", "ps", "pq", "pr", "wds", "wdv", "wdref", "wdno", "wdtn", "psv", "psn", "pqv"),
        *("pqn", "prv", "prn", "wikibase"),
    ),
    "DBpedia": ("dbr", "dbo", "dbp", "dbc"),
}
# Declared along with any other namespace.
_COMMON = ("rdf", "rdfs", "owl", "xsd", "skos", "foaf", "schema", "dc", "dct", "prov")
# The forms of one Wikidata property; `_WIKIDATA` has the property as a node, which bears its names.
_PROPERTY_FORMS = ("wdt", "p", "ps", "pq", "pr", "psv", "psn", "pqv", "pqn", "prv", "prn", "wdtn", "wdno")

# What follows the colon of a prefixed name without escapes; without colons, so that a name has only one.
_LOCAL = re.compile(r"(?:\w|%[0-9A-Fa-f]{2})(?:[\w.\-]|%[0-9A-Fa-f]{2})*(?<!\.)")
_NOT_IN_IRI = re.compile(r'[\s<>"{}|\\^`]')
_PREFIX = re.compile(r"(?:[A-Za-z](?:[\w.\-]*[\w\-])?)?")
_MACHINE_ID = re.compile(r"[mg]\.[0-9a-z_]+")
_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.\-]*:")
# Schemes of IRIs, which a text with a colon is taken for before a prefixed name.
_SCHEMES = frozenset({"data", "file", "ftp", "http", "https", "info", "mailto", "nodeID", "tag", "urn"})


class Namespace(NamedTuple):
    """A prefix, empty for bare names, and the beginning of the IRIs for which it stands."""

    prefix: str
    iri: str

    @classmethod
    def parse(cls, text: str) -> Namespace:
        """Read `PREFIX=IRI`.

        Raises:
            ConfigurationError: it is not of this form.
        """
        prefix, separator, iri = text.partition("=")
        if not separator or not _PREFIX.fullmatch(prefix) or not _is_iri(iri):
            raise ConfigurationError(
                f'"{text}" is not a namespace: write PREFIX=IRI, for instance ex=http://example.org/; an '
                "empty PREFIX stands for names without one"
            )
        if prefix in _SCHEMES:
            raise ConfigurationError(f'"{prefix}" cannot be a prefix, since IRIs begin with it')
        return cls(prefix, iri)


@dataclass(frozen=True)
class Namespaces:
    """The namespaces of a graph, which make its ids short; true if there are any."""

    declared: tuple[Namespace, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.declared)

    @cached_property
    def prefixes(self) -> dict[str, str]:
        """Prefix → IRI."""
        return dict(self.declared)

    @cached_property
    def _prefix_of(self) -> dict[str, str]:
        """IRI → its prefix, the first of several."""
        return {iri: prefix for prefix, iri in reversed(self.declared)}

    @cached_property
    def _beginning(self) -> re.Pattern[str]:
        """Matches the longest namespace at the beginning of an IRI."""
        return re.compile("|".join(map(re.escape, sorted(self._prefix_of, key=len, reverse=True))))

    @cached_property
    def _bare(self) -> tuple[tuple[str, re.Pattern[str]], ...]:
        """The namespaces with bare names, and those names."""
        well_known = [(iri, _BARE[iri]) for iri in self._prefix_of if iri in _BARE]
        own = [(self.prefixes[""], _LOCAL)] if "" in self.prefixes else []
        return (*well_known, *own)

    def prefixed(self, iri: str) -> str | None:
        """The prefixed name of an IRI; None if there is none that SPARQL writes without escapes."""
        found = self._beginning.match(iri) if self.declared else None
        if found is None or not _LOCAL.fullmatch(local := iri[found.end() :]):
            return None
        return f"{self._prefix_of[found[0]]}:{local}"

    def short(self, iri: str) -> str:
        """The id of an IRI; a literal or a blank node is unchanged.

        An IRI that would be read as another one's short id is written in angle brackets.
        """
        if iri.startswith(('"', "_:")):
            return iri
        name = self.prefixed(iri)
        if name is not None:
            local = name.partition(":")[2]
            return local if self.iri(local) == iri else name
        return iri if self.iri(iri) == iri else f"<{iri}>"

    def iri(self, name: str) -> str:
        """The IRI of an id, a prefixed name or an IRI, bare or in angle brackets; else the text itself."""
        if name.startswith(('"', "_:")):
            return name
        if name.startswith("<") and name.endswith(">"):
            name = name[1:-1]
            if name.startswith((ENTITY_NAMESPACE, RELATION_NAMESPACE)):
                return self.iri(name_of(name))  # how agents write a name that is no IRI
            if _ABSOLUTE.match(name):
                return name
        prefix, colon, local = name.partition(":")
        if colon:
            beginning = self.prefixes.get(prefix)
            is_name = beginning is not None and local and not _NOT_IN_IRI.search(local)
            return f"{beginning}{local}" if is_name else name
        return next((beginning + name for beginning, bare in self._bare if bare.fullmatch(name)), name)

    @property
    def has_properties(self) -> bool:
        """Whether properties are written in Wikidata's forms."""
        return _DIRECT in self.prefixes.values()

    def property_node(self, iri: str) -> str | None:
        """The node that describes a property in one of Wikidata's forms: wd:P40 for wdt:P40 or p:P40."""
        if not self.has_properties:
            return None
        beginning, _, local = iri.rpartition("/")
        is_form = _BARE[_DIRECT].fullmatch(local) and f"{beginning}/" in _FORMS
        return _WIKIDATA + local if is_form else None

    def property_forms(self, iri: str) -> tuple[str, ...]:
        """The forms of the property that a node describes, the direct one first; none of another node."""
        local = iri.removeprefix(_WIKIDATA)
        if local == iri or not _BARE[_DIRECT].fullmatch(local):
            return ()
        return tuple(beginning + local for beginning in _FORMS)


_FORMS = tuple(PREFIXES[prefix] for prefix in _PROPERTY_FORMS)
_ALL_KNOWN = Namespaces(
    tuple(Namespace(prefix, PREFIXES[prefix]) for prefix in (*_COMMON, *sum(_FAMILIES.values(), ())))
)


@dataclass(frozen=True, slots=True)
class NamespaceOptions:
    """Which namespaces a graph of IRIs is to declare; a graph of names has none.

    Attributes:
        given: namespaces that the user declares.
        recognise: whether to add those of Freebase, Wikidata and DBpedia if the graph has such IRIs.
    """

    given: tuple[Namespace, ...] = ()
    recognise: bool = True

    def namespaces(self, iris: Iterable[str]) -> Namespaces:
        """The namespaces of a graph with these IRIs, among others."""
        return declared(self.given, iris if self.recognise else ())


RECOGNISED = NamespaceOptions()


def declared(given: Iterable[Namespace], iris: Iterable[str] = ()) -> Namespaces:
    """The namespaces of a graph: those that are given, and those of the knowledge bases that its IRIs show.

    Args:
        iris: some IRIs of the graph, or none to recognise nothing.

    Raises:
        ConfigurationError: two IRIs are given for one prefix.
    """
    found: dict[str, str] = {}
    for prefix, iri in given:
        if found.setdefault(prefix, iri) != iri:
            raise ConfigurationError(f'two namespaces are given for the prefix "{prefix}"')
    waiting = {
        family: tuple(PREFIXES[prefix] for prefix in prefixes) for family, prefixes in _FAMILIES.items()
    }
    shown: list[str] = []
    for iri in iris:
        met = [family for family, beginnings in waiting.items() if iri.startswith(beginnings)]
        for family in met:
            shown += _FAMILIES[family]
            del waiting[family]
        if not waiting:
            break
    if not found and not shown:
        return Namespaces()
    for prefix in (*shown, *_COMMON):
        found.setdefault(prefix, PREFIXES[prefix])
    return Namespaces(tuple(Namespace(prefix, iri) for prefix, iri in found.items()))


def canonical_id(text: str) -> str:
    """The id of a well-known graph in its short form, whichever way it is written; other text is unchanged.

    >>> canonical_id("wd:Q38"), canonical_id("<http://www.wikidata.org/entity/Q38>"), canonical_id("Italy")
    ('Q38', 'Q38', 'Italy')
    """
    is_bracketed = text.startswith("<") and text.endswith(">")
    if (":" not in text and not is_bracketed) or any(map(str.isspace, text)):
        return text
    iri = _ALL_KNOWN.iri(text)
    return _ALL_KNOWN.short(iri) if _ABSOLUTE.match(iri) else text


def prefixed_name(id_: str) -> str | None:
    """An id of a well-known graph as a query writes it: `ns:m.0abc`, `wdt:P40`; None of any other id."""
    return _ALL_KNOWN.prefixed(_ALL_KNOWN.iri(id_))


def is_machine_id(text: str) -> bool:
    """Whether a text is written like Freebase's ids of entities, `m.02mjmr`, and thus no name."""
    return _MACHINE_ID.fullmatch(text) is not None


def is_wikidata_entity(text: str) -> bool:
    """Whether a text is the bare id of an item, lexeme, form or sense of Wikidata: `Q76`, `L7-F1`."""
    return _WIKIDATA_ENTITY.fullmatch(text) is not None


def _is_iri(text: str) -> bool:
    return _ABSOLUTE.match(text) is not None and not _NOT_IN_IRI.search(text)


def local_name(id_: str) -> str:
    """The last part of an id: `children` of `people.person.children`, `birthPlace` of `dbo:birthPlace`."""
    return re.split(r"[./#:]", id_.rstrip("/#:"))[-1]
