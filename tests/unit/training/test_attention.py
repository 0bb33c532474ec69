"""A row's attention, by the kernels of both devices, beside one causal attention for each of its sequences.

The GPU's kernel runs on the CPU here, without being compiled into one: operators and gradients are the same.
"""

import random
from collections import Counter

import pytest
import torch
from torch.nn import functional
from torch.nn.attention import flex_attention as flex
from torch.utils._python_dispatch import TorchDispatchMode

from kbqa.training import attention
from kbqa.training.attention import SegmentMask, block_mask, row_attention
from kbqa.training.likelihood import TokenLikelihood
from kbqa.training.packing import pack
from tests.unit.training.test_packing import group, make, tokens

_HEADS, _GROUPS, _WIDTH = 4, 2, 16


@pytest.fixture(autouse=True)
def _the_gpus_kernel_on_the_cpu(monkeypatch):
    monkeypatch.setattr(flex, "_validate_device", lambda *tensors: None)  # refuses gradients on a CPU
    monkeypatch.setattr(flex, "_FLEX_ATTENTION_DISABLE_COMPILE_DEBUG", True)
    monkeypatch.setattr(attention, "_compiled", lambda: flex.flex_attention)


def packed(sequences):
    """The row of all tokens but each sequence's last."""
    masks = [(False,) * (len(s) - 1) + (True,) for s in sequences]
    (row,) = pack(sequences, masks, 10**6)
    return row


def random_tree(rng, most=12, longest=24):
    """The paths to the steps of a tree, each of which follows any step before it."""
    nodes = [tokens(rng.randint(2, longest), rng)]
    for _ in range(rng.randint(0, most)):
        nodes.append(rng.choice(nodes) + tokens(rng.randint(1, longest), rng))
    return nodes


def random_row(seed, trees):
    rng = random.Random(seed)
    return packed([path for _ in range(trees) for path in random_tree(rng)])


def paths(row):
    """For each segment: where in the row its sequence lies, and its own tokens."""
    places, start = [], 0
    for shared, own in row.segments:
        places = [*places[:shared], *range(start, start + own)]
        yield torch.tensor(places), slice(start, start + own)
        start += own


