"""Where a Redis is, as its URL says, and clients of it.

    redis://[USER:PASSWORD@]HOST[:6379][/DATABASE]
    redis+sentinel://[USER:PASSWORD@]HOST[:26379],HOST[:26379]/MASTER[?db=DATABASE]

`rediss://` and `rediss+sentinel://` use TLS. Then the server must show a certificate that is valid for HOST
and signed by an authority of the system, of the file in `SSL_CERT_FILE`, or of that in `?ssl_ca_certs=FILE`.
With sentinels, both they and the servers are reached by TLS. USER and PASSWORD are those of Redis; a password
of the sentinels is given by `?sentinel_password=`. Special characters are percent-encoded.

servers = RedisServers.of(url, "KBQA_REDIS_URL")
client = servers.async_client(timeout_s=0.5)
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self
from urllib.parse import parse_qsl, quote, unquote, urlsplit

from redis import Redis
from redis.asyncio import Redis as AsyncRedis
from redis.asyncio.retry import Retry as AsyncRetry
from redis.asyncio.sentinel import Sentinel as AsyncSentinel
from redis.asyncio.sentinel import SentinelConnectionPool
from redis.backoff import NoBackoff
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.retry import Retry
from redis.sentinel import Sentinel

from kbqa.errors import ConfigurationError
from services.urls import split_url

SCHEMES = ("redis", "rediss", "redis+sentinel", "rediss+sentinel")

_FORMS = (
    "redis://[USER:PASSWORD@]HOST:6379/0 or redis+sentinel://[USER:PASSWORD@]HOST:26379,HOST:26379/MASTER"
)
_FILES = ("ssl_ca_certs", "ssl_ca_path", "ssl_certfile", "ssl_keyfile")
_OPTIONS = ("db", "ssl_check_hostname", "ssl_cert_reqs", "ssl_password", *_FILES)
_SENTINEL_OPTIONS = ("sentinel_username", "sentinel_password")
_VERIFY = {"none": "none", "optional": "optional", "required": "required"}
_VERIFY |= {f"CERT_{name.upper()}": name for name in _VERIFY}  # as Celery writes them
_TRUTH = {"true": True, "false": False}

_ADVICE = {
    ("self-signed", "self signed", "local issuer"): (
        "name the file of the authority that signed its certificate in SSL_CERT_FILE, or in the URL by "
        "?ssl_ca_certs=FILE"
    ),
    ("mismatch",): "write the server's name in the URL as its certificate has it",
    ("No master found",): (
        "check in the URL the sentinels' addresses, the master's name and, with TLS, the authority of their "
        "certificates"
    ),
}
"""What OpenSSL says of a certificate or redis-py of sentinels, and what to do then."""

# How redis-py shows a sentinel that failed: all options of its client, and what kind of error there was.
_SENTINEL = re.compile(r"<redis\.\S*Redis\(.*?\bhost=([^,]*),port=(\d+).*?\)>\)>\)> - ([\w:]+)")


_Retry = type[Retry] | type[AsyncRetry]


@dataclass(frozen=True)
class RedisServers:
    """One server, or the master that sentinels name.

    Attributes:
        addresses: hosts and ports, of the server or of the sentinels.
        master: what the sentinels call it; None without sentinels.
        database: its number.
        credentials: `username` and `password` of Redis, as far as there are any.
        sentinel_credentials: the same of the sentinels.
        tls: how a certificate is verified, as arguments of redis-py; None without TLS.
    """

    addresses: tuple[tuple[str, int], ...]
    master: str | None = None
    database: int = 0
    credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    sentinel_credentials: Mapping[str, str] = field(default_factory=dict, repr=False)
    tls: Mapping[str, Any] | None = field(default=None, repr=False)

    @classmethod
    def of(cls, url: str, setting: str) -> Self:
        """Read a URL.

        Args:
            setting: what the URL was given by, for the message of an error.

        Raises:
            ConfigurationError: the URL has none of the forms above.
        """
        try:
            return cls._read(url)
        except ValueError as error:
            raise ConfigurationError(f"{setting} is not a Redis URL ({error}): write {_FORMS}") from error

    @classmethod
    def _read(cls, url: str) -> Self:
        parts = split_url(url)
        if parts.scheme not in SCHEMES:
            raise ValueError(f'it begins with "{parts.scheme}"' if parts.scheme else "it has no scheme")
        sentinels = parts.scheme.endswith("+sentinel")
        options = _options(parts.query, (*_OPTIONS, *_SENTINEL_OPTIONS) if sentinels else _OPTIONS)
        login, _, hosts = parts.netloc.rpartition("@")
        addresses = tuple(_address(host, 26379 if sentinels else 6379) for host in hosts.split(","))
        if not sentinels and len(addresses) > 1:
            raise ValueError("several hosts need redis+sentinel://")
        path = unquote(parts.path).strip("/")
        if sentinels and (not path or "/" in path):
            raise ValueError("after the hosts comes the name that the sentinels have for the master")
        user, _, password = (unquote(part) for part in login.partition(":"))
        tls = parts.scheme.startswith("rediss")
        if not tls and any(name.startswith("ssl_") for name in options):
            raise ValueError("options for TLS need rediss:// or rediss+sentinel://")
        return cls(
            addresses=addresses,
            master=path if sentinels else None,
            database=_database(options.get("db", "" if sentinels else path)),
            credentials=_credentials(user, password),
            sentinel_credentials=_credentials(*(options.get(name, "") for name in _SENTINEL_OPTIONS)),
            tls=_verification(options) if tls else None,
        )

    def client(self, *, timeout_s: float, retries: int = 0) -> Redis:
        """A client for threads; it connects when it is used.

        Args:
            timeout_s: longest time for connecting and for each answer, in seconds.
            retries: how often a command is sent again after a connection broke, at once.
        """
        options = self._options(timeout_s, retries, Retry)
        if self.master is None:
            ((host, port),) = self.addresses
            return Redis(host=host, port=port, **options)
        asked = self._sentinel_options(timeout_s, Retry)
        sentinels = Sentinel(self.addresses, sentinel_kwargs=asked, **options)  # type: ignore[no-untyped-call]
        client: Redis = sentinels.master_for(self.master)  # type: ignore[no-untyped-call]
        return client

    def async_client(self, *, timeout_s: float, retries: int = 0) -> AsyncRedis:
        """The same for an event loop, the one in which it is used first."""
        options = self._options(timeout_s, retries, AsyncRetry)
        if self.master is None:
            ((host, port),) = self.addresses
            return AsyncRedis(host=host, port=port, **options)
        asked = self._sentinel_options(timeout_s, AsyncRetry)
        sentinels = AsyncSentinel(self.addresses, sentinel_kwargs=asked, **options)  # type: ignore[no-untyped-call]
        client: AsyncRedis = sentinels.master_for(self.master, redis_class=_MasterClient)
        return client

    def celery_settings(self, *, timeout_s: float) -> dict[str, Any]:
        """`broker_url`, and if needed `broker_use_ssl` and `broker_transport_options`, for Celery.

        Args:
            timeout_s: longest time for connecting to a sentinel and for its answer, in seconds.
        """
        scheme = "sentinel" if self.master is not None else "rediss" if self.tls is not None else "redis"
        settings: dict[str, Any] = {"broker_transport_options": {}}
        settings["broker_url"] = ";".join(
            f"{scheme}://{self._login}{_host(host)}:{port}/{self.database}" for host, port in self.addresses
        )
        if self.tls is not None:  # else Kombu would accept any certificate
            settings["broker_use_ssl"] = dict(self.tls)
        if self.master is not None:
            settings["broker_transport_options"] = {
                "master_name": self.master,
                "sentinel_kwargs": self._sentinel_options(timeout_s, Retry),
            }
        return settings

    @property
    def _login(self) -> str:
        if not self.credentials:
            return ""
        user, password = (quote(self.credentials.get(name, ""), "") for name in ("username", "password"))
        return f"{user}:{password}@"

    def _options(self, timeout_s: float, retries: int, retry: _Retry) -> dict[str, Any]:
        return {
            "db": self.database,
            **self.credentials,
            **self._connection(timeout_s),
            # Not after a timeout, which would double the time that a caller waits.
            "retry": retry(NoBackoff(), retries, supported_errors=(RedisConnectionError,)),
        }

    def _sentinel_options(self, timeout_s: float, retry: _Retry) -> dict[str, Any]:
        # Another sentinel is asked instead of the same one again.
        return {
            **self.sentinel_credentials,
            **self._connection(timeout_s),
            "retry": retry(NoBackoff(), 0),
        }

    def _connection(self, timeout_s: float) -> dict[str, Any]:
        tls = {} if self.tls is None else {"ssl": True, **self.tls}
        return {"socket_timeout": timeout_s, "socket_connect_timeout": timeout_s, **tls}


class _MasterClient(AsyncRedis):
    """A client of the master, which closes its connections to the sentinels as well."""

    async def aclose(self, close_connection_pool: bool | None = None) -> None:
        await super().aclose(close_connection_pool)
        assert isinstance(self.connection_pool, SentinelConnectionPool)
        for sentinel in self.connection_pool.sentinel_manager.sentinels:
            await sentinel.aclose()


def explain(error: BaseException) -> str:
    """The text of an error of Redis, with what to do if the settings may be the reason."""
    text = _SENTINEL.sub(r"\1:\2 \3", str(error)) or type(error).__name__
    for phrases, advice in _ADVICE.items():
        if any(phrase in text for phrase in phrases):
            return f"{text}: {advice}"
    return text


def _options(query: str, known: tuple[str, ...]) -> dict[str, str]:
    options = dict(parse_qsl(query, keep_blank_values=True))
    for name in options:
        if name not in known:
            raise ValueError(f'it has an unknown option "{name}"; known: {", ".join(known)}')
    return options


def _address(text: str, default_port: int) -> tuple[str, int]:
    parts = urlsplit(f"//{text}")
    try:
        port = parts.port
    except ValueError as error:  # it would quote a password that holds a slash
        raise ValueError("a port is not a number up to 65535") from error
    if not parts.hostname:
        raise ValueError("a host is missing")
    return parts.hostname, port or default_port


def _host(host: str) -> str:
    return f"[{host}]" if ":" in host else host


def _database(text: str) -> int:
    if text and not text.isdecimal():
        raise ValueError("the database is not a number")
    return int(text or 0)


def _credentials(user: str, password: str) -> dict[str, str]:
    given = {"username": user, "password": password}
    return {name: value for name, value in given.items() if value}


def _verification(options: Mapping[str, str]) -> dict[str, Any]:
    """Arguments of redis-py, which verifies nothing by default in some versions."""
    required = options.get("ssl_cert_reqs", "required")
    if required not in _VERIFY:
        raise ValueError("ssl_cert_reqs is neither required, optional nor none")
    named = options.get("ssl_check_hostname", "true").lower()
    if named not in _TRUTH:
        raise ValueError("ssl_check_hostname is neither true nor false")
    given = {name: options[name] for name in (*_FILES, "ssl_password") if name in options}
    return {
        "ssl_cert_reqs": _VERIFY[required],
        "ssl_check_hostname": _TRUTH[named] and _VERIFY[required] != "none",
        **given,
    }
