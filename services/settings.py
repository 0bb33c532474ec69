"""Settings common to all services, and how settings are read.

A setting is a field. Its environment variable consists of the service's prefix and the field's name in
capitals (`KBQA_KG_SERVER_PORT`); variables of fields that all services share have no service in their name
(`KBQA_HOME`). Arguments of `load` override the environment. An unknown variable that begins with `KBQA_` is
an error, because a misspelt one would otherwise be ignored silently.

    class GatewaySettings(ServiceSettings):
        service = "gateway"
        port: int = Field(8080, ge=1, le=65535)

    settings = GatewaySettings.load(port=9000)
"""

from __future__ import annotations

import difflib
import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, Self

from pydantic import AliasChoices, Field, ValidationError
from pydantic_settings import BaseSettings, SettingsConfigDict

from kbqa.errors import ConfigurationError
from kbqa.policy_store import PolicyStore, open_store
from kbqa.telemetry.logs import LogFormat

SERVICES = ("kg_server", "rollout_worker", "trainer", "gateway")

# Variables that are accepted in the environment of every process, even if it has no such setting: addresses
# of the other services, and variables of tests and tools.
SHARED_VARIABLES = frozenset(
    {
        "KBQA_HOME",
        "KBQA_LOG_LEVEL",
        "KBQA_LOG_FORMAT",
        "KBQA_TRACES_URL",
        "KBQA_POLICY_STORE",
        "KBQA_REDIS_URL",
        "KBQA_BROKER_URL",
        "KBQA_QUEUE_PREFIX",
        "KBQA_DATA",
        "KBQA_BASES",
        "KBQA_BASE_REVISION",
        "KBQA_DEBUG",
        "KBQA_ENGINE",
        "KBQA_VLLM",
        "KBQA_VLLM_URL",
        "KBQA_KG_SERVER_API_KEY",
        "KBQA_GATEWAY_API_KEY",
        "KBQA_TRAINER_API_KEY",
        *(f"KBQA_{service.upper()}_URL" for service in SERVICES),
    }
)


def _prefix(service: str) -> str:
    return f"KBQA_{service.upper()}_"


class ServiceSettings(BaseSettings):
    """Settings of one service.

    Attributes:
        service: its name, one of `SERVICES`; a subclass sets it.
        home: directory under which graphs, policies and runs are kept (`KBQA_HOME`).
        policy_store: directory or `s3://` URL of the policies (`KBQA_POLICY_STORE`;
            default: HOME/policies).
        host: address to listen on.
        port: port to listen on.
        log_level: minimum level of log lines (`KBQA_LOG_LEVEL`).
        log_format: "text" or "json" (`KBQA_LOG_FORMAT`).
        traces_url: URL of the OpenTelemetry collector for traces (`KBQA_TRACES_URL`; default: none).
        drain_s: seconds for running requests to finish after SIGTERM.
    """

    service: ClassVar[str] = ""

    home: Path = Field(Path("var"), validation_alias="KBQA_HOME")
    policy_store: str | None = Field(None, validation_alias="KBQA_POLICY_STORE")
    host: str = "127.0.0.1"
    port: int = Field(ge=1, le=65535)
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field("INFO", validation_alias="KBQA_LOG_LEVEL")
    log_format: LogFormat = Field("text", validation_alias="KBQA_LOG_FORMAT")
    traces_url: str | None = Field(None, validation_alias="KBQA_TRACES_URL")
    drain_s: int = Field(10, ge=0)

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", validate_by_name=True, validate_by_alias=True, env_ignore_empty=True
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **kwargs: Any) -> None:
        cls.model_config["env_prefix"] = _prefix(cls.service)

    def policies(self, until: threading.Event | None = None) -> PolicyStore:
        """Where policy versions are kept; see `open_store`."""
        return open_store(self.home, self.policy_store, until)

    @classmethod
    def load(cls, **overrides: Any) -> Self:
        """Read the settings from `overrides` (those that are not None), then the environment.

        Raises:
            ConfigurationError: a value is wrong or a variable unknown; names the key.
        """
        _refuse_unknown_variables(cls, os.environ)
        try:
            return cls(**{name: value for name, value in overrides.items() if value is not None})
        except ValidationError as error:
            problems = "; ".join(_describe(cls, problem) for problem in error.errors())
            raise ConfigurationError(problems) from error


