"""An encoder behind an OpenAI-compatible `/v1/embeddings` endpoint, such as vLLM's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import urldefrag

import httpx
import numpy as np

from kbqa.errors import EncoderUnavailableError
from kbqa.kg.ranking.encoders import Matrix, Thresholds, Vector, unit_rows

_BATCH = 256
# Seconds for connecting, independent of the time allowed for an answer.
_CONNECT_S = 3.0


class EndpointEncoder:
    """Embeds texts by a server's model.

    Keeps connections open; safe for many threads. Close it when it is no longer needed.

    Args:
        url: up to and including `/v1`; `#model` selects the model, else the server's first is used.
        thresholds: override the paper's.
        api_key: sent as a bearer token.
        timeout_s: for each request, once connected.

    Raises:
        EncoderUnavailableError: the server does not list its models.
    """

    def __init__(
        self,
        url: str,
        *,
        thresholds: Thresholds | None = None,
        api_key: str | None = None,
        timeout_s: float = 10.0,
    ) -> None:
        url, model = urldefrag(url)
        self._url = url.rstrip("/")
        self._client = httpx.Client(
            headers={"Authorization": f"Bearer {api_key}"} if api_key else None,
            timeout=httpx.Timeout(timeout_s, connect=_CONNECT_S),
        )
        self._model = model or self._first_model()
        self.thresholds = thresholds or Thresholds()

    @property
    def name(self) -> str:
        return f"{self._url}#{self._model}"

    def encode(self, texts: Sequence[str]) -> Matrix:
        parts = [self._embed(texts[start : start + _BATCH]) for start in range(0, len(texts), _BATCH)]
        return np.concatenate(parts) if parts else np.empty((0, 0), np.float32)

    def encode_query(self, text: str, instruction: str = "") -> Vector:
        # The format on which models with instructions were trained (Qwen3-Embedding, E5).
        vector: Vector = self._embed([f"Instruct: {instruction}\nQuery: {text}" if instruction else text])[0]
        return vector

    def close(self) -> None:
        self._client.close()

    def _embed(self, texts: Sequence[str]) -> Matrix:
        answer = self._request("POST", "/embeddings", {"model": self._model, "input": list(texts)})
        try:
            rows = sorted(answer["data"], key=lambda row: row["index"])
            vectors = np.array([row["embedding"] for row in rows], np.float32)
        except (KeyError, TypeError, ValueError) as error:
            raise self._unavailable(f"not an answer with embeddings ({error!r})") from error
        if vectors.ndim != 2 or len(vectors) != len(texts) or not np.isfinite(vectors).all():
            raise self._unavailable(f"{len(vectors)} embeddings for {len(texts)} texts, or not of numbers")
        return unit_rows(vectors)

    def _first_model(self) -> str:
        models = self._request("GET", "/models")
        try:
            return str(models["data"][0]["id"])
        except (KeyError, TypeError, IndexError) as error:
            raise self._unavailable("the URL does not name a model: append #model") from error

    def _request(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Any:
        try:
            response = self._send(method, path, body)
            response.raise_for_status()
            return response.json()
        except httpx.HTTPStatusError as error:
            raise self._unavailable(f"{error.response.status_code}: {error.response.text[:200]}") from error
        except (httpx.HTTPError, ValueError) as error:
            raise self._unavailable(f"{error or type(error).__name__}") from error

    def _send(self, method: str, path: str, body: Mapping[str, Any] | None) -> httpx.Response:
        try:
            return self._client.request(method, f"{self._url}{path}", json=body)
        except (httpx.RemoteProtocolError, httpx.ReadError, httpx.WriteError):
            # The server closed an idle connection as we used it: try once more.
            return self._client.request(method, f"{self._url}{path}", json=body)

    def _unavailable(self, reason: str) -> EncoderUnavailableError:
        return EncoderUnavailableError(
            f"encoder at {self._url} gives no vectors: {reason}; start it or correct KBQA_KG_SERVER_ENCODER"
        )
