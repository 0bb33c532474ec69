"""What becomes of a package's GGUF: a directory that is whole or not there, whoever else makes it."""

from __future__ import annotations

import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from pathlib import Path

import pytest
from safetensors import safe_open
from tokenizers import Tokenizer
from transformers import AutoTokenizer, GenerationConfig

from kbqa.bases import KNOWN, cache, find_base, sight
from kbqa.bases.cache import converted
from kbqa.errors import BaseNotFoundError
from kbqa.policies.in_process import load_model

SMOLLM2 = KNOWN["HuggingFaceTB/SmolLM2-135M-Instruct"]


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch) -> Path:
    monkeypatch.setenv("KBQA_BASES", str(tmp_path / "bases"))
    return tmp_path / "bases"


class Child:
    """Stands for the process that converts: writes a file, and ends as it was told."""

    def __init__(self, code: int = 0, said: str = "", before=lambda: None) -> None:
        self.code, self.said, self.before, self.calls = code, said, before, 0

    def __call__(self, command, **_) -> subprocess.CompletedProcess[str]:
        self.calls += 1
        Path(command[-1], "model.safetensors").write_bytes(b"half of it")
        self.before()
        return subprocess.CompletedProcess(command, self.code, "", self.said)


def test_of_those_who_ask_at_once_one_converts_and_all_get_the_same(home, monkeypatch) -> None:
    begun = threading.Event()
    child = Child(before=lambda: begun.wait(0.3))
    monkeypatch.setattr(cache.subprocess, "run", child)
    with ThreadPoolExecutor(4) as threads:
        found = set(threads.map(lambda _: converted(SMOLLM2, Path("x.gguf")), range(4)))
    [directory] = found
    assert child.calls == 1
    assert directory.name == "SmolLM2-135M-Instruct-b179c9523d0e-1"
    assert [path for path in home.iterdir() if path.suffix != ".lock"] == [directory]
    assert "license: apache-2.0" in (directory / "README.md").read_text()


def test_a_conversion_that_fails_leaves_nothing_and_says_what_to_install(home, monkeypatch) -> None:
    said = "Traceback …\nImportError: gguf is missing"
    monkeypatch.setattr(cache.subprocess, "run", Child(1, said))
    with pytest.raises(
        BaseNotFoundError, match=r"\(ImportError: gguf is missing\): pip install gguf=="
    ) as raised:
        converted(SMOLLM2, Path("x.gguf"))
    assert "\n" not in str(raised.value)
    assert [path for path in home.iterdir() if path.suffix != ".lock"] == []


def test_what_a_converter_left_that_was_killed_is_removed_by_the_next(home, monkeypatch) -> None:
    left = home / ".aside-SmolLM2-135M-Instruct-b179c9523d0e-1-abc"
    left.mkdir(parents=True)
    (left / "model.safetensors").write_bytes(b"half of it")
    monkeypatch.setattr(cache.subprocess, "run", Child())
    converted(SMOLLM2, Path("x.gguf"))
    assert not left.exists()


def test_a_place_that_cannot_be_written_is_named_with_its_variable(tmp_path, monkeypatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("KBQA_BASES", str(tmp_path / "file"))
    with pytest.raises(BaseNotFoundError, match="KBQA_BASES to a directory with a gigabyte"):
        converted(SMOLLM2, Path("x.gguf"))


@pytest.mark.parametrize(
    ("variables", "place"),
    [
        ({"XDG_CACHE_HOME": "/x", "HOME": "/h"}, "/x/kbqa/bases"),
        ({"XDG_CACHE_HOME": "", "HOME": "/h"}, "/h/.cache/kbqa/bases"),
        ({"KBQA_BASES": "/b", "XDG_CACHE_HOME": "/x"}, "/b"),
    ],
)
def test_the_place_is_a_variable_or_the_users_cache(monkeypatch, variables, place) -> None:
    monkeypatch.delenv("KBQA_BASES")
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    made = []
    monkeypatch.setattr(cache, "_alone", lambda final: made.append(final) or nullcontext())
    monkeypatch.setattr(cache, "_convert_aside", lambda *_: None)
    assert converted(SMOLLM2, Path("x.gguf")).parent == made[0].parent == Path(place)


@pytest.mark.integration
def test_smollm2_becomes_a_directory_that_chats_and_ends_its_turns(home) -> None:
    if sight(SMOLLM2.name) is None:
        pytest.skip(f"not installed: {SMOLLM2.package.how_to_install}")
    ask = f"from kbqa.bases import find_base; print(find_base({SMOLLM2.name!r}).directory)"
    both = [
        subprocess.Popen([sys.executable, "-c", ask], stdout=subprocess.PIPE, text=True) for _ in range(2)
    ]
    answers = {process.communicate(timeout=250)[0].strip() for process in both}
    directory = find_base(SMOLLM2.name).directory
    assert answers == {str(directory)}
    assert [path for path in home.iterdir() if path.suffix != ".lock"] == [directory]
    assert find_base(str(directory)).licence == "Apache-2.0"

    with safe_open(directory / "model.safetensors", "pt") as weights:
        assert {weights.get_slice(name).get_dtype() for name in weights.keys()} == {"F32"}  # noqa: SIM118
    inner = Tokenizer.from_file(str(directory / "tokenizer.json"))
    # Each digit alone, and the spaces before it as they were in training.
    assert inner.encode("a  12\n\n3").tokens == ["a", "ĠĠ", "1", "2", "ĊĊ", "3"]
    end = inner.token_to_id("<|im_end|>")
    assert GenerationConfig.from_pretrained(directory).eos_token_id == end
    tokenizer = AutoTokenizer.from_pretrained(directory)
    asked = tokenizer.apply_chat_template(
        [{"role": "user", "content": "What is the capital of France?"}],
        add_generation_prompt=True,
        return_tensors="pt",
        return_dict=True,
    )
    written = load_model(directory).generate(**asked, max_new_tokens=20, do_sample=False)[0]
    reply = written[asked["input_ids"].shape[1] :].tolist()
    assert tokenizer.decode(reply[:-1]) == "The capital of France is Paris."
    assert reply[-1] == end
