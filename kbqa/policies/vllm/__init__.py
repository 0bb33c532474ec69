"""A vLLM server as a policy: token ids in and out, and weights that change while it runs.

Start the server with `--enable-scale-out --logprobs-mode processed_logprobs --hf-overrides
'{"head_dtype": "float32"}'`. Without the last one it rounds logits, and the trainer does not. Full weights
also need VLLM_SERVER_DEV_MODE=1. Adapters also need `--enable-lora`, VLLM_ALLOW_RUNTIME_LORA_UPDATING=1 and a
`--max-loras` above the number of versions in use at a time. Tested with vLLM 0.32.
"""

from kbqa.policies.probe import Precision
from kbqa.policies.vllm.fleet import Fleet
from kbqa.policies.vllm.policy import VllmPolicy
from kbqa.policies.vllm.server import VllmServer
from kbqa.policies.vllm.weights import Sent, Weights

__all__ = ["Fleet", "Precision", "Sent", "VllmPolicy", "VllmServer", "Weights"]
