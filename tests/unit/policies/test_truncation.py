import math

import pytest
import torch

from kbqa.policies.base import Truncation
from kbqa.policies.truncation import truncated
from tests.unit.policies_fixtures import make_model

LOGITS = torch.log(torch.tensor([[0.1, 0.5, 0.15, 0.25], [0.25, 0.25, 0.25, 0.25]]))


def kept(truncation, drawn=None):
    left = truncated(LOGITS, truncation, drawn)
    return [[index for index, value in enumerate(row) if math.isfinite(value)] for row in left.tolist()]


@pytest.mark.parametrize(
    ("truncation", "expected"),
    [
        (Truncation(), [0, 1, 2, 3]),
        (Truncation(top_p=0.5), [1]),  # the least set that holds half
        (Truncation(top_p=0.51), [1, 3]),
        (Truncation(top_p=0.76), [1, 2, 3]),
        (Truncation(top_p=1e-9), [1]),  # never none
        (Truncation(top_k=3), [1, 2, 3]),
        (Truncation(top_k=9), [0, 1, 2, 3]),
        (Truncation(top_p=0.8, top_k=3), [1, 3]),  # 0.5 and 0.25 are 83 % of what the three hold
    ],
)
def test_the_likeliest_tokens_are_kept(truncation, expected):
    assert kept(truncation)[0] == expected


def test_equals_of_the_last_one_stay():
    assert kept(Truncation(top_k=2))[1] == [0, 1, 2, 3]


def test_a_token_that_was_drawn_is_kept_in_any_case():
    assert kept(Truncation(top_p=0.5), torch.tensor([0, 2]))[0] == [0, 1]


def test_what_is_kept_is_renormalised_and_differentiable():
    logits = LOGITS[:1].clone().requires_grad_()
    probabilities = truncated(logits, Truncation(top_p=0.7)).softmax(-1)
    assert probabilities.tolist() == [pytest.approx([0.0, 2 / 3, 0.0, 1 / 3])]
    probabilities[0, 1].backward()
    assert logits.grad.tolist() == [pytest.approx([0.0, 2 / 9, 0.0, -2 / 9])]


def test_a_wide_vocabulary_is_cut_row_by_row():
    logits = torch.randn(300, 50, generator=torch.Generator().manual_seed(0))
    alone = torch.cat([truncated(row[None], Truncation(top_p=0.9)) for row in logits])
    assert torch.equal(truncated(logits, Truncation(top_p=0.9)), alone)


def test_the_nucleus_is_that_of_transformers():
    """Against the library's own warpers, on a model's logits."""
    from transformers import TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper

    with torch.no_grad():
        logits = make_model()(torch.tensor([list(range(30, 60))])).logits[0]
    theirs = logits
    for warp in (TemperatureLogitsWarper(0.7), TopKLogitsWarper(40), TopPLogitsWarper(0.9)):
        theirs = warp(None, theirs)
    assert torch.equal(truncated(logits / 0.7, Truncation(0.9, 40)).isfinite(), theirs.isfinite())
