"""The settings of a SPARQL endpoint, which attaching a graph records."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import httpx

from kbqa.errors import ConfigurationError
from kbqa.kg.embedded.names import TYPE_RELATIONS
from kbqa.kg.languages import DEFAULT_LANGUAGES, check_languages

RDFS_LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
FREEBASE_NAME = "http://rdf.freebase.com/ns/type.object.name"
# Properties that usually hold names, the best first; attaching keeps those that the graph has.
LABEL_PROPERTIES = (
    RDFS_LABEL,
    FREEBASE_NAME,
    "http://www.w3.org/2004/02/skos/core#prefLabel",
    "http://schema.org/name",
    "http://xmlns.com/foaf/0.1/name",
)

_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\\ud800-\udfff]*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ServerKind(StrEnum):
    """The kind of server, which determines how a query's time limit is sent."""

    VIRTUOSO = "virtuoso"  # milliseconds; at the limit it sends partial results, marked by a header
    QLEVER = "qlever"  # seconds with their unit
    FUSEKI = "fuseki"  # seconds; RDF4J and qEndpoint likewise
    OTHER = "other"  # not sent

    @classmethod
    def of(cls, name: str) -> ServerKind:
        """The kind of server with this Server header; QLever cannot be detected."""
        name = name.lower()
        if "virtuoso" in name:
            return cls.VIRTUOSO
        return cls.FUSEKI if "fuseki" in name else cls.OTHER

    def time_limit(self, seconds: float) -> dict[str, str]:
        """The request parameter that sets a time limit; empty if the server has none."""
        if self is ServerKind.VIRTUOSO:
            return {"timeout": str(round(seconds * 1000))}
        if self is ServerKind.QLEVER:
            return {"timeout": f"{seconds:.3f}s"}
        return {"timeout": f"{seconds:.3f}"} if self is ServerKind.FUSEKI else {}


class AuthKind(StrEnum):
    BASIC = "basic"
    DIGEST = "digest"
    BEARER = "bearer"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address and settings of a SPARQL endpoint.

    Attributes:
        url: http or https.
        default_graphs: IRIs of the graphs that form the default graph; if empty, the server's own.
        server: the kind of server.
        labels: properties that hold names; rdfs:label and Freebase's go before the others.
        languages: languages of names, the preferred one first; `mul` and `en` follow, then names
            without a language. A name in another language is shown if there is no better one,
            but not accepted as an argument.
        deadline_s: seconds for a look-up, if its action does not allow more.
        query_deadline_s: seconds for a query of an action, if not those of the service that sends it.
        schema_deadline_s: seconds for listing all relations or all types.
        hub_relations, hub_neighbours: as `HubLimits`; each relation costs two requests.
        connections: maximum number of concurrent requests.
        check_syntax: whether queries are parsed here first; off for servers with syntax extensions.
        auth: the authentication scheme, if any.
        user: user name for basic and digest authentication.
        secret_variable: environment variable that holds the password or token.

    Raises:
        ConfigurationError: a value is invalid; the message names it.
    """

    url: str
    default_graphs: tuple[str, ...] = ()
    server: ServerKind = ServerKind.OTHER
    labels: tuple[str, ...] = LABEL_PROPERTIES
    languages: tuple[str, ...] = DEFAULT_LANGUAGES
    deadline_s: float = 3.0
    schema_deadline_s: float = 60.0
    query_deadline_s: float | None = None
    hub_relations: int = 16
    hub_neighbours: int = 50
    connections: int = 16
    check_syntax: bool = True
    auth: AuthKind | None = None
    user: str = ""
    secret_variable: str = ""

    def __post_init__(self) -> None:
        try:
            url = httpx.URL(self.url)
        except httpx.InvalidURL as error:
            raise ConfigurationError(f'"{self.url}" is not a URL: {error}') from error
        if url.scheme not in ("http", "https") or not url.host:
            raise ConfigurationError(
                f'"{self.url}": the URL of an endpoint must begin with http:// or https://'
            )
        if url.userinfo:
            raise ConfigurationError(
                "the URL contains credentials, which would be stored: put them into an environment "
                "variable instead"
            )
        for iri in (*self.default_graphs, *self.labels):
            if not is_iri(iri):
                raise ConfigurationError(f'"{iri}" is not an absolute IRI')
        if not self.labels:
            raise ConfigurationError("at least one property that holds names is needed")
        check_languages(self.languages)
        least = min(
            self.deadline_s,
            self.schema_deadline_s,
            self.deadline_s if self.query_deadline_s is None else self.query_deadline_s,
            self.connections,
            self.hub_relations,
            self.hub_neighbours,
        )
        if least <= 0:
            raise ConfigurationError("deadlines, hub limits and the number of connections must be above 0")
        if self.auth is not None and not _VARIABLE.fullmatch(self.secret_variable):
            raise ConfigurationError(
                f"{self.auth} authentication needs the name of the environment variable with the secret"
            )
        if self.auth in (AuthKind.BASIC, AuthKind.DIGEST) and not self.user:
            raise ConfigurationError(f"{self.auth} authentication needs a user")

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, fields: dict[str, Any]) -> Endpoint:
        lists = {name: tuple(fields[name]) for name in ("default_graphs", "labels", "languages")}
        auth = AuthKind(fields["auth"]) if fields["auth"] else None
        return cls(**fields | lists | {"server": ServerKind(fields["server"]), "auth": auth})


def is_iri(text: str) -> bool:
    """Whether it is an absolute IRI that SPARQL can write."""
    return _IRI.fullmatch(text) is not None


TYPE_PROPERTIES = tuple(sorted(filter(is_iri, TYPE_RELATIONS)))
"""Properties that give an entity's type."""
