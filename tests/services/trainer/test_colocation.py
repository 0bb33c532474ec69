"""A vLLM server that shares the trainer's GPU, and the port from which weights are sent."""

from __future__ import annotations

import socket

import pytest

from kbqa.errors import ConfigurationError, PolicyUnavailableError
from kbqa.policies.vllm.sender import ask_for
from kbqa.recipes import load_recipe
from services.rollout_worker.settings import RolloutWorkerSettings
from services.trainer.run import _colocated, _sending
from services.trainer.settings import TrainerSettings
from tests.unit.policies.fake_vllm import FakeVllm
from tests.unit.policies_fixtures import make_codec, make_model

ON_POLICY = load_recipe("kg-r1")


@pytest.fixture
def vllm():
    fake = FakeVllm(make_model(), make_codec())
    yield fake
    fake.stop()


def test_the_server_sleeps_during_a_step_and_one_that_was_left_asleep_is_woken(vllm):
    vllm.sleeping = True
    with _colocated(TrainerSettings(colocated_vllm_url=vllm.url), ON_POLICY) as alone:
        assert not vllm.sleeping
        with alone():
            assert vllm.sleeping
        assert not vllm.sleeping


def test_recipes_that_accept_stale_groups_need_a_gpu_of_their_own():
    stale = load_recipe("kg-r1-small")
    settings = TrainerSettings(colocated_vllm_url="http://127.0.0.1:1")
    with pytest.raises(ConfigurationError, match="max_staleness=0"), _colocated(settings, stale):
        pass
    with _colocated(TrainerSettings(), stale) as alone, alone():
        pass


def test_without_a_port_nothing_is_sent_and_with_one_it_answers_there(tmp_path):
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with _sending(TrainerSettings(home=tmp_path)), pytest.raises(PolicyUnavailableError, match="trainer up"):
        ask_for(("127.0.0.1", port), "r1", "v000001-00000000", 1)
    with (
        _sending(TrainerSettings(home=tmp_path, weights_port=port)),
        pytest.raises(PolicyUnavailableError, match="no policy version"),
    ):
        ask_for(("127.0.0.1", port), "r1", "v000001-00000000", 1)


def test_where_weights_come_from_is_an_address():
    assert RolloutWorkerSettings.load().sender() is None
    assert RolloutWorkerSettings.load(weights_from="trainer:8004").sender() == ("trainer", 8004)
    with pytest.raises(ConfigurationError, match="WEIGHTS_FROM"):
        RolloutWorkerSettings.load(weights_from="http://trainer:8004")
