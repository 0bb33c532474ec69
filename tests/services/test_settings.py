"""Where settings come from, and what is said of a wrong one."""

from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import Field

from kbqa.errors import ConfigurationError
from services.rollout_worker.settings import RolloutWorkerSettings
from services.settings import ServiceSettings


class ToySettings(ServiceSettings):
    service = "gateway"

    port: int = Field(8080, ge=1, le=65535)
    depth: int = 3


@pytest.fixture
def environment(monkeypatch):
    """Set the given variables, and no other of ours."""
    import os

    for name in list(os.environ):
        if name.startswith("KBQA_"):
            monkeypatch.delenv(name)

    def set_variables(**variables):
        for name, value in variables.items():
            monkeypatch.setenv(name, value)

    return set_variables


def test_arguments_win_over_the_environment_and_that_over_defaults(environment):
    environment(KBQA_HOME="/data", KBQA_GATEWAY_PORT="9000", KBQA_GATEWAY_DEPTH="", KBQA_LOG_LEVEL="DEBUG")
    settings = ToySettings.load(port=9001, host=None)
    assert (settings.home, settings.port, settings.host) == (Path("/data"), 9001, "127.0.0.1")
    assert (settings.depth, settings.log_level) == (3, "DEBUG")
    assert ToySettings.load().port == 9000


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("KBQA_GATEWAY_PROT", "1", 'unknown setting "KBQA_GATEWAY_PROT": did you mean "KBQA_GATEWAY_PORT"?'),
        ("KBQA_HOEM", "/", 'did you mean "KBQA_HOME"'),
        ("KBQA_XYZZY", "1", "known: "),
        ("KBQA_GATEWAY_PORT", "abc", "KBQA_GATEWAY_PORT: Input should be a valid integer"),
        ("KBQA_GATEWAY_PORT", "70000", "KBQA_GATEWAY_PORT: "),
        ("KBQA_LOG_FORMAT", "xml", "KBQA_LOG_FORMAT: "),
    ],
)
def test_a_wrong_variable_is_named(environment, name, value, message):
    environment(**{name: value})
    with pytest.raises(ConfigurationError) as caught:
        ToySettings.load()
    assert message in str(caught.value)


def test_settings_of_other_services_are_left_to_them(environment):
    environment(KBQA_TRAINER_ANYTHING="x", KBQA_KG_SERVER_URL="http://kg:8001", KBQA_DATA="/data")
    assert ToySettings.load().port == 8080


def test_an_unknown_argument_is_named(environment):
    with pytest.raises(ConfigurationError, match="depht: Extra inputs are not permitted"):
        ToySettings.load(depht=4)


def test_a_request_is_not_given_to_another_worker_while_it_may_be_in_progress(environment):
    waits = {"policy_wait_s": 1, "graph_wait_s": 20, "rollout_timeout_s": 300, "deliver_wait_s": 4000}
    with pytest.raises(ConfigurationError, match=r"VISIBILITY_TIMEOUT_S: must exceed 4321 s.*\(it is 4321\)"):
        RolloutWorkerSettings.load(**waits, visibility_timeout_s=4321)
    assert RolloutWorkerSettings.load(**waits, visibility_timeout_s=4322).longest_rollout_s == 301
