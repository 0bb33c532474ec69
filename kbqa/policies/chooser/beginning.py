"""The initial policy of a chooser: a pretrained sentence encoder, and tokens for the tags."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from tokenizers import AddedToken, Tokenizer

from kbqa.bases import ENCODERS
from kbqa.errors import PolicyIntegrityError
from kbqa.policies.chooser.model import RECURRENT, Chooser, config_of
from kbqa.policies.chooser.reading import TOPICS
from kbqa.policies.tokenizer import TokenizerCodec

_UNUSED = ("pooler.", "embeddings.position_ids")  # tensors of some files


class Marks(NamedTuple):
    """What the tokenizers of a family call their special tokens, and how they write a word after a space."""

    begin: str
    end: str
    pad: str
    space: str


WORD_PIECE = Marks("[CLS]", "[SEP]", "[PAD]", "")  # BERT's, also multilingual ones such as LaBSE
SENTENCE_PIECE = Marks("<s>", "</s>", "<pad>", "▁")  # XLM-R's, which most multilingual encoders use
_IN_PLACE = dict(zip(TOPICS, ("it", "that", "this", "those"), strict=True))  # words that are read for topics


def is_encoder(directory: Path) -> bool:
    """Whether a Hugging Face directory holds an encoder alone: no language model, and no chooser."""
    try:
        config = json.loads((directory / "config.json").read_bytes())
        kind, classes = config.get("model_type"), config.get("architectures", ())
        return kind in ENCODERS and Chooser.__name__ not in classes
    except (OSError, ValueError, AttributeError, TypeError):
        return False  # loading it reports what is wrong


def tags_of(directory: Path, encoder: Path) -> list[str]:
    """The tags that a tokenizer was given by `begin_chooser`, in the order of their ids.

    Args:
        encoder: the directory of the encoder that it was given.

    Raises:
        PolicyIntegrityError: there is no tokenizer that can be read.
    """
    own = _tokenizer_of(encoder).get_vocab(with_added_tokens=True)
    added = _tokenizer_of(directory).get_added_tokens_decoder()
    return [token.content for _, token in sorted(added.items()) if token.content not in own]


def marks_of(tokenizer: Tokenizer) -> Marks:
    """Those of a tokenizer's family; BERT's if it is of neither."""
    return SENTENCE_PIECE if tokenizer.token_to_id(SENTENCE_PIECE.begin) is not None else WORD_PIECE


def begin_chooser(
    encoder: Path, tags: Sequence[str], seed: int, head: str = RECURRENT
) -> tuple[Chooser, Tokenizer]:
    """An encoder with an untrained head, and the encoder's tokenizer with the tags added.

    Args:
        encoder: a Hugging Face directory with a model of one of the types in `ENCODERS`.
        seed: random seed of the head's weights.
        head: one of `HEADS`.

    Raises:
        PolicyIntegrityError: the directory holds no encoder, or its tokenizer lacks a needed token.
    """
    tokenizer = _tokenizer_of(encoder)
    tokenizer.no_truncation()
    tokenizer.no_padding()
    tokenizer.add_special_tokens([AddedToken(tag, special=True, normalized=False) for tag in tags])
    marks = marks_of(tokenizer)
    topics = {tag: marks.space + word for tag, word in _IN_PLACE.items() if tag in tags}
    ids = {name: tokenizer.token_to_id(name) for name in (marks.begin, marks.end, *topics.values(), *tags)}
    if unknown := [name for name, id_ in ids.items() if id_ is None]:
        raise PolicyIntegrityError(
            f"{encoder}: its tokenizer lacks {unknown[0]}: use an encoder for English or for several "
            "languages, with the vocabulary of BERT or XLM-R"
        )
    config = config_of(encoder)
    # No dropout: it would make the ratio of a policy to itself differ from 1.
    config.hidden_dropout_prob = config.attention_probs_dropout_prob = 0.0
    config.chooser_head = head
    config.chooser_tags = {tag: ids[tag] for tag in tags}
    config.chooser_begin, config.chooser_end = ids[marks.begin], ids[marks.end]
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


def _tokenizer_of(directory: Path) -> Tokenizer:
    TokenizerCodec.load(directory)  # reports what is wrong
    return Tokenizer.from_file(str(directory / "tokenizer.json"))
