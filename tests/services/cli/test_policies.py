"""`kbqa policy`: what is published, what changed, and whether it is whole."""

from __future__ import annotations

import json

import numpy as np
import pytest
from safetensors.numpy import save_file

from kbqa.policy_store import PolicyStore


@pytest.fixture
def store(tmp_path):
    return PolicyStore(tmp_path / "home" / "policies")


@pytest.fixture
def versions(store):
    def publish(number):
        weights = {"layer.weight": np.full((2, 2), 2.0 + number), "head.weight": np.ones(3)}
        return store.publish(
            "world-1",
            number,
            lambda directory: save_file(weights, directory / "model.safetensors"),
            recipe={"name": "kg-r1-small"},
            recipe_digest="0" * 64,
            step=number,
            metrics={"f1": number / 4},
        )

    return [publish(number) for number in (1, 2)]


def test_versions_are_listed_and_shown(in_process, store, versions):
    store.promote("world-1", versions[0].id)
    code, output, _ = in_process("policy", "list")
    assert code == 0
    promoted, newest = output.splitlines()[1:]
    assert versions[0].id in promoted
    assert promoted.strip().endswith("promoted")
    assert versions[1].id in newest
    listed = json.loads(in_process("policy", "list", "world-1", "--json")[1])
    assert [(v["id"], v["promoted"]) for v in listed] == [(versions[0].id, True), (versions[1].id, False)]
    assert json.loads(in_process("policy", "show", "world-1")[1])["id"] == versions[1].id
    assert json.loads(in_process("policy", "show", "world-1", versions[0].id)[1])["step"] == 1


def test_relations_that_a_graph_lost_are_told_with_the_policies_that_were_trained_on_it(
    in_process, store, tmp_path
):
    def save(directory):
        save_file({"head.weight": np.ones(3)}, directory / "model.safetensors")

    about = {
        "recipe": {"name": "r"},
        "recipe_digest": "0" * 64,
        "step": 1,
        "metrics": {},
        "graphs": ("films",),
    }
    store.publish("films-1", 1, save, **about)
    file = tmp_path / "films.txt"
    file.write_text("Big|starred|Tom Hanks\nBig|genre|Comedy\n")
    assert in_process("kg", "load", "films", str(file))[0] == 0
    assert in_process("policy", "list")[2] == ""
    file.write_text("Big|genre|Comedy\n")
    assert in_process("kg", "update", "films", "--delete", str(file))[0] == 0
    assert "no fact of films has these relations any more" in in_process("policy", "list")[2]
    [listed] = json.loads(in_process("policy", "list", "--json")[1])
    assert listed["lost_relations"] == {"films": ["genre"]}


def test_what_changed_is_told_by_field_and_tensor(in_process, versions):
    arguments = ("policy", "diff", "world-1", versions[0].id, versions[1].id)
    code, output, _ = in_process(*arguments)
    assert code == 0
    assert "metrics.f1: 0.25 → 0.5" in output
    assert "layer.weight  2×2" in output
    assert "33.33%" in output
    assert "1 tensors have changed, 1 have not" in output
    changes = json.loads(in_process(*arguments, "--json")[1])
    assert changes["tensors"]["layer.weight"] == {"norm": 2.0, "relative": pytest.approx(1 / 3)}


def test_damage_is_found(in_process, versions):
    assert in_process("policy", "verify")[0] == 0
    (versions[0].path / "model.safetensors").write_bytes(b"x")
    code, output, _ = in_process("policy", "verify")
    assert code == 1
    assert f"{versions[1].id}: ok" in output
    assert "model.safetensors does not match its checksum" in output


@pytest.mark.parametrize(
    "arguments", [("show", "../x"), ("show", "world-1", "../../etc"), ("show", "nobody"), ("list", "a/b")]
)
def test_what_is_not_there_is_named(in_process, versions, arguments):
    code, _, errors = in_process("policy", *arguments)
    assert code == 2
    assert arguments[-1] in errors


def test_another_store_may_be_named(in_process, versions, tmp_path):
    code, output, _ = in_process("policy", "list", "--store", str(tmp_path / "elsewhere"))
    assert (code, output) == (0, "there is no policy version yet: train one with kbqa train\n")
