import json

import pytest
import torch
from safetensors.torch import load_file

from kbqa.errors import ConfigurationError
from kbqa.policies.in_process import load_model
from kbqa.training.adapters import Adapter, add_adapter, has_adapter, merged
from kbqa.training.checkpoints import Checkpoints
from kbqa.training.grpo import GrpoConfig, grpo_step, make_optimiser
from kbqa.training.learner import Learner, begin
from kbqa.training.likelihood import token_logprobs
from kbqa.training.ranks import Ranks, layer_policy
from kbqa.training.sft import Example, SftConfig, fine_tune
from kbqa.training.tensor_files import trained_parameters
from tests.unit.training.sharded import join, launch
from tests.unit.training.training_cases import (
    CASES,
    STEPS,
    TWO_ROWS,
    build,
    config,
    flat,
    questions,
    reference,
    train,
)


def trained(case, steps=STEPS):
    """Losses and the learner of a training in this process."""
    learner = Learner(build(case), config(case), lambda: reference(case), seed=5)
    return [train(learner, case, step) for step in range(steps)], learner


@pytest.fixture(scope="module")
def whole():
    """Losses and the learner of each case's training in this process."""
    return {name: trained(case) for name, case in CASES.items()}


@pytest.fixture(scope="module")
def sharded(tmp_path_factory):
    """Directories of trainings in two and four processes, and in two from the checkpoints of the four."""
    four, two, resumed = (tmp_path_factory.mktemp(name) for name in ("four", "two", "resumed"))
    launch(4, four)
    launch(2, two, four, resumed)
    return {"4": four, "2": two, "4, then 2": resumed}


@pytest.mark.timeout(1800)  # on a busy machine processes take their time to start
@pytest.mark.parametrize("processes", ["2", "4", "4, then 2"])
@pytest.mark.parametrize("name", CASES)
def test_several_processes_learn_what_one_does_bit_for_bit_if_a_step_has_two_rows(
    sharded, whole, name, processes
):
    case, directory = CASES[name], sharded[processes]
    losses, learner = whole[name]
    found = json.loads((directory / f"{name}.json").read_text())
    exact = name in TWO_ROWS
    assert found == (losses[-len(found) :] if exact else pytest.approx(losses[-len(found) :], abs=1e-5))
    assert len(found) == (STEPS - 1 if "then" in processes else STEPS)
    weights = load_file(directory / f"{name}.safetensors")
    own = trained_parameters(learner.model)
    assert weights.keys() == own.keys()
    for key, value in own.items():
        assert torch.allclose(weights[key], value, atol=0 if exact else 1e-5, rtol=0), key
    _, untrained = trained(case, steps=0)
    assert not torch.allclose(flat(learner.model), flat(untrained.model), atol=1e-4)


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", CASES)
def test_one_process_resumes_what_four_have_saved(sharded, whole, name):
    case = CASES[name]
    learner = Learner(build(case), config(case), lambda: reference(case), seed=6)
    Checkpoints(sharded["4"] / name, "r").restore(learner)
    found = [train(learner, case, step) for step in range(1, STEPS)]
    losses, other = whole[name]
    exact = name in TWO_ROWS
    assert found == (losses[1:] if exact else pytest.approx(losses[1:], abs=1e-5))
    assert torch.allclose(flat(learner.model), flat(other.model), atol=0 if exact else 1e-5, rtol=0)


def test_gradient_checkpointing_changes_nothing():
    plain, again = trained({}), trained({"checkpointing": True})
    assert plain[0] == pytest.approx(again[0], abs=1e-6)
    assert torch.allclose(flat(plain[1].model), flat(again[1].model), atol=1e-6)


def test_a_fresh_adapter_changes_nothing_and_is_all_that_is_trained_and_saved(tmp_path):
    model, plain = build({}), build({})
    add_adapter(model, Adapter(rank=4), seed=1)
    ids, mask = torch.tensor([range(20, 40)]), torch.tensor([[False] * 10 + [True] * 10])
    assert torch.equal(token_logprobs(model, ids, mask)[0], token_logprobs(plain, ids, mask)[0])
    assert has_adapter(model)
    assert not has_adapter(plain)
    trained = {name for name, p in model.named_parameters() if p.requires_grad}
    assert trained
    assert all("lora" in name for name in trained)
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    assert frozen
    settings = GrpoConfig(learning_rate=1e-2)
    grpo_step(model, make_optimiser(model, settings), questions(0)[0], settings)
    assert all(torch.equal(frozen[name], p) for name, p in model.named_parameters() if name in frozen)
    assert not torch.equal(token_logprobs(model, ids, mask)[0], token_logprobs(plain, ids, mask)[0])
    model.save_pretrained(tmp_path)
    assert not list(tmp_path.glob("model*.safetensors"))
    assert json.loads((tmp_path / "adapter_config.json").read_text())["r"] == 4
    saved = load_file(tmp_path / "adapter_model.safetensors")
    assert len(saved) == len(trained)
    assert all(name.startswith("base_model.model.model.layers.") for name in saved)  # as engines read it


def test_the_gradient_of_an_adapter_is_that_of_the_product_of_its_matrices():
    """dL/dB = s dL/dW A^T and dL/dA = s B^T dL/dW, W being the weight that the adapter adds to."""
    model, merged = build({}), build({})
    add_adapter(model, Adapter(rank=4, alpha=8, targets=("q_proj",)), seed=1)
    layer = model.model.layers[0].self_attn.q_proj
    a, b = layer.lora_A["default"].weight, layer.lora_B["default"].weight
    torch.nn.init.normal_(b, std=0.02)
    scale = 8 / 4
    weight = merged.model.layers[0].self_attn.q_proj.weight
    with torch.no_grad():
        weight += scale * b @ a
    samples = questions(1)[0]
    settings = GrpoConfig(clip_norm=1e9)
    for one in (model, merged):
        grpo_step(
            one, torch.optim.SGD([p for p in one.parameters() if p.requires_grad], 0.0), samples, settings
        )
    assert torch.allclose(b.grad, scale * weight.grad @ a.T, atol=1e-6)
    assert torch.allclose(a.grad, scale * b.T @ weight.grad, atol=1e-6)
    assert b.grad.abs().max() > 1e-4


