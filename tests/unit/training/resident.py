"""Resident memory of the ranks that share a model, started by torchrun from a test: resident.py FILE.

Rank 0 measures its followers from outside: before they get a part of a large model, with it, and the most in
between, as bytes in FILE.
"""

import json
import os
import sys
from pathlib import Path

import psutil
import torch
from transformers import Qwen2Config, Qwen2ForCausalLM

from kbqa.training.learner import begin, follow
from kbqa.training.ranks import Ranks
from kbqa.training.sft import Example, SftConfig


def main(file: Path) -> None:
    torch.set_num_threads(1)
    ranks = Ranks.join()
    pids = ranks.all_of(os.getpid())
    if ranks.rank:
        follow(ranks)
    else:
        file.write_text(json.dumps(measure(pids[1:], ranks)))
    ranks.leave()


def measure(followers: list[int], ranks: Ranks) -> dict:
    small = begin(model(width=32, layers=1), SftConfig(), ranks=ranks)
    small.imitate([Example((1, 2, 3), (False, True, True))], 1e-3)  # loads all code that there is to load
    small.gather()
    before = [resident(pid) for pid in followers]
    for pid in followers:
        Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak is counted from now on
    large = model(width=1024, layers=6)
    begin(large, SftConfig(), ranks=ranks).gather()
    return {
        "whole": sum(p.numel() * p.element_size() for p in large.parameters()),
        "before": before,
        "with": [resident(pid) for pid in followers],
        "peak": [peak(pid) for pid in followers],
    }


def model(width: int, layers: int) -> Qwen2ForCausalLM:
    """A model whose weights are all the same: random ones take long to draw."""
    config = Qwen2Config(
        vocab_size=512,
        hidden_size=width,
        intermediate_size=4 * width,
        num_hidden_layers=layers,
        num_attention_heads=8,
        num_key_value_heads=8,
        max_position_embeddings=64,
        tie_word_embeddings=True,
    )
    with torch.device("meta"):
        made = Qwen2ForCausalLM(config)
    made.to_empty(device="cpu")
    made.tie_weights()
    with torch.no_grad():
        for tensor in (*made.parameters(), *made.buffers()):
            tensor.fill_(0.01)
    return made


def resident(pid: int) -> int:
    return psutil.Process(pid).memory_info().rss


def peak(pid: int) -> int:
    [line] = [line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if "VmHWM" in line]
    return 1024 * int(line.split()[1])


if __name__ == "__main__":
    main(Path(sys.argv[1]))
