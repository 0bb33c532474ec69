import random

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from kbqa.policies.base import Truncation
from kbqa.training import likelihood as likelihood_module
from kbqa.training.likelihood import TokenLikelihood, token_logprobs
from kbqa.training.packing import RowSegment, pack

_SIZE = {
    "vocab_size": 300,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 256,
}


def make(architecture, **changes):
    torch.manual_seed(0)
    if architecture == "qwen2":
        return Qwen2ForCausalLM(
            Qwen2Config(**_SIZE, num_key_value_heads=2, tie_word_embeddings=True, **changes)
        ).eval()
    return LlamaForCausalLM(LlamaConfig(**_SIZE, num_key_value_heads=4, **changes)).eval()


def tokens(count, rng):
    return tuple(rng.randrange(300) for _ in range(count))


def group(rng, prompt=20, lengths=(5, 9, 1, 7)):
    """Samples of one prompt: token ids, and masks that are set after it."""
    head = tokens(prompt, rng)
    sequences = [head + tokens(length, rng) for length in lengths]
    return sequences, [tuple(at >= prompt for at in range(len(s))) for s in sequences]


def tree(rng):
    """The paths to the steps of a tree; each masks its last step, whatever was said before."""
    prompt, first, second = tokens(12, rng), tokens(6, rng), tokens(4, rng)
    deep = prompt + first + tokens(5, rng)
    paths = [
        (prompt, first),
        (prompt, second),
        (deep, tokens(3, rng)),
        (deep, tokens(8, rng)),
        (prompt + second + tokens(2, rng), tokens(4, rng)),
    ]
    sequences = [stem + step for stem, step in paths]
    return sequences, [tuple(at >= len(stem) for at in range(len(stem + step))) for stem, step in paths]


def test_each_sequence_adds_what_the_one_before_does_not_have():
    sequences = [(1, 2, 3, 9, 9), (1, 2, 4), (1, 2, 3, 8, 7, 6)]
    masks = [(0, 0, 0, 1, 1), (0, 0, 1), (0, 0, 0, 1, 0, 1)]
    (row,) = pack(sequences, masks, 100)
    assert row.members == (2, 0, 1)
    # (1 2 3 8 7), then 9 after (1 2 3), then nothing: the 4 is predicted from the 2 and never read.
    assert row.segments == (RowSegment(0, 5), RowSegment(3, 1))
    assert row.token_ids.tolist() == [1, 2, 3, 8, 7, 9]
    assert row.positions.tolist() == [0, 1, 2, 3, 4, 3]
    assert row.until.tolist() == [6, 6, 6, 5, 5, 6]
    assert row.targets.tolist() == [8, 6, 9, 9, 4]
    assert row.sources.tolist() == [2, 4, 2, 5, 1]


def test_rows_hold_every_sequence_once_within_the_budget():
    rng = random.Random(3)
    groups = [group(rng) for _ in range(6)]
    sequences = [s for ids, _ in groups for s in ids]
    masks = [m for _, ms in groups for m in ms]
    rows = list(pack(sequences, masks, 60))
    assert sorted(i for row in rows for i in row.members) == list(range(24))
    assert len(rows) > 1
    assert all(len(row.token_ids) <= 60 for row in rows)
    assert all(sum(s.own for s in row.segments) == len(row.token_ids) for row in rows)
    shared_once = sum(len(row.token_ids) for row in pack(sequences, masks, 10_000))
    assert shared_once == sum(20 + 5 + 9 + 1 + 7 - 4 for _ in groups)


def test_a_sequence_longer_than_the_budget_goes_alone_and_one_without_policy_tokens_nowhere():
    sequences = [tuple(range(1, 50)), (60, 61, 62), (70, 71)]
    masks = [(0, *(1,) * 48), (0, 0, 1), (0, 0)]
    assert [row.members for row in pack(sequences, masks, 10)] == [(0,), (1,)]


