"""Sentence encoders of a few thousand parameters, for tests of policies that choose."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, normalizers, pre_tokenizers
from tokenizers.models import Unigram, WordPiece
from tokenizers.processors import TemplateProcessing
from transformers import AutoConfig, AutoModel, BertConfig, BertModel, PreTrainedTokenizerFast

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


def save_multilingual_encoder(
    directory: Path, seed: int = 0, *, model_type: str = "bert", words: Sequence[str] = ()
) -> Path:
    """The same with the tokenizer that most multilingual encoders have: XLM-R's, which writes ▁ for a space.

    Args:
        model_type: "bert" (as in multilingual-e5-small and paraphrase-multilingual-MiniLM-L12-v2) or
            "xlm-roberta" (as in multilingual-e5-base).
        words: to be known, in addition to letters.
    """
    specials = ("<s>", "<pad>", "</s>", "<unk>")
    letters = "abcdefghijklmnopqrstuvwxyzäöüßABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789?.,:'"
    whole = ("it", "that", "this", "those", *words)
    pieces = dict.fromkeys((*specials, *(f"▁{word}" for word in whole), "▁", *letters))
    costs = {piece: 0.0 if piece in specials else -1.0 if len(piece) > 1 else -9.0 for piece in pieces}
    tokenizer = Tokenizer(Unigram(list(costs.items()), unk_id=specials.index("<unk>")))
    tokenizer.normalizer = normalizers.NFKC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    torch.manual_seed(seed)
    config = AutoConfig.for_model(
        model_type,
        vocab_size=len(pieces) + 35,  # XLM-R's matrix has rows to spare, too
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=130,
        pad_token_id=1,
        bos_token_id=0,
        eos_token_id=2,
    )
    AutoModel.from_config(config).save_pretrained(directory)
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        cls_token="<s>",
        pad_token="<pad>",
        sep_token="</s>",
        unk_token="<unk>",
    ).save_pretrained(directory)
    return directory
