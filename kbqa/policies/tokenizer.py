"""A Hugging Face `tokenizer.json` as a codec."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from tokenizers import Tokenizer

from kbqa.errors import PolicyIntegrityError
from kbqa.policies.frame import Frame, read_frame
from kbqa.trajectory import Segment

# Encodings of short texts are cached: tags, and names that a graph lists repeatedly.
_SHORT_CHARS, _KEPT = 64, 1 << 14
_NO_FRAME = Frame()


class TokenizerCodec:
    """Encodes trusted and untrusted text with the same vocabulary.

    It holds two tokenizers over one vocabulary: one recognises special tokens, the other encodes
    them as plain characters, so that no question and no graph can forge a tag.
    """

    def __init__(self, tokenizer: Tokenizer, frame: Frame = _NO_FRAME) -> None:
        self._tags, self.frame = tokenizer, frame
        self._plain = Tokenizer.from_str(tokenizer.to_str())
        self._plain.encode_special_tokens = True
        self._encode_again = lru_cache(_KEPT)(self._encode)

    @classmethod
    def load(cls, directory: Path) -> TokenizerCodec:
        """Read `tokenizer.json` of a model directory, and its chat template.

        Raises:
            PolicyIntegrityError: there is no tokenizer, or it or the template cannot be used.
        """
        path = directory / "tokenizer.json"
        try:
            tokenizer = Tokenizer.from_file(str(path))
        except Exception as error:  # the library raises bare Exception
            raise PolicyIntegrityError(f"{path}: no readable tokenizer ({error})") from error
        return cls(tokenizer, read_frame(directory, tokenizer))

    def encode(self, segments: Sequence[Segment]) -> list[int]:
        ids: list[int] = []
        for segment in segments:
            is_short = len(segment.text) <= _SHORT_CHARS
            ids.extend((self._encode_again if is_short else self._encode)(segment.text, segment.trusted))
        return ids

    def _encode(self, text: str, trusted: bool) -> tuple[int, ...]:
        tokenizer = self._tags if trusted else self._plain
        return tuple(tokenizer.encode(text, add_special_tokens=False).ids)

    def decode(self, token_ids: Sequence[int]) -> str:
        return str(self._tags.decode(list(token_ids), skip_special_tokens=False))
