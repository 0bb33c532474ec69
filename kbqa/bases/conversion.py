"""python -m kbqa.bases.conversion GGUF DIRECTORY: converts a quantised model to a Hugging Face directory.

The only module of this package that computes with tensors. It runs in a separate process, so that
its 1.2 GB of memory are released at the end, and its progress bars are not shown.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tokenizers.pre_tokenizers import ByteLevel, Digits
from tokenizers.pre_tokenizers import Sequence as InOrder
from transformers import AutoModelForCausalLM, AutoTokenizer


def convert(gguf: Path, into: Path) -> None:
    """Write the model and the tokenizer of a SmolLM2 GGUF as a Hugging Face directory, in fp32.

    Raises:
        ImportError: the package gguf is missing.
        ValueError: the file is not a readable model, or its tokenizer is of another family.
    """
    source = {"gguf_file": gguf.name, "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype="float32", **source)
    # The weights that were read are no longer quantised; otherwise they could only be saved quantised.
    del model.config.quantization_config
    model.hf_quantizer, model.is_quantized = None, False
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **source)
    tokenizer.model_max_length = model.config.max_position_embeddings
    inner = tokenizer.backend_tokenizer
    if not isinstance(inner.pre_tokenizer, ByteLevel):
        raise ValueError(f"{gguf}: unsupported pre-tokenizer {inner.pre_tokenizer}")
    # transformers ignores the pre-tokenizer that a GGUF names ("smollm": single digits, then as
    # GPT-2). Without it, spaces before a digit would become other tokens than in training.
    inner.pre_tokenizer = InOrder([Digits(individual_digits=True), ByteLevel(add_prefix_space=False)])
    ends = {tokenizer.eos_token_id, model.config.eos_token_id, model.generation_config.eos_token_id}
    if len(ends) != 1 or tokenizer.chat_template is None:
        raise ValueError(
            f"{gguf}: it has no chat template, or not exactly one token that ends a turn ({ends})"
        )
    model.save_pretrained(into)
    tokenizer.save_pretrained(into)


if __name__ == "__main__":
    convert(Path(sys.argv[1]), Path(sys.argv[2]))
