"""A sentence encoder of a few thousand parameters, for tests of policies that choose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import WordPiece
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

_SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]")
_WORDS = (
    "it answer who what is the of directed by films starring actor author wrote born city country heat name"
)


def save_encoder(directory: Path, seed: int = 0, *, words: Sequence[str] = ()) -> Path:
    """A Hugging Face directory with a tiny BERT that has learned nothing, and its tokenizer.

    Args:
        words: to be known, too.
    """
    letters = [chr(code) for code in range(ord("a"), ord("z") + 1)]
    known = dict.fromkeys(
        [
            *_SPECIAL,
            *_WORDS.split(),
            *":?.'^_",
            *letters,
            *(f"##{letter}" for letter in letters),
            *map(str, range(10)),
            *words,
        ]
    )
    tokenizer = Tokenizer(WordPiece({word: id_ for id_, word in enumerate(known)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece()
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.enable_truncation(16)
    torch.manual_seed(seed)
    config = BertConfig(
        vocab_size=len(known),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=128,
    )
    BertModel(config, add_pooling_layer=False).save_pretrained(directory)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]"
    ).save_pretrained(directory)
    return directory
