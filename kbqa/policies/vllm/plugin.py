"""A general plugin of vLLM: an engine that receives weights, and heads that follow them.

The engine is `--weight-transfer-config '{"backend": "kbqa"}'`. Weights arrive on the host through gloo, so
that GPUs need no common network. This module runs in vLLM's processes, with kbqa installed beside it.
"""

from __future__ import annotations

import hashlib
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import torch
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.custom_op import op_registry_oot
from vllm.model_executor.layers.vocab_parallel_embedding import (
    ParallelLMHead,
    UnquantizedEmbeddingMethod,
    VocabParallelEmbedding,
)
from vllm.platforms import current_platform

from kbqa.policies.vllm.sender import Meeting, entries, received

BACKEND = "kbqa"
_TYPES = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16, "I64": torch.int64}


def register() -> None:
    """Make both known; vLLM calls this in each of its processes, possibly several times."""
    if BACKEND not in WeightTransferEngineFactory._registry:
        WeightTransferEngineFactory.register_engine(BACKEND, __name__, GlooEngine.__name__)
    if current_platform.is_cpu() and ParallelLMHead.__name__ not in op_registry_oot:
        ParallelLMHead.register_oot(FollowingHead, ParallelLMHead.__name__)


class FollowingHead(ParallelLMHead):  # type: ignore[misc]
    """A head that computes with the embedding's own weights where it is tied to them.

    Without a GPU, vLLM computes with packed copies of weights, and after an update packs those layers again
    whose weights were in it. A tied head is none of them, so its copy would stay as it was.
    """

    quant_method: Any

    def tie_weights(self, embed_tokens: VocabParallelEmbedding) -> FollowingHead:
        if isinstance(self.quant_method, UnquantizedEmbeddingMethod):
            self.quant_method = _Unpacked()
        tied: FollowingHead = super().tie_weights(embed_tokens)
        return tied


class _Unpacked(UnquantizedEmbeddingMethod):  # type: ignore[misc]
    def process_weights_after_loading(self, layer: Any) -> None:
        layer.cpu_linear = torch.nn.functional.linear


@dataclass
class InitInfo(WeightTransferInitInfo):  # type: ignore[misc]
    """Fields of `Meeting`."""

    master_address: str
    master_port: int
    world_size: int


@dataclass
class UpdateInfo(WeightTransferUpdateInfo):  # type: ignore[misc]
    """The SHA-256 of the file, from the manifest of its version."""

    sha256: str


class GlooEngine(WeightTransferEngine[InitInfo, UpdateInfo]):  # type: ignore[misc]
    """Receives a safetensors file piece by piece, and loads each tensor into the model."""

    init_info_cls, update_info_cls = InitInfo, UpdateInfo

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._group: Any = None

    def init_transfer_engine(self, init_info: InitInfo) -> None:
        parallel = self.parallel_config
        rank = 1 + parallel.data_parallel_index * parallel.world_size + parallel.rank
        meeting = Meeting(init_info.master_address, init_info.master_port, init_info.world_size)
        self._group = meeting.join(rank)

    def start_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import initialize_layerwise_reload

        initialize_layerwise_reload(self.model)

    def finish_weight_update(self) -> None:
        from vllm.model_executor.model_loader.reload import finalize_layerwise_reload

        finalize_layerwise_reload(self.model, self.model_config)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        try:
            self.receive_weights(self.parse_update_info(update_info))
        except BaseException:
            self._forget()
            raise
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: UpdateInfo) -> None:
        if self._group is None:
            raise RuntimeError("init_transfer_engine must be called first")
        digest = hashlib.sha256()
        with ThreadPoolExecutor(1) as hashing:  # while the next piece arrives

            def piece(size: int) -> torch.Tensor:
                data = received(self._group, size)
                hashing.submit(digest.update, data.numpy().data)
                return data

            length = int.from_bytes(piece(8).numpy().tobytes(), "little")
            for name, entry in entries(piece(length).numpy().tobytes()).items():
                start, end = entry["data_offsets"]
                data = piece(end - start) if end > start else torch.empty(0, dtype=torch.uint8)
                tensor = data.view(_TYPES[entry["dtype"]]).view(entry["shape"])
                self.model.load_weights([(name, tensor.to(self.device))])
        if digest.hexdigest() != update_info.sha256:
            raise RuntimeError(f"the weights' checksum is {digest.hexdigest()}, not {update_info.sha256}")

    def _forget(self) -> None:
        """Drop parts of layers that have arrived. An update that begins anew would count them twice."""
        from vllm.model_executor.model_loader.reload.layerwise import get_layerwise_info

        for layer in self.model.modules():
            info = get_layerwise_info(layer)
            info.load_numel = 0
            info.loaded_weights.clear()
        self.finish_weight_update()

    def shutdown(self) -> None:
        self._group = None
