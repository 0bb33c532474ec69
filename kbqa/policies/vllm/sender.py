"""Sends the weights of published versions straight into vLLM servers that ask for them.

    worker ── which version ──▶ sender
       └── where to meet ─────▶ vLLM: a group with the sender, for this one transfer
                                vLLM ◀── the bytes of the version's file ── sender

The file is what was published, so its checksum in the manifest is that of the transfer. Right after
publication the operating system still holds it in memory.
"""

from __future__ import annotations

import json
import logging
import mmap
import socket
import socketserver
import threading
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch._C._distributed_c10d import ProcessGroupGloo, TCPStore

from kbqa.errors import PolicyError, PolicyUnavailableError

logger = logging.getLogger(__name__)

_ASK_S = 10.0  # timeout of a question to the sender
_MEET_S = timedelta(seconds=60)  # timeout of one message within a group, and of its beginning
WEIGHTS = "model.safetensors"


@dataclass(frozen=True, slots=True)
class Meeting:
    """Where the processes of a group meet.

    Attributes:
        world_size: number of processes, the sender included.
    """

    master_address: str
    master_port: int
    world_size: int

    def join(self, rank: int) -> Any:
        """Join the group, as rank 0 if this is the sender."""
        store = TCPStore(self.master_address, self.master_port, timeout=_MEET_S)
        return ProcessGroupGloo(store, rank, self.world_size, _MEET_S)


def ask_for(address: tuple[str, int], run: str, version: str, receivers: int) -> Meeting:
    """Ask a sender for a version.

    Args:
        receivers: number of processes that receive it.

    Raises:
        PolicyUnavailableError: the sender does not answer, or does not have the version.
    """
    where = "{}:{}".format(*address)
    try:
        with socket.create_connection(address, _ASK_S) as connection:
            question = {"run": run, "version": version, "receivers": receivers}
            connection.sendall(json.dumps(question).encode() + b"\n")
            answer = json.loads(connection.makefile("rb").readline())
    except (OSError, ValueError) as error:
        raise PolicyUnavailableError(f"no weights from {where} ({error}): is the trainer up?") from error
    if "error" in answer:
        raise PolicyUnavailableError(f"no weights from {where}: {answer['error']}")
    return Meeting(**answer)


class WeightSender:
    """Sends versions of a policy store; each transfer has a thread and a group of its own.

    Args:
        find: the verified directory of a version, from its run and id; may raise `PolicyError`.
        host, port: address to listen on; port 0 takes any.
    """

    def __init__(self, find: Callable[[str, str], Path], host: str, port: int) -> None:
        self._server = _Server((host, port), _Handler)
        self._server.find = find
        self._thread = threading.Thread(target=self._server.serve_forever, name="weight-sender", daemon=True)
        self._thread.start()

    @property
    def address(self) -> tuple[str, int]:
        host, port = self._server.server_address[:2]
        return str(host), int(port)

    def close(self) -> None:
        """Take no more questions; transfers in progress end by themselves."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    allow_reuse_address = True
    find: Callable[[str, str], Path]


class _Handler(socketserver.StreamRequestHandler):
    server: _Server
    timeout = _ASK_S

    def handle(self) -> None:
        try:
            question = json.loads(self.rfile.readline())
            path = self.server.find(question["run"], question["version"]) / WEIGHTS
            if not path.is_file():
                raise PolicyUnavailableError(f"version {question['version']} is not a whole model")
            # The address by which the asker has reached this process.
            host, world = self.request.getsockname()[0], 1 + int(question["receivers"])
            store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=_MEET_S)
        except (PolicyError, OSError, ValueError, KeyError, TypeError, RuntimeError) as error:
            self.wfile.write(json.dumps({"error": str(error)}).encode() + b"\n")
            return
        meeting = Meeting(host, store.port, world)
        self.wfile.write(json.dumps(asdict(meeting)).encode() + b"\n")
        try:
            _send(path, meeting.join(0))
        except RuntimeError as error:  # gloo's only one
            logger.warning("weights were not received", extra={"path": str(path), "error": str(error)})


def _send(path: Path, group: Any) -> None:
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as data:
        whole = torch.frombuffer(data, dtype=torch.uint8)
        for start, end in _pieces(data):
            group.broadcast(whole[start:end], 0).wait()
        del whole


def _pieces(data: mmap.mmap) -> Iterator[tuple[int, int]]:
    """Where the length of the header, the header and each tensor begin and end in a safetensors file."""
    begin = 8 + int.from_bytes(data[:8], "little")
    yield 0, 8
    yield 8, begin
    for start, end in (entry["data_offsets"] for entry in entries(data[8:begin]).values()):
        if end > start:
            yield begin + start, begin + end


def entries(header: bytes) -> dict[str, Any]:
    """The tensors of a safetensors file by name, in the order of their data."""
    found: dict[str, Any] = json.loads(header)
    found.pop("__metadata__", None)
    return dict(sorted(found.items(), key=lambda item: item[1]["data_offsets"]))


def received(group: Any, size: int) -> Tensor:
    """The next piece of a file from the sender, [size] bytes."""
    piece = torch.empty(size, dtype=torch.uint8)
    group.broadcast(piece, 0).wait()
    return piece
