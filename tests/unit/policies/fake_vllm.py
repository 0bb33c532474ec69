"""The part of vLLM's HTTP interface that the adapter uses, over the engine in this process."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import torch

from kbqa.policies.base import Codec, SamplingParams, Truncation
from kbqa.policies.in_process import load_model
from kbqa.policies.transformers import TransformersPolicy
from kbqa.training.likelihood import token_logprobs

Answer = Callable[[str, dict[str, Any]], tuple[int, Any]]

_LOADING = threading.Lock()  # transformers loads one model at a time in a process


class FakeVllm:
    """Answers as `vllm serve` does; the path of an adapter is that of a whole model too.

    Attributes:
        asked: paths of all requests, in order.
        answer: called with path and body of each; a test may put another in its place.
    """

    def __init__(self, model: Any, codec: Codec) -> None:
        self._codec = codec
        self._models = {"": model}
        self._engines = {"": self._engine(model)}
        self.label = "default"
        self.paused = self.sleeping = False
        self.can_sleep = True
        self.asked: list[str] = []
        self.answer: Answer = self.execute
        self._http = _Http(("127.0.0.1", 0), _Handler)
        self._http.fake = self
        self.url = f"http://127.0.0.1:{self._http.server_address[1]}"
        self._thread = threading.Thread(
            target=self._http.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True
        )
        self._thread.start()

    def hang_up(self) -> None:
        """Close every connection that is open now, as a server does with those that are idle."""
        for connection in self._http.connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def stop(self) -> None:
        self._http.shutdown()
        self._http.server_close()
        self._thread.join()
        for engine in self._engines.values():
            engine.close()

    @property
    def adapters(self) -> list[str]:
        return [name for name in self._models if name]

    def execute(self, path: str, body: dict[str, Any]) -> tuple[int, Any]:
        match urlsplit(path).path:
            case "/inference/v1/generate":
                return self._generate(body)
            case "/v1/models":
                length = self._engines[""].max_length
                base = {"id": "base", "parent": None, "max_model_len": length}
                return 200, {"data": [base, *({"id": n, "parent": "base"} for n in self.adapters)]}
            case "/pause" | "/resume":
                self.paused = path.startswith("/pause")
            case "/sleep" | "/wake_up":
                self.sleeping = path.startswith("/sleep") and self.can_sleep
                return 200, {"status": "sleeping" if self.sleeping else "awake"}
            case "/is_sleeping":
                return 200, {"is_sleeping": self.sleeping}
            case "/collective_rpc":
                self._replace("", Path(body["kwargs"]["weights_path"]))
            case "/update_weight_version":
                self.label = body["new_version"]
            case "/weight_info":
                return 200, {"weight_version": self.label}
            case "/reset_prefix_cache":
                return 200, {"success": True}
            case "/v1/load_lora_adapter":
                self._replace(body["lora_name"], Path(body["lora_path"]))
            case "/v1/unload_lora_adapter":
                del self._models[body["lora_name"]]
        return 200, {}

    def _engine(self, model: Any) -> TransformersPolicy:
        return TransformersPolicy(model, self._codec, "engine", max_rows=64)

    def _replace(self, name: str, path: Path) -> None:
        with _LOADING:
            self._models[name] = load_model(path)
        self._engines[name] = self._engine(self._models[name])

    def _generate(self, body: dict[str, Any]) -> tuple[int, Any]:
        name, ids, asked = body.get("model", ""), body["token_ids"], body["sampling_params"]
        if name not in self._models:
            return 404, {"error": {"message": f"The model `{name}` does not exist."}}
        if "prompt_logprobs" in asked:
            return 200, {"prompt_logprobs": self._score(name, ids)}
        params = SamplingParams(
            asked["max_tokens"],
            max_total_tokens=1 << 20,
            temperature=asked["temperature"],
            stop=tuple(asked["stop"]),
            seed=asked.get("seed"),
            truncation=Truncation(asked["top_p"], asked["top_k"] or None),
        )
        label = self.label
        written = self._engines[name].generate([ids], params)[0]
        content = [
            {"token_id": token, "logprob": logprob}
            for token, logprob in zip(written.token_ids, written.logprobs, strict=True)
        ]
        choice = {
            "token_ids": list(written.token_ids),
            "logprobs": {"content": content},
            "finish_reason": written.finish_reason.value,
            "weight_versions": [{"version": label, "start": 0, "end": len(content)}],
        }
        return 200, {"choices": [choice]}

    def _score(self, name: str, ids: list[int]) -> list[dict[str, Any] | None]:
        mask = torch.ones(1, len(ids), dtype=torch.bool)
        mask[0, 0] = False
        with torch.inference_mode():
            logprobs = token_logprobs(self._models[name], torch.tensor([ids]), mask)[0].tolist()
        pairs = zip(ids[1:], logprobs, strict=True)
        return [None, *({str(token): {"logprob": logprob}} for token, logprob in pairs)]


class _Http(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 64
    fake: FakeVllm

    def __init__(self, *arguments: Any) -> None:
        self.connections: list[socket.socket] = []
        super().__init__(*arguments)

    def process_request(self, request: Any, client_address: Any) -> None:
        self.connections.append(request)
        super().process_request(request, client_address)

    def handle_error(self, request: object, client_address: object) -> None:
        pass  # clients hang up on purpose


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: _Http

    def do_GET(self) -> None:
        self._answer({})

    def do_POST(self) -> None:
        data = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self._answer(json.loads(data) if data else {})

    def _answer(self, body: dict[str, Any]) -> None:
        self.server.fake.asked.append(self.path)
        status, document = self.server.fake.answer(self.path, body)
        data = json.dumps(document).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *arguments: object) -> None:
        pass
