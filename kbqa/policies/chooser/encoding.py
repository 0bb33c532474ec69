"""The encoded texts of decisions, and how similar paths of relations are to questions.

Shapes: B decisions, O options of a decision, N walks, Q questions, L tokens of a question, T topics, K
relations, W width of the encoder.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from kbqa.policies.chooser.reading import BACKWARDS, FORWARDS, Decision, Words

TINY = 1e-6  # below which a number counts as zero

Ids = tuple[int, ...]


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


def nearer(question: Tensor, path: Tensor, vectors: Tensor) -> Tensor:
    """Gain in the cosine of question and path (a sum of relations) when each relation is added, [N, K].

    cos(q, p + v) - cos(q, p). When the path already says what the question says, no relation gains.

    Args:
        question, path: of each of N walks, [N, W]; questions are of unit length.
        vectors: relations, [K, W].
    """
    along = (question * path).sum(1, keepdim=True)
    squared = (path * path).sum(1, keepdim=True)
    longer = (squared + 2 * path @ vectors.T + (vectors * vectors).sum(1)).clamp(min=TINY).sqrt()
    return (along + question @ vectors.T) / longer - along / squared.clamp(min=TINY).sqrt()


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
    both = (along + asked[walk, second]) / longer.clamp(min=TINY).sqrt()
    return both - along / squared.clamp(min=TINY).sqrt()


def best_behind(
    encoded: Encoded, decisions: Sequence[Decision], question: Tensor, path: Tensor, most: int
) -> Tensor:
    """The largest gain by a relation behind each option, [B, O]; 0 if none gains or none is listed.

    A relation that leads backwards there does not count if it leads forwards here, or is missing here: who
    wrote a film is said by the film's *written by*, not by what its director wrote. (The relation of the
    option itself counts: films share a director.)

    Args:
        question, path: of each decision, as for `further`.
        most: O, the largest number of options of a decision.
    """
    found = question.new_zeros(len(decisions), most)
    relations, pairs, options = encoded.relations, list[tuple[int, int, int]](), list[int]()
    for row, decision in enumerate(decisions):
        offered = [option.words for option in decision.options if option.words is not None]
        here = {words.token_ids for words in offered if words.kind == FORWARDS}
        for place, option in enumerate(decision.options):
            if option.words is not None:
                first, elsewhere = relations[option.words.plain], here - {option.words.token_ids}
                further_on = [w for w in option.behind if w.kind != BACKWARDS or w.token_ids not in elsewhere]
                pairs += ((row, first, relations[words]) for words in further_on)
                options += [row * most + place] * len(further_on)
    if not pairs:
        return found
    gains = further(question, path, encoded.vectors, torch.tensor(pairs, device=question.device).T)
    places = torch.tensor(options, device=question.device)
    return found.flatten().scatter_reduce(0, places, gains, "amax").view_as(found)
