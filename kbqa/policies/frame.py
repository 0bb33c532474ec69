"""What stands around the messages of an episode: a model's own chat template, or its first token.

An instruct model has learned that it is asked and replies in turn, within marks that its tokenizer
knows. An episode is laid out so:

    first | prompt | reply | turn 0 | end | again | observation | reply | turn 1 …

Where the policy writes `end` itself, it is part of its turn; where a stop string of the dialect comes
first, it is put there for it, as the environment's.
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
    """Each is text whose tags are tokens; all are empty for a model that knows no messages.

    Attributes:
        first: before the prompt: the first token of all, and a system message where there is one.
        reply: between what is asked and what the policy writes.
        end: the token that ends what the policy writes.
        again: between the end of a turn and what the policy reads next.
    """

    first: str = ""
    reply: str = ""
    end: str = ""
    again: str = ""


def read_frame(directory: Path, tokenizer: Tokenizer) -> Frame:
    """The frame that a model's directory asks for.

    Args:
        tokenizer: that directory's.

    Raises:
        PolicyIntegrityError: its chat template cannot be rendered, or does not keep messages apart.
    """
    file = directory / "tokenizer_config.json"
    try:
        config = json.loads(file.read_bytes()) if file.is_file() else {}
        if (directory / "chat_template.jinja").is_file() or config.get("chat_template"):
            return _of_template(directory, tokenizer)
    except Exception as error:  # a template is a program, and whatever it raises is its own
        raise PolicyIntegrityError(
            f"{directory}: its chat template cannot be used ({error}): correct it, or remove it to use "
            "none (chat_template.jinja, or chat_template in tokenizer_config.json)"
        ) from error
    return Frame(first=_first_token(config, tokenizer))


def _of_template(directory: Path, tokenizer: Tokenizer) -> Frame:
    """Taken from what the template makes of messages that are easily found again."""
    from transformers import PreTrainedTokenizerFast  # seconds, which small policies need not wait for

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
