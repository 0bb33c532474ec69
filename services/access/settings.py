"""Settings of services whose callers are other services and operators: who may call, and by which names."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Annotated

from pydantic import BeforeValidator, SecretStr
from pydantic_settings import NoDecode

from kbqa.errors import ConfigurationError
from services.access.keys import KeyFile, Keys, given_keys
from services.access.sites import is_loopback
from services.settings import ServiceSettings, comma_separated

logger = logging.getLogger(__name__)


class KeySettings(ServiceSettings):
    """Keys of kg_server and trainer. Beyond this machine, neither starts without them.

    Attributes:
        api_keys: accepted API keys, separated by commas.
        keys_file: file of additional keys, which `kbqa keys create NAME --file FILE` writes.
        require_keys: require a key for everything except health checks (default: true if keys are given, or
            if other machines can reach the address to listen on).
        allowed_hosts: names in the Host header, and hosts of pages in Origin, that are accepted besides
            localhost, IP addresses and the name to listen on; separated by commas. `*` accepts every name.
            With keys, every Host is accepted.
    """

    api_keys: SecretStr | None = None
    keys_file: Path | None = None
    require_keys: bool | None = None
    allowed_hosts: Annotated[tuple[str, ...], NoDecode, BeforeValidator(comma_separated)] = ()

    def hosts(self, keys: Keys | None) -> tuple[str, ...] | None:
        """Names by which callers may call the service; None for any."""
        return None if keys is not None else (self.host, *self.allowed_hosts)

    def accepted_keys(self) -> Keys | None:
        """The keys from the settings; None admits everybody.

        Raises:
            ConfigurationError: keys are required, but there are none; a key is too short, or the file is
                missing or not a key file.
        """
        prefix = self.model_config["env_prefix"]
        given = self.api_keys is not None or self.keys_file is not None
        beyond = not is_loopback(self.host)
        required = given or beyond if self.require_keys is None else self.require_keys
        if not required:
            if beyond:
                logger.warning("this service answers everybody who can reach it", extra={"host": self.host})
            return None
        if not given:
            where = (
                f"listens on {self.host}, which other machines can reach, but"
                if beyond
                else "requires keys, but"
            )
            raise ConfigurationError(
                f"the {self.service} {where} has no keys: set {prefix}API_KEYS (for instance to the output "
                f"of openssl rand -hex 24) and give its callers the same key as {prefix}API_KEY; or listen "
                f"on 127.0.0.1. {prefix}REQUIRE_KEYS=false answers everybody"
            )
        file, text = self.keys_file, self.api_keys
        if file is not None and not file.exists():
            raise ConfigurationError(
                f"{prefix}KEYS_FILE: {file} does not exist: create a key with "
                f"kbqa keys create NAME --file {file}"
            )
        records = given_keys(text.get_secret_value(), f"{prefix}API_KEYS") if text is not None else ()
        return Keys(KeyFile(file) if file is not None else None, records)
