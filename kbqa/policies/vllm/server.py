"""Calls to a vLLM server other than completions: loading weights, and asking about them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kbqa.errors import PolicyUnavailableError
from kbqa.policies.probe import Probe
from kbqa.policies.vllm.client import Client

MAX_IN_FLIGHT = 1024
"""What vLLM computes at a time on a large GPU, unless `--max-num-seqs` says otherwise."""

_PROMPT_S = 10.0  # timeout of calls that compute nothing
_HEALTH_S = 3.0
_STEP_S = 120.0  # of a call that computes, or waits for completions in flight
_SLOWEST_READ = 100e6  # bytes a second, of a network's file system
_RESET_TRIES = 20  # attempts to clear the prefix cache, while its last blocks are being released
_RESET_PAUSE_S = 0.1


class VllmServer:
    """One server; safe for many threads.

    Args:
        url: `http://host:port`.
        update_timeout_s: maximum seconds of a change of weights; None derives it from their size.
        max_in_flight: maximum completions that the server computes or queues at a time; others wait here.

    Attributes:
        changing: held by whoever loads weights, or looks which are loaded.
        wanted: label of the weights that were asked for last; None before.

    Raises:
        ConfigurationError: the URL is not of this form.
    """

    def __init__(
        self, url: str, *, update_timeout_s: float | None = None, max_in_flight: int = MAX_IN_FLIGHT
    ) -> None:
        self.client = Client(url, max_in_flight=max_in_flight)
        self._update_timeout_s = update_timeout_s
        self._loaded: set[str] = set()
        self.changing = threading.RLock()
        self.wanted: str | None = None

    @property
    def url(self) -> str:
        return self.client.url

    def update_timeout_s(self, size: int) -> float:
        """Maximum seconds of a change of weights of `size` bytes."""
        return self._update_timeout_s or _STEP_S + size / _SLOWEST_READ

    def close(self) -> None:
        """Cancel what is in flight, and close all connections."""
        self.client.close()

    def require_healthy(self) -> None:
        """Make sure that the server and its engine run.

        Raises:
            PolicyUnavailableError: they do not.
        """
        self._ask("GET", "/health", timeout_s=_HEALTH_S)

    def unready(self) -> str | None:
        """None if the server answers, otherwise why not."""
        try:
            self.require_healthy()
        except PolicyUnavailableError as error:
            return str(error)
        return None

    def max_length(self) -> int:
        """Maximum tokens of prompt and completion together."""
        models = self._ask("GET", "/v1/models")["data"]
        return int(models[0]["max_model_len"])

    def load_adapter(self, name: str, path: Path) -> None:
        """Load a LoRA adapter under a name that is never reused.

        Adapters that an earlier process has left in the server are unloaded.

        Raises:
            PolicyUnavailableError: the server cannot load it; says why.
        """
        models = self._ask("GET", "/v1/models")["data"]
        present = {model["id"] for model in models if model.get("parent")}
        for left in present - self._loaded - {name}:
            self.unload_adapter(left)
        if name not in present:
            body = {"lora_name": name, "lora_path": str(path.resolve())}
            self._ask("POST", "/v1/load_lora_adapter", body, timeout_s=self.update_timeout_s(_size(path)))
        self._loaded.add(name)

    def unload_adapter(self, name: str) -> None:
        self._loaded.discard(name)
        self._ask("POST", "/v1/unload_lora_adapter", {"lora_name": name})

    def has_adapter(self, name: str) -> bool:
        """Whether an adapter is loaded."""
        return any(model["id"] == name for model in self._ask("GET", "/v1/models")["data"])

    def weight_label(self) -> str:
        """The label of the weights that the engine holds; "default" after its start."""
        return str(self._ask("GET", "/weight_info")["weight_version"])

    def read_weights(self, path: Path) -> None:
        """Let a paused server read the base model's weights from a directory of the same architecture.

        Raises:
            PolicyUnavailableError: it cannot.
        """
        reload = {"method": "reload_weights", "kwargs": {"weights_path": str(path.resolve())}}
        self._ask("POST", "/collective_rpc", reload, timeout_s=self.update_timeout_s(_size(path)))

    def receive_weights(self, meet: Callable[[int], Mapping[str, Any]], sha256: str, size: int) -> None:
        """Let a paused server receive the base model's weights from a sender.

        Args:
            meet: where the sender and so many processes of the server meet.
            sha256, size: of the file that is sent.

        Raises:
            PolicyUnavailableError: it does not receive them.
        """
        processes = int(self._ask("GET", "/get_world_size")["world_size"])
        limit = self.update_timeout_s(size)
        self._ask(
            "POST", "/init_weight_transfer_engine", {"init_info": dict(meet(processes))}, timeout_s=limit
        )
        try:
            self._ask("POST", "/start_weight_update", timeout_s=limit)
        except PolicyUnavailableError:  # whoever has begun one before may have died in it
            self._ask("POST", "/finish_weight_update", {}, timeout_s=limit)
            self._ask("POST", "/start_weight_update", timeout_s=limit)
        self._ask("POST", "/update_weights", {"update_info": {"sha256": sha256}}, timeout_s=limit)
        self._ask("POST", "/finish_weight_update", {}, timeout_s=limit)

    @contextmanager
    def asleep(self) -> Iterator[None]:
        """Free the memory of the server's GPU while the context lasts.

        Weights move to the host, and the cache is dropped. Completions in flight pause; what the cache held
        of them is computed again.

        Raises:
            PolicyUnavailableError: the server does not fall asleep, or does not wake up.
        """
        self._ask("POST", "/sleep?" + urlencode({"level": 1, "mode": "keep"}), timeout_s=_STEP_S)
        try:
            if not self._ask("GET", "/is_sleeping")["is_sleeping"]:
                raise PolicyUnavailableError(
                    f"vLLM at {self.url} does not sleep (start it with --enable-sleep-mode)"
                )
            yield
        finally:
            self.wake()

    def wake(self) -> None:
        """Wake a server that may be asleep, because whoever sent it to sleep has died.

        Raises:
            PolicyUnavailableError: it does not wake up.
        """
        answer = self._ask("POST", "/wake_up", timeout_s=_STEP_S)
        if answer["status"] != "awake":
            raise PolicyUnavailableError(f"vLLM at {self.url} does not wake up: start it again")

    def replace_weights(self, label: str, load: Callable[[], None], on_failure: Callable[[], None]) -> None:
        """Replace the base model's weights.

        Completions in flight pause meanwhile and continue with the new weights and a cleared prefix
        cache.

        Args:
            label: name of the new weights, which every later answer carries.
            load: loads them while the server is paused.
            on_failure: called if this fails, while the engine is still paused and its weights unknown.

        Raises:
            PolicyUnavailableError: it failed, or the engine does not confirm the label.
        """
        self.wanted = label
        try:
            self._ask("POST", "/pause?" + urlencode({"mode": "keep"}), timeout_s=_STEP_S)
            load()
            self._ask("POST", "/update_weight_version", {"new_version": label})
            if (found := self.weight_label()) != label:
                raise PolicyUnavailableError(
                    f"vLLM at {self.url} holds weights {found} after loading {label}"
                )
            self._reset_prefix_cache()
        except BaseException:
            on_failure()
            raise
        finally:
            self._ask("POST", "/resume")

    def score(self, probe: Probe, model: str | None) -> list[float]:
        """Log-probabilities of a probe's continuation, computed by the server.

        Args:
            model: name of an adapter; None is the base model.
        """
        sampling = {"max_tokens": 1, "temperature": 0.0, "prompt_logprobs": 0}
        body: dict[str, Any] = {"token_ids": list(probe.token_ids), "sampling_params": sampling}
        if model is not None:
            body["model"] = model
        answer = self._ask("POST", "/inference/v1/generate", body, timeout_s=_STEP_S)
        count = len(probe.logprobs)
        pairs = zip(probe.token_ids[-count:], answer["prompt_logprobs"][-count:], strict=True)
        return [float(known[str(token)]["logprob"]) for token, known in pairs]

    def _reset_prefix_cache(self) -> None:
        for _ in range(_RESET_TRIES):
            if self._ask("POST", "/reset_prefix_cache?reset_running_requests=true")["success"]:
                return
            time.sleep(_RESET_PAUSE_S)
        raise PolicyUnavailableError(f"vLLM at {self.url} did not clear its prefix cache")

    def _ask(
        self, method: str, path: str, body: Mapping[str, Any] | None = None, *, timeout_s: float = _PROMPT_S
    ) -> Any:
        status, answer = self.client.ask(method, path, body, timeout_s=timeout_s)
        if status != 200:
            raise refusal(self.url, path, status, answer)
        return answer


def _size(directory: Path) -> int:
    """Bytes of the weights in a directory."""
    return sum(path.stat().st_size for path in directory.glob("*.safetensors"))


def refusal(url: str, path: str, status: int, answer: Any) -> PolicyUnavailableError:
    """The error for an answer whose status is not 200, with a hint at its cause."""
    detail = answer
    if isinstance(answer, dict):
        error = answer.get("error", answer.get("detail", answer))
        detail = error.get("message", error) if isinstance(error, dict) else error
    hint = ""
    if status == 403 or (status == 404 and path.startswith("/inference")):
        hint = " (start vllm serve with --enable-scale-out)"
    elif status == 404 and path.startswith("/v1/load_lora"):
        hint = " (start it with --enable-lora and VLLM_ALLOW_RUNTIME_LORA_UPDATING=1)"
    elif status == 404 and path.startswith(("/pause", "/resume", "/weight_info", "/sleep", "/wake_up")):
        hint = " (start it with VLLM_SERVER_DEV_MODE=1)"
    return PolicyUnavailableError(f"vLLM at {url} answered {path} with {status}: {str(detail)[:300]}{hint}")
