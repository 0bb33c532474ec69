"""The model of a chooser: a sentence encoder, and a head that scores the options of each decision.

Question and relations are encoded once, apart from each other. The head is either *recurrent*
(`RecurrentHead`) or *attentive* (`AttentiveHead`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn
from torch.nn import functional
from transformers import AutoConfig, BertConfig, BertModel, XLMRobertaConfig, XLMRobertaModel
from transformers.initialization import no_init_weights
from transformers.models.bert.modeling_bert import BertPreTrainedModel

from kbqa.bases import ENCODERS
from kbqa.errors import PolicyIntegrityError
from kbqa.policies.chooser.attentive import AttentiveHead
from kbqa.policies.chooser.encoding import TINY, Encoded, Ids
from kbqa.policies.chooser.reading import KINDS, ChooserVocabulary, Decision, Words, decisions
from kbqa.policies.chooser.recurrent import RELATIONS, RecurrentHead

_QUESTION_TOKENS, _OPTION_TOKENS = 128, 48  # longer ones are cut
_BATCH_TOKENS = 8192  # padded tokens of one pass of the encoder; bounds its memory
# Texts of similar length share a pass, so that little of it is padding; passes of fewer texts are slower.
_BATCH_TEXTS, _SPREAD = 32, 1.3

RECURRENT, ATTENTIVE = "recurrent", "attentive"
HEADS: Mapping[str, type[RecurrentHead] | type[AttentiveHead]] = {
    RECURRENT: RecurrentHead,
    ATTENTIVE: AttentiveHead,
}
"""The head of a chooser, by name."""

_CLASSES: Mapping[str, type[BertModel] | type[XLMRobertaModel]] = {
    "bert": BertModel,
    "xlm-roberta": XLMRobertaModel,
}

# Weights with a row for each kind of option, of which the first heads knew fewer.
_KIND_ROWS = {"head.direction": len(KINDS), "head.kind.weight": len(KINDS) + 1} | {
    f"head.operate.{part}": len(KINDS) - RELATIONS for part in ("weight", "bias")
}


class Chooser(BertPreTrainedModel):  # type: ignore[misc]
    """An encoder with a head; `BertModel` can load a BERT from the saved directory.

    Its configuration says which head it has (`chooser_head`; recurrent if it does not say), which tokens are
    the tags of the dialect (`chooser_tags`: they are parsed, never embedded), which tokens begin and end a
    text, and which word is read in place of the topic.
    """

    def __init__(self, config: BertConfig | XLMRobertaConfig) -> None:
        super().__init__(config)
        self.bert = encoder_of(config)
        self.head: RecurrentHead | AttentiveHead = HEADS[getattr(config, "chooser_head", RECURRENT)](
            config.hidden_size
        )
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
                model = cls(config_of(directory))
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
        logits: Tensor = self.head(encoded, decisions)
        return logits

    def fault(self, token_ids: Sequence[int], written: Iterable[int]) -> str | None:
        """Why the likelihood of an episode's choices cannot be computed; None if it can.

        Args:
            token_ids: of the episode.
            written: the positions of its choices.
        """
        listed = dict(decisions(token_ids, self.vocabulary))
        asked = []
        for position in written:
            decision = listed.get(position - 1)
            if decision is None or token_ids[position] not in {option.token for option in decision.options}:
                return f"token {position}: {token_ids[position]} is not an option of its turn"
            asked.append(decision)
        texts = {d.question for d in asked} | {words.token_ids for words in relations_of(asked)}
        # A vocabulary may be smaller than its matrix: then there are rows for tags.
        known = min(self.config.vocab_size, *self.config.chooser_tags.values())
        foreign = (id_ for ids in texts for id_ in ids if not 0 <= id_ < known and id_ not in self.in_place)
        if (id_ := next(foreign, None)) is not None:
            return f"{id_} is not in the policy's vocabulary of {known}, or is a tag where no tag belongs"
        return None


def config_of(directory: Path) -> BertConfig | XLMRobertaConfig:
    """The configuration of an encoder.

    Raises:
        OSError, ValueError: there is none, or it is that of another kind of model.
    """
    config = AutoConfig.from_pretrained(directory, local_files_only=True)
    if config.model_type not in ENCODERS:
        raise ValueError(f"{config.model_type} is not one of {', '.join(ENCODERS)}")
    return config


def encoder_of(config: BertConfig | XLMRobertaConfig) -> BertModel | XLMRobertaModel:
    """An encoder without weights."""
    return _CLASSES[config.model_type](config, add_pooling_layer=False)


def renewed(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of earlier versions of kbqa as those of this version; weights of this version as they are.

    Factors were parameters themselves, and `behind` was called `ahead`, as a tenth; before that, nothing lay
    behind options. There were fewer kinds of options, and those that go backwards lost nothing.
    """
    found = dict(weights)
    if "head.direct" in found:
        found.setdefault("head.backwards", torch.tensor(0.0))
    for name, rows in _KIND_ROWS.items():
        if name in found and (lacking := rows - len(found[name])) > 0:
            found[name] = torch.cat([found[name], found[name].new_zeros(lacking, *found[name].shape[1:])])
    if "head.scale" in found:
        found["head.behind"] = 10 * found.pop("head.ahead", torch.tensor(2.0))
        for name in ("scale", "gain", "behind", "cover", "near", "match", "first", "again"):
            if (factor := found.pop(f"head.{name}", None)) is not None:
                found[f"head.{name}.exponent"] = factor.float().clamp(min=TINY).log() / 10
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
