"""`kbqa export` unpacks what the trainer sends, all of it or nothing."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

import pytest
from fastapi import FastAPI
from fastapi.responses import StreamingResponse

from services.http import background, problem
from services.trainer.exports import archive


@pytest.fixture
def trainer(tmp_path: Path, monkeypatch, in_process):
    """A trainer that sends a directory; keeps what it was asked for."""
    directory = tmp_path / "sent"
    (directory / "deep").mkdir(parents=True)
    (directory / "config.json").write_text('{"a": 1}')
    (directory / "deep" / "model.safetensors").write_bytes(bytes(range(256)) * 9000)
    app = FastAPI()
    asked: list[dict[str, str]] = []

    @app.get("/v1/runs/{run}/export")
    def export(run: str, version: str = "", checkpoint: str = "", adapter: bool = False):
        asked.append({"run": run, "version": version, "checkpoint": checkpoint, "adapter": str(adapter)})
        if run == "none":
            return problem(404, "no run 'none'")
        pieces = archive(directory, ExitStack())
        if run == "torn":
            pieces = torn(pieces)
        return StreamingResponse(pieces)

    def torn(pieces):
        yield next(pieces)
        raise OSError("the trainer dies")

    with background(app) as url:
        monkeypatch.setenv("KBQA_TRAINER_URL", url)
        yield asked


def test_a_run_is_exported_into_a_directory(trainer, in_process, tmp_path) -> None:
    into = tmp_path / "out"
    assert in_process("export", "r-1", str(into)) == (0, f"exported to {into}\n", "")
    sent = {path.relative_to(tmp_path / "sent"): path for path in (tmp_path / "sent").rglob("*.*")}
    got = {path.relative_to(into): path for path in into.rglob("*.*")}
    assert {name: path.read_bytes() for name, path in got.items()} == {
        name: path.read_bytes() for name, path in sent.items()
    }
    assert trainer == [{"run": "r-1", "version": "", "checkpoint": "", "adapter": "False"}]


def test_what_is_wanted_is_passed_on(trainer, in_process, tmp_path) -> None:
    assert in_process("export", "r-1", str(tmp_path / "a"), "--checkpoint", "20", "--adapter")[0] == 0
    assert in_process("export", "r-1", str(tmp_path / "b"), "--version", "v000001-00000000")[0] == 0
    assert [request["checkpoint"] + request["version"] for request in trainer] == ["20", "v000001-00000000"]
    assert trainer[0]["adapter"] == "True"


@pytest.mark.parametrize("run", ["none", "torn"])
def test_what_cannot_be_had_leaves_nothing_behind(trainer, in_process, tmp_path, run) -> None:
    before = sorted(tmp_path.iterdir())
    code, _, error = in_process("export", run, str(tmp_path / "out"))
    assert code == 2
    # Before it the trainer, which is in this process, may tell what happened to it.
    assert error.splitlines()[-1].startswith("error: no run 'none'" if run == "none" else "error: ")
    assert sorted(tmp_path.iterdir()) == before


def test_a_directory_that_is_there_is_not_touched(in_process, tmp_path) -> None:
    code, _, error = in_process("export", "r-1", str(tmp_path))
    assert (code, "already exists" in error) == (2, True)
    both = in_process("export", "r-1", str(tmp_path / "x"), "--version", "v", "--checkpoint", "1")
    assert (both[0], "give only one of them" in both[2]) == (2, True)


def test_without_a_trainer_it_looks_into_the_home(in_process, tmp_path) -> None:
    code, _, error = in_process("export", "r-1", str(tmp_path / "out"))
    assert (code, error) == (2, "error: no run 'r-1'; see GET /v1/runs\n")
