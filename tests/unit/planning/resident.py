"""Takes two real training steps on CPUs; prints by how many bytes resident memory grew at most."""

import ctypes
import gc
import json
import resource
import sys

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from kbqa.planning.step import Workload, full_rows
from kbqa.training.grpo import GrpoConfig, grpo_step, make_optimiser
from kbqa.training.likelihood import likelihood_of

order = json.loads(sys.argv[1])
config = GrpoConfig(token_budget=2048, gradient_checkpointing=order["checkpointing"])


def steps(architecture: dict[str, object], count: int) -> None:
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**architecture), dtype=torch.float32)
    if config.gradient_checkpointing:
        model.gradient_checkpointing_enable()
        model.train()
    likelihood = likelihood_of(model)
    optimiser = make_optimiser(likelihood, config)
    samples = full_rows(Workload(architecture, config, episode=512, written=0.5))
    for _ in range(count):
        grpo_step(likelihood, optimiser, samples, config)


def peak() -> int:
    """Peak resident memory, in bytes. That of getrusage may be the parent's, from before this program ran."""
    with open("/proc/self/status") as file:
        (line,) = (line for line in file if line.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


# Freed blocks of any size go back to the system at once, so that resident memory is what is in use.
ctypes.CDLL("libc.so.6").mallopt(-3, 64 * 1024)
torch.set_num_threads(1)
tiny = {
    **order["architecture"],
    "num_hidden_layers": 1,
    "hidden_size": 64,
    "intermediate_size": 64,
    "vocab_size": 256,
}
steps(tiny, 1)  # loads the libraries that a step needs
gc.collect()
with open("/proc/self/statm") as file:
    before = int(file.read().split()[1]) * resource.getpagesize()
steps(order["architecture"], 2)
print(peak() - before)  # noqa: T201