def test_a_merged_adapter_computes_the_same_and_is_saved_as_a_whole_model(tmp_path):
    config = SftConfig(
        steps=3, batch=2, learning_rate=1e-2, warm_up_steps=0, decay="constant", adapter=Adapter(4, 8)
    )
    learner = Learner(build({}), config, seed=1)
    model = learner.model
    example = Example(tuple(range(20, 40)), tuple(at >= 10 for at in range(20)))
    frozen = {name: p.clone() for name, p in model.named_parameters() if not p.requires_grad}
    assert frozen
    fine_tune(learner.imitate, lambda count: [example] * count, config, lambda step, loss: False)
    assert all(torch.equal(frozen[name], p) for name, p in model.named_parameters() if name in frozen)

    ids, mask = torch.tensor([example.token_ids]), torch.tensor([example.mask])
    beside = token_logprobs(model, ids, mask)[0]
    whole = merged(model)
    assert torch.allclose(token_logprobs(whole, ids, mask)[0], beside, atol=1e-5)
    assert torch.equal(token_logprobs(model, ids, mask)[0], beside)  # the model itself is as it was
    assert has_adapter(model)
    assert not has_adapter(whole)
    assert not torch.allclose(token_logprobs(build({}), ids, mask)[0], beside, atol=1e-3)
    assert all(parameter.requires_grad for parameter in whole.parameters())
    assert {name for name, _ in whole.named_parameters()} == {n for n, _ in build({}).named_parameters()}
    whole.save_pretrained(tmp_path)
    assert (tmp_path / "model.safetensors").is_file()
    assert not (tmp_path / "adapter_config.json").exists()
    assert torch.equal(
        token_logprobs(load_model(tmp_path), ids, mask)[0], token_logprobs(whole, ids, mask)[0]
    )


def test_without_its_adapter_a_model_is_its_own_reference():
    case = {"lora": True}
    learner = Learner(build(case), config(case), lambda: pytest.fail("no second copy is needed"), seed=5)
    kl = [learner.update(questions(0), 1e-3).metrics["kl"] for _ in range(2)]
    beside = build(case)
    add_adapter(beside, config(case).adapter, seed=5)
    optimiser = make_optimiser(beside, config(case))
    expected = []
    for _ in range(2):
        steps = [grpo_step(beside, optimiser, questions(0)[i], config(case), build(case)) for i in (0, 2)]
        expected.append(sum(step.metrics["kl"] for step in steps) / 2)
    assert kl == pytest.approx(expected, abs=1e-7)
    assert kl[1] > kl[0] >= 0


def test_unknown_layers_are_a_configuration_error():
    with pytest.raises(ConfigurationError, match="targets"):
        add_adapter(build({}), Adapter(targets=("no_such_layer",)), seed=0)


class Interrupted(Exception):
    """Raised by a check."""


def interrupt_at(call: int):
    calls = [0]

    def check() -> None:
        calls[0] += 1
        if calls[0] == call:
            raise Interrupted

    return check, calls


def test_an_update_that_is_interrupted_in_time_leaves_no_trace():
    (_, learner), (_, other) = trained({}, steps=1), trained({}, steps=1)
    weights = flat(learner.model).clone()
    check, _ = interrupt_at(1)
    with pytest.raises(Interrupted):
        learner.update(questions(1), 2e-3, check)
    assert torch.equal(flat(learner.model), weights)
    # Its moments have not changed, either: the next update is that of a learner that was not interrupted.
    assert learner.update(questions(1), 2e-3).metrics == other.update(questions(1), 2e-3).metrics
    assert torch.equal(flat(learner.model), flat(other.model))


def test_an_update_is_not_interrupted_once_weights_have_changed():
    _, learner = trained({}, steps=0)
    check, calls = interrupt_at(1000)
    learner.update(questions(1), 1e-3, check)
    backwards = calls[0]
    assert backwards >= 1
    check, calls = interrupt_at(backwards + 1)  # there are more: three questions are two mini-batches
    learner.update(questions(1), 1e-3, check)
    assert calls[0] == backwards


def test_weights_of_four_bits_are_refused_on_several_processes_with_a_way_out():
    four_bits = GrpoConfig(adapter=Adapter(rank=4, quantised=True))
    with pytest.raises(ConfigurationError, match="cannot be sharded.*KBQA_TRAINING_PROCESSES=1"):
        begin(build({}), four_bits, ranks=Ranks(rank=0, size=2))


def test_layers_are_gathered_in_bf16_on_gpus_alone_and_gradients_are_summed_in_fp32():
    policy = layer_policy("bf16", torch.device("cuda", 0))
    assert (policy.param_dtype, policy.reduce_dtype) == (torch.bfloat16, torch.float32)
    assert not policy.cast_forward_inputs
    for precision, device in (("bf16", "cpu"), ("fp32", "cuda")):
        assert layer_policy(precision, torch.device(device)).param_dtype is None


def test_processes_of_which_only_some_have_a_gpu_join_on_the_cpu_and_say_where_it_lacks():
    lacking = ("machine-0: 0 of 1 GPUs",)
    assert join([0, 2]) == [("cpu", lacking)] * 2
    assert join([0, 0]) == [("cpu", ())] * 2
