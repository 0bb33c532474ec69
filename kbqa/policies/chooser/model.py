"""The model of a chooser: a sentence encoder that matches a question with the relations that a graph lists.

Question and relations are encoded once. A recurrent state receives each relation that is taken and
attends over the question's tokens, the important ones first. Each relation is assigned to the token that
says it, whose weight then falls: what is left of the question is what remains to be done.
The result is the query of the next turn (the instruction vectors of NSM, He et al. 2021, without its
graph network). The score of an option has two terms: the cosine of its words and the query, and the
gain in similarity between the whole path and the question. Where options list the relations behind them, the
further gain by the best of these is a third term. "answer" has a network of its own. Before
training, the first query is the encoder's own sentence vector, so the encoder's knowledge of language
is available from the first question on.

Shapes: B decisions, O options of a decision, Q questions, L tokens of a question, K relations, W width of the
encoder.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import BertConfig, BertModel
from transformers.initialization import no_init_weights
from transformers.models.bert.modeling_bert import BertPreTrainedModel

from kbqa.errors import PolicyIntegrityError
from kbqa.policies.chooser.reading import KINDS, ChooserVocabulary, Decision, Words

_QUESTION_TOKENS, _OPTION_TOKENS = 128, 48  # longer ones are cut
_RELATIONS = 2  # the first kinds: a relation, followed forwards or backwards
_TURNS, _REACH = 4, 8  # turns, and distances from a topic, that are told apart
_TINY = 1e-6
_BATCH_TOKENS = 8192  # padded tokens of one pass of the encoder; bounds its memory
# Texts of similar length share a pass, so that little of it is padding; passes of fewer texts are slower.
_BATCH_TEXTS, _SPREAD = 32, 1.3

Ids = tuple[int, ...]
_Walk = tuple[Ids, tuple[Words, ...]]  # a question, and the relations taken so far


class Encoded(NamedTuple):
    """Encoded texts.

    Attributes:
        questions: index of each in `states`, [Q, L, W]; `mask`, [Q, L], is True at its tokens.
        distance: of each token from a topic's position, [Q, T, L], negative before the topic; 0 if the
            question does not name the topic. The first is the distance from the nearest topic, the others
            are those from each of them.
        relations: index of each in `vectors`, [K, W]; without topics.
    """

    questions: Mapping[Ids, int]
    states: Tensor
    mask: Tensor
    distance: Tensor
    relations: Mapping[Words, int]
    vectors: Tensor

    @property
    def sentences(self) -> Tensor:
        """Questions as vectors of unit length, [Q, W]."""
        return functional.normalize((self.states * self.mask[..., None]).sum(1), dim=1)


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
        question, path: [N, W], for `further`.
    """

    follow: Tensor
    answer: Tensor
    kinds: Tensor
    question: Tensor
    path: Tensor

    def at(self, rows: Sequence[int]) -> Scores:
        return Scores(*(part[list(rows)] for part in self))


class Factor(nn.Module):
    """A positive number, exp(10 exponent): a step of a usual learning rate changes it by a percent or so.

    A parameter of 10 would hardly change in a few hundred steps of Adam.
    """

    def __init__(self, initial: float) -> None:
        super().__init__()
        self.exponent = nn.Parameter(torch.tensor(math.log(initial) / 10))

    def forward(self) -> Tensor:
        return (10 * self.exponent).exp()


class Head(nn.Module):
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
        self.operate = nn.Linear(2 * width + 2, len(KINDS) - _RELATIONS)
        self.order = nn.Parameter(torch.zeros(_TURNS, 2 * _REACH + 1))
        # The first relation of a path is said near its topic, and the later ones farther away.
        self.stress = nn.Linear(width, 3)
        for layer in (self.salient, self.operate, self.stress):
            nn.init.zeros_(layer.weight)
            nn.init.zeros_(layer.bias)

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
        follow = follow + (gain * nearer(encoded, state))[:, None]
        answer = self.answer(features)[:, 0] + 0.25 * self.scale()
        kinds = functional.pad(self.operate(features), (_RELATIONS, 0))
        return Scores(follow, answer, kinds, encoded.sentences[state.question], state.path)


