"""Plans: what they say of memory, against whole training steps; which machines they accept and refuse."""

import json
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.distributed._tools.mem_tracker import MemTracker

from kbqa.errors import MachineTooSmallError, PlanError
from kbqa.planning.architectures import PUBLISHED, architecture_of
from kbqa.planning.defaults import resolved, with_rows_of
from kbqa.planning.guard import fitted
from kbqa.planning.machines import GIB, Machine, machine_here
from kbqa.planning.meter import Meter
from kbqa.planning.plan import on_host, plan, workloads
from kbqa.planning.report import refusal
from kbqa.planning.step import Workload, fake_step, memory_of, parameters_of
from kbqa.recipes import load_recipe
from kbqa.training.grpo import GrpoConfig
from tests.deploy.conftest import merged, values_of
from tests.deploy.helm import defaults

LARGE = [
    "kg-r1",
    "kg-r1-7b",
    "kg-r1-as-released",
    "kbqa-r1",
    "kbqa-r1-as-released",
    "isp-kgr",
    "isp-kgr-as-released",
    "knowcoder-a1",
    "knowcoder-a1-as-released",
    "learning-to-refine",
]
SMALL = {
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
CONFIG = GrpoConfig(token_budget=2048, precision="bf16", gradient_checkpointing=True)
INSTALL = Path(__file__).parents[3] / "docs" / "install.md"
# Machines in the order in which they are tried: GPUs, and GiB of each.
SIZES = ((1, 8), (1, 16), (1, 24), (1, 48), (1, 80), (2, 80), (4, 80), (8, 80), (16, 80))


class Tracker(MemTracker):
    """Torch's tracker without its statistics of modules, which cannot be called twice."""

    def _pre_fw_hook(self, module, inputs): ...

    def _post_fw_hook(self, module, inputs, outputs): ...

    def _pre_bw_hook(self, module, args): ...

    def _post_bw_hook(self, module, args): ...


def whole_step(work: Workload) -> int:
    """The peak of two steps with all layers, as torch's own tracker counts it; the second has moments."""
    with fake_step(work, int(work.architecture["num_hidden_layers"])) as (model, reference, take):
        parts = [part for part in (model, reference) if part is not None]
        tracker = Tracker()
        tracker.track_external(*parts)
        with tracker:
            take(lambda *_: None)
            # With a base in 4 bits, the tracker goes on counting activations of a step that has ended.
            ended = counted(tracker, "current") - held_between_steps(parts)
            take(lambda *_: None)
        return counted(tracker, "peak") - ended


def counted(tracker: Tracker, moment: str) -> int:
    return tracker.get_tracker_snapshot(moment)[torch.device("cpu")]["Total"]


def held_between_steps(models) -> int:
    """Weights, gradients and moments."""
    tensors = [tensor for model in models for tensor in (*model.parameters(), *model.buffers())]
    weights = {id(storage): storage.nbytes() for storage in (one.untyped_storage() for one in tensors)}
    trained = sum(tensor.nbytes for tensor in tensors if tensor.requires_grad)
    return sum(weights.values()) + 3 * trained


@pytest.mark.parametrize("checkpointing", [True, False])
def test_a_plan_from_three_layers_agrees_with_a_step_of_all_layers(checkpointing):
    work = Workload(SMALL, replace(CONFIG, gradient_checkpointing=checkpointing), episode=512, written=0.5)
    assert memory_of(work).peak == pytest.approx(whole_step(work), rel=0.05)


def test_a_sharded_plan_agrees_with_a_step_of_all_layers():
    work = Workload(SMALL, CONFIG, episode=512, written=0.5, ranks=8)
    planned = memory_of(work).peak
    with fake_step(work, 8) as (model, _, take), Meter(0) as meter:
        for parameter in model.parameters():
            meter.watch(parameter)
        take(lambda *_: None)
        take(lambda *_: None)
        assert planned == pytest.approx(meter.peak, rel=0.05)


@pytest.mark.integration
@pytest.mark.parametrize("name", LARGE)
def test_the_plan_of_a_large_recipe_agrees_with_a_step_of_all_layers(name):
    recipe = load_recipe(name)
    machine = Machine("cuda", 1, 80 * GIB)
    [work] = [
        w for phase, w in workloads(recipe, machine, architecture_of(recipe)) if phase == "reinforcement"
    ]
    assert memory_of(work).peak == pytest.approx(whole_step(work), rel=0.05)


def test_gradient_checkpointing_and_shards_save_what_they_should():
    work = Workload(SMALL, CONFIG, episode=512, written=0.5)
    one, stored = (
        memory_of(work),
        memory_of(replace(work, config=replace(CONFIG, gradient_checkpointing=False))),
    )
    four = memory_of(replace(work, ranks=4))
    assert stored.activations > 3 * one.activations
    assert one.gradients == one.moments / 2 == parameters_of(SMALL) * 4
    assert four.held == pytest.approx(one.held / 4, rel=0.01)


@pytest.mark.parametrize(
    ("name", "billions"),
    [
        ("Qwen/Qwen2.5-3B-Instruct", 3.0859),
        ("Qwen/Qwen2.5-7B-Instruct", 7.6156),
        ("Qwen/Qwen2.5-Coder-7B", 7.6156),
        ("meta-llama/Llama-3.1-8B-Instruct", 8.0303),
        ("HuggingFaceTB/SmolLM2-135M-Instruct", 0.1345),
    ],
)
def test_published_bases_have_the_published_number_of_parameters(name, billions):
    assert parameters_of(PUBLISHED[name]) / 1e9 == pytest.approx(billions, abs=1e-4)


def test_a_base_on_this_machine_is_planned_by_its_own_configuration(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    assert architecture_of(load_recipe("kg-r1", {"base_model": str(tmp_path)})) == SMALL


def test_a_base_of_unknown_size_cannot_be_planned():
    with pytest.raises(PlanError, match="hf download .* only the sizes of"):
        architecture_of(load_recipe("kg-r1", {"base_model": "nobody/nothing"}))


def test_rows_are_shortened_until_they_fit_and_no_further_than_an_episode(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    changes = {"base_model": str(tmp_path), "rollout.max_tokens": 1024, "optimisation.token_budget": 16384}
    recipe = load_recipe("isp-kgr", {**changes, "cold_start": None, "curriculum": None})
    roomy = plan(recipe, Machine("cuda", 1, 4 * GIB), details=False)
    assert roomy.fits
    assert roomy.phases["reinforcement"].row == 16384
    most = roomy.phases["reinforcement"].memory.peak
    tight = plan(recipe, Machine("cuda", 1, round(most * 0.8)), details=False)
    assert tight.fits
    assert 1024 < tight.phases["reinforcement"].row < 16384
    shortened = with_rows_of(recipe, tight)
    assert shortened.optimisation.token_budget == tight.phases["reinforcement"].row
    assert plan(shortened, tight.machine, details=False).fits
    refused = plan(recipe, Machine("cuda", 1, round(most * 0.05)), details=False)
    assert not refused.fits


def test_gpus_compute_in_bf16_and_recompute_activations_unless_a_recipe_says_otherwise():
    recipe = load_recipe("kg-r1-small", {"optimisation.precision": "fp32"})
    open_one = recipe.model_copy(
        update={
            "optimisation": recipe.optimisation.model_validate(
                recipe.optimisation.model_dump(exclude={"precision", "gradient_checkpointing"})
            )
        }
    )
    on_gpu = resolved(open_one, "cuda").optimisation
    assert (on_gpu.precision, on_gpu.gradient_checkpointing) == ("bf16", True)
    assert resolved(recipe, "cuda").optimisation.precision == "fp32"
    assert resolved(open_one, "cpu") is open_one


@pytest.mark.parametrize("name", LARGE)
def test_large_recipes_fit_by_what_they_set_themselves(name):
    recipe = load_recipe(name)
    assert recipe.optimisation.precision == "bf16"
    assert recipe.optimisation.gradient_checkpointing


def test_what_does_not_fit_this_machine_is_refused_before_anything_is_loaded():
    if torch.cuda.is_available():
        pytest.skip("the recipe may fit a GPU")
    with pytest.raises(MachineTooSmallError, match=r"does not fit CPU.* Train on \d+ GPU"):
        fitted(load_recipe("knowcoder-a1", {"cold_start": None}))


class Planned(Exception):
    """Raised with the order of a plan."""


def test_a_plan_is_made_for_all_nodes_that_share_the_training(monkeypatch):
    def run(command, input, **options):
        raise Planned(json.loads(input))

    monkeypatch.setattr("kbqa.planning.guard.subprocess.run", run)
    with pytest.raises(Planned) as made:
        fitted(load_recipe("kbqa-r1"), 4, nodes=2)
    order = made.value.args[0]
    assert (order["processes"], order["nodes"]) == (4, 2)
    assert machine_here(4, nodes=2).ranks == 2 * machine_here(4).ranks


def test_a_host_holds_a_copy_of_what_is_trained_while_a_checkpoint_is_written():
    work = Workload(SMALL, CONFIG, episode=512, written=0.5)
    one, four = memory_of(work), memory_of(replace(work, ranks=4))
    whole = 4 * parameters_of(SMALL)
    assert on_host(work, one, nodes=1) == 3 * whole
    # Beside it the first process keeps the whole weights; each node copies its own part.
    assert on_host(replace(work, ranks=4), four, nodes=1) == pytest.approx(whole + 3 * whole, rel=0.01)
    assert on_host(replace(work, ranks=4), four, nodes=4) == pytest.approx(whole + 3 * whole / 4, rel=0.01)


def test_a_host_that_cannot_hold_a_checkpoint_is_refused_and_the_advice_suffices(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(SMALL))
    changes = {
        "base_model": str(tmp_path),
        "rollout.max_tokens": 1024,
        "cold_start": None,
        "curriculum": None,
    }
    recipe = load_recipe("isp-kgr", changes)
    roomy = Machine("cuda", 1, 80 * GIB, host=80 * GIB)
    needed = plan(recipe, roomy, details=False).host
    tight = plan(recipe, replace(roomy, host=needed), details=False)
    assert not tight.fits
    assert tight.phases["reinforcement"].fits
    assert "on the host while a checkpoint is written" in refusal(tight)
    advised = int(re.search(r"give each host (\d+) GiB", refusal(tight), re.I)[1])
    assert plan(recipe, replace(roomy, host=advised * GIB), details=False).fits


def test_policies_that_choose_or_begin_with_random_weights_are_not_planned():
    for name in ("kg-r1-small", "kg-r1-chooser"):
        recipe = load_recipe(name)
        assert fitted(recipe) is recipe


def sizes_in_docs() -> dict[str, tuple[int, int]]:
    """Recipe → GPUs and GiB of each, in the table of docs/install.md."""
    rows = re.findall(r"^\| `([a-z0-9-]+)` \| (\d+) × (\d+) GB", INSTALL.read_text(), re.M)
    return {name: (int(gpus), int(memory)) for name, gpus, memory in rows}


def test_every_large_recipe_has_a_size_in_the_docs():
    assert sizes_in_docs().keys() == set(LARGE)


@pytest.mark.integration
@pytest.mark.parametrize("name", LARGE)
def test_the_documented_size_fits_and_one_less_does_not(name):
    recipe, size = resolved(load_recipe(name), "cuda"), sizes_in_docs()[name]
    gpus, memory = size
    assert plan(recipe, Machine("cuda", gpus, memory * GIB), details=False).fits
    gpus, memory = SIZES[SIZES.index(size) - 1]
    assert not plan(recipe, Machine("cuda", gpus, memory * GIB), details=False).fits


@pytest.mark.integration
@pytest.mark.parametrize("scenario", ["default", "multi-gpu", "multi-node"])
def test_what_a_scenario_of_the_chart_trains_fits_its_gpus_of_80_gib_and_its_hosts(scenario):
    trainer = merged(defaults(), values_of(scenario))["trainer"]
    recipe = load_recipe(trainer["autoStart"]["recipe"], trainer["autoStart"]["overrides"])
    host = int(trainer["resources"]["limits"]["memory"].removesuffix("Gi")) * GIB
    machine = Machine("cuda", trainer["gpus"], 80 * GIB, trainer["nodes"], host)
    assert plan(resolved(recipe, "cuda"), machine, details=False).fits


@pytest.mark.integration
@pytest.mark.parametrize("checkpointing", [True, False])
def test_a_plan_agrees_with_the_resident_memory_of_a_real_step(checkpointing):
    """50 million parameters on CPUs, in a process of its own."""
    architecture = {
        **SMALL,
        "hidden_size": 512,
        "intermediate_size": 2048,
        "num_hidden_layers": 12,
        "vocab_size": 12000,
    }
    config = replace(CONFIG, precision="fp32", gradient_checkpointing=checkpointing)
    work = Workload(architecture, config, episode=512, written=0.5, cuda=False)
    order = json.dumps({"architecture": architecture, "checkpointing": checkpointing})
    program = Path(__file__).parent / "resident.py"
    done = subprocess.run([sys.executable, str(program), order], capture_output=True, text=True, check=True)
    assert memory_of(work).peak == pytest.approx(int(done.stdout), rel=0.1)
