"""A re-ranker of whole forms: a cross-encoder, which reads a question and a form in one pass.

A chooser encodes question and relations apart from each other, since it has many to compare, and chooses
without knowing what it will choose next. For the few forms that a beam search ends with, a pass each is
affordable (Nogueira and Cho 2019, "Passage re-ranking with BERT", section 3).

Shapes: N forms, L tokens of the longest.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import NamedTuple, Self

import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn.utils.rnn import pad_sequence
from transformers import BertConfig, XLMRobertaConfig
from transformers.models.bert.modeling_bert import BertPreTrainedModel

from kbqa.policies.chooser.model import Chooser, encoder_of
from kbqa.policies.chooser.reading import KINDS, ChooserVocabulary, Form, Words

_QUESTION_TOKENS, _RELATION_TOKENS = 100, 24  # longer ones are cut
_NO_KIND = 0  # before the kinds, which may become more


class _Token(NamedTuple):
    """Attributes:
    part: 0 in the question, 1 in the form.
    kind: of the option that it is of, counted from 1; `_NO_KIND` elsewhere.
    """

    id_: int
    part: int
    kind: int = _NO_KIND


class Reranker(BertPreTrainedModel):  # type: ignore[misc]
    """An encoder that reads a question and a form, and rates the form.

    Args:
        config: of the chooser whose forms it rates; it has the same base and the same tags.
    """

    def __init__(self, config: BertConfig | XLMRobertaConfig) -> None:
        super().__init__(config)
        self.bert = encoder_of(config)
        self.kind = nn.Embedding(1 + len(KINDS), config.hidden_size)
        self.rating = nn.Linear(config.hidden_size, 1)
        nn.init.normal_(self.kind.weight, std=0.02)
        nn.init.normal_(self.rating.weight, std=0.02)
        self.vocabulary = ChooserVocabulary.of(config.chooser_tags)
        self._in_place: Mapping[int, int] = {
            config.chooser_tags[tag]: id_ for tag, id_ in config.chooser_topics.items()
        }
        self._topics = {number: self._in_place[id_] for id_, number in self.vocabulary.topics.items()}
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: what is new has drawn its weights, and those of the encoder are loaded."""

    @classmethod
    def begin(cls, chooser: Chooser, encoder: Path, seed: int = 0) -> Self:
        """An untrained one for the forms of a chooser, on the same base.

        Args:
            encoder: the directory of the base.
            seed: random seed of the weights that are new.
        """
        with torch.random.fork_rng():
            torch.manual_seed(seed)
            model = cls(copy.deepcopy(chooser.config))
        weights = load_file(encoder / "model.safetensors")
        model.bert.load_state_dict({name: weights[name] for name in model.bert.state_dict()})
        model.bert.embeddings.requires_grad_(False)
        model.eval()
        return model

    def forward(self, forms: Sequence[Form]) -> Tensor:
        """What each form's rating is, in nats, [N]; see `RankingPolicy.rated`."""
        longest = self.config.max_position_embeddings - 2  # the positions of XLM-R begin at 2
        rows = [torch.tensor(list(islice(self._tokens(form), longest))) for form in forms]
        tokens = pad_sequence(rows, batch_first=True).to(self.device)
        mask = pad_sequence([row.new_ones(len(row)) for row in rows], batch_first=True).to(self.device)
        ids, parts, kinds = tokens.unbind(-1)
        embedded = self.bert.embeddings.word_embeddings(ids) + self.kind(kinds)
        # An encoder that has learned from single texts has one kind of part.
        parts = parts.clamp(max=self.config.type_vocab_size - 1)
        states = self.bert(
            inputs_embeds=embedded, token_type_ids=parts, attention_mask=mask
        ).last_hidden_state
        pooled = (states * mask[..., None]).sum(1) / mask.sum(1, keepdim=True)
        rated: Tensor = self.rating(pooled)[:, 0]
        return rated

    def _tokens(self, form: Form) -> Iterator[_Token]:
        """[CLS] question [SEP] relation [SEP] relation … [SEP]."""
        config = self.config
        yield _Token(config.chooser_begin, 0)
        yield from (_Token(self._read(id_), 0) for id_ in form.question[:_QUESTION_TOKENS])
        yield _Token(config.chooser_end, 0)
        for words in form.path:
            yield from self._relation(words)
            yield _Token(config.chooser_end, 1)

    def _relation(self, words: Words) -> Iterator[_Token]:
        kind = 1 + words.kind
        yield from (_Token(self._read(id_), 1, kind) for id_ in words.token_ids[:_RELATION_TOKENS])
        if words.topic:
            yield _Token(self._topics[words.topic], 1, kind)

    def _read(self, id_: int) -> int:
        """A token as it is read: a word in place of a topic."""
        return self._in_place.get(id_, id_)
