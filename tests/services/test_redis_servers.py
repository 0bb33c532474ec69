"""One URL leads every user of Redis to the same servers, and TLS is verified on every way."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import redis
from prometheus_client import CollectorRegistry

from kbqa.errors import ConfigurationError, QueueUnavailableError
from kbqa.telemetry.metrics import Metrics
from services.access.counts import Counts
from services.broker import create_celery, require_broker, send
from services.gateway.shelves import RedisShelf
from services.kg_server.cache import Cache
from services.redis_servers import RedisServers
from services.trainer.claim import QueueClaim
from tests.services.certificates import Authority, TlsFront
from tests.services.queues import Broker, Notes, answers, wait_until

PATIENCE_S = 10.0


@pytest.fixture(scope="module")
def server() -> Iterator[Broker]:
    """A Redis with a password that has to be percent-encoded."""
    broker = Broker(None, "--requirepass", "s:e/c@r?t#")
    with redis.Redis(port=broker.port, password="s:e/c@r?t#") as client:
        wait_until(lambda: answers(client))
    yield broker
    broker.kill()


@pytest.fixture(scope="module")
def authority(tmp_path_factory) -> Authority:
    return Authority(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def front(server, authority) -> Iterator[TlsFront]:
    front = TlsFront(server.port, authority.sign("127.0.0.1"))
    yield front
    front.close()


def address(front: TlsFront, query: str = "") -> str:
    return f"rediss://:s%3Ae%2Fc%40r%3Ft%23@127.0.0.1:{front.port}/1{query}"


def use_broker(url: str) -> None:
    require_broker(create_celery("test", url))


def use_claim(url: str) -> None:
    claim = QueueClaim(url, "", logging.error)
    claim.take("home-a", "trainer a-1")
    claim.release()


def use_counts(url: str) -> None:
    async def body() -> None:
        counts = Counts(url, without_redis="refuse", timeout_s=PATIENCE_S)
        try:
            assert await counts.take("1000/minute", "requests", "alice") is None
        finally:
            await counts.close()

    asyncio.run(body())


def use_shelf(url: str) -> None:
    async def body() -> None:
        shelf = RedisShelf(url, "test", 3, 2**20, Metrics(CollectorRegistry()), timeout_s=PATIENCE_S)
        try:
            await shelf.put("name", b"value", 60)
            assert await shelf.get("name") == b"value"
        finally:
            await shelf.close()

    asyncio.run(body())


def use_cache(url: str) -> None:
    limits = {"memory_bytes": 0, "max_value_bytes": 100, "ttl_s": 60, "timeout_s": PATIENCE_S}
    cache = Cache(url, Metrics(CollectorRegistry()), **limits)
    cache.open()
    try:
        cache.put("name", b"value")
        assert cache.get("name", "test") == b"value"
    finally:
        cache.close()


every_user = pytest.mark.parametrize("use", [use_broker, use_claim, use_counts, use_shelf, use_cache])


def refusal(use: Callable[[str], None], url: str, caplog: pytest.LogCaptureFixture) -> str:
    """What a user raises and logs where it is not let in."""
    with pytest.raises(Exception) as failed:  # noqa: PT011  # each user has errors of its own
        use(url)
    assert not isinstance(failed.value, ConfigurationError)
    return " ".join([str(failed.value), *(getattr(one, "error", "") for one in caplog.records)])


@every_user
def test_an_authority_is_trusted_that_the_url_or_the_environment_names(use, front, authority, monkeypatch):
    use(address(front, f"?ssl_ca_certs={authority.path}"))
    monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
    use(address(front))


@every_user
def test_a_server_of_an_unknown_authority_is_refused(use, front, caplog):
    told = refusal(use, address(front), caplog)
    assert "CERTIFICATE_VERIFY_FAILED" in told
    assert "in SSL_CERT_FILE, or in the URL by ?ssl_ca_certs=FILE" in told
    assert "s:e/c@r?t#" not in told
    assert "s%3Ae" not in told
    use(address(front, "?ssl_cert_reqs=none"))  # only for whoever asks for it


@every_user
def test_a_server_with_the_certificate_of_another_one_is_refused(use, server, authority, caplog):
    front = TlsFront(server.port, authority.sign("redis.example.org"))
    try:
        told = refusal(use, address(front, f"?ssl_ca_certs={authority.path}"), caplog)
        assert "write the server's name in the URL as its certificate has it" in told
        use(address(front, f"?ssl_ca_certs={authority.path}&ssl_check_hostname=false"))
    finally:
        front.close()


@every_user
def test_a_server_may_ask_for_a_certificate_of_its_clients(use, server, authority):
    front = TlsFront(server.port, authority.sign("127.0.0.1"), clients=authority.path)
    mine = authority.sign("a client")
    try:
        with pytest.raises(Exception):  # noqa: B017, PT011
            use(address(front, f"?ssl_ca_certs={authority.path}"))
        use(address(front, f"?ssl_ca_certs={authority.path}&ssl_certfile={mine}&ssl_keyfile={mine}"))
    finally:
        front.close()


def test_a_consumer_takes_messages_by_tls(front, authority, tmp_path: Path) -> None:
    url = address(front, f"?ssl_ca_certs={authority.path}")
    notes = Notes(url, tmp_path / "notes")
    try:
        send(create_celery("test", url), "notes", "note", "say hello")
        wait_until(lambda: notes.words == ["hello"])
        log = notes.log.read_text()
        assert "insecure" not in log
        assert "s%3Ae" not in log
    finally:
        notes.kill()


def test_a_server_without_tls_does_not_hold_up_who_expects_it(server) -> None:
    with pytest.raises(QueueUnavailableError, match="no message broker answers"):
        require_broker(create_celery("test", f"rediss://127.0.0.1:{server.port}/0"))


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        ("http://127.0.0.1/", 'it begins with "http"'),
        ("127.0.0.1:6379", "it has no scheme"),
        ("sentinel://a:26379;sentinel://b:26379", 'it begins with "sentinel"'),
        ("redis:///0", "a host is missing"),
        ("redis://a:1,b:2/0", "several hosts need redis+sentinel://"),
        ("redis://a:port/0", "a port is not a number"),
        ("redis://:p/w@a:6379/0", "a port is not a number"),
        ("redis://a/films", "the database is not a number"),
        ("redis://a/0?ssl_ca_certs=ca.pem", "options for TLS need rediss://"),
        ("rediss://a/0?ssl_cert_reqs=maybe", "ssl_cert_reqs is neither"),
        ("rediss://a/0?ssl_check_hostname=maybe", "ssl_check_hostname is neither"),
        ("redis://a/0?sentinel_password=x", 'it has an unknown option "sentinel_password"'),
        ("redis+sentinel://a:26379,b:26379", "after the hosts comes the name"),
        ("redis+sentinel://a:26379,b:26379/master/0", "after the hosts comes the name"),
        ("redis+sentinel://a:26379,/master", "a host is missing"),
        ("redis+sentinel://a/master?db=one", "the database is not a number"),
    ],
)
def test_a_malformed_url_is_told_with_the_setting_and_the_forms(url: str, problem: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        RedisServers.of(url, "KBQA_REDIS_URL")
    assert str(refused.value).startswith(f"KBQA_REDIS_URL is not a Redis URL ({problem}")
    assert "redis+sentinel://[USER:PASSWORD@]HOST:26379,HOST:26379/MASTER" in str(refused.value)
    assert "p/w" not in str(refused.value)


def test_a_url_names_sentinels_credentials_and_database() -> None:
    servers = RedisServers.of(
        "rediss+sentinel://me:p%40ss@A,[::1]:5000/films?db=3&sentinel_password=q%26", "KBQA_REDIS_URL"
    )
    assert servers.addresses == (("a", 26379), ("::1", 5000))
    assert (servers.master, servers.database) == ("films", 3)
    assert servers.credentials == {"username": "me", "password": "p@ss"}
    assert servers.sentinel_credentials == {"password": "q&"}
    assert servers.tls == {"ssl_cert_reqs": "required", "ssl_check_hostname": True}
    assert "p@ss" not in repr(servers)
    url = servers.celery_settings(timeout_s=1)["broker_url"]
    assert url == "sentinel://me:p%40ss@a:26379/3;sentinel://me:p%40ss@[::1]:5000/3"


@pytest.mark.parametrize(
    ("query", "tls"),
    [
        ("", {"ssl_cert_reqs": "required", "ssl_check_hostname": True}),
        ("?ssl_cert_reqs=CERT_REQUIRED", {"ssl_cert_reqs": "required", "ssl_check_hostname": True}),
        ("?ssl_cert_reqs=CERT_NONE", {"ssl_cert_reqs": "none", "ssl_check_hostname": False}),
        ("?ssl_check_hostname=False", {"ssl_cert_reqs": "required", "ssl_check_hostname": False}),
    ],
)
def test_certificates_are_verified_unless_the_url_says_otherwise(query: str, tls: dict[str, object]) -> None:
    assert RedisServers.of(f"rediss://a/0{query}", "KBQA_REDIS_URL").tls == tls
