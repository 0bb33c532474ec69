"""The small commands, exit codes and error lines."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from kbqa import __version__
from kbqa.policy_store import PolicyStore
from services.cli import __main__ as command_line


@pytest.fixture
def store(tmp_path):
    """The policy store of the test's home, with two versions of the run `world-1`."""
    store = PolicyStore(tmp_path / "home" / "policies")
    for number in (1, 2):

        def write(directory, number=number):
            (directory / "model.safetensors").write_text(str(number))

        store.publish(
            "world-1",
            number,
            write,
            recipe={"name": "kg-r1-small"},
            recipe_digest="0" * 64,
            step=number,
            metrics={"f1": 0.5},
        )
    return store


def test_version(in_process):
    assert in_process("version") == (0, f"kbqa {__version__}\n", "")


def test_help_lists_the_commands_and_needs_no_torch(run):
    code, output = run("--help")
    assert code == 0
    for name in (
        "ask",
        "cold-start",
        "data",
        "demo",
        "eval",
        "kg",
        "promote",
        "recipe",
        "runs",
        "serve",
        "status",
        "train",
        "up",
        "version",
    ):
        assert f" {name} " in output
    heavy = "import services.cli.__main__ as m, sys; m.main(['--help']); sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", heavy], stdout=subprocess.DEVNULL).returncode == 0


def test_the_first_process_of_a_container_ends_when_it_is_told_to(monkeypatch):
    default = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr(os, "getpid", lambda: 1)
    try:
        assert command_line.main(["version"]) == 0
        with pytest.raises(SystemExit) as ended:
            signal.raise_signal(signal.SIGTERM)
        assert ended.value.code == 143
    finally:
        signal.signal(signal.SIGTERM, default)


def test_graphs_are_loaded_and_listed(in_process, tmp_path):
    file = tmp_path / "films.txt"
    file.write_text("Big\tstarred\tTom Hanks\nBig\tstarred\tElizabeth Perkins\n")
    code, out, _ = in_process("kg", "load", "films", str(file))
    assert (code, out.startswith("loaded films: 2 triples, 3 entities, version ")) == (0, True)
    assert "films" in in_process("kg", "list")[1]
    listed = json.loads(in_process("kg", "list", "--json")[1])
    assert [(graph["name"], graph["triples"]) for graph in listed] == [("films", 2)]


def test_a_file_that_cannot_be_loaded_is_an_error_with_its_line(in_process, tmp_path):
    file = tmp_path / "bad.txt"
    file.write_text("a\tb\tc\na\tb\n")
    code, out, err = in_process("kg", "load", "bad", str(file))
    assert (code, out) == (2, "")
    assert err.startswith(f"error: {file}:2: ")
    assert in_process("kg", "list")[1].startswith("no graph is loaded")


def test_an_unknown_format_is_a_usage_error(in_process, tmp_path):
    code, _, err = in_process("kg", "load", "x", "y", "--format", "csv")
    assert code == 2
    assert "ntriples" in err


def test_the_newest_version_is_promoted_unless_one_is_named(in_process, store):
    code, out, _ = in_process("promote", "world-1")
    assert (code, out.startswith("promoted v000002-")) == (0, True)
    assert store.promoted().number == 2
    first = store.versions("world-1")[0].id
    assert in_process("promote", "world-1", "--version", first)[0] == 0
    assert store.promoted().id == first


def test_promoting_what_is_not_there_names_what_is(in_process, store):
    code, _, err = in_process("promote", "world-2")
    assert (code, "runs with policies: world-1" in err) == (2, True)
    assert in_process("promote", "../x")[0] == 2
    assert in_process("promote", "world-1", "--version", "v000009-00000000")[0] == 2


def test_recipes_are_listed_and_shown(in_process):
    assert "kg-r1-small" in in_process("recipe", "list")[1].splitlines()
    code, out, _ = in_process("recipe", "show", "kg-r1-small", "--set", "schedule.steps=7")
    assert (code, "  steps: 7\n" in out) == (0, True)
    for arguments in (["nope"], ["kg-r1-small", "--set", "schedule.stepz=7"], ["kg-r1-small", "--set", "x"]):
        code, _, err = in_process("recipe", "show", *arguments)
        assert (code, err.startswith("error: "), err.count("\n")) == (2, True, 1)


def test_a_recipe_is_checked(in_process, tmp_path):
    code, out, _ = in_process("recipe", "check", "kg-r1")
    assert (code, out.startswith("kg-r1 is a valid recipe (digest ")) == (0, True)
    mine = tmp_path / "mine.yaml"
    mine.write_text("extends: kg-r1\nname: mine\nrollout: {n: 0}\nreward: {w_formt: 1}\n")
    code, out, err = in_process("recipe", "check", str(mine))
    assert (code, out) == (1, "")
    assert "rollout.n: Input should be greater than or equal to 1" in err
    assert "reward.w_formt: unknown key (known: name, w_format" in err


def test_two_recipes_are_compared(in_process):
    assert in_process("recipe", "diff", "kg-r1", "kg-r1") == (0, "", "")
    code, out, _ = in_process("recipe", "diff", "knowcoder-a1", "knowcoder-a1-phase-2")
    changed = out.splitlines()  # the second phase begins where the first one ended, and is shorter
    assert code == 1
    assert {"reward.beta: 0.5 -> 1.0", "schedule.steps: 85 -> 55", "cold_start.epochs: 8 -> -"} <= {*changed}
    code, out, _ = in_process("recipe", "diff", "kg-r1", "kg-r1", "--set", "schedule.max_seconds=5")
    assert (code, out) == (1, "schedule.max_seconds: None -> 5.0\n")


def test_status_tells_what_is_missing(in_process, store):
    urls = {
        f"KBQA_{name}_URL": "http://127.0.0.1:9"
        for name in ("KG_SERVER", "ROLLOUT_WORKER", "TRAINER", "GATEWAY")
    }
    code, out, _ = in_process("status", **urls)
    assert code == 1
    assert out.count("does not answer") == 4
    assert "no policy is promoted yet" in out
    in_process("promote", "world-1")
    assert "of run world-1, recipe kg-r1-small" in in_process("status", **urls)[1]


def test_a_service_that_is_served_reads_its_own_options(run):
    code, output = run("serve", "gateway", "--help")
    assert (code, "--kg-server-url" in output) == (0, True)
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        code, output = run("serve", "kg-server", "--port", str(port))
    assert code == 2
    assert f"port {port} on 127.0.0.1 is in use" in output
    assert "Traceback" not in output


def test_surprises_are_one_line_and_debug_adds_the_trace(in_process, monkeypatch):
    def surprise():
        raise RuntimeError("surprise")

    monkeypatch.setattr(command_line, "create_cli", lambda: lambda **_: surprise())
    assert in_process("version") == (
        1,
        "",
        "unexpected error: RuntimeError: surprise (KBQA_DEBUG=1 shows where)\n",
    )
    code, _, err = in_process("version", KBQA_DEBUG="1")
    assert (code, "Traceback" in err) == (1, True)


def test_no_arguments_show_the_help_and_a_wrong_command_its_error(in_process):
    assert "Usage" in "".join(in_process()[1:])
    code, _, err = in_process("bogus")
    assert (code, "bogus" in err) == (2, True)