def nearer(encoded: Encoded, state: _State) -> Tensor:
    """Gain in the cosine of question and path (a sum of relations) when each relation is added, [N, K].

    cos(q, p + v) - cos(q, p). When the path already says what the question says, no relation gains.
    """
    question, vectors, path = encoded.sentences[state.question], encoded.vectors, state.path
    along = (question * path).sum(1, keepdim=True)
    squared = (path * path).sum(1, keepdim=True)
    longer = (squared + 2 * path @ vectors.T + (vectors * vectors).sum(1)).clamp(min=_TINY).sqrt()
    return (along + question @ vectors.T) / longer - along / squared.clamp(min=_TINY).sqrt()


def further(question: Tensor, path: Tensor, vectors: Tensor, pairs: Tensor) -> Tensor:
    """Gain in the cosine of question and path when a second relation follows a first one, [P].

    cos(q, p + v + w) - cos(q, p + v).

    Args:
        question, path: of each of N walks, [N, W]; questions are of unit length.
        vectors: relations, [K, W].
        pairs: a walk, a first relation v and a second one w, [3, P].
    """
    walk, first, second = pairs
    # Only products of these are needed, which are fewer than the pairs.
    asked, onward, between = question @ vectors.T, path @ vectors.T, vectors @ vectors.T
    own = between.diagonal()
    along = (question * path).sum(1)[walk] + asked[walk, first]
    squared = (path * path).sum(1)[walk] + 2 * onward[walk, first] + own[first]
    longer = squared + 2 * (onward[walk, second] + between[first, second]) + own[second]
    both = (along + asked[walk, second]) / longer.clamp(min=_TINY).sqrt()
    return both - along / squared.clamp(min=_TINY).sqrt()


