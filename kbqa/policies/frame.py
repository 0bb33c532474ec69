"""The text around the messages of an episode: from a model's chat template, or only its first token.

An instruct model has learned to read and write messages in turn, delimited by special tokens. The
layout of an episode:

    first | prompt | reply | turn 0 | end | again | observation | reply | turn 1 …

If the policy writes `end` itself, it is part of the turn. If a stop string of the dialect comes first,
the environment appends `end`, which is then not part of the turn.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from kbqa.errors import PolicyIntegrityError

_ASKED, _SAID, _ASKED_AGAIN = "⟦asked⟧", "⟦said⟧", "⟦again⟧"


@dataclass(frozen=True, slots=True)
class Frame:
    """Texts whose tags are single tokens; without a chat template, all but `first` are empty.

    Attributes:
        first: before the prompt: the first token, and a system message if there is one.
        reply: between what the policy reads and what it writes.
        end: the token that ends a turn of the policy.
        again: between the end of a turn and what the policy reads next.
    """

    first: str = ""
    reply: str = ""
    end: str = ""
    again: str = ""


def read_frame(directory: Path, tokenizer: Tokenizer) -> Frame:
    """Read the frame of a model from its directory.

    Args:
        tokenizer: the directory's tokenizer.

    Raises:
        PolicyIntegrityError: its chat template cannot be rendered, or does not separate messages.
    """
    file = directory / "tokenizer_config.json"
    try:
        config = json.loads(file.read_bytes()) if file.is_file() else {}
        if (directory / "chat_template.jinja").is_file() or config.get("chat_template"):
            return _of_template(directory, tokenizer)
    except Exception as error:  # a template is a program that may raise anything
        raise PolicyIntegrityError(
            f"{directory}: its chat template cannot be used ({error}): correct it, or remove it to use "
            "none (chat_template.jinja, or chat_template in tokenizer_config.json)"
        ) from error
    return Frame(first=_first_token(config, tokenizer))


def _of_template(directory: Path, tokenizer: Tokenizer) -> Frame:
    """Take the frame from the rendering of messages that are easily found in it."""
    from transformers import PreTrainedTokenizerFast  # takes seconds, and small policies do not need it

    asked = {"role": "user", "content": _ASKED}
    said = {"role": "assistant", "content": _SAID}
    again = {"role": "user", "content": _ASKED_AGAIN}
    renderer = PreTrainedTokenizerFast.from_pretrained(str(directory), local_files_only=True)
    options: dict[str, Any] = {"tokenize": False, "add_generation_prompt": True}
    first, _, reply = renderer.apply_chat_template([asked], **options).partition(_ASKED)
    whole = renderer.apply_chat_template([asked, said, again], **options)
    _, said_too, rest = whole.partition(_SAID)
    between, _, reply_again = rest.partition(_ASKED_AGAIN)
    if not said_too or not reply or reply != reply_again:
        raise ValueError("it cannot render a question, a reply and another question in sequence")
    specials = {token.content for token in tokenizer.get_added_tokens_decoder().values() if token.special}
    ends = {between.find(token) + len(token) for token in specials if token in between}
    end = min(ends, default=0)
    return Frame(first, reply, between[:end], between[end:])


def _first_token(config: dict[str, Any], tokenizer: Tokenizer) -> str:
    """What the tokenizer puts before every text, such as Llama's <|begin_of_text|>."""
    bos = config.get("bos_token")
    name = bos.get("content") if isinstance(bos, dict) else bos
    return name if name is not None and tokenizer.encode("").tokens == [name] else ""