def one_by_one(query, key, value, row):
    """Each sequence computed as a whole, on its own; of its outputs, those of the segment's own tokens."""
    outputs = []
    for places, own in paths(row):
        q, k, v = (tensor[:, :, places] for tensor in (query, key, value))
        k, v = (tensor.repeat_interleave(_HEADS // _GROUPS, dim=1) for tensor in (k, v))
        whole = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        outputs.append(whole[:, :, own.start - own.stop :])
    return torch.cat(outputs, dim=2).transpose(1, 2)


def drawn(row, seed):
    generator = torch.Generator().manual_seed(seed)
    heads = (_HEADS, _GROUPS, _GROUPS)
    shapes = [(1, count, len(row.until), _WIDTH) for count in heads]
    return [torch.randn(shape, generator=generator, requires_grad=True) for shape in shapes]


@pytest.mark.parametrize("seed", range(20))
def test_on_rows_of_ten_random_trees_outputs_and_gradients_are_those_of_sequences_computed_one_by_one(seed):
    row = random_row(seed, trees=10)
    tensors = drawn(row, seed)
    expected = one_by_one(*tensors, row)
    upstream = torch.randn(expected.shape, generator=torch.Generator().manual_seed(seed))
    gradients = torch.autograd.grad(expected, tensors, upstream)
    for visible in (SegmentMask.of(row), block_mask(row.until)):
        output, _ = row_attention(None, *tensors, None, visible=visible)
        assert torch.allclose(output, expected, atol=1e-5)
        for ours, theirs in zip(torch.autograd.grad(output, tensors, upstream), gradients, strict=True):
            assert torch.allclose(ours, theirs, atol=1e-5)


@pytest.mark.parametrize("seed", range(20))
def test_blocks_of_a_row_are_those_that_torch_finds_from_all_pairs(seed):
    row = random_row(seed, trees=5)
    ours, length = block_mask(row.until), len(row.until)
    theirs = flex.create_block_mask(ours.mask_mod, None, None, length, length, device="cpu")
    names = [
        f"{full}{side}_{what}"
        for full in ("", "full_")
        for side in ("kv", "q")
        for what in ("num_blocks", "indices")
    ]
    for name in names:
        assert torch.equal(getattr(ours, name), getattr(theirs, name)), name
    assert ours.shape == theirs.shape


class _Counted(TorchDispatchMode):
    supports_higher_order_operators = True

    def __init__(self):
        super().__init__()
        self.calls = Counter()

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        self.calls[str(function)] += 1
        return function(*args, **(kwargs or {}))


def counted(monkeypatch, branches):
    """Operators of a forward and a backward pass over a prompt with branches, on the GPU's path."""
    monkeypatch.setattr("kbqa.training.likelihood.visibility", lambda row, window: block_mask(row.until))
    sequences, masks = group(random.Random(7), prompt=150, lengths=(4,) * branches)
    (row,) = pack(sequences, masks, 10**6)
    assert len(row.segments) == branches
    with _Counted() as counter:
        TokenLikelihood(make("qwen2"))(row)[0].sum().backward()
    return counter.calls


def test_a_layer_is_one_call_whatever_the_number_of_branches(monkeypatch):
    few, some, many = (counted(monkeypatch, branches) for branches in (2, 20, 200))
    assert few["flex_attention"] == few["flex_attention_backward"] == 2  # layers
    assert few == some == many, (few - some, some - few)
    assert not any("scaled_dot_product" in name for name in many)


def test_keys_and_values_of_grouped_queries_are_never_repeated():
    row = random_row(3, trees=2)
    query, key, value = drawn(row, 0)
    with _Counted() as counter:
        row_attention(None, query, key, value, None, visible=SegmentMask.of(row))
    assert not any("repeat" in name or "expand" in name for name in counter.calls)
    assert counter.calls["aten._scaled_dot_product_flash_attention_for_cpu.default"] == len(row.segments)


@pytest.fixture
def _traced_only(monkeypatch):
    """The compiler traces, and leaves the operators as they are."""
    torch.compiler.set_default_backend("eager")
    yield
    torch.compiler.set_default_backend(None)
    torch.compiler.reset()


@pytest.mark.usefixtures("_traced_only")
@pytest.mark.filterwarnings("ignore:Guards may run slower on Python 3.13.0")
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_compiled_layers_give_the_same_for_rows_of_any_length_and_are_traced_only_a_few_times(monkeypatch):
    monkeypatch.setattr("kbqa.training.likelihood.visibility", lambda row, window: block_mask(row.until))
    plain, compiled = TokenLikelihood(make("qwen2")), TokenLikelihood(make("qwen2"))
    torch._dynamo.utils.counters.clear()
    for branches in (30, 50, 70):
        sequences, masks = group(random.Random(branches), lengths=(4,) * branches)
        (row,) = pack(sequences, masks, 10**6)
        expected, _ = plain(row)
        actual, _ = compiled(row, compiled=True)
        assert torch.allclose(actual, expected, atol=1e-5)
        expected.sum().backward()
        actual.sum().backward()
    for one, other in zip(plain.parameters(), compiled.parameters(), strict=True):
        assert torch.allclose(one.grad, other.grad, atol=1e-4, rtol=1e-4)
    assert 0 < torch._dynamo.utils.counters["stats"]["unique_graphs"] <= 4
    assert not torch._dynamo.utils.counters["graph_break"]


def test_on_a_cpu_layers_are_compiled_only_when_asked_for():
    (row,) = pack(*group(random.Random(1)), 1000)
    model = TokenLikelihood(make("qwen2"))
    model(row)
    assert all(layer._compiled_call_impl is None for layer in model.layers)
