"""An encoder from a sentence-transformers directory; the only module of this package that imports torch.

The directory must have a `modules.json`. `1_Pooling/config.json` gives the pooling mode,
`sentence_bert_config.json` the maximum number of tokens, and
`config_sentence_transformers.json` the prompt for queries. Nothing is downloaded, and no
code in the directory is run.
"""

from __future__ import annotations

import hashlib
import json
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer
from transformers.utils.logging import disable_progress_bar

from kbqa.errors import ConfigurationError
from kbqa.kg.ranking.encoders import Matrix, Thresholds, Vector, unit_rows

_BATCH = 64
_WEIGHTS = "model.safetensors"
_POOLING = ("mean_tokens", "cls_token", "lasttoken")


class DenseEncoder:
    """Embeds texts by a local transformer.

    Args:
        directory: as sentence-transformers saves a model, with weights as safetensors.
        thresholds: override the paper's, which were chosen for such an encoder.
        device: of torch; if None, the GPU if there is one.

    Raises:
        ConfigurationError: the directory holds no such model.
    """

    def __init__(
        self, directory: Path, *, thresholds: Thresholds | None = None, device: str | None = None
    ) -> None:
        self._pooling = _pooling(directory)
        settings = _settings(directory / "sentence_bert_config.json")
        prompts = _settings(directory / "config_sentence_transformers.json").get("prompts", {})
        self._query_prompt: str = prompts.get("query", "")
        disable_progress_bar()  # it would clutter a service's log
        try:
            self._tokenizer = AutoTokenizer.from_pretrained(directory, local_files_only=True)
            model = AutoModel.from_pretrained(directory, local_files_only=True, use_safetensors=True)
            digest = _digest(directory / _WEIGHTS)
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"encoder {directory}: {error}") from error
        # Last-token pooling reads the last position, so texts must be padded on the left.
        self._tokenizer.padding_side = "left" if self._pooling == "lasttoken" else "right"
        self._max_tokens = int(settings.get("max_seq_length") or self._tokenizer.model_max_length)
        self._device = device or ("cuda" if torch.cuda.is_available() else "cpu")
        self._model = model.to(self._device).eval()
        self._lock = threading.Lock()
        self.name = f"{directory.name}-{digest}-{self._pooling}-{self._max_tokens}"
        self.thresholds = thresholds or Thresholds()

    def encode(self, texts: Sequence[str]) -> Matrix:
        # Batches of texts with similar lengths, since a batch is padded to its longest text.
        order = sorted(range(len(texts)), key=lambda i: len(texts[i]))
        vectors = np.empty((len(texts), self._model.config.hidden_size), np.float32)
        for start in range(0, len(order), _BATCH):
            places = order[start : start + _BATCH]
            vectors[places] = self._embed([texts[i] for i in places])
        return unit_rows(vectors)

    def encode_query(self, text: str, instruction: str = "") -> Vector:
        # If the directory has no query prompt, the model was not trained with one.
        prompt = self._query_prompt
        if prompt and instruction:
            prompt = f"Instruct: {instruction}\nQuery: "
        vector: Vector = self.encode([prompt + text])[0]
        return vector

    def _embed(self, texts: list[str]) -> Matrix:
        """Vectors of one batch, not normalised: [len(texts), dimension]."""
        batch = self._tokenizer(
            texts, padding=True, truncation=True, max_length=self._max_tokens, return_tensors="pt"
        ).to(self._device)
        # One batch at a time, since torch uses all cores for it.
        with self._lock, torch.inference_mode():
            states = self._model(**batch).last_hidden_state  # [texts, tokens, dimension]
        if self._pooling == "cls_token":
            pooled = states[:, 0]
        elif self._pooling == "lasttoken":
            pooled = states[:, -1]
        else:
            mask = batch["attention_mask"].unsqueeze(-1).to(states.dtype)
            pooled = (states * mask).sum(1) / mask.sum(1)
        vectors: Matrix = pooled.float().cpu().numpy()
        return vectors


def _pooling(directory: Path) -> str:
    """The pooling mode that the directory specifies."""
    settings = _settings(directory / "1_Pooling" / "config.json")
    modes = [mode for mode in _POOLING if settings.get(f"pooling_mode_{mode}")]
    if not (directory / "modules.json").is_file() or len(modes) != 1:
        raise ConfigurationError(
            f"encoder {directory}: modules.json and 1_Pooling/config.json of sentence-transformers are "
            f"required, with one pooling mode of {', '.join(_POOLING)}"
        )
    return modes[0]


def _settings(path: Path) -> dict[str, Any]:
    try:
        settings = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from error
    return settings if isinstance(settings, dict) else {}


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()[:12]
