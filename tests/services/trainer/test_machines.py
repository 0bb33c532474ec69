"""Settings of a training by several machines."""

import os

import pytest
import torch

from kbqa.errors import ConfigurationError
from services.trainer.__main__ import main
from services.trainer.run import threads
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
