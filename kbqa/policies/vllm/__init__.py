"""A vLLM server as a policy: token ids in and out, and weights that change while it works.

Its server has to be started with `--enable-scale-out --logprobs-mode processed_logprobs`; for whole
weights with VLLM_SERVER_DEV_MODE=1, for adapters with `--enable-lora`, VLLM_ALLOW_RUNTIME_LORA_UPDATING=1
and `--max-loras` above the versions that may be in use at a time. Tried with vLLM 0.32.
"""

from kbqa.policies.vllm.policy import Precision, VllmPolicy, Weights
from kbqa.policies.vllm.server import VllmServer

__all__ = ["Precision", "VllmPolicy", "VllmServer", "Weights"]
