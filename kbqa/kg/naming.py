"""Names of delimited files as IRIs, so that SPARQL can query them too.

An entity `Tom Hanks` is `<urn:kbqa:e:Tom%20Hanks>`, a relation `starred_actors` is
`<urn:kbqa:r:starred_actors>`: UTF-8, percent-encoded but for letters, digits and
`_.-~` (RFC 3986), which any name survives both ways. Entities and relations have
namespaces of their own, since a file may use one name as both.
"""

from __future__ import annotations

from urllib.parse import quote, unquote

ENTITY_NAMESPACE = "urn:kbqa:e:"
RELATION_NAMESPACE = "urn:kbqa:r:"


def entity_iri(name: str) -> str:
    return ENTITY_NAMESPACE + quote(name, safe="")


def relation_iri(name: str) -> str:
    return RELATION_NAMESPACE + quote(name, safe="")


def name_of(iri: str) -> str:
    """The name that `entity_iri` or `relation_iri` made `iri` from."""
    return unquote(iri[len(ENTITY_NAMESPACE) :])
