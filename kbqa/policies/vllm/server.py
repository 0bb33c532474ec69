"""What a vLLM server is told besides prompts: which weights to hold, and what it says of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from kbqa.errors import PolicyUnavailableError
from kbqa.policies.probe import Probe
from kbqa.policies.vllm.exchange import Connections, Exchange

_PROMPT_S = 10.0  # for what needs no computing
_HEALTH_S = 3.0
_RESET_TRIES = 20  # of the prefix cache, while the last blocks are given back
_RESET_PAUSE_S = 0.1


class VllmServer:
    """One server; safe for many threads.

    Args:
        url: `http://host:port`.
        update_timeout_s: most seconds that a change of weights may take.

    Raises:
        ConfigurationError: the URL is none.
    """

    def __init__(self, url: str, *, update_timeout_s: float = 120.0) -> None:
        self.connections = Connections(url)
        self._update_timeout_s = update_timeout_s
        self._loaded: set[str] = set()

    @property
    def url(self) -> str:
        return self.connections.url

    def close(self) -> None:
        """Close all connections, as soon as nobody uses them."""
        self.connections.close()

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
        """Most tokens of prompt and completion together."""
        models = self._ask("GET", "/v1/models")["data"]
        return int(models[0]["max_model_len"])

    def load_adapter(self, name: str, path: Path) -> None:
        """Load a LoRA adapter under a name that stands for nothing else, ever.

        What a process before this one has left in the server is unloaded.

        Raises:
            PolicyUnavailableError: the server cannot; says why.
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

    def weight_label(self) -> str:
        """The label of the weights that the engine holds; "default" after it was started."""
        return str(self._ask("GET", "/weight_info")["weight_version"])

    def reload_weights(self, label: str, path: Path, on_failure: Callable[[], None]) -> None:
        """Replace the base model's weights by those in a directory of the same architecture.

        Completions in flight stand still meanwhile and go on under the new weights, from a
        prefix cache that holds nothing of the old.

        Args:
            label: what the weights are called from then on, in every answer.
            on_failure: called while the engine still stands still, if it is in doubt what it holds.

        Raises:
            PolicyUnavailableError: it failed, or the engine does not confirm the label.
        """
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
        """Log-probabilities of a probe's continuation, computed anew.

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
        status, answer = Exchange(self.connections, method, path, body, timeout_s=timeout_s).run()
        if status != 200:
            raise refusal(self.url, path, status, answer)
        return answer


def refusal(url: str, path: str, status: int, answer: Any) -> PolicyUnavailableError:
    """What a server means by an answer that is none."""
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
