"""What only a GPU can do; `make test-gpu`."""

import pytest
import torch

from benchmarks import mfu
from kbqa.errors import ConfigurationError
from kbqa.training.adapters import Adapter, load_quantised
from kbqa.training.grpo import GrpoConfig
from kbqa.training.learner import Learner
from kbqa.training.ranks import Ranks
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
def test_the_gpu_is_well_used():
    for line in mfu.measure():
        assert float(line.split()[-3]) >= 0.4, line


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_weights_of_four_bits_are_refused_with_a_way_out(tmp_path):
    with pytest.raises(ConfigurationError, match="GPU"):
        load_quantised(tmp_path, torch.device("cpu"))


def test_the_operations_of_a_sequence_are_those_of_its_products_and_of_what_it_attends_to():
    # 6 N T, and 12 layers x width x the mean length attended to, for each of T tokens.
    assert mfu.flops(1000, layers=2, width=8, sequence=10) == 6 * 1000 * 10 + 12 * 2 * 8 * 5 * 10
