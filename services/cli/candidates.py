"""The candidates of `kbqa eval`: a policy version, a model's directory, a chat model, a sentence encoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry
from pydantic import ValidationError

from kbqa.bases import find_base
from kbqa.confidence import Calibration
from kbqa.datasets.formats import Answers
from kbqa.datasets.gold import gold_form_of
from kbqa.errors import (
    ConfigurationError,
    NoPolicyError,
    PolicyIntegrityError,
    PolicyUnavailableError,
    RecipeError,
)
from kbqa.evaluation.baselines import BASELINES, baseline_player
from kbqa.evaluation.nearest import NEAREST, NearestQuestion
from kbqa.evaluation.paths import PathPlayer
from kbqa.evaluation.ranking import MAX_HOPS, RANKING, PathRanking
from kbqa.judges import ChatJudge, Judge, MatchingJudge
from kbqa.kg.actions import GraphTools
from kbqa.kg.ranking.encoders import Encoder
from kbqa.kg.ranking.opening import open_encoder
from kbqa.kg.ranking.ranker import Ranker
from kbqa.policies.openai import OpenAiPolicy
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policies.vllm import VllmServer
from kbqa.policy_store import Manifest, PolicyStore, PolicyVersion, open_store
from kbqa.policy_store.shipped import READER, shipped_reader
from kbqa.recipes import Recipe, load_recipe, recipe_from
from kbqa.rollouts import Player
from kbqa.serving.hosting import Hosted, OnVllm, open_in_process
from kbqa.serving.players import Players
from kbqa.telemetry.metrics import Metrics
from kbqa.trajectory import Question, Segment
from services.cli.chat_models import CHAT, chat_model, variable

_ROWS = 64  # concurrent episodes; another one costs memory, but hardly makes a step longer
_CHATS = 16  # concurrent conversations
_VLLM_TIMEOUT_S = 600.0  # for a completion
_RANKED = 4  # questions whose paths are ranked at a time; the encoder computes one batch after the other
_CACHED_TOKENS = 131_072  # tokens in the key-value cache of all concurrent episodes
_BASELINES = (*BASELINES, RANKING, NEAREST)
_CHAT_RECIPE = "kg-r1"
_ENCODER = "sentence-transformers/all-MiniLM-L6-v2"
_JUDGE_MODEL, _JUDGE_URL = "KBQA_JUDGE_MODEL", ("KBQA_JUDGE_URL", "OPENAI_BASE_URL")


@dataclass(frozen=True, slots=True)
class EvaluatedPolicy:
    """Attributes:
    name: name as the user gave it, with its version.
    about: further data for reports, as JSON.
    width: number of concurrent episodes.
    judge: decides whether answers are correct.
    suits: whether a question can be asked in the policy's dialect.
    play: (tools, number of the run) → its player and temperature; run 0 is played as the recipe evaluates.
    close: frees the policy.
    calibration: how sure its answers are; None if that is not known.
    gold: form of gold answers with which its answers are compared, if a data set has both.
    """

    name: str
    about: Mapping[str, Any]
    width: int
    judge: Judge
    suits: Callable[[Question], bool]
    play: Callable[[GraphTools, int], tuple[Player[Any], float]]
    close: Callable[[], None]
    calibration: Calibration | None = None
    gold: Answers = Answers.LABELS


def open_candidate(
    policy: str,
    home: Path,
    location: str | None,
    *,
    recipe: Recipe | None,
    baseline: str | None,
    max_hops: int | None = None,
    known_hops: bool = False,
    examples: Iterable[Question] = (),
    vllm: str | None = None,
) -> EvaluatedPolicy:
    """Open the policy, model or encoder to evaluate.

    Args:
        policy: a directory, NAME[@VERSION] of the policy store, `READER`, or openai:MODEL; for the
            baselines `RANKING` and `NEAREST` a sentence encoder, as for `find_base`.
        location: location of the policy store, if it is not in `home`.
        recipe: to play by; None for the recipe of the policy's training.
        baseline: one of `BASELINES`, `RANKING` or `NEAREST`, instead of a recipe.
        max_hops, known_hops: for `RANKING`; see `PathRanking`.
        examples: for `NEAREST`; see `NearestQuestion`.
        vllm: URL of a vLLM server that computes a published version's completions, and that nothing else
            uses; None computes them in this process.

    Raises:
        NoPolicyError: the policy does not exist.
        PolicyIntegrityError, PolicyMismatchError: the policy cannot be loaded.
        BaseNotFoundError: the base of an adapter, or the encoder, is not on this machine.
        PolicyUnavailableError: the vLLM server does not answer.
        RecipeError: the recipe does not suit the policy.
        ConfigurationError: the options exclude each other, or a recipe, baseline or endpoint is missing or
            unknown.
        DatasetError: no example has a gold path.
    """
    if baseline is not None and baseline not in _BASELINES:
        raise ConfigurationError(f'no baseline "{baseline}" (known: {", ".join(_BASELINES)})')
    if vllm is not None and (baseline is not None or policy == READER or policy.startswith(CHAT)):
        raise ConfigurationError("--vllm is for language models that kbqa has trained: leave it out")
    if baseline is not None and recipe is not None:
        raise ConfigurationError("--baseline and --recipe exclude each other: give only one of them")
    if baseline == RANKING:
        return _ranking(policy, max_hops, known_hops=known_hops)
    if max_hops is not None or known_hops:
        raise ConfigurationError(f"--max-hops and --known-hops are for --baseline {RANKING}")
    if baseline == NEAREST:
        return _nearest(policy, examples)
    if policy.startswith(CHAT):
        return _chat(policy, recipe, baseline)
    if baseline is not None:
        raise ConfigurationError(f"this baseline needs a chat model: name it as {CHAT}MODEL")
    store = open_store(home, location)
    # Names in the store take precedence: the working directory may contain a directory with the same name.
    if policy.partition("@")[0] in store.runs():
        version = _find(store, policy)
        store.verify(version)
        return _local(_label(version), version.path, version, recipe, vllm)
    if policy == READER:
        shipped = shipped_reader()
        return _local(_label(shipped), shipped.path, shipped, recipe, None)
    path = Path(policy)
    if not path.is_dir():
        known = ", ".join([*store.runs(), READER])
        raise NoPolicyError(
            f'"{policy}" is neither a directory nor a policy under {home} (there are: {known})'
        )
    found = _manifest(path)
    return _local(policy if found is None else _label(found), path, found, recipe, vllm)


def _label(version: PolicyVersion) -> str:
    return f"{version.run}@{version.id}"


def _find(store: PolicyStore, policy: str) -> PolicyVersion:
    """The version of a run by any unique prefix of its id; without one, the newest version."""
    name, _, wanted = policy.partition("@")
    newest = store.newest(name)
    if not wanted and newest is not None:
        return newest
    ids = sorted(store.ids(name))
    found = [id_ for id_ in ids if wanted and id_.startswith(wanted)]
    if len(found) == 1:
        return store.get(name, found[0])
    problem = "has several versions" if found else "has no version"
    raise NoPolicyError(f'policy {name} {problem} "{wanted}" (it has: {", ".join(ids) or "none"})')


def _manifest(path: Path) -> PolicyVersion | None:
    """The version that a directory's manifest describes; None if the directory has no manifest."""
    manifest = path / "manifest.json"
    if not manifest.is_file():
        return None
    try:
        return PolicyVersion(path, Manifest.model_validate_json(manifest.read_bytes()))
    except (OSError, ValidationError) as error:
        raise PolicyIntegrityError(f"{path}: no readable manifest ({error})") from error


