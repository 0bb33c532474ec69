"""The recurrent head of a chooser: it matches a question with the relations that a graph lists.

A recurrent state receives each relation that is taken and attends over the question's tokens, the important
ones first. Each relation is assigned to the token that says it, whose weight then falls: what is left of
the question is what remains to be done. The result is the query of the next turn (the instruction
vectors of NSM, He et al. 2021, without its graph network). The score of an option has two terms: the
cosine of its words and the query, and the gain in similarity between the whole path and the question. Where
options list the relations behind them, the further gain by the best of these is a third term. "answer" has
a network of its own. Before training, the first query is the encoder's own sentence vector, so the encoder's
knowledge of language is available from the first question on.

Shapes: B decisions, O options of a decision, Q questions, L tokens of a question, K relations, W width of the
encoder.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from kbqa.policies.chooser.encoding import Encoded, Ids, best_behind, nearer
from kbqa.policies.chooser.reading import KINDS, Decision, Words

RELATIONS = 2  # the first kinds: a relation, followed forwards or backwards
_TURNS, _REACH = 4, 8  # turns, and distances from a topic, that are told apart

_Walk = tuple[Ids, tuple[Words, ...]]  # a question, and the relations taken so far


class _State(NamedTuple):
    """The state of N walks after some turns.

    Attributes:
        question: index of each walk's question.
        memory: [N, W], state of the recurrent cell.
        seen: [N, L], how far each token is the one that said a relation that was taken; see `Head.mention`.
        path: [N, W], the sum of those relations.
    """

    question: Tensor
    memory: Tensor
    seen: Tensor
    path: Tensor

    def at(self, places: Sequence[int]) -> _State:
        """The state of some of the walks."""
        return _State(*(part[list(places)] for part in self))


class Scores(NamedTuple):
    """Scores of N walks.

    Attributes:
        follow: [N, T, K], of each relation, with the question read around each topic.
        answer: [N].
        kinds: [N, KINDS], added to the options of each kind.
        question, path: [N, W], for `best_behind`.
    """

    follow: Tensor
    answer: Tensor
    kinds: Tensor
    question: Tensor
    path: Tensor

    def at(self, rows: Sequence[int]) -> Scores:
        return Scores(*(part[list(rows)] for part in self))


class Factor(nn.Module):
    """A positive number, exp(10 exponent), that is set and not learned.

    What invented questions teach about such numbers does not hold on real graphs
    (docs/measurements/reader.md).
    """

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.exponent = nn.Parameter(torch.tensor(math.log(initial) / 10))

    def forward(self) -> Tensor:
        return (10 * self.exponent.detach()).exp()


class RecurrentHead(nn.Module):
    """All parameters outside of the encoder.

    Attributes:
        scale: weight in the logits of the cosine of an option's words and the query.
        gain: weight in the logits of the gain in similarity between question and path; see `nearer`.
        behind: weight in the logits of what a relation behind an option adds to that gain; see `further`.
        cover: how much the weight of a token falls if it has said a relation that was taken.
        near: how much the weight of a token falls with its distance from the topic.
        match, first, again: what tells which token says a relation: their cosine, less its distance from the
            topic, and less if it has said one before; see `mention`.
        salient: a tenth of the importance of a token, from its encoding; it begins with zeros.
        direction: [KINDS, W], added to the words of an option of each kind.
        start: [W], the first input of the recurrent cell.
        answer: score of the answer, from the state.
        operate: scores of the kinds of options, from the state; it begins with zeros.
        stress: factors of `gain`, `cover` and `near` as logarithms, from the state; it begins with zeros.
        order: [TURNS, 2 * REACH + 1], a tenth of what each distance adds to the weight of a token at each
            turn: in "the height of X 's wife" the first relation is said behind X. It begins with zeros.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.scale, self.cover, self.near = Factor(10), Factor(6), Factor(0.5)
        self.gain, self.behind = Factor(15), Factor(20)
        self.match, self.first, self.again = Factor(10), Factor(1), Factor(3)
        self.salient = nn.Linear(width, 1)
        self.direction = nn.Parameter(torch.zeros(len(KINDS), width))
        self.start = nn.Parameter(0.02 * torch.randn(width))
        self.cell = nn.GRUCell(width, width)
        self.attend, self.add = nn.Linear(width, width, bias=False), nn.Linear(width, width, bias=False)
        # Initially, all tokens have the same weight, and the memory adds nothing to the query.
        nn.init.normal_(self.attend.weight, std=0.005)
        nn.init.zeros_(self.add.weight)
        self.answer = nn.Sequential(nn.Linear(2 * width + 2, 128), nn.Tanh(), nn.Linear(128, 1))
        # Relations need no score of their own: the answer's is relative to them.
        self.operate = nn.Linear(2 * width + 2, len(KINDS) - RELATIONS)
        self.order = nn.Parameter(torch.zeros(_TURNS, 2 * _REACH + 1))
        # The first relation of a path is said near its topic, and the later ones farther away.
        self.stress = nn.Linear(width, 3)
        for layer in (self.salient, self.operate, self.stress):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

    def forward(self, encoded: Encoded, decisions: Sequence[Decision]) -> Tensor:
        """Logits of the options of each decision, in their order, [B, O]; -inf where there is none."""
        scores = self._scores(encoded, decisions)
        _, topics, relations = scores.follow.shape
        most = max(len(decision.options) for decision in decisions)
        # All scores of a decision in one row: of each relation around each topic, then of the answer.
        columns, kinds = torch.full((2, len(decisions), most), -1)
        for row, decision in enumerate(decisions):
            for place, option in enumerate(decision.options):
                words = option.words
                if words is None:
                    columns[row, place] = topics * relations
                else:
                    topic = words.topic if words.topic < topics else 0
                    columns[row, place] = topic * relations + encoded.relations[words.plain]
                    kinds[row, place] = words.kind
        columns, kinds = columns.to(self.direction.device), kinds.to(self.direction.device)
        logits = torch.cat([scores.follow.flatten(1), scores.answer[:, None]], dim=1)
        logits = logits.gather(1, columns.clamp(min=0)) + scores.kinds.gather(1, kinds.clamp(min=0))
        behind: Tensor = self.behind() * best_behind(encoded, decisions, scores.question, scores.path, most)
        return (logits + behind).masked_fill(columns < 0, float("-inf"))

    def _scores(self, encoded: Encoded, decisions: Sequence[Decision]) -> Scores:
        """Scores of the decisions. Shared parts (a question, a prefix of the path) are computed once."""
        asked = dict.fromkeys((decision.question, decision.path) for decision in decisions)
        walks: dict[_Walk, None] = {}
        for question, path in asked:
            walks |= dict.fromkeys((question, path[:turn]) for turn in range(len(path) + 1))
        rows: dict[_Walk, int] = {}
        scores: list[Scores] = []
        level = [walk for walk in walks if not walk[1]]
        state = self.begin(encoded, [question for question, _ in level])
        for turn in range(1 + max(len(path) for _, path in asked)):
            if turn:
                places = {walk: place for place, walk in enumerate(level)}
                level = [walk for walk in walks if len(walk[1]) == turn]
                before = state.at([places[question, path[:-1]] for question, path in level])
                state = self.take(encoded, before, [path[-1] for _, path in level])
            wanted = [place for place, walk in enumerate(level) if walk in asked]
            rows |= {level[place]: len(rows) + row for row, place in enumerate(wanted)}
            scores.append(self.scores(encoded, state.at(wanted), turn))
        together = Scores(*map(torch.cat, zip(*scores, strict=True)))
        return together.at([rows[decision.question, decision.path] for decision in decisions])

    def begin(self, encoded: Encoded, questions: Sequence[Ids]) -> _State:
        places = torch.tensor([encoded.questions[q] for q in questions], device=encoded.states.device)
        memory = self.cell(self.start[None], torch.zeros_like(self.start)[None])
        seen = encoded.states.new_zeros(len(places), encoded.states.shape[1])
        path = encoded.states.new_zeros(len(places), encoded.states.shape[2])
        return _State(places, memory.expand(len(places), -1), seen, path)

    def take(self, encoded: Encoded, state: _State, relations: Sequence[Words]) -> _State:
        """The state after a relation was taken in each walk."""
        taken = encoded.vectors[[encoded.relations[words.plain] for words in relations]]
        seen = torch.maximum(state.seen, self.mention(encoded, state, taken))
        return _State(state.question, self.cell(taken, state.memory), seen, state.path + taken)

    def mention(self, encoded: Encoded, state: _State, taken: Tensor) -> Tensor:
        """How likely each token is the one that says a relation, relative to the likeliest, [N, L].

        In "the parents of the parents of X", the second "parents" says the first relation that is taken.

        Args:
            taken: the relation of each walk, [N, W].
        """
        states, mask = encoded.states[state.question], encoded.mask[state.question]
        unit = functional.normalize(states, dim=2)
        alike = torch.einsum("nw,nlw->nl", functional.normalize(taken, dim=1), unit)
        apart = encoded.distance[state.question][:, 0].abs().log1p()
        places = self.match() * alike - self.first() * apart - self.again() * state.seen
        places = places + self.importance(states)
        places = places.masked_fill(~mask, float("-inf"))
        said: Tensor = (places - places.amax(1, keepdim=True)).exp()
        return said

    def importance(self, states: Tensor) -> Tensor:
        """Of each token, [N, L], as a logarithm."""
        found: Tensor = 10 * self.salient(states)[..., 0]
        return found

    def scores(self, encoded: Encoded, state: _State, turn: int) -> Scores:
        """Scores after `turn` turns."""
        states, mask = encoded.states[state.question], encoded.mask[state.question]
        stress = self.stress(state.memory).exp()
        factors = torch.stack([self.gain(), self.cover(), self.near()])
        gain, cover, near = (factors * stress).split(1, dim=1)
        importance = self.importance(states)
        weights = torch.einsum("nw,nlw->nl", self.attend(state.memory), states) + importance
        weights = (weights - cover * state.seen)[:, None]
        distance = encoded.distance[state.question]
        weights = weights - near[..., None] * distance.abs().log1p()
        places = distance.clamp(-_REACH, _REACH).long() + _REACH
        weights = weights + 10 * self.order[min(turn, _TURNS - 1)][places]
        attention = weights.masked_fill(~mask[:, None], float("-inf")).softmax(2)
        queries = torch.einsum("ntl,nlw->ntw", attention, states) + self.add(state.memory)[:, None]
        # The share of what is important that no relation was taken for.
        rest = ((1 - state.seen) * importance.masked_fill(~mask, float("-inf")).softmax(1)).sum(1)
        turns = torch.full_like(rest, turn)
        features = torch.cat([queries[:, 0], state.memory, turns[:, None], rest[:, None]], dim=1)
        follow = self.scale() * functional.normalize(queries, dim=2) @ encoded.vectors.T
        question = encoded.sentences[state.question]
        follow = follow + (gain * nearer(question, state.path, encoded.vectors))[:, None]
        answer = self.answer(features)[:, 0] + 0.25 * self.scale()
        kinds = functional.pad(self.operate(features), (RELATIONS, 0))
        return Scores(follow, answer, kinds, question, state.path)