class GraphSettings(ServiceSettings):
    """How a service reaches the graphs.

    Attributes:
        kg_server_url: URL of the kg_server (`KBQA_KG_SERVER_URL`).
        kg_server_api_key: API key for the kg_server, if it requires one (`KBQA_KG_SERVER_API_KEY`).
    """

    kg_server_url: str = Field("http://127.0.0.1:8001", validation_alias="KBQA_KG_SERVER_URL")
    kg_server_api_key: str | None = Field(None, repr=False, validation_alias="KBQA_KG_SERVER_API_KEY")


class QueueSettings(GraphSettings):
    """How a service that rollouts pass through reaches their queues, and the graphs.

    Attributes:
        broker_url: URL of the broker (`KBQA_BROKER_URL`, else `KBQA_REDIS_URL` or `REDIS_URL`).
        queue_prefix: begins every key of the queues in Redis, for example `films:`. Trainer and workers of an
            installation need the same one; installations that share a Redis need different ones
            (`KBQA_QUEUE_PREFIX`).
        broker_wait_s: seconds to wait for the broker at the start.
    """

    broker_url: str = Field(
        "redis://127.0.0.1:6379/0",
        validation_alias=AliasChoices("KBQA_BROKER_URL", "KBQA_REDIS_URL", "REDIS_URL"),
    )
    queue_prefix: str = Field("", pattern=r"^[A-Za-z0-9:._-]{0,128}$", validation_alias="KBQA_QUEUE_PREFIX")
    broker_wait_s: float = Field(5.0, ge=0)


def data_directory(home: Path, given: Path | str | None) -> Path:
    """Directory of data sets that are not generated: `KBQA_DATA` if it is given, otherwise HOME/data."""
    return Path(given) if given else home / "data"


def comma_separated(value: object) -> object:
    """Validator for a list that an environment variable holds as text; the field also needs `NoDecode`."""
    return tuple(filter(None, map(str.strip, value.split(",")))) if isinstance(value, str) else value


def variables_of(settings: type[ServiceSettings]) -> dict[str, str]:
    """Field name → the environment variable that sets it."""
    names = {}
    for name, field in settings.model_fields.items():
        alias = field.validation_alias
        if isinstance(alias, AliasChoices):
            alias = str(alias.choices[0])
        names[name] = str(alias) if alias else f"{_prefix(settings.service)}{name.upper()}"
    return names


def _refuse_unknown_variables(settings: type[ServiceSettings], environment: Mapping[str, str]) -> None:
    known = {*variables_of(settings).values(), *SHARED_VARIABLES}
    others = tuple(_prefix(service) for service in SERVICES if service != settings.service)
    for variable in sorted(environment):
        name = variable.upper()
        if name.startswith("KBQA_") and name not in known and not name.startswith(others):
            close = difflib.get_close_matches(name, known, n=1)
            hint = f'did you mean "{close[0]}"?' if close else f"known: {', '.join(sorted(known))}"
            raise ConfigurationError(f'unknown setting "{variable}": {hint}')


def _describe(settings: type[ServiceSettings], problem: Mapping[str, Any]) -> str:
    path = [str(part) for part in problem["loc"]] or ["settings"]
    variable = variables_of(settings).get(path[0], path[0])
    value = f" (it is {problem['input']!r})" if problem["type"] not in ("missing", "extra_forbidden") else ""
    return f"{'.'.join([variable, *path[1:]])}: {problem['msg'].removeprefix('Value error, ')}{value}"