def _local(
    name: str, path: Path, version: PolicyVersion | None, chosen: Recipe | None, vllm: str | None
) -> EvaluatedPolicy:
    """A policy whose files are on this machine."""
    recipe = chosen or _trained_with(name, version)
    codec = TokenizerCodec.load(path)
    if version is not None and version.manifest.base_model is None:
        _require_tags(name, codec, recipe)
    label = path.name if version is None else version.id
    with ExitStack() as opening:
        if vllm is None:
            hosted = open_in_process(
                path,
                None if version is None else version.manifest,
                codec,
                label,
                longest=recipe.rollout.max_tokens,
                max_rows=_ROWS,
                cached_tokens=_CACHED_TOKENS,
            )
        elif version is None:
            raise ConfigurationError(f"--vllm: {name} has no manifest; name a version of the policy store")
        else:
            hosted = _on_vllm(vllm, version, codec, opening)
        opening.callback(hosted.close)
        opened = opening.pop_all()
    play = _by(Players.of(recipe, hosted.policy, codec))
    about = {"policy": name, "version": label, "recipe": recipe.name, "baseline": None}
    calibration = None if version is None else version.manifest.calibration
    return EvaluatedPolicy(
        name,
        about,
        _ROWS,
        recipe.judge.build(),
        recipe.questions.suit,
        play,
        opened.close,
        calibration,
        gold_form_of(recipe.protocol.build()),
    )


def _on_vllm(url: str, version: PolicyVersion, codec: TokenizerCodec, opened: ExitStack) -> Hosted:
    """A version on a vLLM server, whose metrics are not read.

    Raises:
        PolicyUnavailableError: the server does not answer.
    """
    server = VllmServer(url)
    opened.callback(server.close)
    metrics = Metrics(CollectorRegistry())
    host = OnVllm([server], metrics, precision="bfloat16", timeout_s=_VLLM_TIMEOUT_S)
    if (why := host.unready()) is not None:
        raise PolicyUnavailableError(f"--vllm {url}: {why}")
    return host.build(version, codec, deterministic=False)


