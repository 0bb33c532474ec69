"""Where a SPARQL endpoint is and how it is asked: what attaching a graph records."""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import httpx

from kbqa.errors import ConfigurationError

RDFS_LABEL = "http://www.w3.org/2000/01/rdf-schema#label"
FREEBASE_NAME = "http://rdf.freebase.com/ns/type.object.name"

_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\\ud800-\udfff]*")
_LANGUAGE = re.compile(r"[A-Za-z]{1,8}(-[A-Za-z0-9]{1,8})*")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


class ServerKind(StrEnum):
    """Whose server it is, as far as that matters: how it is told a query's time limit."""

    VIRTUOSO = "virtuoso"  # milliseconds; answers with what it has, under a header
    QLEVER = "qlever"  # seconds with their unit
    FUSEKI = "fuseki"  # seconds; RDF4J and qEndpoint likewise
    OTHER = "other"  # not at all

    @classmethod
    def of(cls, name: str) -> ServerKind:
        """Whose server calls itself so in its answers; QLever does not tell."""
        name = name.lower()
        if "virtuoso" in name:
            return cls.VIRTUOSO
        return cls.FUSEKI if "fuseki" in name else cls.OTHER

    def time_limit(self, seconds: float) -> dict[str, str]:
        """The request's parameter that says so."""
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
    """Where a SPARQL endpoint is, and how it is asked.

    Attributes:
        url: http or https.
        default_graphs: IRIs of the graphs that make up its default graph; its own when empty.
        server: whose it is.
        labels: properties that hold names, all alike.
        languages: of names, the preferred first; those without a language come before any.
            A name in another language is shown where there is no better one, but not accepted.
        deadline_s: of a look-up.
        schema_deadline_s: of the lists of all relations and all types.
        connections: requests at the same time.
        check_syntax: whether queries are parsed here first; off for a server's own extensions.
        auth: how we prove who we are.
        user: of basic and digest.
        secret_variable: environment variable that holds the password or token.

    Raises:
        ConfigurationError: a value cannot be one; names it.
    """

    url: str
    default_graphs: tuple[str, ...] = ()
    server: ServerKind = ServerKind.OTHER
    labels: tuple[str, ...] = (RDFS_LABEL, FREEBASE_NAME)
    languages: tuple[str, ...] = ("en",)
    deadline_s: float = 3.0
    schema_deadline_s: float = 60.0
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
        for language in self.languages:
            if not _LANGUAGE.fullmatch(language):
                raise ConfigurationError(f'"{language}" is not a language tag such as en or pt-BR')
        if len(self.languages) > 8:
            raise ConfigurationError("at most 8 languages are allowed")
        if min(self.deadline_s, self.schema_deadline_s) <= 0 or self.connections < 1:
            raise ConfigurationError("deadline and number of connections must be above 0")
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
