"""The chat models that commands talk to: openai:MODEL, at the endpoint that the environment names."""

from __future__ import annotations

import os

from kbqa.chat import ChatModel
from kbqa.errors import ConfigurationError

CHAT = "openai:"
"""Prefix of the name of a model at an OpenAI-compatible endpoint."""

_TIMEOUT_S = 120.0
_URL, _KEY = (
    ("KBQA_GATEWAY_CHAT_URL", "OPENAI_BASE_URL"),
    ("KBQA_GATEWAY_CHAT_API_KEY", "OPENAI_API_KEY"),
)


def chat_model(name: str) -> ChatModel:
    """The model that a name with the prefix `CHAT` means.

    Raises:
        ConfigurationError: the name has no such prefix or nothing after it, or the environment names no
            endpoint.
    """
    model = name.removeprefix(CHAT)
    if model == name or not model:
        raise ConfigurationError(
            f'"{name}" is no chat model: write {CHAT}MODEL, with a model name that the endpoint knows'
        )
    url = variable(*_URL)
    if url is None:
        raise ConfigurationError(
            f"{name}: set {_URL[0]} (or {_URL[1]}) to the URL of its endpoint (https://host/v1), "
            f"and {_KEY[0]} (or {_KEY[1]}) to its API key if the endpoint requires one"
        )
    return ChatModel(model, url, api_key=variable(*_KEY), timeout_s=_TIMEOUT_S)


def variable(*names: str) -> str | None:
    """The first environment variable of these that is set and not empty; None if there is none."""
    return next((value for name in names if (value := os.environ.get(name))), None)
