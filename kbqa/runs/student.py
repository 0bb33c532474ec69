"""The model that a run trains, with its tokenizer."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from tokenizers import Tokenizer

from kbqa.bases import find_base
from kbqa.cold_start.demonstrations import Demonstration
from kbqa.policies.adapters import AdaptedModel
from kbqa.policies.chooser.beginning import begin_chooser, is_encoder, marks_of
from kbqa.policies.chooser.model import RECURRENT, Chooser
from kbqa.policies.in_process import load_model
from kbqa.policies.probe import Precision, Probe
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.policy_store import PolicyVersion
from kbqa.training.copying import WarmUpConfig, warm_up
from kbqa.training.probing import take_probe
from kbqa.training.saving import save_weights
from kbqa.training.small_policy import SmallPolicyConfig, build_model, save_model, train_tokenizer
from kbqa.trajectory import Question, Segment, Trajectory
from kbqa.tree import RewardedTree, ScoredRollout

_TEMPLATE, _TOKENIZER_CONFIG = "chat_template.jinja", "tokenizer_config.json"
_TOKENIZER_FILES = (
    "tokenizer.json",
    _TOKENIZER_CONFIG,
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    _TEMPLATE,
)

_TOKENIZER_TRIPLES = 20_000  # of the graph's text for a new tokenizer: a policy has to spell its names
_TOKENIZER_QUESTIONS = 2000  # likewise, texts of training questions
# Any words do, if a model is not certain of them all. They are enough for the mean difference of a wrong
# version to stay above what rounding explains.
_PROBED = (
    "Who wrote the novel that this film is based on? Among the relations of the film one leads to the "
    "novel, and among those of the novel one leads to its author. The author was born in 1893 in a "
    "small town by the sea, studied law and music, and wrote eleven books, three of which became films."
    " Two of these won prizes: the first for its script in 1951, the second for its photography. Which "
    "actors appear in both, and how old were they at the time? The graph lists 27 people in the first "
    "film and 14 in the second; only four names are in both lists, and one of them is not an actor but "
    "a composer, whose date of birth nobody has recorded. Ask for the height of the mountain behind his"
    " house, for the river that the town's oldest bridge crosses, and for the language in which the "
    "mayor wrote to the queen. If there is no fact, say so; if there are several, list them by year. In"
    " winter the harbour freezes, and the ferry, built of iron in Gdansk, carries coal, timber and post"
    " instead of 300 guests. Neither the captain's brother nor the teacher of his children signed the "
    "treaty, but a physicist from Uppsala did, under another name."
)
_PROBED_TOKENS = 256


@dataclass(frozen=True, slots=True)
class Student:
    """A causal language model in training.

    Attributes:
        tokenizer_files: contents by name; they never change, so every version gets the same.
        codec: as every later process will read them.
    """

    model: Any
    tokenizer: Tokenizer
    tokenizer_files: dict[str, bytes]
    codec: TokenizerCodec

    @classmethod
    def fresh(
        cls, config: SmallPolicyConfig, texts: Iterable[str], tags: Sequence[str], seed: int
    ) -> Student:
        """A small policy with random weights, whose tokenizer is learned from `texts`."""
        tokenizer = train_tokenizer(texts, tags, config.vocabulary)
        model = build_model(tokenizer, config, seed)
        with TemporaryDirectory() as directory:
            save_model(model, tokenizer, Path(directory))
            # Read back, so that it is configured as every later process will find it.
            return cls.load(Path(directory))

    @classmethod
    def load(cls, directory: Path, model: Any = None) -> Student:
        """A Hugging Face directory, such as a policy version's.

        Args:
            model: that of the directory, if it is loaded already.

        Raises:
            PolicyIntegrityError: it holds no model that can be loaded.
        """
        files = {
            name: (directory / name).read_bytes() for name in _TOKENIZER_FILES if (directory / name).is_file()
        }
        codec = TokenizerCodec.load(directory)
        tokenizer = Tokenizer.from_file(str(directory / "tokenizer.json"))
        return cls(load_model(directory) if model is None else model, tokenizer, files, codec)

    @classmethod
    def of(cls, version: PolicyVersion) -> Student:
        """The model of a version whose files are here; an adapter is merged into its base model.

        Raises:
            PolicyIntegrityError: it cannot be loaded.
            BaseNotFoundError: it is an adapter, whose base model is not on this machine.
        """
        manifest = version.manifest
        if manifest.kind == "full":
            return cls.load(version.path)
        adapted = AdaptedModel.load(version.path, manifest.base_model, manifest.probe)
        return cls.load(version.path, adapted.model)

    @classmethod
    def pretrained(
        cls,
        name: str,
        tags: Sequence[str],
        seed: int,
        *,
        chat_template: bool = True,
        chooser_head: str = RECURRENT,
    ) -> Student:
        """A base model on this machine: see `kbqa.bases.find_base`. A sentence encoder becomes a chooser.

        Args:
            tags: those of the dialect; each is a token of a policy that chooses.
            seed: of the weights of such a policy's head.
            chat_template: whether to keep the model's; without it, no version of the policy has one.
            chooser_head: the head of such a policy, one of `HEADS`.

        Raises:
            BaseNotFoundError: there is none of this name; says what to install.
            PolicyIntegrityError: it is not what was published, or cannot be loaded.
        """
        directory = find_base(name).directory
        if not is_encoder(directory):
            student = cls.load(directory)
            return student if chat_template else student.without_template()
        with TemporaryDirectory() as beginning:
            model, tokenizer = begin_chooser(directory, tags, seed, chooser_head)
            marks = marks_of(tokenizer)
            save_model(model, tokenizer, Path(beginning), pad=marks.pad, end=marks.end)
            return cls.load(Path(beginning))

    def warm_up(
        self, config: WarmUpConfig, seed: int, on_step: Callable[[int, float], None] = lambda step, loss: None
    ) -> bool:
        """Learn to copy, and nothing else, on tokens of its vocabulary that are no tags.

        Returns:
            Whether it has learned it.
        """
        specials = self.tokenizer.get_added_tokens_decoder()
        vocabulary = range(max(specials) + 1, self.tokenizer.get_vocab_size())
        return warm_up(self.model, vocabulary, config, seed, on_step)

    def save(self, directory: Path, precision: Precision = "float32") -> dict[str, str]:
        """Write an ordinary Hugging Face directory; see `save_weights`."""
        checksums = save_weights(self.model, directory, precision)
        for name, data in self.tokenizer_files.items():
            (directory / name).write_bytes(data)
        return checksums

    def probe(self, precision: Precision = "float32") -> Probe | None:
        """Log-probabilities of a short text, to check engines by; None if engines compute differently.

        Args:
            precision: with which `save` is called.
        """
        if isinstance(self.model, Chooser):
            return None  # a text without options has no probabilities; only one kind of engine serves it
        if getattr(self.model, "is_quantized", False):
            return None  # engines hold the unquantised base: they differ more than a wrong version would
        # An engine scores a text by writing one more token.
        most = min(_PROBED_TOKENS, self.model.config.max_position_embeddings - 1)
        text = self.codec.encode([Segment(_PROBED)])[:most]
        return take_probe(self.model, text, weights=precision)

    def without_template(self) -> Student:
        """The same model, whose tokenizer has no chat template."""
        files = {name: data for name, data in self.tokenizer_files.items() if name != _TEMPLATE}
        if _TOKENIZER_CONFIG in files:
            config = json.loads(files[_TOKENIZER_CONFIG])
            config.pop("chat_template", None)
            files[_TOKENIZER_CONFIG] = json.dumps(config, indent=1, ensure_ascii=False).encode()
        with TemporaryDirectory() as directory:
            for name, data in files.items():
                (Path(directory) / name).write_bytes(data)
            return replace(self, tokenizer_files=files, codec=TokenizerCodec.load(Path(directory)))

    def fault(self, rollout: ScoredRollout, longest: int) -> str | None:
        """Why no step can be taken with a rollout; None if one can.

        It is longer than its recipe allows, so that a step may need more memory than there is, or it contains
        a token that the model does not know, or a choice that its turn did not offer. None of these can be
        seen in the message alone.

        Args:
            longest: tokens of an episode at most, up to the end of its last turn.
        """
        for name, trajectory in _longest(rollout):
            if trajectory.turns and (end := trajectory.turns[-1].end) > longest:
                return f"{name}: {end} tokens are more than the recipe's {longest}"
            fault = self._fault_of(trajectory)
            if fault is not None:
                return f"{name}: {fault}"
        return None

    def _fault_of(self, trajectory: Trajectory) -> str | None:
        token_ids = trajectory.token_ids
        if isinstance(self.model, Chooser):
            written = [at for turn in trajectory.turns for at in range(turn.start, turn.end)]
            return self.model.fault(token_ids, written)
        known = int(self.model.config.vocab_size)
        foreign = next((at for at, token in enumerate(token_ids) if not 0 <= token < known), None)
        if foreign is None:
            return None
        return f"token {foreign}: {token_ids[foreign]} is not in the policy's vocabulary of {known}"

    def words(self) -> list[str]:
        """Sorted pieces of words to make names from; the order of a vocabulary differs between processes."""
        return sorted(t for t in self.tokenizer.get_vocab() if len(t) > 1 and t.isascii() and t.isalpha())


def tokenizer_texts(
    triples: Iterable[str], demonstrations: Iterable[Demonstration], questions: Sequence[Question]
) -> Iterator[str]:
    """What a new tokenizer learns from: the graph, demonstrations, and questions without their answers."""
    yield from islice(triples, _TOKENIZER_TRIPLES)
    for demonstration in demonstrations:
        for passage in demonstration.passages:
            yield from (segment.text for segment in passage.segments)
    yield from (question.text for question in questions[:_TOKENIZER_QUESTIONS])


def _longest(rollout: ScoredRollout) -> Iterator[tuple[str, Trajectory]]:
    """The trajectories that contain all tokens of a rollout, with the place of each in its message."""
    if isinstance(rollout, RewardedTree):
        return ((f"path to steps.{leaf}", rollout.tree.trajectory(leaf)) for leaf in rollout.tree.leaves)
    return ((f"members.{at}", member.trajectory) for at, member in enumerate(rollout.members))
