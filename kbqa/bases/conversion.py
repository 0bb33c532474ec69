"""python -m kbqa.bases.conversion GGUF DIRECTORY: a quantised model as an ordinary Hugging Face directory.

The only part of this room that computes with tensors. It runs in a process of its own, which
takes 1.2 GB of memory and gives them back, and shows its progress to nobody.
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
        ValueError: it is no model that can be read, or its tokenizer is of another family.
    """
    source = {"gguf_file": gguf.name, "local_files_only": True}
    model = AutoModelForCausalLM.from_pretrained(gguf.parent, dtype="float32", **source)
    # What was read is whole numbers no more; else only a quantised model could be written.
    del model.config.quantization_config
    model.hf_quantizer, model.is_quantized = None, False
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **source)
    tokenizer.model_max_length = model.config.max_position_embeddings
    inner = tokenizer.backend_tokenizer
    if not isinstance(inner.pre_tokenizer, ByteLevel):
        raise ValueError(f"{gguf}: unsupported pre-tokenizer {inner.pre_tokenizer}")
    # A GGUF names its rule for splitting ("smollm": each digit alone, then as GPT-2), which
    # transformers does not read. Spaces before a digit would become other tokens than in training.
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
