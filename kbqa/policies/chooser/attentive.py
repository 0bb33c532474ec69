"""The attentive head of a chooser: a small transformer that reads question, path and options together.

Its tokens are those of the question, the relations that were taken, and the options, with their encodings.
Each head of attention has a weight for the cosine of two encodings, so that what the encoder knows of
language decides from the beginning who attends to whom: an option to the words that may say it, and
to its rivals; a word to what has been taken for it. Another weight makes words count less with their
distance from the topic: from that of an option, where it is about one.

Shapes: B decisions, O options of a decision, P relations of its path, L tokens of its question,
N = L + P + O, W width of the encoder.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.utils.rnn import pad_sequence

from kbqa.policies.chooser.encoding import Encoded, best_behind, nearer
from kbqa.policies.chooser.reading import KINDS, Decision

_WIDTH, _HEADS, _LAYERS = 128, 8, 2
_TURNS, _REACH = 8, 12  # turns, and distances from a topic, that are told apart
_SHARPNESS = 10.0  # of cosines in attention, and of the last layer
_ANSWER = 0  # before the kinds, which may become more
# 1 for the kinds that follow a relation backwards; first, for the answer.
_BACKWARDS = torch.tensor([0.0, *(float("<inverse>" in tags) for tags in KINDS)])
_TOLD = 6  # similarities of an option that are told; see `_similarities`


class AttentiveHead(nn.Module):
    """All parameters outside of the encoder.

    Attributes:
        direction: [KINDS, W], added to the words of an option of each kind; as in `RecurrentHead`.
        direct: weights of the first three similarities of an option in its logit. A fresh head ranks
            options by these alone.
        backwards: what the logit of an option loses if it follows a relation backwards. It is set, not
            learned: where a graph states a fact in both directions, questions are asked about the one that it
            is named for, and a generated world states each fact once (ADR 82).
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.direction = nn.Parameter(torch.zeros(len(KINDS), width))
        self.words = nn.Linear(width, _WIDTH)
        self.kind = nn.Embedding(len(KINDS) + 1, _WIDTH)
        self.role, self.turn = nn.Embedding(3, _WIDTH), nn.Embedding(_TURNS, _WIDTH)
        self.distance = nn.Embedding(2 * _REACH + 1, _WIDTH)
        self.similarity = nn.Linear(_TOLD, _WIDTH)
        self.layers = nn.ModuleList(_Layer() for _ in range(_LAYERS))
        self.norm, self.out = nn.LayerNorm(_WIDTH), nn.Linear(_WIDTH, 1)
        nn.init.normal_(self.out.weight, std=0.01)
        self.direct = nn.Parameter(torch.tensor([1.5, 2.0, 1.0]))
        self.backwards: Tensor
        self.register_buffer("backwards", torch.tensor(0.0))

    def forward(self, encoded: Encoded, decisions: Sequence[Decision]) -> Tensor:
        """Logits of the options of each decision, in their order, [B, O]; -inf where there is none."""
        device = encoded.states.device
        places = torch.tensor([encoded.questions[d.question] for d in decisions], device=device)
        states, asked = encoded.states[places], encoded.mask[places]
        taken, takes = _rows([[encoded.relations[w.plain] for w in d.path] for d in decisions], device)
        options = [[option.words for option in d.options] for d in decisions]
        offered, offers = _rows(
            [[-1 if w is None else encoded.relations[w.plain] for w in row] for row in options], device
        )
        kinds = _rows([[_ANSWER if w is None else 1 + w.kind for w in row] for row in options], device)[0]
        taken_kinds = _rows([[1 + w.kind for w in d.path] for d in decisions], device)[0]
        topics = _rows([[0 if w is None else w.topic for w in row] for row in options], device)[0]
        vectors = functional.pad(encoded.vectors, (0, 0, 0, 1))  # the answer has no words
        path, words = vectors[taken] * takes[..., None], vectors[offered]

        length, turns = states.shape[1], takes.sum(1)
        apart = encoded.distance[places]
        token = self.words(states) + self.distance(apart[:, 0].clamp(-_REACH, _REACH).long() + _REACH)
        steps = torch.arange(path.shape[1], device=device).clamp(max=_TURNS - 1)
        step = self.words(3 * path) + self.kind(taken_kinds) + self.turn(steps)
        told = self._similarities(encoded, decisions, states, asked, path, words, offered)
        option = self.words(3 * words) + self.kind(kinds) + self.similarity(told)
        option = option + self.turn(turns.clamp(max=_TURNS - 1))[:, None]
        read = torch.cat([part + self.role.weight[n] for n, part in enumerate((token, step, option))], dim=1)

        units = functional.normalize(torch.cat([states, path, words], dim=1), dim=2, eps=1e-3)
        alike = units @ units.transpose(1, 2)
        mask = torch.cat([asked, takes, offers], dim=1)
        away = _away(apart, topics, read.shape[1])
        for layer in self.layers:
            read = layer(read, mask, alike, away)
        logits: Tensor = _SHARPNESS * self.out(self.norm(read[:, length + path.shape[1] :]))[..., 0]
        logits = logits + told[..., : len(self.direct)] @ self.direct
        logits = logits - self.backwards * _BACKWARDS.to(device)[kinds]
        return logits.masked_fill(~offers, float("-inf"))

    def _similarities(
        self,
        encoded: Encoded,
        decisions: Sequence[Decision],
        states: Tensor,
        asked: Tensor,
        path: Tensor,
        words: Tensor,
        offered: Tensor,
    ) -> Tensor:
        """What the encoder says of each option, [B, O, _TOLD], scaled to about 1; zeros for the answer.

        The gain in similarity of question and path; the further gain by a relation behind the option;
        the cosine of question and option, of its best token and the option, of question and path so far;
        and whether it has words.
        """
        places = [encoded.questions[decision.question] for decision in decisions]
        question, so_far = encoded.sentences[places], path.sum(1)
        has_words = (offered >= 0).float()
        gains = functional.pad(nearer(question, so_far, encoded.vectors), (0, 1))
        gain = gains.gather(1, offered % gains.shape[1])
        behind = best_behind(encoded, decisions, question, so_far, offered.shape[1])
        units = functional.normalize(words, dim=2, eps=1e-3)
        whole = (units @ question[..., None])[..., 0]
        tokens = units @ functional.normalize(states, dim=2).transpose(1, 2)
        best = tokens.masked_fill(~asked[:, None], -1).amax(2)
        already = functional.cosine_similarity(question, so_far, dim=1)[:, None].expand_as(gain)
        told = torch.stack([10 * gain, 10 * behind, 3 * whole, 3 * best, 3 * already], dim=2)
        return torch.cat([told * has_words[..., None], has_words[..., None]], dim=2)


