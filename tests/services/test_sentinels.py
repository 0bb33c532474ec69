"""When a master of Redis is gone, every user of Redis goes on with the one that the sentinels promote."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import redis
from prometheus_client import CollectorRegistry

from kbqa.errors import QueueUnavailableError
from kbqa.telemetry.metrics import Metrics
from services.access.counts import Counts
from services.access.errors import CountsUnavailableError
from services.broker import clock_offset_s, create_celery, require_broker, send
from services.gateway.errors import ShelfUnavailableError
from services.gateway.shelves import RedisShelf
from services.kg_server.cache import Cache
from services.trainer.claim import QueueClaim
from tests.services.certificates import Authority
from tests.services.queues import Broker, Notes, wait_until
from tests.services.sentinels import Sentinels, Tls

# Failing over takes seconds, after which caches and counts pause, too.
FAILOVER_S = 90.0
SERVER = Path("/usr/bin/redis-server")


@pytest.fixture
def sentinels(tmp_path: Path) -> Iterator[Sentinels]:
    sentinels = Sentinels(tmp_path)
    yield sentinels
    sentinels.close()


@pytest.fixture
def secured(tmp_path: Path) -> Iterator[Sentinels]:
    """Servers and sentinels that speak TLS alone."""
    if not SERVER.exists():
        pytest.skip(f"no {SERVER}, which is built with TLS: install Debian's package redis-server")
    authority = Authority(tmp_path)
    sentinels = Sentinels(tmp_path, Tls(str(SERVER), authority.sign("127.0.0.1"), authority.path))
    yield sentinels
    sentinels.close()


class Sender:
    """Sends numbered messages in a thread, again and again, as the trainer does."""

    def __init__(self, url: str) -> None:
        self.accepted: list[tuple[float, str]] = []
        self.refused: list[str] = []
        self.others: list[Exception] = []
        self._app = create_celery("test", url)
        self._ending = threading.Event()
        self._thread = threading.Thread(target=self._send)
        self._thread.start()

    def end(self) -> None:
        self._ending.set()
        self._thread.join()

    def _send(self) -> None:
        number = 0
        while not self._ending.wait(0.02):
            number += 1
            try:
                send(self._app, "notes", "note", f"say {number}")
            except QueueUnavailableError as error:
                self.refused.append(str(error))
            except Exception as error:
                self.others.append(error)
            else:
                self.accepted.append((time.monotonic(), str(number)))


def test_messages_flow_again_and_none_is_lost_that_the_new_master_accepted(sentinels, tmp_path) -> None:
    notes = [Notes(sentinels.url, tmp_path / f"notes-{number}") for number in range(2)]
    sender = Sender(sentinels.url)
    try:
        wait_until(lambda: all(len(one.words) > 10 for one in notes))
        master = sentinels.master
        master.kill()
        sentinels.wait_for_another(master)
        promoted = time.monotonic()
        wait_until(lambda: sum(at > promoted for at, _ in sender.accepted) > 50, FAILOVER_S)
        sender.end()
        assert sender.others == []
        sure = {number for at, number in sender.accepted if at > promoted}
        wait_until(lambda: sure <= {word for one in notes for word in one.words}, FAILOVER_S)
    finally:
        sender.end()
        for one in notes:
            one.kill()


@pytest.mark.integration  # up to a minute, after which Kombu no longer waits for an answer
def test_a_master_that_hangs_is_left_by_consumers_and_senders(sentinels, tmp_path) -> None:
    notes = Notes(sentinels.url, tmp_path / "notes")
    sender = Sender(sentinels.url)
    try:
        wait_until(lambda: len(notes.words) > 10)
        master = sentinels.master
        master.process.send_signal(signal.SIGSTOP)
        sentinels.wait_for_another(master)
        before = len(notes.words)
        wait_until(lambda: len(notes.words) > before + 50, 2 * FAILOVER_S)
        assert sender.others == []
    finally:
        sender.end()
        notes.kill()


def test_the_claim_is_taken_and_kept_with_the_new_master(sentinels) -> None:
    lost: list[str] = []
    claim = QueueClaim(sentinels.url, "", lost.append, renewed_s=0.2)
    claim.take("home-a", "trainer a-1")
    master = sentinels.master
    master.kill()
    sentinels.wait_for_another(master)
    with redis.Redis(port=sentinels.master.port) as client:
        wait_until(lambda: client.pttl("kbqa.home") > 29_000, FAILOVER_S)
        assert client.get("kbqa.home") == b"home-a trainer a-1"
        assert lost == []
        client.set("kbqa.home", "home-b trainer b-2")  # as if it had not known of the first claim
        wait_until(lambda: lost != [])
    assert "trainer b-2 uses the queues" in lost[0]
    claim.release()


def test_counts_answers_and_cached_values_go_on_with_the_new_master(sentinels) -> None:
    metrics = Metrics(CollectorRegistry())
    limits = {"memory_bytes": 0, "max_value_bytes": 100, "ttl_s": 600, "timeout_s": 2.0}
    cache = Cache(sentinels.url, Metrics(CollectorRegistry()), **limits)
    cache.open()
    cache.put("name", b"value")

    async def body() -> None:
        counts = Counts(sentinels.url, without_redis="refuse", timeout_s=2.0)
        shelf = RedisShelf(sentinels.url, "test", 3, 2**20, metrics, timeout_s=2.0)
        assert await counts.take("2/hour", "questions", "alice") is None
        await shelf.put("name", b"value", 600)
        await asyncio.to_thread(replicated, sentinels)
        master = sentinels.master
        master.kill()
        with pytest.raises(ShelfUnavailableError):
            await shelf.get("name")
        await asyncio.to_thread(sentinels.wait_for_another, master)
        assert await value_of(shelf) == b"value"
        assert await count(counts) is None
        assert await count(counts) is not None  # the first of two was counted by the old master
        await shelf.close()
        await counts.close()

    asyncio.run(body())
    wait_until(lambda: cache.get("name", "test") == b"value", FAILOVER_S)
    cache.put("other", b"new")
    assert cache.get("other", "test") == b"new"
    cache.close()


def test_a_master_that_is_demoted_is_left_by_everybody(sentinels, tmp_path) -> None:
    app = create_celery("test", sentinels.url)
    notes = Notes(sentinels.url, tmp_path / "notes")
    try:
        send(app, "notes", "note", "say before")
        wait_until(lambda: notes.words == ["before"])
        master = sentinels.master
        sentinels.fail_over()
        sentinels.wait_for_another(master)
        wait_until(lambda: sent(app, "say after"), FAILOVER_S)
        wait_until(lambda: "after" in notes.words, FAILOVER_S)
        assert clock_offset_s(app) == pytest.approx(0, abs=5)
    finally:
        notes.kill()


def test_without_a_master_the_message_names_the_sentinels_and_what_each_said() -> None:
    app = create_celery(
        "test", "redis+sentinel://:secret@127.0.0.1:1,127.0.0.1:2/films?sentinel_password=hidden"
    )
    with pytest.raises(QueueUnavailableError) as unavailable:
        require_broker(app)
    told = str(unavailable.value)
    assert (
        "at sentinel://:***@127.0.0.1:1/0, sentinel://:***@127.0.0.1:2/0 (No master found for 'films'" in told
    )
    assert "127.0.0.1:1 network:ConnectionError, 127.0.0.1:2 network:ConnectionError" in told
    assert "check in the URL the sentinels' addresses, the master's name" in told
    assert len(told) < 700
    assert "secret" not in told
    assert "hidden" not in told


def sent(app, message: str) -> bool:
    try:
        send(app, "notes", "note", message)
    except QueueUnavailableError:
        return False
    return True


def replicated(sentinels: Sentinels) -> None:
    def offset(server: Broker) -> int:
        with redis.Redis(port=server.port) as client:
            found = client.info("replication")
            return int(found["slave_repl_offset" if found["role"] == "slave" else "master_repl_offset"])

    first, second = sentinels.servers
    written = offset(first)
    wait_until(lambda: offset(second) >= written)


async def value_of(shelf: RedisShelf) -> bytes | None:
    async with asyncio.timeout(FAILOVER_S):
        while True:
            try:
                return await shelf.get("name")
            except ShelfUnavailableError:
                await asyncio.sleep(0.2)


async def count(counts: Counts) -> float | None:
    async with asyncio.timeout(FAILOVER_S):
        while True:
            try:
                return await counts.take("2/hour", "questions", "alice")
            except CountsUnavailableError:
                await asyncio.sleep(0.2)


@pytest.mark.integration  # needs a Redis that is built with TLS
def test_everybody_goes_on_with_the_new_master_by_tls(secured, tmp_path) -> None:
    notes, sender = Notes(secured.url, tmp_path / "notes"), Sender(secured.url)
    lost: list[str] = []
    claim = QueueClaim(secured.url, "", lost.append, renewed_s=0.2)
    claim.take("home-a", "trainer a-1")
    try:
        wait_until(lambda: len(notes.words) > 10, FAILOVER_S)
        assert asyncio.run(counted_and_kept(secured.url)) == b"value"
        master = secured.master
        master.kill()
        secured.wait_for_another(master)
        before = len(notes.words)
        wait_until(lambda: len(notes.words) > before + 50, FAILOVER_S)
        assert asyncio.run(counted_and_kept(secured.url)) == b"value"
        with secured.client(secured.master.port) as client:
            wait_until(lambda: client.get("kbqa.home") == b"home-a trainer a-1", FAILOVER_S)
        assert (sender.others, lost) == ([], [])
    finally:
        sender.end()
        notes.kill()
        claim.release()


@pytest.mark.integration
def test_sentinels_with_a_certificate_of_somebody_else_are_refused(secured, tmp_path) -> None:
    (tmp_path / "other").mkdir()
    other = secured.url.replace(str(tmp_path / "ca.pem"), str(Authority(tmp_path / "other").path))
    with pytest.raises(ShelfUnavailableError, match="authority"):
        asyncio.run(counted_and_kept(other))
    with pytest.raises(QueueUnavailableError, match="authority"):
        require_broker(create_celery("test", other))


async def counted_and_kept(url: str) -> bytes | None:
    counts = Counts(url, without_redis="refuse", timeout_s=5.0)
    shelf = RedisShelf(url, "test", 3, 2**20, Metrics(CollectorRegistry()), timeout_s=5.0)
    try:
        await shelf.put("name", b"value", 600)
        assert await counts.take("1000/hour", "questions", "alice") is None
        return await shelf.get("name")
    finally:
        await counts.close()
        await shelf.close()