class Chooser(BertPreTrainedModel):  # type: ignore[misc]
    """A BERT with a `Head`; `BertModel` can load the encoder from its saved directory.

    Its configuration says which tokens are the tags of the dialect (`chooser_tags`: they are parsed, never
    embedded), which tokens begin and end a text, and which word is read in place of the topic.
    """

    def __init__(self, config: BertConfig) -> None:
        super().__init__(config)
        self.bert = BertModel(config, add_pooling_layer=False)
        self.head = Head(config.hidden_size)
        self.vocabulary = ChooserVocabulary.of(config.chooser_tags)
        self.in_place = {config.chooser_tags[tag]: id_ for tag, id_ in config.chooser_topics.items()}
        self.post_init()

    def _init_weights(self, module: nn.Module) -> None:
        """Nothing: the head has drawn its weights, and those of the encoder are loaded."""

    @classmethod
    def load(cls, directory: Path) -> Chooser:
        """Load a saved model.

        Raises:
            PolicyIntegrityError: the directory holds no model that can be loaded.
        """
        try:
            with no_init_weights():
                model = cls(BertConfig.from_pretrained(directory, local_files_only=True))
            model.load_state_dict(renewed(load_file(directory / "model.safetensors")))
        except RuntimeError as error:
            raise PolicyIntegrityError(
                f"{directory}: the policy cannot be loaded: its weights are not those of this version of "
                f"kbqa ({error}); train it again"
            ) from error
        except (OSError, ValueError, SafetensorError) as error:
            raise PolicyIntegrityError(f"{directory}: the policy cannot be loaded ({error})") from error
        model.bert.embeddings.requires_grad_(False)
        model.eval()
        return model

    def encode(self, questions: Iterable[Ids], relations: Iterable[Words]) -> Encoded:
        """Encode distinct questions and relations."""
        places = {question: place for place, question in enumerate(dict.fromkeys(questions))}
        columns = {words: place for place, words in enumerate(dict.fromkeys(relations))}
        states, mask = self.tokens(list(places))
        distance = self.distances(list(places))
        return Encoded(places, states, mask, distance, columns, self.vectors(list(columns)))

    def vectors(self, relations: Sequence[Words]) -> Tensor:
        """Relations as vectors, [K, W]: their words, of unit length, and the direction in which they go."""
        unique = dict.fromkeys(words.token_ids for words in relations)
        texts = {ids: place for place, ids in enumerate(unique)}
        if not texts:
            return self.head.direction.new_zeros(0, self.config.hidden_size)
        states, mask = self.tokens(list(texts), _OPTION_TOKENS)
        weights = mask[..., None].float()
        pooled = functional.normalize((states * weights).sum(1) / weights.sum(1), dim=1)
        rows = torch.tensor([texts[words.token_ids] for words in relations], device=self.device)
        kinds = torch.tensor([words.kind for words in relations], device=self.device)
        return pooled[rows] + self.head.direction[kinds]

    def tokens(self, texts: Sequence[Ids], most: int = _QUESTION_TOKENS) -> tuple[Tensor, Tensor]:
        """States of the tokens of texts, [N, L, W], and their mask, [N, L]."""
        config, in_place = self.config, self.in_place
        rows = [
            (config.chooser_begin, *(in_place.get(id_, id_) for id_ in ids[: most - 2]), config.chooser_end)
            for ids in texts
        ]
        width = max(map(len, rows))
        order, states, masks = list[int](), list[Tensor](), list[Tensor]()
        for batch in _batches([len(row) for row in rows]):
            longest = max(len(rows[place]) for place in batch)
            ids = torch.zeros(len(batch), longest, dtype=torch.long)
            for number, place in enumerate(batch):
                ids[number, : len(rows[place])] = torch.tensor(rows[place])
            lengths = torch.tensor([len(rows[place]) for place in batch])
            mask = (torch.arange(longest) < lengths[:, None]).to(self.device)
            found = self.bert(input_ids=ids.to(self.device), attention_mask=mask).last_hidden_state
            states.append(functional.pad(found, (0, 0, 0, width - longest)))
            masks.append(functional.pad(mask, (0, width - longest)))
            order += batch
        back = torch.tensor(order, device=self.device).argsort()
        return torch.cat(states)[back], torch.cat(masks)[back]

    def distances(self, questions: Sequence[Ids]) -> Tensor:
        """Signed distance of each token from the positions of topics, in tokens, [N, T, L]; see `Encoded`."""
        kept = [question[: _QUESTION_TOKENS - 2] for question in questions]
        topics = self.vocabulary.topics
        places = [
            [(topics[id_], place) for place, id_ in enumerate(question, start=1) if id_ in topics]
            for question in kept
        ]
        most = max((topic for named in places for topic, _ in named), default=0)
        # One topic is the nearest one, too.
        distances = torch.zeros(len(kept), 1 + most if most > 1 else 1, max(map(len, kept)) + 2)
        for rows, named in zip(distances, places, strict=True):
            for number, row in enumerate(rows):
                near = [place for topic, place in named if number in (0, topic)]
                if near:
                    signed = torch.arange(len(row))[:, None] - torch.tensor(near)
                    nearest = signed.abs().argmin(1, keepdim=True)
                    row.copy_(signed.gather(1, nearest)[:, 0])
        return distances.to(self.device)

    def forward(self, decisions: Sequence[Decision], encoded: Encoded | None = None) -> Tensor:
        """Logits of the options of each decision, in their order, [B, O]; -inf where there is none.

        Args:
            encoded: the encoded texts of the decisions; by default they are encoded here, once each.
        """
        if encoded is None:
            encoded = self.encode([d.question for d in decisions], relations_of(decisions))
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
        columns, kinds = columns.to(self.device), kinds.to(self.device)
        logits = torch.cat([scores.follow.flatten(1), scores.answer[:, None]], dim=1)
        logits = logits.gather(1, columns.clamp(min=0)) + scores.kinds.gather(1, kinds.clamp(min=0))
        behind: Tensor = self.head.behind() * self._best_behind(encoded, decisions, scores, most)
        return (logits + behind).masked_fill(columns < 0, float("-inf"))

    def _best_behind(
        self, encoded: Encoded, decisions: Sequence[Decision], scores: Scores, most: int
    ) -> Tensor:
        """The largest gain by a relation behind each option, [B, O]; 0 if none gains or none is listed."""
        found = self.head.direction.new_zeros(len(decisions), most)
        relations, pairs, options = encoded.relations, list[tuple[int, int, int]](), list[int]()
        for row, decision in enumerate(decisions):
            for place, option in enumerate(decision.options):
                if option.words is not None and option.behind:
                    first = relations[option.words.plain]
                    pairs += ((row, first, relations[words]) for words in option.behind)
                    options += [row * most + place] * len(option.behind)
        if not pairs:
            return found
        gains = further(
            scores.question, scores.path, encoded.vectors, torch.tensor(pairs, device=self.device).T
        )
        places = torch.tensor(options, device=self.device)
        return found.flatten().scatter_reduce(0, places, gains, "amax").view_as(found)

    def _scores(self, encoded: Encoded, decisions: Sequence[Decision]) -> Scores:
        """Scores of the decisions. Shared parts (a question, a prefix of the path) are computed once."""
        asked = dict.fromkeys((decision.question, decision.path) for decision in decisions)
        walks: dict[_Walk, None] = {}
        for question, path in asked:
            walks |= dict.fromkeys((question, path[:turn]) for turn in range(len(path) + 1))
        rows: dict[_Walk, int] = {}
        scores: list[Scores] = []
        level = [walk for walk in walks if not walk[1]]
        state = self.head.begin(encoded, [question for question, _ in level])
        for turn in range(1 + max(len(path) for _, path in asked)):
            if turn:
                places = {walk: place for place, walk in enumerate(level)}
                level = [walk for walk in walks if len(walk[1]) == turn]
                before = state.at([places[question, path[:-1]] for question, path in level])
                state = self.head.take(encoded, before, [path[-1] for _, path in level])
            wanted = [place for place, walk in enumerate(level) if walk in asked]
            rows |= {level[place]: len(rows) + row for row, place in enumerate(wanted)}
            scores.append(self.head.scores(encoded, state.at(wanted), turn))
        together = Scores(*map(torch.cat, zip(*scores, strict=True)))
        return together.at([rows[decision.question, decision.path] for decision in decisions])


