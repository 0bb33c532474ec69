"""Builds the policy source from the settings: promoted policy or external model, fallback and reader."""

from __future__ import annotations

import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import cache, partial

from kbqa.chat import ChatClient, ChatModel
from kbqa.errors import ConfigurationError
from kbqa.policies.openai import OpenAiPolicy
from kbqa.policies.vllm import VllmServer
from kbqa.policy_store import PolicyVersion
from kbqa.policy_store.shipped import READER, shipped_reader
from kbqa.recipes import load_recipe
from kbqa.serving.hosting import Host, InProcess, OnVllm
from kbqa.serving.players import Players
from kbqa.serving.policies import (
    FixedPolicy,
    PoliciesByGraph,
    PoliciesInTurn,
    PolicySource,
    ServedPolicy,
    check_files,
    open_version,
)
from kbqa.serving.promotion import FollowedPolicies
from kbqa.serving.trial import Bounds, Trial
from kbqa.telemetry.metrics import Metrics
from services.gateway.settings import GatewaySettings
from services.gateway.turns import Turns

_EXTERNAL = "external"


def policies_of(settings: GatewaySettings, metrics: Metrics) -> PolicySource:
    """The source of policies, including the fallback and the reader.

    Raises:
        ConfigurationError: the external model is not fully configured, or the fallback is invalid.
    """
    if settings.engine == _EXTERNAL:
        first: PolicySource = FixedPolicy(external_policy(settings))
    else:
        first = followed(settings, metrics, settings.policies().promoted)
    if settings.fallback == _EXTERNAL:
        first = PoliciesInTurn([first, FixedPolicy(external_policy(settings))])
    elif settings.fallback is not None:
        first = PoliciesInTurn([first, followed(settings, metrics, _fallback_version(settings))])
    if settings.engine == _EXTERNAL or not settings.reader:
        return first
    return PoliciesByGraph(first, _reader(settings))


def external_policy(settings: GatewaySettings) -> ServedPolicy:
    """The external model, playing the dialect of `settings.chat_recipe`.

    Raises:
        ConfigurationError: it is not fully configured, or its recipe is invalid.
    """
    if settings.chat_url is None or settings.chat_model is None:
        raise ConfigurationError(
            "an external model needs KBQA_GATEWAY_CHAT_URL and KBQA_GATEWAY_CHAT_MODEL "
            "(and KBQA_GATEWAY_CHAT_API_KEY, if its server requires one)"
        )
    recipe = load_recipe(settings.chat_recipe)
    policy = OpenAiPolicy(_chat_model(settings, settings.chat_url, settings.chat_model))
    return ServedPolicy(
        run=settings.chat_model,
        version=settings.chat_model,
        recipe=recipe.name,
        players=Players.of_chat(recipe, policy, native_tools=settings.chat_native_tools).interactive(),
        close=policy.close,
        alive=lambda: True,
    )


def rewriting_client(settings: GatewaySettings) -> ChatClient | None:
    """A client of the external model that completes follow-up questions; None if rules do."""
    if not settings.chat_rewrites or settings.chat_url is None or settings.chat_model is None:
        return None
    return ChatClient(replace(_chat_model(settings, settings.chat_url, settings.chat_model), attempts=1))


def _chat_model(settings: GatewaySettings, url: str, name: str) -> ChatModel:
    return ChatModel(name, url, api_key=settings.chat_api_key, timeout_s=settings.chat_timeout_s)


def _fallback_version(settings: GatewaySettings) -> Callable[[], PolicyVersion]:
    run, _, version = str(settings.fallback).partition("/")
    if not version:
        raise ConfigurationError(
            f'KBQA_GATEWAY_FALLBACK: "{settings.fallback}" is neither "external" nor RUN/VERSION '
            "(kbqa policy list shows all versions)"
        )
    store = settings.policies()
    return lambda: store.get(run, version)


def followed(
    settings: GatewaySettings,
    metrics: Metrics,
    wanted: Callable[[], PolicyVersion],
    host: Host | None = None,
) -> FollowedPolicies:
    """Follows a version of the policy store.

    Args:
        host: makes engines instead of the one in the settings.
    """
    store = settings.policies()
    host = host or _host(settings, metrics)
    # Versions in use are not deleted; each source declares the version that it uses.
    holder = f"gateway-{socket.gethostname()}-{os.getpid()}-{id(wanted)}"

    def hold(versions: Sequence[PolicyVersion]) -> None:
        store.hold(holder, versions)

    def exclusive(version: PolicyVersion) -> bool:
        return settings.engine == "vllm" and version.manifest.kind == "full"

    bounds = Bounds(settings.rollback_questions, settings.rollback_errors, settings.rollback_fall)
    return FollowedPolicies(
        wanted,
        lambda version: open_version(version, host),
        poll_s=settings.poll_s,
        prepare=partial(check_files, store),
        hold=hold,
        exclusive=exclusive,
        turn=_turn(settings),
        trial=Trial(bounds) if settings.rollback else None,
        rolled_back=metrics.counter("kbqa_gateway_rollbacks_total").inc,
    )


def _turn(settings: GatewaySettings) -> Callable[[threading.Event], AbstractContextManager[None]]:
    if settings.redis_url is None:
        return lambda _: nullcontext()
    return Turns(settings.redis_url, timeout_s=settings.redis_timeout_s).turn


def _host(settings: GatewaySettings, metrics: Metrics) -> Host:
    if settings.engine != "vllm":
        return InProcess(settings.max_rows)
    servers = [VllmServer(url, update_timeout_s=settings.vllm_update_timeout_s) for url in settings.vllm_urls]
    return OnVllm(servers, metrics, precision=settings.vllm_precision, timeout_s=settings.vllm_timeout_s)


def _reader(settings: GatewaySettings) -> FollowedPolicies:
    """The policy that ships with kbqa, for every graph."""
    host = InProcess(settings.max_rows)

    def load(version: PolicyVersion) -> ServedPolicy:
        return replace(open_version(version, host), run=READER, graphs=())

    # Once found, it stays the same; looking for it reads its weights.
    return FollowedPolicies(cache(shipped_reader), load, poll_s=settings.poll_s)
