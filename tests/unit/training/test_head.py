import pytest
import torch
from torch import nn

from kbqa.training.head import fp32_logits


@pytest.fixture
def head() -> nn.Linear:
    torch.manual_seed(0)
    return nn.Linear(64, 300, bias=False)


def test_logits_under_autocast_are_those_of_rounded_operands_and_not_rounded_themselves(head):
    hidden = 40 * torch.randn(5, 64)
    with torch.autocast("cpu", torch.bfloat16):
        logits, rounded = fp32_logits(head, hidden), head(hidden).float()
    exact = hidden.bfloat16().double() @ head.weight.detach().bfloat16().double().T
    assert logits.dtype == torch.float32
    assert (logits - exact).abs().max() < 1e-4
    assert (rounded - exact).abs().max() > 0.01


def test_its_gradients_are_those_of_autocast(head):
    hidden = torch.randn(5, 64, requires_grad=True)
    found = []
    for project in (fp32_logits, lambda head, hidden: head(hidden).float()):
        hidden.grad = head.weight.grad = None
        with torch.autocast("cpu", torch.bfloat16):
            project(head, hidden).log_softmax(-1)[:, 3].sum().backward()
        found.append((hidden.grad, head.weight.grad))
    for mine, autocasts in zip(*found, strict=True):
        assert mine.dtype == torch.float32
        assert torch.allclose(mine, autocasts, rtol=0.02, atol=0.01)


def test_without_autocast_the_head_is_applied_as_it_is(head):
    hidden = torch.randn(5, 64)
    assert torch.equal(fp32_logits(head, hidden), head(hidden))