def renewed(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of earlier versions of kbqa as those of this version; weights of this version as they are.

    Factors were parameters themselves, and `behind` was called `ahead`, as a tenth; before that, nothing lay
    behind options.
    """
    found = dict(weights)
    if "head.scale" in found:
        found["head.behind"] = 10 * found.pop("head.ahead", torch.tensor(2.0))
        for name in ("scale", "gain", "behind", "cover", "near", "match", "first", "again"):
            if (factor := found.pop(f"head.{name}", None)) is not None:
                found[f"head.{name}.exponent"] = factor.float().clamp(min=_TINY).log() / 10
    return found


def _batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """Batches of texts, as indices: of similar length, and of at most `_BATCH_TOKENS` padded tokens."""
    batch: list[int] = []
    for place in sorted(range(len(lengths)), key=lengths.__getitem__):
        is_full = (len(batch) + 1) * lengths[place] > _BATCH_TOKENS
        differs = bool(batch) and lengths[place] > _SPREAD * lengths[batch[0]]
        if batch and (is_full or (differs and len(batch) >= _BATCH_TEXTS)):
            yield batch
            batch = []
        batch.append(place)
    if batch:
        yield batch


def relations_of(decisions: Sequence[Decision]) -> list[Words]:
    """The distinct relations of all decisions, without topics."""
    found = dict.fromkeys(words.plain for d in decisions for words in d.path)
    found |= dict.fromkeys(o.words.plain for d in decisions for o in d.options if o.words is not None)
    found |= dict.fromkeys(words for d in decisions for o in d.options for words in o.behind)
    return list(found)
