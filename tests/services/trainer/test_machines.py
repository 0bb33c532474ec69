"""Settings of a training by several machines."""

import os

import pytest
import torch

from kbqa.errors import ConfigurationError
from kbqa.recipes import load_recipe
from kbqa.runs.directory import Runs, SplitLimits
from kbqa.runs.journal import Journal
from kbqa.training.ranks import ALONE, Ranks
from services.trainer import __main__ as starting
from services.trainer.__main__ import main
from services.trainer.run import record_device, threads
from services.trainer.settings import TrainerSettings


def test_a_machine_has_one_of_the_numbers_that_there_are(monkeypatch):
    monkeypatch.setenv("KBQA_TRAINING_NODES", "2")
    monkeypatch.setenv("KBQA_TRAINING_NODE_RANK", "2")
    monkeypatch.setenv("KBQA_TRAINING_RENDEZVOUS", "trainer:29500")
    with pytest.raises(ConfigurationError, match="0 to 1"):
        TrainerSettings.load()


def test_several_machines_need_an_address_with_a_port(monkeypatch):
    monkeypatch.setenv("KBQA_TRAINING_NODES", "2")
    with pytest.raises(ConfigurationError, match="HOST:PORT"):
        TrainerSettings.load()
    monkeypatch.setenv("KBQA_TRAINING_RENDEZVOUS", "trainer")
    with pytest.raises(ConfigurationError, match="KBQA_TRAINING_RENDEZVOUS"):
        TrainerSettings.load()


def test_the_trainer_is_refused_on_another_machine_than_the_first(monkeypatch, capsys):
    monkeypatch.setenv("KBQA_TRAINING_NODES", "2")
    monkeypatch.setenv("KBQA_TRAINING_NODE_RANK", "1")
    monkeypatch.setenv("KBQA_TRAINING_RENDEZVOUS", "trainer:29500")
    assert main([]) == 2
    assert "services.trainer.launch" in capsys.readouterr().err


def test_processes_with_gpus_share_the_cores_and_those_without_take_one(monkeypatch):
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(13)))
    monkeypatch.setenv("KBQA_TRAINING_PROCESSES", "4")
    gpu = torch.device("cuda", 0)
    monkeypatch.delenv("KBQA_TRAINER_THREADS", raising=False)
    shared = TrainerSettings.load()
    assert (threads(shared, gpu), threads(shared, torch.device("cpu"))) == (3, 1)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    assert threads(shared, gpu) == 1
    monkeypatch.setenv("KBQA_TRAINER_THREADS", "6")
    assert threads(TrainerSettings.load(), gpu) == 6


@pytest.fixture
def journal(tmp_path):
    return Journal(Runs(tmp_path).create(load_recipe("kg-r1-chooser"), "world", SplitLimits(), 1))


def test_a_run_says_what_it_is_trained_on(journal, monkeypatch, caplog):
    monkeypatch.setattr(torch.version, "cuda", None)
    record_device(TrainerSettings.load(), ALONE, journal)
    assert journal.results["device"] == "cpu"
    assert caplog.records == []
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda device: f"GPU {device.index}")
    record_device(TrainerSettings.load(), Ranks(0, 8, torch.device("cuda", 0)), journal)
    assert journal.results["device"] == "8 × GPU 0"


def test_a_build_for_gpus_that_finds_none_says_so(journal, monkeypatch, caplog):
    monkeypatch.setattr(torch.version, "cuda", "12.8")
    record_device(TrainerSettings.load(), ALONE, journal)
    assert "the run is trained on the CPU" in caplog.text


def test_a_trainer_that_is_to_have_gpus_does_not_train_on_the_cpu(journal, monkeypatch):
    monkeypatch.setenv("KBQA_TRAINER_DEVICE", "cuda")
    with pytest.raises(ConfigurationError, match=r"torch finds no GPU.*KBQA_TRAINER_DEVICE=auto"):
        record_device(TrainerSettings.load(), ALONE, journal)
    assert "device" not in journal.results


def test_a_run_fails_if_only_some_of_its_processes_have_a_gpu(journal):
    ranks = Ranks(size=4, lacking=("b: 1 of 2 GPUs",))
    with pytest.raises(ConfigurationError, match=r"\(b: 1 of 2 GPUs\).*KBQA_TRAINING_PROCESSES.*resume"):
        record_device(TrainerSettings.load(), ranks, journal)
    assert "device" not in journal.results


@pytest.mark.parametrize(("drain_s", "http_s"), [("600", 10), ("3", 3)])
def test_of_a_long_grace_period_requests_have_ten_seconds(monkeypatch, tmp_path, drain_s, http_s):
    """The rest is the training process's, which ends after them."""
    served = []
    monkeypatch.setattr(starting, "serve", lambda *_, drain_s, **__: served.append(drain_s))
    monkeypatch.setattr(starting, "require_broker", lambda *_, **__: None)
    monkeypatch.setattr(starting, "configure_logging", lambda *_: None)
    monkeypatch.setenv("KBQA_TRAINER_DRAIN_S", drain_s)
    assert main(["--home", str(tmp_path)]) == 0
    assert served == [http_s]
