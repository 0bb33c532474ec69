"""Calls to a vLLM server other than completions: loading weights, and asking about them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
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
_RESET_TRIES = 20  # attempts to clear the prefix cache, while its last blocks are being released
_RESET_PAUSE_S = 0.1


class VllmServer:
    """One server; safe for many threads.

    Args:
        url: `http://host:port`.
        update_timeout_s: maximum seconds of a change of weights.
        max_in_flight: maximum completions that the server computes or queues at a time; others wait here.

    Attributes:
        changing: held by whoever loads weights, or looks which are loaded.
        wanted: label of the weights that were asked for last; None before.

    Raises:
        ConfigurationError: the URL is not of this form.
    """

    def __init__(
        self, url: str, *, update_timeout_s: float = 120.0, max_in_flight: int = MAX_IN_FLIGHT
    ) -> None:
        self.client = Client(url, max_in_flight=max_in_flight)
        self._update_timeout_s = update_timeout_s
        self._loaded: set[str] = set()
        self.changing = threading.RLock()
        self.wanted: str | None = None

    @property
    def url(self) -> str:
        return self.client.url

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
            self._ask("POST", "/v1/load_lora_adapter", body, timeout_s=self._update_timeout_s)
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

    def reload_weights(self, label: str, path: Path, on_failure: Callable[[], None]) -> None:
        """Replace the base model's weights with those in a directory of the same architecture.

        Completions in flight pause meanwhile and continue with the new weights and a cleared prefix
        cache.

        Args:
            label: name of the new weights, which every later answer carries.
            on_failure: called if this fails, while the engine is still paused and its weights unknown.

        Raises:
            PolicyUnavailableError: it failed, or the engine does not confirm the label.
        """
        self.wanted = label
        try:
            self._ask("POST", "/pause?" + urlencode({"mode": "keep"}), timeout_s=self._update_timeout_s)
            reload = {"method": "reload_weights", "kwargs": {"weights_path": str(path.resolve())}}
            self._ask("POST", "/collective_rpc", reload, timeout_s=self._update_timeout_s)
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
        answer = self._ask("POST", "/inference/v1/generate", body, timeout_s=self._update_timeout_s)
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
    elif status == 404 and path.startswith(("/pause", "/resume", "/weight_info")):
        hint = " (start it with VLLM_SERVER_DEV_MODE=1)"
    return PolicyUnavailableError(f"vLLM at {url} answered {path} with {status}: {str(detail)[:300]}{hint}")
