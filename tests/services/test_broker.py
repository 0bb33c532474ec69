"""How a process holds on to the broker."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import psutil
import pytest
import redis

from services.broker import SENDING_CONNECTIONS, connected, create_celery, send
from tests.services.queues import Broker, answers, wait_until


@pytest.fixture
def broker() -> Iterator[Broker]:
    broker = Broker()
    wait_until(lambda: is_up(broker))
    yield broker
    broker.kill()


def is_up(broker: Broker) -> bool:
    with redis.Redis(port=broker.port) as client:  # closed, since the tests count connections
        return answers(client)


def sockets_to(port: int) -> int:
    """Open sockets of this process whose other end is the broker."""
    return sum(
        bool(one.raddr) and one.raddr.port == port for one in psutil.Process().net_connections(kind="tcp")
    )


def send_at_once(app, messages: int) -> None:
    """Send from as many threads, all of which need a connection at the same time."""
    ready = threading.Barrier(messages)

    def body() -> None:
        ready.wait()
        for _ in range(3):
            send(app, "notes", "note", "a message")

    threads = [threading.Thread(target=body) for _ in range(messages)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_however_many_threads_send_the_connections_stay_few_also_after_the_broker_was_away(broker):
    app = create_celery("test", broker.url)
    most = 2 * SENDING_CONNECTIONS
    for _ in range(3):
        send_at_once(app, 32)
        assert sockets_to(broker.port) <= most
        broker.kill()
        broker.start()
        wait_until(lambda: is_up(broker))


def test_every_message_of_every_thread_arrives(broker):
    app = create_celery("test", broker.url)
    send_at_once(app, 32)
    with connected(app) as connection:
        assert app.amqp.queues["notes"](connection.default_channel).queue_declare().message_count == 96


def test_connections_are_kept_alive_so_that_a_vanished_machine_is_noticed(broker):
    with connected(create_celery("test", broker.url)) as connection:
        client = connection.default_channel.client
        opened = client.connection_pool.get_connection()
        options = [
            opened._sock.getsockopt(socket.IPPROTO_TCP, getattr(socket, name))
            for name in ("TCP_KEEPIDLE", "TCP_KEEPINTVL", "TCP_KEEPCNT")
        ]
        client.connection_pool.release(opened)
    assert options == [5, 5, 3]
