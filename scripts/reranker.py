"""Trains the re-ranker that the reader ships with.

The reader, without one, searches answers to questions about other worlds than those that it was trained on;
none has a domain that is held out from it. The re-ranker learns to tell the right forms that are found from
the wrong ones, and from forms that are made of a right one. Without these, it learns that what is short is
right, since a search that fails mostly goes too far.
"""

from __future__ import annotations

import random
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import NamedTuple, cast

import torch
from peft import LoraConfig, get_peft_model
from pydantic import TypeAdapter
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from kbqa.bases import find_base
from kbqa.datasets import spread
from kbqa.datasets.catalog import load_dataset
from kbqa.datasets.world.many import planned
from kbqa.environment import Episode
from kbqa.evaluation import evaluate
from kbqa.kg.catalog import GraphCatalog
from kbqa.policies.adapters import load_adapted
from kbqa.policies.chooser.model import Chooser
from kbqa.policies.chooser.reading import KINDS, ChooserVocabulary, Form, Words, form_of
from kbqa.policies.chooser.reranker import Reranker
from kbqa.policy_store import PolicyVersion
from kbqa.rollouts import Searcher
from kbqa.rollouts.beam import UNLIKELY, beam_search
from kbqa.trajectory import Question
from services.cli.candidates import open_candidate
from services.cli.graphs import load_graphs, local_tools

DATASET, SEED = "worlds", 1  # of the reader, whose held-out domains are held out here, too
PLAYED: Mapping[int, int] = {2: 4000, 3: 3500}  # by the seed of the worlds: questions that are asked
WEIGHTS = "adapter_model.safetensors"
_LORA = LoraConfig(
    r=32,
    lora_alpha=32,
    target_modules=["query", "key", "value", "dense"],
    modules_to_save=["kind", "rating"],
)
_EPOCHS, _QUESTIONS, _LEARNING_RATE, _WARM_UP = 2, 16, 1e-3, 50
_MADE = 4  # wrong forms that are made of a right one, at most
_WIDTH = 32  # questions that are played at a time
_FOLLOWED = KINDS.index(("<inverse>",)) + 1  # kinds before this one follow a relation


class Candidate(NamedTuple):
    """A form that a search ended with."""

    form: Form
    log_likelihood: float
    right: bool


class Asked(NamedTuple):
    """A question about a graph, and what was found."""

    kg: str
    candidates: list[Candidate]


_EPISODES = TypeAdapter(list[Asked])


def train_reranker(home: Path, reader: PolicyVersion) -> Path:
    """Train it for a reader, in `home`; returns its directory."""
    into = home / "reranker"
    into.mkdir(exist_ok=True)
    chooser: Chooser = load_adapted(reader.path)
    asked = list[Asked]()
    for seed, count in PLAYED.items():  # what was found is kept, in case of an interruption
        file = into / f"{seed}.json"
        if not file.is_file():
            found = list(_found(home, reader, chooser.vocabulary, seed, count))
            file.write_bytes(_EPISODES.dump_json(found))
        asked += _EPISODES.validate_json(file.read_bytes())
    base = str(reader.manifest.base_model)
    torch.manual_seed(SEED)
    model = get_peft_model(Reranker.begin(chooser, find_base(base).directory), _LORA)
    _learn(model, asked, random.Random(SEED))
    model.peft_config["default"].base_model_name_or_path = base  # a name, not a directory of this machine
    trained = into / "adapter"
    shutil.rmtree(trained, ignore_errors=True)
    model.save_pretrained(str(trained))
    weights = load_file(trained / WEIGHTS)
    save_file({name: tensor.to(torch.float16) for name, tensor in weights.items()}, trained / WEIGHTS)
    return trained


def _found(
    home: Path, reader: PolicyVersion, vocabulary: ChooserVocabulary, seed: int, count: int
) -> Iterator[Asked]:
    """What the reader finds in the worlds of a seed."""
    load_graphs(home, DATASET, seed)
    splits = load_dataset(DATASET, seed).splits
    known = {world.domain for world in planned(SEED) if world.split == "train"}
    worlds = {world.name for world in planned(seed) if world.domain in known or world.domain is None}
    questions = [
        question
        for question in (*splits.validation, *splits.test, *splits.train, *splits.cold_start)
        if question.kg in worlds
    ]
    candidate = open_candidate(str(reader.path), home, None, recipe=None, baseline=None)
    with closing(GraphCatalog(home)) as graphs, closing(candidate), ThreadPoolExecutor(_WIDTH) as pool:
        player, _ = candidate.play(local_tools(graphs, home), 0)

        def asked(question: Question) -> Asked:
            found = []
            for member in beam_search(cast(Searcher[Episode], player), question).members:
                trajectory = member.episode.trajectory()
                [record] = evaluate([(question, [trajectory])], candidate.judge).records
                form = form_of(trajectory.token_ids, vocabulary)
                found.append(Candidate(form, member.log_likelihood, record.is_right))
            return Asked(question.kg, found)

        yield from pool.map(asked, spread(questions, count))