class _Layer(nn.Module):
    """A layer of a transformer whose heads of attention each weigh similarity and distance, too."""

    def __init__(self) -> None:
        super().__init__()
        self.before, self.between = nn.LayerNorm(_WIDTH), nn.LayerNorm(_WIDTH)
        self.project, self.join = nn.Linear(_WIDTH, 3 * _WIDTH), nn.Linear(_WIDTH, _WIDTH)
        self.mix = nn.Sequential(nn.Linear(_WIDTH, 2 * _WIDTH), nn.GELU(), nn.Linear(2 * _WIDTH, _WIDTH))
        self.alike = nn.Parameter(torch.linspace(0, 1.2, _HEADS))
        self.near = nn.Parameter(torch.zeros(_HEADS))

    def forward(self, read: Tensor, mask: Tensor, alike: Tensor, away: Tensor) -> Tensor:
        rows, length, width = read.shape
        split = self.project(self.before(read)).view(rows, length, 3, _HEADS, width // _HEADS)
        query, key, value = split.permute(2, 0, 3, 1, 4)
        scores = query @ key.transpose(-1, -2) / math.sqrt(width // _HEADS)
        scores = scores + _SHARPNESS * self.alike[:, None, None] * alike[:, None]
        scores = scores - self.near[:, None, None] * away[:, None]
        attention = scores.masked_fill(~mask[:, None, None], float("-inf")).softmax(3)
        found = (attention @ value).transpose(1, 2).reshape(rows, length, width)
        read = read + self.join(found)
        mixed: Tensor = read + self.mix(self.between(read))
        return mixed


def _rows(rows: Sequence[Sequence[int]], device: torch.device) -> tuple[Tensor, Tensor]:
    """Numbers in rows of one length, and a mask of those that were given."""
    given = [torch.tensor(row, dtype=torch.long) for row in rows]
    numbers = pad_sequence(given, batch_first=True, padding_value=-1)
    lengths = torch.tensor([len(row) for row in rows])
    mask = torch.arange(numbers.shape[1]) < lengths[:, None]
    return torch.where(mask, numbers, 0).to(device), mask.to(device)


def _away(apart: Tensor, topics: Tensor, length: int) -> Tensor:
    """Logarithms of the distances of question tokens from a topic, [B, N, N], by who attends to whom.

    Args:
        apart: distance of each token from the nearest topic and from each of them, [B, T, L].
        topics: the topic that each option is about, or 0, [B, O].
    """
    named = torch.where(topics < apart.shape[1], topics, 0)
    steps = length - apart.shape[2] - topics.shape[1]
    nearest = apart[:, :1].expand(-1, apart.shape[2] + steps, -1)
    of_option = apart.gather(1, named[..., None].expand(-1, -1, apart.shape[2]))
    away = torch.cat([nearest, of_option], dim=1).abs().log1p()
    return functional.pad(away, (0, length - apart.shape[2]))
