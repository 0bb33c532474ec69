"""A policy that chooses at its beginning: a pretrained sentence encoder, and tokens for the tags."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import AddedToken, Tokenizer
from transformers import BertConfig, BertModel

from kbqa.errors import PolicyIntegrityError
from kbqa.policies.chooser.model import Chooser
from kbqa.policies.tokenizer import TokenizerCodec

PAD, END = "[PAD]", "[SEP]"
_BEGIN, _TOPIC = "[CLS]", "it"  # what a text begins with; the word that is read for a topic


def is_encoder(directory: Path) -> bool:
    """Whether a Hugging Face directory holds an encoder, and no language model."""
    try:
        return bool(json.loads((directory / "config.json").read_bytes()).get("model_type") == "bert")
    except (OSError, ValueError, AttributeError):
        return False  # who loads it says what is wrong with it


def begin_chooser(encoder: Path, tags: Sequence[str], seed: int) -> tuple[Chooser, Tokenizer]:
    """An encoder with a head that has learned nothing, and the encoder's tokenizer with the tags.

    Args:
        encoder: a Hugging Face directory with a BERT.
        seed: of what is drawn at random in the head.

    Raises:
        PolicyIntegrityError: the directory holds no BERT with a tokenizer that knows its words.
    """
    TokenizerCodec.load(encoder)
    tokenizer = Tokenizer.from_file(str(encoder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.add_special_tokens([AddedToken(tag, special=True, normalized=False) for tag in tags])
    ids = {name: tokenizer.token_to_id(name) for name in (_BEGIN, END, _TOPIC, *tags)}
    if unknown := [name for name, id_ in ids.items() if id_ is None]:
        raise PolicyIntegrityError(f"{encoder}: its tokenizer has no {unknown[0]}: name a BERT in English")
    try:
        config = BertConfig.from_pretrained(encoder, local_files_only=True)
        bert = BertModel.from_pretrained(
            encoder, add_pooling_layer=False, local_files_only=True, use_safetensors=True, dtype=torch.float32
        )
    except (OSError, ValueError, RuntimeError) as error:
        raise PolicyIntegrityError(f"{encoder}: no encoder that can be loaded ({error})") from error
    # What is dropped at random would change the ratio of a policy to itself.
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    config.chooser_tags = {tag: ids[tag] for tag in tags}
    config.chooser_begin, config.chooser_end, config.chooser_topic = ids[_BEGIN], ids[END], ids[_TOPIC]
    config.architectures = [Chooser.__name__]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Chooser(config)
    model.bert.load_state_dict(bert.state_dict())
    model.bert.embeddings.requires_grad_(False)
    model.eval()
    return model, tokenizer
