"""Maps the names in delimited files to IRIs, so that SPARQL can query them.

An entity `Tom Hanks` is `<urn:kbqa:e:Tom%20Hanks>`, a relation `starred_actors` is
`<urn:kbqa:r:starred_actors>`: UTF-8, percent-encoded except for letters, digits and
`_.-~` (RFC 3986), which is reversible for any name. Entities and relations have separate
namespaces, since a file may use one name for both.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

ENTITY_NAMESPACE = "urn:kbqa:e:"
RELATION_NAMESPACE = "urn:kbqa:r:"


# Most names match this; replacing spaces is then enough, and takes a quarter of the time.
_PLAIN = re.compile(r"[A-Za-z0-9_.~ -]*")
_PLAIN_LINES, _NOT_PLAIN = re.compile(r"[A-Za-z0-9_.~ \n-]*"), re.compile(r"[^A-Za-z0-9_.~ \n-]+")


def entity_iri(name: str) -> str:
    return ENTITY_NAMESPACE + _encoded(name)


def relation_iri(name: str) -> str:
    return RELATION_NAMESPACE + _encoded(name)


def name_of(iri: str) -> str:
    """The name from which `entity_iri` or `relation_iri` made `iri`."""
    encoded = iri[len(ENTITY_NAMESPACE) :].replace("%20", " ")
    return unquote(encoded) if "%" in encoded else encoded


def encoded_lines(names: str) -> str:
    """Names without line breaks, one a line, percent-encoded as in IRIs."""
    if not _PLAIN_LINES.fullmatch(names):
        names = _NOT_PLAIN.sub(lambda found: quote(found[0], safe=""), names)
    return names.replace(" ", "%20")


def _encoded(name: str) -> str:
    return name.replace(" ", "%20") if _PLAIN.fullmatch(name) else quote(name, safe="")
