"""The initial small policy: its own tokenizer and a randomly initialised Qwen2.

It is saved as an ordinary Hugging Face directory, so that any engine can serve it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import PreTrainedTokenizerFast, Qwen2Config, Qwen2ForCausalLM

PAD, END = "<pad>", "<end>"
_ROTARY_BASE = 500.0

# White space is never part of a word, so a name has the same tokens after a blank, a quote or a line
# break, and to copy a name is to copy tokens. Identifiers (domain.type.property, place_of_birth) are
# words; each digit is a token. The marks around arguments and items (`("`, `", `, `")`, `: `, `, `) are
# tokens of their own, which tell a copying head what to copy; a plain blank or quote occurs everywhere
# (docs/measurements/policies-that-write.md). %20, the blank of IRIs, is one token, so that a head that looks
# for the next word finds the previous word close by.
_WORDS = (
    r"%[0-9A-F]{2}|\p{N}|[\p{L}\p{M}_]+(?:\.[\p{L}\p{M}_]+)*"
    r'|[(\[{]"|",\s|"[)\]}]+|[,:]\s'
    r"|[^\s\p{L}\p{M}\p{N}_]|\s"
)


@dataclass(frozen=True, slots=True)
class SmallPolicyConfig:
    """Size of the model; the defaults make about a million parameters.

    Attributes:
        tied: whether the output layer shares the embedding weights. vLLM 0.32.0 without a GPU keeps the old
            output layer of such a model when its weights are replaced, unless kbqa is installed beside it.
    """

    vocabulary: int = 2048
    layers: int = 3
    width: int = 128
    heads: int = 4
    feed_forward: int = 384
    max_length: int = 768
    tied: bool = True


def train_tokenizer(texts: Iterable[str], tags: Sequence[str], vocabulary: int) -> Tokenizer:
    """A byte-level BPE in which every tag is one token, and any text round-trips.

    A tag that is a word, such as the reference `e1` to an entity, is only recognised as a whole word: not in
    `type1` or `e12`.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(_WORDS), behavior="isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary,
        special_tokens=[PAD, END, *(AddedToken(tag, single_word=tag.isalnum()) for tag in tags)],
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def build_model(tokenizer: Tokenizer, config: SmallPolicyConfig, seed: int) -> Any:
    """A Qwen2 with random weights, fp32.

    Two choices help a head find the previous token, which is half of a copying head (measured in
    docs/measurements/policies-that-write.md): Qwen2 has biases on queries and keys, unlike Llama, and a small
    rotary base makes neighbouring positions differ clearly.
    """
    torch.manual_seed(seed)
    return Qwen2ForCausalLM(
        Qwen2Config(
            vocab_size=tokenizer.get_vocab_size(),
            hidden_size=config.width,
            intermediate_size=config.feed_forward,
            num_hidden_layers=config.layers,
            num_attention_heads=config.heads,
            num_key_value_heads=config.heads,
            max_position_embeddings=config.max_length,
            rope_parameters={"rope_type": "default", "rope_theta": _ROTARY_BASE},
            tie_word_embeddings=config.tied,
            pad_token_id=tokenizer.token_to_id(PAD),
            eos_token_id=tokenizer.token_to_id(END),
            bos_token_id=None,
        )
    )


def save_model(model: Any, tokenizer: Tokenizer, directory: Path, *, pad: str = PAD, end: str = END) -> None:
    """Write config, safetensors weights and tokenizer files."""
    model.save_pretrained(directory)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        pad_token=pad,
        eos_token=end,
        clean_up_tokenization_spaces=False,
        model_max_length=model.config.max_position_embeddings,
    ).save_pretrained(directory)