def _by(players: Players) -> Callable[[GraphTools, int], tuple[Player[Any], float]]:
    return lambda tools, run: (players.player(tools, run), players.draw(run).temperature)


def _trained_with(name: str, version: PolicyVersion | None) -> Recipe:
    if version is None:
        raise ConfigurationError(
            f"{name} does not contain the recipe that it was trained with: name one with --recipe"
        )
    return recipe_from(version.recipe(), f"{name}: recipe.json")


def _require_tags(name: str, codec: TokenizerCodec, recipe: Recipe) -> None:
    """Check that the tags of a recipe's dialect are tokens of a small policy, which knows no other dialect.

    Raises:
        RecipeError: a tag is not a token.
    """
    protocol = recipe.protocol.build()
    for tag in protocol.tags:
        if len(codec.encode([Segment(tag)])) != 1:
            raise RecipeError(
                f'recipe {recipe.name} does not suit {name}: it plays {protocol.name}, and "{tag}" is not '
                "a token of this policy; omit --recipe, or name one with the policy's own dialect"
            )


def _ranking(encoder: str, max_hops: int | None, *, known_hops: bool) -> EvaluatedPolicy:
    """The baseline `RANKING`: relation paths ranked by a sentence encoder."""
    if max_hops is not None and known_hops:
        raise ConfigurationError("--max-hops and --known-hops exclude each other: give only one of them")
    opened = _encoder(encoder, RANKING)
    ranking = PathRanking(Ranker(opened, lambda: ()), max_hops or MAX_HOPS, known_hops)
    about = {
        "policy": encoder,
        "version": opened.name,
        "recipe": None,
        "baseline": RANKING,
        "ranking": {
            "hops": "known" if known_hops else f"at most {ranking.max_hops}",
            "beam": ranking.beam,
        },
    }

    def play(tools: GraphTools, run: int) -> tuple[Player[Any], float]:
        return PathPlayer(ranking, tools), 0.0

    def suits(question: Question) -> bool:
        return question.hops > 0 or not known_hops

    return EvaluatedPolicy(encoder, about, _RANKED, MatchingJudge(), suits, play, lambda: None)


def _nearest(encoder: str, examples: Iterable[Question]) -> EvaluatedPolicy:
    """The baseline `NEAREST`: the gold path of the example that a sentence encoder finds most alike."""
    known = NearestQuestion.among(_encoder(encoder, NEAREST), examples)
    about = {
        "policy": encoder,
        "version": known.encoder.name,
        "recipe": None,
        "baseline": NEAREST,
        "nearest": {"texts": len(known.texts)},
    }

    def play(tools: GraphTools, run: int) -> tuple[Player[Any], float]:
        return PathPlayer(known, tools), 0.0

    return EvaluatedPolicy(
        encoder, about, _RANKED, MatchingJudge(), lambda question: True, play, lambda: None
    )


def _encoder(name: str, baseline: str) -> Encoder:
    """A sentence encoder by its name or directory.

    Raises:
        ConfigurationError: a chat model is named instead.
        BaseNotFoundError: it is not on this machine.
    """
    if name.startswith(CHAT):
        raise ConfigurationError(
            f"baseline {baseline} needs a sentence encoder: name one, for example {_ENCODER}"
        )
    return open_encoder(str(find_base(name).directory))


def _chat(policy: str, chosen: Recipe | None, baseline: str | None) -> EvaluatedPolicy:
    """A model at an OpenAI-compatible endpoint."""
    chat = chat_model(policy)
    about = {"policy": policy, "version": chat.name, "recipe": None, "baseline": baseline}
    if baseline is not None:
        spoken = OpenAiPolicy(replace(chat, extra=BASELINES[baseline].extra))
        return EvaluatedPolicy(
            policy,
            about,
            _CHATS,
            _judge(),
            lambda question: True,
            lambda tools, run: baseline_player(baseline, spoken, tools, run),
            spoken.close,
        )
    recipe = chosen or load_recipe(_CHAT_RECIPE)
    spoken = OpenAiPolicy(chat)
    return EvaluatedPolicy(
        policy,
        {**about, "recipe": recipe.name},
        _CHATS,
        recipe.judge.build(),
        recipe.questions.suit,
        _by(Players.of_chat(recipe, spoken)),
        spoken.close,
        gold=gold_form_of(recipe.protocol.build()),
    )


def _judge() -> Judge:
    """What judges a baseline's answers: the model that `KBQA_JUDGE_MODEL` names (KG-R1, C.1), or matching."""
    model = variable(_JUDGE_MODEL)
    if model is None:
        return MatchingJudge()
    url = variable(*_JUDGE_URL)
    if url is None:
        raise ConfigurationError(
            f"{_JUDGE_MODEL} is set: set {' or '.join(_JUDGE_URL)} to the URL of its endpoint (https://host/v1)"
        )
    return ChatJudge(model, url)
