"""The initial policy of a chooser: a pretrained sentence encoder, and tokens for the tags."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer
from transformers import BertConfig

from kbqa.errors import PolicyIntegrityError
from kbqa.policies.chooser.model import RECURRENT, Chooser
from kbqa.policies.chooser.reading import TOPICS
from kbqa.policies.tokenizer import TokenizerCodec

PAD, END = "[PAD]", "[SEP]"
_UNUSED = ("pooler.", "embeddings.position_ids")  # tensors of some files
_BEGIN = "[CLS]"  # what a text begins with
_IN_PLACE = dict(zip(TOPICS, ("it", "that", "this", "those"), strict=True))  # words that are read for topics


def is_encoder(directory: Path) -> bool:
    """Whether a Hugging Face directory holds an encoder alone: no language model, and no chooser."""
    try:
        config = json.loads((directory / "config.json").read_bytes())
        return config.get("model_type") == "bert" and Chooser.__name__ not in config.get("architectures", ())
    except (OSError, ValueError, AttributeError, TypeError):
        return False  # loading it reports what is wrong


def tags_of(directory: Path) -> list[str]:
    """The tags that a tokenizer was given by `begin_chooser`, in the order of their ids.

    Raises:
        PolicyIntegrityError: there is no tokenizer that can be read.
    """
    TokenizerCodec.load(directory)
    added = Tokenizer.from_file(str(directory / "tokenizer.json")).get_added_tokens_decoder()
    return [token.content for _, token in sorted(added.items()) if token.content.startswith("<")]


def begin_chooser(
    encoder: Path, tags: Sequence[str], seed: int, head: str = RECURRENT
) -> tuple[Chooser, Tokenizer]:
    """An encoder with an untrained head, and the encoder's tokenizer with the tags added.

    Args:
        encoder: a Hugging Face directory with a BERT.
        seed: random seed of the head's weights.
        head: one of `HEADS`.

    Raises:
        PolicyIntegrityError: the directory holds no BERT, or its tokenizer lacks a needed token.
    """
    TokenizerCodec.load(encoder)
    tokenizer = Tokenizer.from_file(str(encoder / "tokenizer.json"))
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.add_special_tokens([AddedToken(tag, special=True, normalized=False) for tag in tags])
    topics = {tag: word for tag, word in _IN_PLACE.items() if tag in tags}
    ids = {name: tokenizer.token_to_id(name) for name in (_BEGIN, END, *topics.values(), *tags)}
    if unknown := [name for name, id_ in ids.items() if id_ is None]:
        raise PolicyIntegrityError(f"{encoder}: its tokenizer lacks {unknown[0]}: use an English BERT model")
    config = BertConfig.from_pretrained(encoder, local_files_only=True)
    # No dropout: it would make the ratio of a policy to itself differ from 1.
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    config.chooser_head = head
    config.chooser_tags = {tag: ids[tag] for tag in tags}
    config.chooser_begin, config.chooser_end = ids[_BEGIN], ids[END]
    config.chooser_topics = {tag: ids[word] for tag, word in topics.items()}
    config.architectures = [Chooser.__name__]
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = Chooser(config)
    try:
        weights = load_file(encoder / "model.safetensors")
        model.bert.load_state_dict({n: w for n, w in weights.items() if not n.startswith(_UNUSED)})
    except (OSError, RuntimeError, SafetensorError) as error:
        raise PolicyIntegrityError(f"{encoder}: the encoder cannot be loaded ({error})") from error
    model.bert.embeddings.requires_grad_(False)
    model.eval()
    return model, tokenizer
