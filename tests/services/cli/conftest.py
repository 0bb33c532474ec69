"""The `kbqa` command as a real process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import psutil
import pytest

from kbqa.policy_store import PolicyStore
from kbqa.recipes import load_recipe
from services.cli.__main__ import main
from tests.services.gateway.conftest import kg_server_url  # noqa: F401 (a fixture here, too)
from tests.unit.encoders import save_encoder
from tests.unit.policies_fixtures import make_model, make_tokenizer


def clean_environment(**variables):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("KBQA_", "REDIS_URL"))}
    return kept | {"COLUMNS": "200"} | variables


@pytest.fixture
def kbqa(tmp_path):
    """Starts `kbqa` with the given arguments under a KBQA_HOME of its own; kills it in the end."""
    started = []

    def start(*arguments, **variables):
        # Tests that a shell has started in the background ignore Ctrl-C, and so would their children.
        inherited = signal.signal(signal.SIGINT, signal.default_int_handler)
        process = subprocess.Popen(
            [sys.executable, "-m", "services.cli", *arguments],
            env=clean_environment(KBQA_HOME=str(tmp_path / "home"), **variables),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        signal.signal(signal.SIGINT, inherited)
        started.append(process)
        return process

    yield start
    for process in started:
        if process.poll() is None:
            process.kill()
        process.communicate()


@pytest.fixture
def run(kbqa):
    """Runs `kbqa` to its end: exit code and output."""

    def to_the_end(*arguments, **variables):
        process = kbqa(*arguments, **variables)
        output, _ = process.communicate(timeout=60)
        return process.returncode, output

    return to_the_end


def family(pid):
    """All descendants of a process."""
    return psutil.Process(pid).children(recursive=True)


def runs(process):
    """Whether a process runs; it may end while that is asked."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def gone(processes, timeout_s):
    """Whether none of them runs any more, at the latest after `timeout_s`."""
    deadline = time.monotonic() + timeout_s
    while alive := [process for process in processes if runs(process)]:
        if time.monotonic() > deadline:
            return alive == []
        time.sleep(0.05)
    return True


@pytest.fixture
def in_process(monkeypatch, capsys, tmp_path):
    """Runs a command in this process, under a KBQA_HOME of its own: exit code, output, errors."""
    for name in list(os.environ):
        if name.startswith("KBQA_") or name == "REDIS_URL":
            monkeypatch.delenv(name)
    monkeypatch.setenv("KBQA_HOME", str(tmp_path / "home"))
    monkeypatch.setenv("COLUMNS", "200")

    def command(*arguments, **variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)
        code = main(arguments)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return command


LINES = [
    "who is a parent of [Ada]\tByron|Annabella",
    "who are the parents of [Eve]\tAdam",
    "[Ada] is the child of whom\tByron",
]


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    """The files of a tiny policy that has learned nothing."""
    directory = tmp_path_factory.mktemp("tiny")
    make_model().save_pretrained(directory)
    make_tokenizer().save(str(directory / "tokenizer.json"))
    return directory


@pytest.fixture
def store(tmp_path, model):
    """The policy store of the test's home, with two versions of the run `tiny`."""
    store = PolicyStore(tmp_path / "home" / "policies")
    overrides = {
        "protocol.entities": "names",
        "rollout.max_turns": 2,
        "rollout.max_turn_tokens": 8,
        "rollout.max_tokens": 200,
    }
    recipe = load_recipe("kg-r1-small", overrides)

    def write(directory):
        for file in model.iterdir():
            (directory / file.name).write_bytes(file.read_bytes())

    for number in (1, 2):
        store.publish(
            "tiny",
            number,
            write,
            recipe=recipe.model_dump(mode="json"),
            recipe_digest=recipe.digest(),
            step=number,
            metrics={},
        )
    return store


@pytest.fixture
def data(tmp_path):
    """MetaQA's directory, as it is published, but smaller."""
    directory = tmp_path / "films"
    directory.mkdir()
    (directory / "kb.txt").write_text("Ada|parent|Byron\nAda|parent|Annabella\nEve|parent|Adam\n")
    (directory / "1hop_test.txt").write_text("".join(f"{line}\n" for line in LINES))
    return directory


@pytest.fixture(scope="session")
def encoder(tmp_path_factory):
    """A tiny sentence encoder, with what sentence-transformers writes beside it."""
    directory = save_encoder(tmp_path_factory.mktemp("encoder"))
    (directory / "modules.json").write_text("[]")
    (directory / "sentence_bert_config.json").write_text('{"max_seq_length": 16}')
    (directory / "1_Pooling").mkdir()
    (directory / "1_Pooling" / "config.json").write_text('{"pooling_mode_mean_tokens": true}')
    return directory
