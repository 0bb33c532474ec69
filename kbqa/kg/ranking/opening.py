"""The encoder that a setting names."""

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
    """The encoder that a setting names.

    Args:
        place: `ngram`; or a directory of sentence-transformers; or the URL of an
            OpenAI-compatible server, up to and with `/v1`, and `#model` where it has several.
        thresholds: in place of the encoder's own.
        api_key: of the server, if it wants one.
        timeout_s: for each request to it.

    Raises:
        ConfigurationError: it is none of these.
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
