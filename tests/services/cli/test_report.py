"""`kbqa report`: a file about the runs that are there, or one line for what is wrong."""

from __future__ import annotations

import json

import pytest

from services.cli.__main__ import main
from tests.services.trainer.made_runs import make_run
from tests.unit.reports.test_findings import FINDING, written


@pytest.fixture
def home(tmp_path):
    make_run(tmp_path / "home", name="one", skills={"base": 0.0, "rl": 0.8})
    make_run(tmp_path / "home", name="two", seed=2)
    return tmp_path / "home"


def names(file):
    text = file.read_text()
    data = json.loads(text.split('id="data">')[1].split("</script>")[0])
    return [run["name"] for run in data["runs"]]


def test_all_runs_of_the_home_are_reported(home, tmp_path, capsys):
    file = tmp_path / "report.html"
    assert main(["report", "--home", str(home), "--output", str(file)]) == 0
    assert names(file) == ["one", "two"]
    assert capsys.readouterr().out == f"{file}: 2 runs\n"


def test_runs_are_named_or_their_directories_are(home, tmp_path):
    file = tmp_path / "report.html"
    assert main(["report", "two", "--home", str(home), "-o", str(file), "--title", "Mine"]) == 0
    assert names(file) == ["two"]
    assert "<title>Mine" in file.read_text()
    assert main(["report", str(home / "runs/one"), "--home", str(tmp_path), "-o", str(file)]) == 0
    assert names(file) == ["one"]


def test_findings_alone_need_no_runs(tmp_path, capsys):
    file, findings = tmp_path / "report.html", written(tmp_path, FINDING)
    assert main(["report", "--findings", str(findings), "--home", str(tmp_path), "-o", str(file)]) == 0
    assert names(file) == []
    assert capsys.readouterr().out == f"{file}: 1 finding\n"


def test_a_damaged_run_is_left_out_and_named(home, tmp_path, capsys):
    (home / "runs/two/run.json").write_text("{")
    file = tmp_path / "report.html"
    assert main(["report", "--home", str(home), "-o", str(file)]) == 0
    assert names(file) == ["one"]
    assert "left out: two: run two cannot be read" in capsys.readouterr().err
    assert main(["report", "two", "--home", str(home), "-o", str(file)]) == 2
    assert "run two cannot be read" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ["--home", "{tmp}/empty"],
            "there is no readable training run in {tmp}/empty/runs: train one with kbqa train",
        ),
        (["three"], "there is no run three under {tmp}/home/runs (it has: one, two)"),
        (["--against", "three"], "--against three: the report has no run of this name (it has: one, two)"),
        (["--output", "{tmp}/none/report.html"], "the directory {tmp}/none does not exist: create it first"),
        (["--output", "{tmp}"], "{tmp} cannot be written: Is a directory"),
        (["--evaluation", "{tmp}/none.json"], "{tmp}/none.json: No such file or directory"),
    ],
)
def test_what_is_wrong_is_said_in_a_line(home, tmp_path, capsys, arguments, said):
    given = [argument.format(tmp=tmp_path) for argument in arguments]
    defaults = ["--home", str(home)] if "--home" not in given else []
    defaults += ["--output", str(tmp_path / "report.html")] if "--output" not in given else []
    assert main(["report", *given, *defaults]) == 2
    error = capsys.readouterr().err
    assert error.startswith("error: ")
    assert error.count("\n") == 1
    assert said.format(tmp=tmp_path) in error
    assert not (tmp_path / "report.html").exists()
