"""The configuration of a recipe's model: of the base on this machine, or of the published base."""

from __future__ import annotations

import json
from typing import Any

from kbqa.bases import ENCODERS, sight, ways_to_get
from kbqa.errors import PlanError
from kbqa.recipes import Recipe

_QWEN = {"model_type": "qwen2", "max_position_embeddings": 32768}
_QWEN_7B = {
    **_QWEN,
    "hidden_size": 3584,
    "intermediate_size": 18944,
    "num_hidden_layers": 28,
    "num_attention_heads": 28,
    "num_key_value_heads": 4,
    "vocab_size": 152064,
    "tie_word_embeddings": False,
}
# Commits on the hub, so that every download gives the same files.
REVISIONS = {
    "Qwen/Qwen2.5-3B-Instruct": "aa8e72537993ba99e69dfaafa59ed015b17504d1",
    "Qwen/Qwen2.5-7B-Instruct": "a09a35458c702b33eeacc393d103063234e8bc28",
    "Qwen/Qwen2.5-Coder-7B": "0396a76181e127dfc13e5c5ec48a8cee09938b02",
    "meta-llama/Llama-3.1-8B-Instruct": "0e9e39f249a16976918f6564b8830bc894c89659",
    "HuggingFaceTB/SmolLM2-135M-Instruct": "12fd25f77366fa6b3b4b768ec3050bf629380bac",
}
# Numbers of the published config.json of the recipes' bases.
PUBLISHED: dict[str, dict[str, Any]] = {
    "Qwen/Qwen2.5-3B-Instruct": {
        **_QWEN,
        "hidden_size": 2048,
        "intermediate_size": 11008,
        "num_hidden_layers": 36,
        "num_attention_heads": 16,
        "num_key_value_heads": 2,
        "vocab_size": 151936,
        "tie_word_embeddings": True,
    },
    "Qwen/Qwen2.5-7B-Instruct": _QWEN_7B,
    "Qwen/Qwen2.5-Coder-7B": _QWEN_7B,
    "meta-llama/Llama-3.1-8B-Instruct": {
        "model_type": "llama",
        "hidden_size": 4096,
        "intermediate_size": 14336,
        "num_hidden_layers": 32,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "vocab_size": 128256,
        "max_position_embeddings": 131072,
        "tie_word_embeddings": False,
    },
    "HuggingFaceTB/SmolLM2-135M-Instruct": {
        "model_type": "llama",
        "hidden_size": 576,
        "intermediate_size": 1536,
        "num_hidden_layers": 30,
        "num_attention_heads": 9,
        "num_key_value_heads": 3,
        "vocab_size": 49152,
        "max_position_embeddings": 8192,
        "tie_word_embeddings": True,
    },
}


def architecture_of(recipe: Recipe) -> dict[str, Any] | None:
    """The configuration of a recipe's language model; None for a policy that chooses, which is an encoder.

    Raises:
        PlanError: the base is not on this machine, and its numbers are not known.
    """
    if recipe.base_model is None:
        small = recipe.small_policy
        if small is None:
            raise PlanError(
                f"recipe {recipe.name} names neither base_model nor small_policy: set one of them"
            )
        return {
            "model_type": "qwen2",
            "hidden_size": small.width,
            "intermediate_size": small.feed_forward,
            "num_hidden_layers": small.layers,
            "num_attention_heads": small.heads,
            "num_key_value_heads": small.heads,
            "vocab_size": small.vocabulary,
            "max_position_embeddings": small.max_length,
            "tie_word_embeddings": small.tied,
        }
    found = sight(recipe.base_model)
    if found is None or not (found[1] / "config.json").is_file():
        if recipe.base_model in PUBLISHED:
            return PUBLISHED[recipe.base_model]
        if found is not None:  # a package's weights, beside which lies the configuration of an encoder
            return None
        raise PlanError(
            f"base model {recipe.base_model} is not on this machine: {ways_to_get(recipe.base_model)} "
            f"(without their files, only the sizes of {', '.join(PUBLISHED)} are known)"
        )
    try:
        values: dict[str, Any] = json.loads((found[1] / "config.json").read_bytes())
    except (OSError, ValueError) as error:
        raise PlanError(f"{found[1]}: no readable config.json ({error})") from error
    return None if values.get("model_type") in ENCODERS else values
