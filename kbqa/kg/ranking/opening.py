"""Opens the encoder that a setting names."""

from __future__ import annotations

from pathlib import Path

from kbqa.errors import ConfigurationError
from kbqa.kg.ranking.embeddings_endpoint import EndpointEncoder
from kbqa.kg.ranking.encoders import NGRAM, Encoder, NgramEncoder, Thresholds


def open_encoder(
    place: str,
    *,
    thresholds: Thresholds | None = None,
    api_key: str | None = None,
    timeout_s: float = 10.0,
) -> Encoder:
    """Open the encoder that a setting names.

    Args:
        place: `ngram`, a sentence-transformers directory, or the URL of an OpenAI-compatible
            server up to and including `/v1`, with `#model` if it has several models.
        thresholds: override the encoder's own.
        api_key: of the server, if it requires one.
        timeout_s: for each request to the server.

    Raises:
        ConfigurationError: `place` is none of these.
        EncoderUnavailableError: the server does not answer.
    """
    if place == NGRAM:
        return NgramEncoder(thresholds)
    if place.startswith(("http://", "https://")):
        return EndpointEncoder(place, thresholds=thresholds, api_key=api_key, timeout_s=timeout_s)
    if Path(place).is_dir():
        from kbqa.kg.ranking.dense import DenseEncoder  # imports torch

        return DenseEncoder(Path(place), thresholds=thresholds)
    raise ConfigurationError(
        f'encoder "{place}": neither {NGRAM}, nor a directory that exists, nor an http(s) URL'
    )
