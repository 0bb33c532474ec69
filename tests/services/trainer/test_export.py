"""A version or a checkpoint becomes a directory that transformers loads; over HTTP, a tar archive of it."""

from __future__ import annotations

import io
import logging
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fastapi import FastAPI
from fastapi.testclient import TestClient
from prometheus_client import CollectorRegistry

from kbqa.errors import CheckpointError, NoPolicyError, PolicyIntegrityError, RunError
from kbqa.policies.in_process import load_model
from kbqa.policy_store import PolicyStore
from kbqa.recipes import recipe_from
from kbqa.runs.directory import RunDirectory, Runs, SplitLimits
from kbqa.runs.export import export
from kbqa.runs.journal import Journal
from kbqa.runs.student import Student
from kbqa.telemetry.metrics import Metrics
from kbqa.training.adapters import add_adapter
from kbqa.training.checkpoints import Checkpoints
from kbqa.training.tensor_files import TrainedTensors
from services.http import install
from services.trainer.errors import STATUS
from services.trainer.export import main
from services.trainer.exports import exports_router


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def run(home: Path, tiny_recipe) -> RunDirectory:
    """A run that began reinforcement learning with its base, and has a checkpoint of step 3."""
    recipe = recipe_from(tiny_recipe)
    directory = Runs(home / "runs").create(recipe, "world", SplitLimits(), 1)
    student = Student.fresh(recipe.small_policy.build(), ["Who is Ann?"] * 20, ["<think>"], seed=1)
    base = PolicyStore(home / "policies").publish(
        directory.id,
        1,
        student.save,
        recipe=recipe.model_dump(mode="json"),
        recipe_digest=recipe.digest(),
        step=0,
        metrics={},
    )
    Journal(directory).keep(versions={"base": base.id})
    with torch.no_grad():
        for parameter in student.model.parameters():
            parameter.add_(1.0)
    optimiser = torch.optim.AdamW(student.model.parameters())
    checkpoints = Checkpoints(directory.checkpoints_path, directory.id)
    checkpoints.save(3, TrainedTensors(student.model, optimiser), {})
    checkpoints.wait()
    return directory


def norm(path: Path) -> torch.Tensor:
    return load_model(path).model.norm.weight


def test_a_version_is_copied_less_what_is_ours(run, home, tmp_path) -> None:
    store = PolicyStore(home / "policies")
    export(store, run, tmp_path / "out" / "policy")
    version = store.newest(run.id)
    names = {path.name for path in (tmp_path / "out" / "policy").iterdir()}
    assert names == version.manifest.files.keys() - {"recipe.json"}
    assert torch.equal(norm(tmp_path / "out" / "policy"), norm(version.path))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["policy"]


def test_a_checkpoint_has_its_own_weights_and_the_runs_tokenizer(run, home, tmp_path) -> None:
    store = PolicyStore(home / "policies")
    export(store, run, tmp_path / "policy", checkpoint=3)
    base = store.newest(run.id)
    assert torch.equal(norm(tmp_path / "policy"), norm(base.path) + 1.0)
    assert (tmp_path / "policy" / "tokenizer.json").read_bytes() == (
        base.path / "tokenizer.json"
    ).read_bytes()


def test_an_adapter_of_a_language_model_is_merged_into_its_base(home, tmp_path, tiny_recipe) -> None:
    """The first version of such a run is an adapter, too: the weights are in the base alone."""
    fresh = Student.fresh(
        recipe_from(tiny_recipe).small_policy.build(), ["Who is Ann?"] * 20, ["<think>"], seed=1
    )
    base = tmp_path / "base"
    base.mkdir()
    fresh.save(base)
    lora = {"rank": 8, "alpha": 16, "targets": ["q_proj"]}
    values = {**tiny_recipe, "base_model": str(base), "small_policy": None, "cold_start": None}
    values["optimisation"] = {**tiny_recipe["optimisation"], "lora": lora}
    recipe = recipe_from(values)
    directory = Runs(home / "runs").create(recipe, "world", SplitLimits(), 1)
    student, store = Student.load(base), PolicyStore(home / "policies")
    add_adapter(student.model, recipe.optimisation.lora.build(), seed=1)
    about = {"recipe": recipe.model_dump(mode="json"), "recipe_digest": recipe.digest(), "metrics": {}}
    first = store.publish(directory.id, 1, student.save, step=0, kind="lora", base_model=str(base), **about)
    Journal(directory).keep(versions={"base": first.id})
    with torch.no_grad():
        for name, parameter in student.model.named_parameters():
            if "lora_B" in name:
                parameter.add_(0.5)
    store.publish(directory.id, 2, student.save, step=1, kind="lora", base_model=str(base), **about)

    export(store, directory, tmp_path / "merged")
    projections = [load_model(path).model.layers[0].self_attn for path in (base, tmp_path / "merged")]
    assert not torch.equal(projections[0].q_proj.weight, projections[1].q_proj.weight)
    assert torch.equal(projections[0].k_proj.weight, projections[1].k_proj.weight)


def test_what_cannot_be_exported_leaves_nothing_behind(run, home, tmp_path) -> None:
    store = PolicyStore(home / "policies")
    with pytest.raises(NoPolicyError):
        export(store, run, tmp_path / "policy", version="v000009-00000000")
    with pytest.raises(CheckpointError, match="there are: 3"):
        export(store, run, tmp_path / "policy", checkpoint=4)
    (store.newest(run.id).path / "config.json").write_text("{}")
    with pytest.raises(PolicyIntegrityError):
        export(store, run, tmp_path / "policy")
    assert not (tmp_path / "policy").exists()
    (tmp_path / "policy").mkdir()
    with pytest.raises(RunError, match="already exists"):
        export(store, run, tmp_path / "policy")


@pytest.fixture
def logging_of_its_own() -> Iterator[None]:
    """A command sends the log of its whole process elsewhere; afterwards it goes where it went before."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)


@pytest.mark.usefixtures("logging_of_its_own")
def test_the_command_says_what_is_wrong_in_a_line(run, home, tmp_path, capsys) -> None:
    into = ["--into", str(tmp_path / "policy")]
    assert main(["--home", str(home), "--run", run.id, *into, "--checkpoint", "9"]) == 1
    assert capsys.readouterr().err == (f"error: run {run.id} has no checkpoint of step 9 (there are: 3)\n")
    assert main(["--home", str(home), "--run", run.id, *into]) == 0
    assert (tmp_path / "policy" / "model.safetensors").exists()


def test_over_http_it_is_a_tar_archive(run, home, tmp_path) -> None:
    app = FastAPI()
    metrics = Metrics(CollectorRegistry())
    install(app, service="trainer", metrics=metrics, readiness=lambda: None, errors=STATUS)
    app.include_router(exports_router(Runs(home / "runs"), home))
    with TestClient(app) as client:
        answer = client.get(f"/v1/runs/{run.id}/export", params={"checkpoint": 3})
        assert answer.status_code == 200
        with tarfile.open(fileobj=io.BytesIO(answer.content)) as archive:
            files = {name: archive.extractfile(name).read() for name in archive.getnames()}
        export(PolicyStore(home / "policies"), run, tmp_path / "expected", checkpoint=3)
        assert files == {path.name: path.read_bytes() for path in (tmp_path / "expected").iterdir()}
        assert list((home / "exports").iterdir()) == []

        refused = client.get(f"/v1/runs/{run.id}/export", params={"checkpoint": 4})
        assert (refused.status_code, "there are: 3" in refused.json()["detail"]) == (409, True)
        assert client.get("/v1/runs/nothing/export").status_code == 404
        assert list((home / "exports").iterdir()) == []
