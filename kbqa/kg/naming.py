"""Names of delimited files as IRIs, so that SPARQL can query them too.

An entity `Tom Hanks` is `<urn:kbqa:e:Tom%20Hanks>`, a relation `starred_actors` is
`<urn:kbqa:r:starred_actors>`: UTF-8, percent-encoded but for letters, digits and
`_.-~` (RFC 3986), which any name survives both ways. Entities and relations have
namespaces of their own, since a file may use one name as both.
"""

from __future__ import annotations

import re
from urllib.parse import quote, unquote

ENTITY_NAMESPACE = "urn:kbqa:e:"
RELATION_NAMESPACE = "urn:kbqa:r:"


# Most names consist of these, and then a replacement does, at a quarter of the price.
_PLAIN = re.compile(r"[A-Za-z0-9_.~ -]*")


def entity_iri(name: str) -> str:
    return ENTITY_NAMESPACE + _encoded(name)


def relation_iri(name: str) -> str:
    return RELATION_NAMESPACE + _encoded(name)


def name_of(iri: str) -> str:
    """The name that `entity_iri` or `relation_iri` made `iri` from."""
    encoded = iri[len(ENTITY_NAMESPACE) :].replace("%20", " ")
    return unquote(encoded) if "%" in encoded else encoded


def _encoded(name: str) -> str:
    return name.replace(" ", "%20") if _PLAIN.fullmatch(name) else quote(name, safe="")