def _learn(model: nn.Module, asked: Sequence[Asked], rng: random.Random) -> None:
    """Train by the likelihood of the right forms among those of a question, and by that of each."""
    relations: defaultdict[str, dict[Words, None]] = defaultdict(dict)
    for question in asked:
        for candidate in question.candidates:
            relations[question.kg] |= {w: None for w in candidate.form.path if w.kind < _FOLLOWED}
    parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimiser = torch.optim.AdamW(parameters, _LEARNING_RATE, weight_decay=0.01)
    steps = _EPOCHS * len(asked) // _QUESTIONS
    # Where the processor has no bf16, its products take many times as long as those in fp32.
    can = torch.cpu.get_capabilities()
    has_bf16 = bool(can.get("amx_bf16") or can.get("avx512_bf16"))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimiser, lambda step: min(1.0, (step + 1) / _WARM_UP) * (1 - step / steps)
    )
    waiting: list[Asked] = []
    for step in range(steps):
        if len(waiting) < _QUESTIONS:
            waiting = rng.sample(asked, len(asked))
        batch, waiting = waiting[:_QUESTIONS], waiting[_QUESTIONS:]
        lists = [_examples(question, list(relations[question.kg]), rng) for question in batch]
        with torch.autocast("cpu", torch.bfloat16, enabled=has_bf16):
            ratings = model([form for forms in lists for form, _ in forms]).float()
        loss = _loss(ratings, [[right for _, right in forms] for forms in lists])
        optimiser.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(parameters, 1.0)
        optimiser.step()
        schedule.step()
        if step % 50 == 0:
            sys.stdout.write(f"reranker {step}/{steps}\n")
            sys.stdout.flush()


def _loss(ratings: Tensor, right: Sequence[Sequence[bool]]) -> Tensor:
    """Cross-entropy of the right forms among those of their question, and half of that of each form alone."""
    targets = torch.tensor([float(one) for forms in right for one in forms])
    among = []
    lengths = [len(forms) for forms in right]
    for rated, is_one in zip(torch.split(ratings, lengths), right, strict=True):
        if 0 < sum(is_one) < len(is_one):
            among.append(rated.logsumexp(0) - rated[torch.tensor(is_one)].logsumexp(0))
    alone = functional.binary_cross_entropy_with_logits(ratings, targets)
    return 0.5 * alone + (torch.stack(among).mean() if among else 0.0)


def _examples(question: Asked, relations: Sequence[Words], rng: random.Random) -> list[tuple[Form, bool]]:
    """The forms of a question that are learned from, and whether each is right."""
    likeliest = max(candidate.log_likelihood for candidate in question.candidates)
    found = {
        candidate.form: candidate.right
        for candidate in question.candidates
        if candidate.form.path and candidate.log_likelihood > likeliest - UNLIKELY
    }
    right = next((form for form, is_right in found.items() if is_right), None)
    if right is not None:
        made = [form for form in _made(right, relations, rng) if form not in found]
        found |= dict.fromkeys(rng.sample(made, min(_MADE, len(made))), False)
    return list(found.items())


def _made(form: Form, relations: Sequence[Words], rng: random.Random) -> list[Form]:
    """Wrong forms that are like a right one.

    Parts of it; its reverse; and with another relation in place of one, with one more, or with one that is
    followed the other way.
    """
    path = form.path
    parts = [
        tuple(words for place, words in enumerate(path) if chosen >> place & 1)
        for chosen in range(1, 2 ** len(path) - 1)
    ]
    place, other = rng.randrange(len(path)), rng.randrange(len(path))
    changed = [(*path[:place], rng.choice(relations), *path[place + 1 :]) for _ in range(2)]
    turned = [
        (*path[:other], words._replace(kind=_FOLLOWED - 1 - words.kind), *path[other + 1 :])
        for words in path[other : other + 1]
        if words.kind < _FOLLOWED
    ]
    found = dict.fromkeys([*parts, path[::-1], *changed, (*path, rng.choice(relations)), *turned])
    # What is done with a set cannot come first.
    return [form._replace(path=one) for one in found if one != path and one[0].kind in (path[0].kind, 0, 1)]