@pytest.mark.parametrize("architecture", ["qwen2", "llama"])
@pytest.mark.parametrize("batch", [group, tree])
@pytest.mark.parametrize("checkpointing", [False, True])
def test_a_shared_beginning_changes_neither_log_probabilities_nor_gradients(
    architecture, batch, checkpointing
):
    rng = random.Random(1)
    (ids_a, masks_a), (ids_b, masks_b) = batch(rng), batch(rng)
    sequences, masks = [*ids_a, *ids_b, ids_a[1]], [*masks_a, *masks_b, masks_a[1]]  # one of them twice
    plain, packed = make(architecture), TokenLikelihood(make(architecture))
    if checkpointing:
        packed.model.gradient_checkpointing_enable()
        packed.train()
    (row,) = pack(sequences, masks, 10_000)
    assert len(row.token_ids) < sum(map(len, sequences)) * 0.8
    factors = torch.randn(len(row.targets), generator=torch.Generator().manual_seed(2))
    logprobs, entropies = packed(row, entropy_gradient=True)
    ((logprobs + 0.3 * entropies) * factors).sum().backward()
    expected = [
        token_logprobs(plain, torch.tensor([sequences[i]]), torch.tensor([masks[i]]), entropy_gradient=True)
        for i in row.members
    ]
    assert torch.allclose(logprobs, torch.cat([one for one, _ in expected]), atol=1e-5)
    assert torch.allclose(entropies, torch.cat([one for _, one in expected]), atol=1e-5)
    (torch.cat([one + 0.3 * entropy for one, entropy in expected]) * factors).sum().backward()
    for (name, theirs), ours in zip(plain.named_parameters(), packed.model.parameters(), strict=True):
        assert torch.allclose(ours.grad, theirs.grad, atol=1e-5), name


def test_projecting_to_the_vocabulary_in_parts_changes_nothing(monkeypatch):
    sequences, masks = group(random.Random(4))
    (row,) = pack(sequences, masks, 1000)
    gradients = []
    for most in (2**28, 300 * 5):
        monkeypatch.setitem(likelihood_module._MAX_LOGITS, "cpu", most)
        model = make("qwen2")
        logprobs, _ = TokenLikelihood(model)(row, temperature=0.7, truncation=Truncation(top_p=0.9))
        logprobs.sum().backward()
        gradients.append((logprobs.detach(), model.lm_head.weight.grad))
    assert torch.allclose(gradients[0][0], gradients[1][0], atol=1e-6)
    assert torch.allclose(gradients[0][1], gradients[1][1], atol=1e-5)


class _Largest(TorchDispatchMode):
    """Elements of the largest tensor that any operator returns."""

    elements = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        sizes = [one.numel() for one in tree_leaves(result) if isinstance(one, torch.Tensor)]
        self.elements = max([self.elements, *sizes])
        return result


@pytest.mark.parametrize("padded", [False, True])
def test_no_tensor_holds_the_logits_of_more_tokens_than_are_projected_at_a_time(monkeypatch, padded):
    sequences, masks = group(random.Random(4), lengths=(60,) * 10)
    (row,) = pack(sequences, masks, 10_000)
    model = make("qwen2")
    largest = []
    for most in (2**28, 300 * 40):
        monkeypatch.setitem(likelihood_module._MAX_LOGITS, "cpu", most)
        with _Largest() as watch:
            if padded:
                logprobs, _ = token_logprobs(model, torch.tensor(sequences), torch.tensor(masks))
            else:
                logprobs, _ = TokenLikelihood(model)(row)
            logprobs.sum().backward()
        largest.append(watch.elements)
    assert largest[0] == 300 * 600  # all logits
    assert largest[1] <= 48 * 800  # less than two parts: the largest is an activation


def test_bf16_computes_nearly_the_same_and_leaves_weights_as_they_are():
    sequences, masks = group(random.Random(5))
    (row,) = pack(sequences, masks, 1000)
    model = TokenLikelihood(make("qwen2"))
    exact, _ = model(row)
    rounded, _ = model(row, precision="bf16")
    assert rounded.dtype == torch.float32
    assert not torch.equal(exact, rounded)
    assert torch.allclose(exact, rounded, atol=0.05)
    rounded.sum().backward()
    assert {p.grad.dtype for p in model.parameters()} == {torch.float32}


def test_a_model_that_packs_still_reads_padded_batches_and_is_saved_as_it_was(tmp_path):
    sequences, masks = group(random.Random(6), lengths=(4, 4))
    model = make("llama")
    before = token_logprobs(model, torch.tensor(sequences), torch.tensor(masks))[0]
    TokenLikelihood(model)
    after = token_logprobs(model, torch.tensor(sequences), torch.tensor(masks))[0]
    assert torch.allclose(before, after, atol=1e-6)
    model.save_pretrained(tmp_path)
    assert "kbqa" not in (tmp_path / "config.json").read_text()


def test_a_sliding_window_shorter_than_a_sequence_is_an_error():
    model = make("qwen2", use_sliding_window=True, sliding_window=8, max_window_layers=0)
    (row,) = pack([tuple(range(20))], [(0, *(1,) * 19)], 100)
    with pytest.raises(ValueError, match="sliding window of 8"):
        TokenLikelihood(model)(row)
