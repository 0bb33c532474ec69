"""What only a GPU can do; `make test-gpu`."""

import random

import pytest
import torch

from benchmarks import gpu, mfu
from kbqa.errors import ConfigurationError
from kbqa.objectives import SurrogateConfig
from kbqa.planning.step import Workload, memory_of
from kbqa.training.adapters import Adapter, load_quantised
from kbqa.training.attention import row_attention, visibility
from kbqa.training.grpo import GrpoConfig
from kbqa.training.learner import Learner
from kbqa.training.likelihood import TokenLikelihood
from kbqa.training.packing import pack
from kbqa.training.ranks import Ranks
from tests.unit.policies_fixtures import make_model
from tests.unit.training.test_attention import drawn, one_by_one, random_row
from tests.unit.training.test_packing import group
from tests.unit.training.training_cases import build, questions


@pytest.mark.gpu
def test_an_adapter_beside_weights_of_four_bits_learns(tmp_path):
    pytest.importorskip("bitsandbytes")
    build({}).save_pretrained(tmp_path)
    ranks = Ranks.join()
    config = GrpoConfig(learning_rate=1e-2, precision="bf16", adapter=Adapter(rank=8, quantised=True))
    learner = Learner(load_quantised(tmp_path, ranks.device), config, lambda: None, 1, ranks)
    losses = [learner.update(questions(0), 1e-2).metrics["loss"] for _ in range(5)]
    assert losses[-1] < losses[0]
    assert {p.dtype for p in learner.model.parameters() if p.requires_grad} == {torch.float32}


@pytest.mark.gpu
def test_bf16_rows_and_checkpointed_layers_learn():
    config = GrpoConfig(learning_rate=1e-2, precision="bf16", gradient_checkpointing=True)
    learner = Learner(build({}), config, lambda: None, 1, Ranks.join())
    losses = [learner.update(questions(0), 1e-2).metrics["loss"] for _ in range(5)]
    assert losses[-1] < losses[0]


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(5))
def test_the_gpus_attention_gives_the_outputs_and_gradients_of_sequences_computed_one_by_one(seed):
    row = random_row(seed, trees=10).to(torch.device("cuda"))
    tensors = [tensor.detach().cuda().requires_grad_() for tensor in drawn(row, seed)]
    output, _ = row_attention(None, *tensors, None, visible=visibility(row, None))
    expected = one_by_one(*tensors, row)
    assert torch.allclose(output, expected, atol=1e-5)
    upstream = torch.randn_like(expected)
    ours, theirs = (torch.autograd.grad(one, tensors, upstream) for one in (output, expected))
    assert all(torch.allclose(one, other, atol=1e-4) for one, other in zip(ours, theirs, strict=True))


@pytest.mark.gpu
@pytest.mark.parametrize("compiled", [False, None], ids=["as they are", "compiled"])
def test_likelihoods_and_gradients_are_those_of_the_cpu(compiled):
    (row,) = pack(*group(random.Random(1), lengths=(30,) * 10), 1000)
    gradients = []
    for device in (torch.device("cpu"), torch.device("cuda")):
        model = TokenLikelihood(make_model().to(device))
        logprobs, _ = model(row.to(device), compiled=compiled)
        logprobs.sum().backward()
        gradients.append([logprobs.detach().cpu(), *(p.grad.cpu() for p in model.parameters())])
    for ours, theirs in zip(*gradients, strict=True):
        assert torch.allclose(ours, theirs, atol=1e-4, rtol=1e-3)


@pytest.mark.gpu
def test_a_step_takes_the_memory_that_was_planned():
    work = small_work(cuda=True)
    assert gpu.step(work, torch.device("cuda")).memory == pytest.approx(memory_of(work).peak, rel=0.1)


@pytest.mark.gpu
def test_the_gpu_is_well_used():
    for line in mfu.measure():
        assert float(line.split()[-3]) >= 0.4, line


def small_work(**options):
    """Rows of a model of 15 million parameters, with a reference."""
    surrogate = SurrogateConfig(kl_coefficient=0.01)
    config = GrpoConfig(token_budget=256, precision="bf16", gradient_checkpointing=True, surrogate=surrogate)
    architecture = {
        "model_type": "qwen2",
        "hidden_size": 256,
        "intermediate_size": 1024,
        "num_hidden_layers": 8,
        "num_attention_heads": 8,
        "num_key_value_heads": 2,
        "vocab_size": 8000,
        "max_position_embeddings": 4096,
        "tie_word_embeddings": False,
    }
    return Workload(architecture, config, episode=128, written=0.5, **options)


def test_a_step_is_measured_as_it_is_planned():
    work = small_work(cuda=False)
    measured = gpu.step(work, torch.device("cpu"))
    assert measured.tokens == 4 * 129  # two rows of two episodes; a first token has no predecessor
    assert measured.seconds > 0
    assert measured.saved_s > 0
    projections = 2 * 256 * 256 + 2 * 256 * 64 + 256 + 2 * 64  # query and output, key and value, biases
    layers = 8 * (projections + 3 * 256 * 1024 + 2 * 256)
    head = 6 * 8000 * 256 * 4 * 64  # half of the tokens are the policy's
    assert measured.flops == head + 4 * mfu.flops(layers, layers=8, width=256, sequence=129)


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_the_table_says_so():
    assert gpu.measure() == ["training steps at real size: not measured, there is no GPU"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_weights_of_four_bits_are_refused_with_a_way_out(tmp_path):
    with pytest.raises(ConfigurationError, match="GPU"):
        load_quantised(tmp_path, torch.device("cpu"))


def test_the_operations_of_a_sequence_are_those_of_its_products_and_of_what_it_attends_to():
    # 6 N T, and 12 layers x width x the mean length attended to, for each of T tokens.
    assert mfu.flops(1000, layers=2, width=8, sequence=10) == 6 * 1000 * 10 + 12 * 2 * 8 * 5 * 10
